# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

import hostrange

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "recorder"))


def need(module: str) -> None:
    """Skips a test of another plugin where that is missing, and fails it where nothing may be skipped."""
    if importlib.util.find_spec(module) is None:
        message = f"{module} is missing: run scripts/install-dependencies"
        if os.environ.get("HOSTRANGE_REQUIRE_BPF") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


@pytest.fixture
def markers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A double in place of the markers, on which a profiler listens; ``markers.events`` is what was marked."""
    from recorded_markers import RecordedMarkers

    from hostrange import _protocol, _ranges

    events: List[List[Any]] = []
    double = RecordedMarkers(events.append)
    double.events = events
    monkeypatch.setattr(_ranges, "_markers", double)
    monkeypatch.setattr(_protocol, "_markers", double)
    monkeypatch.setattr(_ranges, "_handles", {})
    monkeypatch.setattr(_ranges, "_open", {})
    for name, value in {"_case": None, "_phase": None, "_unprofiled_depth": 0, "_pause_was_ignored": False}.items():
        monkeypatch.setattr(_protocol, name, value)
    return double


class Suite:
    """Runs pytest on a suite in processes of its own, whose markers are recorded."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        self.monkeypatch = monkeypatch
        self.records = pytester.path / "records"
        # The package that is tested here, wherever these processes run.
        package = Path(hostrange.__file__).resolve().parent.parent
        path = [str(HERE / "recorder"), str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
        monkeypatch.setenv("HOSTRANGE_RECORD", str(self.records))
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        for name in ("HOSTRANGE_OUTPUT", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
            monkeypatch.delenv(name, raising=False)

    def run(self, *arguments: str) -> pytest.RunResult:
        self.records.mkdir(exist_ok=True)
        for file in self.records.iterdir():
            file.unlink()
        return self.pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)

    def events(self) -> Dict[str, List[List[Any]]]:
        """The markers of each process that made any."""
        return {
            file.stem: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            for file in self.records.iterdir()
        }

    def cases(self) -> List[List[str]]:
        """Nodeid, operator and backend of each case of all processes, sorted; each was ended before the next began."""
        found = []
        for events in self.events().values():
            inside = None
            for event in events:
                if event[0] == "case_begin":
                    assert inside is None, f"{event} inside of {inside}"
                    inside = event
                    found.append(event[1:])
                elif event[0] == "case_end":
                    assert inside is not None, "a case ended that had not begun"
                    inside = None
        return sorted(found)

    def nodeids(self) -> List[str]:
        return [nodeid for nodeid, _, _ in self.cases()]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    return Suite(pytester, monkeypatch)
