# SPDX-License-Identifier: Apache-2.0
"""The bundled operator library: right results, known call counts, and symbols of the shape a profiler looks for."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

HERE = Path(__file__).resolve().parent
VARIANTS = ("relwithdebinfo", "release", "instrumented")
STOCK_VARIANTS = ("relwithdebinfo", "release")
OPERATORS = {"Add": "add", "Mul": "mul", "Gemm": "gemm", "RmsNorm": "rms_norm"}
RANGES = (
    "binding.body",
    "binding.tensor_conversion",
    "binding.device_conversion",
    "dispatch.call",
    "operator.call",
    "cache.key",
    "cache.lookup",
    "cache.construct",
    "operator.invoke",
    "backend.submit",
)


def variant_directory(variant: str) -> Path:
    name = f"MINIOPS_{variant.upper()}"
    if name not in os.environ:
        pytest.skip(f"{name} is not set; it names the directory {variant}/ that the build made")
    return Path(os.environ[name])


def module_file(variant: str) -> Path:
    (path,) = (variant_directory(variant) / "miniops").glob("ops.*.so")
    return path


def library_file(variant: str) -> Path:
    return variant_directory(variant) / "miniops" / "libminiops.so"


def output_of(*command: Any) -> str:
    return subprocess.run(
        [str(part) for part in command], check=True, stdout=subprocess.PIPE, universal_newlines=True, timeout=120
    ).stdout


def run_python(variant: str, code: str) -> Any:
    """Runs code, which leaves its answer in `result`, in a new process: each variant has the same package name."""
    script = f"import json, math, miniops\nfrom miniops import Tensor\n{code}\nprint(json.dumps(result))"
    environment = dict(os.environ, PYTHONPATH=str(variant_directory(variant)), PYTHONDONTWRITEBYTECODE="1")
    completed = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def run_workload(variant: str, *options: str) -> Dict[str, Any]:
    lines = output_of(
        sys.executable, "-B", HERE / "workload.py", "--package-dir", variant_directory(variant), *options
    ).splitlines()
    report = json.loads(lines[1])
    assert lines[0] == f"ready {report['pid']}" and len(lines) == 2
    return report


def close(actual: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(close(a, e) for a, e in zip(actual, expected))
    return math.isclose(actual, expected, rel_tol=1e-5, abs_tol=1e-6)


# --- results ---


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("operator", ("add", "mul"))
def test_binary_operators_broadcast_and_follow_strides(variant: str, operator: str) -> None:
    answers = run_python(
        variant,
        f"""
left = [[i + 0.25 * j for j in range(4)] for i in range(13)]
right = [[0.5 * i - j for j in range(4)] for i in range(13)]
same, row, column, turned = (Tensor.zeros(*shape) for shape in ((13, 4), (13, 4), (13, 4), (4, 13)))
miniops.{operator}(Tensor(left), Tensor(right), same)
miniops.{operator}(Tensor(left), Tensor(right[1]), row)
miniops.{operator}(Tensor(left), Tensor([[line[1]] for line in right]), column)
miniops.{operator}(Tensor(left).transpose(0, 1), Tensor(right).transpose(0, 1), turned, device=miniops.cpu)
scalar = Tensor(0.0)
miniops.{operator}(Tensor(3.0), Tensor(0.5), scalar)
result = [left, right, same.tolist(), row.tolist(), column.tolist(), turned.tolist(), scalar.tolist()]
""",
    )
    left, right, same, row, column, turned, scalar = answers

    def apply(first: float, second: float) -> float:
        return first + second if operator == "add" else first * second

    assert close(same, [[apply(left[i][j], right[i][j]) for j in range(4)] for i in range(13)])
    assert close(row, [[apply(left[i][j], right[1][j]) for j in range(4)] for i in range(13)])
    assert close(column, [[apply(left[i][j], right[i][1]) for j in range(4)] for i in range(13)])
    assert close(turned, [[apply(left[i][j], right[i][j]) for i in range(13)] for j in range(4)])
    assert close(scalar, apply(3.0, 0.5))


@pytest.mark.parametrize("variant", VARIANTS)
def test_gemm_multiplies_batches_and_strided_matrices(variant: str) -> None:
    left, right, product, strided = run_python(
        variant,
        """
