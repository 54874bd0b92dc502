# SPDX-License-Identifier: Apache-2.0
"""Tells the profiler hostrange-bpf what this process is doing, and reads its reports.

The profiler runs outside of the process; without one, everything here does next to nothing::

    with hostrange.case("tests/test_add.py::test_add", operator="add", backend="cpu"):
        hostrange.benchmark_call(lambda: ops.add(a, b, out), clear_cache=ops.Add.clear_cache)

``sudo hostrange-bpf run -o report.jsonl -- python3 bench.py`` writes the report, ``hostrange.load("report.jsonl")``
reads it. ``pytest --hostrange`` makes a case of each test.
"""

from ._benchmark import Measurement, benchmark_call
from ._errors import HostrangeError, HostrangeWarning, ReportError
from ._protocol import (
    case,
    case_begin,
    case_end,
    is_probed,
    is_profiled,
    measurement,
    phase,
    phase_begin,
    phase_end,
    session_begin,
    session_end,
    unprofiled,
)
from ._ranges import range  # noqa: A004  hostrange.range() is what it is called in every language
from ._report import Record, Report, load

__all__ = [
    "HostrangeError",
    "HostrangeWarning",
    "Measurement",
    "Record",
    "Report",
    "ReportError",
    "benchmark_call",
    "case",
    "case_begin",
    "case_end",
    "is_probed",
    "is_profiled",
    "load",
    "measurement",
    "phase",
    "phase_begin",
    "phase_end",
    "range",
    "session_begin",
    "session_end",
    "unprofiled",
]
