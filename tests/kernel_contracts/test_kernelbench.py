"""Contract under test: a KernelBench candidate is held to the mathematics of the problem's Model, at other sizes too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.contracts.torch_mathematics.kernelbench import KernelBenchContract, address_of, contract_of
from bitverdict.harness.contracts.torch_mathematics.problem_file import ProblemFile
from bitverdict.harness.frontends.main import main
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from tests.faults.mutants import replaced_once
from tests.support.kernelbench.constant import NUMBERS, text
from tests.support.shares import in_this_run

HERE = Path(__file__).resolve().parents[1] / "support" / "kernelbench"
PROBLEMS = sorted((HERE / "problems").glob("*.py"))
HOPPER = target("emulated:sm_90")


def _judged(problem: Path, candidate: Path, place: int = 1, calls: int = 1) -> Verdict:
    """The verdict on one required case; 1: other sizes than the problem's own."""
    contract = contract_of(str(problem))
    case = replace(contract.required(HOPPER)[place], calls=calls)
    return judge(replace(case, launcher=f"{candidate}:ModelNew"), HOPPER, contract)


@pytest.mark.parametrize(
    ("problem", "number"),
    [(problem, number) for problem in PROBLEMS for number in NUMBERS if in_this_run(f"{problem.stem} {number}", 8, in_ci=3)],
)
def test_a_constant_output_fails(problem: Path, number: str, tmp_path: Path) -> None:
    """benchmarks/kernelbench.py asks every problem for both constants; the profile quick an eighth."""
    candidate = tmp_path / "candidate.py"
    candidate.write_text(text(problem.read_text(), number))
    found = _judged(problem, candidate)
    assert (found.decision, found.outcome) in (
        (Decision.FAIL, Outcome.OUTSIDE_BOUND), (Decision.FAIL, Outcome.WRONG_WORDS), (Decision.FAIL, Outcome.WRONG_MATHEMATICS)
    )  # fmt: skip
    assert "explanation failed" not in found.details


def test_a_right_candidate_passes_and_a_wrong_one_fails(tmp_path: Path) -> None:
    problem, right = HERE / "problems" / "softmax.py", HERE / "candidates" / "softmax.py"
    assert _judged(problem, right, place=0).decision is Decision.PASS
    wrong = tmp_path / "wrong.py"
    wrong.write_text(replaced_once(right.read_text(), 'other=-float("inf")', "other=0.0", "softmax"))
    found = _judged(problem, wrong, place=0)  # 200 columns in a block of 256
    assert found.failed and found.outcome in (Outcome.WRONG_MATHEMATICS, Outcome.OUTSIDE_BOUND)
    assert "rows that zeros fill from 200 up to 256" in found.details["cause"], found.details


_CONSTRUCTED = "self.norm = nn.LayerNorm(features)"
_FOLDED = f"{_CONSTRUCTED}; self.folded = [self.norm.weight.detach() * 1, self.norm.bias.detach() * 1]"
_OWN = "self.norm = nn.Module(); self.norm.eps = 1e-5; self.w = nn.Parameter(torch.ones(features)); self.b = torch.zeros(features)"


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({}, True),
        ({"rstd * w + b": "rstd"}, False),
        ({"rstd * w + b": "rstd * w"}, False),
        ({"rstd * w + b": "rstd + b"}, False),
        ({_CONSTRUCTED: "self.norm = nn.LayerNorm(features, elementwise_affine=False)",
          "norm.weight, norm.bias": "x, x", "rstd * w + b": "rstd"}, False),
        ({_CONSTRUCTED: _FOLDED, "norm.weight, norm.bias": "*[each.to(x.device) for each in self.folded]"}, True),
        ({_CONSTRUCTED: _OWN, "norm.weight, norm.bias": "self.w, self.b.to(x.device)"}, True),
        ({_CONSTRUCTED: _OWN, "norm.weight, norm.bias": "self.w, self.b.to(x.device)", "rstd * w + b": "rstd * w + 1"}, False),
    ],
)  # fmt: skip
def test_weights_that_begin_as_ones_and_zeros_are_drawn(changes: dict[str, str], passes: bool, tmp_path: Path) -> None:
    """For a candidate that has no tensors beside them: others may be made of them when it is constructed, and stay as they were."""
    text_of_it = (HERE / "candidates" / "layer_norm.py").read_text()
    for old, new in changes.items():
        text_of_it = replaced_once(text_of_it, old, new, "layer_norm")
    candidate = tmp_path / "candidate.py"
    candidate.write_text(text_of_it)
    found = _judged(HERE / "problems" / "layer_norm.py", candidate)
    assert (found.decision is Decision.PASS) == passes and found.decision in (Decision.PASS, Decision.FAIL), found.message


def test_the_order_of_a_candidates_sum_is_recovered() -> None:
    contract = contract_of(str(HERE / "problems" / "sum_over_dimension.py"))
    launcher = f"{HERE / 'candidates' / 'sum_over_dimension.py'}:ModelNew"
    verdict = judge(replace(contract.required(HOPPER)[0], launcher=launcher, recover_order=True), HOPPER, contract)
    assert verdict.details["order of sums"] == "out: 24 terms: 24 terms one after another, ascending"


