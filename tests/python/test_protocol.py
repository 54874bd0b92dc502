# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import sys
import threading
import types
from typing import Any, List

import pytest

import hostrange


def test_a_case_with_phases(markers: Any) -> None:
    hostrange.session_begin("bench")
    with hostrange.case("bench::add", operator="add", backend="cpu"):
        with hostrange.phase("cold"):
            pass
        with hostrange.phase("warm"):
            pass
        hostrange.measurement("end_to_end", 10, 1.5, 1.25)
    hostrange.session_end()
    assert markers.events == [
        ["session_begin", "bench"],
        ["case_begin", "bench::add", "add", "cpu"],
        ["phase_begin", "cold"],
        ["phase_end", "cold"],
        ["phase_begin", "warm"],
        ["phase_end", "warm"],
        ["measurement", "end_to_end", 10, 1.5, 1.25],
        ["case_end", 1],
        ["session_end"],
    ]


def test_phase_begun_twice(markers: Any) -> None:
    with hostrange.phase("cold"):
        with pytest.raises(hostrange.HostrangeError, match="'warm' begun while phase 'cold' is open"):
            hostrange.phase_begin("warm")
    assert markers.events == [["phase_begin", "cold"], ["phase_end", "cold"]]


def test_phase_ended_without_begin(markers: Any) -> None:
    with pytest.raises(hostrange.HostrangeError, match="'warm' was ended, but none is open"):
        hostrange.phase_end("warm")
    assert markers.events == []


def test_another_phase_ended(markers: Any) -> None:
    hostrange.phase_begin("cold")
    with pytest.raises(hostrange.HostrangeError, match="'warm' was ended, but the open one is 'cold'"):
        hostrange.phase_end("warm")
    hostrange.phase_end("cold")
    assert markers.events == [["phase_begin", "cold"], ["phase_end", "cold"]]


def test_case_begun_twice(markers: Any) -> None:
    with hostrange.case("a"):
        with pytest.raises(hostrange.HostrangeError, match="case 'b' begun while case 'a' is open"):
            hostrange.case_begin("b")
    assert [event[0] for event in markers.events] == ["case_begin", "case_end"]


def test_case_ended_without_begin(markers: Any) -> None:
    with pytest.raises(hostrange.HostrangeError, match="none is open"):
        hostrange.case_end()


def test_case_begun_in_a_phase(markers: Any) -> None:
    with hostrange.phase("warm"):
        with pytest.raises(hostrange.HostrangeError, match="case 'a' begun while phase 'warm' is open"):
            hostrange.case_begin("a")


def test_a_case_ends_the_phase_that_was_left_open(markers: Any) -> None:
    hostrange.case_begin("a")
    hostrange.phase_begin("warm")
    with pytest.raises(hostrange.HostrangeError, match="case 'a' ended while open in it: phase 'warm'"):
        hostrange.case_end()
    with hostrange.case("b"), hostrange.phase("warm"):
        pass
    assert [event[0] for event in markers.events] == ["case_begin", "phase_begin", "phase_end", "case_end"] * 2


def test_ranges_open_at_the_end_of_a_phase(markers: Any) -> None:
    with hostrange.range("before"):
        hostrange.phase_begin("warm")
        outer, inner = hostrange.range("outer"), hostrange.range("inner")
        outer.__enter__()
        inner.__enter__()
        with pytest.raises(hostrange.HostrangeError, match="'warm' ended .*: range 'outer', range 'inner'"):
            hostrange.phase_end("warm")
        inner.__exit__(None, None, None)
        outer.__exit__(None, None, None)
    assert markers.events[-4:] == [
        ["range_end", "inner"],
        ["range_end", "outer"],
        ["phase_end", "warm"],
        ["range_end", "before"],
    ]
    assert markers.events.count(["range_end", "inner"]) == 1


def test_a_range_of_another_thread_is_named_and_stays(markers: Any) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with hostrange.range("of a thread"):
            begun.set()
            may_end.wait()

    thread = threading.Thread(target=work)
    hostrange.phase_begin("warm")
    thread.start()
    begun.wait()
    with pytest.raises(hostrange.HostrangeError, match="range 'of a thread'"):
        hostrange.phase_end("warm")
    with hostrange.phase("next"):
        pass
    assert ["range_end", "of a thread"] not in markers.events
    may_end.set()
    thread.join()
    assert markers.events[-1] == ["range_end", "of a thread"]


def test_an_exception_goes_before_what_was_left_open(markers: Any) -> None:
    with pytest.warns(hostrange.HostrangeWarning, match="range 'left'"), pytest.raises(KeyError):
        with hostrange.phase("warm"):
            hostrange.range("left").__enter__()
            raise KeyError
    assert markers.events[-1] == ["phase_end", "warm"]


def test_text_with_nul_changes_nothing(markers: Any) -> None:
    with pytest.raises(ValueError, match="NUL"):
        hostrange.phase_begin("a\0b")
    with hostrange.phase("warm"):
        pass


