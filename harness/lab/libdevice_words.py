"""Every function of Triton's libdevice module on a real GPU, its words held against those of the emulated one.

`python -m bitverdict.harness.lab.libdevice_words --device cuda:0` compiles a kernel for each of the 313 symbols with Triton's
own launcher, runs it over drawn words (every exponent, ordinary numbers, edges) and compares word for word. Exit status 1 where
one differs. With `--device emulated:sm_90` the kernels themselves are emulated: what the whole path gives is held against the
compiled operation alone, and no GPU is needed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from triton.language.extra.cuda import libdevice

from bitverdict.harness.emulator.frontend.compiled_operations import Operation, compile_operation, operation_of

BLOCK = 1024
_ELEMENTS = {"int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64", "fp32": "f32", "fp64": "f64"}
_WORDS = {"i32": np.uint32, "i64": np.uint64, "f32": np.uint32, "f64": np.uint64}
_VALUES = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}
_STEP_FUNCTIONS = ("__nv_jn", "__nv_jnf", "__nv_yn", "__nv_ynf")  # their first operand counts steps
_HEADER = """import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice
"""


@dataclass(frozen=True)
class Symbol:
    """A function of libdevice as Triton's module declares it: `function` there, Triton's names of its operands and result."""

    name: str
    function: str
    operands: tuple[str, ...]
    result: str

    @property
    def operation(self) -> Operation:
        """The tile program's operation, for the compiler."""
        attributes = {"libname": '""', "libpath": '""', "pure": "true", "symbol": f'"{self.name}"'}
        return operation_of("tt.extern_elementwise", attributes, self.elements, _ELEMENTS[self.result])

    @property
    def elements(self) -> tuple[str, ...]:
        return tuple(_ELEMENTS[operand] for operand in self.operands)

    @property
    def kernel_name(self) -> str:
        """Not the symbol itself: in a module with a function of that name the compiler calls the kernel, and fails."""
        return f"kernel_of{self.name}"

    @property
    def kernel(self) -> str:
        """Source of a kernel of this function alone."""
        names = [f"a{number}" for number in range(len(self.operands))]
        arguments = ", ".join(f"tl.load({n} + at){_cast(kind, 'u')}" for n, kind in zip(names, self.operands, strict=True))
        return f"""

@triton.jit
def {self.kernel_name}({", ".join(names)}, found, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(found + at, libdevice.{self.function}({arguments}){_cast(self.result, "")})
"""

    def words(self, count: int, seed: int = 0) -> list[np.ndarray]:
        """Drawn operand words [count] each: a third any bits, a third ordinary numbers, a third of few bits and edges."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        found = [drawn(element, count, rng) for element in self.elements]
        if self.name in _STEP_FUNCTIONS:
            found[0] = rng.integers(-2, 40, count).astype(np.int32).view(np.uint32)  # (count,)
        return found


def _cast(kind: str, sign: str) -> str:
    return f".to(tl.{sign}{kind.removeprefix('u')}, bitcast=True)" if kind.startswith("u") else ""


def drawn(element: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Words (uint32 or uint64) [count] of the element type."""
    dtype: Any = _WORDS[element]
    width = 8 * np.dtype(dtype).itemsize
    any_bits = rng.integers(0, 1 << 64, count, dtype=np.uint64, endpoint=False) >> np.uint64(64 - width)  # (count,)
    words = any_bits.astype(dtype)
    ordinary, third = slice(count // 3, 2 * count // 3), 2 * count // 3
    if element[0] == "i":
        words[ordinary] >>= rng.integers(0, width, len(words[ordinary])).astype(dtype)
        edges = [0, 1, 2, 31, 32, 63, (1 << width - 1) - 1, 1 << width - 1, (1 << width) - 1]
    else:
        scale = np.exp(rng.uniform(-4, 8, len(words[ordinary])))
        real = rng.standard_normal(len(scale)) * scale
        words[ordinary] = real.astype(_VALUES[element]).view(dtype)
        precision = {"f32": 24, "f64": 53}[element]
        fraction = rng.integers(0, 4, count - third).astype(dtype) << dtype(precision - 3)
        words[third:] = words[third:] & ~dtype((1 << precision - 1) - 1) | fraction  # few bits: results that are exact, and ties
        one = ((1 << width - precision - 1) - 1) << precision - 1
        infinity = ((1 << width - precision) - 1) << precision - 1
        low = 1 << precision - 1
        size = [0, 1, low - 1, low, low + 1, one - 1, one, one + 1, 2 * low + one, infinity - 1, infinity, infinity | low >> 1]
        edges = [*size, *(each | 1 << width - 1 for each in size)]
    at = rng.integers(0, count, count // 16)
    words[at] = np.array(edges, dtype)[rng.integers(0, len(edges), len(at))]
    return words


@cache
def symbols() -> dict[str, Symbol]:
    """Every symbol that Triton's module declares, by name, read off its source."""
    symbol_table = {}
    for function in ast.parse(Path(libdevice.__file__).read_text()).body:
        if isinstance(function, ast.FunctionDef):
            for table in (node for node in ast.walk(function) if isinstance(node, ast.Dict)):
                for key, value in zip(table.keys, table.values, strict=True):
                    operands, (name, result) = _constants(key), _constants(value)
                    symbol_table[name] = Symbol(name, function.name, operands, result)
    return symbol_table


def _constants(node: ast.AST | None) -> tuple[str, ...]:
    """The texts in `node`, in order."""
    assert isinstance(node, ast.Tuple)
    return tuple(str(each.value) for part in node.elts for each in ast.walk(part) if isinstance(each, ast.Constant))


@dataclass
class SymbolComparison:
    """What came of one symbol: words compared, how many differ, how many of them are NaN on both sides, and the first few."""

    symbol: str
    words: int
    differ: int = 0
    nan: int = 0
    seconds: float = 0.0  # of the emulated function
    examples: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


@cache
def _kernels() -> ModuleType:
    """Every symbol's kernel, as a module: Triton wants their source in a file."""
    path = Path(tempfile.mkdtemp()) / "libdevice_kernels.py"
    path.write_text(_HEADER + "".join(symbol.kernel for symbol in symbols().values()))
    spec = importlib.util.spec_from_file_location("libdevice_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def operands(symbol: Symbol, words: list[np.ndarray], place: str) -> list[Any]:
    """The tensors [count] that the symbol's kernel takes: its operands' `words`, and zeros for what it finds."""
    import torch

    given = [each.view(_VALUES[kind]) for each, kind in zip(words, symbol.elements, strict=True)]
    found = np.zeros(len(words[0]), _VALUES[_ELEMENTS[symbol.result]])
    return [torch.from_numpy(each).to(place) for each in (*given, found)]


def launch_symbol(symbol: Symbol, words: list[np.ndarray], device: str) -> np.ndarray:
    """Result words of the kernel on `device`: a real GPU ("cuda:0"), an emulated one ("emulated:sm_90"), or "cpu" under a driver
    of the caller's."""
    from bitverdict.harness.emulator import emulated

    place = device if device.startswith("cuda") else "cpu"
    tensors = operands(symbol, words, place)
    with emulated(device.removeprefix("emulated:")) if device.startswith("emulated:") else nullcontext():
        getattr(_kernels(), symbol.kernel_name)[(len(words[0]) // BLOCK,)](*tensors, BLOCK=BLOCK)
    return tensors[-1].cpu().numpy().view(_WORDS[_ELEMENTS[symbol.result]])


def compare(name: str, count: int, device: str, arch: str) -> SymbolComparison:
    """One symbol over `count` words, rounded up to whole blocks."""
    symbol = symbols()[name]
    words = symbol.words(-(-count // BLOCK) * BLOCK)
    comparison = SymbolComparison(name, len(words[0]))
    try:
        actual = launch_symbol(symbol, words, device)
        start = time.process_time()
        values = [operand.view(_VALUES[kind]) for operand, kind in zip(words, symbol.elements, strict=True)]
        expected = compile_operation(symbol.operation, arch, True)(*values).view(actual.dtype)
        comparison.seconds = time.process_time() - start
    except Exception as error:
        comparison.error = f"{type(error).__name__}: {error}"[:300]
        return comparison
    differ = actual != expected  # (count,)
    comparison.differ = int(differ.sum())
    if symbol.result.startswith("fp"):
        real = _VALUES[_ELEMENTS[symbol.result]]
        comparison.nan = int((differ & np.isnan(actual.view(real)) & np.isnan(expected.view(real))).sum())
    for at in np.flatnonzero(differ)[:4]:
        given = [hex(int(operand[at])) for operand in words]
        comparison.examples.append({"operands": given, "device": hex(int(actual[at])), "emulated": hex(int(expected[at]))})
    return comparison


def architecture(device: str) -> str:
    """The emulated target that `device` is compared with."""
    if device.startswith("emulated:"):
        return device.removeprefix("emulated:")
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def run(names: list[str], count: int, device: str, jobs: int) -> Iterator[SymbolComparison]:
    """Each symbol compared, in the order in which they end."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        arch = pool.submit(architecture, device).result()
        for done in as_completed([pool.submit(compare, name, count, device, arch) for name in names]):
            yield done.result()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or emulated:sm_90")
    parser.add_argument("--words", type=int, default=1 << 20, help="of each symbol")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--json", type=Path, help="file that takes a line for each symbol")
    parser.add_argument("symbols", nargs="*", help="all unless said")
    options = parser.parse_args(arguments)
    if unknown := set(options.symbols) - set(symbols()):
        parser.error(f"{', '.join(sorted(unknown))}: no symbol of Triton's libdevice module")
    names = options.symbols or sorted(
        symbols(), key=lambda name: ("fp64" not in symbols()[name].operands, name)
    )  # the slow ones first
    comparisons = []
    with options.json.open("w") if options.json else nullcontext() as file:
        for comparison in run(names, options.words, options.device, options.jobs):
            comparisons.append(comparison)
            if file is not None:
                print(json.dumps(asdict(comparison)), file=file, flush=True)
            if comparison.differ or comparison.error:
                said = (
                    comparison.error
                    or f"{comparison.differ} of {comparison.words} words differ, {comparison.nan} NaN on both sides"
                )
                print(f"{comparison.symbol}: {said} {comparison.examples[:2]}", flush=True)
    total, wrong = sum(each.words for each in comparisons), sum(each.differ for each in comparisons)
    print(f"{len(comparisons)} symbols, {total:,} words: {wrong:,} differ "
          f"({sum(each.nan for each in comparisons):,} NaN on both sides), "
          f"{sum(bool(each.error) for each in comparisons)} errors")  # fmt: skip
    return int(wrong > 0 or any(each.error for each in comparisons))


if __name__ == "__main__":
    sys.exit(main())
