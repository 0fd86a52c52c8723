"""Contract under test: a run judges the cases that are asked for alone, stops where it is told to, and says what it did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitverdict.harness.frontends.main import main
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import tally
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.profiles import PROFILES
from bitverdict.harness.session.selection import Selection
from bitverdict.harness.session.session import Session
from tests.support.fake_runs import FakePool

ADD = "tests.support.vector_add"
SM_90 = target("emulated:sm_90")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def run(*words: str) -> int:
    asked = ["--target", "emulated:sm_90", "--jobs", "1", "--max-cases", "7", "--shrink-seconds", "0"]
    return main(["run", "--contract", f"{ADD}:WRONG", *asked, *words])


def judged(path: Path) -> list[tuple[int, str]]:
    """(n, decision) of each case in the results of a run."""
    told = [json.loads(line) for line in path.read_text().splitlines()]
    came = [(each["case"]["problem"]["n"], each["verdict"]["decision"]) for each in told if each["event"] == "verdict"]
    return [(n, decision) for n, decision in came if decision != "cancelled"]


def test_a_run_again_judges_what_failed_and_a_printed_case(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    results = tmp_path / "run.jsonl"
    assert run("--lf") == 5
    assert capsys.readouterr().out == f"--lf: no case of {ADD}:WRONG failed in its last run; leave --lf out\n"
    assert run("--json", str(results)) == 1
    failed = [n for n, decision in judged(results) if decision == "fail"]
    out = capsys.readouterr().out
    assert 0 < len(failed) < 7
    assert run("--lf", "--json", str(results)) == 1
    assert sorted(n for n, _ in judged(results)) == sorted(failed)
    assert f"chosen for --lf: {len(failed)} cases that every run judges" in capsys.readouterr().out
    (line,) = [line.strip() for line in out.splitlines() if line.startswith("  case: ")]
    assert run("--case", line, "--json", str(results)) == 1
    assert judged(results) == [(63, "fail")] and line in capsys.readouterr().out
    assert run("-x", "-k", "not n=0", "--json", str(results)) == 1
    assert judged(results) == [(1, "pass"), (63, "fail")]
    assert run("-k", "'wrong words' and n>63", "--json", str(results)) == 1  # by the last run's outcome
    assert {n for n, _ in judged(results)} == {n for n in failed if n > 63}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-k", "fp61"], "error: -k 'fp61': no case has the word 'fp61'; words are values of a case's fields"),
        (["-k", "n=1 and n=0"], "error: -k 'n=1 and n=0': holds for none of 5 required cases; ask for less, or name one by --case"),
        (["-k", "n=("], "error: -k 'n=(': where a value behind n= must be, comes '('"),
        (["--case", "m=3"], "error: --case: m is no field of it; the fields are regime, data_seed"),
        (["--case", "n=3", "--lf"], "error: --case 'n=3': names one case; leave -k and --lf out"),
    ],
)
def test_what_selects_no_case_is_one_line_with_a_remedy(words: list[str], said: str, capsys: pytest.CaptureFixture) -> None:
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_case_is_of_one_kernel(capsys: pytest.CaptureFixture) -> None:
    assert main(["run", "matmul", "small_mma", "--case", "m=1"]) == 2
    assert "has the fields of one kernel; name it, for example: run matmul --case ..." in capsys.readouterr().err


LAUNCHER = """def matmul(a, b): ...
matmul.requires = lambda m, n, k: k % 32 == 0
"""


def test_a_case_that_a_launcher_does_not_take_is_not_moved(tmp_path: Path) -> None:
    """A run of all cases moves it to the nearest that it takes."""
    (tmp_path / "mine.py").write_text(LAUNCHER)
    source = CaseSource("matmul", SM_90, launcher=f"{tmp_path / 'mine.py'}:matmul")
    with pytest.raises(ValueError, match="do not take it; the nearest that they take is 'm=1 n=1 k=32 dtype=fp16"):
        Selection(line="m=1 n=1 k=33").select_cases([source])
    (chosen,) = Selection(line="m=1 n=1 k=64 data_seed=3").select_cases([source])
    (only,) = chosen.required()
    assert (only.problem.k, only.data_seed, only.config, only.launcher) == (64, 3, None, source.launcher)
    with pytest.raises(ValueError, match="regime 'gauss': unknown; use one of normal"):
        Selection(line="m=1 n=1 k=32 regime=gauss").select_cases([source])
    assert chosen.first_case() is None and chosen.drawn(9) == []


def test_generated_cases_are_those_that_an_expression_keeps() -> None:
    (chosen,) = Selection(expression="k>64 and not bf16").select_cases([CaseSource("matmul", SM_90)])
    drawn = chosen.drawn(6)
    assert len(drawn) == 6 and all(case.problem.k > 64 and case.problem.dtype != "bf16" for case in drawn)
    kinds = {case.problem.dtype for case in chosen.required()}
    assert "fp16" in kinds and "bf16" not in kinds and all(case.problem.k > 64 for case in chosen.required())
    sources = [CaseSource("matmul", SM_90), CaseSource("small_mma", SM_90)]
    assert [source.address for source in Selection(expression="small_mma").select_cases(sources)] == ["small_mma"]


def test_no_case_begins_once_one_has_failed() -> None:
    def by_size(case, where):  # type: ignore[no-untyped-def]
        fails = case.problem.n == 64
        return Verdict(decision=Decision.FAIL if fails else Decision.PASS, outcome=Outcome.RACE if fails else Outcome.PASS)

    pools = [FakePool(judged=by_size) for _ in range(2)]
    for pool, until_failure in zip(pools, (True, False)):
        session = Session(pool, PROFILES["quick"], max_cases=5, until_failure=until_failure)
        session.run([CaseSource(f"{ADD}:CONTRACT", SM_90)])
        assert session.tally.status() == tally.FAIL
    first = [case.problem.n for case in pools[0].asked]
    assert (
        first[:4] == [0, 1, 63, 64]
        and 65 not in first[:5]
        and [case.problem.n for case in pools[1].asked][:5] == [0, 1, 63, 64, 65]
    )
