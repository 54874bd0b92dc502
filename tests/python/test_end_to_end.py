# SPDX-License-Identifier: Apache-2.0
"""Test suites under the real profiler: from the marker in a test to the row of the report. Root."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Counter, Dict, List, Tuple

import pytest
from conftest import need

import hostrange

PROFILER = os.environ["HOSTRANGE_PROFILER"]
MINIOPS = os.environ["MINIOPS_RELWITHDEBINFO"]
REFERENCE = Path(__file__).resolve().parents[1] / "data"
FIELDS = ["nodeid", "operator", "backend", "phase", "range", "metric", "count", "unit", "mean", "median"]

CONFTEST = """
    import miniops, pytest

    def filled(*shape):
        return miniops.Tensor.zeros(*shape)

    @pytest.fixture(autouse=True)
    def empty_cache():
        miniops.clear_cache()
"""
TENSORS = """
    import miniops, pytest
    from conftest import filled
    a, b, out = filled(13, 4), filled(13, 4), filled(13, 4)
"""
# The two published cases: Add of (13, 4), Gemm of (4, 48, 64) x (4, 64, 6).
PROTOCOL = (
    TENSORS
    + """
    @pytest.mark.parametrize("shape", [(13, 4)])
    def test_add(shape, hostrange_benchmark):
        a, b, out = filled(*shape), filled(*shape), filled(*shape)
        hostrange_benchmark(lambda: miniops.add(a, b, out, device=miniops.cpu), clear_cache=miniops.clear_cache, calls=50)

    def test_gemm(hostrange_benchmark):
        a, b, out = filled(4, 48, 64), filled(4, 64, 6), filled(4, 48, 6)
        hostrange_benchmark(lambda: miniops.gemm(a, b, out, device=miniops.cpu), clear_cache=miniops.clear_cache, calls=40)
"""
)
SUITE = (
    TENSORS
    + """
    @pytest.mark.parametrize("calls", [1, 2, 5])
    def test_calls(calls):
        for _ in range(calls):
            miniops.add(a, b, out)

    class TestClass:
        def test_two_operators(self):
            miniops.add(a, b, out)
            miniops.mul(a, b, out)

    def test_refused():
        with pytest.raises(ValueError):
            miniops.add(a, b, 5)

    def test_fails():
        miniops.add(a, b, out)
        assert False

    def test_calls_nothing():
        pass
"""
)


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        if os.environ.get("HOSTRANGE_REQUIRE_BPF"):
            pytest.fail("BPF tests must run, as root")
        pytest.skip("not root")


class Profiled:
    """A suite's run under the profiler."""

    def __init__(self, folder: Path, arguments: List[str], options: Tuple[str, ...] = ()) -> None:
        self.output = folder / "report.jsonl"
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([MINIOPS, os.environ["PYTHONPATH"]]))
        environment.pop("PYTEST_ADDOPTS", None)
        command = [PROFILER, "run", "-o", str(self.output), *options, "--"]
        command += [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
            timeout=240,
        )  # fmt: skip
        self.status, self.printed, self.messages = done.returncode, done.stdout, done.stderr
        self.report = hostrange.load(self.output)
        self.meta: Dict[str, Any] = self.report.meta or {}
        assert self.meta["unbalanced_sites"] == 0, self.messages
        assert self.meta["lost"]["scopes"] == 0 and self.meta["marks"]["lost"] == 0

    def counts(self) -> Counter[Tuple[str, str, str, str]]:
        """Scopes by test, operator, phase and range."""
        result: Counter[Tuple[str, str, str, str]] = collections.Counter()
        for record in self.report:
            if record.metric == "inclusive":
                result[record.nodeid.partition("::")[2], record.operator, record.phase, record.range] += record.count
        return result


def make_suite(folder: Path, text: str) -> None:
    import textwrap

    (folder / "conftest.py").write_text(textwrap.dedent(CONFTEST), encoding="utf-8")
    (folder / "test_it.py").write_text(textwrap.dedent(text), encoding="utf-8")


