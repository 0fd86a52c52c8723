"""Required cases that are judged quickly, for measurements that go through every kernel."""

from __future__ import annotations

from bitverdict.harness.model.case import Case
from bitverdict.harness.session.case_source import CaseSource

LARGEST = 1 << 20  # elements of an operand


def small_cases(source: CaseSource, most: int) -> list[Case]:
    """`most` required cases whose launch gives a result, spread over those whose operands are small."""
    contract, found = source.contract, list[Case]()
    good = [case for case in source.required() if contract.expected_outcome(case, source.target).result and not case.tuning]
    for first in range(0, len(good), step := max(1, len(good) // most)):
        small = (each for each in good[first : first + step] if all(o.codes.size <= LARGEST for o in contract.operands(each)))
        found += [each for each in [next(small, None)] if each is not None]
    return found[:most]