left = [[[(b + 2 * i - k) / 8 for k in range(5)] for i in range(3)] for b in range(2)]
right = [[[(k * j - b) / 4 for j in range(4)] for k in range(5)] for b in range(2)]
product, strided = Tensor.zeros(2, 3, 4), Tensor.zeros(2, 3, 4)
miniops.gemm(Tensor(left), Tensor(right), product)
turned = Tensor([[[right[b][k][j] for k in range(5)] for j in range(4)] for b in range(2)]).transpose(1, 2)
miniops.gemm(Tensor(left), turned, strided)
result = [left, right, product.tolist(), strided.tolist()]
""",
    )
    expected = [
        [[sum(left[b][i][k] * right[b][k][j] for k in range(5)) for j in range(4)] for i in range(3)] for b in range(2)
    ]
    assert close(product, expected) and close(strided, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rms_norm_with_and_without_weight(variant: str) -> None:
    values, weight, weighted, plain = run_python(
        variant,
        """
values = [[(i + 1) * (j - 3.5) for j in range(8)] for i in range(3)]
weight = [0.25 * j for j in range(8)]
weighted, plain = Tensor.zeros(3, 8), Tensor.zeros(3, 8)
miniops.rms_norm(Tensor(values), Tensor(weight), 1e-6, weighted)
miniops.rms_norm(Tensor(values), None, 1e-6, plain, device=miniops.cpu)
result = [values, weight, weighted.tolist(), plain.tolist()]
""",
    )
    normalised = [[v / math.sqrt(sum(x * x for x in row) / len(row) + 1e-6) for v in row] for row in values]
    assert close(plain, normalised)
    assert close(weighted, [[v * w for v, w in zip(row, weight)] for row in normalised])


@pytest.mark.parametrize("variant", VARIANTS)
def test_bad_arguments_raise_value_error_and_the_library_still_works(variant: str) -> None:
    messages = run_python(
        variant,
        """
class Odd:
    dtype = "int8"
    shape, device = (2,), miniops.cpu
    def data_ptr(self): return 0
    def stride(self): return (1,)
class Empty(Odd):
    dtype = "float32"
class OnGpu(Empty):
    device = miniops.Device("cuda", 0)
class OnToaster(Empty):
    device = miniops.Device("toaster")
a, b, out = Tensor([1.0, 2.0]), Tensor([1.0, 2.0, 3.0]), Tensor.zeros(2)
result = []
for arguments, options in [((1, a, out), {}), ((a, Odd(), out), {}), ((a, b, out), {}), ((a, Empty(), out), {}),
                           ((a, OnToaster(), out), {}), ((OnGpu(), a, out), {}),
                           ((a, a, out), {"implementation_index": 7}), ((a, a, out), {"device": 5}),
                           ((a, a, out), {"device": miniops.Device("cuda")})]:
    try:
        miniops.add(*arguments, **options)
        result.append(None)
    except ValueError as error:
        result.append(str(error))
