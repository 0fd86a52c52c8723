"""The real values of one launch: what its memory holds, what it was given, and what hangs on a rounding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun
from bitverdict.harness.emulator.memory.real_access import RealAccess
from bitverdict.harness.emulator.memory.real_memory import RealMemory
from bitverdict.harness.emulator.numerics import real_constants
from bitverdict.harness.emulator.numerics.real_values import Real, Taint, union_of_taints, unknown
from bitverdict.harness.emulator.numerics.scalar_ops import widen

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.execution.program_batches import Batch
    from bitverdict.harness.emulator.mlir_reader import Operation


@dataclass(eq=False)
class RealLaunch:
    """What a launch whose floats carry real values has besides."""

    scalars: dict[int, Real] = field(default_factory=dict)
    """Floats that the launch was given, by the number of the program's argument."""
    hangs: dict[tuple[str, str], None] = field(default_factory=dict)
    """(what hangs on a rounding, or an operation without a rule; line), in the order in which they were met."""
    is_lost: bool = False
    """A branch hung on a rounding: nothing is known of what the launch may write."""

    def hang(self, op: Operation, reason: str) -> None:
        self.hangs[reason, op.location] = None


class RealProbe(DeviceProbe):
    """Gives launches real values of what they are given and find in `memory`, and keeps what they leave there. `hangs` takes what
    hangs on a rounding. `rounded`: a float that the launcher passes is known to half a unit of its parameter's format."""

    def __init__(self, memory: RealMemory, hangs: dict[tuple[str, str], None], *, rounded: bool) -> None:
        self.memory, self.hangs, self.rounded = memory, hangs, rounded

    def begin(self, run: LaunchRun) -> None:
        scalars = {
            place: real_constants.argument(value, run.translation.arguments[place].format, rounded=self.rounded)
            for place, value in run.floats.items()
        }
        self.reals = run.context.reals = RealLaunch(scalars)
        run.context.real_access = RealAccess(self.reals.hang)
        self.memory.begin(run.regions)

    def begin_batches(self) -> None:
        self._before = dict(self.reals.hangs), self.reals.is_lost

    def end_batches(self, *, kept: bool) -> None:
        if not kept:
            hangs, self.reals.is_lost = self._before
            self.reals.hangs.clear()
            self.reals.hangs.update(hangs)

    def end(self, run: LaunchRun) -> None:
        self.hangs.update(self.reals.hangs)
        self.memory.end(run.regions, lost=self.reals.is_lost)


def argument(m: Cta, number: int) -> Real | Taint:
    """The Real of the argument `number` of the program; None for one that is no float."""
    return m.launch.reals.scalars.get(number)


def spread(m: Batch, real: Real | Taint, shape: tuple[int, ...]) -> Real | Taint:
    """`real` (*shape), the same for all programs, once for each: (count, *shape)."""
    if real is None:
        return None
    whole = (m.count, *shape)
    if isinstance(real, Real):
        return Real(*(None if part is None else np.broadcast_to(part, whole) for part in real))
    return np.broadcast_to(real, whole)


def lose_result(
    m: Cta, op: Operation, reason: str, word: Any, shape: tuple[int, ...], fmt: str | None, is_float: bool
) -> Real | Taint:
    """What `op` gives that has no rule for `reason`: nothing is known of the result `word`, which may not have come (`shape`)."""
    m.launch.reals.hang(op, reason)
    if not isinstance(word, np.ndarray | np.generic | int | float):
        return unknown(np.zeros(shape)) if is_float else np.ones(shape, np.bool_)
    if is_float:
        return unknown(np.asarray(widen(np.asarray(word), fmt)))
    return np.ones(np.shape(word), np.bool_)


def anywhere(*taints: Taint) -> bool | None:
    """Whether any of `taints` is True somewhere; None for no."""
    return True if any(each is not None and np.any(each) for each in taints) else None


def note_branch(m: Cta, op: Operation, taint: Taint) -> None:
    """A branch was taken by a condition. Where that hangs on a rounding, so does all that the launch may write."""
    if taint is not None and np.any(taint):
        m.launch.reals.hang(op, "branch")
        m.launch.reals.is_lost = True


__all__ = ["RealLaunch", "RealProbe", "anywhere", "argument", "lose_result", "note_branch", "spread", "union_of_taints"]
