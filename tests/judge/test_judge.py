"""Contract under test: one judge gives every outcome its name, and holds it against what is expected."""

from __future__ import annotations

import inspect

import pytest
import torch
from triton import knobs

from bitverdict.harness.judge.devices import device_of
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import BESIDE_BUCKETS, REFUSED_BY, Decision, Outcome, Verdict
from bitverdict.kernels.features import Feature
from tests.support.vector_add import ADDRESS, HOST, Problem, VectorAdd, case


def test_a_right_launch_passes_with_every_word_counted() -> None:
    verdict = judge(case(100), HOST)
    assert (verdict.decision, verdict.outcome, verdict.words) == (Decision.PASS, Outcome.PASS, 100)
    assert verdict.basis.startswith("exact")


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
def test_each_fault_fails_by_its_name(fault: str, outcome: Outcome) -> None:
    verdict = judge(case(100, fault=fault), HOST)
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, outcome), verdict


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


def test_a_refusal_that_is_expected_is_a_pass_and_its_absence_a_failure() -> None:
    class Permissive(VectorAdd):
        def launch(self, case, tensors, launcher):
            return {"c": tensors["a"]}

    refused = Case(contract=ADDRESS, problem=Problem(n=-1), config="torch")
    assert judge(refused, HOST).decision is Decision.PASS
    ran = judge(refused, HOST, Permissive())
    assert (ran.decision, ran.outcome) == (Decision.FAIL, Outcome.NOT_REFUSED)


def test_running_out_of_memory_is_inconclusive() -> None:
    assert judge(case(100, fault="memory"), HOST).decision is Decision.INCONCLUSIVE


def test_a_target_without_the_feature_is_not_run_and_the_feature_is_named() -> None:
    verdict = judge(case(100), HOST, VectorAdd(requires=frozenset({Feature.TCGEN05})))
    assert (verdict.decision, verdict.message) == (Decision.NOT_RUN, "host lacks tcgen05.mma") and not verdict.details


def test_a_launcher_refused_where_a_feature_lacks_says_who_refused() -> None:
    asked = case(100, fault="refuse", launcher="tests.support.vector_add:add_off_by_one")
    verdict = judge(asked, HOST, VectorAdd(requires=frozenset({Feature.TCGEN05})))
    assert verdict.decision is Decision.NOT_RUN and verdict.message.startswith("host lacks tcgen05.mma: ")
    assert verdict.details == {REFUSED_BY: "launcher"}


def test_a_verdict_goes_through_json_and_its_seconds_add_up() -> None:
    verdict = judge(case(100, fault="wrong"), HOST)
    assert Verdict.from_json(verdict.to_json()) == verdict
    parts = {name: spent for name, spent in verdict.seconds.items() if name not in BESIDE_BUCKETS}
    assert abs(sum(parts.values()) - verdict.seconds["total"]) < 1e-4


def test_a_signature_holds_for_other_sizes_and_data() -> None:
    one, other = judge(case(100, fault="wrong"), HOST), judge(case(57, fault="wrong", data_seed=9), HOST)
    assert one.signature == other.signature != judge(case(57, fault="stray"), HOST).signature


def test_a_users_launcher_is_judged_by_the_same_mathematics() -> None:
    launcher = "tests.support.vector_add:add_off_by_one"
    assert judge(case(4, launcher=launcher), HOST).decision is Decision.PASS
    assert judge(case(5, launcher=launcher), HOST).outcome is Outcome.WRONG_WORDS


class Kernel(VectorAdd):
    """Its result is expected by a kernel."""

    must_launch = True


def test_right_words_without_a_launch_are_inconclusive_about_a_kernel() -> None:
    verdict = judge(case(4), HOST, Kernel())
    assert (verdict.decision, verdict.outcome, verdict.words) == (Decision.INCONCLUSIVE, Outcome.INCONCLUSIVE, 0)
    assert verdict.message.startswith("no Triton kernel was launched")
    assert judge(case(0), HOST, Kernel()).decision is Decision.PASS  # nothing to compute, nothing to launch
    assert judge(case(100, fault="wrong"), HOST, Kernel()).outcome is Outcome.WRONG_WORDS


def test_a_launch_on_hardware_is_seen_by_tritons_hook() -> None:
    class Launched(Kernel):
        def launch(self, case, tensors, launcher):
            knobs.runtime.launch_enter_hook({"name": "as the driver's launcher calls it"})
            return super().launch(case, tensors, launcher)

    before = list(knobs.runtime.launch_enter_hook.calls)
    assert judge(case(4), HOST, Launched()).decision is Decision.PASS
    assert knobs.runtime.launch_enter_hook.calls == before
    from triton.backends.nvidia import driver

    assert "launch_enter_hook" in inspect.getsource(driver)  # CudaLauncher, on 3.6 the C that is made for it


