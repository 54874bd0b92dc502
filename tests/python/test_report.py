# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import need

import hostrange

DATA = Path(__file__).resolve().parent.parent / "data"
GOOD = {
    "nodeid": "tests/test_add.py::test_add[ü-\U0001f40d]",
    "operator": "add",
    "backend": "cpu",
    "phase": "warm",
    "range": "operator.call",
    "metric": "self",
    "count": 2,
    "unit": "ns",
    "mean": 2.5,
    "median": 2,
}


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "report.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "name, operator, warm_calls", [("reference_add.jsonl", "add", 1500), ("reference_gemm.jsonl", "gemm", 6000)]
)
def test_reads_the_published_reports(name: str, operator: str, warm_calls: int) -> None:
    report = hostrange.load(DATA / name)
    assert len(report) == 39
    assert {record.operator for record in report} == {operator}
    assert {record.phase for record in report} == {"cold", "warm"}
    (end_to_end,) = [record for record in report if record.range == "end_to_end"]
    assert (end_to_end.phase, end_to_end.metric, end_to_end.count) == ("warm", "inclusive", warm_calls)
    assert all(record.unit == "ns" and record.extra == {} for record in report)
    assert report.meta is None


def test_reads_more_fields_and_the_sidecar(tmp_path: Path) -> None:
    path = written(tmp_path, {**GOOD, "pid": 7, "correction": None})
    Path(f"{path}.meta.json").write_text('{"host": {"kernel": "6.18"}}')
    report = hostrange.load(str(path))
    (record,) = report.records
    assert record.nodeid == GOOD["nodeid"]
    assert (record.count, record.mean, record.median) == (2, 2.5, 2.0)
    assert record.extra == {"pid": 7, "correction": None}
    assert report.meta == {"host": {"kernel": "6.18"}}


def test_a_range_without_durations(tmp_path: Path) -> None:
    (record,) = hostrange.load(written(tmp_path, {**GOOD, "count": 0, "mean": None, "median": None})).records
    assert record.mean is None


def test_an_empty_report(tmp_path: Path) -> None:
    assert len(hostrange.load(written(tmp_path))) == 0


def without(name: str) -> Any:
    return {field: value for field, value in GOOD.items() if field != name}


@pytest.mark.parametrize(
    "line, message",
    [
        (b"{", "not JSON: .* at column 2"),
        (b"[1]", r"not a JSON object: \[1\]"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"nodeid": "\xff"}', "not UTF-8: .* at byte 12"),
        (json.dumps(GOOD)[:-1].encode() + b', "count": 3}', "the field count is there twice"),
        (without("mean"), "without the field mean"),
        ({**GOOD, "operator": 3}, "operator is not a string: 3"),
        ({**GOOD, "metric": "total"}, "metric is not one of inclusive, self: 'total'"),
        ({**GOOD, "count": -1}, "count is not a whole number from 0 on: -1"),
        ({**GOOD, "count": True}, "count is not a whole number from 0 on: True"),
        ({**GOOD, "count": 1.0}, "count is not a whole number from 0 on: 1.0"),
        ({**GOOD, "mean": None}, "mean is not a number: None"),
        ({**GOOD, "mean": float("nan")}, "mean is not a number: nan"),
        ({**GOOD, "median": "2"}, "median is not a number: '2'"),
        ({**GOOD, "median": 10**400}, "median is not a number: 1000.*[.]{3}$"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: Any, message: str) -> None:
    path = written(tmp_path, GOOD)
    with path.open("ab") as file:
        file.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
    with pytest.raises(hostrange.ReportError, match=message) as raised:
        hostrange.load(path)
    assert str(raised.value).startswith(f"{path}:2: ")
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, hostrange.HostrangeError)


def test_a_wrong_sidecar_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    Path(f"{path}.meta.json").write_text("{\n  oops")
    with pytest.raises(hostrange.ReportError, match="meta.json: not JSON: .* at line 2, column 3"):
        hostrange.load(path)


def test_no_report(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hostrange.load(tmp_path / "report.jsonl")


def test_a_data_frame(tmp_path: Path) -> None:
    need("pandas")
    frame = hostrange.load(written(tmp_path, GOOD, {**GOOD, "pid": 7})).dataframe()
    assert list(frame.columns) == [*GOOD, "pid"]
    assert list(frame["mean"]) == [2.5, 2.5]
    assert hostrange.load(written(tmp_path)).dataframe().shape == (0, 10)


def test_a_data_frame_without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="python3-pandas"):
        hostrange.load(written(tmp_path, GOOD)).dataframe()
