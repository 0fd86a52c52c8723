"""Contract under test: one judge gives every outcome its name, and holds it against what is owed."""

from __future__ import annotations

import pytest
import torch

from harness.contract import Case
from harness.judge import judge
from harness.verdict import Outcome, Ruling, Verdict
from kernels.features import Feature
from tests.harness_checks.vector_add import ADDRESS, HOST, Problem, VectorAdd, case


def test_a_right_launch_is_acquitted_with_every_word_counted() -> None:
    verdict = judge(case(100), HOST)
    assert (verdict.ruling, verdict.outcome, verdict.words) == (Ruling.RIGHT, Outcome.RIGHT, 100)
    assert verdict.rests_on.startswith("exact")


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("wrong", Outcome.WRONG_WORDS),
        ("sign", Outcome.WRONG_WORDS),
        ("unwritten", Outcome.WRONG_WORDS),
        ("stray", Outcome.STRAY_WRITE),
        ("before", Outcome.STRAY_WRITE),
        ("input", Outcome.INPUT_CHANGED),
        ("refuse", Outcome.REFUSED),
        ("raise", Outcome.LAUNCHER_ERROR),
    ],
)
def test_each_fault_is_convicted_by_its_name(fault: str, outcome: Outcome) -> None:
    verdict = judge(case(100, fault=fault), HOST)
    assert (verdict.ruling, verdict.outcome) == (Ruling.CONVICTED, outcome), verdict


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("unwritten", "never written"),
        ("stray", "8 bytes past its end"),
        ("before", "12 bytes before its start"),
        ("input", "at [99]"),
        ("wrong", "first at [50]"),
        ("refuse", "come back tomorrow"),
    ],
)
def test_the_message_says_where(fault: str, said: str) -> None:
    assert said in judge(case(100, fault=fault), HOST).message


def test_a_refusal_that_is_owed_is_an_acquittal_and_its_absence_a_conviction() -> None:
    class Permissive(VectorAdd):
        def launch(self, case, tensors, launcher):
            return {"c": tensors["a"]}

    refused = Case(contract=ADDRESS, problem=Problem(n=-1), config="torch")
    assert judge(refused, HOST).ruling is Ruling.RIGHT
    ran = judge(refused, HOST, Permissive())
    assert (ran.ruling, ran.outcome) == (Ruling.CONVICTED, Outcome.NOT_REFUSED)


def test_running_out_of_memory_decides_nothing() -> None:
    assert judge(case(100, fault="memory"), HOST).ruling is Ruling.UNDECIDED


def test_a_target_without_the_feature_is_not_run_and_the_feature_is_named() -> None:
    verdict = judge(case(100), HOST, VectorAdd(requires=frozenset({Feature.TCGEN05})))
    assert (verdict.ruling, verdict.message) == (Ruling.NOT_RUN, "host lacks tcgen05.mma")


def test_a_verdict_goes_through_json_and_its_seconds_add_up() -> None:
    verdict = judge(case(100, fault="wrong"), HOST)
    assert Verdict.from_json(verdict.to_json()) == verdict
    parts = {name: spent for name, spent in verdict.seconds.items() if name != "total"}
    assert abs(sum(parts.values()) - verdict.seconds["total"]) < 1e-4


def test_a_signature_holds_for_other_sizes_and_data() -> None:
    one, other = judge(case(100, fault="wrong"), HOST), judge(case(57, fault="wrong", data_seed=9), HOST)
    assert one.signature == other.signature != judge(case(57, fault="stray"), HOST).signature


def test_a_users_launcher_is_judged_by_the_same_mathematics() -> None:
    launcher = "tests.harness_checks.vector_add:add_off_by_one"
    assert judge(case(4, launcher=launcher), HOST).ruling is Ruling.RIGHT
    assert judge(case(5, launcher=launcher), HOST).outcome is Outcome.WRONG_WORDS


def test_on_hardware_the_launch_that_is_judged_comes_after_the_one_that_tunes() -> None:
    class Machine(type(HOST)):
        @property
        def emulated(self) -> bool:
            return False

        @property
        def device(self) -> torch.device:
            return torch.device("cpu")

    class Tuned(VectorAdd):
        """Writes its first half in its first launch only, as an autotuner's losing candidate may."""

        launches = 0

        def launch(self, case, tensors, launcher):
            self.launches += 1
            c = torch.empty_like(tensors["b"])  # (n,)
            c[50:] = (tensors["a"] + tensors["b"])[50:]
            if self.launches == 1:
                c[:50] = (tensors["a"] + tensors["b"])[:50]
            return {"c": c}

    contract = Tuned()
    verdict = judge(Case(contract=ADDRESS, problem=Problem(n=100)), Machine("cuda:0", "sm_90", 0), contract)
    assert contract.launches == 2 and "50 of them never written" in verdict.message
