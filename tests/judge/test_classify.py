"""Contract under test: what the harness raises by its own fault is an error; what the launcher raises counts against it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch.nn.attention.flex_attention import flex_attention

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.frontends.main import main
from bitverdict.harness.judge.classify import outcome_of, raised_by
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.session import reproducers
from tests.support.vector_add import ADDRESS, HOST, Problem, VectorAdd, add, case

CHECKOUT = Path(__file__).resolve().parents[2]
SM_90 = target("emulated:sm_90")


def code_at(file: str, body: str) -> Callable:
    """A function whose one frame lies in `file`, relative to the checkout, and which runs `body`."""
    names: dict = {"np": np, "torch": torch}
    exec(compile(f"def inserted(*given):\n    {body}\n", str(CHECKOUT / file), "exec"), names)
    return names["inserted"]


class Broken(VectorAdd):
    """Calls `inserted` in the middle of its launch."""

    def __init__(self, inserted: Callable) -> None:
        super().__init__()
        self.inserted = inserted

    def launch(self, case, tensors, launcher):
        self.inserted(tensors["a"])
        return super().launch(case, tensors, launcher)


OURS = [
    "harness/emulator/x.py",
    "harness/emulator/lowerings/x.py",
    "reference/tensor_core/x.py",
    "harness/judge/guarded_buffers.py",
]
THEIRS = ["kernels/x.py", "tests/x.py", "../elsewhere/mine.py"]
RAISED = ["ValueError('x')", "TypeError('x')", "KeyError('x')", "AssertionError('x')", "RuntimeError('x')", "IndexError('x')"]


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("file", OURS)
def test_what_our_rooms_raise_is_an_error_whatever_its_class(file: str, raised: str) -> None:
    verdict = judge(case(), HOST, Broken(code_at(file, f"raise {raised}")))
    assert (verdict.decision, verdict.outcome, verdict.basis) == (Decision.ERROR, Outcome.ERROR, Basis.NO_BASIS)
    room = "emulator" if "emulator" in file else file.partition("/")[0]
    assert verdict.message.startswith(f"the {room} raised {raised.partition('(')[0]}: ")
    assert verdict.location == f"{file}:2" and f"{file}" in "".join(verdict.details["traceback"])


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("file", THEIRS)
def test_what_the_kernels_side_raises_counts_against_it(file: str, raised: str) -> None:
    verdict = judge(case(), HOST, Broken(code_at(file, f"raise {raised}")))
    assert verdict.failed and verdict.outcome in (Outcome.REFUSED, Outcome.LAUNCHER_ERROR)


def test_a_broadcast_that_fails_in_the_emulator_is_no_refusal() -> None:
    """NumPy's error is a ValueError, as a launcher's refusal is."""
    body = "np.ones((2, 3)) + np.ones(4)"
    ours, theirs = (judge(case(), HOST, Broken(code_at(file, body))) for file in ("harness/emulator/x.py", "kernels/x.py"))
    assert (ours.decision, theirs.decision) == (Decision.ERROR, Decision.FAIL)
    assert "could not be broadcast" in ours.message and "could not be broadcast" in theirs.message


def test_the_callers_bad_argument_is_the_callers_and_not_the_emulators() -> None:
    class Elsewhere(VectorAdd):
        def launch(self, case, tensors, launcher):
            return {"c": add(tensors["a"], tensors["b"].to("meta"))}

    launched = Case(contract=ADDRESS, problem=Problem(n=9))
    verdict = judge(launched, SM_90, Elsewhere())
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.REFUSED) and "is on meta" in verdict.message
    asked_for = judge(Case(contract=ADDRESS, problem=Problem(n=9), schedule="sometimes"), SM_90)
    assert asked_for.decision is Decision.ERROR and "schedule 'sometimes': must be" in asked_for.message
    assert judge(launched, SM_90).decision is Decision.PASS


def test_what_torch_refuses_a_launcher_behind_our_guards_is_the_launchers() -> None:
    """Allocations pass through the harness, which puts guard bands around them."""
    verdict = judge(case(), HOST, Broken(code_at("kernels/x.py", "torch.empty((-1,))")))
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.LAUNCHER_ERROR)
    assert "negative dimension" in verdict.message


def narrow(a: torch.Tensor) -> torch.Tensor:
    return a


def test_a_launcher_that_does_not_take_its_operands_is_to_blame() -> None:
    """The call is ours, and so is its frame."""
    verdict = judge(case(launcher=f"{__name__}:narrow"), HOST)
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, Outcome.LAUNCHER_ERROR) and "TypeError" in verdict.message


FAILS = """
from pathlib import Path
from bitverdict.harness.model.paths import EMULATOR
from tests.support.vector_add import VectorAdd

file = EMULATOR / "inserted.py"
exec(compile("def inserted(n):\\n    if n > 64: raise ValueError(f'no rule for {{n}} lanes')", str(file), "exec"))


class Fails(VectorAdd):
    def launch(self, case, tensors, launcher):
        if {broken}:
            inserted(case.problem.n)
        return super().launch(case, tensors, launcher)


