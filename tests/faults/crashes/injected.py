"""A contract by numbers: a small Triton kernel that is right, and in every eleventh case a fault of a known kind mutated in it.

The case's `fault` says what to do, never what it must be called: `NAMES` says that, and only who checks the verdicts reads it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis

BLOCK = 64
EVERY = 11  # one fault in so many cases
HANG_EVERY = 50  # one hang in so many faults: it costs its timeout
NAMES = {
    "wrong": "wrong words",
    "stray": "stray write",
    "far": "illegal address",
    "odd": "misaligned address",
    "assert": "device assert",
    "column": "illegal instruction",
    "collide": "race",
    "unmet": "deadlock",
    "trap": "launch failure",
    "segfault": "segmentation fault",
    "abort": "compiler abort",
    "kill": "killed",
    "exit": "launcher error",
    "raise": "launcher error",
    "memory": "out of memory",
    "hang": "timeout",
}
"""Fault -> the outcome it must be given. For the checker alone."""
EMULATED_ONLY, GPU_ONLY = {"collide", "unmet"}, {"trap"}


@dataclass(frozen=True, kw_only=True)
class Problem:
    number: int
    n: int
    fault: str = ""


@triton.jit
def twice_and_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(y + at, tl.load(x + at, mask=at < n, other=0) * 2 + 1, mask=at < n)


@triton.jit
def past_the_end(y, n):
    tl.store(y + n + 1, 7)


@triton.jit
def far_away(y):
    tl.store(y + (tl.program_id(0) + 1).to(tl.int64) * (1 << 44), 7)


@triton.jit
def at_an_odd_byte(y):
    bytes_of_y = y.to(tl.pointer_type(tl.int8)) + 1 + tl.program_id(0)
    tl.store(bytes_of_y.to(tl.pointer_type(tl.int32)), 7)


@triton.jit(debug=True)
def asserting(x, BLOCK: tl.constexpr):
    tl.device_assert(tl.load(x + tl.arange(0, BLOCK)) > (1 << 20), "every element is large")


@triton.jit
def at_column(descriptor, y, column, BLOCK: tl.constexpr):
    tile = descriptor.load([0, column])  # (8, BLOCK)
    tl.store(y + tl.arange(0, BLOCK), tl.sum(tile, 0))


@triton.jit
def colliding(y, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), tl.program_id(0) + tl.zeros((BLOCK,), tl.int32))


@triton.jit
def trapping(y):
    tl.inline_asm_elementwise("trap; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(y, 1)


@triton.jit
def spinning(y, nanoseconds):
    """Ends by itself, so that nobody has to reset a GPU."""
    begun = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    now = begun
    while now - begun < nanoseconds:
        now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(y, 1)


def _unmet(y: torch.Tensor) -> None:
    from tests.faults.crashes.unmet_barrier import waits_for_nobody

    waits_for_nobody[(1,)](y, num_warps=4)


def misbehave(fault: str, x: torch.Tensor, y: torch.Tensor) -> None:
    """Do what `fault` names, by a kernel where a kernel can, else to this process. x and y hold at least BLOCK int32 elements."""
    n, gpu = y.numel(), y.is_cuda
    match fault:
        case "wrong":
            y[n // 2] += 1
        case "stray":
            past_the_end[(1,)](y, n)
        case "far":
            far_away[(1,)](y)
        case "odd":
            at_an_odd_byte[(1,)](y)
        case "assert":
            asserting[(1,)](x, BLOCK=BLOCK)
        case "column":  # 4 bytes off a multiple of 16
            rows = torch.zeros((8, 2 * BLOCK), dtype=torch.int32, device=x.device)  # (8, 2 BLOCK)
            at_column[(1,)](TensorDescriptor.from_tensor(rows, [8, BLOCK]), y, 1, BLOCK=BLOCK)
        case "collide":
            colliding[(2,)](y, BLOCK=BLOCK)
        case "unmet":
            _unmet(y)
        case "trap":
            trapping[(1,)](y)
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "raise":
            raise KeyError("no such entry")
        case "memory" if gpu:
            torch.empty(1 << 46, dtype=torch.uint8, device=x.device)
        case "memory":
            np.empty(1 << 60, np.uint8)
        case "hang" if gpu:
            spinning[(1,)](y, 60_000_000_000)
            torch.cuda.synchronize()
        case "hang":
            time.sleep(600)


def kinds(*, gpu: bool) -> list[str]:
    """The faults of a kind of target, the hang last."""
    return [fault for fault in NAMES if fault not in (EMULATED_ONLY if gpu else GPU_ONLY)]


def fault_of(number: int, *, gpu: bool) -> str:
    """What case `number` has mutated: in every eleventh something, in turns; the hang in one of fifty of these."""
    if number % EVERY != EVERY - 1:
        return ""
    *often, hang = kinds(gpu=gpu)
    place = number // EVERY
    return hang if place % HANG_EVERY == HANG_EVERY - 1 else often[place % len(often)]


class ByNumber(Contract):
    """y = 2 x + 1 over n int32 elements; expects the words in every case, whatever is mutated."""

    stem = "injected_faults"
    parameters = "(x)"

    def __init__(self, name: str, cover: int, *, hang_at: int | None = None) -> None:
        """`hang_at`: the place in the required cases where the first case that hangs comes, of a number beyond it."""
        self.address, self.cover, self.hang_at = f"tests.faults.crashes.injected:{name}", cover, hang_at

    def case(self, number: int, *, gpu: bool = False) -> Case:
        fault = fault_of(number, gpu=gpu)
        problem = Problem(number=number, n=BLOCK + number % 100, fault=fault)
        return Case(contract=self.address, problem=problem, data_seed=number, schedule=("eager", "latest")[number % 2])

    def cases(self, target: Target) -> st.SearchStrategy[Case]:
        return st.integers(self.cover, self.cover + 10_000).map(lambda number: self.case(number, gpu=not target.emulated))

    def required(self, target: Target) -> list[Case]:
        numbers = [*range(self.cover)]
        if self.hang_at is not None:
            numbers.insert(self.hang_at, EVERY * HANG_EVERY - 1)
        return [self.case(number, gpu=not target.emulated) for number in numbers]

    def operands(self, case: Case) -> list[Operand]:
        draw = np.random.default_rng(case.data_seed)
        return [Operand(name="x", format="int32", codes=draw.integers(-1000, 1000, case.problem.n).astype(np.int32))]

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, torch.Tensor]:
        x, n = tensors["x"], case.problem.n
        y = torch.empty_like(x)  # (n,)
        twice_and_one[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)
        if case.problem.fault:
            misbehave(case.problem.fault, x, y)
        return {"y": y}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        words = operands["x"].codes * 2 + 1  # (n,)
        return [ExpectedOutput(name="y", format="int32", shape=words.shape, words=words, basis=Basis.EXACT)]

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        return {"schedule": case.schedule, "n mod 4": case.problem.n % 4}

    def case_from_json(self, record: Mapping) -> Case:
        fields = {name: record[name] for name in ("contract", "config", "regime", "data_seed", "schedule", "launcher")}
        return Case(problem=Problem(**record["problem"]), **fields)


CONTRACT, SMALL = ByNumber("CONTRACT", 260), ByNumber("SMALL", 24)
KILLED = ByNumber("KILLED", 260, hang_at=130)
