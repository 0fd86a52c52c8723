"""Contract under test: what a body draws is a record that draws the same again, and a body that does otherwise is told the rule."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.contracts.described import decisions, given_launch
from bitverdict.harness.contracts.described.contract import DescribedContract, Description
from bitverdict.harness.contracts.described.draw import Draw
from bitverdict.harness.contracts.described.record import DrawRecord
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import BodyError, UsageError
from bitverdict.harness.session.case_line import case_of, describe

SM_90 = target("emulated:sm_90")
WHERE = lambda: ("somewhere.py:NAME", ("/folder",))


def described(body: Callable[[Draw], Any], reference: Callable[..., Any] = lambda xp, *operands: operands, **more: Any) -> Any:
    return DescribedContract(Description(body=body, reference=reference, **more), WHERE)


def rows(draw: Draw) -> Any:
    m, n = draw.size(1, 5), draw.size(1, 300, around=64)
    dtype = draw.choice(("fp16", "bf16"), name="dtype")
    x = draw.tensor(dtype, (m, n), strides="any")
    return torch.exp(x) + draw.size(1, 2)  # the last is never drawn: exp is the first use


def everything(draw: Draw) -> Any:
    n, below = draw.size(4, 40, multiple_of=4, name="n"), draw.size(1, 9)
    return (
        draw.tensor("fp32", n, values=(1, 2)),
        draw.integers((2, n), -3, 3),
        draw.indices(n, below),
        draw.mask((n,)),
        draw.scales(n),
    )


def test_required_cases_go_through_edges_choices_layouts_and_regimes() -> None:
    cases = described(rows).required(SM_90)
    sizes = [tuple(entry.value for entry in case.problem.draws if entry.kind == "size") for case in cases]
    assert {(1, 1), (5, 300)} <= set(sizes) and {63, 64, 65} <= {n for _, n in sizes}
    assert {case.regime for case in cases} == {"normal", "integers", "tenth", "moderate"}
    assert {case.problem.dtype for case in cases} == {"fp16", "bf16"}
    assert {entry.value for case in cases for entry in case.problem.draws if entry.kind == "tensor"} >= {
        "transposed",
        "offset",
        "ragged",
    }
    assert [case.calls for case in cases] == [2, *[1] * (len(cases) - 1)] and len({case.key for case in cases}) == len(cases)
    assert cases == described(rows).required(SM_90)


def test_specials_are_fed_only_where_they_are_asked_for() -> None:
    usual, special = ({case.regime for case in described(rows, specials=more).required(SM_90)} for more in (False, True))
    assert special - usual == {"planted", "subnormals", "wide", "largest"}


def test_a_case_goes_through_json_and_has_the_same_operands() -> None:
    contract = described(everything)
    for case in contract.required(SM_90):
        again = case_from_record(contract, json.loads(json.dumps(case.to_json())))
        assert again == case and again.search_path == ("/folder",)
        for one, other in zip(contract.operands(case), contract.operands(again), strict=True):
            assert one.name == other.name and np.array_equal(one.codes, other.codes)


@pytest.mark.parametrize("body", [rows, everything])
def test_the_line_of_a_report_is_the_case_again(body: Callable[[Draw], Any]) -> None:
    contract = described(body)
    asked = contract.required(SM_90)
    for case in asked:
        assert case_of(describe(case), contract, asked) == case
    assert case_of("n=8", described(everything), described(everything).required(SM_90)).problem.n == 8


def annotated(draw: Draw) -> Any:
    m: int = draw.size(1, 5)
    return draw.tensor("fp32", (m, n := draw.size(1, 300))), draw.tensor("fp32", n)


def test_a_size_has_the_name_of_the_variable_that_takes_it() -> None:
    for body, names in ((rows, {"m", "n"}), (annotated, {"m", "n"})):
        assert set(described(body).sizes(described(body).required(SM_90)[0])) == names


NO_CASE = [
    ("n=6", "n=6: must be an integer from 4 to 40, a multiple of 4"),
    ("m=6", "m: the body draws no such value"),
    ("sizes=8,8,8", "sizes: the body draws"),
]


@pytest.mark.parametrize(("line", "said"), NO_CASE)
def test_a_line_that_is_no_case_is_told_its_field(line: str, said: str) -> None:
    contract = described(everything)
    with pytest.raises(UsageError, match=said):
        case_of(line, contract, contract.required(SM_90))


@pytest.mark.parametrize(("line", "said"), [("sizes=1", "sizes=1: the body draws 2 more"), ("sizes=1,2", "the body draws 1 more")])
def test_a_line_has_all_sizes_without_a_name_or_none(line: str, said: str) -> None:
    contract = described(lambda draw: draw.tensor("fp32", (draw.size(1, 5), draw.size(1, 5), draw.size(1, 5))))
    asked = contract.required(SM_90)
    assert case_of("sizes=1,2,3", contract, asked) != case_of("tensor=fp32(1,1,1)", contract, asked)
    with pytest.raises(UsageError, match=said):
        case_of(line, contract, asked)


def test_words_are_of_the_kind_that_was_drawn() -> None:
    contract = described(everything)
    for case in contract.required(SM_90):
        near, few, rows_, mask, scales = contract.operands(case)
        values = near.codes.view(np.float32)
        assert ((values >= 1) & (values <= 2)).all() and near.codes.size % 4 == 0
        assert few.codes.shape == (2, near.codes.size) and abs(few.codes).max() <= 3 and few.codes.dtype == np.int32
        below = case.problem.draws[1].value
        assert (rows_.codes >= 0).all() and (rows_.codes < below).all() and mask.codes.dtype == bool and scales.format == "e8m0"


@pytest.mark.parametrize(("distinct", "out_of_bounds"), [(False, False), (True, False), (False, True), (True, True)])
def test_indices_keep_what_was_asked_of_them(distinct: bool, out_of_bounds: bool) -> None:
    contract = described(lambda draw: draw.indices(9, 20, distinct=distinct, out_of_bounds=out_of_bounds))
    seen = [contract.operands(dataclasses.replace(case, data_seed=seed))[0].codes
            for case in contract.required(SM_90) for seed in range(5)]  # fmt: skip
    inside = [(codes >= 0) & (codes < 20) for codes in seen]
    assert all(map(np.all, inside)) != out_of_bounds
    repeated = [len(set(codes[fits])) < fits.sum() for codes, fits in zip(seen, inside, strict=True)]
    assert any(repeated) if not distinct else not any(repeated) or out_of_bounds


def test_hypothesis_draws_cases_that_the_contract_reads() -> None:
    contract = described(rows)
    met: list[Case] = []

    @hypothesis.settings(max_examples=40, database=None, derandomize=True)
    @hypothesis.given(case=contract.cases(SM_90))
    def each(case: Case) -> None:
        met.append(case_from_record(contract, case.to_json()))
        assert met[-1] == case

    each()
    assert len({case.problem for case in met}) > 20


def test_a_scalar_is_a_number_of_fp32_between_ends_that_are_none() -> None:
    contract = described(lambda draw: (draw.scalar(np.float32(0.1), 0.9), draw.tensor("fp16", 2, offset=np.int64(3))))
    met: list[float] = []

    @hypothesis.settings(max_examples=20, database=None, derandomize=True)
    @hypothesis.given(case=contract.cases(SM_90))
    def each(case: Case) -> None:
        met.append(case.problem.draws[0].value)

    each()
    met += [case.problem.draws[0].value for case in contract.required(SM_90)]
    assert all(0.1 <= value <= 0.9 and value == float(np.float32(value)) for value in met)


def test_a_draw_that_is_left_out_is_no_case() -> None:
    def even(draw: Draw) -> Any:
        n = draw.size(1, 100)
        draw.assume(n % 2 == 0)
        return draw.tensor("fp16", n)

    cases = described(even).required(SM_90)
    assert cases and all(case.problem.draws[0].value % 2 == 0 for case in cases)


def test_simpler_cases_have_one_draw_made_simpler_and_the_rest_follows() -> None:
    contract = described(rows)
    case = contract.required(SM_90)[4]
    simpler = list(contract.simpler(case))
    sizes = [tuple(entry.value for entry in each.problem.draws[:2]) for each in simpler]
    assert (1, 300) in sizes and (5, 1) in sizes
    assert all(each.problem.draws[3].shape == size for each, size in zip(simpler, sizes, strict=True))


@triton.jit
def nothing(x):
    tl.store(x, 1.0)


USES = {
    "a function of torch": lambda x: torch.empty(3),
    "an operator": lambda x: x * 2,
    "an index": lambda x: x[0],
    "an attribute": lambda x: x.device,
    "a method": lambda x: x.contiguous(),
    "a launch": lambda x: nothing[(1,)](x),
    "a module of torch": lambda x: torch.nn.functional.silu(x),
    "the GPU's name": lambda x: torch.cuda.get_device_name(),
    "a truth": lambda x: 1 if x else 2,
    "Triton's driver": lambda x: triton.runtime.driver.active.get_current_device(),
}


@pytest.mark.parametrize("use", USES)
def test_a_body_ends_at_the_first_use_of_a_tensor(use: str) -> None:
    reached: list[str] = []

    def body(draw: Draw) -> Any:
        x = draw.tensor("fp16", (2, 3))
        assert isinstance(x, torch.Tensor) and x.shape == (2, 3) and x.ndim == 2 and x.dtype is torch.float16
        try:
            USES[use](x)
        except Exception:
            reached.append("caught")
        reached.append("behind")
        draw.size(1, 2)

    assert len(described(body).drawn(decisions.Simplest()).draws) == 1 and not reached
    assert torch.empty(1).shape == (1,) and triton.runtime.driver._active is None  # all is as it was


def test_what_a_launcher_raises_is_left_to_its_launch() -> None:
    def body(draw: Draw) -> Any:
        x = draw.tensor("fp16", draw.size(1, 9))
        assert x.shape[0] % 8 == 0
        return torch.exp(x)

    assert len(described(body).required(SM_90)) > 5


def launched(contract: Any, case: Case) -> Any:
    tensors = {each.name: torch.from_numpy(each.codes.astype(np.int32)) for each in contract.operands(case)}
    return contract.launch(case, tensors, None)


def test_a_body_that_draws_otherwise_is_told_the_rule() -> None:
    turn = iter(range(9))
    contract = described(lambda draw: draw.tensor("int32", 2 + next(turn)))
    case = contract.case(contract.drawn(decisions.Simplest()))
    with pytest.raises(BodyError, match=r"draw 0 of the body is tensor=int32\(3,\).* a body may depend on its draws alone"):
        launched(contract, case)


def test_a_body_that_draws_after_its_launch_is_told_so() -> None:
    contract = described(lambda draw: (draw.tensor("int32", 2) + 1, draw.size(1, 2)))
    case = contract.case(contract.drawn(decisions.Simplest()))
    with pytest.raises(BodyError, match="after its first use of a tensor: draw everything before the launch"):
        launched(contract, case)


def test_a_body_that_draws_less_is_told_the_rule() -> None:
    left = [True]
    contract = described(lambda draw: [draw.tensor("int32", 2)] + [draw.flag() for _ in range(len(left))])
    case = contract.case(contract.drawn(decisions.Simplest()))
    left.clear()
    with pytest.raises(BodyError, match="draws 1 values now and drew 2"):
        launched(contract, case)


def test_an_operand_that_is_returned_is_written_in_place() -> None:
    def body(draw: Draw) -> Any:
        x, y = draw.tensor("int32", 4), draw.tensor("int32", 4)
        return y.view(2, 2).view(4), x + y

    contract = described(body, lambda xp, a, b: (b, a + b))
    case = contract.case(contract.drawn(decisions.Simplest()))
    assert list(launched(contract, case)) == ["b", "out 1"] and contract.written(case) == {"b"}
    assert contract.recorded(case)["outputs"] == [["b", "int32"], ["out 1", "int32"]]


def test_a_reference_is_given_operands_in_order_and_draws_by_name() -> None:
    def body(draw: Draw) -> Any:
        k, _ = draw.size(3, 8, name="k"), draw.size(1, 2, name="unknown")
        out = draw.output("fp16", 3)
        w = draw.tensor("fp16", 2, name="w")
        return draw.tensor("fp16", 1), w, draw.tensor("fp16", 4), draw.scalar(0.5, 0.5, name="eps"), k, out

    contract = described(body, lambda xp, x, w, y, k, eps: x)
    case = contract.case(contract.drawn(decisions.Simplest()))
    operands = {each.name: each for each in contract.operands(case)}
    given, named = contract.arguments(case, operands)
    assert list(operands) == ["w", "x", "y"] and [codes.size for _, codes in given[:3]] == [1, 2, 4]
    assert given[3:] == [3, 0.5] and not named

    def takes_any_name(xp: Any, x: Any, y: Any, /, k: int, **named: Any) -> Any:
        return x

    given, named = (other := described(body, takes_any_name)).arguments(case, {each.name: each for each in other.operands(case)})
    assert [codes.size for _, codes in given[:2]] == [1, 4] and given[2:] == [3]
    assert named.pop("w")[1].size == 2 and named == {"eps": 0.5, "unknown": 1}


def test_a_name_of_a_parameter_that_takes_none_is_no_other_argument() -> None:
    """`**named` would take the name again."""
    body = lambda draw: (draw.size(3, 8, name="xp"), draw.tensor("fp16", 2, name="x"))
    contract = described(body, lambda xp, x, /, **named: x)
    case = contract.case(contract.drawn(decisions.Simplest()))
    given, named = contract.arguments(case, {each.name: each for each in contract.operands(case)})
    assert len(given) == 1 and not named


WRONG = [
    (lambda draw: draw.size(5, 2), "low must be at least 0 and at most high"),
    (lambda draw: draw.size(5, 7, multiple_of=8), "with a multiple of multiple_of between them"),
    (lambda draw: draw.tensor("flot16", 2), r"dtype 'flot16': unknown \(did you mean 'float16'\?\)"),
    (lambda draw: draw.tensor("fp16", (2, -1)), "must be integers of at least 0"),
    (lambda draw: draw.tensor("fp16", 2, values="norml"), "must be a regime"),
    (lambda draw: draw.tensor("fp16", (1 << 13, 1 << 13)), "draw smaller sizes"),
    (lambda draw: draw.indices(9, 5, distinct=True), "at least the number of indices"),
    (lambda draw: draw.integers(3, 0, 300, dtype="uint8"), "uint8 holds 0 to 255"),
    (lambda draw: draw.choice(()), "at least one"),
    (lambda draw: (draw.size(1, 2, name="k"), draw.flag(name="k")), "two draws have this name"),
    (lambda draw: draw.tensor("fp16", 2), r"takes \(xp, a, b\) and the body draws tensor=fp16\(2,\): nothing is drawn for b"),
    (lambda draw: [draw.tensor("fp16", 2) for _ in "abc"], "there are 1 operands more"),
    (
        lambda draw: draw.size(1),
        r"test_described.py:\d+: draw.size\(\) missing 1 required positional argument: 'high'; what a body",
    ),
    (lambda draw: draw.size("1", 2), r"test_described.py:\d+: draw.size\('1', 2\): must be integers; divide by //; what"),
    (lambda draw: draw.tensor("fp16"), r"draw.tensor\(\) missing 1 required positional argument: 'shape'"),
    (lambda draw: draw.tensr(1, 2), r"draw has no tensr \(did you mean 'tensor'\?\)"),
    (lambda draw: draw.tensor("fp16", 2, strides="columns"), "must be None, 'contiguous', 'rows', 'any' or 'far'"),
]


@pytest.mark.parametrize(("body", "said"), WRONG)
def test_what_cannot_be_drawn_is_refused_with_its_rule(body: Callable[[Draw], Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        described(body, lambda xp, a, b: a + b).drawn(decisions.Simplest())


def test_what_a_body_raises_itself_is_told_at_its_launch() -> None:
    """No draw is wrong: a TypeError of the kernel's or the launcher's."""
    made = described(lambda draw: len(draw.size(1, 2)), lambda xp: 0).drawn(decisions.Simplest())  # type: ignore[arg-type]
    assert made is not None and [entry.kind for entry in made.draws] == ["size"]


@pytest.mark.parametrize(("strides", "seen"), [("any", 5), ("rows", 4)])
def test_rows_are_contiguous_where_that_is_asked(strides: str, seen: int) -> None:
    asked = described(lambda draw: draw.tensor("fp16", (3, 4), strides=strides), lambda xp, a: a).required(SM_90)
    (draws,) = zip(*(case.problem.draws for case in asked), strict=True)
    assert len({entry.value for entry in draws}) == seen
    assert any((entry.strides or (4, 1))[-1] != 1 for entry in draws) == (strides == "any")


def test_a_misspelt_draw_is_told_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"draw has no tensr \(did you mean 'tensor'\?\)"):
        Draw(decisions.Simplest()).tensr  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"draws": "all"}, "problem.draws is 'all': must be a list"),
        ({"draws": [{"kind": "guess"}]}, r"problem.draws\[0\] is .* must be a draw of kind size"),
        ({"draws": [{"kind": "size", "value": [1]}]}, r"draws\[0\].value is \(1,\): must be a number"),
        ({"draws": [{"kind": "tensor", "shape": [-1]}]}, r"draws\[0\].shape is \(-1,\): must be a list of integers"),
    ],
)
def test_a_record_that_was_edited_is_told_its_field(record: dict, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        DrawRecord.from_json(record)


def test_a_case_stored_before_its_contract_moved_is_read() -> None:
    assert resolve("bitverdict.harness.contracts.described.given:CONTRACT") is given_launch.CONTRACT
