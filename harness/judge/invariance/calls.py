"""Calls of one launcher on operands that are given: in which surroundings, and what can be compared of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitverdict.harness.judge.classify import Seen
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.devices import entered
from bitverdict.harness.judge.guarded_buffers import POISONS, TORCH_DTYPES, Poison, poison_word
from bitverdict.harness.judge.launch import Allocations, launch
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target

Operands = dict[str, Operand]
SHIFT = 32  # bytes: what no launcher may refuse that asks for rows on 16 bytes, or on 32


@dataclass(frozen=True)
class Surroundings:
    """What a call must not depend on. `poison`: which byte patterns lie around operands and in what is allocated. `shift`: bytes by
    which each operand begins later. `reordered`: operands lie in the opposite order. `entering`: how the target is entered."""

    poison: int = 0
    shift: int = 0
    reordered: bool = False
    entering: Callable[..., AbstractContextManager[Any]] = entered


PLAIN = Surroundings()


@dataclass(frozen=True)
class Call:
    """A case that was launched on `operands`, and what came."""

    case: Case
    operands: Operands
    seen: Seen
    poison: int

    def outputs(self) -> Mapping[str, np.ndarray]:
        return self.seen.outputs

    def unwritten(self, name: str) -> np.ndarray:
        """Where the output `name` holds what it held before the call; of its shape."""
        got = self.seen.outputs[name]
        return got == got.dtype.type(poison_word(self.poison, got.dtype.itemsize))

    def format(self, name: str) -> str:
        """The format of the output `name`; empty where none of ours is carried by its dtype."""
        return next((known for known, dtype in TORCH_DTYPES.items() if str(dtype) == self.seen.dtypes[name]), "")


@dataclass(frozen=True)
class Promises:
    """What a kernel promises beyond right words. `deterministic`: the same call gives the same words, atomics or not.
    `batch_invariant`: names of sizes; along each of them a row's words depend on that row alone. `ROWS` names every size that the
    first axis of an output follows, and `CONFIGURATIONS` says that all give the same words."""

    deterministic: bool = False
    batch_invariant: tuple[str, ...] = ()


NO_PROMISES = Promises()
ROWS, CONFIGURATIONS = "rows", "configurations"


@dataclass(frozen=True)
class Caller:
    """Launches cases of `contract` on `target`, by `launcher` or by the kernel's own."""

    contract: Contract
    target: Target
    launcher: Callable | None
    promises: Promises = NO_PROMISES

    def call(self, case: Case, operands: Operands | None = None, around: Surroundings = PLAIN) -> Call:
        """One call, without real values: words alone are compared. `operands`: None for those of the case."""
        given = {each.name: each for each in self.contract.operands(case)} if operands is None else operands
        place = (case.data_seed + around.poison) % len(POISONS)
        poison = Poison.of(place)
        moved = {name: _shifted(each, around.shift) for name, each in given.items()}
        if around.reordered:
            moved = dict(reversed(moved.items()))
        bare = replace(case, real_values=False, calls=1)
        seen = launch(bare, self.target, self.contract, self.launcher, moved, Clock(), around.entering, Allocations(poison=poison))
        return Call(bare, given, seen, poison.output)


def _shifted(operand: Operand, by: int) -> Operand:
    itemsize = operand.codes.dtype.itemsize
    return replace(operand, offset=operand.offset + by // itemsize) if by else operand
