# SPDX-License-Identifier: Apache-2.0
"""Sessions, cases and phases, and the rules in which order they come."""

from __future__ import annotations

import contextlib
import math
import threading
import warnings
from typing import Callable, Iterator, List, NamedTuple, Optional

from . import _markers, _ranges
from ._errors import HostrangeError, HostrangeWarning


class _Part(NamedTuple):
    """An open case or phase."""

    name: str
    case_number: int
    range_number: int


# Case and phase are the process's, whichever thread begins them.
_lock = threading.RLock()
_case: Optional[_Part] = None
_phase: Optional[_Part] = None

# How deep in unprofiled() the process is, and whether a profiler has let a pause pass without doing anything.
_unprofiled_depth = 0
_pause_was_ignored = False
_TIMEOUT_AFTER_AN_IGNORED_PAUSE_S = 0.1


def is_profiled() -> bool:
    """Whether a profiler listens to this process's cases and ranges."""
    return _markers.is_profiled()


def is_probed() -> bool:
    """Whether a profiler's probes are in this process's libraries, so that calls are timed; not in unprofiled()."""
    return _markers.is_probed()


def session_begin(name: str) -> None:
    """Begins a run of tests or the like; ``name`` says of what kind. ValueError: it has a NUL character."""
    _markers.session_begin(name)


def session_end() -> None:
    """Ends the run."""
    _markers.session_end()


def case_begin(nodeid: str, operator: str = "", backend: str = "") -> None:
    """Begins a test or benchmark case: calls of this process belong to it from now on, in whatever thread.

    ``operator`` and ``backend`` are what calls are reported under where their own symbols do not say it.

    Errors: HostrangeError if a case, or a phase outside of any case, is open already; ValueError for a NUL character.
    """
    global _case
    with _lock:
        if _case is not None:
            raise HostrangeError(f"case {nodeid!r} begun while case {_case.name!r} is open: end that one first")
        if _phase is not None:
            raise HostrangeError(f"case {nodeid!r} begun while phase {_phase.name!r} is open: end that one first")
        range_number = _ranges.next_number()
        _case = _Part(nodeid, _markers.case_begin(nodeid, operator, backend), range_number)


def case_end() -> None:
    """Ends the open case, and whatever was left open in it.

    Errors: HostrangeError if no case is open; if a phase or a range was left open, which is ended (ranges of other
    threads excepted) before the error is raised.
    """
    global _case, _phase
    with _lock:
        if _case is None:
            raise HostrangeError("a case was ended, but none is open")
        ended, phase_left, _phase, _case = _case, _phase, None, None
        ranges_left = _end_ranges(ended)
        if phase_left is not None:
            _markers.phase_end(phase_left.name)
        _markers.case_end(ended.case_number)
    left = [f"phase {phase_left.name!r}"] if phase_left is not None else []
    _raise_if_left(f"case {ended.name!r}", left + ranges_left)


def phase_begin(name: str) -> None:
    """Begins a part of the case: ``"cold"``, ``"warm"``, or any other name.

    Once a case has had a phase, only calls within its phases are reported.

    Errors: HostrangeError if a phase is open already; ValueError for a NUL character.
    """
    global _phase
    with _lock:
        if _phase is not None:
            raise HostrangeError(f"phase {name!r} begun while phase {_phase.name!r} is open: end that one first")
        range_number = _ranges.next_number()
        _markers.phase_begin(name)
        _phase = _Part(name, 0, range_number)


def phase_end(name: str) -> None:
    """Ends the open phase, which must be ``name``.

    Errors: HostrangeError if no phase or another one is open (nothing changes then), or if ranges that began in the
    phase are open still; these are ended (those of other threads excepted), and so is the phase, before it is raised.
    """
    global _phase
    with _lock:
        if _phase is None:
            raise HostrangeError(f"phase {name!r} was ended, but none is open")
        if _phase.name != name:
            raise HostrangeError(f"phase {name!r} was ended, but the open one is {_phase.name!r}")
        ended, _phase = _phase, None
        ranges_left = _end_ranges(ended)
        _markers.phase_end(name)
    _raise_if_left(f"phase {name!r}", ranges_left)


def open_case() -> Optional[str]:
    """The name of the open case, or None."""
    return None if _case is None else _case.name


