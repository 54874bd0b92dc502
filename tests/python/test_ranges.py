# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading
from typing import Any, List

import pytest

import hostrange


def names(markers: Any) -> List[List[Any]]:
    return [event[:2] for event in markers.events]


def detached_tokens(markers: Any, marker: str) -> List[int]:
    return [event[2] for event in markers.events if event[0] == marker]


def test_nests(markers: Any) -> None:
    with hostrange.range("outer"), hostrange.range("inner"):
        pass
    assert markers.events == [
        ["range_begin", "outer"],
        ["range_begin", "inner"],
        ["range_end", "inner"],
        ["range_end", "outer"],
    ]


def test_ends_on_an_exception(markers: Any) -> None:
    with pytest.raises(KeyError), hostrange.range("load"):
        raise KeyError
    assert markers.events == [["range_begin", "load"], ["range_end", "load"]]


def test_decorates_a_function(markers: Any) -> None:
    @hostrange.range("factorial")
    def factorial(number: int) -> int:
        """Doc."""
        return number * factorial(number - 1) if number > 1 else 1

    assert factorial(3) == 6
    assert (factorial.__name__, factorial.__doc__) == ("factorial", "Doc.")
    assert [event[0] for event in markers.events] == ["range_begin"] * 3 + ["range_end"] * 3


def test_decorates_a_method_that_raises(markers: Any) -> None:
    class Loader:
        @hostrange.range("load")
        def load(self) -> None:
            raise OSError

        @staticmethod
        @hostrange.range("open")
        def open() -> int:
            return 1

    with pytest.raises(OSError):
        Loader().load()
    assert Loader.open() == 1
    assert names(markers) == [
        ["range_begin", "load"],
        ["range_end", "load"],
        ["range_begin", "open"],
        ["range_end", "open"],
    ]


def test_a_decorator_above_staticmethod_is_refused(markers: Any) -> None:
    with pytest.raises(TypeError, match="goes below @staticmethod"):
        hostrange.range("load")(staticmethod(len))


def test_nothing_is_marked_without_a_profiler(markers: Any) -> None:
    markers.profiled = False
    with hostrange.range("load"):
        pass
    assert markers.events == []


def test_a_profiler_that_comes_or_goes_inside(markers: Any) -> None:
    markers.profiled = False
    with hostrange.range("came"):
        markers.profiled = True
    with hostrange.range("went"):
        markers.profiled = False
    assert markers.events == [["range_begin", "went"], ["range_end", "went"]]


@pytest.mark.parametrize("name", [None, 3, len, b"load"])
def test_a_name_is_a_string(name: Any) -> None:
    with pytest.raises(TypeError, match="a range needs a name"):
        hostrange.range(name)


def test_a_name_has_no_nul() -> None:
    with pytest.raises(ValueError, match="NUL"):
        hostrange.range("a\0b")


def test_one_object_in_many_threads(markers: Any) -> None:
    load = hostrange.range("load")
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        for _ in range(200):
            with load, load:
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begun = markers.events.count(["range_begin", "load"])
    assert begun == markers.events.count(["range_end", "load"]) == 8 * 200 * 2


def test_tasks_are_detached_and_keep_their_own(markers: Any) -> None:
    shared = hostrange.range("step")

    async def step(first: asyncio.Event, second: asyncio.Event) -> None:
        with shared:
            first.set()
            await second.wait()

    async def main() -> None:
        one, two = asyncio.Event(), asyncio.Event()
        await asyncio.gather(step(one, two), step(two, one))

    asyncio.run(main())
    begun = detached_tokens(markers, "range_begin_detached")
    ended = detached_tokens(markers, "range_end_detached")
    assert len(markers.events) == 4
    assert len(set(begun)) == 2 and sorted(begun) == sorted(ended) and 0 not in begun
    assert [event[0] for event in markers.events[:2]] == ["range_begin_detached"] * 2


def test_a_cancelled_task_ends_its_range(markers: Any) -> None:
    async def wait() -> None:
        with hostrange.range("wait"):
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [event[0] for event in markers.events] == ["range_begin_detached", "range_end_detached"]


def test_a_callback_of_the_loop_is_not_a_task(markers: Any) -> None:
    async def main() -> None:
        done = asyncio.Event()

        def call() -> None:
            with hostrange.range("callback"):
                done.set()

        asyncio.get_running_loop().call_soon(call)
        await done.wait()

    asyncio.run(main())
    assert markers.events == [["range_begin", "callback"], ["range_end", "callback"]]


def test_decorates_a_coroutine_function(markers: Any) -> None:
    @hostrange.range("fetch")
    async def fetch(fails: bool) -> int:
        await asyncio.sleep(0)
        if fails:
            raise OSError
        return 5

    async def main() -> List[Any]:
        return await asyncio.gather(fetch(False), fetch(True), return_exceptions=True)

    result, error = asyncio.run(main())
    assert result == 5 and isinstance(error, OSError)
    begun = detached_tokens(markers, "range_begin_detached")
    assert len(set(begun)) == 2
    assert sorted(begun) == sorted(detached_tokens(markers, "range_end_detached"))


def test_detached_where_asked_for(markers: Any) -> None:
    with hostrange.range("outside", detached=True):
        pass

    async def main() -> None:
        with hostrange.range("inside", detached=False):
            pass

    asyncio.run(main())
    assert names(markers) == [
        ["range_begin_detached", "outside"],
        ["range_end_detached", "outside"],
        ["range_begin", "inside"],
        ["range_end", "inside"],
    ]


def test_a_range_is_left_in_another_task(markers: Any) -> None:
    async def numbers() -> Any:
        with hostrange.range("numbers"):
            yield 1
            yield 2

    async def main() -> None:
        generator = numbers()
        await asyncio.create_task(generator.__anext__())
        await asyncio.create_task(generator.aclose())

    asyncio.run(main())
    assert [event[0] for event in markers.events] == ["range_begin_detached", "range_end_detached"]


def test_a_generator_is_entered_for_each_item(markers: Any) -> None:
    @hostrange.range("item")
    def numbers() -> Any:
        received = yield 1
        try:
            yield received
        except KeyError:
            yield "caught"
        return "end"

    generator = numbers()
    assert markers.events == []
    assert next(generator) == 1
    assert len(markers.events) == 2
    assert generator.send("sent") == "sent"
    assert generator.throw(KeyError()) == "caught"
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "end"
    assert markers.events == [["range_begin", "item"], ["range_end", "item"]] * 4


def test_a_generator_that_is_dropped_is_closed(markers: Any) -> None:
    closed = []

    @hostrange.range("item")
    def numbers() -> Any:
        try:
            yield 1
        finally:
            closed.append(True)

    for _ in numbers():
        break
    assert closed == [True]
    assert markers.events.count(["range_begin", "item"]) == markers.events.count(["range_end", "item"]) == 2


def test_an_asynchronous_generator(markers: Any) -> None:
    @hostrange.range("item")
    async def numbers() -> Any:
        received = yield 1
        try:
            yield received
        except KeyError:
            yield "caught"

    async def main() -> None:
        generator = numbers()
        assert await generator.__anext__() == 1
        assert await generator.asend("sent") == "sent"
        assert await generator.athrow(KeyError()) == "caught"
        with pytest.raises(StopAsyncIteration):
            await generator.__anext__()
        other = numbers()
        await other.__anext__()
        await other.aclose()

    asyncio.run(main())
    begun = detached_tokens(markers, "range_begin_detached")
    assert len(begun) == 6
    assert begun == detached_tokens(markers, "range_end_detached")
