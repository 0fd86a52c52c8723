"""Contract under test: each configuration of a launcher's autotuner is judged, and its first call with the tuning runs too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bitverdict.harness.frontends.main import main
from bitverdict.harness.judge.first_launch import LauncherTraits
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.contract import Tile
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.harness.session.case_source import CaseSource
from tests.faults.mutants import replaced_once
from tests.support.judged_launcher import judged

CHECKOUT = Path(__file__).resolve().parents[2]
SPLIT = (CHECKOUT / "tests" / "support" / "tuned_matmul.py").read_text()
RESET = ', reset_to_zero=["c_ptr"]'
KINDS = ("config 0", "config 1", "config 2", "runs")


def edited(old: str, new: str) -> str:
    return replaced_once(SPLIT, old, new, "tuned_matmul")


def outcomes(text: str, directory: Path) -> dict[str, Outcome]:
    return {tuning: judged(text, directory, tuning=tuning).outcome for tuning in KINDS}


def test_a_right_tuner_is_right_in_each_configuration_and_its_first_call(tmp_path: Path) -> None:
    assert outcomes(SPLIT, tmp_path) == dict.fromkeys(KINDS, Outcome.PASS)


def test_a_missing_reset_shows_in_the_first_call_alone(tmp_path: Path) -> None:
    found = outcomes(edited(RESET, ""), tmp_path)
    assert found == dict.fromkeys(KINDS[:3], Outcome.PASS) | {"runs": Outcome.WRONG_MATHEMATICS}


def test_a_reset_in_place_of_the_launchers_own_shows_in_each_later_call(tmp_path: Path) -> None:
    found = outcomes(edited("torch.zeros((M, N)", "torch.empty((M, N)"), tmp_path)
    assert found == dict.fromkeys(KINDS[:3], Outcome.WRONG_MATHEMATICS) | {"runs": Outcome.PASS}


@pytest.mark.share(4)
def test_a_configuration_that_is_wrong_fails_when_its_turn_comes(tmp_path: Path) -> None:
    wrong = edited("offs_k = k + tl.arange(0, BLOCK_K)\n", "offs_k = k + tl.arange(0, BLOCK_K) % 32\n")
    assert outcomes(wrong, tmp_path)["config 2"] is Outcome.WRONG_MATHEMATICS
    assert {outcome for tuning, outcome in outcomes(wrong, tmp_path).items() if tuning in KINDS[:2]} == {Outcome.PASS}


def test_a_verdict_tells_which_configuration_it_is_of(tmp_path: Path) -> None:
    told = judged(SPLIT, tmp_path, tuning="config 5").recorded["tuned"]
    assert [(each["kernel"], each["of"], each["took"]) for each in told] == [("split_kernel", 3, 2)]
    assert "BLOCK_K: 64" in told[0]["choice"]


def listed(directory: Path, configurations: int, **of_docket: str) -> Counter:
    (directory / "mine.py").write_text("def matmul(a, b): ...\n")
    shows = LauncherTraits(Tile(32, 32, 32), configurations)
    source = CaseSource(
        "matmul", target("emulated:sm_90"), launcher=f"{directory / 'mine.py'}:matmul", launcher_traits=shows, **of_docket
    )
    return Counter(case.tuning for case in source.required())


def test_every_configuration_has_a_required_case_and_the_runs_one(tmp_path: Path) -> None:
    for configurations in (2, 7, 150):
        tunings = listed(tmp_path, configurations)
        numbers = {int(tuning.split()[1]) % configurations for tuning in tunings if tuning.startswith("config ")}
        assert numbers == set(range(configurations)) and tunings["runs"] == 1
    assert set(listed(tmp_path, 1)) == set(listed(tmp_path, 0)) == {""}
    assert set(listed(tmp_path, 7, tuning="first")) == {"first"}


@pytest.mark.parametrize(("option", "judged_of"), [([], "3 of 3"), (["--first-configuration"], "1 of 3")])
@pytest.mark.share(4)
def test_the_command_tells_how_many_configurations_it_judged(
    option: list[str], judged_of: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    (tmp_path / "mine.py").write_text(SPLIT)
    words = ["--launcher", f"{tmp_path / 'mine.py'}:matmul", "--target", "emulated:sm_90", "--max-cases", "4", "--jobs", "1"]
    assert main(["run", "matmul", *words, *option, "-v"]) == 0
    out = capsys.readouterr().out
    assert f"split_kernel on emulated:sm_90: {judged_of} configurations judged" in out
    assert "the largest sizes judged: mine.py:matmul m=" in out
    assert "matmul: not claimed, so not tested: strides, bf16, fp32, e4m3, int8, activation, out_dtype, far, refusals" in out


def test_the_case_with_the_tuning_runs_fails_a_missing_reset(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(edited(RESET, ""))
    source = CaseSource(
        "matmul", target("emulated:sm_90"), launcher=f"{tmp_path / 'mine.py'}:matmul", launcher_traits=LauncherTraits(None, 3)
    )
    (runs,) = (case for case in source.required() if case.tuning == "runs")
    assert judge(runs, source.target, source.contract).decision is Decision.FAIL