miniops.add(a, a, out)
assert out.tolist() == [2.0, 4.0]
""",
    )
    for message, expected in zip(
        messages,
        (
            "a 'int' object is not a tensor",
            "only float32",
            "does not broadcast",
            "no memory",
            "unknown device type 'toaster'",
            "no implementation 0 for device type 1",
            "no implementation 7",
            "a 'int' object is not a device",
            "another device",
        ),
    ):
        assert message is not None and expected in message
    assert len(messages) == 9


# --- call counts ---


@pytest.mark.parametrize("variant", VARIANTS)
def test_workload_reports_exact_counts(variant: str) -> None:
    report = run_workload(variant, "--threads", "2", "--calls", "40", "--error-every", "10")
    assert report["calls"] == {name: 80 for name in OPERATORS.values()}
    assert report["errors"] == 8 and report["threads_agree"]
    assert [thread["calls"]["gemm"] for thread in report["threads"]] == [40, 40]
    assert len({thread["thread_id"] for thread in report["threads"]}) == 2


def test_variants_agree_on_the_checksum() -> None:
    assert len({run_workload(variant, "--calls", "8")["checksum"] for variant in VARIANTS}) == 1


def test_workload_ends_cleanly_on_sigterm() -> None:
    command = [sys.executable, "-B", str(HERE / "workload.py"), "--operators", "add,gemm"]
    environment = dict(os.environ, MINIOPS_PACKAGE_DIR=str(variant_directory("relwithdebinfo")))
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, universal_newlines=True) as process:
        assert process.stdout.readline() == f"ready {process.pid}\n"
        process.send_signal(signal.SIGTERM)
        report = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 0
    assert set(report["calls"]) == {"add", "gemm"}


def test_workload_waits_for_a_line() -> None:
    command = [sys.executable, "-B", str(HERE / "workload.py"), "--calls", "3", "--wait"]
    environment = dict(os.environ, MINIOPS_PACKAGE_DIR=str(variant_directory("relwithdebinfo")))
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True
    ) as process:
        assert process.stdout.readline() == f"ready {process.pid}\n"
        assert process.poll() is None
        report = json.loads(process.communicate("\n", timeout=60)[0])
    assert report["calls"]["add"] == 3


@pytest.mark.parametrize("variant", VARIANTS)
def test_driver_reports_exact_counts(variant: str) -> None:
    driver = variant_directory(variant) / "miniops_driver"
    ready, line = output_of(driver, "--threads", "2", "--calls", "60", "--throw-every", "10").splitlines()
    report = json.loads(line)
    assert ready == f"ready {report['pid']}"
    assert report["calls"] == {name: 120 for name in OPERATORS.values()}
    assert report["thrown_by_constructor"] == 4 * 2 * 3
    assert report["thrown_by_call"] == 4 * 2 * 3
    assert len(set(report["thread_ids"])) == 2


def test_package_can_be_moved(tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in (variant_directory("release") / "miniops").glob("*.*"):
        target = moved / "miniops" / file.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())
    code = "import miniops, sys; print(next(l.split()[-1] for l in open('/proc/self/maps') if 'libminiops' in l))"
    environment = dict(os.environ, PYTHONPATH=str(moved))
    loaded = subprocess.run(
        [sys.executable, "-B", "-c", code], env=environment, check=True, stdout=subprocess.PIPE, universal_newlines=True
    ).stdout
    assert loaded.strip() == str(moved / "miniops" / "libminiops.so")


# --- symbols ---


def function_symbols(file: Path) -> Dict[str, str]:
    """Demangled name to nm's letter, of the defined functions."""
    symbols = {}
    for line in output_of("nm", "-C", "--defined-only", file).splitlines():
        _address, letter, name = line.split(maxsplit=2)
        if letter in "tTwW":
            symbols[name] = letter
    return symbols


def built_by_clang(variant: str) -> bool:
    return "clang" in output_of("readelf", "-p", ".comment", library_file(variant))


def matching(symbols: Dict[str, str], pattern: str) -> List[str]:
    return [name for name in symbols if re.fullmatch(pattern, name) and "[clone .cold]" not in name]


def dispatcher(operator: str) -> str:
    return rf"miniops::Operator<miniops::{operator}, \(miniops::rt::Device::Type\)10, 0ul>"


@pytest.mark.parametrize("variant", VARIANTS)
def test_module_symbols(variant: str) -> None:
    symbols = function_symbols(module_file(variant))
    # clang numbers lambdas by signature, and calls those outside a template $_N.
    numbering = (".*", ) if built_by_clang(variant) else (r"\{lambda\(.*\)#1\}", r"\{lambda\(.*\)#2\}")
    for operator in OPERATORS:
        bind = rf"miniops::Bind<miniops::{operator}>\(pybind11::module_&\)"
        for name in numbering:
            bodies = matching(symbols, rf"{bind}::{name}::operator\(\)\(.*\) const( \[clone .*\])?")
            assert len(bodies) == 2 // len(numbering)
    for kind in ("Tensor", "Device"):
        assert matching(symbols, rf"miniops::detail::{kind}FromPybind11HandleImpl\(pybind11::handle\)") != []
    assert all(letter == "t" for name, letter in symbols.items() if "miniops::" in name)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_library_symbols(variant: str, operator: str) -> None:
    symbols = function_symbols(library_file(variant))
    cpu = rf"miniops::Operator<miniops::{operator}, \(miniops::rt::Device::Type\)0, 0ul>"
    for pattern, letter in (
        (rf"miniops::generated_dispatch::Call{operator}\(.*\)", "T"),
        (rf"void {dispatcher(operator)}::Call<.*>\(.*\)", "W"),
        (rf"void miniops::detail::TraceOperatorCall<miniops::{operator}>\(.*\)", "W"),
        (rf"std::unique_ptr<.*> {dispatcher(operator)}::MakeWithDevice<.*>\(.*\)", "W"),
        (rf"void {dispatcher(operator)}::operator\(\)<.*>\(.*\) const", "W"),
        (rf"{cpu}::operator\(\)\(.*\) const", "T"),
    ):
        (name,) = matching(symbols, pattern)
        assert symbols[name] == letter


