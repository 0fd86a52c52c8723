"""What contracts of kernels that pick rows by number share: row numbers of a kind, and row numbers drawn one by one.

Required cases name a kind behind their regime, and draw it from `data_seed`. Generated cases write their numbers out
(`Case.indices`): Hypothesis draws them one by one, so the reducer and Hypothesis can make each of them simpler.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.contracts.base.single_config import KernelContract
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.model.case import Case, Indices, Operand
from bitverdict.harness.model.triton_release import has_iisan
from bitverdict.harness.model.usage import UsageError

if TYPE_CHECKING:
    from bitverdict.harness.model.contract import ExpectedOutcome, IndexList
    from bitverdict.harness.model.targets import Target

ROW_KINDS = ("permuted", "anywhere", "repeated", "edges")
"""What row numbers look like; a case names one behind its regime, as in ``normal/repeated``. permuted: each once as far as they go.
anywhere: from below 0 to past the end, by at most the table's length and 3. repeated: a few rows over and over. edges: first, last,
one past it, far past it."""
SPREADS = ("in the table", "anywhere", "few", "distinct")
"""Where row numbers lie that are drawn one by one. in the table: any row. anywhere: half in the table, a quarter at its ends and at
those of int32, a quarter as the kind of that name. few: a third of the rows. distinct: each once as far as they go."""
MISALIGNMENT_PERIOD = 32  # of so many drawn cases one has a column off its boundary
FAULT_PERIOD = 16  # of so many drawn cases with a scatter one has a negative row number


class RowsContract(KernelContract):
    """A kernel that takes row numbers. Required cases name their kind behind the regime; generated ones write them out."""

    def regime(self, place: int) -> str:
        return super().regime(place) + "/" + ROW_KINDS[place % len(ROW_KINDS)]

    def with_drawn_indices(self, draw: Callable, case: Case) -> Case:
        most = self.most_rows(case.config)
        return dataclasses.replace(
            case, indices=tuple((each.name, drawn_rows(draw, case, each, most)) for each in self.index_lists(case))
        )

    def most_rows(self, config: object) -> int:
        """No drawn case of `config` has more row numbers in a list, or more rows in the table that they point into."""
        raise TypeError(f"{type(self).__name__} does not say how many row numbers it draws")

    def indices(self, case: Case) -> Indices:
        return tuple((each.name, tuple(self.rows(case, each).codes.tolist())) for each in self.index_lists(case))

    def rows(self, case: Case, index_list: IndexList) -> Operand:
        """The row numbers of `index_list`: those that the case writes out, else those that its regime and seed give."""
        written = dict(case.indices).get(index_list.name)
        if written is not None:
            return Operand(name=index_list.name, format="int32", codes=np.array(written, np.int32))
        count, rows = getattr(case.problem, index_list.length), getattr(case.problem, index_list.rows)
        return row_numbers(case, index_list.name, count, rows, scattered_in_blocks_of=index_list.block)

    def row_operands(self, case: Case) -> list[Operand]:
        return [self.rows(case, each) for each in self.index_lists(case)]

    def check_indices(self, case: Case) -> None:
        super().check_indices(case)
        for index_list in self.index_lists(case) if case.indices else ():
            codes, rows = self.rows(case, index_list).codes, getattr(case.problem, index_list.rows)
            if not index_list.block:
                continue
            again = np.flatnonzero(named_elsewhere(codes, index_list.block) & (codes >= 0) & (codes < rows))
            if again.size:
                place = int(again[0])
                first = int(np.argmax(codes == codes[place]))
                raise UsageError(
                    f"case.indices.{index_list.name}: row {codes[place]} at {first} and {place}: two "
                    f"programs that write one row race, "
                    f"so nothing is expected; name a row again only inside a block of {index_list.block}"
                )

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        self.check_indices(case)
        return super().expected_outcome(case, target)

    def scatters_below_zero(self, case: Case) -> bool:
        """Whether a row number of a scatter is negative: the hardware faults."""
        if case.regime.endswith("/negative"):
            return True
        scattered = {each.name for each in self.index_lists(case) if each.block}
        return any(min(numbers, default=0) < 0 for name, numbers in case.indices if name in scattered)

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        values, _, rows = case.regime.partition("/")
        return super().coverage(case, target) | {"regime": values, "row numbers": "drawn" if case.indices else rows or "permuted"}


def under_iisan() -> bool:
    """Whether launches are compiled with Triton's iisan, which asserts what the hardware faults on."""
    from triton import knobs

    return has_iisan() and "iisan" in [name.strip() for name in knobs.compilation.instrumentation_mode.split(",")]


SPAN_KIND = "spanned"
"""A kind of its own, the tutorial's: evenly spaced from one table's length below 0 (a scatter: from 0) to two past the beginning,
shuffled."""


