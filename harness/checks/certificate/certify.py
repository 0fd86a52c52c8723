"""The certificate of a case that passed, and whether a case tells nothing apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bitverdict.harness.checks.certificate.again import Known, NotCounted, Reevaluation, decided, noted
from bitverdict.harness.checks.certificate.constants import neighbours
from bitverdict.harness.checks.certificate.movement import moved, says_something, tiles_exchanged
from bitverdict.harness.checks.certificate.other_values import drawn_anew, without_specials
from bitverdict.harness.checks.certificate.precision import NARROWER, narrower, stored_else
from bitverdict.harness.judge.compare import held
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.certificate import TELLS_NOTHING, Certificate, Finding, Kind
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.reference.tensor_core.asked import ProductQuery, with_product_model


def certified(
    verdict: Verdict,
    contract: Contract,
    case: Case,
    target: Target,
    operands: Mapping[str, Operand],
    recorded: Mapping,
    expected: Sequence[ExpectedOutput],
    by_real: frozenset[str],
) -> Verdict:
    """`verdict` of a case that passed by its outputs, with its certificate where the case asks for one; inconclusive where the
    case tells nothing apart.

    A case with two expected words that differ tells their places apart. Where nobody asks for a certificate, that of the few
    others is computed up to the first fault that is told.
    """
    if not verdict.words or (not case.certificate and any(says_something(each) for each in expected)):
        return verdict
    made = certificate(contract, case, target, operands, recorded, expected, by_real, whole=case.certificate)
    if made.nothing:
        verdict = replace(
            verdict,
            decision=Decision.INCONCLUSIVE,
            outcome=Outcome.INCONCLUSIVE,
            message=made.nothing,
            details=verdict.details | {TELLS_NOTHING: True},
        )
    return replace(verdict, certificate=made.to_json()) if case.certificate else verdict


def tells_nothing(contract: Contract, case: Case, target: Target, operands: Mapping[str, Operand]) -> bool:
    """Whether a case of the kernel's own launcher, which was not launched, would be inconclusive for telling nothing apart."""
    try:
        with with_product_model(ProductQuery.words, alone=True):
            expected = contract.expected(case, target, operands, {})
    except Exception:  # what is wrong with it, its verdict says
        return False
    if any(says_something(each) for each in expected) or not any(decided(each, False).any() for each in expected):
        return False
    return bool(certificate(contract, case, target, operands, {}, expected, frozenset(), whole=False).nothing)


def certificate(
    contract: Contract,
    case: Case,
    target: Target,
    operands: Mapping[str, Operand],
    recorded: Mapping,
    expected: Sequence[ExpectedOutput],
    by_real: frozenset[str],
    *,
    whole: bool = True,
) -> Certificate:
    """All that the case could have told apart. It evaluates what is expected some thirty times, on a sample where it is large.

    Not `whole`: up to the first fault that is told, and is no mask's; of one word any."""
    formats = "/".join(dict.fromkeys(each.format for each in expected))
    words = sum(int(decided(each, each.name in by_real).sum()) for each in expected)
    products: list[Known] = []
    with noted(products, alone=True):
        contract.expected(case, target, operands, recorded)
    try:
        again = Reevaluation(contract, case, target, operands, recorded, expected, products, by_real)
    except NotCounted as why:
        return Certificate((), words, formats, (f"not counted: {why}",))
    found: list[Finding] = []
    left_out: dict[str, None] = {}
    for kind, subject, fault, count in _faults(again, expected):
        try:
            changed, of = count()
        except NotCounted as why:
            left_out[f"{subject} not counted: {why}"] = None
            continue
        if of:
            found.append(Finding(kind, subject, fault, changed, of))
            if not whole and changed and (kind is not Kind.MASK or words == 1):
                break
    made = Certificate(tuple(found), words, formats, tuple(left_out))
    return replace(made, constant=True) if made.nothing and _is_constant(again) else made


def _is_constant(again: Reevaluation) -> bool:
    """Whether operands of other values leave every word as it is; a case that cannot be asked so is taken for one."""
    try:
        return not any(again.changed(operands=drawn_anew(again.operands, seed))[0] for seed in range(2))
    except NotCounted:
        return True


def _faults(
    again: Reevaluation, expected: Sequence[ExpectedOutput]
) -> Iterator[tuple[Kind, str, str, Callable[[], tuple[int, int]]]]:
    """Every fault with what counts its words."""
    for fault in (*moved(again.operands), *without_specials(again.operands)):
        yield fault.kind, fault.subject, fault.fault, lambda fault=fault: again.changed(operands=fault.operands)  # type: ignore[misc]
    rules = list(dict.fromkeys(known.asked.rule for known in again.products))
    if rules:
        for one in neighbours(rules):
            yield Kind.CONSTANT, one.subject, one.fault, lambda one=one: again.changed(one.answer)  # type: ignore[misc]
    for each in expected:
        for subject, order in tiles_exchanged(each):
            yield Kind.MOVEMENT, subject, "exchanged", lambda each=each, s=subject, o=order: _exchanged(each, s, o)  # type: ignore[misc]
    if rules:
        for one in narrower(rules, {each.format for each in expected}):
            yield Kind.PRECISION, one.subject, one.fault, lambda one=one: again.changed(one.answer)  # type: ignore[misc]
    else:
        for name in NARROWER:
            yield Kind.PRECISION, f"sums in {name}", "at their end", lambda name=name: again.with_sums_in(name)  # type: ignore[misc]
        for each in expected:
            for subject, words in stored_else(each):
                yield Kind.PRECISION, subject, "once", lambda each=each, w=words: _words_else(each, w)  # type: ignore[misc]


def _exchanged(expected: ExpectedOutput, subject: str, order: np.ndarray) -> tuple[int, int]:
    axis = int(subject.rpartition(" ")[2])
    ends = [expected.words] if expected.words is not None else [expected.low, expected.high]
    if ends[0] is None or ends[-1] is None:
        raise NotCounted("no words are expected")
    there = held(expected, _unsigned(ends[0]))[1] & np.expand_dims(order != np.arange(len(order)), 1 - axis)  # (*shape,)
    differ = np.ones(expected.shape, bool)
    for end in ends:
        differ &= held(expected, _unsigned(np.take(end, order, axis)))[0]  # type: ignore[arg-type]
    return int((differ & there).sum()), int(there.sum())


def _words_else(expected: ExpectedOutput, words: np.ndarray) -> tuple[int, int]:
    differ, there, _, _ = held(expected, _unsigned(words))
    return int(differ.sum()), int(there.sum())


def _unsigned(words: np.ndarray) -> np.ndarray:
    words = np.ascontiguousarray(words)
    return words.view(f"u{words.dtype.itemsize}")