def test_a_launch_on_an_emulated_target_is_seen() -> None:
    launched = Case(contract=ADDRESS, problem=Problem(n=4), config="triton")
    assert judge(launched, target("emulated:sm_80"), Kernel()).decision is Decision.PASS
    assert judge(case(4), target("emulated:sm_80"), Kernel()).decision is Decision.INCONCLUSIVE


def test_another_dtype_of_the_same_width_fails_by_its_name() -> None:
    class Integers(VectorAdd):
        def launch(self, case, tensors, launcher):
            return {"c": super().launch(case, tensors, launcher)["c"].view(torch.int32)}

    verdict = judge(case(4), HOST, Integers())
    assert (verdict.outcome, verdict.message) == (Outcome.WRONG_SHAPE, "c: dtype torch.int32, expected torch.float32 (fp32)")


def test_on_hardware_the_judged_launch_comes_after_the_one_that_tunes() -> None:
    class Machine(type(HOST)):
        @property
        def emulated(self) -> bool:
            return False

    device_of.register(Machine, lambda target: torch.device("cpu"))

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


class OutOfMemoryError(RuntimeError):
    """As torch.OutOfMemoryError, by name and text."""


class OutOfResources(RuntimeError):
    """As Triton's, by name: a kernel that asks for more shared memory than there is."""


TORCH_SAYS = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB of which 5.25 GiB is free. "
    "Process 7 has 130 GiB memory in use."
)
SHORT = (
    (OutOfMemoryError(TORCH_SAYS), "on the GPU (20.00 GiB requested, 5.25 GiB free)", "BITVERDICT_GPU_SLOTS"),
    (RuntimeError("Triton Error [CUDA]: out of memory"), "on the GPU", "--jobs"),
    (RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"), "on the GPU", "--jobs"),
    (MemoryError("Unable to allocate 8.00 TiB for an array"), "on the host (8.00 TiB requested)", "a smaller case"),
    (RuntimeError("CPUAllocator: can't allocate memory: you tried to allocate 4 bytes."), "4 bytes requested", "pytest -n"),
    (OSError(12, "Cannot allocate memory"), "on the host", "--jobs"),
)


class Short(VectorAdd):
    """Its first `times` launches raise `error`."""

    def __init__(self, error: Exception, times: int) -> None:
        super().__init__()
        self.error, self.times, self.launches = error, times, 0

    def launch(self, case, tensors, launcher):
        self.launches += 1
        if self.launches <= self.times:
            raise self.error
        return super().launch(case, tensors, launcher)


@pytest.mark.parametrize(("error", "said", "remedy"), SHORT, ids=lambda value: type(value).__name__)
def test_memory_that_stays_short_is_inconclusive_and_says_the_remedy(error: Exception, said: str, remedy: str) -> None:
    contract = Short(error, times=2)
    verdict = judge(case(100), HOST, contract)
    assert (verdict.decision, verdict.outcome, verdict.basis) == (Decision.INCONCLUSIVE, Outcome.OUT_OF_MEMORY, "nothing")
    assert said in verdict.message and remedy in verdict.message and contract.launches == 2
    assert "says nothing about the kernel" in verdict.message  # with the free memory before it where a GPU is


@pytest.mark.parametrize("error", [error for error, *_ in SHORT], ids=lambda value: type(value).__name__)
def test_memory_that_was_short_once_is_tried_again_and_judged(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[None] = []
    monkeypatch.setattr("bitverdict.harness.judge.launch.free_memory", lambda: freed.append(None))
    verdict = judge(case(100), HOST, Short(error, times=1))
    assert (verdict.decision, verdict.words, len(freed)) == (Decision.PASS, 100, 1)


def test_memory_short_for_the_reference_is_inconclusive_either() -> None:
    class Greedy(VectorAdd):
        def expected(self, case, target, operands, recorded):
            raise MemoryError("Unable to allocate 9.00 GiB for an array")

    verdict = judge(case(100), HOST, Greedy())
    assert (verdict.decision, verdict.outcome) == (
        Decision.INCONCLUSIVE,
        Outcome.OUT_OF_MEMORY,
    ) and "9.00 GiB requested" in verdict.message


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (OutOfResources("out of resource: shared memory, Required: 300000, Hardware limit: 232448"), Outcome.OUT_OF_RESOURCES),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), Outcome.ILLEGAL_ADDRESS),
        (RuntimeError("ran out of patience"), Outcome.LAUNCHER_ERROR),
    ],
    ids=str,
)
def test_what_only_resembles_short_memory_fails_at_once(error: Exception, outcome: Outcome) -> None:
    contract = Short(error, times=1)
    verdict = judge(case(100), HOST, contract)
    assert (verdict.decision, verdict.outcome, contract.launches) == (Decision.FAIL, outcome, 1)
