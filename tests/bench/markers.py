#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a pair of markers costs: of a range and of a phase while nobody listens, and of a range measured by
hostrange-bpf; beside it the probes of SystemTap's sys/sdt.h, measured by a bpftrace script that sums up the same durations.

Usage: markers.py PROFILER MARKER_PAIRS. Root. Medians of shuffled passes of one run, ns per pair.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
from typing import IO, Callable, Dict, List

PASSES = 9
IDLE_PAIRS = 20_000_000
ACTIVE_PAIRS = 20_000
SCRIPT = (
    'BEGIN {{ printf("attached\\n"); }} '
    "usdt:{program}:pairs:begin {{ @start[tid] = nsecs; }} "
    "usdt:{program}:pairs:end /@start[tid]/ {{ @count = count(); @sum = sum(nsecs - @start[tid]); delete(@start[tid]); }}"
)


def wait_for(stream: IO[str], text: str) -> None:
    for line in stream:
        if text in line:
            return
    raise RuntimeError(f"ended before it said {text!r}")


def main() -> int:
    profiler, program = sys.argv[1], os.path.abspath(sys.argv[2])
    target = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True, bufsize=1)
    assert target.stdin is not None and target.stdout is not None
    wait_for(target.stdout, "ready")

    def ns_per_pair(kind: str, pairs: int) -> float:
        target.stdin.write(f"{kind} {pairs}\n")
        return int(target.stdout.readline()) / pairs

    def under(command: List[str], is_error: bool, ready: str, kind: str) -> float:
        tool = subprocess.Popen(
            command, universal_newlines=True,
            stderr=subprocess.PIPE if is_error else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if is_error else subprocess.PIPE,
        )  # fmt: skip
        stream = tool.stderr if is_error else tool.stdout
        assert stream is not None
        wait_for(stream, ready)
        ns_per_pair(kind, ACTIVE_PAIRS // 10)
        result = statistics.median(ns_per_pair(kind, ACTIVE_PAIRS) for _ in range(3))
        tool.send_signal(signal.SIGINT)
        tool.communicate(timeout=60)
        return result

    pid = str(target.pid)
    variants: Dict[str, Callable[[], float]] = {
        "empty loop": lambda: ns_per_pair("nothing", IDLE_PAIRS),
        "hostrange, idle": lambda: ns_per_pair("hostrange", IDLE_PAIRS),
        "hostrange's phases, idle": lambda: ns_per_pair("phase", IDLE_PAIRS),
        "sys/sdt.h, idle": lambda: ns_per_pair("sdt", IDLE_PAIRS),
        "hostrange under hostrange-bpf": lambda: under([profiler, "--pid", pid], True, "profiling", "hostrange"),
        "sys/sdt.h under bpftrace": lambda: under(
            ["bpftrace", "-B", "line", "-p", pid, "-e", SCRIPT.format(program=program)], False, "attached", "sdt"
        ),
    }
    results: Dict[str, List[float]] = {name: [] for name in variants}
    order = list(variants)
    shuffle = random.Random(20240601).shuffle
    for _ in range(PASSES):
        shuffle(order)
        for name in order:
            results[name].append(variants[name]())
    target.stdin.close()
    target.wait()
    print(f"kernel {os.uname().release}, medians of {PASSES} shuffled passes, ns per pair\n")
    for name, values in results.items():
        print(f"{name:<32} {statistics.median(values):>10.1f}   {min(values):.1f}-{max(values):.1f}")
    ratios = [
        ours / theirs
        for ours, theirs in zip(results["hostrange under hostrange-bpf"], results["sys/sdt.h under bpftrace"])
    ]
    print(f"\nactive, hostrange / sys/sdt.h: {statistics.median(ratios):.2f} (median of the passes' ratios)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
