# SPDX-License-Identifier: Apache-2.0
"""A small operator library for the CPU, built to be profiled."""

from .ops import *  # noqa: F401,F403  what the extension offers depends on how it was built
from .tensor import Device, Tensor, cpu

__all__ = [name for name in dir() if not name.startswith("_") and name not in ("ops", "tensor")]
