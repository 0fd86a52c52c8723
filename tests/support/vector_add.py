"""A small contract for checks of the harness: c = a + b over n fp32 elements, with a fault that the problem itself asks for.

It runs through a Triton kernel on any target, and through torch alone on `HOST`, a target for checks that need no compiler.
Integers up to 2^10 in fp32: every sum is exact, so its words are expected.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from hypothesis import strategies as st

from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis
from bitverdict.kernels.features import Feature

ADDRESS = "tests.support.vector_add:CONTRACT"
BLOCK = 64
FAULT_FROM = 5  # elements from which a fault shows
FAULTS = (
    "",
    "wrong",
    "unwritten",
    "sign",
    "stray",
    "before",
    "input",
    "refuse",
    "raise",
    "segfault",
    "abort",
    "kill",
    "hang",
    "memory",
)


@dataclass(frozen=True, kw_only=True)
class Problem:
    n: int
    stride: int = 1
    fault: str = ""


@triton.jit
def add_kernel(a_ptr, b_ptr, c_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    a = tl.load(a_ptr + offsets * stride, mask=offsets < n)  # (BLOCK,)
    b = tl.load(b_ptr + offsets, mask=offsets < n)  # (BLOCK,)
    tl.store(c_ptr + offsets, a + b, mask=offsets < n)


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """c = a + b by the kernel; a and b of shape (n,)."""
    if a.shape != b.shape:
        raise ValueError(f"a has shape {tuple(a.shape)}, b has {tuple(b.shape)}: both must be one shape; slice the longer one")
    c = torch.empty(a.shape, dtype=a.dtype, device=a.device)  # (n,)
    if a.numel():
        add_kernel[(triton.cdiv(a.shape[0], BLOCK),)](a, b, c, a.shape[0], a.stride(0), BLOCK=BLOCK)
    return c


def add_by_torch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a, memory_format=torch.contiguous_format)  # (n,)
    c.copy_(a + b)
    return c


def add_off_by_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A user's launcher with a bug: from 5 elements on, the last sum is one too large."""
    c = add_by_torch(a, b)  # (n,)
    if c.numel() >= 5:
        c[-1] += 1
    return c


def misbehave(fault: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Do what `fault` names to the result or to this process."""
    if fault == "wrong":
        c[c.numel() // 2] += 1
    elif fault == "sign":
        c.neg_()
    elif fault == "unwritten":
        c.view(torch.int32).fill_(-1)
    elif fault in ("stray", "before"):
        c.as_strided((1,), (1,), c.storage_offset() + (c.numel() + 2 if fault == "stray" else -3)).fill_(7.0)
    elif fault == "input":
        a[-1] += 1
    elif fault == "refuse":
        raise ValueError(f"n = {a.numel()}: not today; come back tomorrow")
    elif fault == "raise":
        raise KeyError("no such entry")
    elif fault == "memory":
        raise MemoryError("as asked")
    elif fault == "hang":
        time.sleep(600)
    elif fault in ("segfault", "abort", "kill"):
        print(f"about to {fault}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), {"segfault": signal.SIGSEGV, "abort": signal.SIGABRT, "kill": signal.SIGKILL}[fault])


class VectorAdd(Contract):
    """Expects the words of a + b; a fault it was asked for is expected by nobody."""

    stem = "vector_add"
    address = ADDRESS
    parameters = "(a, b)"

    def __init__(self, *, fault: str = "", requires: frozenset[Feature] = frozenset()) -> None:
        self.fault, self.requires = fault, requires

    def cases(self, target: Target) -> st.SearchStrategy[Case]:
        problems = st.builds(Problem, n=st.integers(0, 200), stride=st.sampled_from((1, 1, 3)), fault=st.just(self.fault))
        return st.builds(
            Case,
            contract=st.just(self.address),
            problem=problems,
            data_seed=st.integers(0, 1000),
            schedule=st.sampled_from(("eager", "latest")),
        )

    def required(self, target: Target) -> list[Case]:
        return [Case(contract=self.address, problem=Problem(n=n, fault=self.fault)) for n in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1)]

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        if case.problem.n < 0:
            return ExpectedOutcome(
                result=False, outcome="refused", layer="launcher", message="n = ", reason="no vector is shorter than empty"
            )
        return ExpectedOutcome()

    def operands(self, case: Case) -> list[Operand]:
        problem, draw = case.problem, np.random.default_rng(case.data_seed)
        a, b = (draw.integers(-1024, 1025, max(0, problem.n)).astype(np.float32).view(np.uint32) for _ in range(2))
        return [
            Operand(name="a", format="fp32", codes=a, strides=(problem.stride,)),
            Operand(name="b", format="fp32", codes=b, offset=1),
        ]

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, torch.Tensor]:
        a, b = tensors["a"], tensors["b"]
        if case.problem.n < 0:
            raise ValueError(f"n = {case.problem.n}: must be at least 0; pass a vector")
        c = (launcher or (add_by_torch if case.config == "torch" or case.problem.fault else add))(a, b)  # (n,)
        if case.problem.fault and case.problem.n >= FAULT_FROM:
            misbehave(case.problem.fault, a, b, c)
        return {"c": c}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        a, b = (operands[name].codes.view(np.float32) for name in "ab")
        return [ExpectedOutput(name="c", format="fp32", shape=a.shape, words=(a + b).view(np.uint32), basis=Basis.EXACT)]

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        return {"stride": case.problem.stride, "n mod 16": case.problem.n % 16}

    def case_from_json(self, record: Mapping) -> Case:
        fields = {name: record[name] for name in ("contract", "config", "regime", "data_seed", "schedule", "launcher")}
        certificate = record.get("certificate", False)
        return Case(problem=Problem(**record["problem"]), certificate=certificate, **fields)


class Doubled(VectorAdd):
    """Expects twice what the kernel computes: fails a launch that is right."""

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        (right,) = super().expected(case, target, operands, recorded)
        assert right.words is not None
        return [replace(right, words=(right.words.view(np.float32) * 2).view(np.uint32))]


@dataclass(frozen=True)
class Host(Target):
    """This process and torch, no GPU of any kind: for checks of the harness alone."""

    @property
    def emulated(self) -> bool:
        return True


@target_device.register(Host)
@contextmanager
def _entered(target: Host, schedule: str = "eager", tuning: str = "", **options: bool) -> Iterator[Any]:
    yield None


HOST = Host("host", "sm_90")
CONTRACT, DOUBLED = VectorAdd(), Doubled()
HANGS, CRASHES, WRONG = (VectorAdd(fault=fault) for fault in ("hang", "segfault", "wrong"))


def case(n: int = 100, *, fault: str = "", stride: int = 1, data_seed: int = 0, launcher: str = "") -> Case:
    """A case that torch alone serves."""
    return Case(
        contract=ADDRESS, problem=Problem(n=n, fault=fault, stride=stride), config="torch", data_seed=data_seed, launcher=launcher
    )
