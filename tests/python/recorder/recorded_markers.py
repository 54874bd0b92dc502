# SPDX-License-Identifier: Apache-2.0
"""A double of hostrange._markers that records what is marked, where the real one needs a profiler, and thus root."""

from __future__ import annotations

import types
from typing import Any, Callable, List


class Name:
    def __init__(self, text: str) -> None:
        self.text = text


class RecordedMarkers(types.ModuleType):
    """Gives each marker, as a list of its name and arguments, to ``sink``."""

    def __init__(self, sink: Callable[[List[Any]], Any], profiled: bool = True) -> None:
        super().__init__("hostrange._markers")
        self.sink = sink
        self.profiled = profiled
        self.can_pause = True
        self.cases = 0

    Name = Name

    def __getattr__(self, marker: str) -> Any:
        if marker.startswith("__"):
            raise AttributeError(marker)

        def record(*arguments: Any) -> None:
            texts = [argument.text if isinstance(argument, Name) else argument for argument in arguments]
            if any(isinstance(text, str) and "\0" in text for text in texts):
                raise ValueError("a marker's text cannot have a NUL character in it")
            self.sink([marker, *texts])

        return record

    def intern(self, text: str) -> Name:
        return Name(text)

    def is_profiled(self) -> bool:
        return self.profiled

    def is_probed(self) -> bool:
        return self.profiled

    def case_begin(self, nodeid: str, operator: str, backend: str) -> int:
        self.cases += 1
        self.sink(["case_begin", nodeid, operator, backend])
        return self.cases

    def pause(self, timeout_ms: int) -> bool:
        self.sink(["pause", timeout_ms])
        return self.can_pause

    def resume(self, timeout_ms: int) -> bool:
        self.sink(["resume", timeout_ms])
        return True
