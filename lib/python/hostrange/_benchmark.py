# SPDX-License-Identifier: Apache-2.0
"""The benchmark protocol: one cold call, the benchmark timer without a profiler, then as many warm calls."""

from __future__ import annotations

import importlib
import itertools
import statistics
import sys
import time
import timeit
from typing import Any, Callable, List, NamedTuple, Optional

from ._protocol import is_profiled, measurement, phase, unprofiled

# A block of calls is this much longer than reading the clock twice (some 60 ns), as in torch's timer.
_SHORTEST_BLOCK_NS = 600_000
# With a given number of calls: so many blocks, where there are so many calls.
_BLOCKS_OF_GIVEN_CALLS = 100


class Measurement(NamedTuple):
    """What the benchmark timer has found; the probes were out, unless a HostrangeWarning said that they stayed.

    The median is over blocks of calls, of each of which the mean is known.
    """

    count: int  # type: ignore[assignment]  # instead of tuple's method, which nobody needs of three numbers
    mean_ns: float
    median_ns: float


def benchmark_call(
    function: Callable[[], Any],
    *,
    clear_cache: Optional[Callable[[], Any]] = None,
    synchronize: Optional[Callable[[], Any]] = None,
    min_run_time_s: float = 0.2,
    calls: Optional[int] = None,
) -> Measurement:
    """Runs the protocol of InfiniOps's own host-range profiler on ``function``, which is called without arguments.

    1. ``clear_cache()``, ``synchronize()``, one call in the phase "cold", ``synchronize()``.
    2. The benchmark timer, with the profiler's probes out of the process: torch's where torch has been imported, else
       one of the same kind. It makes calls for at least ``min_run_time_s`` seconds, or exactly ``calls`` calls.
    3. ``synchronize()``, as many calls in the phase "warm", ``synchronize()``.
    4. The timer's result, as a row ``end_to_end`` of the phase "warm".

    Belongs into a case: see case(), and the pytest plugin, which has one open for each test. Without a profiler steps 3
    and 4 are left out. Returns the timer's result.

    Errors: what ``function`` raises, with the phase ended; HostrangeError if a phase is open; ValueError if ``calls``
    is below 1 or ``min_run_time_s`` is not above 0.
    """
    if calls is not None and calls < 1:
        raise ValueError(f"at least one call has to be timed, not {calls}")
    if not min_run_time_s > 0:
        raise ValueError(f"the timer has to run for more than {min_run_time_s} s")
    if clear_cache is not None:
        clear_cache()
    _run_in_phase("cold", function, 1, synchronize)
    with unprofiled():
        measured = _timed(function, min_run_time_s, calls)
    if is_profiled():
        _run_in_phase("warm", function, measured.count, synchronize)
        measurement("end_to_end", measured.count, measured.mean_ns, measured.median_ns)
    return measured


def _run_in_phase(
    name: str, function: Callable[[], Any], count: int, synchronize: Optional[Callable[[], Any]]
) -> None:
    """Synchronises outside of the phase only: waiting for the device is not the library's host time."""
    if synchronize is not None:
        synchronize()
    try:
        with phase(name):
            for _ in itertools.repeat(None, count):
                function()
    finally:
        if synchronize is not None:
            synchronize()


def _timed(function: Callable[[], Any], min_run_time_s: float, calls: Optional[int]) -> Measurement:
    if calls is not None:
        return _timed_calls(function, calls)
    if "torch" in sys.modules:
        return _timed_by_torch(function, min_run_time_s)
    return _timed_blocks(function, min_run_time_s)


def _timed_by_torch(function: Callable[[], Any], min_run_time_s: float) -> Measurement:
    benchmark = importlib.import_module("torch.utils.benchmark")
    # Not torch's default clock, which waits for the device: this is about host time.
    timer = benchmark.Timer(stmt="function()", globals={"function": function}, timer=time.perf_counter)
    result = timer.blocked_autorange(min_run_time=min_run_time_s)
    return Measurement(len(result.raw_times) * result.number_per_run, result.mean * 1e9, result.median * 1e9)


def _timed_blocks(function: Callable[[], Any], min_run_time_s: float) -> Measurement:
    timer = timeit.Timer(function, timer=time.perf_counter_ns)
    number = 1
    # The first blocks warm up and find how many calls a block needs.
    while timer.timeit(number) < _SHORTEST_BLOCK_NS:
        number *= 10
    durations_ns: List[float] = []
    end_ns = time.perf_counter_ns() + min_run_time_s * 1e9
    while not durations_ns or time.perf_counter_ns() < end_ns:
        durations_ns.append(timer.timeit(number))
    return _of_blocks(durations_ns, [number] * len(durations_ns))


def _timed_calls(function: Callable[[], Any], calls: int) -> Measurement:
    timer = timeit.Timer(function, timer=time.perf_counter_ns)
    blocks = min(calls, _BLOCKS_OF_GIVEN_CALLS)
    numbers = [calls * (block + 1) // blocks - calls * block // blocks for block in range(blocks)]
    return _of_blocks([timer.timeit(number) for number in numbers], numbers)


def _of_blocks(durations_ns: List[float], numbers: List[int]) -> Measurement:
    per_call_ns = [duration_ns / number for duration_ns, number in zip(durations_ns, numbers)]
    return Measurement(sum(numbers), sum(durations_ns) / sum(numbers), statistics.median(per_call_ns))
