#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How near corrected times come to the truth: the bundled library under the profiler, against the same library built with
clock readings in the process (its twin), warm calls, in turns of some milliseconds.

Usage: accuracy.py PROFILER MINIOPS_BUILD WORKLOAD [--json FILE]. Root.

Two processes take turns: the twin, which says what is true, and the library as it is, under the profiler. What the twin's
own clock readings cost is taken out of the truth: dispatch.call does nothing but jump to operator.call, so its self time
is one such scope's cost; half of it is taken for the part that lies in the scope itself. Medians over all calls, in ns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any, Dict, List, Tuple

ROUNDS = 40
CALLS = 100
NEST = {  # what lies how often in a scope, the scope itself not counted
    "binding.body": ("binding.tensor_conversion", "binding.device_conversion", "dispatch.call", "operator.call",
                     "cache.key", "cache.lookup", "operator.invoke", "backend.submit"),
    "dispatch.call": ("operator.call", "cache.key", "cache.lookup", "operator.invoke", "backend.submit"),
    "operator.call": ("cache.key", "cache.lookup", "operator.invoke", "backend.submit"),
    "operator.invoke": ("backend.submit",),
}  # fmt: skip
JUDGED = ("binding.body", "binding.tensor_conversion", "dispatch.call", "operator.call", "operator.invoke")


def call_in_turns(package_dir: str, workload_path: str) -> None:
    """The child: each line "run N" calls every operator N times; the answer is the ns that took, and the twin's rows."""
    sys.path.insert(0, package_dir)
    import miniops

    spec = importlib.util.spec_from_file_location("workload", workload_path)
    assert spec is not None and spec.loader is not None
    workload = importlib.util.module_from_spec(spec)
    sys.modules["workload"] = workload
    spec.loader.exec_module(workload)
    turns = [(getattr(miniops, name), workload.make_cases(miniops, name)[0]) for name in workload.OPERATORS]

    def run(calls: int) -> int:
        begin = time.perf_counter_ns()
        for function, case in turns:
            arguments, keywords = case.arguments, case.keywords
            for _ in range(calls):
                function(*arguments, **keywords)
        return time.perf_counter_ns() - begin

    is_twin = hasattr(miniops, "clock_scopes_start")
    run(10)  # the cold calls
    if is_twin:
        miniops.clock_scopes_start()
    print(f"ready {os.getpid()}", flush=True)
    for line in sys.stdin:
        print(run(int(line.split()[1])), flush=True)
    print(json.dumps(miniops.clock_scopes_stop() if is_twin else []), flush=True)


class Child:
    def __init__(self, package_dir: str, workload: str) -> None:
        self.process = subprocess.Popen(
            ["taskset", "-c", "0", sys.executable, __file__, "--child", package_dir, workload],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True, bufsize=1,
        )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self.input: IO[str] = self.process.stdin
        self.output: IO[str] = self.process.stdout
        self.pid = int(self.output.readline().split()[1])

    def run(self, calls: int) -> int:
        self.input.write(f"run {calls}\n")
        return int(self.output.readline())

    def finish(self) -> Any:
        self.input.close()
        rows = json.loads(self.output.readline())
        self.process.wait()
        return rows


def measure(profiler: str, builds: str, workload: str) -> List[Dict[str, Any]]:
    twin = Child(os.path.join(builds, "instrumented"), workload)
    probed = Child(os.path.join(builds, "relwithdebinfo"), workload)
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.jsonl")
        loader = subprocess.Popen(
            [profiler, "--pid", str(probed.pid), "-o", report, "--fields=all"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, universal_newlines=True,
        )  # fmt: skip
        assert loader.stderr is not None
        for line in loader.stderr:
            if "profiling" in line:
                break
        for _ in range(ROUNDS):
            twin.run(CALLS)
            probed.run(CALLS)
        loader.send_signal(signal.SIGINT)
        loader.communicate(timeout=120)
        if loader.returncode != 0:
            raise RuntimeError(f"the profiler ended with {loader.returncode}")
        with open(report, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    probed.finish()
    return compare(twin.finish(), rows)


def compare(truth: List[Dict[str, Any]], rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    warm = [row for row in truth if row["phase"] == "warm" and row["metric"] == "inclusive"]
    clock_scope_ns = min(
        row["median"] for row in truth
        if row["phase"] == "warm" and row["metric"] == "self" and row["range"] == "dispatch.call"
    )  # fmt: skip
    count = {(row["operator"], row["range"]): row["count"] for row in warm}
    true_ns: Dict[Tuple[str, str], float] = {}
    for row in warm:
        key = (row["operator"], row["range"])
        inside = sum(count.get((row["operator"], name), 0) for name in NEST.get(row["range"], ()))
        true_ns[key] = row["median"] - clock_scope_ns * (0.5 + inside / row["count"])
    cells = []
    for row in rows:
        key = (row["operator"], row["range"])
        # The range cache.key begins where its operator is entered, the twin's where the key is made: not the same thing.
        if row["phase"] != "warm" or row["metric"] != "inclusive" or key not in true_ns or key[1] == "cache.key":
            continue
        if row["count"] != count[key]:
            raise RuntimeError(f"{key}: {row['count']} scopes for {count[key]}")
        error_ns = row["median"] - true_ns[key]
        cells.append({
            "operator": row["operator"], "range": row["range"], "count": row["count"], "true": true_ns[key],
            "raw": row["raw_median"], "corrected": row["median"], "uncertainty": row["uncertainty"],
            "error": error_ns / true_ns[key], "covered": abs(error_ns) <= row["uncertainty"],
            "of_correction": error_ns / row["correction"],
        })  # fmt: skip
    return cells


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        call_in_turns(*sys.argv[2:4])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("profiler", "miniops_build", "workload"):
        parser.add_argument(name)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    cells = measure(arguments.profiler, arguments.miniops_build, arguments.workload)
    print(f"{'inclusive median of warm calls, ns':<38}{'true':>9}{'raw':>9}{'corrected':>11}{'±':>8}{'error':>9}")
    for cell in cells:
        print(
            f"{cell['operator'] + '  ' + cell['range']:<38}{cell['true']:>9.0f}{cell['raw']:>9.0f}"
            f"{cell['corrected']:>11.0f}{cell['uncertainty']:>8.0f}{100 * cell['error']:>8.0f} %"
            f"{'' if cell['covered'] else '  outside'}"
        )
    judged = [cell for cell in cells if cell["range"] in JUDGED]
    near = sum(abs(cell["error"]) <= 0.15 for cell in judged)
    covered = sum(cell["covered"] for cell in cells)
    print(f"within 15 % of the truth: {near} of {len(judged)} ({', '.join(JUDGED)})")
    print(f"truth within ±: {covered} of {len(cells)}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(cells, file, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