def instructions_by_function(file: Path) -> Dict[str, List[str]]:
    functions: Dict[str, List[str]] = {}
    for line in output_of("objdump", "-d", "-C", "--no-show-raw-insn", file).splitlines():
        heading = re.fullmatch(r"[0-9a-f]+ <(.*)>:", line)
        if heading:
            instructions = functions.setdefault(heading[1], [])
        elif "\t" in line:
            instructions.append(line.split("\t", 1)[1])
    return functions


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="reads x86-64 instructions")
@pytest.mark.parametrize("variant", STOCK_VARIANTS)
def test_code_shape(variant: str) -> None:
    functions = instructions_by_function(library_file(variant))

    def only(pattern: str) -> List[str]:
        (name,) = [name for name in functions if re.fullmatch(pattern, name) and "@plt" not in name]
        return functions[name]

    for operator in OPERATORS:
        dispatch = only(rf"miniops::generated_dispatch::Call{operator}\(.*\)")
        assert re.match(rf"jmp +[0-9a-f]+ <void {dispatcher(operator)}::Call<.*@plt>", dispatch[0])
        assert all("nop" in instruction for instruction in dispatch[1:])

        call = only(rf"void {dispatcher(operator)}::Call<.*>\(.*\)")
        called = [instruction for instruction in call if instruction.startswith("call")]
        trace = [position for position, target in enumerate(called) if "TraceOperatorCall<" in target]
        invoke = [position for position, target in enumerate(called) if "::operator()<" in target]
        assert len(trace) == 1 and len(invoke) == 1 and trace < invoke

        invocation = only(rf"void {dispatcher(operator)}::operator\(\)<.*>\(.*\) const")
        assert any(re.match(r"call +\*0x10\(", instruction) for instruction in invocation)


# --- the instrumented twin ---


@pytest.mark.parametrize("variant", STOCK_VARIANTS)
def test_stock_build_has_no_trace_of_the_clock_scopes(variant: str) -> None:
    for file in (module_file(variant), library_file(variant), variant_directory(variant) / "miniops_driver"):
        content = file.read_bytes()
        for word in (b"clock_scope", b"clock_gettime", b"binding.body", b"MINIOPS_CLOCK"):
            assert word not in content
    assert run_python(variant, "result = [n for n in dir(miniops) if 'clock' in n]") == []


def test_clock_scopes_count_every_range() -> None:
    rows, unwound = run_python(
        "instrumented",
        """
a, out = Tensor([[1.0, 2.0]] * 13), Tensor.zeros(13, 2)
miniops.add(a, a, out)
miniops.clear_cache()
miniops.clock_scopes_start()
for _ in range(6):
    miniops.add(a, a, out)
for _ in range(4):
    miniops.add(a, a, out, device=miniops.cpu)
for bad in (1, Tensor.zeros(3)):
    try:
        miniops.add(a, bad, out)
    except ValueError:
        pass
result = [miniops.clock_scopes_stop(), miniops.clock_scopes_unwound()]
""",
    )
    counts: Dict[str, Dict[str, int]] = {"cold": {}, "warm": {}}
    by_key = {}
    for row in rows:
        assert list(row) == ["operator", "backend", "phase", "range", "metric", "count", "unit", "mean", "median"]
        assert (row["operator"], row["backend"], row["unit"]) == ("add", "cpu", "ns")
        counts[row["phase"]][row["range"]] = row["count"]
        by_key[row["phase"], row["range"], row["metric"]] = row
    once = {name: 1 for name in RANGES}
    cold = dict(once, **{"binding.tensor_conversion": 3})
    del cold["binding.device_conversion"]
    warm = {name: 9 * count for name, count in cold.items() if name != "cache.construct"}
    assert counts["cold"] == cold
    assert counts["warm"] == dict(warm, **{"binding.device_conversion": 4})
    assert unwound == 2
    for (phase, name, metric), row in by_key.items():
        if metric == "self":
            assert row["mean"] <= by_key[phase, name, "inclusive"]["mean"]
    total_self = sum(row["mean"] * row["count"] for row in rows if row["metric"] == "self")
    total = sum(by_key[phase, "binding.body", "inclusive"]["mean"] * counts[phase]["binding.body"] for phase in counts)
    assert math.isclose(total_self, total, rel_tol=1e-9)


def test_clock_scopes_refuse_to_start_twice() -> None:
    messages = run_python(
        "instrumented",
        """
result = []
for call in (miniops.clock_scopes_stop, miniops.clock_scopes_start, miniops.clock_scopes_start):
    try:
        call()
    except RuntimeError as error:
        result.append(str(error))
""",
    )
    assert messages == ["clock scopes are not started", "clock scopes are already started"]
