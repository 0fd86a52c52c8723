"""The cases of a contract that are asked whether they are invariant: large ones, in plain numbers, of many configurations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import prod
from typing import Any

from bitverdict.harness.contracts.inputs.regimes import REGIMES
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.launcher_limits import is_far
from bitverdict.harness.model.targets import Target

PLAIN_REGIME = "normal"  # numbers whose sums are rounded: of whole ones every order gives the same word
MOST_PRODUCTS = 1 << 23  # product of the sizes of a case


def choose_cases(contract: Contract, cases: Sequence[Case], target: Target, max_cases: int = 0) -> list[Case]:
    """Of `cases` the largest of each kind: configuration, types and layouts. `max_cases`: so many, which cover the values of as
    many of those as they can, and smaller ones where there are fewer kinds; 0 is for one of each kind."""
    kinds: dict[tuple, Case] = {}
    legal = (case for case in cases if contract.expected_outcome(case, target).result and not is_far(case.problem))
    by_size = sorted((plain_case(case) for case in legal if _size(contract, case)), key=lambda case: -_size(contract, case))
    for case in by_size:
        kinds.setdefault(kind_of(contract, case), case)
    left, seen, chosen_cases = dict(kinds), set[tuple[int, Any]](), list[Case]()
    while left and (not max_cases or len(chosen_cases) < max_cases):
        key = max(left, key=lambda each: len(set(enumerate(each)) - seen))
        seen |= set(enumerate(key))
        chosen_cases.append(left.pop(key))
    smaller = {case.problem: case for case in by_size if case not in chosen_cases}
    return chosen_cases + list(smaller.values())[: max(max_cases - len(chosen_cases), 0)]


def plain_case(case: Case) -> Case:
    """`case` in one call, on numbers whose sums are rounded, in no particular order of time."""
    first, slash, rest = case.regime.partition("/")
    regime = f"{PLAIN_REGIME}{slash}{rest}" if first in REGIMES else case.regime
    return dataclasses.replace(case, regime=regime, schedule="eager", calls=1, real_values=False)


def kind_of(contract: Contract, case: Case) -> tuple:
    """What a compiler may compile anew for, besides sizes: the fields of the configuration, and those of the problem that are no
    sizes."""
    config = tuple(vars(case.config).values()) if case.config is not None else ()
    draws = getattr(case.problem, "draws", None)
    if draws is not None:
        return (*config, *((entry.value, entry.dtype) for entry in draws if entry.kind != "size"))
    sizes = contract.sizes(case)
    return (*config, *(value for name, value in vars(case.problem).items() if name not in sizes))


def _size(contract: Contract, case: Case) -> int:
    """The product of the sizes of a case, 0 where it is empty or too large."""
    work = prod(value for name, value in contract.sizes(case).items() if not name.endswith(("_pad", "_offset")))
    return 0 if work > MOST_PRODUCTS else work
