# SPDX-License-Identifier: Apache-2.0
"""The module over the C library. A profiler is imitated: listeners are counted in semaphores, in our own memory."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

import hostrange
from hostrange import _markers

MARKERS = {
    "session_begin": 1, "session_end": 0, "case_begin": 4, "case_end": 1, "phase_begin": 1, "phase_end": 1,
    "range_begin": 2, "range_end": 2, "measurement": 5, "pause": 0, "resume": 0, "probed": 0,
}  # fmt: skip


def notes() -> Dict[str, Any]:
    """Semaphore and number of arguments of each marker, from the module's own notes."""
    text = subprocess.run(["readelf", "-nW", _markers.__file__], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"Provider: hostrange\s+Name: (\w+)\s+.*Semaphore: (0x\w+)\s+Arguments:(.*)", text)
    return {name: (int(semaphore, 16), len(arguments.split())) for name, semaphore, arguments in found}


def load_address() -> int:
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == _markers.__file__ and int(fields[2], 16) == 0:
            return int(fields[0].split("-")[0], 16)
    raise AssertionError("the module is not mapped")


class Listener:
    def __init__(self) -> None:
        base = load_address()
        self.semaphores = {
            name: ctypes.c_uint16.from_address(base + address) for name, (address, _) in notes().items()
        }

    def listen(self, *names: str) -> None:
        for name in names or self.semaphores:
            self.semaphores[name].value += 1

    def leave(self) -> None:
        for semaphore in self.semaphores.values():
            semaphore.value = 0


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.leave()


def test_the_notes_name_all_markers() -> None:
    assert {name: count for name, (_, count) in notes().items()} == MARKERS


def test_the_double_has_the_same_functions() -> None:
    stub = (Path(hostrange.__file__).parent / "_markers.pyi").read_text()
    functions = {name for name in dir(_markers) if not name.startswith("_")}
    assert functions == set(re.findall(r"^(?:def|class) (\w+)", stub, re.MULTILINE))


def test_everything_runs_with_and_without_a_listener(listener: Listener) -> None:
    for is_profiled in (False, True):
        if is_profiled:
            listener.listen(*(name for name in MARKERS if name not in ("pause", "resume", "probed")))
        assert hostrange.is_profiled() is is_profiled
        hostrange.session_begin("pytest")
        with hostrange.case("ü" * 30_000, "add", "cpu"), hostrange.phase("warm"):
            with hostrange.range("outer"), hostrange.range("detached", detached=True):
                pass
        hostrange.measurement("end_to_end", 2**63, 1.5, 1e18)
        hostrange.session_end()


def test_names_are_kept_once() -> None:
    assert _markers.intern("load").text == "load"
    assert _markers.intern("\udcff\ud800é").text == r"\udcff\ud800é"


@pytest.mark.parametrize("function", ["intern", "session_begin", "phase_begin", "phase_end"])
def test_text_with_nul_is_refused(function: str) -> None:
    with pytest.raises(ValueError, match="NUL"):
        getattr(_markers, function)("a\0b")


def test_lone_surrogates_pass(listener: Listener) -> None:
    listener.listen()
    with hostrange.case("\udcff", "\ud800", "\udfff"), hostrange.phase("\udcff"), hostrange.range("\udcff"):
        pass


def test_pause_waits_for_the_probes(listener: Listener) -> None:
    listener.listen("pause", "resume", "probed")
    assert hostrange.is_probed()
    assert _markers.pause(10) is False
    thread = threading.Thread(target=lambda: setattr(listener.semaphores["probed"], "value", 0))
    # The thread can only run while pause() lets go of the interpreter's lock.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        threading.Timer(0.01, thread.start).start()
        begin = time.monotonic()
        assert _markers.pause(60_000) is True
    finally:
        sys.setswitchinterval(interval)
    assert time.monotonic() - begin < 60
    assert _markers.resume(10) is False
    thread.join()


def test_pause_without_a_listener() -> None:
    assert _markers.pause(60_000) is True
    assert _markers.resume(60_000) is True


def test_the_package_has_the_project_s_version() -> None:
    root = Path(__file__).resolve().parents[2]
    (built,) = re.findall(r"project\(hostrange-bpf VERSION (\S+)", (root / "CMakeLists.txt").read_text())
    (packaged,) = re.findall(r'^version = "(\S+)"', (root / "pyproject.toml").read_text(), re.MULTILINE)
    assert packaged == built
