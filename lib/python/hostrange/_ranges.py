# SPDX-License-Identifier: Apache-2.0
"""Ranges of the program's own: named scopes in Python code."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from threading import get_ident
from types import TracebackType
from typing import Any, AsyncGenerator, Callable, Dict, Generator, List, NamedTuple, Optional, Type, TypeVar, cast

from . import _markers

Function = TypeVar("Function", bound=Callable[..., Any])


class OpenRange(NamedTuple):
    """A range that has begun and not ended, while a profiler listened."""

    number: int
    name: str
    handle: _markers.Name
    is_detached: bool
    thread: int


# Counts every range that a profiler was told of; the number is a detached range's token as well, so it is never 0.
_numbers = itertools.count(1)
# Single operations on dictionaries are atomic: no lock is needed on the way of every range.
_open: Dict[int, OpenRange] = {}
_handles: Dict[str, _markers.Name] = {}


def next_number() -> int:
    """A number below that of every range that begins from now on, and above that of all that have begun."""
    return next(_numbers)


def opened_since(number: int) -> List[OpenRange]:
    """The ranges, of any thread, that began after ``next_number()`` gave ``number`` and are open; in order."""
    return [opened for opened in sorted(_open.copy().values()) if opened.number > number]


def close(ranges: List[OpenRange]) -> None:
    """Ends ranges that were left open, the innermost first. Those of other threads stay: only these can end them."""
    for opened in reversed(ranges):
        if opened.is_detached or opened.thread == get_ident():
            _finish(opened.number)


def _finish(number: int) -> None:
    opened = _open.pop(number, None)
    if opened is None:  # close() was earlier
        return
    if opened.is_detached:
        _markers.range_end_detached(opened.handle, opened.number)
    else:
        _markers.range_end(opened.handle)


def _handle(name: str) -> _markers.Name:
    handle = _handles.get(name)
    if handle is None:
        handle = _handles[name] = _markers.intern(name)
    return handle


def _current_task() -> Any:
    """The asyncio task that runs in this thread, or None. A program that has not imported asyncio does not now."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        # Without a loop current_task() raises, which costs more than all the rest of a range.
        return asyncio.current_task() if asyncio._get_running_loop() is not None else None
    except (AttributeError, RuntimeError):  # asyncio is half imported, or the loop is being closed
        return None


class range:  # noqa: A001  see __init__.py
    """A named scope: ``with hostrange.range("load"): ...`` or ``@hostrange.range("load")`` above a function.

    Library calls inside are nested in it, in the same thread. It ends however the block is left, by an exception too.
    One object may be entered many times, nested and by several threads. While no profiler listens, entering costs
    about as much as calling an empty method.

    Inside an asyncio task the range is *detached*: other tasks may run before it ends, so it stands for itself, from
    begin to end on the clock, and no call is nested in it. ``detached=True`` asks for that elsewhere (event loops other
    than asyncio); ``detached=False`` nests calls in a task too, which is right only without an ``await`` inside.

    As a decorator: a coroutine function's range is detached. A generator's range is entered anew for every item, so
    that the consumer's time is not in it; an asynchronous generator's likewise, detached. A ``with`` block around a
    ``yield`` would not be right: calls of the consumer would be nested in it.

    Names are kept for the life of the process: use a fixed set of them.

    Errors: TypeError if ``name`` is not a string, ValueError if it has a NUL character.
    """

    __slots__ = ("_detached", "_entered", "_name")

    def __init__(self, name: str, *, detached: Optional[bool] = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a range needs a name, as in hostrange.range('load'), not {name!r}")
        if "\0" in name:
            raise ValueError(f"a range's name cannot have a NUL character in it: {name!r}")
        self._name = name
        self._detached = detached
        # The numbers of what was entered, by task or thread: each changes only its own list.
        self._entered: Dict[Any, List[int]] = {}

    def __repr__(self) -> str:
        return f"hostrange.range({self._name!r})"

    def __enter__(self) -> "range":
        if _markers.is_profiled():
            self._begin()
        return self

    def __exit__(
        self,
        exception_type: Optional[Type[BaseException]],
        exception: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._entered:
            self._end()

    def __call__(self, function: Function) -> Function:
        if isinstance(function, (staticmethod, classmethod)):
            raise TypeError(f"{self!r} goes below @{type(function).__name__}")
        if inspect.isasyncgenfunction(function):
            wrapper = self._wrap_async_generator(function)
        elif inspect.iscoroutinefunction(function):
            wrapper = self._wrap_coroutine(function)
        elif inspect.isgeneratorfunction(function):
            wrapper = self._wrap_generator(function)
        else:
            wrapper = self._wrap_function(function)
        return cast(Function, functools.update_wrapper(wrapper, function))

    def _begin(self) -> None:
        task = _current_task()
        thread = get_ident()
        is_detached = task is not None if self._detached is None else self._detached
        handle = _handle(self._name)
        number = next(_numbers)
        self._entered.setdefault(thread if task is None else task, []).append(number)
        _open[number] = OpenRange(number, self._name, handle, is_detached, thread)
        if is_detached:
            _markers.range_begin_detached(handle, number)
        else:
            _markers.range_begin(handle)

    def _end(self) -> None:
        task = _current_task()
        owner = get_ident() if task is None else task
        if owner not in self._entered:
            owner = self._finished_task()
            if owner is None:  # it was entered before a profiler listened
                return
        numbers = self._entered[owner]
        number = numbers.pop()
        if not numbers:
            del self._entered[owner]
        _finish(number)

    def _finished_task(self) -> Any:
        """A task that entered and is no more: asyncio leaves the blocks of its asynchronous generators in another."""
        for owner in list(self._entered):
            if not isinstance(owner, int) and owner.done():
                return owner
        return None

    def _wrap_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapper

    def _wrap_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # A new object for each call: in event loops other than asyncio the calls cannot be told apart by their task.
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with range(self._name, detached=True):
                return await function(*args, **kwargs)

        return wrapper

    def _wrap_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            generator = function(*args, **kwargs)
            resume = functools.partial(next, generator)
            while True:
                try:
                    with self:
                        item = resume()
                except StopIteration as stop:
                    return stop.value
                try:
                    sent = yield item
                except GeneratorExit:
                    with self:
                        generator.close()
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.throw, error)
                else:
                    resume = functools.partial(generator.send, sent)

        return wrapper

    def _wrap_async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            generator = function(*args, **kwargs)
            resume = functools.partial(generator.asend, None)
            while True:
                try:
                    with range(self._name, detached=True):
                        item = await resume()
                except StopAsyncIteration:
                    return
                try:
                    sent = yield item
                except GeneratorExit:
                    with range(self._name, detached=True):
                        await generator.aclose()
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.athrow, error)
                else:
                    resume = functools.partial(generator.asend, sent)

        return wrapper
