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
from bitverdict.harness.checks.invariance.finding import End, Finding
from bitverdict.harness.checks.invariance.relation import Relation, held, same, word_told
from bitverdict.harness.checks.invariance.sizes import drawn, resized
from bitverdict.harness.judge.diagnose import values
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.contract import ExpectedOutput, Undecided
from bitverdict.reference.formats import FORMATS, Overflow, decode, encode

FACTOR = 4  # of an operand: the result of a square root is scaled by a power of two as well
DEGREES = tuple(range(-6, 7))
"""Powers of two by which a result may be scaled."""
CONSTANT = "the kernel adds or compares with a number that the mathematics does not have, or leaves the range of a format between"
ZEROS = (16, 1)
"""How many follow: as many as keep what a size is a multiple of, or one."""
NUMBERS = ("int16", "int32", "int64", "bool")
"""Formats of operands that choose, and are no terms of a sum."""
SCALED = ("fp32", "fp16", "bf16", "e4m3", "e5m2")


def padded(caller: Caller, first: Call, batch: Batch) -> Finding:
    """What zeros behind the operands show, along a size that no output follows. Other words are information: a longer sum may be
    cut in other places."""
    sizes = ((more, resized(caller.contract, first.case, batch.name, batch.size + more)) for more in ZEROS)
    legal = ((m, case) for m, case in sizes if case is not None and caller.contract.expected_outcome(case, caller.target).result)
    more, case = next(legal, (ZEROS[0], None))
    relation = Relation(f"zeros {batch.name}", f"{more} zeros behind {batch.name}", dict.fromkeys(first.outputs(), same))
    if case is None:
        return relation.not_asked(f"the contract has no case with a longer {batch.name}")
    counted = [name for name in batch.operands if first.operands[name].format in NUMBERS]
    if counted:
        return relation.not_asked(f"zeros in {counted[0]} are numbers of rows, or truths")
    operands = {}
    for name, like in drawn(caller.contract, case).items():
        codes = np.zeros_like(like.codes)
        if any(small > large for small, large in zip(first.operands[name].codes.shape, codes.shape, strict=True)):
            return relation.not_asked(f"{name} of the longer case is smaller")
        longer = [small < large for small, large in zip(first.operands[name].codes.shape, codes.shape, strict=True)]
        if like.strides is not None and any(grown and stride == 0 for grown, stride in zip(longer, like.strides, strict=True)):
            return relation.not_asked(f"{name} has stride 0 along {batch.name}: zeros behind it would be all of it")
        codes[tuple(slice(size) for size in first.operands[name].codes.shape)] = first.operands[name].codes
        operands[name] = replace(like, codes=codes)
    found = held(relation, caller, first, caller.call(case, operands))
    if found.end is not End.DIFFERS:
        return found
    return replace(found, cause=f"the sums are made in another order: {found.cause}")


def scaled(caller: Caller, first: Call) -> Iterator[Finding]:
    """A finding for each operand that is a float: what `FACTOR` times it shows. Other words are a failure: no rounding depends on a
    power of two, as long as nothing leaves the normal numbers of its format."""
    known = _expected(caller, first)
    for name, operand in first.operands.items():
        if operand.format not in SCALED:
            continue
        changed = f"{name} times {FACTOR}"
        relation = Relation("scale", changed, {}, promised=True)
        if isinstance(known, str):
            yield relation.not_asked(known)
            continue
        larger = _times(operand)
        if larger is None:
            yield relation.not_asked(f"{name} has numbers that {operand.format} does not hold {FACTOR} times")
            continue
        call = caller.call(first.case, first.operands | {name: larger})
        if call.launch_result.outcome is not None:
            yield held(relation, caller, first, call)
            continue
        then = _expected(caller, call)
        yield _scaled(relation, first, call, known, then) if not isinstance(then, str) else relation.not_asked(then)


def _expected(caller: Caller, call: Call) -> dict[str, ExpectedOutput] | str:
    """What is expected, with its mathematics; a sentence where that is not known."""
    try:
        found = caller.contract.expected(call.case, caller.target, call.operands, call.launch_result.recorded)
    except Undecided as why:
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


def _scaled(
    relation: Relation, first: Call, call: Call, known: dict[str, ExpectedOutput], then: dict[str, ExpectedOutput]
) -> Finding:
    compared = differing = 0
    broken: Finding | None = None
    told = []
    for name in first.outputs():
        degree = _degree(known[name], then[name])
        if degree is None:
            return relation.not_asked(f"{name} is not homogeneous: it is no power of two times what it was")
        told.append(f"{name} times 2^{degree}")
        fmt = FORMATS.get(first.format(name))
        if fmt is None:
            continue
        one, two = (values(fmt.name, each.outputs()[name]) for each in (first, call))
        due = np.ldexp(one, degree)
        least = 2.0 ** (2 - fmt.bias)
        normal = (np.minimum(np.abs(one), np.abs(due)) >= least) & (np.maximum(np.abs(one), np.abs(due)) <= fmt.largest / 2)
        differs = normal & (two != due)
        compared, differing = compared + int(normal.sum()), differing + int(differs.sum())
        if differs.any() and broken is None:
            at = tuple(int(each) for each in np.argwhere(differs)[0])
            got, other = (word_told(each, name, each.outputs()[name][at]) for each in (call, first))
            said = cause(first.launch_result, call.launch_result)
            why = f"2^{degree} times as much is due; {CONSTANT if said == NO_DIFFERENCE else said}"
            broken = Finding(check="scale", end=End.DIFFERS, cause=why, output=name, at=at, got=got, other=other, promised=True)
    changed = f"{relation.changed}: {', '.join(told)}"
    if broken is not None:
        return replace(broken, changed=changed, compared=compared, differing=differing)
    if not compared:
        return relation.not_asked("no result is a normal number before and after")
    return Finding(check="scale", end=End.SAME, changed=changed, compared=compared, promised=True)


def _degree(one: ExpectedOutput, two: ExpectedOutput) -> int | None:
    """The power of two by which `two` is `one` everywhere, as far as both are known; None where there is none."""
    assert one.exact is not None and two.exact is not None and one.exact_error is not None and two.exact_error is not None
    for degree in sorted(DEGREES, key=abs):
        factor = 2.0**degree
        with np.errstate(invalid="ignore"):
            near = np.abs(two.exact - factor * one.exact) <= two.exact_error + factor * one.exact_error
        if (near & np.isfinite(one.exact)).all() and np.any(one.exact):
            return degree
    return None
