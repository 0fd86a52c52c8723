"""The orders of a kernel's sums, case by case: ``bitverdict order`` prints them, records them, and holds a kernel to a record.

A record names a case by what its launch depends on, without its data. An order that differs from a recorded one is a change of the
kernel, of its compiler or of its configuration; whether that is a fault is the caller's to say, by recording a promise.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bitverdict.harness.checks.sums.order_recovery import RecoveredOrders, recover_orders
from bitverdict.harness.checks.sums.words import same_launch
from bitverdict.harness.judge.remote_launcher import launcher_of_case
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.log_lines import count_text
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.case_line import describe
from bitverdict.reference.sums.arithmetic import operators_named
from bitverdict.reference.sums.description import brackets, describe_tree

VERSION = 1
MOST_TRIED = 12  # cases, until one has an order


@dataclass(frozen=True)
class Row:
    """One case on one target."""

    case: Case
    target: Target
    recovery: RecoveredOrders
    passed_over: str = ""
    """Of larger cases, how many have no order that can be found, and why."""

    @property
    def key(self) -> str:
        """What a record finds it by, on any machine: files by names, a GPU by its architecture. A real GPU and the emulated one
        promise the same order."""
        launch = json.loads(same_launch(self.case))
        launch.pop("search_path", None)
        named = {name: launch[name].rpartition("/")[2] for name in ("contract", "launcher")}
        return json.dumps([self.target.arch, launch | named], sort_keys=True)

    @property
    def record(self) -> dict[str, Any]:
        """JSON values: what was recovered, or why nothing was."""
        if not self.recovery.outputs:
            return {"case": describe(self.case), "timing": self.recovery.timing, "why": self.recovery.why}
        return {
            "case": describe(self.case),
            "outputs": {
                each.name: {
                    "orders": [
                        {
                            "tree": order.tree.to_lists(),
                            "operators": [operator.name for operator in order.operators],
                            "fused": sorted(order.fused_leaves),
                        }
                        for order in each.orders
                    ],
                    "members": each.members.reshape(-1).tolist(),
                }
                for each in self.recovery.outputs
            },
        }

    def lines(self, *, tree: bool = True) -> Iterator[str]:
        """What a person reads."""
        yield f"{self.target.name}  {describe(self.case)}"
        if self.recovery.timing:
            yield f"  order: depends on timing, so a bound is all that can be expected: {self.recovery.timing}"
            yield from [f"  {self.passed_over}"] if self.passed_over else []
            return
        if self.recovery.why:
            yield f"  order: not recovered, so the bound is kept: {self.recovery.why}"
            return
        for output in self.recovery.outputs:
            counts = [int((output.members == place).sum()) for place in range(len(output.orders))]
            several = f"{len(output.orders)} orders in " if len(output.orders) > 1 else ""
            yield f"  {output.name}: {several}{output.members.size:,} sums ({output.format})"
            for place, order in enumerate(output.orders[:6]):
                of = f"{counts[place]:,} of them, first at {_first_place(output.members, place)}: " if several else ""
                yield f"    {of}{describe_tree(order.tree)}"
                for name in operators_named(order):
                    yield f"      a node: {name}"
                if order.fused_leaves:
                    few = f"{len(order.fused_leaves)} of {len(order.tree.terms)}"
                    yield f"      products of {few} terms are not rounded (fused multiply-adds)"
                if tree:
                    yield f"      tree: {brackets(order.tree)}"
            if len(output.orders) > 6:
                yield f"    and {len(output.orders) - 6} more orders"
            yield (
                f"    recovered by {output.probes:,} probes; {output.words:,} words agree, of which "
                f"{output.telling_words:,} are not the word "
                "nearest to the exact sum"
            )
        yield f"    the same under every schedule and launch that was tried ({self.recovery.launches} launches in all)"
        yield from [f"  {self.passed_over}"] if self.passed_over else []


def _first_place(members: Any, place: int) -> tuple[int, ...]:
    import numpy as np

    return tuple(int(each) for each in np.unravel_index(int(np.argmax(members.reshape(-1) == place)), members.shape))


def cases_of(contract: Contract, target: Target, launcher: str, count: int, search_path: tuple[str, ...] = ()) -> list[Case]:
    """The `count` required cases of most work that expect a result, of different launches."""
    cases_by_launch: dict[str, Case] = {}
    for case in contract.required(target):
        request_case: Case | None = replace(case, schedule="eager", calls=1)
        if launcher and request_case is not None:
            adapt = getattr(contract, "for_launcher", None)
            request_case = adapt(request_case, launcher) if adapt else replace(request_case, launcher=launcher, config=None)
            request_case = replace(request_case, search_path=search_path) if request_case is not None else None
        if request_case is not None and contract.expected_outcome(request_case, target).result:
            cases_by_launch.setdefault(same_launch(request_case), request_case)
    work = {key: sum(each.codes.size for each in contract.operands(case)) for key, case in cases_by_launch.items()}
    return [cases_by_launch[key] for key in sorted(cases_by_launch, key=lambda key: -work[key])[:count]]


def survey(contract: Contract, cases: Iterable[tuple[Case, Target]]) -> Iterator[Row]:
    """The order of each case, one after another in this process."""
    for case, target in cases:
        yield Row(case, target, recover_orders(case, target, contract, launcher_of_case(case, target)))


def survey_largest(contract: Contract, target: Target, launcher: str, count: int, recorded: Container[str] = ()) -> Iterator[Row]:
    """The `count` required cases of most work whose order is found, or depends on timing, or is `recorded`: others have no sum, or
    too few bits in their results. Where none is found the largest case, which says why."""
    without_order: list[Row] = []
    row_count = 0
    for case in cases_of(contract, target, launcher, MOST_TRIED + count):
        (row,) = survey(contract, [(case, target)])
        if row.recovery.why and row.key not in recorded:
            without_order.append(row)
            continue
        said = ""
        if without_order and not row_count:
            larger = count_text(len(without_order), "larger case")
            said = f"passed over: {larger}, the first because {without_order[0].recovery.why}; --case FIELDS asks for one"
        row_count += 1
        yield replace(row, passed_over=said)
        if row_count == count:
            return
    yield from without_order[: not row_count]


def read_orders(path: Path) -> dict[str, Any]:
    """What `write` wrote. UsageError for anything else."""
    try:
        record = json.loads(path.read_text())
        if record["version"] != VERSION:
            raise UsageError(
                f"{path}: orders of version {record['version']}: this installation reads version {VERSION}; record again"
            )
        return dict(record["orders"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: holds no recorded orders ({error}); write them with bitverdict order --record {path}") from None


def write(path: Path, rows: Iterable[Row]) -> None:
    """The orders of `rows`, those that were recovered."""
    orders = {row.key: row.record for row in rows if row.recovery.outputs}
    path.write_text(json.dumps({"version": VERSION, "orders": orders}, indent=1) + "\n")


def departures(rows: Iterable[Row], recorded_orders: Mapping[str, Any]) -> Iterator[str]:
    """How the order of a row differs from the one that was recorded for its launch, a sentence each."""
    for row in rows:
        if row.key not in recorded_orders:
            yield f"{describe(row.case)}: no order is recorded for this launch on {row.target.arch}"
            continue
        due = recorded_orders[row.key]
        if not row.recovery.outputs:
            yield f"{describe(row.case)}: {row.recovery.timing or row.recovery.why}; an order is recorded"
            continue
        got = row.record
        for name, each in due["outputs"].items():
            now = got["outputs"].get(name)
            if now is None or (now["orders"], now["members"]) != (each["orders"], each["members"]):
                yield f"{describe(row.case)}: {name} is added in another order of sums than recorded"
