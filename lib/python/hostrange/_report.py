# SPDX-License-Identifier: Apache-2.0
"""Reads reports: JSON lines, as hostrange-bpf and InfiniOps's own profiler write them."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from ._errors import ReportError

if TYPE_CHECKING:
    import pandas

TEXT_FIELDS = ("nodeid", "operator", "backend", "phase", "range", "metric", "unit")
FIELDS = ("nodeid", "operator", "backend", "phase", "range", "metric", "count", "unit", "mean", "median")
METRICS = ("inclusive", "self")


@dataclass(frozen=True)
class Record:
    """One line of a report: a range's durations in one phase of one test, in ``unit`` ("ns": nanoseconds)."""

    nodeid: str  #: the test; empty: none
    operator: str
    backend: str
    phase: str  #: "cold", "warm", or a name that the program gave
    range: str
    metric: str  #: "inclusive", or "self": without the ranges directly inside
    count: int
    unit: str
    mean: Optional[float]  #: None if the count is 0
    median: Optional[float]  #: None if the count is 0
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)  #: what ``--fields=all`` adds


@dataclass(frozen=True)
class Report:
    """The records of a report, in the order of the file; iterates over them."""

    path: Path
    records: Tuple[Record, ...]
    meta: Optional[Dict[str, Any]]  #: the sidecar ``<path>.meta.json``: host, sites, what was lost; None: there is none

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def dataframe(self) -> "pandas.DataFrame":
        """A row for each record, a column for each field (first the ten, then what else there is).

        Errors: ImportError if pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "a data frame needs pandas: install it (pip install pandas, Debian's python3-pandas), or use .records"
            ) from error
        rows = [{**{name: getattr(record, name) for name in FIELDS}, **record.extra} for record in self.records]
        extra = dict.fromkeys(name for record in self.records for name in record.extra)
        return pandas.DataFrame(rows, columns=[*FIELDS, *extra])


def load(path: Union[str, "os.PathLike[str]"]) -> Report:
    """Reads a report and, if it is there, its sidecar. A report without lines has no records.

    Errors: OSError if the file cannot be read; ReportError (a ValueError), which begins with file and line, if a line
    is not a record: no JSON, a field that is missing or twice there, of another type, or no number.
    """
    path = Path(path)
    records: List[Record] = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            try:
                records.append(_record(line))
            except ValueError as error:
                raise ReportError(f"{path}:{number}: {error}") from None
    return Report(path, tuple(records), _meta(Path(f"{path}.meta.json")))


def _meta(path: Path) -> Optional[Dict[str, Any]]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return _object(text)
    except ValueError as error:
        # The decoder says the line itself, as this file has many.
        raise ReportError(f"{path}: {error}") from None


def _record(line: bytes) -> Record:
    values = _object(line)
    missing = [name for name in FIELDS if name not in values]
    if missing:
        raise ValueError(f"no record of a report: without the field {', '.join(missing)}")
    for name in TEXT_FIELDS:
        if not isinstance(values[name], str):
            raise ValueError(f"{name} is not a string: {_short(values[name])}")
    if values["metric"] not in METRICS:
        raise ValueError(f"metric is not one of {', '.join(METRICS)}: {_short(values['metric'])}")
    count = values["count"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(f"count is not a whole number from 0 on: {_short(count)}")
    for name in ("mean", "median"):
        values[name] = _duration(name, values[name], count)
    extra = {name: value for name, value in values.items() if name not in FIELDS}
    return Record(**{name: values[name] for name in FIELDS}, extra=extra)


def _duration(name: str, value: object, count: int) -> Optional[float]:
    if value is None and count == 0:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            duration = float(value)
        except OverflowError:
            duration = math.inf
        if math.isfinite(duration):
            return duration
    raise ValueError(f"{name} is not a number: {_short(value)}")


def _object(text: bytes) -> Dict[str, Any]:
    try:
        values = json.loads(text.decode("utf-8"), object_pairs_hook=_without_repetition)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise ValueError(f"not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise ValueError("not a report: nested too deep") from None
    if not isinstance(values, dict):
        raise ValueError(f"not a JSON object: {_short(values)}")
    return values


def _without_repetition(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)} is there twice")
    return values


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