CONTRACT = Fails()
CONTRACT.address = __file__ + ":CONTRACT"
"""


@pytest.mark.parametrize(("broken", "status"), [(True, 3), (False, 0)])
def test_a_failing_emulator_gives_status_3_and_stores_its_traceback(
    broken: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    mine = tmp_path / "fails.py"
    mine.write_text(FAILS.format(broken=broken))
    words = ["run", "--contract", f"{mine}:CONTRACT", "--target", "emulated:sm_90", "--max-cases", "5", "--jobs", "1"]
    assert main([*words, "--json", str(tmp_path / "run.jsonl"), "--junit", str(tmp_path / "run.xml")]) == status
    out = capsys.readouterr().out
    if not broken:
        assert "5 pass" in out and not (tmp_path / "state" / "failures").exists()
        return
    assert "ERROR fails.py:CONTRACT on emulated:sm_90, which is no fault of the kernel" in out and "FAIL" not in out
    assert "4 pass, 1 error; 1 case ended in an error, which is no fault of a kernel: the emulator raised ValueError" in out
    assert "<error " in (tmp_path / "run.xml").read_text() and 'errors="1"' in (tmp_path / "run.xml").read_text()
    (stored,) = (tmp_path / "state" / "failures").iterdir()
    told = json.loads(stored.read_text())["verdict"]
    assert "harness/emulator/inserted.py" in "".join(told["details"]["traceback"]) and told["decision"] == "error"
    assert main(["replay", str(stored)]) == 3
    assert "error again: the emulator raised ValueError: no rule for 65 lanes" in capsys.readouterr().out
    mine.write_text(FAILS.format(broken=False))
    assert main(["replay", str(stored)]) == 0
    assert "passes now: it was an error when it was stored" in capsys.readouterr().out


def test_an_error_goes_through_json_and_a_reproducer_unchanged(tmp_path: Path) -> None:
    verdict = judge(case(), HOST, Broken(code_at("harness/emulator/x.py", "raise ValueError('x')")))
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict
    path = reproducers.write(reproducers.reproducer_of(case(), "emulated:sm_90", verdict), tmp_path)
    assert reproducers.read(path).signature == verdict.signature


@triton.jit
def total(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))


def test_a_lowering_that_loses_a_name_is_an_error_and_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyError or an IndexError of a lowering is the emulator's fault, whatever the kernel: a refusal would hide it."""
    from bitverdict.harness.emulator.frontend.lowerings import sums

    monkeypatch.setattr(sums, "_kept_operand", lambda t, op: {}[op.name])
    monkeypatch.setattr("bitverdict.harness.emulator.frontend.kept_translations.load_or_translate", lambda named, make: make())
    monkeypatch.setattr("bitverdict.harness.emulator.device._translations", {})
    with emulated("sm_90"), pytest.raises(KeyError) as raised:
        total[(1,)](torch.ones(64), torch.ones(64), torch.ones(64), 64)
    monkeypatch.setattr("bitverdict.harness.judge.classify.raised_by", lambda error: "emulator")  # here a test has raised it
    seen = outcome_of(raised.value)
    assert (seen.outcome, seen.layer) == (Outcome.ERROR, "emulator") and "KeyError: 'arith.addf'" in seen.message


PACKAGE = """
import torch

@torch.library.custom_op("bitverdict_of_a_package::lacking", mutates_args=())
def lacking(x: torch.Tensor) -> torch.Tensor:
    import nothing_of_that_name
    return x.clone()

class Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, now):
        if now:
            raise LookupError("forward")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise LookupError("backward")

library = torch.library.Library("bitverdict_of_a_package", "FRAGMENT")
library.define("raising(Tensor x) -> Tensor")

def raising(x, *given):
    raise LookupError("in the library's function")

library.impl("raising", raising, "CUDA")
"""
OF_THE_CALLER: dict[str, Callable] = {
    "a custom operator": lambda package, x: torch.ops.bitverdict_of_a_package.lacking(x),
    "a library's function": lambda package, x: torch.ops.bitverdict_of_a_package.raising(x),
    "a forward": lambda package, x: package["Raising"].apply(x, True),
    "a backward": lambda package, x: package["Raising"].apply(x.requires_grad_(), False).sum().backward(),
    "a modified score": lambda package, x: flex_attention(*[x.view(1, 1, 16, 16)] * 3, score_mod=package["raising"]),
    "a gradient of operands that do not fit": lambda package, x: torch.ops.aten.silu_backward(x, x[:3]),
    "a device that is none": lambda package, x: torch.zeros(3, device="nonsense"),
    "a device that is none, of a question": lambda package, x: torch.cuda.get_device_name("nonsense"),
    "a move to a device that is none": lambda package, x: x.to("nonsense"),
    "a type that is none": lambda package, x: x.cpu().to("cuda", "nonsense"),
    "a seed that is none": lambda package, x: torch.Generator("cuda").manual_seed("nonsense"),
    "a state that is none": lambda package, x: torch.Generator("cpu").set_state(torch.zeros(3)),
    "data of another type": lambda package, x: setattr(x, "data", "nonsense"),
    "a copy to the host while a graph is captured": lambda package, x: _capture(lambda: x.cpu()),
}


def _capture(function: Callable) -> None:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        function()


@pytest.mark.parametrize("call", OF_THE_CALLER)
@pytest.mark.parametrize("place", ["site-packages/package.py", "mine.py"])
def test_what_code_raises_that_the_emulated_gpu_calls_is_its_callers(call: str, place: str, tmp_path: Path) -> None:
    """Also where the function that raised lies in an installed package, whose frames count for nobody."""
    package: dict = {}
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False)):
        exec(compile(PACKAGE, str(tmp_path / place), "exec"), package)
        with pytest.raises(Exception, match=r".") as raised:
            OF_THE_CALLER[call](package, torch.ones(256, device="cuda"))
    package["library"]._destroy()
    assert not isinstance(raised.value, EmulatedFault) and raised_by(raised.value) == ""
