"""Cases that tell something apart: one of few words whose values happen to say nothing is fed by another seed.

A product of one element may be zero times anything. Such a case would pass a kernel that reads nothing, so a run does not ask it.
What is expected is evaluated for cases of few words alone, since chance makes no large one tell nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from weakref import WeakKeyDictionary

import numpy as np

from bitverdict.harness.checks.certificate.certify import tells_nothing
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.reference.formats import FORMATS, decode

SEEDS = 4  # tried with the regime of a case, before the plain one
PLAIN_REGIME = "normal"
FEW_ELEMENTS = 1 << 10  # elements of operands of a case that is looked at


_chosen_cases: WeakKeyDictionary[Contract, dict[tuple[str, bool, str], Case]] = WeakKeyDictionary()
"""What `choose_discriminating_seed` came to in this process: a run lists its required cases several times."""


def choose_discriminating_seed(case: Case, contract: Contract, target: Target) -> Case:
    """`case`, or the first of its like that tells something apart: by another data seed, else in the plain regime too. `case`
    itself where none does."""
    if not _is_thin(case) or not contract.expected_outcome(case, target).result:
        return case
    known, key = _chosen_cases.setdefault(contract, {}), (case.key, case.certificate, target.name)
    if key not in known:
        known[key] = _first_discriminating_case(case, contract, target)
    return known[key]


def _first_discriminating_case(case: Case, contract: Contract, target: Target) -> Case:
    for candidate in _alternative_cases(case):
        try:
            operands = {each.name: each for each in contract.operands(candidate)}
        except ValueError:  # no regime of this contract
            continue
        if sum(each.codes.size for each in operands.values()) > FEW_ELEMENTS or _tells(candidate, contract, target, operands):
            return candidate
    return case


def _is_thin(case: Case) -> bool:
    """Whether a size of the problem is one; those of a described kernel stand in what it drew, where three elements, such as equal
    integers, may say nothing too."""
    drawn = getattr(case.problem, "draws", None)
    if drawn is not None:
        return any(1 in entry.shape or prod(entry.shape) < 4 for entry in drawn if entry.shape)
    return any(type(value) is int and value == 1 for name, value in vars(case.problem).items() if "pad" not in name)


def _alternative_cases(case: Case) -> Iterator[Case]:
    yield case
    _, slash, rest = case.regime.partition("/")
    for regime in dict.fromkeys((case.regime, PLAIN_REGIME + slash + rest)):
        for step in range(1, SEEDS + 1):
            yield replace(case, regime=regime, data_seed=case.data_seed + step)


def _tells(case: Case, contract: Contract, target: Target, operands: Mapping[str, Operand]) -> bool:
    if all(_is_plain(each) for each in operands.values()):
        return True
    if contract.any_launcher or case.launcher:  # what it returns is not known before its launch
        return all(_has_varied_values(each) for each in operands.values())
    return not tells_nothing(contract, case, target, operands)


def _is_plain(operand: Operand) -> bool:
    """Whether all elements are ordinary numbers, with two that differ where there are two: by such values something shows."""
    values = _values(operand)
    if values is None:
        return operand.codes.size != 0 and operand.codes.dtype.kind != "i"
    sizes, fmt = np.abs(values), FORMATS[operand.format]
    return bool((sizes >= fmt.smallest_normal).all() and (sizes < fmt.largest / 2).all() and _differs(values))


def _has_varied_values(operand: Operand) -> bool:
    """Whether an operand of floats has a finite number that is not zero, and two that differ where it has two elements."""
    values = _values(operand)
    return values is None or bool((np.isfinite(values) & (values != 0)).any() and _differs(operand.codes.reshape(-1)))


def _values(operand: Operand) -> np.ndarray | None:
    """(elements,) of an operand of floats, one in each code; None of any other."""
    fmt = FORMATS.get(operand.format)
    if fmt is None or not operand.codes.size or operand.codes.dtype != fmt.storage:
        return None
    return decode(fmt, operand.codes.reshape(-1) & fmt.storage((1 << fmt.width) - 1))


def _differs(elements: np.ndarray) -> bool:
    return bool(elements.size == 1 or (elements != elements[0]).any())
