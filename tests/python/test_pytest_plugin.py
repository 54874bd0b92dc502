# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from conftest import Suite, need

SUITE = """
    import pytest

    def library_call(value):
        if value is None:
            raise ValueError("bad tensor")
        return value

    def test_plain():
        assert library_call(1) == 1

    @pytest.mark.parametrize("value", [1, 2, 3], ids=["one", "two", "ü-" + 1200 * "x"])
    def test_parametrised(value):
        assert library_call(value) == value

    class TestClass:
        def test_method(self):
            library_call(1)

        def test_raises(self):
            with pytest.raises(ValueError):
                library_call(None)

    def test_fails():
        library_call(None)

    @pytest.mark.skip
    def test_skipped():
        pass

    @pytest.mark.xfail
    def test_expected():
        library_call(None)
"""
# pytest writes what is not ASCII in an id given by the user as it is written here.
LONG = "\\xfc-" + 1200 * "x"
NODEIDS = sorted(
    f"test_suite.py::{name}"
    for name in (
        "test_plain", "test_parametrised[one]", "test_parametrised[two]", f"test_parametrised[{LONG}]",
        "TestClass::test_method", "TestClass::test_raises", "test_fails", "test_expected",
    )
)  # fmt: skip
OUTCOMES = {"passed": 6, "failed": 1, "skipped": 1, "xfailed": 1}


@pytest.fixture
def common(suite: Suite) -> Suite:
    suite.pytester.makepyfile(test_suite=SUITE)
    return suite


def test_off_by_default(common: Suite) -> None:
    result = common.run()
    result.assert_outcomes(**OUTCOMES)
    result.stdout.no_fnmatch_line("*= hostrange =*")
    assert common.events() == {}


def test_marks_each_test(common: Suite) -> None:
    result = common.run("--hostrange", "--strict-markers")
    result.assert_outcomes(**OUTCOMES)
    assert common.nodeids() == NODEIDS
    (events,) = common.events().values()
    assert events[0] == ["session_begin", "pytest"] and events[-1] == ["session_end"]
    result.stdout.fnmatch_lines(["*= hostrange =*", "8 tests marked; a profiler listened", "report: the profiler *"])


@pytest.mark.parametrize("distribution", ["load", "loadscope", "each"])
def test_xdist_marks_the_same(common: Suite, distribution: str) -> None:
    need("xdist")
    result = common.run("--hostrange", "-n", "4", "--dist", distribution)
    times = 4 if distribution == "each" else 1
    result.assert_outcomes(**{outcome: count * times for outcome, count in OUTCOMES.items()})
    assert common.nodeids() == sorted(NODEIDS * times)
    assert len(common.events()) == 4
    for events in common.events().values():
        assert events[0] == ["session_begin", "pytest"] and events[-1] == ["session_end"]
    result.stdout.fnmatch_lines(["8 tests marked; a profiler listened"])


