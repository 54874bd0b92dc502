# SPDX-License-Identifier: Apache-2.0
"""The native part of the Python package; what else there is to say is in pyproject.toml."""

from setuptools import Extension, setup

# Link-time optimisation would not see the symbols that the markers' assembler text defines.
FLAGS = ["-O2", "-fno-lto", "-fvisibility=hidden"]
INCLUDE = "lib/include"

try:
    import pybind11

    pybind11_include = [pybind11.get_include()]
except ImportError:
    # Debian's pybind11-dev has the headers without the Python module, where the compiler looks by itself.
    pybind11_include = []

setup(
    # Apart from the extension, since it is C.
    libraries=[
        ("hostrange_markers", {"sources": ["lib/markers/markers.c"], "include_dirs": [INCLUDE], "cflags": FLAGS}),
    ],
    ext_modules=[
        Extension(
            "hostrange._markers",
            ["lib/python/hostrange/_markers.cpp"],
            depends=["lib/include/hostrange/markers.h", "lib/markers/markers.c"],
            include_dirs=[INCLUDE, *pybind11_include],
            extra_compile_args=[*FLAGS, "-std=c++17"],
            extra_link_args=["-fno-lto"],
            language="c++",
        )
    ],
)
