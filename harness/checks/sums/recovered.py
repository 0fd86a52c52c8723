"""The order of a case's sums on a target: outputs put into classes, a tree for each, the operators, and what proves it.

The proof is by words: on drawn operands every output must have the word that its tree gives. An order that is not the launcher's
fails there, whatever suggested it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bitverdict.harness.checks.sums.classes import MOST_CLASSES, classes_of
from bitverdict.harness.checks.sums.masks import Scale, asker, scales
from bitverdict.harness.checks.sums.operators import candidates
from bitverdict.harness.checks.sums.probing import Launches, NotRecovered, Summed, sums_of
from bitverdict.harness.checks.sums.proof import proved
from bitverdict.harness.judge.devices import emulated_like, multiprocessors_of
from bitverdict.harness.judge.launchers import launcher_of_case
from bitverdict.harness.judge.remote_launcher import RemoteLauncher
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.reference.sums.arithmetic import Order
from bitverdict.reference.sums.description import told
from bitverdict.reference.sums.recovery import NoTree, recover
from bitverdict.reference.sums.tree import Tree

SCHEDULES = ("latest", "drawn:1", "drawn:2", "drawn:3")
MOST_DIVISIONS = 3  # rounds in which the proof may divide classes
REPEATS = 4  # launches of the same operands on a real GPU


@dataclass(frozen=True)
class OrderOfOutput:
    """How the sums of one output are computed. `members` (*shape): which of `orders` is each element's."""

    summed: Summed
    orders: tuple[Order, ...]
    members: np.ndarray
    probes: int
    words: int
    telling: int
    """Of `words`, those that are not the word nearest to the exact sum: a wrong order would have changed such words."""

    @property
    def name(self) -> str:
        return self.summed.name

    @property
    def format(self) -> str:
        return self.summed.format

    @property
    def told(self) -> str:
        """The shapes of the trees, in one line."""
        return "; ".join(told(order.tree) for order in self.orders[:4]) + (" ..." if len(self.orders) > 4 else "")


@dataclass(frozen=True)
class Recovered:
    """What became of the recovery of one case on one target: orders of its outputs, or `why` there are none.

    `timing`: what makes the order another one from launch to launch; there is then no order to expect."""

    target: str
    case: Case
    outputs: tuple[OrderOfOutput, ...] = ()
    why: str = ""
    timing: str = ""
    launches: int = 0

    @property
    def basis(self) -> str:
        """As a verdict says it."""
        probes = sum(each.probes for each in self.outputs)
        words = sum(each.words for each in self.outputs)
        return f"words by recovered order: order of sums recovered on {self.target} by {probes:,} probes, {words:,} words agree"


def recovered(
    case: Case, target: Target, contract: Contract, launcher: Callable | RemoteLauncher | None, *, seed: int = 0
) -> Recovered:
    """Recover the order of the sums of `case`, for its own sizes, configuration and target."""
    launches = Launches(case, target, contract, launcher)
    try:
        summed = sums_of(launches)
        if timing := timed(summed, launches, seed):
            return Recovered(target.name, case, timing=timing, launches=launches.count)
        outputs = tuple(_of_output(each, seed) for each in summed)
    except (NotRecovered, NoTree) as why:
        return Recovered(target.name, case, why=str(why), launches=launches.count)
    return Recovered(target.name, case, outputs, launches=launches.count)


def timed(summed: list[Summed], launches: Launches, seed: int) -> str:
    """What tells that the order hangs on timing; empty where nothing does.

    The same operands are launched under other schedules of an emulated GPU, all of them where the program has atomics or the like.
    On a real GPU they are launched again; and where the program has atomics, under the schedules of the emulated one, since a few
    launches in a row may meet one order by chance."""
    if launches.target.emulated:
        return _under_schedules(summed, launches, seed)
    if differ := _differ(summed, launches, [launches.case.schedule] * REPEATS, seed):
        return differ
    twin = emulated_like(launches.target)
    if twin is None:
        return ""
    count = multiprocessors_of(launches.target)
    alike = replace(launches.case, schedule=f"eager on {count}" if count else "eager")
    beside = Launches(alike, twin, launches.contract, launcher_of_case(alike, twin, afresh=True))
    try:
        beside.of({})
        return _under_schedules(summed, beside, seed) if beside.unordered else ""
    except NotRecovered:
        return ""  # the emulated GPU does not execute it: repeated launches are all there is


def _under_schedules(summed: list[Summed], launches: Launches, seed: int) -> str:
    own, _, count = launches.case.schedule.partition(" on ")
    asked = SCHEDULES if launches.unordered else SCHEDULES[:1]
    return _differ(summed, launches, [each + (f" on {count}" if count else "") for each in asked if each != own], seed)


def _differ(summed: list[Summed], launches: Launches, schedules: Sequence[str], seed: int) -> str:
    """How words differ between launches of the same operands, one under each of `schedules`; empty where they do not."""
    rng = np.random.default_rng([seed, 1])
    for _ in range(2 if launches.unordered else 1):
        codes = {name: each for one in summed for name, each in one.drawn(rng, 6).items()}
        first = launches.of(codes)
        for schedule in schedules:
            other = launches.of(codes, schedule)
            for each in summed:
                differ = int((first.outputs[each.name] != other.outputs[each.name]).sum())
                if differ:
                    how = (
                        f"under schedule {schedule!r} of {launches.target.name}"
                        if launches.target.emulated
                        else "in another launch"
                    )
                    cause = f" ({launches.unordered})" if launches.unordered else ""
                    size = first.outputs[each.name].size
                    return f"{differ} of {size} words of {each.name} differ {how} on the same operands{cause}"
    return ""


def _of_output(summed: Summed, seed: int) -> OrderOfOutput:
    """Recover, prove, and where the words of a class are proved in part, divide the class and begin again."""
    rng = np.random.default_rng([seed, 2])
    members = classes_of(summed, rng)
    for _ in range(MOST_DIVISIONS):
        scale, trees = _trees(summed, members, rng, seed)
        wrong = np.ones(members.shape, bool)
        for orders in candidates(summed, members, trees, scale):
            proof = proved(summed, members, orders, scale, seed)
            if not proof.wrong.any():
                shaped = members.reshape(summed.shape)
                return OrderOfOutput(summed, tuple(orders), shaped, summed.probes, proof.words, proof.telling)
            wrong = proof.wrong
        divided = np.unique(np.stack([members, wrong]), axis=1, return_inverse=True)[1].reshape(-1)  # (outputs,)
        if divided.max() == members.max() or divided.max() >= MOST_CLASSES:
            break
        members = divided
    raise NotRecovered(
        f"{summed.name}: {int(wrong.sum())} of {wrong.size} outputs have words on drawn operands that are not those of the tree "
        "that the probes gave: a term is added in another way than one rounding at a node"
    )


def _trees(summed: Summed, members: np.ndarray, rng: np.random.Generator, seed: int) -> tuple[Scale, list[Tree]]:
    """Masks and units that work, and the tree of each class."""
    refused: NoTree | None = None
    for scale in scales(summed, members, rng):
        try:
            return scale, [_tree(summed, np.flatnonzero(members == at), scale, seed) for at in range(int(members.max()) + 1)]
        except NoTree as why:
            refused = refused or why
    assert refused is not None
    raise refused


def _tree(summed: Summed, outputs: np.ndarray, scale: Scale, seed: int) -> Tree:
    terms = np.flatnonzero(summed.terms.present(outputs[:1])[0])
    ask = asker(summed, summed.carriers(outputs), scale.high, scale.low)
    return recover(terms.tolist(), summed.terms.count, ask, most=scale.most, seed=seed)
