"""Words that a case expects by the order of sums that was recovered for it, where its contract has but a bound.

They are expected of exactly the launch whose order was recovered: these sizes, this configuration, this target. Where the order is
not known, or hangs on timing, the bound stays, and the verdict says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bitverdict.harness.checks.sums.proof import expected_words
from bitverdict.harness.checks.sums.recovered import Recovered, recovered
from bitverdict.harness.judge.remote_launcher import RemoteLauncher
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.reference.formats import FORMATS, decode

TOLD = "order of sums"  # in details of a verdict
CALLED_TWICE = "not recovered: the case calls the launcher twice"
_kept: dict[tuple[Any, ...], Recovered] = {}
MOST_KEPT = 64


def same_launch(case: Case) -> str:
    """A key that cases share whose launches differ in their data alone."""
    record = case.to_json()
    for name in ("regime", "data_seed", "real_values", "recover_order", "calls"):
        record.pop(name, None)
    _, on, count = record.pop("schedule").partition(" on ")
    return json.dumps(record | {"on": on + count}, sort_keys=True)


def recovered_once(case: Case, target: Target, contract: Contract, launcher: Callable | RemoteLauncher | None) -> Recovered:
    """The order of the sums of `case`: of launches that differ in their data alone it is recovered once in this process."""
    key = (same_launch(case), target.name, target.arch, id(getattr(launcher, "__wrapped__", launcher)))
    if key not in _kept:
        while len(_kept) >= MOST_KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = recovered(case, target, contract, launcher)
    return _kept[key]


def with_recovered_words(
    expected: Sequence[ExpectedOutput],
    case: Case,
    target: Target,
    contract: Contract,
    launcher: Callable | RemoteLauncher | None,
    operands: Mapping[str, Operand],
) -> tuple[list[ExpectedOutput], dict[str, str]]:
    """(`expected` with words in the place of bounds, what a verdict's details say of it)."""
    if not any(each.words is None for each in expected):
        return list(expected), {}
    found = recovered_once(case, target, contract, launcher) if case.calls == 1 else None
    if found is None or not found.outputs:
        why = (
            CALLED_TWICE
            if found is None
            else f"depends on timing: {found.timing}"
            if found.timing
            else f"not recovered: {found.why}"
        )
        kept = [each if each.words is not None else replace(each, basis=f"{each.basis}; order of sums {why}") for each in expected]
        return kept, {TOLD: f"{why}; the bound is kept"}
    due = {each.name: each for each in found.outputs}
    made = [_held(each, due, found, operands) if each.words is None and each.name in due else each for each in expected]
    return made, {TOLD: "; ".join(f"{each.name}: {each.told}" for each in found.outputs)}


def _held(expected: ExpectedOutput, due: Mapping[str, Any], found: Recovered, operands: Mapping[str, Operand]) -> ExpectedOutput:
    """`expected` with the words that the order gives, where all that enters a sum is finite, and so is the sum."""
    order = due[expected.name]
    if order.format != expected.format or order.members.shape != tuple(expected.shape):
        return expected
    summed = order.summed
    codes = {name: operands[name].codes for name in summed.formats}
    words, _ = expected_words(summed, order.members, order.orders, codes)
    words = words.reshape(expected.shape)
    values = summed.values_of(codes)
    finite = {name: np.isfinite(each).astype(float) for name, each in values.items()}
    if all(each.all() for each in finite.values()):
        decided = np.ones(expected.shape, bool)
    else:
        terms = summed.terms.values(finite, np.arange(summed.terms.size)).prod(axis=0)  # (outputs, T)
        decided = ((terms > 0) | ~summed.terms.present(np.arange(summed.terms.size))).all(axis=-1).reshape(expected.shape)
    value = decode(FORMATS[expected.format], words)
    decided &= np.isfinite(value)
    zero = value == 0
    others = None
    if zero.any():  # a sum that begins with a zero has no -0
        sign = words.dtype.type(FORMATS[expected.format].sign_bit)
        others = np.where(zero, words ^ sign, words)[None]
    inconclusive = None if expected.inconclusive is None else expected.inconclusive & ~decided
    return replace(
        expected, words=words, others=others, bounded=~decided, inconclusive=inconclusive, basis=f"{found.basis}; {expected.basis}"
    )