def case(nodeid: str, operator: str = "", backend: str = "") -> contextlib.AbstractContextManager[None]:
    """``with case(...):`` begins and ends it; see case_begin() and case_end() for the errors.

    When the block raises, its exception goes on, and what was left open is told as a HostrangeWarning.
    """
    return _between(lambda: case_begin(nodeid, operator, backend), case_end)


def phase(name: str) -> contextlib.AbstractContextManager[None]:
    """``with phase("warm"):`` begins and ends it; see phase_begin() and phase_end() for the errors.

    When the block raises, its exception goes on, and what was left open is told as a HostrangeWarning.
    """
    return _between(lambda: phase_begin(name), lambda: phase_end(name))


def measurement(name: str, count: int, mean_ns: float, median_ns: float) -> None:
    """Puts a duration that the program has measured itself into the report, as a row of the present case and phase.

    ``count`` calls; mean and median in nanoseconds. Outside of any phase it is a row of "warm".

    Errors: ValueError if the count is negative, a duration is negative or not finite, or the name has a NUL character.
    """
    if count < 0:
        raise ValueError(f"a measurement's count cannot be negative: {count}")
    for duration_ns in (mean_ns, median_ns):
        if not math.isfinite(duration_ns) or duration_ns < 0:
            raise ValueError(f"a measurement's durations are finite nanoseconds, not {duration_ns}")
    _markers.measurement(name, count, mean_ns, median_ns)


@contextlib.contextmanager
def unprofiled(timeout_s: float = 5.0) -> Iterator[None]:
    """Has the profiler's probes taken out of this process for a block, so that something can be timed without them.

    Waits at most ``timeout_s`` seconds for that, and again for their return. If they stay, a HostrangeWarning says so
    and the block runs nonetheless: what it measures contains the probes' cost. (A profiler of all processes at once
    never takes them out; after the first such wait, later ones last 0.1 s at most.) Blocks may nest.

    Errors: ValueError for a negative timeout.
    """
    if not timeout_s >= 0:
        raise ValueError(f"a timeout cannot be {timeout_s} s")
    global _unprofiled_depth
    with _lock:
        if _unprofiled_depth == 0:
            _pause(timeout_s)
        _unprofiled_depth += 1
    try:
        yield
    finally:
        with _lock:
            _unprofiled_depth -= 1
            if _unprofiled_depth == 0:
                _resume(timeout_s)


def _pause(timeout_s: float) -> None:
    global _pause_was_ignored
    if _pause_was_ignored:
        timeout_s = min(timeout_s, _TIMEOUT_AFTER_AN_IGNORED_PAUSE_S)
    _pause_was_ignored = not _markers.pause(_milliseconds(timeout_s))
    if _pause_was_ignored:
        _warn(
            f"the profiler has not taken its probes out within {timeout_s} s: durations measured now contain the "
            "probes' cost. Profile this process alone (hostrange-bpf run, or --pid)",
            stacklevel=5,
        )


def _resume(timeout_s: float) -> None:
    # Asked for in any case: a pause that came too late is in force by now.
    if not _markers.resume(_milliseconds(timeout_s)):
        _warn(
            f"the profiler has not put its probes back within {timeout_s} s: calls may be missing in the report",
            stacklevel=5,
        )


def _milliseconds(timeout_s: float) -> int:
    longest = 2**32 - 1
    return longest if timeout_s * 1000 >= longest else math.ceil(timeout_s * 1000)


def _end_ranges(part: _Part) -> List[str]:
    left = _ranges.opened_since(part.range_number)
    _ranges.close(left)
    return [f"range {opened.name!r}" for opened in left]


def _raise_if_left(what: str, left: List[str]) -> None:
    if left:
        raise HostrangeError(f"{what} ended while open in it: {', '.join(left)}. Use `with`, which ends what it begins")


@contextlib.contextmanager
def _between(begin: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
    begin()
    try:
        yield
    except BaseException:
        try:
            end()
        except HostrangeError as error:
            _warn(str(error), stacklevel=4)
        raise
    end()


def _warn(message: str, stacklevel: int) -> None:
    """``stacklevel`` is that of the `with` statement, above this function, its callers and contextlib."""
    warnings.warn(message, HostrangeWarning, stacklevel=stacklevel)
