"""The order of a case's sums on a target: outputs put into classes, a tree for each, the operators, and what proves it.

The proof is by words: on drawn operands every output must have the word that its tree gives. An order that is not the launcher's
fails there, whatever suggested it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bitverdict.harness.checks.sums.masks import Scale, asker, in_pairs, rungs_of, scales
from bitverdict.harness.checks.sums.operators import candidates
from bitverdict.harness.checks.sums.probes import Launches, NotRecovered, SummedOutput, sums_of
from bitverdict.harness.checks.sums.proof import prove_orders
from bitverdict.harness.judge.devices import emulated_like, multiprocessors_of
from bitverdict.harness.judge.remote_launcher import RemoteLauncher, launcher_of_case
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.reference.sums.arithmetic import Order
from bitverdict.reference.sums.description import describe_tree
from bitverdict.reference.sums.recovery import NoTree, recover
from bitverdict.reference.sums.tree import Tree

FINGERPRINTS = 12
MOST_CLASSES = 128


def classes_of(summed_output: SummedOutput, rng: np.random.Generator) -> np.ndarray:
    """(outputs,) numbers of classes: outputs of one class have the same terms and gave the same results to all fingerprints."""
    size, count = summed_output.terms.size, summed_output.terms.count
    if not size or not count:
        raise NotRecovered(f"{summed_output.name} has no term to add")
    keys, rungs = [summed_output.terms.present(np.arange(size))], rungs_of(summed_output)  # (outputs, T)
    for number in range(FINGERPRINTS):
        high, low = rungs[number // 2 % len(rungs)]
        if number % 2:
            values = in_pairs(summed_output, np.arange(count), high, rng)
        else:
            values = np.zeros(count)
            values[rng.permutation(count)[:200]] = 2.0**low
            at = rng.permutation(count)[:2]
            values[at] = (2.0**high, -(2.0**high))[: len(at)]
        found = summed_output.everywhere(summed_output.factors_for(values[None])[:, 0])
        if found is None:
            if size > MOST_CLASSES:
                raise NotRecovered(f"the {size} outputs of {summed_output.name} share elements as different terms")
            return np.arange(size)
        keys.append(np.nan_to_num(found, nan=-1.0, posinf=-2.0, neginf=-3.0)[:, None])
    _, members = np.unique(np.concatenate(keys, axis=1, dtype=np.float64), axis=0, return_inverse=True)
    members = members.reshape(-1)
    if members.max() >= MOST_CLASSES:
        raise NotRecovered(f"{summed_output.name} has outputs of more than {MOST_CLASSES} different orders")
    return members


SCHEDULES = ("latest", "drawn:1", "drawn:2", "drawn:3")
MOST_DIVISIONS = 3  # rounds in which the proof may divide classes
REPEATS = 4  # launches of the same operands on a real GPU


@dataclass(frozen=True)
class OrderOfOutput:
    """How the sums of one output are computed. `members` (*shape): which of `orders` is each element's."""

    summed_output: SummedOutput
    orders: tuple[Order, ...]
    members: np.ndarray
    probes: int
    words: int
    telling_words: int
    """Of `words`, those that are not the word nearest to the exact sum: a wrong order would have changed such words."""

    @property
    def name(self) -> str:
        return self.summed_output.name

    @property
    def format(self) -> str:
        return self.summed_output.format

    @property
    def tree_shapes(self) -> str:
        """The shapes of the trees, in one line."""
        return "; ".join(describe_tree(order.tree) for order in self.orders[:4]) + (" ..." if len(self.orders) > 4 else "")


@dataclass(frozen=True)
class RecoveredOrders:
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


def recover_orders(
    case: Case, target: Target, contract: Contract, launcher: Callable | RemoteLauncher | None, *, seed: int = 0
) -> RecoveredOrders:
    """Recover the order of the sums of `case`, for its own sizes, configuration and target."""
    launches = Launches(case, target, contract, launcher)
    try:
        summed = sums_of(launches)
        if timing := timing_evidence(summed, launches, seed):
            return RecoveredOrders(target.name, case, timing=timing, launches=launches.count)
        outputs = tuple(_of_output(each, seed) for each in summed)
    except (NotRecovered, NoTree) as why:
        return RecoveredOrders(target.name, case, why=str(why), launches=launches.count)
    return RecoveredOrders(target.name, case, outputs, launches=launches.count)


