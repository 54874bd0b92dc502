#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Time and peak memory of `hostrange-bpf probes` on large files.

Makes a library of 300,000 functions whose names look like an operator library's, and takes files of the user's own (with a
map for their exported functions). Prints, for each, the median of the rounds in seconds and the largest resident set in MiB
(ru_maxrss of the child, from wait4(2)).
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

FUNCTIONS = 300_000
BACKENDS = 20


def write_assembly(path: pathlib.Path) -> None:
    """Writes the source of a library in which BACKENDS of the FUNCTIONS are the default map's `backend.submit`."""
    with path.open("w") as source:
        source.write(".text\n")
        for number in range(FUNCTIONS):
            operator = f"Op{number:06d}"
            head = f"_ZN6infini3ops8OperatorINS0_{len(operator)}{operator}ELNS_2rt6Device4TypeE0ELm0EE"
            symbol = head + "7ComputeINS2_10TensorViewES5_S5_EEvDpRKT_"
            if number < BACKENDS:
                symbol = head.replace("_ZN", "_ZNK", 1) + "clENS3_10TensorViewES7_dS7_"
            source.write(
                f".globl {symbol}\n.type {symbol},@function\n{symbol}:\n.cfi_startproc\npush %rbp\n"
                f".cfi_def_cfa_offset 16\nxor %eax,%eax\npop %rbp\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n"
                f".size {symbol},.-{symbol}\n"
            )


def measure(command: list[str], rounds: int) -> tuple[float, float]:
    """Runs the command; gives the median of the wall-clock times (s) and the largest peak memory (MiB)."""
    times, peaks = [], []
    for _ in range(rounds):
        started = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        times.append(time.monotonic() - started)
        peaks.append(usage.ru_maxrss / 1024)
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"large_files: {' '.join(command)} failed")
    return statistics.median(times), max(peaks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="hostrange-bpf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--file", action="append", default=[], metavar="FILE:SYMBOL",
                        help="a file of your own and a function that it exports")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, library = pathlib.Path(folder, "large.s"), pathlib.Path(folder, "libinfiniops.so")
        write_assembly(source)
        subprocess.run(["gcc", "-shared", "-nostdlib", str(source), "-o", str(library)], check=True)
        source.unlink()
        runs = [(f"{FUNCTIONS} functions", library.stat().st_size, [arguments.program, "probes", "--file", str(library)])]
        for index, given in enumerate(arguments.file):
            path, _, symbol = given.rpartition(":")
            probe_map = pathlib.Path(folder, f"map{index}.toml")
            probe_map.write_text(
                f'version = 1\n[targets.given]\nfiles = ["{os.path.basename(path)}"]\n'
                f'[[ranges]]\nname = "given"\ntarget = "given"\nsymbols = ["{symbol}"]\n'
            )
            runs.append((os.path.basename(path), os.stat(path).st_size,
                         [arguments.program, "probes", "--probe-map", str(probe_map), "--file", path]))
        for name, size, command in runs:
            seconds, peak = measure(command, arguments.rounds)
            print(f"{name}, {size / 2**20:.0f} MiB: {seconds:.2f} s, {peak:.0f} MiB at most")


if __name__ == "__main__":
    main()