def test_summary_names_the_report(common: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTRANGE_OUTPUT", "/somewhere/out.jsonl")
    result = common.run("--hostrange")
    result.stdout.fnmatch_lines(["report: /somewhere/out.jsonl, when the profiler ends"])


def test_without_a_profiler(common: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTRANGE_RECORD_LISTENERS", "none")
    result = common.run("--hostrange")
    result.assert_outcomes(**OUTCOMES)
    result.stdout.fnmatch_lines(["8 tests marked; no profiler listened", "no report; start it as: sudo *"])


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_required_and_there(common: Suite, workers: Any) -> None:
    if workers:
        need("xdist")
    common.run("--hostrange-required", *workers).assert_outcomes(**OUTCOMES)
    assert common.nodeids() == NODEIDS


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_required_and_missing(common: Suite, monkeypatch: pytest.MonkeyPatch, workers: Any) -> None:
    if workers:
        need("xdist")
    monkeypatch.setenv("HOSTRANGE_RECORD_LISTENERS", "none")
    result = common.run("--hostrange-required", *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no profiler listens to this process; start it as: sudo hostrange-bpf run -o *"])
    assert common.events() == {}


def test_required_and_missing_in_the_workers(common: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    need("xdist")
    monkeypatch.setenv("HOSTRANGE_RECORD_LISTENERS", "controller")
    result = common.run("--hostrange-required", "-n", "2")
    result.assert_outcomes(errors=9)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert common.cases() == []


def test_selection(common: Suite) -> None:
    common.run("--hostrange", "-k", "parametrised and not one").assert_outcomes(passed=2, deselected=7)
    assert common.nodeids() == sorted(nodeid for nodeid in NODEIDS if "parametrised" in nodeid and "one" not in nodeid)


def test_one_test_by_its_nodeid(common: Suite) -> None:
    common.run("--hostrange", "test_suite.py::TestClass::test_method").assert_outcomes(passed=1)
    assert common.nodeids() == ["test_suite.py::TestClass::test_method"]


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_reruns(suite: Suite, workers: Any) -> None:
    need("pytest_rerunfailures")
    if workers:
        need("xdist")
    suite.pytester.makepyfile(
        test_flaky="""
        runs = []

        def test_flaky():
            runs.append(None)
            assert len(runs) == 3
        """
    )
    result = suite.run("--hostrange", "--reruns", "4", *workers)
    assert suite.nodeids() == ["test_flaky.py::test_flaky"] * 3
    result.stdout.fnmatch_lines(["1 test marked; a profiler listened", "*1 passed, 2 rerun*"])


def test_pytest_benchmark(suite: Suite) -> None:
    need("pytest_benchmark")
    suite.pytester.makepyfile(
        test_bench="""
        def test_bench(benchmark):
            assert benchmark.pedantic(lambda: 5, rounds=3, iterations=2) == 5
        """
    )
    suite.run("--hostrange").assert_outcomes(passed=1)
    assert suite.nodeids() == ["test_bench.py::test_bench"]


def test_a_worker_that_crashes(suite: Suite) -> None:
    need("xdist")
    suite.pytester.makepyfile(
        test_crash="""
        import os
        import pytest

        @pytest.mark.parametrize("number", range(12))
        def test_crash(number):
            if number == 5:
                os.abort()
        """
    )
    result = suite.run("--hostrange", "-n", "2")
    result.assert_outcomes(passed=11, failed=1)
    begun = sorted(event[1] for events in suite.events().values() for event in events if event[0] == "case_begin")
    assert begun == sorted(f"test_crash.py::test_crash[{number}]" for number in range(12))
    result.stdout.fnmatch_lines(["11 tests marked; a profiler listened"])


def test_unittest_classes(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_unit="""
        import unittest

        class TestUnit(unittest.TestCase):
            def test_method(self):
                pass
        """
    )
    suite.run("--hostrange").assert_outcomes(passed=1)
    assert suite.nodeids() == ["test_unit.py::TestUnit::test_method"]


def test_fixtures_are_not_in_the_case(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_fixture="""
        import hostrange
        import pytest

        @pytest.fixture
        def tensor():
            with hostrange.range("set up"):
                pass
            yield
            with hostrange.range("tear down"):
                pass

        def test_call(tensor):
            with hostrange.range("call"):
                pass
        """
    )
    suite.run("--hostrange").assert_outcomes(passed=1)
    (events,) = suite.events().values()
    assert [event[:2] for event in events[1:-1] if event[0] != "range_end"] == [
        ["range_begin", "set up"],
        ["case_begin", "test_fixture.py::test_call"],
        ["range_begin", "call"],
        ["case_end", 1],
        ["range_begin", "tear down"],
    ]


def test_what_is_left_open_fails_its_test_alone(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_left="""
        import hostrange
        import pytest

        def test_phase():
            hostrange.phase_begin("warm")

        def test_range():
            hostrange.range("load").__enter__()

        def test_failed():
            hostrange.phase_begin("warm")
            assert False

        def test_skipped():
            hostrange.phase_begin("warm")
            pytest.skip()

        def test_case():
            hostrange.case_end()

        def test_good():
            with hostrange.phase("warm"), hostrange.range("load"):
                pass
        """
    )
    result = suite.run("--hostrange")
    # test_case ends the plugin's own case, which harms nobody.
    result.assert_outcomes(passed=2, failed=3, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*test_phase*",
            "HostrangeError: case 'test_left.py::test_phase' ended while open in it: phase 'warm'. *",
            "*test_range*",
            "HostrangeError: case 'test_left.py::test_range' ended while open in it: range 'load'. *",
            "*test_failed*",
            "*assert False*",
            "*- hostrange -*",
            "case 'test_left.py::test_failed' ended while open in it: phase 'warm'. *",
            "4 left a phase or a range open (it was ended)",
        ]
    )
    assert len(suite.cases()) == 6
    (events,) = suite.events().values()
    names = [event[0] for event in events]
    assert names.count("phase_begin") == names.count("phase_end") == 4
    assert names.count("range_begin") == names.count("range_end") == 2


def test_operator_and_backend(suite: Suite) -> None:
    suite.pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(optionalhook=True)
        def pytest_hostrange_case(item):
            return None if "unknown" in item.name else (item.name[len("test_"):], "cpu")
        """
    )
    suite.pytester.makepyfile(
        test_labels="""
        import pytest

        def test_add():
            pass

        def test_unknown():
            pass

        @pytest.mark.hostrange(backend="nvidia")
        class TestMarked:
            def test_gemm(self):
                pass

            @pytest.mark.hostrange(operator="matmul", backend="ascend")
            def test_unknown(self):
                pass
        """
    )
    suite.run("--hostrange", "--strict-markers").assert_outcomes(passed=4)
    assert suite.cases() == [
        ["test_labels.py::TestMarked::test_gemm", "gemm", "nvidia"],
        ["test_labels.py::TestMarked::test_unknown", "matmul", "ascend"],
        ["test_labels.py::test_add", "add", "cpu"],
        ["test_labels.py::test_unknown", "", ""],
    ]


def test_a_wrong_marker_fails_its_test_alone(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_marker="""
        import pytest

        @pytest.mark.hostrange(opreator="add")
        def test_wrong():
            pass

        def test_good():
            pass
        """
    )
    result = suite.run("--hostrange")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*takes operator= and backend= only*"])
    assert suite.nodeids() == ["test_marker.py::test_good"]


def test_the_hook_of_a_conftest_is_harmless_without_the_plugin(suite: Suite) -> None:
    suite.pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(optionalhook=True)
        def pytest_hostrange_case(item):
            return "add", "cpu"
        """
    )
    suite.pytester.makepyfile(test_plain="def test_plain(): pass")
    suite.run("-p", "no:hostrange").assert_outcomes(passed=1)


def test_the_benchmark_fixture(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_bench="""
        def test_bench(hostrange_benchmark):
            made = []
            measured = hostrange_benchmark(lambda: made.append(None), clear_cache=made.clear, calls=5)
            assert measured.count == 5
            assert len(made) == 11
        """
    )
    suite.run("--hostrange").assert_outcomes(passed=1)
    (events,) = suite.events().values()
    assert [event[:2] for event in events] == [
        ["session_begin", "pytest"],
        ["case_begin", "test_bench.py::test_bench"],
        ["phase_begin", "cold"],
        ["phase_end", "cold"],
        ["pause", 5000],
        ["resume", 5000],
        ["phase_begin", "warm"],
        ["phase_end", "warm"],
        ["measurement", "end_to_end"],
        ["case_end", 1],
        ["session_end"],
    ]


def test_an_interrupted_session_ends_its_case(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_interrupt="""
        def test_interrupt():
            raise KeyboardInterrupt
        """
    )
    assert suite.run("--hostrange").ret == pytest.ExitCode.INTERRUPTED
    (events,) = suite.events().values()
    assert [event[0] for event in events] == ["session_begin", "case_begin", "case_end", "session_end"]