def row_numbers(case: Case, name: str, count: int, rows: int, *, scattered_in_blocks_of: int = 0) -> Operand:
    """`count` int32 row numbers for a table of `rows`, of the kind that the case's regime names.

    For a scatter none is below 0, and a row is named again only inside the block of one program: two programs that write one row
    race, and nothing is expected there.
    """
    negative = not scattered_in_blocks_of
    kind = case.regime.partition("/")[2] or "permuted"
    rng = regimes.generator(case.data_seed, name)
    if kind == "permuted":
        codes = rng.permutation(max(count, rows))[:count]  # those past the end are ignored, or give zeros
    elif kind == "anywhere":
        codes = rng.integers(-rows - 3 if negative else 0, 2 * rows + 3, count)
    elif kind == "repeated":
        codes = rng.integers(0, rows, max(rows // 3, 1))[rng.integers(0, max(rows // 3, 1), count)]
    elif kind == SPAN_KIND:
        codes = rng.permutation(np.linspace(-rows if negative else 0, 2 * rows, count).astype(np.int64))
    elif kind == "negative":  # for a scatter: one of them is below 0
        codes = rng.integers(0, rows, count)
        codes[rng.integers(0, count)] = -1
    else:
        ends = table_ends(rows, negative=negative)
        codes = ends[rng.integers(0, len(ends), count)]
    return Operand(name=name, format="int32", codes=once_a_block(codes, scattered_in_blocks_of, rows).astype(np.int32))


def table_ends(rows: int, *, negative: bool) -> np.ndarray:
    """Row numbers at the ends of a table of `rows` and of int32, the simplest first; those below 0 with `negative`."""
    return np.array([0, rows - 1, rows, rows + 1, 2**31 - 1, *((-1, -2, -(2**31)) if negative else ())])


def named_elsewhere(codes: np.ndarray, block: int) -> np.ndarray:
    """(count,) bool: whether a number stands first in another block of `block` numbers."""
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    return np.arange(len(codes)) // block != first[which] // block


def once_a_block(codes: np.ndarray, block: int, rows: int) -> np.ndarray:
    """(count,) `codes`, those that another block names already replaced by a row past the end; unchanged where `block` is 0."""
    return np.where(named_elsewhere(codes, block) & (codes >= 0), rows + 1, codes) if block else codes


def distinct(numbers: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """`numbers`, each that stood before replaced by a number of its own past the end of a table of `rows`."""
    codes = np.array(numbers, np.int64)  # (count,)
    _, first = np.unique(codes, return_index=True)
    again = np.setdiff1d(np.arange(len(codes)), first)
    unused = np.setdiff1d(np.arange(rows, rows + 2 * len(codes)), codes)  # at least `count` of them
    codes[again] = unused[: len(again)]
    return tuple(codes.tolist())


def drawn_rows(draw: Callable, case: Case, index_list: IndexList, max_count: int) -> tuple[int, ...]:
    """Row numbers for `index_list`, each from 16 bits that Hypothesis draws; bits of 0 give row 0.

    The bits of `max_count` numbers are drawn at once: a thousand draws of one number each take milliseconds. They are read from the
    end, so that a list becomes shorter without moving. One scatter in `FAULT_PERIOD` has one negative number.
    """
    from hypothesis import strategies as st

    count, rows = getattr(case.problem, index_list.length), getattr(case.problem, index_list.rows)
    spread = draw(st.sampled_from(SPREADS))
    bits = np.frombuffer(draw(st.binary(min_size=2 * max_count, max_size=2 * max_count)), ">u2")[::-1].astype(np.int64)  # (most,)
    codes = once_a_block(rows_of_bits(bits, count, rows, spread, negative=not index_list.block), index_list.block, rows)  # (count,)
    if index_list.block and draw(st.integers(0, FAULT_PERIOD - 1)) == FAULT_PERIOD - 1:
        codes[draw(st.integers(0, count - 1))] = -draw(st.integers(1, 2**31))
    return tuple(codes.tolist())


def rows_of_bits(bits: np.ndarray, count: int, rows: int, spread: str, *, negative: bool) -> np.ndarray:
    """(count,) row numbers from (most,) integers below 2^16, one of each, as `spread` says; `count`, `rows` <= `most`."""
    if spread == "distinct":  # those past the end are ignored, or give zeros
        return np.argsort(bits[: max(count, rows)], kind="stable")[:count]
    if spread == "in the table":
        return bits[:count] % rows
    if spread == "few":
        return bits[:count] % max(rows // 3, 1)
    part, low = bits[:count] >> 13, bits[:count] & 0x1FFF  # 3 bits, 13 bits
    ends, lowest = table_ends(rows, negative=negative), -rows - 3 if negative else 0
    anywhere = lowest + low % (2 * rows + 3 - lowest)
    return np.where(part < 4, low % rows, np.where(part < 6, ends[low % len(ends)], anywhere))
