"""Contract under test: the line that a report prints for a case is that case again, and what is wrong with a line is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.case_line import case_of, describe, fields_of
from bitverdict.harness.session.case_source import CaseSource
from tests.support.vector_add import CONTRACT, HOST, case

SM_100 = target("emulated:sm_100")


@pytest.mark.parametrize("stem", kernels_with_a_contract())
def test_the_line_of_a_case_is_that_case_again(stem: str) -> None:
    source = CaseSource(stem, SM_100)
    asked = source.required()
    for one in asked[:: max(1, len(asked) // 12)]:
        assert case_of(describe(one), source.contract, asked) == one


DESCRIBED = """
import bitverdict as bv

@bv.judged(reference=lambda xp, x, y, k: x * k)
def test_mine(draw):
    m, k = draw.size(1, 70), draw.size(1, 9, name="k")
    if draw.flag():
        m = draw.choice((2, 3))
    return draw.tensor("fp16", (m, 5), strides="any"), draw.tensor("bf16", m), draw.scalar(0.0, 2.0)
"""


def test_the_line_of_a_described_kernels_case_is_that_case_again(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(DESCRIBED)
    source = CaseSource(f"{tmp_path / 'test_mine.py'}:test_mine", SM_100)
    asked = source.required()
    for one in [*asked, *source.drawn(12)]:
        assert case_of(describe(one), source.contract, asked) == one
    short = case_of("m=7 k=3 data_seed=5", source.contract, asked)
    assert (short.problem.draws[0].value, short.problem.k, short.data_seed, short.calls) == (7, 3, 5, 1)
    assert case_of("sizes=7 k=3 data_seed=5", source.contract, asked) == short, "as reports told sizes before"
    with pytest.raises(UsageError, match="--case: m=700: must be an integer from 1 to 70"):
        case_of("sizes=700 k=9", source.contract, asked)


def test_row_numbers_schedules_and_configurations_are_told_whole() -> None:
    source = CaseSource("tma_gather", SM_100)
    asked = source.required()
    rows = (0,) * 7 + (41, 3, 3)
    (listed,) = [each.name for each in source.contract.index_lists(asked[0])]
    problem = replace(asked[0].problem, offsets=len(rows))
    one = replace(asked[0], problem=problem, indices=((listed, rows),), schedule="drawn:5 on 2")
    assert f"{listed}=[0]*7+[41]+[3]*2" in describe(one)
    assert case_of(f"case: {describe(one)}", source.contract, asked) == one
    for config in ("torch", None):
        one = replace(case(3), config=config, tuning="config 3", calls=2, real_values=False)
        assert case_of(describe(one), CONTRACT, CONTRACT.required(HOST)) == one


def test_a_short_line_leaves_the_configuration_to_the_launcher() -> None:
    for stem, config in (("matmul", None), ("block_scaled_matmul", "Config()")):
        source = CaseSource(stem, SM_100)
        made = case_of("m=1 n=1 k=32", source.contract, source.required())
        assert (made.problem.m, made.problem.k, made.data_seed) == (1, 32, 0)
        assert made.config is None if config is None else made.config == type(made.config)()


def test_a_value_goes_on_to_the_next_name_outside_brackets() -> None:
    line = "m=1 left=tensor memory a=(pad=1 order=column) sizes=((1, 2), (3, 4)) schedule=drawn:5 on 2"
    told = {"m": "1", "left": "tensor memory", "a": "(pad=1 order=column)", "sizes": "((1, 2), (3, 4))", "schedule": "drawn:5 on 2"}
    assert dict(fields_of(line)) == told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("m=1 n=1 kk=3", "kk is no field of it (did you mean 'k'?); the fields are regime, data_seed, "),
        ("m=1 n=1", "k of Problem missing: has no default; add k=VALUE"),
        ("m=1 n=1 k=many", "k=many: must be a value of int"),
        ("m=1 n=1 k=1 k=2", "k is given twice"),
        ("m=1 n=1 k=1 a=3", "a=3: must be fields in brackets, ("),
        ("m=1 n=1 k=1 a=(pad=3", "has a bracket that is not closed"),
        ("one two", "'one': must be name=value; for example --case 'm=1 n=1 k=33'"),
        ("m=-3 n=1 k=1", "problem.m is -3: must be an integer of at least 0"),
        ("m=1 n=1 k=1 schedule=never", "case.schedule is 'never': must be 'eager', 'latest' or"),
        ("m=1 n=1 k=1 config=auto block_m=3", "config=auto with block_m: the launcher chooses all of it"),
        ("m=1 n=1 k=1 block_m=32", "block_n, block_k of Config missing"),
    ],
)
def test_a_line_that_is_no_case_is_told_with_its_field_and_rule(line: str, said: str) -> None:
    source = CaseSource("matmul", SM_100)
    with pytest.raises(UsageError) as raised:
        case_of(line, source.contract, source.required())
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_a_list_that_a_report_cut_is_not_guessed() -> None:
    source = CaseSource("tma_gather", SM_100)
    asked = source.required()
    (listed,) = [each.name for each in source.contract.index_lists(asked[0])]
    with pytest.raises(UsageError, match="the report cut this list; `bitverdict replay FILE` has it whole"):
        case_of(f"offsets=40 {listed}=[1]+... (40 numbers)", source.contract, asked)
