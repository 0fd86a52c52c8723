"""The certificate of a case that passed, and whether a case exposes no fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bitverdict.harness.checks.certificate.constants import neighbours
from bitverdict.harness.checks.certificate.movement import movement_faults, says_something, tiles_exchanged
from bitverdict.harness.checks.certificate.other_values import redraw_operands, without_specials
from bitverdict.harness.checks.certificate.precision import NARROWER, narrower, stored_else
from bitverdict.harness.checks.certificate.reevaluation import (
    KnownProduct,
    NotCounted,
    Reevaluation,
    decided_elements,
    record_products,
)
from bitverdict.harness.judge.compare import compare_words
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.certificate import TELLS_NOTHING, Certificate, CertificateFinding, Kind
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.reference.tensor_core.product_query import ProductQuery, with_product_model


def with_certificate(
    verdict: Verdict,
    contract: Contract,
    case: Case,
    target: Target,
    operands: Mapping[str, Operand],
    launch_record: Mapping,
    expected: Sequence[ExpectedOutput],
    by_real: frozenset[str],
) -> Verdict:
    """`verdict` of a case that passed by its outputs, with its certificate where the case asks for one; inconclusive where the
    case exposes no fault.

    A case with two expected words that differ tells their places apart. Where nobody asks for a certificate, that of the few
    others is computed up to the first fault that is told.
    """
    if not verdict.words or (not case.certificate and any(says_something(each) for each in expected)):
        return verdict
    case_certificate = certificate(contract, case, target, operands, launch_record, expected, by_real, exhaustive=case.certificate)
    if case_certificate.inconclusive_reason:
        verdict = replace(
            verdict,
            decision=Decision.INCONCLUSIVE,
            outcome=Outcome.INCONCLUSIVE,
            message=case_certificate.inconclusive_reason,
            details=verdict.details | {TELLS_NOTHING: True},
        )
    return replace(verdict, certificate=case_certificate.to_json()) if case.certificate else verdict


def tells_nothing(contract: Contract, case: Case, target: Target, operands: Mapping[str, Operand]) -> bool:
    """Whether a case of the kernel's own launcher, which was not launched, would be inconclusive because it exposes no fault."""
    try:
        with with_product_model(ProductQuery.words, alone=True):
            expected = contract.expected(case, target, operands, {})
    except Exception:  # what is wrong with it, its verdict says
        return False
    if any(says_something(each) for each in expected) or not any(decided_elements(each, False).any() for each in expected):
        return False
    return bool(certificate(contract, case, target, operands, {}, expected, frozenset(), exhaustive=False).inconclusive_reason)


def certificate(
    contract: Contract,
    case: Case,
    target: Target,
    operands: Mapping[str, Operand],
    launch_record: Mapping,
    expected: Sequence[ExpectedOutput],
    by_real: frozenset[str],
    *,
    exhaustive: bool = True,
) -> Certificate:
    """All that the case would have exposed. It evaluates what is expected some thirty times, on a sample where it is large.

    Not `exhaustive`: up to the first fault that is told, and is no mask's; of one word any."""
    formats = "/".join(dict.fromkeys(each.format for each in expected))
    words = sum(int(decided_elements(each, each.name in by_real).sum()) for each in expected)
    products: list[KnownProduct] = []
    with record_products(products, exclusive=True):
        contract.expected(case, target, operands, launch_record)
    try:
        reevaluation = Reevaluation(contract, case, target, operands, launch_record, expected, products, by_real)
    except NotCounted as why:
        return Certificate((), words, formats, (f"not counted: {why}",))
    findings: list[CertificateFinding] = []
    omissions: dict[str, None] = {}
    for kind, subject, fault, count in _faults(reevaluation, expected):
        try:
            changed_count, of = count()
        except NotCounted as why:
            omissions[f"{subject} not counted: {why}"] = None
            continue
        if of:
            findings.append(CertificateFinding(kind, subject, fault, changed_count, of))
            if not exhaustive and changed_count and (kind is not Kind.MASK or words == 1):
                break
    made = Certificate(tuple(findings), words, formats, tuple(omissions))
    return replace(made, constant=True) if made.inconclusive_reason and _is_constant(reevaluation) else made


def _is_constant(again: Reevaluation) -> bool:
    """Whether operands of other values leave every word as it is; a case that cannot be asked so is taken for one."""
    try:
        return not any(again.count_changed(operands=redraw_operands(again.operands, seed))[0] for seed in range(2))
    except NotCounted:
        return True


def _faults(
    reevaluation: Reevaluation, expected: Sequence[ExpectedOutput]
) -> Iterator[tuple[Kind, str, str, Callable[[], tuple[int, int]]]]:
    """Every fault with what counts its words."""
    for fault in (*movement_faults(reevaluation.operands), *without_specials(reevaluation.operands)):
        yield fault.kind, fault.subject, fault.fault, lambda fault=fault: reevaluation.count_changed(operands=fault.operands)  # type: ignore[misc]
    rules = list(dict.fromkeys(known.query.rule for known in reevaluation.products))
    if rules:
        for neighbour in neighbours(rules):
            yield Kind.CONSTANT, neighbour.subject, neighbour.fault, lambda one=neighbour: reevaluation.count_changed(one.answer)  # type: ignore[misc]
    for output in expected:
        for subject, order in tiles_exchanged(output):
            yield Kind.MOVEMENT, subject, "exchanged", lambda each=output, s=subject, o=order: _count_exchanged(each, s, o)  # type: ignore[misc]
    if rules:
        for neighbour in narrower(rules, {output.format for output in expected}):
            yield Kind.PRECISION, neighbour.subject, neighbour.fault, lambda one=neighbour: reevaluation.count_changed(one.answer)  # type: ignore[misc]
    else:
        for name in NARROWER:
            yield Kind.PRECISION, f"sums in {name}", "at their end", lambda name=name: reevaluation.with_sums_in(name)  # type: ignore[misc]
        for output in expected:
            for subject, words in stored_else(output):
                yield Kind.PRECISION, subject, "once", lambda each=output, w=words: _words_else(each, w)  # type: ignore[misc]


def _count_exchanged(expected: ExpectedOutput, subject: str, order: np.ndarray) -> tuple[int, int]:
    axis = int(subject.rpartition(" ")[2])
    ends = [expected.words] if expected.words is not None else [expected.low, expected.high]
    if ends[0] is None or ends[-1] is None:
        raise NotCounted("no words are expected")
    compared_elements = compare_words(expected, _unsigned_words(ends[0]))[1] & np.expand_dims(
        order != np.arange(len(order)), 1 - axis
    )  # (*shape,)
    differ = np.ones(expected.shape, bool)
    for end in ends:
        differ &= compare_words(expected, _unsigned_words(np.take(end, order, axis)))[0]  # type: ignore[arg-type]
    return int((differ & compared_elements).sum()), int(compared_elements.sum())


def _words_else(expected: ExpectedOutput, words: np.ndarray) -> tuple[int, int]:
    differ, there, _, _ = compare_words(expected, _unsigned_words(words))
    return int(differ.sum()), int(there.sum())


def _unsigned_words(words: np.ndarray) -> np.ndarray:
    words = np.ascontiguousarray(words)
    return words.view(f"u{words.dtype.itemsize}")
