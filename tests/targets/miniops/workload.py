#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Calls miniops in a loop, so that a profiler outside has something to look at.

Prints `ready <pid>`, then works, then prints one JSON line: how many calls were made of each operator by each thread,
and a checksum of all results, which is the same for the same operators however many calls were made.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import zlib
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any, Callable, Dict, List, Optional, Tuple

OPERATORS = ("add", "mul", "gemm", "rms_norm")
EPSILON = 1e-6
NO_TENSORS = (1, 2, 3)


@dataclass
class Case:
    """One call with its tensors."""

    arguments: Tuple[Any, ...]
    out: Any
    keywords: Dict[str, Any]


@dataclass
class Worker:
    """What one thread does and has done."""

    cases: Dict[str, List[Case]]
    thread_id: int = 0
    calls: Dict[str, int] = field(default_factory=dict)
    errors: int = 0
    failure: Optional[BaseException] = None

    def checksum(self) -> int:
        value = 0
        for cases in self.cases.values():
            for case in cases:
                value = zlib.crc32(case.out.tobytes(), value)
        return value


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, metavar="T", help="threads that call (default 1)")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--calls", type=int, metavar="N", help="calls of each operator in each thread, then end")
    amount.add_argument("--seconds", type=float, metavar="S", help="work this long (default: until SIGTERM or SIGINT)")
    parser.add_argument(
        "--operators", default=",".join(OPERATORS), metavar="LIST", help="comma-separated (default %(default)s)"
    )
    parser.add_argument(
        "--error-every", type=int, default=0, metavar="K", help="after each K-th round, one add that raises ValueError"
    )
    parser.add_argument(
        "--clear-every", type=int, default=0, metavar="K", help="after each K-th round, clear the operator cache"
    )
    parser.add_argument("--wait", action="store_true", help='after "ready", wait for a line on stdin')
    parser.add_argument(
        "--package-dir",
        default=os.environ.get("MINIOPS_PACKAGE_DIR"),
        metavar="DIR",
        help="the directory that holds miniops/ (default: $MINIOPS_PACKAGE_DIR, else as Python finds it)",
    )
    arguments = parser.parse_args()
    arguments.operators = arguments.operators.split(",")
    for name in arguments.operators:
        if name not in OPERATORS:
            parser.error(f"unknown operator {name!r}, choose from {', '.join(OPERATORS)}")
    if arguments.threads < 1 or (arguments.calls is not None and arguments.calls < 1):
        parser.error("--threads and --calls must be above zero")
    return arguments


def import_miniops(package_dir: Optional[str]) -> ModuleType:
    if package_dir is not None:
        sys.path.insert(0, package_dir)
    try:
        return importlib.import_module("miniops")
    except ImportError as error:
        sys.exit(
            f"workload: cannot import miniops from {package_dir or 'sys.path'} ({error}); "
            "set MINIOPS_PACKAGE_DIR to BUILD/.../relwithdebinfo"
        )


def make_cases(miniops: ModuleType, operator: str) -> List[Case]:
    def filled(*shape: int) -> Any:
        tensor = miniops.Tensor.zeros(*shape)
        count = len(tensor.tobytes()) // 4
        flat = miniops.Tensor([(index * 37 % 101) / 64 - 0.75 for index in range(count)])
        return miniops.Tensor.from_bytes(flat.tobytes(), shape)

    def case(out_shape: Tuple[int, ...], *inputs: Any) -> Case:
        out = miniops.Tensor.zeros(*out_shape)
        # Add and Gemm ask for a device, so that a device is converted on its own.
        return Case((*inputs, out), out, {"device": miniops.cpu} if operator in ("add", "gemm") else {})

    if operator in ("add", "mul"):
        return [
            case((13, 4), filled(13, 4), filled(13, 4)),
            case((13, 4), filled(13, 4), filled(4)),
            case((4, 13), filled(13, 4).transpose(0, 1), filled(4, 1)),
            case((2, 8, 16), filled(2, 8, 16), filled(8, 16)),
        ]
    if operator == "gemm":
        return [
            case((4, 48, 6), filled(4, 48, 64), filled(4, 64, 6)),
            case((6, 5), filled(6, 7), filled(5, 7).transpose(0, 1)),
        ]
    return [
        case((8, 64), filled(8, 64), filled(64), EPSILON),
        case((2, 3, 32), filled(2, 3, 32), None, EPSILON),
    ]


def work(
    worker: Worker, miniops: ModuleType, arguments: argparse.Namespace, deadline: float, stop: threading.Event
) -> None:
    """Rounds of one call per operator; each operator walks through its cases. Ends only between rounds."""
    worker.thread_id = threading.get_native_id()
    turns: List[Tuple[Callable[..., None], List[Case]]] = [
        (getattr(miniops, operator), cases) for operator, cases in worker.cases.items()
    ]
    rounds = 0
    try:
        while not stop.is_set() and rounds != arguments.calls and time.monotonic() < deadline:
            for function, cases in turns:
                case = cases[rounds % len(cases)]
                function(*case.arguments, **case.keywords)
            rounds += 1
            if arguments.error_every and rounds % arguments.error_every == 0:
                try:
                    miniops.add(*NO_TENSORS)
                except ValueError:
                    worker.errors += 1
            if arguments.clear_every and rounds % arguments.clear_every == 0:
                miniops.clear_cache()
    except BaseException as error:
        worker.failure = error
        stop.set()
    finally:
        worker.calls = {operator: rounds for operator in worker.cases}


def main() -> int:
    arguments = parse_arguments()
    miniops = import_miniops(arguments.package_dir)
    workers = [
        Worker({operator: make_cases(miniops, operator) for operator in arguments.operators})
        for _ in range(arguments.threads)
    ]

    stop = threading.Event()

    def request_stop(_signal: int, _frame: Optional[FrameType]) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, request_stop)
    signal.signal(signal.SIGINT, request_stop)

    print(f"ready {os.getpid()}", flush=True)
    if arguments.wait:
        while not stop.is_set() and not select.select([sys.stdin], [], [], 0.1)[0]:
            pass

    deadline = time.monotonic() + arguments.seconds if arguments.seconds is not None else float("inf")
    others = [
        threading.Thread(target=work, args=(worker, miniops, arguments, deadline, stop)) for worker in workers[1:]
    ]
    for thread in others:
        thread.start()
    work(workers[0], miniops, arguments, deadline, stop)
    for thread in others:
        thread.join()

    for worker in workers:
        if worker.failure is not None:
            raise worker.failure
    checksums = [worker.checksum() for worker in workers]
    print(
        json.dumps(
            {
                "pid": os.getpid(),
                "calls": {name: sum(worker.calls[name] for worker in workers) for name in arguments.operators},
                "errors": sum(worker.errors for worker in workers),
                "threads": [
                    {"thread_id": worker.thread_id, "calls": worker.calls, "errors": worker.errors}
                    for worker in workers
                ],
                "checksum": f"{checksums[0]:08x}",
                "threads_agree": len(set(checksums)) == 1,
            }
        ),
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
