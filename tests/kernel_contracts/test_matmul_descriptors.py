"""Contract under test: tiles that matmul brings by tensor descriptors give the words that its pointers give, on every target that
has TMA and under every schedule; the autotuner tries them only where a tensor map can be made, and asked for elsewhere they are
refused with the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton.testing

import bitverdict.kernels.matmul
import bitverdict.kernels.matmul_descriptors
from bitverdict.harness.emulator import emulated
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.kernels.matmul import HOPPER_CONFIGS, Problem, View
from bitverdict.kernels.matmul_descriptors import descriptors_of
from tests.faults.mutants import Mutant, mutant_contract, once, replaced_once

SMALL = replace(HOPPER_CONFIGS[0], block_m=64, block_n=64, block_k=32, group_m=2, num_warps=4)
KINDS = [("fp16", "row"), ("fp16", "column"), ("bf16", "row"), ("e4m3", "column"), ("int8", "column"), ("fp32", "column")]


def case(dtype: str = "fp16", order: str = "row", **fields: object) -> Case:
    problem = Problem(m=150, n=144, k=112, dtype=dtype, out="int32" if dtype == "int8" else "fp32", b=View(order=order))
    return Case(**({"contract": "matmul", "problem": problem, "config": SMALL, "data_seed": 4} | fields))  # type: ignore[arg-type]


@pytest.mark.share(3)
@pytest.mark.parametrize("schedule", ["latest", "drawn:3"])
@pytest.mark.parametrize(("dtype", "order"), KINDS)
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_described_tiles_give_the_plans_words(arch: str, dtype: str, order: str, schedule: str) -> None:
    """Ragged in all three sizes: zeros from outside stand for masked elements."""
    verdict = judge(case(dtype, order, schedule=schedule), target(f"emulated:{arch}"))
    assert (verdict.decision, verdict.words) == (Decision.PASS, 150 * 144), verdict.message


@pytest.mark.share(4)
def test_each_configuration_for_hopper_is_right_at_its_own_size() -> None:
    for config in HOPPER_CONFIGS:
        problem = Problem(m=config.block_m + 8, n=config.block_n + 8, k=3 * config.block_k)
        verdict = judge(case(config=config, problem=problem), target("emulated:sm_90"))
        assert verdict.decision is Decision.PASS, (config.name, verdict.message)


@pytest.mark.parametrize(
    ("arch", "fields"),
    [
        ("sm_80", {}),
        ("sm_90", {"k": 113}),
        ("sm_90", {"n": 150}),
        ("sm_90", {"a": View(order="column")}),
        ("sm_90", {"a": View(offset=1)}),
        ("sm_90", {"b": View(step=2)}),
        ("sm_90", {"dtype": "e4m3"}),
    ],
)
def test_descriptors_that_cannot_be_made_are_refused_by_rule(arch: str, fields: dict) -> None:
    where, asked = target(f"emulated:{arch}"), Problem(**({"m": 64, "n": 80, "k": 112, "out": "fp32"} | fields))
    verdict = judge(Case(contract="matmul", problem=asked, config=SMALL), where)
    assert verdict.outcome is Outcome.REFUSED and "tma" in verdict.message and "pointers" in verdict.message, verdict


def test_the_autotuner_tries_descriptors_only_where_they_can_be_made() -> None:
    tried = {
        described: {str(c) for c in bitverdict.kernels.matmul._tuner("cuda", described).configs} for described in (True, False)
    }
    assert len(tried[True] - tried[False]) >= len(HOPPER_CONFIGS)
    assert not any("DESCRIBED: True" in config for config in tried[False])
    with emulated("sm_90"):
        a, b = torch.zeros(64, 112), torch.zeros(112, 80)
        halves = a.half(), b.half()
        assert None not in descriptors_of(*halves) + descriptors_of(a, b.T.contiguous().T)
        empty = a.half()[:0], a.half()[:, :0]  # no tensor map has a size of 0
        for left, right in ((a.half()[:, 1:], b.half()[1:]), (a, b), (a.half().T.contiguous().T, b.half()),
                            (empty[0], b.half()), (empty[1], b.half()[:0])):  # fmt: skip
            assert descriptors_of(left, right) == (None, None)
    with emulated("sm_80"):
        assert descriptors_of(*halves) == (None, None)


def test_a_small_product_is_tuned_through_a_graph_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events around a lone launch of a small product time the host, alike for every tile."""
    took: list[str] = []

    class Gpu:
        get_benchmarker = staticmethod(lambda: triton.testing.do_bench)

    def graph(call: Callable, rep: int, quantiles: tuple) -> list[float]:
        took.append("graph")
        assert len(quantiles) == 3
        return [call()]

    monkeypatch.setattr(triton.testing, "do_bench_cudagraph", graph)
    with monkeypatch.context() as at:
        at.setattr(bitverdict.kernels.matmul.driver, "_active", Gpu())
        tuner = bitverdict.kernels.matmul._tuner("cuda", True, True)
        assert tuner._do_bench(lambda: 7.0, quantiles=(0.5, 0.2, 0.8)) == [7.0] and took == ["graph"]
    for other in (("cuda", True, False), ("hip", False, True)):
        assert bitverdict.kernels.matmul._tuner(*other)._do_bench is None
    with emulated("sm_90"):  # a model of a GPU keeps its own
        assert tuner._do_bench(lambda: took.append("model"), quantiles=(0.5,)) == [1.0] * 3 and set(took[1:]) == {"model"}


