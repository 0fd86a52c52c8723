"""Drawn kernels of products and sums, as text: straight lines, branches, loops, selects, conversions; and one kernel by name.

A kernel takes four inputs and an output of `OUTPUTS` rows, one element a lane, and an integer `n` that guards branches and counts
loops.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bitverdict.harness.emulator import emulated
from bitverdict.reference.fused_multiply_add import fused_multiply_add
from tests.support.ptx_threads import DeviceMemory, Threads

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
STEPS = 5  # n of every launch
LOOP = "for _ in range(n):"
OUTPUTS = 4
LANES = 64
WARPS = 1
_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_WORDS = {2: torch.int16, 4: torch.int32}
_HEAD = """import triton
import triton.language as tl


@triton.jit
def kernel(a, b, c, d, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at)
    y = tl.load(b + at)
    z = tl.load(c + at)
    w = tl.load(d + at)
"""


def operands(seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Four inputs of `LANES` elements."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(LANES, generator=generator).to(dtype) for _ in range(4)]


def real_ptx(kernel: Any, arch: str, given: torch.dtype, out: torch.dtype, fused: bool) -> str:
    """The PTX that Triton's own stages make of `kernel`, specialised as a launch on tensors specialises it."""
    signature = dict.fromkeys("abcd", f"*{_NAMES[given]}") | {"out": f"*{_NAMES[out]}", "n": "i32", "BLOCK": "constexpr"}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(5)}
    source = ASTSource(kernel, signature, {(6,): LANES}, aligned)
    options = {"num_warps": WARPS, "enable_fp_fusion": fused}
    return triton.compile(source, target=GPUTarget("cuda", int(arch.removeprefix("sm_")), 32), options=options).asm["ptx"]


def by_ptx(ptx: str, inputs: list[torch.Tensor], out: torch.dtype, n: int) -> tuple[np.ndarray, list[str]]:
    """The words (OUTPUTS, LANES) that `ptx` leaves in the output, zeros where it writes none, and the opcodes that ran."""
    result = torch.zeros(OUTPUTS, LANES, dtype=out)
    arrays = [t.view(_WORDS[t.element_size()]).numpy() for t in (*inputs, result)]
    threads = Threads(ptx, [a.__array_interface__["data"][0] for a in arrays] + [n], DeviceMemory(*arrays), 32 * WARPS)
    threads.run()
    return arrays[-1], threads.seen


def text(lines: list[str], stored: list[str]) -> str:
    """The kernel that runs `lines` and stores the values named `stored`."""
    ends = [f"tl.store(out + {row} * BLOCK + at, {name})" for row, name in enumerate(stored)]
    return _HEAD + "".join(f"    {line}\n" for line in [*lines, *ends])


def load(source: str, folder: Path, name: str) -> Any:
    """The kernel of `source`, from a file of its own in `folder`: Triton reads a kernel's text from its file."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"_drawn_{name}", path)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.kernel


def drawn(seed: int, flow: str) -> str:
    """A kernel drawn by `seed`; `flow` is "line", "branch", "loop" (n steps), "count" (a constant number of steps) or "narrow" (a
    line with widened values, for narrow inputs)."""
    chance = random.Random(f"{flow} {seed}")
    names = ["x", "y", "z", "w"]
    lines: list[str] = []

    def term() -> str:
        pick = chance.random()
        if pick < 0.08:
            return chance.choice(["0.5", "3.0", "-1.0", "1.7"])
        return chance.choice(names)

    def line(into: str | None = None) -> str:
        pick = chance.random()
        if flow == "narrow" and pick < 0.6:
            a, b, c, d = (f"{chance.choice(names)}.to(tl.float32)" for _ in range(4))
            p, q, sign = f"{chance.choice(names)} * {chance.choice(names)}", chance.choice(names), chance.choice("+-")
            made = chance.choice([
                f"(({p}).to(tl.float32) {sign} {c}).to(x.dtype)", f"({a} {sign} ({p}).to(tl.float32)).to(x.dtype)",
                f"({a} * {b}).to(x.dtype) {sign} {q}", f"{q} {sign} ({a} * {b}).to(x.dtype)", f"({a} * {b} {sign} {c}).to(x.dtype)",
                f"({a} * {b} {sign} {c} * {d}).to(x.dtype)", f"(({p}).to(tl.float32) {sign} ({p}).to(tl.float32)).to(x.dtype)",
                f"({a} * {b}).to(x.dtype) {sign} {p}",
            ])  # fmt: skip
        elif pick < 0.40:
            made = f"{chance.choice(names)} * {term()}"
        elif pick < 0.55:
            made = f"{chance.choice(names)} {chance.choice('+-')} {term()}"
        elif pick < 0.72:
            made = f"{chance.choice(names)} * {term()} {chance.choice('+-')} {term()}"
        elif pick < 0.84:
            made = f"{chance.choice(names)} * {term()} {chance.choice('+-')} {chance.choice(names)} * {term()}"
        elif pick < 0.92:
            made = f"-({chance.choice(names)} * {chance.choice(names)}) {chance.choice('+-')} {chance.choice(names)}"
        else:
            made = f"tl.where(x > y, {chance.choice(names)} * {term()}, {chance.choice(names)})"
        name = into or f"v{len(names)}"
        if into is None:
            names.append(name)
        return f"{name} = {made}"

    lines += [line() for _ in range(chance.randint(2, 5))]
    if flow not in ("line", "narrow"):
        head = {"branch": "if n > 3:", "loop": "for _ in range(n):", "count": f"for _ in range({chance.randint(2, 5)}):"}[flow]
        kept = list(names)
        carried = chance.sample(kept, min(2, len(kept)))
        inside = [line() for _ in range(chance.randint(0, 2))] + [line(into=name) for name in carried]
        if flow == "branch" and chance.random() < 0.5:  # a store in there keeps the compiler from a select
            inside.append(f"tl.store(out + {OUTPUTS - 1} * BLOCK + at, {chance.choice(names)})")
        del names[len(kept) :]
        lines += [head, *(f"    {each}" for each in inside)]
        lines += [line() for _ in range(chance.randint(0, 2))]
    own = names[4:] or names
    return text(lines, chance.sample(own, min(chance.randint(1, OUTPUTS - 1), len(own))))


def emulate(kernel, arch: str, given: torch.dtype, out: torch.dtype, fused: bool, seed: int = 0) -> np.ndarray:
    result = torch.zeros(OUTPUTS, LANES, dtype=out)
    with emulated(arch):
        kernel[(1,)](*operands(seed, given), result, STEPS, BLOCK=LANES, num_warps=WARPS, enable_fp_fusion=fused)
    return result.view(torch.int16 if out.itemsize == 2 else torch.int32).numpy()


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return fused_multiply_add(a, b, c).view(np.float32)