@pytest.mark.parametrize("count, mean_ns", [(-1, 1.0), (1, -1.0), (1, math.nan), (1, math.inf)])
def test_measurements_are_numbers(markers: Any, count: int, mean_ns: float) -> None:
    with pytest.raises(ValueError, match="measurement"):
        hostrange.measurement("end_to_end", count, mean_ns, 1.0)


def test_unprofiled(markers: Any) -> None:
    with pytest.raises(KeyError):
        with hostrange.unprofiled(timeout_s=2), hostrange.unprofiled():
            markers.events.append("inside")
            raise KeyError
    assert markers.events == [["pause", 2000], "inside", ["resume", 2000]]


def test_unprofiled_in_vain(markers: Any) -> None:
    markers.can_pause = False
    for _ in range(2):
        with pytest.warns(hostrange.HostrangeWarning, match="contain the probes' cost"):
            with hostrange.unprofiled():
                pass
    assert markers.events == [["pause", 5000], ["resume", 5000], ["pause", 100], ["resume", 5000]]


def test_benchmark_call(markers: Any) -> None:
    def note(what: str) -> Any:
        return lambda: markers.events.append(what)

    measured = hostrange.benchmark_call(
        note("call"), clear_cache=note("clear"), synchronize=note("synchronize"), calls=3
    )
    assert measured.count == 3 and measured.mean_ns > 0 and measured.median_ns > 0
    assert markers.events == [
        "clear",
        "synchronize",
        ["phase_begin", "cold"],
        "call",
        ["phase_end", "cold"],
        "synchronize",
        ["pause", 5000],
        *["call"] * 3,
        ["resume", 5000],
        "synchronize",
        ["phase_begin", "warm"],
        *["call"] * 3,
        ["phase_end", "warm"],
        "synchronize",
        ["measurement", "end_to_end", 3, measured.mean_ns, measured.median_ns],
    ]


@pytest.mark.parametrize("calls", [1, 99, 100, 101, 250])
def test_benchmark_call_makes_as_many_calls_as_given(markers: Any, calls: int) -> None:
    made: List[None] = []
    assert hostrange.benchmark_call(lambda: made.append(None), calls=calls).count == calls
    assert len(made) == 1 + 2 * calls


class StandInTimer:
    """Has what is used of torch.utils.benchmark.Timer, so that its way is tested where torch is not."""

    def __init__(self, stmt: str, globals: Any, timer: Any) -> None:
        self.call = lambda: exec(stmt, globals)

    def blocked_autorange(self, min_run_time: float) -> Any:
        for _ in range(3 * 4):
            self.call()
        return types.SimpleNamespace(raw_times=[1.0, 2.0, 9.0], number_per_run=4, mean=1.0, median=0.5)


def test_benchmark_call_uses_torchs_timer(markers: Any, monkeypatch: Any) -> None:
    benchmark = types.ModuleType("torch.utils.benchmark")
    benchmark.Timer = StandInTimer  # type: ignore[attr-defined]
    for name, module in (("torch", types.ModuleType("torch")), ("torch.utils", types.ModuleType("torch.utils"))):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "torch.utils.benchmark", benchmark)
    made: List[None] = []
    measured = hostrange.benchmark_call(lambda: made.append(None))
    assert measured == (12, 1e9, 0.5e9)
    assert len(made) == 1 + 12 + 12


def test_benchmark_call_finds_the_number_of_calls(markers: Any, monkeypatch: Any) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    warm: List[None] = []

    def call() -> None:
        if markers.events[-1] == ["phase_begin", "warm"]:
            warm.append(None)

    measured = hostrange.benchmark_call(call, min_run_time_s=0.005)
    assert measured.count == len(warm) >= 1
    assert markers.events[-1] == ["measurement", "end_to_end", *measured]


def test_benchmark_call_without_a_profiler(markers: Any) -> None:
    markers.profiled = False
    made: List[None] = []
    assert hostrange.benchmark_call(lambda: made.append(None), calls=7).count == 7
    assert len(made) == 8


@pytest.mark.parametrize("good_calls", [0, 1, 4], ids=["cold", "timer", "warm"])
def test_benchmark_call_whose_function_raises(markers: Any, good_calls: int) -> None:
    made: List[None] = []

    def call() -> None:
        if len(made) == good_calls:
            raise OSError
        made.append(None)

    with pytest.raises(OSError):
        hostrange.benchmark_call(call, calls=3)
    begun = [event[1] for event in markers.events if event[0] == "phase_begin"]
    assert begun == [event[1] for event in markers.events if event[0] == "phase_end"]
    names = [event[0] for event in markers.events]
    assert names.count("pause") == names.count("resume")
    assert not [event for event in markers.events if event[0] == "measurement"]


@pytest.mark.parametrize("arguments", [{"calls": 0}, {"min_run_time_s": 0}, {"min_run_time_s": math.nan}])
def test_benchmark_call_refuses_nonsense(markers: Any, arguments: Any) -> None:
    with pytest.raises(ValueError):
        hostrange.benchmark_call(lambda: None, **arguments)
    assert markers.events == []