def test_a_product_counts_as_small_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, tuner = [], bitverdict.kernels.matmul._tuner

    def watched(backend: str, described: bool = False, small: bool = False) -> object:
        asked.append(small)
        return tuner(backend, described, small)

    monkeypatch.setattr(bitverdict.kernels.matmul, "_tuner", watched)
    assert bitverdict.kernels.matmul.SMALL_PRODUCT == 2048**3
    for bound in (64 * 80 * 112, 64 * 80 * 112 - 1):
        monkeypatch.setattr(bitverdict.kernels.matmul, "SMALL_PRODUCT", bound)
        with emulated("sm_90", tuning="first"):
            bitverdict.kernels.matmul.matmul(torch.zeros(64, 112).half(), torch.zeros(112, 80).half())
    assert asked == [True, False]


@pytest.mark.parametrize(
    ("replace_text", "by"),
    [
        ("a_tiles.load([tile_row * BLOCK_M, block * BLOCK_K])", "a_tiles.load([block * BLOCK_K, tile_row * BLOCK_M])"),
        ("b_tiles.load([block * BLOCK_K, tile_column * BLOCK_N])", "b_tiles.load([block * BLOCK_K, tile_row * BLOCK_N])"),
        ("a_tiles.load([tile_row * BLOCK_M, block * BLOCK_K])", "a_tiles.load([tile_row * BLOCK_M, block * BLOCK_K + 8])"),
    ],
)
def test_a_wrong_place_of_a_described_tile_fails(
    replace_text: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is in the file of the described form, which the mutated matmul takes instead of ours."""
    source, name = Path(bitverdict.kernels.matmul_descriptors.__file__).read_text(), f"misplaced_{abs(hash(by))}"
    (tmp_path / f"{name}.py").write_text(replaced_once(source, replace_text, by, "matmul_descriptors"))
    monkeypatch.syspath_prepend(str(tmp_path))
    taken = "from bitverdict.kernels.matmul_descriptors import"
    mutant = Mutant(kernel="matmul", name="wrong place", edits=once(taken, f"from {name} import"), expected=("wrong words",))
    verdict = judge(case(), target("emulated:sm_90"), mutant_contract(mutant, tmp_path))
    assert verdict.outcome is Outcome.WRONG_WORDS, verdict.message


def test_boxes_of_another_configuration_fail(tmp_path: Path) -> None:
    boxes = "is_turned(b), **_meta({})}})".format
    edits = once(boxes("config"), boxes("CONFIGS['cuda'][0]"))
    mutant = Mutant(kernel="matmul", name="boxes of another tile", edits=edits, expected=("refused", "wrong words"))
    assert judge(case(), target("emulated:sm_90"), mutant_contract(mutant, tmp_path)).decision is Decision.FAIL
