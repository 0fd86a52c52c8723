"""Contract under test: a certificate says how many words a fault would have changed, and a launch with that fault differs in as
many; a case that exposes no fault is inconclusive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.checks.certificate import reevaluation
from bitverdict.harness.checks.certificate.certify import certificate
from bitverdict.harness.checks.certificate.constants import RULES
from bitverdict.harness.checks.certificate.discriminating_seed import choose_discriminating_seed
from bitverdict.harness.contracts.oracle import dot_scaled_lowering, row_mathematics
from bitverdict.harness.emulator.numerics import matrix_products
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.compare import compare_words
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.certificate import Certificate, Kind
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.reference import tensor_core
from bitverdict.reference.formats import FORMATS, FP16, FP32, decode, encode

MATMUL: Any = resolve("matmul")
SMALL = {"m": 33, "n": 40, "k": 128}  # whole tiles of K: under a wrong F, a block of zeros cuts the accumulator once more


def matmul(dtype: str, out: str, regime: str = "wide", **sizes: int) -> Case:
    """A product by the shipped kernel, in tiles that a warp group of sm_90 multiplies by wgmma, two blocks of fp8 at a time."""
    problem = MATMUL.module.Problem(**(SMALL | {"dtype": dtype, "out": out} | sizes))
    tiles = MATMUL.module.Config(block_m=64, block_n=32, block_k=64, num_warps=4, num_stages=2)
    return Case(contract="matmul", problem=problem, config=tiles, regime=regime, data_seed=3)


def certificate_of(case: Case, arch: str, contract: Contract | None = None) -> tuple[Certificate, Verdict]:
    verdict = judge(replace(case, certificate=True), target(f"emulated:{arch}"), contract)
    return Certificate.from_json(verdict.certificate), verdict


def words_that_differ(case: Case, arch: str, contract: Contract = MATMUL) -> int:
    """Of a launch, beside what is expected of the case."""
    machine = target(f"emulated:{arch}")
    operands = {each.name: each for each in contract.operands(case)}
    seen = launch(case, machine, contract, None, operands, Clock())
    return sum(
        int((seen.outputs[each.name] != each.words.view(seen.outputs[each.name].dtype)).sum())
        for each in contract.expected(case, machine, operands, seen.launch_record)
        if each.words is not None
    )


PRODUCTS = {
    "fp16 by wgmma": ("sm_90", matmul("fp16", "fp32")),
    "e4m3 by wgmma, F of 13": ("sm_90", matmul("e4m3", "fp32", "normal")),
    "bf16 by mma.sync, blocks of 8": ("sm_80", matmul("bf16", "fp32", "normal")),
    "tf32 by mma.sync": ("sm_80", matmul("fp32", "fp32")),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_as_many_words_differ_as_a_wrong_constant_was_said_to(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arch, case = PRODUCTS[name]
    made, verdict = certificate_of(case, arch)
    assert verdict.decision is Decision.PASS and made.words == SMALL["m"] * SMALL["n"]
    said = {(each.subject, each.fault): each for each in made.findings if each.kind is Kind.CONSTANT}
    asked = 0
    for subject, fault, moved in RULES:
        with monkeypatch.context() as patched:

            def wrong(*names: str, moved: Any = moved) -> tensor_core.Instruction:
                rule = tensor_core.instruction(*names)
                return moved(rule) or rule

            patched.setattr(matrix_products, "instruction", wrong)
            found = words_that_differ(case, arch)
        expected = said.get((subject, fault))
        assert found == (expected.changed_words if expected else 0), (subject, fault)
        asked += found > 0
    assert asked >= 5, said


class Fed(type(MATMUL)):  # type: ignore[misc]
    """`matmul`, fed what `feed` makes of its operands, and launched with what `launched` does."""

    def __init__(self, feed: Any = None, launched: Any = None) -> None:
        super().__init__(MATMUL.module, MATMUL.address)
        self.feed, self.launched = feed or dict, launched or dict

    def operands(self, case: Case) -> list[Operand]:
        return [*self.feed({each.name: each for each in super().operands(case)}).values()]

    def launch(self, case: Case, tensors: Mapping[str, Any], launcher: Any) -> Mapping[str, Any]:
        return super().launch(case, self.launched(tensors), launcher)


def filled(code: int) -> Any:
    """Every element of each operand as `code`."""
    return lambda operands: {name: replace(each, codes=np.full_like(each.codes, code)) for name, each in operands.items()}


def test_a_kernel_that_reads_elsewhere_differs_in_as_many_words_as_said() -> None:
    case = matmul("fp16", "fp32", "integers")
    made, _ = certificate_of(case, "sm_90")
    for axis, size in enumerate((SMALL["m"], SMALL["k"])):
        order = [place & ~1 for place in range(size)]
        wrong = Fed(launched=lambda tensors, axis=axis, order=order: {**tensors, "a": rolled(tensors["a"], axis, order)})
        said = next(each for each in made.findings if (each.kind, each.subject) == (Kind.MOVEMENT, f"a axis {axis}"))
        assert words_that_differ(case, "sm_90", wrong) == said.changed_words > 0


def rolled(tensor: Any, axis: int, order: list[int]) -> Any:
    made = tensor.clone()
    for place, from_ in enumerate(order):
        made.select(axis, place).copy_(tensor.select(axis, from_))
    return made


@pytest.mark.parametrize(("code", "of"), [(0, "zeros"), (0x3C00, "ones")])
def test_a_case_of_equal_operands_is_inconclusive_and_its_twin_passes(code: int, of: str) -> None:
    case = matmul("fp16", "fp32", "integers")
    verdict = judge(case, target("emulated:sm_90"), Fed(feed=filled(code)))
    assert verdict.decision is Decision.INCONCLUSIVE and verdict.message.startswith("exposes no fault"), (of, verdict)
    assert judge(case, target("emulated:sm_90"), Fed()).decision is Decision.PASS


def test_a_sample_counts_the_words_of_its_own_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    case = matmul("fp16", "fp32", m=70, n=66, k=128)
    sampled, _ = certificate_of(case, "sm_90")
    assert {each.sampled_words for each in sampled.findings if each.kind is Kind.CONSTANT and each.is_detected} == {
        reevaluation.LINES**2
    }
    monkeypatch.setattr(reevaluation, "EXHAUSTIVE_TERMS", 1 << 30)
    whole, _ = certificate_of(case, "sm_90")
    for one, all_ in zip(sampled.findings, whole.findings, strict=True):
        assert (one.kind, one.subject, one.fault) == (all_.kind, all_.subject, all_.fault) and one.is_detected == all_.is_detected
        if one.kind in (Kind.CONSTANT, Kind.PRECISION):
            share = all_.changed_words / all_.sampled_words
            assert (
                abs(one.changed_words - share * one.sampled_words)
                <= 5 * (one.sampled_words * max(share * (1 - share), 1 / one.sampled_words)) ** 0.5
            ), (one, all_)


@pytest.mark.parametrize("block", ["halved", "one bit less"])
def test_a_scaled_product_differs_in_as_many_words_as_said(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    contract: Any = resolve("block_scaled_matmul")
    sizes = {"m": 20, "n": 24, "k": 128, "format": "mxfp8", "out": "fp32"}
    case = Case(contract="block_scaled_matmul", problem=contract.module.Problem(**sizes), config=contract.module.Config())
    operands = {each.name: each for each in contract.operands(case)}
    machine = target("emulated:sm_100")
    right = contract.expected(case, machine, operands, {})
    made = certificate(contract, case, machine, operands, {}, right, frozenset())
    moved = next(moved for _, fault, moved in RULES if fault == block)
    lookup = dot_scaled_lowering.instruction
    monkeypatch.setattr(dot_scaled_lowering, "instruction", lambda *names, **rest: moved(lookup(*names, **rest)))
    (wrong,), said = contract.expected(case, machine, operands, {}), {each.fault: each for each in made.findings}
    assert int((wrong.words != right[0].words).sum()) == said[block].changed_words > 0


class Traced(Contract):
    """A sum of rows, held to the bound of its reference; `fault` of the launcher is none of its."""

    def operands(self, case: Case) -> list[Operand]:
        values = np.random.default_rng(case.data_seed).uniform(1, 2, (9, 64))
        return [Operand(name="x", format="fp16", codes=encode(FP16, values))]

    def expected(self, case: Case, target: Any, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        return row_mathematics.trace_outputs(lambda xp, x: xp.sum(x, axis=1), operands.values(), {"y": "fp32"}, target.arch)


def test_of_a_bound_it_counts_what_a_narrower_sum_leaves() -> None:
    case, machine = Case(contract="traced", problem=None), target("emulated:sm_90")
    operands = {"x": Traced().operands(case)[0]}
    expected = Traced().expected(case, machine, operands, {})
    made = certificate(Traced(), case, machine, operands, {}, expected, frozenset({"y"}))
    said = {(each.subject, each.fault): each for each in made.findings}
    sums = decode(FP16, operands["x"].codes).sum(axis=1)  # (9,), exact
    for name in ("fp16", "bf16"):
        fmt = FORMATS[name]
        outside = compare_words(expected[0], encode(FP32, decode(fmt, encode(fmt, sums))))[0]
        assert said[f"sums in {name}", "at their end"].changed_words == outside.sum() > 0
    read_elsewhere = decode(FP16, operands["x"].codes[:, np.arange(64) & ~1]).sum(axis=1)
    assert said["x axis 1", "index without its lowest bit"].changed_words == (read_elsewhere != sums).sum() > 0


def test_operands_that_reach_no_word_leave_a_case_a_pass() -> None:
    """Softmax of one column is 1 whatever it reads: no case of its size could tell more."""
    contract: Any = resolve("softmax")
    case = Case(contract="softmax", problem=contract.module.Problem(rows=3, columns=1), config=contract.module.Config())
    made, verdict = certificate_of(case, "sm_90")
    assert verdict.decision is Decision.PASS and made.constant and not any(each.is_detected for each in made.findings)


@pytest.mark.parametrize("launcher", ["", "mine.py:matmul"])
def test_a_required_case_of_one_product_is_fed_what_shows(launcher: str) -> None:
    """Of a user's launcher too: what it returns is not known before its launch, so its operands are looked at alone."""
    case = replace(matmul("fp16", "fp32", "integers", m=1, n=1, k=1), launcher=launcher)
    seeds = (replace(case, data_seed=seed) for seed in range(99))
    zero = next(each for each in seeds if not any(operand.codes.any() for operand in MATMUL.operands(each)))
    other = choose_discriminating_seed(zero, MATMUL, target("emulated:sm_90"))
    assert other != zero and replace(other, data_seed=0, regime="") == replace(zero, data_seed=0, regime="")
    assert all(each.codes.any() for each in MATMUL.operands(other))
    assert choose_discriminating_seed(other, MATMUL, target("emulated:sm_90")) == other


def test_a_described_case_of_two_equal_elements_is_fed_others(tmp_path: Path) -> None:
    """Twice two equal integers passes a kernel that takes either: a user's simplest test would be inconclusive."""
    path, machine = tmp_path / "test_twice.py", target("emulated:sm_90")
    path.write_text(
        "import bitverdict as bv\n\n\n@bv.judged(reference=lambda xp, x: x * 2)\n"
        "def test_twice(draw):\n    return draw.tensor('fp32', (draw.size(2, 9),)) * 2\n"
    )
    contract = resolve(f"{path}:test_twice")
    small = next(each for each in contract.required(machine) if contract.operands(each)[0].codes.size == 2)
    seeds = [replace(small, regime="integers", data_seed=seed) for seed in range(99)]
    equal = next(each for each in seeds if len(set(contract.operands(each)[0].codes.tolist())) == 1)
    other = choose_discriminating_seed(equal, contract, machine)
    assert len(set(contract.operands(other)[0].codes.tolist())) == 2
