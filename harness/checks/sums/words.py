"""Words that a case expects by the order of sums that was recovered for it, where its contract has but a bound.

They are expected of exactly the launch whose order was recovered: these sizes, this configuration, this target. Where the order is
not known, or depends on timing, the bound stays, and the verdict says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bitverdict.harness.checks.sums.order_recovery import RecoveredOrders, recover_orders
from bitverdict.harness.checks.sums.proof import expected_words
from bitverdict.harness.judge.remote_launcher import RemoteLauncher
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.reference.formats import FORMATS, decode

ORDER_KEY = "order of sums"  # in details of a verdict
TWO_CALLS_REASON = "not recovered: the case calls the launcher twice"
_recovery_cache: dict[tuple[Any, ...], RecoveredOrders] = {}
MAX_CACHE_ENTRIES = 64


def same_launch(case: Case) -> str:
    """A key that cases share whose launches differ in their data alone."""
    record = case.to_json()
    for name in ("regime", "data_seed", "real_values", "recover_order", "calls"):
        record.pop(name, None)
    _, on, count = record.pop("schedule").partition(" on ")
    return json.dumps(record | {"on": on + count}, sort_keys=True)


def recovered_once(case: Case, target: Target, contract: Contract, launcher: Callable | RemoteLauncher | None) -> RecoveredOrders:
    """The order of the sums of `case`: of launches that differ in their data alone it is recovered once in this process."""
    key = (same_launch(case), target.name, target.arch, id(getattr(launcher, "__wrapped__", launcher)))
    if key not in _recovery_cache:
        while len(_recovery_cache) >= MAX_CACHE_ENTRIES:
            del _recovery_cache[next(iter(_recovery_cache))]
        _recovery_cache[key] = recover_orders(case, target, contract, launcher)
    return _recovery_cache[key]


def with_recovered_words(
    expected: Sequence[ExpectedOutput],
    case: Case,
    target: Target,
    contract: Contract,
    launcher: Callable | RemoteLauncher | None,
    operands: Mapping[str, Operand],
) -> tuple[list[ExpectedOutput], dict[str, str]]:
    """(`expected` with words in the place of bounds, what a verdict's details say of it)."""
    if not any(output.words is None for output in expected):
        return list(expected), {}
    recovery = recovered_once(case, target, contract, launcher) if case.calls == 1 else None
    if recovery is None or not recovery.outputs:
        why = (
            TWO_CALLS_REASON
            if recovery is None
            else f"depends on timing: {recovery.timing}"
            if recovery.timing
            else f"not recovered: {recovery.why}"
        )
        kept = [
            output if output.words is not None else replace(output, basis=f"{output.basis}; order of sums {why}")
            for output in expected
        ]
        return kept, {ORDER_KEY: f"{why}; the bound is kept"}
    due = {output.name: output for output in recovery.outputs}
    made = [
        _with_order_words(output, due, recovery, operands) if output.words is None and output.name in due else output
        for output in expected
    ]
    return made, {ORDER_KEY: "; ".join(f"{output.name}: {output.tree_shapes}" for output in recovery.outputs)}


def _with_order_words(
    expected: ExpectedOutput, due: Mapping[str, Any], recovery: RecoveredOrders, operands: Mapping[str, Operand]
) -> ExpectedOutput:
    """`expected` with the words that the order gives, where all that enters a sum is finite, and so is the sum."""
    order = due[expected.name]
    if order.format != expected.format or order.members.shape != tuple(expected.shape):
        return expected
    summed_output = order.summed_output
    codes = {name: operands[name].codes for name in summed_output.formats}
    words, _ = expected_words(summed_output, order.members, order.orders, codes)
    words = words.reshape(expected.shape)
    values = summed_output.values_of(codes)
    finite = {name: np.isfinite(each).astype(float) for name, each in values.items()}
    if all(each.all() for each in finite.values()):
        decided_elements = np.ones(expected.shape, bool)
    else:
        terms = summed_output.terms.values(finite, np.arange(summed_output.terms.size)).prod(axis=0)  # (outputs, T)
        decided_elements = (
            ((terms > 0) | ~summed_output.terms.present(np.arange(summed_output.terms.size))).all(axis=-1).reshape(expected.shape)
        )
    value = decode(FORMATS[expected.format], words)
    decided_elements &= np.isfinite(value)
    zero = value == 0
    other_words = None
    if zero.any():  # a sum that begins with a zero has no -0
        sign = words.dtype.type(FORMATS[expected.format].sign_bit)
        other_words = np.where(zero, words ^ sign, words)[None]
    inconclusive = None if expected.inconclusive is None else expected.inconclusive & ~decided_elements
    return replace(
        expected,
        words=words,
        others=other_words,
        bounded=~decided_elements,
        inconclusive=inconclusive,
        basis=f"{recovery.basis}; {expected.basis}",
    )
