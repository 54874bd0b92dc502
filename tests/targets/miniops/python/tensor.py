# SPDX-License-Identifier: Apache-2.0
"""A float32 tensor with the few attributes of torch.Tensor that the operators read."""

from __future__ import annotations

import math
from array import array
from typing import Iterator, List, Optional, Sequence, Tuple, Union

NestedFloats = Union[float, Sequence["NestedFloats"]]

_ITEM_SIZE_BYTES = 4


class Device:
    __slots__ = ("type", "index")

    def __init__(self, type: str, index: Optional[int] = None) -> None:
        self.type = type
        self.index = index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device({str(self)!r})"


cpu = Device("cpu")


def _shape_of(values: NestedFloats) -> Tuple[int, ...]:
    if not isinstance(values, (list, tuple)):
        return ()
    inner = _shape_of(values[0]) if values else ()
    for value in values:
        if _shape_of(value) != inner:
            raise ValueError("the nested lists are ragged")
    return (len(values), *inner)


def _flatten(values: NestedFloats) -> Iterator[float]:
    if not isinstance(values, (list, tuple)):
        yield float(values)
        return
    for value in values:
        yield from _flatten(value)


def _contiguous_strides(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides: List[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


class Tensor:
    """Made from nested lists; `from_bytes` and `zeros` make others. Views share the memory of their origin."""

    __slots__ = ("shape", "dtype", "device", "_strides", "_storage", "_address")

    def __init__(self, values: NestedFloats) -> None:
        self._set(array("f", _flatten(values)), _shape_of(values))

    @classmethod
    def from_bytes(cls, data: bytes, shape: Sequence[int]) -> Tensor:
        """Row-major native float32 values. Raises ValueError if there are not as many as the shape has."""
        storage = array("f")
        storage.frombytes(data)
        if len(storage) != math.prod(shape):
            raise ValueError(f"{len(storage)} values do not fill the shape {tuple(shape)}")
        tensor = cls.__new__(cls)
        tensor._set(storage, tuple(shape))
        return tensor

    @classmethod
    def zeros(cls, *shape: int) -> Tensor:
        return cls.from_bytes(bytes(_ITEM_SIZE_BYTES * math.prod(shape)), shape)

    def data_ptr(self) -> int:
        return self._address

    def stride(self) -> Tuple[int, ...]:
        """In elements."""
        return self._strides

    @property
    def strides(self) -> Tuple[int, ...]:
        return self._strides

    def transpose(self, first: int, second: int) -> Tensor:
        """A view with two dimensions exchanged."""
        order = list(range(len(self.shape)))
        order[first], order[second] = order[second], order[first]
        view = type(self).__new__(type(self))
        view._set(self._storage, tuple(self.shape[d] for d in order), tuple(self._strides[d] for d in order))
        return view

    def tolist(self) -> NestedFloats:
        def at(dimension: int, offset: int) -> NestedFloats:
            if dimension == len(self.shape):
                return self._storage[offset]
            step = self._strides[dimension]
            return [at(dimension + 1, offset + index * step) for index in range(self.shape[dimension])]

        return at(0, 0)

    def tobytes(self) -> bytes:
        """The values in row-major order."""
        return array("f", _flatten(self.tolist())).tobytes()

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, strides={self._strides}, device={self.device})"

    def _set(self, storage: array, shape: Tuple[int, ...], strides: Optional[Tuple[int, ...]] = None) -> None:
        self.shape = shape
        self.dtype = "float32"
        self.device = cpu
        self._storage = storage
        self._strides = _contiguous_strides(shape) if strides is None else strides
        self._address = storage.buffer_info()[0]
