"""Calls of one launcher on operands that are given: in which surroundings, and what can be compared of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitverdict.harness.checks import provenance
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.judge.guarded_buffers import POISONS, TORCH_DTYPES, Poison, poison_word
from bitverdict.harness.judge.launch import Allocations, launch
from bitverdict.harness.judge.remote_launcher import LaunchRequest, RemoteLauncher
from bitverdict.harness.model import sealing
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

Operands = dict[str, Operand]
SHIFT = 32  # bytes: what no launcher may refuse that asks for rows on 16 bytes, or on 32


@dataclass(frozen=True)
class Surroundings:
    """What a call must not depend on. `poison`: which byte patterns lie around operands and in what is allocated. `shift`: bytes by
    which each operand begins later. `opposite_order`: of operands in memory. `enter_target`: how the target is entered."""

    poison: int = 0
    shift: int = 0
    opposite_order: bool = False
    enter_target: Callable[..., AbstractContextManager[Any]] = target_device


PLAIN_SURROUNDINGS = Surroundings()


@dataclass(frozen=True)
class Call:
    """A case that was launched on `operands`, and what came."""

    case: Case
    operands: Operands
    launch_result: LaunchResult
    poison: int

    def outputs(self) -> Mapping[str, np.ndarray]:
        return self.launch_result.outputs

    def unwritten(self, name: str) -> np.ndarray:
        """Where the output `name` holds what it held before the call; of its shape."""
        got = self.launch_result.outputs[name]
        return got == got.dtype.type(poison_word(self.poison, got.dtype.itemsize))

    def format(self, name: str) -> str:
        """The format of the output `name`; empty where none of ours is carried by its dtype."""
        return next((known for known, dtype in TORCH_DTYPES.items() if str(dtype) == self.launch_result.dtypes[name]), "")


@dataclass(frozen=True)
class Promises:
    """What a kernel promises beyond right words. `deterministic`: the same call gives the same words, atomics or not.
    `batch_invariant`: names of sizes; along each of them a row's words depend on that row alone. `ROWS` names every size that the
    first axis of an output follows, and `CONFIGURATIONS` says that all give the same words."""

    deterministic: bool = False
    batch_invariant: tuple[str, ...] = ()

    @classmethod
    def of_case(cls, contract: Contract, case: Case) -> Promises:
        """Those of a contract, and of the launcher of a case."""
        said = [word for word in case.promises.split(",") if word]
        sizes = (*contract.batch_invariant, *(word for word in said if word != DETERMINISTIC))
        return cls(contract.deterministic or DETERMINISTIC in said, tuple(dict.fromkeys(sizes)))


NO_PROMISES = Promises()
DETERMINISTIC, ROWS, CONFIGURATIONS = "deterministic", "rows", "configurations"


@dataclass(frozen=True)
class Caller:
    """Launches cases of `contract` on `target`, by `launcher` or by the kernel's own."""

    contract: Contract
    target: Target
    launcher: Callable | RemoteLauncher | None
    promises: Promises = NO_PROMISES

    def call(self, case: Case, operands: Operands | None = None, around: Surroundings = PLAIN_SURROUNDINGS) -> Call:
        """One call, without real values: words alone are compared. `operands`: None for those of the case."""
        call_operands = {each.name: each for each in self.contract.operands(case)} if operands is None else operands
        place = (case.data_seed + around.poison) % len(POISONS)
        poison = Poison.of_seed(place)
        shifted_operands = {name: _shift_operand(each, around.shift) for name, each in call_operands.items()}
        if around.opposite_order:
            shifted_operands = dict(reversed(shifted_operands.items()))
        bare = replace(case, real_values=False, calls=1)
        allocations = Allocations(poison=poison)
        if isinstance(self.launcher, RemoteLauncher):
            request = LaunchRequest(bare, self.target, self.contract, shifted_operands, Clock(), allocations=allocations)
            launch_result = self.launcher.begin(request).launch_result()
            if self.target.emulated and launch_result.outcome is None:
                _hold_to_kernels(launch_result)
        else:
            launch_result = launch(
                bare, self.target, self.contract, self.launcher, shifted_operands, Clock(), around.enter_target, allocations
            )
        return Call(bare, call_operands, launch_result, poison.output)

    @property
    def is_sealed(self) -> bool:
        return isinstance(self.launcher, RemoteLauncher)

    def takes(self, case: Case) -> bool:
        """Whether what a user's launcher says of itself takes the sizes of a case."""
        adapt: Callable[[Case, str], Case | None] | None = getattr(self.contract, "for_launcher", None)
        if not case.launcher or adapt is None:
            return True
        if isinstance(self.launcher, RemoteLauncher):
            sealing.stand_in = functools.partial(self.launcher.stand_in, case.search_path)
        asked = adapt(case, case.launcher)
        return asked is not None and asked.problem == case.problem


def _hold_to_kernels(seen: LaunchResult) -> None:
    """Of an emulated call of a sealed launcher: words that no kernel stored may be those of an earlier call."""
    right = Verdict(decision=Decision.PASS, outcome=Outcome.PASS)
    found = provenance.judge_provenance(right, seen.launch_record.get(provenance.PROVENANCE_KEY, {}))
    if found.outcome is Outcome.COMPUTED_ON_HOST:
        seen.outcome, seen.message = found.outcome, found.message


def _shift_operand(operand: Operand, by: int) -> Operand:
    itemsize = operand.codes.dtype.itemsize
    return replace(operand, offset=operand.offset + by // itemsize) if by else operand