def bodies(counts: Counter[Tuple[str, str, str, str]]) -> Dict[Tuple[str, str, str], int]:
    return {key[:3]: count for key, count in counts.items() if key[3] == "binding.body"}


PLAIN = {
    ("test_calls[1]", "add", "cold"): 1,
    ("test_calls[2]", "add", "cold"): 1,
    ("test_calls[2]", "add", "warm"): 1,
    ("test_calls[5]", "add", "cold"): 1,
    ("test_calls[5]", "add", "warm"): 4,
    ("TestClass::test_two_operators", "add", "cold"): 1,
    ("TestClass::test_two_operators", "mul", "cold"): 1,
    ("test_fails", "add", "cold"): 1,
}


# Row for row what the upstream profiler writes: fields, order, ranges, metrics; counts as the calls that were made.
def test_the_protocol_gives_the_published_rows(tmp_path: Path) -> None:
    make_suite(tmp_path, PROTOCOL)
    run = Profiled(tmp_path, ["--hostrange-required", "test_it.py"])
    assert run.status == 0, run.printed
    with open(run.output, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for operator, calls in (("add", 50), ("gemm", 40)):
        with open(REFERENCE / f"reference_{operator}.jsonl", encoding="utf-8") as lines:
            published = [json.loads(line) for line in lines]
        published_calls = published[-1]["count"]
        ours = [row for row in rows if f"test_{operator}" in row["nodeid"]]
        assert [list(row) for row in ours] == [FIELDS] * len(published)
        keys = ("operator", "phase", "range", "metric", "unit")
        assert [[row[key] for key in keys] for row in ours] == [[row[key] for key in keys] for row in published]
        scaled = [
            row["count"] if row["phase"] == "cold" else row["count"] * calls // published_calls for row in published
        ]
        assert [row["count"] for row in ours] == scaled
    assert {row["backend"] for row in rows} == {"cpu"}
    assert run.meta["marks"]["unbalanced"] == 0
    # Nothing was recorded while the timer ran: only what the protocol asks for.
    assert run.meta["marks"]["scopes_outside_phases"] == 0


def test_every_test_is_a_case(tmp_path: Path) -> None:
    make_suite(tmp_path, SUITE)
    run = Profiled(tmp_path, ["--hostrange", "test_it.py"])
    assert run.status == 1  # test_fails
    assert bodies(run.counts()) == PLAIN
    assert run.counts()["test_calls[5]", "add", "warm", "binding.tensor_conversion"] == 12
    assert run.meta["marks"]["cases"] == 7
    assert run.meta["totals"]["by_exception"] > 0  # test_refused
    assert f"report: {run.output}, when the profiler ends" in run.printed
    assert f"report in {run.output}" in run.messages


def test_without_the_option_nothing_is_marked(tmp_path: Path) -> None:
    make_suite(tmp_path, SUITE)
    run = Profiled(tmp_path, ["test_it.py"])
    assert run.meta["marks"]["cases"] == 0
    assert bodies(run.counts())["", "add", "cold"] > 0


def test_workers_give_the_same_rows(tmp_path: Path) -> None:
    need("xdist")
    make_suite(tmp_path, SUITE)
    alone = Profiled(tmp_path, ["--hostrange", "test_it.py"]).counts()
    assert Profiled(tmp_path, ["--hostrange", "-n", "4", "test_it.py"]).counts() == alone


def test_a_workers_crash_keeps_the_rows_so_far(tmp_path: Path) -> None:
    need("xdist")
    make_suite(tmp_path, SUITE + "\n    def test_crash():\n        miniops.mul(a, b, out)\n        import os\n        os._exit(3)\n")
    run = Profiled(tmp_path, ["--hostrange", "-n", "1", "test_it.py"])
    assert bodies(run.counts()) == {**PLAIN, ("test_crash", "mul", "cold"): 1}


def test_selection_and_reruns(tmp_path: Path) -> None:
    need("pytest_rerunfailures")
    make_suite(tmp_path, SUITE)
    run = Profiled(tmp_path, ["--hostrange", "--reruns", "2", "-k", "fails or refused", "test_it.py"])
    assert bodies(run.counts()) == {("test_fails", "add", "cold"): 3}  # each run begins with an empty cache
    assert run.meta["marks"]["cases_run_more_than_once"] == 1
    assert "1 case ran more than once" in run.printed


def test_benchmarks_of_another_plugin(tmp_path: Path) -> None:
    need("pytest_benchmark")
    make_suite(
        tmp_path,
        TENSORS
        + """
    def test_speed(benchmark):
        calls = []
        def call():
            calls.append(1)
            miniops.add(a, b, out)
        benchmark.pedantic(call, rounds=7, iterations=3)
        open("calls", "w").write(str(len(calls)))
    """,
    )
    run = Profiled(tmp_path, ["--hostrange", "test_it.py"])
    calls = int((tmp_path / "calls").read_text())
    assert calls >= 21
    assert bodies(run.counts()) == {("test_speed", "add", "cold"): 1, ("test_speed", "add", "warm"): calls - 1}


def test_ranges_of_tests(tmp_path: Path) -> None:
    make_suite(
        tmp_path,
        TENSORS
        + """
    import asyncio, hostrange

    def test_range():
        for _ in range(3):
            with hostrange.range("step"):
                miniops.add(a, b, out)

    def test_raises():
        with pytest.raises(ValueError):
            with hostrange.range("refused"):
                miniops.add(a, b, 5)
        miniops.add(a, b, out)

    async def task():
        for _ in range(2):
            with hostrange.range("task"):
                await asyncio.sleep(0)
                miniops.add(a, b, out)

    def test_tasks():
        async def both():
            await asyncio.gather(task(), task())
        asyncio.run(both())
    """,
    )
    run = Profiled(tmp_path, ["--hostrange", "test_it.py"], ("--fields=all",))
    assert run.status == 0, run.printed
    totals: Counter[Tuple[str, str]] = collections.Counter()
    for record in run.report:
        if record.metric == "inclusive":
            totals[record.nodeid.partition("::")[2], record.range] += record.count
    assert totals["test_range", "step"] == 3
    assert totals["test_range", "binding.body"] == 3
    assert totals["test_raises", "refused"] == 1
    assert totals["test_raises", "binding.body"] == 1
    assert totals["test_tasks", "task"] == 4
    assert totals["test_tasks", "binding.body"] == 4
    assert run.meta["totals"]["open"] == 0


# A running suite: whatever tests come after the profiler are in its report.
def test_a_running_suite(tmp_path: Path) -> None:
    make_suite(
        tmp_path,
        TENSORS
        + """
    import sys

    def test_before():
        miniops.add(a, b, out)

    def test_wait():
        print("waiting", flush=True)
        sys.stdin.readline()

    def test_after():
        miniops.add(a, b, out)
    """,
    )
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([MINIOPS, os.environ["PYTHONPATH"]]))
    command = [sys.executable, "-m", "pytest", "-s", "--hostrange", "-p", "no:cacheprovider", "test_it.py"]
    suite = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True
    )
    output = tmp_path / "report.jsonl"
    try:
        assert suite.stdout is not None
        for line in suite.stdout:
            if "waiting" in line:
                break
        profiler = subprocess.Popen(
            [PROFILER, "--pid", str(suite.pid), "-o", str(output)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
            universal_newlines=True,
        )  # fmt: skip
        try:
            assert profiler.stderr is not None
            for line in profiler.stderr:
                if "profiling" in line:
                    break
            suite.communicate("\n", timeout=60)
            profiler.communicate(timeout=60)
        finally:
            if profiler.poll() is None:
                profiler.send_signal(signal.SIGKILL)
                profiler.wait()
    finally:
        if suite.poll() is None:
            suite.kill()
            suite.wait()
    assert suite.returncode == 0
    assert {record.nodeid for record in hostrange.load(output)} == {"test_it.py::test_after"}
