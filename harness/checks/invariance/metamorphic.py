"""Changes of the operands whose effect the mathematics says: a power of two, and zeros at the end of what is summed.

The mathematics is the contract's, evaluated on the operands of both calls. What it does not imply there is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bitverdict.harness.checks.invariance.batch import Batch
from bitverdict.harness.checks.invariance.calls import Call, Caller
from bitverdict.harness.checks.invariance.cause import NO_DIFFERENCE, cause
from bitverdict.harness.checks.invariance.invariance_finding import End, InvarianceFinding
from bitverdict.harness.checks.invariance.relation import Relation, compare_calls, identity_map, word_told
from bitverdict.harness.checks.invariance.sizes import drawn, resize_case
from bitverdict.harness.judge.diagnose import values
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.contract import ExpectedOutput, UndecidedCase
from bitverdict.reference.formats import FORMATS, Overflow, decode, encode

FACTOR = 4  # of an operand: the result of a square root is scaled by a power of two as well
DEGREES = tuple(range(-6, 7))
"""Powers of two by which a result may be scaled."""
CONSTANT = "the kernel adds or compares with a number that the mathematics does not have, or leaves the range of a format between"
ZEROS = (16, 1)
"""How many follow: as many as keep what a size is a multiple of, or one."""
NUMBERS = ("int16", "int32", "int64", "bool")
"""Formats of operands that choose, and are no terms of a sum."""
SCALABLE_FORMATS = ("fp32", "fp16", "bf16", "e4m3", "e5m2")


def padding_finding(caller: Caller, first_call: Call, batch: Batch) -> InvarianceFinding:
    """What zeros behind the operands show, along a size that no output follows. Other words are information: a longer sum may be
    cut in other places."""
    sizes = ((more, resize_case(caller.contract, first_call.case, batch.name, batch.size + more)) for more in ZEROS)
    legal = ((m, case) for m, case in sizes if case is not None and caller.contract.expected_outcome(case, caller.target).result)
    more, case = next(legal, (ZEROS[0], None))
    relation = Relation(
        f"zeros {batch.name}", f"{more} zeros behind {batch.name}", dict.fromkeys(first_call.outputs(), identity_map)
    )
    if case is None:
        return relation.not_applicable_finding(f"the contract has no case with a longer {batch.name}")
    counted = [name for name in batch.operands if first_call.operands[name].format in NUMBERS]
    if counted:
        return relation.not_applicable_finding(f"zeros in {counted[0]} are numbers of rows, or truths")
    operands = {}
    for name, like in drawn(caller.contract, case).items():
        codes = np.zeros_like(like.codes)
        if any(small > large for small, large in zip(first_call.operands[name].codes.shape, codes.shape, strict=True)):
            return relation.not_applicable_finding(f"{name} of the longer case is smaller")
        longer = [small < large for small, large in zip(first_call.operands[name].codes.shape, codes.shape, strict=True)]
        if like.strides is not None and any(grown and stride == 0 for grown, stride in zip(longer, like.strides, strict=True)):
            return relation.not_applicable_finding(f"{name} has stride 0 along {batch.name}: zeros behind it would be all of it")
        codes[tuple(slice(size) for size in first_call.operands[name].codes.shape)] = first_call.operands[name].codes
        operands[name] = replace(like, codes=codes)
    found = compare_calls(relation, caller, first_call, caller.call(case, operands))
    if found.end is not End.DIFFERS:
        return found
    return replace(found, cause=f"the sums are made in another order: {found.cause}")


def scale_findings(caller: Caller, first_call: Call) -> Iterator[InvarianceFinding]:
    """A finding for each operand that is a float: what `FACTOR` times it shows. Other words are a failure: no rounding depends on a
    power of two, as long as nothing leaves the normal numbers of its format."""
    expected_outputs = _expected_with_mathematics(caller, first_call)
    for name, operand in first_call.operands.items():
        if operand.format not in SCALABLE_FORMATS:
            continue
        changed = f"{name} times {FACTOR}"
        relation = Relation("scale", changed, {}, is_promised=True)
        if isinstance(expected_outputs, str):
            yield relation.not_applicable_finding(expected_outputs)
            continue
        larger = _times(operand)
        if larger is None:
            yield relation.not_applicable_finding(f"{name} has numbers that {operand.format} does not hold {FACTOR} times")
            continue
        call = caller.call(first_call.case, first_call.operands | {name: larger})
        if call.launch_result.outcome is not None:
            yield compare_calls(relation, caller, first_call, call)
            continue
        then = _expected_with_mathematics(caller, call)
        yield (
            _compare_scaled(relation, first_call, call, expected_outputs, then)
            if not isinstance(then, str)
            else relation.not_applicable_finding(then)
        )


def _expected_with_mathematics(caller: Caller, call: Call) -> dict[str, ExpectedOutput] | str:
    """What is expected, with its mathematics; a sentence where that is not known."""
    try:
        found = caller.contract.expected(call.case, caller.target, call.operands, call.launch_result.launch_record)
    except UndecidedCase as why:
        return f"the mathematics is not known: {why}"
    if not all(each.exact is not None and each.exact_error is not None for each in found):
        return "the contract gives words, and no value without rounding: its words are judged in any case"
    return {each.name: each for each in found}


def _times(operand: Operand) -> Operand | None:
    """`FACTOR` times the operand; None where its format does not hold all of it."""
    fmt = FORMATS[operand.format]
    codes = np.ascontiguousarray(operand.codes).view(fmt.storage)
    larger = encode(fmt, FACTOR * decode(fmt, codes), overflow=Overflow.SATURATE)
    if not np.array_equal(decode(fmt, larger), FACTOR * decode(fmt, codes), equal_nan=True):
        return None
    return replace(operand, codes=larger.view(operand.codes.dtype))


def _compare_scaled(
    relation: Relation,
    first_call: Call,
    call: Call,
    expected_outputs: dict[str, ExpectedOutput],
    scaled_outputs: dict[str, ExpectedOutput],
) -> InvarianceFinding:
    compared_count = differing_count = 0
    broken: InvarianceFinding | None = None
    degree_texts = []
    for name in first_call.outputs():
        degree = _degree(expected_outputs[name], scaled_outputs[name])
        if degree is None:
            return relation.not_applicable_finding(f"{name} is not homogeneous: it is no power of two times what it was")
        degree_texts.append(f"{name} times 2^{degree}")
        fmt = FORMATS.get(first_call.format(name))
        if fmt is None:
            continue
        one, two = (values(fmt.name, item.outputs()[name]) for item in (first_call, call))
        due = np.ldexp(one, degree)
        least = 2.0 ** (2 - fmt.bias)
        normal = (np.minimum(np.abs(one), np.abs(due)) >= least) & (np.maximum(np.abs(one), np.abs(due)) <= fmt.largest / 2)
        differs = normal & (two != due)
        compared_count, differing_count = compared_count + int(normal.sum()), differing_count + int(differs.sum())
        if differs.any() and broken is None:
            at = tuple(int(item) for item in np.argwhere(differs)[0])
            got, other = (word_told(item, name, item.outputs()[name][at]) for item in (call, first_call))
            said = cause(first_call.launch_result, call.launch_result)
            why = f"2^{degree} times as much is expected; {CONSTANT if said == NO_DIFFERENCE else said}"
            broken = InvarianceFinding(
                check="scale", end=End.DIFFERS, cause=why, output=name, at=at, got=got, other=other, promised=True
            )
    changed = f"{relation.difference}: {', '.join(degree_texts)}"
    if broken is not None:
        return replace(broken, changed=changed, compared=compared_count, differing=differing_count)
    if not compared_count:
        return relation.not_applicable_finding("no result is a normal number before and after")
    return InvarianceFinding(check="scale", end=End.SAME_WORDS, changed=changed, compared=compared_count, promised=True)


def _degree(reference: ExpectedOutput, two: ExpectedOutput) -> int | None:
    """The power of two by which `two` is `one` everywhere, as far as both are known; None where there is none."""
    assert (
        reference.exact is not None and two.exact is not None and reference.exact_error is not None and two.exact_error is not None
    )
    for degree in sorted(DEGREES, key=abs):
        factor = 2.0**degree
        with np.errstate(invalid="ignore"):
            near = np.abs(two.exact - factor * reference.exact) <= two.exact_error + factor * reference.exact_error
        if (near & np.isfinite(reference.exact)).all() and np.any(reference.exact):
            return degree
    return None