def timing_evidence(summed_outputs: list[SummedOutput], launches: Launches, seed: int) -> str:
    """What tells that the order hangs on timing; empty where nothing does.

    The same operands are launched under other schedules of an emulated GPU, all of them where the program has atomics or the like.
    On a real GPU they are launched again; and where the program has atomics, under the schedules of the emulated one, since a few
    launches in a row may meet one order by chance."""
    if launches.target.emulated:
        return _under_schedules(summed_outputs, launches, seed)
    if differ := _differ(summed_outputs, launches, [launches.case.schedule] * REPEATS, seed):
        return differ
    twin = emulated_like(launches.target)
    if twin is None:
        return ""
    count = multiprocessors_of(launches.target)
    alike = replace(launches.case, schedule=f"eager on {count}" if count else "eager")
    beside = Launches(alike, twin, launches.contract, launcher_of_case(alike, twin, fresh_import=True))
    try:
        beside.launch_codes({})
        return _under_schedules(summed_outputs, beside, seed) if beside.order_hazard else ""
    except NotRecovered:
        return ""  # the emulated GPU does not execute it: repeated launches are all there is


def _under_schedules(summed: list[SummedOutput], launches: Launches, seed: int) -> str:
    own, _, count = launches.case.schedule.partition(" on ")
    asked = SCHEDULES if launches.order_hazard else SCHEDULES[:1]
    return _differ(summed, launches, [each + (f" on {count}" if count else "") for each in asked if each != own], seed)


def _differ(summed_outputs: list[SummedOutput], launches: Launches, schedules: Sequence[str], seed: int) -> str:
    """How words differ between launches of the same operands, one under each of `schedules`; empty where they do not."""
    rng = np.random.default_rng([seed, 1])
    for _ in range(2 if launches.order_hazard else 1):
        codes = {name: entry for one in summed_outputs for name, entry in one.drawn(rng, 6).items()}
        first_result = launches.launch_codes(codes)
        for schedule in schedules:
            other = launches.launch_codes(codes, schedule)
            for entry in summed_outputs:
                differ = int((first_result.outputs[entry.name] != other.outputs[entry.name]).sum())
                if differ:
                    how = (
                        f"under schedule {schedule!r} of {launches.target.name}"
                        if launches.target.emulated
                        else "in another launch"
                    )
                    cause = f" ({launches.order_hazard})" if launches.order_hazard else ""
                    size = first_result.outputs[entry.name].size
                    return f"{differ} of {size} words of {entry.name} differ {how} on the same operands{cause}"
    return ""


def _of_output(summed_output: SummedOutput, seed: int) -> OrderOfOutput:
    """Recover, prove, and where the words of a class are proved in part, divide the class and begin again."""
    rng = np.random.default_rng([seed, 2])
    members = classes_of(summed_output, rng)
    for _ in range(MOST_DIVISIONS):
        scale, trees = _trees(summed_output, members, rng, seed)
        wrong_outputs = np.ones(members.shape, bool)
        for orders in candidates(summed_output, members, trees, scale):
            proof = prove_orders(summed_output, members, orders, scale, seed)
            if not proof.wrong_outputs.any():
                shaped = members.reshape(summed_output.shape)
                return OrderOfOutput(summed_output, tuple(orders), shaped, summed_output.probes, proof.words, proof.telling_words)
            wrong_outputs = proof.wrong_outputs
        divided = np.unique(np.stack([members, wrong_outputs]), axis=1, return_inverse=True)[1].reshape(-1)  # (outputs,)
        if divided.max() == members.max() or divided.max() >= MOST_CLASSES:
            break
        members = divided
    raise NotRecovered(
        f"{summed_output.name}: {int(wrong_outputs.sum())} of {wrong_outputs.size} outputs have words "
        f"on drawn operands that are not those of the tree "
        "that the probes gave: a term is added in another way than one rounding at a node"
    )


def _trees(summed: SummedOutput, members: np.ndarray, rng: np.random.Generator, seed: int) -> tuple[Scale, list[Tree]]:
    """Masks and units that work, and the tree of each class."""
    refusal: NoTree | None = None
    for scale in scales(summed, members, rng):
        try:
            return scale, [_tree(summed, np.flatnonzero(members == at), scale, seed) for at in range(int(members.max()) + 1)]
        except NoTree as why:
            refusal = refusal or why
    assert refusal is not None
    raise refusal


def _tree(summed: SummedOutput, outputs: np.ndarray, scale: Scale, seed: int) -> Tree:
    terms = np.flatnonzero(summed.terms.present(outputs[:1])[0])
    ask = asker(summed, summed.carriers(outputs), scale.high, scale.low)
    return recover(terms.tolist(), summed.terms.count, ask, most_units=scale.max_units, seed=seed)
