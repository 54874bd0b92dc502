# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: with ``--hostrange`` each test is a case of the profiler's report.

Off by default; without a profiler the marked suite runs as it does otherwise. See docs/python.md.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, Generator, Optional, Set, Tuple

import pytest

from . import _protocol
from ._benchmark import Measurement, benchmark_call
from ._errors import HostrangeError

HINT = "start it as: sudo hostrange-bpf run -o out.jsonl -- pytest --hostrange ..."
NOT_PROFILED = f"--hostrange-required, but no profiler listens to this process; {HINT}"
# Set by `hostrange-bpf run` for its command: where the report will be, as an absolute path.
OUTPUT_VARIABLE = "HOSTRANGE_OUTPUT"
# A profiler finds this process's markers a moment after they were loaded, and later if many processes start at a time.
# Where it has announced itself, it is worth waiting for.
ATTACH_TIMEOUT_S = 1.0
ANNOUNCED_ATTACH_TIMEOUT_S = 10.0


class CaseHooks:
    """The hook that a conftest may have; ``@pytest.hookimpl(optionalhook=True)`` if it also runs without the plugin."""

    @pytest.hookspec(firstresult=True)
    def pytest_hostrange_case(self, item: pytest.Item) -> Optional[Tuple[str, str]]:
        """Operator and backend of a test, for calls whose symbols do not say it; None: not known."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hostrange", "host-range profiling from outside (hostrange-bpf)")
    group.addoption("--hostrange", action="store_true", help="Mark each test for the profiler hostrange-bpf.")
    group.addoption(
        "--hostrange-required",
        action="store_true",
        help="The same, and stop before the first test if no profiler listens.",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(CaseHooks)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "hostrange(operator='', backend=''): what the test's calls are reported under by hostrange-bpf where their own "
        "symbols do not say it",
    )
    is_required = config.getoption("--hostrange-required")
    if not config.getoption("--hostrange") and not is_required:
        return
    if is_required or OUTPUT_VARIABLE in os.environ:
        _wait_for_profiler()
    is_missing = is_required and not _protocol.is_profiled()
    if is_missing and not _is_worker(config):
        raise pytest.UsageError(NOT_PROFILED)
    # xdist would start a worker that ends here again and again, and call the session a success: its tests fail instead.
    config.pluginmanager.register(Marking(config, is_missing), "hostrange-marking")


@pytest.fixture
def hostrange_benchmark() -> Callable[..., Measurement]:
    """``hostrange.benchmark_call``: one cold call, the timer without probes, warm calls. Rows need ``--hostrange``."""
    return benchmark_call


class Marking:
    """Makes a case of each test that this process runs, and counts them over all processes for the summary."""

    def __init__(self, config: pytest.Config, is_missing: bool) -> None:
        self._is_missing = is_missing
        self._is_worker = _is_worker(config)
        self._runs_tests = True
        # Of the test that runs, until its report is made.
        self._was_profiled: Dict[str, bool] = {}
        self._left_open: Dict[str, str] = {}
        # Of all processes' tests, by nodeid, so that reruns count once.
        self._counted: Dict[str, bool] = {}
        self._tests_that_left: Set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        # xdist's controller runs no test itself.
        self._runs_tests = not session.config.pluginmanager.hasplugin("dsession")
        if self._runs_tests:
            _protocol.session_begin("pytest")

    def pytest_sessionfinish(self) -> None:
        if self._runs_tests:
            _protocol.session_end()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if self._is_missing:
            pytest.fail(NOT_PROFILED, pytrace=False)

    # Of the test's run only the call: what fixtures do is not the test's. The outermost wrapper, so that the case is
    # open while any other plugin calls the test.
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        _end_case()  # another plugin's error may have kept this from running to its end
        operator, backend = _labels(item)
        _protocol.case_begin(item.nodeid.replace("\0", "\\0"), operator, backend)
        self._was_profiled[item.nodeid] = _protocol.is_profiled()
        try:
            yield
        finally:
            problem = _end_case()
            if problem is not None:
                self._left_open[item.nodeid] = problem

    # An error raised in the wrapper above would keep other plugins' wrappers from their ends (pluggy before 1.2).
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: "pytest.CallInfo[None]") -> Generator[None, Any, None]:
        outcome = yield
        if call.when != "call":
            return
        report = outcome.get_result()
        # Reports travel from xdist's workers with all their attributes.
        report.hostrange_profiled = self._was_profiled.pop(item.nodeid, None)
        problem = self._left_open.pop(item.nodeid, None)
        report.hostrange_left_open = problem is not None
        if problem is not None:
            if report.passed:
                report.outcome = "failed"
                report.longrepr = f"HostrangeError: {problem}"
            else:
                report.sections.append(("hostrange", problem))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        was_profiled = getattr(report, "hostrange_profiled", None)
        if self._is_worker or was_profiled is None:
            return
        self._counted[report.nodeid] = was_profiled
        if getattr(report, "hostrange_left_open", False):
            self._tests_that_left.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("hostrange")
        for line in self._summary():
            terminalreporter.write_line(line)

    def _summary(self) -> Generator[str, None, None]:
        marked = len(self._counted)
        profiled = sum(self._counted.values())
        yield f"{marked} {'test' if marked == 1 else 'tests'} marked; {_listened(profiled, marked)}"
        if self._tests_that_left:
            yield f"{len(self._tests_that_left)} left a phase or a range open (it was ended)"
        if profiled == 0:
            yield f"no report; {HINT}" if marked else "no report"
            return
        output = os.environ.get(OUTPUT_VARIABLE)
        yield f"report: {output}, when the profiler ends" if output else "report: the profiler prints it when it ends"


def _listened(profiled: int, marked: int) -> str:
    if profiled == 0:
        return "no profiler listened"
    return "a profiler listened" if profiled == marked else f"a profiler listened to {profiled} of them"


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _wait_for_profiler() -> None:
    end = time.monotonic() + (ANNOUNCED_ATTACH_TIMEOUT_S if OUTPUT_VARIABLE in os.environ else ATTACH_TIMEOUT_S)
    while not _protocol.is_profiled() and time.monotonic() < end:
        time.sleep(0.001)


def _end_case() -> Optional[str]:
    """Ends the case if one is open; gives what had been left open in it."""
    if _protocol.open_case() is None:
        return None
    try:
        _protocol.case_end()
    except HostrangeError as error:
        return str(error)
    return None


def _labels(item: pytest.Item) -> Tuple[str, str]:
    """Operator and backend: what the test's own marker says, else what the conftest's hook says, else nothing."""
    values: Dict[str, str] = {}
    for marker in reversed(list(item.iter_markers("hostrange"))):  # the nearest last
        unknown = set(marker.kwargs) - {"operator", "backend"}
        if marker.args or unknown:
            raise HostrangeError(f"@pytest.mark.hostrange takes operator= and backend= only, not {marker!r}")
        values.update(marker.kwargs)
    if len(values) < 2:
        found = item.ihook.pytest_hostrange_case(item=item)
        if found is not None:
            operator, backend = found
            values = {"operator": operator, "backend": backend, **values}
    return values.get("operator", ""), values.get("backend", "")
