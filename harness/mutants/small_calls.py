"""A small domain of calls: each size of a kernel through all small values and about its blocks, and the first sizes together.

Where a mutant differs in how sizes are cut into blocks (a limit, a mask, a trip count, a grid), sizes below a block, at its
edge and some blocks long meet every way in which a tile can be cut. Contents and schedules change from call to call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, is_dataclass, replace
from itertools import product

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract

SAME_CALLS = "equal words in all calls of a small domain"
FIRST_SIZES = 10  # sizes from 0, each
BLOCKS = (16, 32, 64, 128)
LARGEST = 2048  # of a block of a configuration, about which sizes are looked at
TURNS = 6  # blocks in the longest loop
MAX_JOINT_SIZES = 3  # sizes that are changed together
MOST_BASES = 2
LEAST_CALLS = 12
"""Calls of the domain that come to a mutant's place: fewer show nothing."""
MOST_SECONDS = 240.0
"""Of the processor, for the calls of one mutant: one that takes longer is not shown equivalent. A busy machine proves as much."""
SCHEDULES = ("eager", "latest", "drawn:1", "eager on 2", "drawn:2", "latest on 2")
_NO_SIZE = ("pad", "offset", "key", "ignore")  # in names of numbers that are no extents
NO_CASE = (ValueError, TypeError, IndexError, KeyError, ZeroDivisionError, AttributeError, OverflowError)
"""What a contract raises of a problem that it cannot have."""


def bases(cases: Iterable[Case], cost: Callable[[Case], float]) -> list[Case]:
    """Of `cases` the cheapest of each configuration, the cheapest two of those: the domain lies about them."""
    by_config: dict[str, Case] = {}
    for case in sorted((case for case in cases if case.calls == 1), key=cost):
        by_config.setdefault(repr(case.config), case)
    return list(by_config.values())[:MOST_BASES]


def domain(contract: Contract, base: Case, regimes: Sequence[str], *, whole: bool = True) -> Iterator[Case]:
    """The calls about `base`, each once, its own contents in turn with `regimes`. Not `whole`: without sizes some blocks long, and
    about the smallest block alone."""
    place, seen_keys = 0, {base.key}
    for sizes in _sizes(contract, base, whole):
        case: Case | None = base
        for name, value in sizes:
            case = _resize(contract, case, name, value) if case is not None else None
        if case is None:
            continue
        case = replace(
            case, indices=(), regime=regimes[place % len(regimes)], data_seed=place, schedule=SCHEDULES[place % len(SCHEDULES)]
        )
        if case.key not in seen_keys:
            seen_keys.add(case.key)
            place += 1
            yield case


class TooLong(Exception):
    """The calls of one mutant took more than `MOST_SECONDS`."""


class InTime:
    """Hands out calls, from however many lists, until the process has worked `MOST_SECONDS` since it was made: one for all of a
    mutant's calls."""

    def __init__(self) -> None:
        self._until = time.process_time() + MOST_SECONDS

    def __call__(self, cases: Iterable[Case]) -> Iterator[Case]:
        """`cases`, one after the other. TooLong where the time is over."""
        for case in cases:
            if time.process_time() > self._until:
                raise TooLong
            yield case


def _sizes(contract: Contract, base: Case, is_full: bool) -> Iterator[tuple[tuple[str, int], ...]]:
    names = [name for name in contract.sizes(base) if not any(part in name for part in _NO_SIZE)] or list(_listed_sizes(base))
    blocks = _blocks(base)
    values = set(range(FIRST_SIZES if is_full else 3))
    about = sorted({*BLOCKS, *blocks}) if is_full else sorted(blocks)[:1] or [BLOCKS[0]]
    values |= {item + more for item in about for more in (-1, 0, 1)}
    if blocks:
        values |= {min(blocks) * turns + more for turns in range(2, TURNS + 1 if is_full else 4) for more in (0, 1)}
    for name in names:
        yield from (((name, value),) for value in sorted(values))
    step = min(blocks, default=BLOCKS[0])
    together = product((1, step, step + 1), repeat=min(len(names), MAX_JOINT_SIZES))
    yield from (tuple(zip(names, item, strict=False)) for item in together)


def _listed_sizes(case: Case) -> Iterator[str]:
    """Names of the sizes of the first of several products, where the problem lists them: "sizes 0"."""
    for name, value in vars(case.problem).items() if is_dataclass(case.problem) else ():
        if isinstance(value, tuple) and value and isinstance(value[0], tuple) and all(type(each) is int for each in value[0]):
            yield from (f"{name} {place}" for place in range(len(value[0])))


def _blocks(case: Case) -> list[int]:
    """Numbers of the configuration that may be sizes of blocks."""
    fields = asdict(case.config) if is_dataclass(case.config) else {}  # type: ignore[arg-type]
    return [value for value in fields.values() if type(value) is int and BLOCKS[0] <= value <= LARGEST]


def _resize(contract: Contract, case: Case, name: str, value: int) -> Case | None:
    listed, _, place = name.partition(" ")
    try:
        if place:
            first, *others = getattr(case.problem, listed)
            sizes = (*first[: int(place)], value, *first[int(place) + 1 :])
            made: Case | None = replace(case, problem=replace(case.problem, **{listed: (sizes, *others)}))
        else:
            made = contract.resized(case, name, value)
        return made if made is not None and made.key else None
    except NO_CASE:
        return None


def proof_text(calls: int, required: int) -> str:
    """The reason for a mutant that gave the words of the right kernel in so many calls of the domain, and in so many required
    cases; empty where the calls are too few."""
    return f"{SAME_CALLS}: {calls:,} calls and {required:,} required cases" if calls >= LEAST_CALLS else ""
