"""Contract under test: row numbers are drawn one by one, stand in the case, and go through JSON; old cases keep their seed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.contracts.base.row_indices import FAULT_PERIOD, distinct, named_elsewhere, rows_of_bits, table_ends
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.case_fields import check_case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.kernels.tma_gather import Config, Problem

BLACKWELL = target("emulated:sm_100")
KERNELS = ("tma_gather", "tma_scatter", "fused_gather_scatter_matmul")


def gathered(**indices: tuple[int, ...]) -> Case:
    count = len(next(iter(indices.values()), (0,)))
    problem = Problem(table_rows=9, table_columns=64, offsets=count)
    return Case(contract="tma_gather", problem=problem, config=Config(block_x=8, block_y=64), indices=tuple(indices.items()))


@pytest.mark.parametrize("kernel", KERNELS)
def test_drawn_cases_write_their_row_numbers_out_and_go_through_json(kernel: str) -> None:
    contract, cases = resolve(kernel), CaseSource(kernel, BLACKWELL).drawn(80)
    assert len({each for case in cases for _, numbers in case.indices for each in numbers}) > 80
    for case in cases:
        record = json.loads(json.dumps(case.to_json()))
        check_case(record)
        assert case_from_record(contract, record) == case
        named = {operand.name: operand.codes for operand in contract.operands(case)}
        for name, numbers in case.indices:
            assert named[name].dtype == np.int32 and tuple(named[name].tolist()) == numbers


@pytest.mark.parametrize("kernel", KERNELS[1:])
def test_a_drawn_scatter_names_a_row_again_in_one_block_alone(kernel: str) -> None:
    contract = resolve(kernel)
    for case in CaseSource(kernel, BLACKWELL).drawn(60):
        for each in contract.index_lists(case):
            codes = np.array(dict(case.indices)[each.name])
            inside = (codes >= 0) & (codes < getattr(case.problem, each.rows))
            assert not each.block or not (named_elsewhere(codes, each.block) & inside).any()


def test_drawn_numbers_lie_below_in_past_and_at_the_ends_of_the_table() -> None:
    seen: Counter[str] = Counter()
    for case in CaseSource("tma_gather", BLACKWELL).drawn(200):
        rows = case.problem.table_rows
        for number in dict(case.indices)["row_offsets"]:
            seen["below" if number < 0 else "in" if number < rows else "past"] += 1
            seen[f"end {number - rows}"] += number in (rows - 1, rows)
            seen["far"] += abs(number) >= 2**31 - 1
    assert min(seen["below"], seen["in"], seen["past"], seen["end -1"], seen["end 0"], seen["far"]) > 20


@pytest.mark.parametrize("kernel", KERNELS[1:])
def test_a_drawn_scatter_to_a_negative_row_expects_the_fault(kernel: str) -> None:
    contract = resolve(kernel)
    drawn = [case for seed in (1, 5) for case in CaseSource(kernel, BLACKWELL, seed).drawn(4 * FAULT_PERIOD)]
    below = [case for case in drawn if contract.scatters_below_zero(case)]
    found = [contract.expected_outcome(case, BLACKWELL) for case in below]
    assert any((each.outcome, each.layer) == ("illegal instruction", "hardware") for each in found)
    assert not any(each.result for each in found)


@pytest.mark.parametrize("spread", ["in the table", "anywhere", "few", "distinct"])
def test_bits_of_zero_give_the_first_rows_and_any_bits_one_number_each(spread: str) -> None:
    zeros = rows_of_bits(np.zeros(64, np.int64), 40, 9, spread, negative=True)
    assert zeros.tolist() == (list(range(40)) if spread == "distinct" else [0] * 40)
    bits = np.arange(0, 1 << 16, 1 << 10)
    codes = rows_of_bits(bits, 64, 9, spread, negative=False)
    assert codes.shape == (64,) and codes.min() >= 0
    if spread == "anywhere":
        assert set(codes.tolist()) & set(table_ends(9, negative=False).tolist()[2:])
    if spread == "distinct":
        assert sorted(codes.tolist()) == list(range(64))


def test_a_case_without_a_list_is_fed_from_its_seed_as_before() -> None:
    """The numbers that data seed 7 gave when reproducers held a kind and a seed alone."""
    contract = resolve("tma_gather")
    case = replace(gathered(), problem=Problem(table_rows=9, table_columns=64, offsets=8), regime="normal/edges", data_seed=7)
    record = case.to_json()
    assert "indices" not in record and case_from_record(contract, record) == case
    (_, rows) = contract.operands(case)
    assert rows.codes.tolist() == OF_SEED_7
    assert dict(contract.indices(case)) == {"row_offsets": tuple(OF_SEED_7)}


OF_SEED_7 = [-(2**31), 9, 10, 10, 9, -(2**31), 8, 10]


@pytest.mark.parametrize(
    ("indices", "said"),
    [
        ([1, 2], "must be an object"),
        ({"row_offsets": [1, 2.5]}, "list of integers"),
        ({"row_offsets": [1, True]}, "list of integers"),
        ({"row_offsets": [1, 1 << 31]}, "32 bits"),
        ({"row_offsets": [1, 2]}, "has 2 numbers: must have 8, as problem.offsets says"),
        ({"rows": [0] * 8}, "no such operand of row numbers; it has row_offsets"),
    ],
)
def test_a_list_that_is_none_is_refused_by_value_and_rule(indices: object, said: str) -> None:
    record = gathered(row_offsets=(0,) * 8).to_json() | {"indices": indices}
    with pytest.raises(UsageError, match=said):
        case_from_record(resolve("tma_gather"), record)


def test_a_list_of_a_kernel_without_row_numbers_is_refused() -> None:
    record = resolve("tmem_copy").required(BLACKWELL)[0].to_json() | {"indices": {"row_offsets": [0]}}
    with pytest.raises(UsageError, match="it has none"):
        case_from_record(resolve("tmem_copy"), record)


def test_a_row_that_two_programs_scatter_to_is_refused_by_place() -> None:
    contract = resolve("tma_scatter")
    (first, *_) = contract.required(BLACKWELL)
    case = replace(first, problem=replace(first.problem, offsets=12, table_rows=9), config=replace(first.config, block_x=8))
    legal = replace(case, indices=(("row_offsets", (3,) * 8 + (9,) * 4),))
    contract.check_indices(legal)
    with pytest.raises(UsageError, match="row 3 at 0 and 9: two programs"):
        contract.check_indices(replace(case, indices=(("row_offsets", (3,) * 8 + (9, 3, 9, 9)),)))


def test_a_launcher_that_asks_for_distinct_rows_is_given_each_once() -> None:
    assert distinct((3, 3, 9, 3, 10, 9), 9) == (3, 11, 9, 12, 10, 13)
    assert distinct((5, 4), 9) == (5, 4) and distinct((), 9) == ()


def test_hypothesis_reaches_the_same_lists_on_gpus_of_one_architecture() -> None:
    one, other = (CaseSource("tma_gather", Target(f"cuda:{index}", "sm_100", index)).drawn(20) for index in (0, 1))
    assert one == other


def test_overlapping_rows_are_refused_and_one_row_has_any_stride() -> None:
    gather: Any = resolve("tma_gather")
    one = gather.case(
        {"table_rows": 1, "table_columns": 64, "offsets": 8, "table_pad": -63},
        {"block_x": 8, "block_y": 64},
        regime="normal",
        data_seed=1,
    )
    assert gather.case_from_json(one.to_json()) == one
    assert gather.expected_outcome(one, BLACKWELL).result
    for changed, least in (({"table_rows": 2}, "0"), ({"table_pad": -64}, "-63")):
        other = replace(one, problem=replace(one.problem, **changed))
        with pytest.raises(UsageError, match=rf"rows must not overlap, and a stride is at least 1; take at least {least}, or 0"):
            gather.case_from_json(other.to_json())
    assert gather.resized(one, "table_columns", 24).problem.table_pad == -23, "a stride of one element"