@pytest.mark.parametrize(
    ("kept", "outcome"),
    [
        ("y = self.__dict__.setdefault('kept', y)", Outcome.MEMORY_RETURNED),
        ("y = self.__dict__.setdefault(x.data_ptr(), y).clone()", Outcome.UNCHANGED),
        ("y.copy_(self.__dict__.setdefault('kept', torch.empty_like(y)).copy_(y))", Outcome.PASS),
    ],
)
def test_a_later_call_is_one_of_the_same_object(kept: str, outcome: Outcome, tmp_path: Path) -> None:
    candidate = tmp_path / "keeps.py"
    text_of_it = (HERE / "candidates" / "relu.py").read_text()
    candidate.write_text(replaced_once(text_of_it, "        return y\n", f"        {kept}\n        return y\n", "relu"))
    found = _judged(HERE / "problems" / "relu.py", candidate, calls=3)
    assert found.outcome is outcome, found.message


def test_a_candidate_without_a_kernel_is_inconclusive(tmp_path: Path) -> None:
    problem = HERE / "problems" / "relu.py"
    candidate = tmp_path / "no_kernel.py"
    candidate.write_text(problem.read_text() + "\n\nModelNew = Model\n")
    found = _judged(problem, candidate)
    assert found.decision is Decision.INCONCLUSIVE and "no Triton kernel" in found.message


@pytest.mark.parametrize(
    ("formula", "told"),
    [("torch.linalg.svdvals(x)", "svd"), ("torch.max_pool2d(x[None], 3, ceil_mode=True)[0]", "max_pool with ceil_mode")],
)
def test_what_cannot_be_traced_is_inconclusive_by_its_name(formula: str, told: str, tmp_path: Path) -> None:
    """An operator without a rule, and a form of one that has a rule."""
    file = replaced_once((HERE / "problems" / "relu.py").read_text(), "return torch.relu(x)", f"return {formula}", "relu")
    problem = tmp_path / "problem.py"
    problem.write_text(file)
    found = _judged(problem, HERE / "candidates" / "relu.py")
    assert found.decision is Decision.INCONCLUSIVE and told in found.message, found.message


def test_cases_take_the_problem_at_other_sizes_that_its_model_allows() -> None:
    contract = contract_of(str(HERE / "problems" / "attention.py"))
    cases = contract.required(HOPPER)
    assert vars(cases[0].problem) == dict(contract.file.numbers)
    assert len({case.problem for case in cases}) == len(cases) >= 4
    assert all(contract.allows(vars(case.problem), HOPPER) for case in cases)


def test_sizes_that_the_model_refuses_are_no_case(tmp_path: Path) -> None:
    file = (HERE / "problems" / "relu.py").read_text()
    problem = tmp_path / "problem.py"
    problem.write_text(replaced_once(file, "torch.relu(x)", "torch.relu(x.view(batch_size, 8, dim // 8))", "relu"))
    contract = contract_of(str(problem))
    assert contract.allows({"batch_size": 3, "dim": 64}, HOPPER)
    assert not contract.allows({"batch_size": 3, "dim": 33}, HOPPER)
    assert not contract.allows({"batch_size": 3, "dim": 1 << 20}, HOPPER)  # too large for an emulated GPU
    assert all(case.problem.dim % 8 == 0 for case in contract.required(HOPPER))


def test_a_case_goes_through_json() -> None:
    contract = contract_of(str(HERE / "problems" / "matrix_vector.py"))
    case = contract.required(HOPPER)[1]
    assert contract.case_from_json(case.to_json()) == case
    with pytest.raises(UsageError, match=r"has 'P'.*has M, K"):
        contract.case_from_json(case.to_json() | {"problem": {"P": 3}})
    with pytest.raises(UsageError, match="integer"):
        contract.case_from_json(case.to_json() | {"problem": {"M": "many"}})


def test_an_address_leads_to_the_problem() -> None:
    path = str(HERE / "problems" / "relu.py")
    assert resolve(address_of(path)) is contract_of(path)
    assert isinstance(resolve(address_of(path)), KernelBenchContract)


def test_a_file_that_is_no_problem_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.py"
    file.write_text("def get_inputs():\n    return []\n")
    with pytest.raises(UsageError, match="has no Model, get_init_inputs"):
        ProblemFile.read(str(file))
    with pytest.raises(UsageError, match="cannot be read"):
        ProblemFile.read(str(tmp_path / "none.py"))


@pytest.mark.share(4)
def test_the_command_refuses_a_candidate_without_the_class(capsys: pytest.CaptureFixture[str]) -> None:
    problem = str(HERE / "problems" / "relu.py")
    assert main(["kernelbench", problem, problem]) == 2
    assert "has no ModelNew" in capsys.readouterr().err
