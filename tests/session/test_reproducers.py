"""Contract under test: a failing case is stored whole, once per bug, and replays where its files are gone; a bad file says why."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import hypothesis
import pytest
import triton

from bitverdict.harness.frontends.main import main
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.replay import ReplayResult, replay, rerun
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from tests.support.vector_add import HOST, case

LAUNCHER = """
import torch

def add(a, b):
    c = torch.empty_like(a)  # (n,)
    c.copy_(a + b)
    c[-1:] += {error}
    return c
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("bitverdict.harness.session.replay.target", lambda name: HOST)
    return tmp_path / "state"


def stored(n: int = 100, fault: str = "wrong", launcher: str = "") -> Path:
    failing = case(n, fault=fault, launcher=launcher)
    return reproducers.write(reproducers.reproducer_of(failing, "host", judge(failing, HOST)))


def again(path: Path, *, embedded: bool = False) -> ReplayResult:
    with WorkerPool() as pool:
        return replay(path, pool, embedded=embedded)


def test_what_was_written_is_read(state: Path) -> None:
    path = stored()
    seed = reproducers.read(path)
    assert path.parent == state / "failures" and path.name == seed.name
    assert seed.case == case(100, fault="wrong").to_json()
    assert seed.signature == judge(case(100, fault="wrong"), HOST).signature
    assert {"torch", "triton", "numpy", "python", "harness"} <= set(seed.versions)
    assert Verdict.from_json(seed.verdict).failed


def test_one_bug_is_one_file_and_another_bug_another() -> None:
    assert stored(100) == stored(57) != stored(100, "stray")


def test_a_stored_case_fails_again_of_the_same_bug() -> None:
    replayed = again(stored())
    assert replayed.verdict.decision is Decision.FAIL and replayed.is_same_bug
    assert replayed.sentence.startswith("failed again: the same bug")


def test_one_of_another_release_says_which_it_came_from() -> None:
    path = stored()
    record = json.loads(path.read_text())
    record["versions"]["triton"] = "3.5.1"
    path.write_text(json.dumps(record))
    replayed = again(path)
    assert f"triton was 3.5.1, is {triton.__version__}" in replayed.notes and replayed.is_same_bug
    record["versions"]["triton"] = triton.__version__
    path.write_text(json.dumps(record))
    assert not any(note.startswith("triton was") for note in again(path).notes)


def test_a_repaired_launcher_is_right_and_a_worse_one_another_bug(tmp_path: Path) -> None:
    under_test = tmp_path / "mine.py"
    under_test.write_text(LAUNCHER.format(error=1))
    path = stored(fault="", launcher=f"{under_test}:add")
    under_test.write_text(LAUNCHER.format(error=0))
    replayed = again(path)
    assert replayed.verdict.decision is Decision.PASS and any("has changed since" in note for note in replayed.notes)
    assert again(path, embedded=True).is_same_bug
    under_test.write_text(LAUNCHER.format(error="'x'"))
    assert "another bug" in again(path).sentence


def test_a_replay_that_passes_now_prints_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """With bytecode of the text before, which has the same size and is of the same second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    under_test = tmp_path / "mine.py"
    under_test.write_text(LAUNCHER.format(error=1))
    path = stored(fault="", launcher=f"{under_test}:add")
    under_test.write_text(LAUNCHER.format(error=0))
    assert main(["replay", str(path)]) == 0
    assert re.search(r"note: .*has changed since", capsys.readouterr().out)


def test_a_launcher_whose_file_is_gone_is_judged_from_the_stored_text(tmp_path: Path) -> None:
    under_test = tmp_path / "gone.py"
    under_test.write_text(LAUNCHER.format(error=1))
    path = stored(fault="", launcher=f"{under_test}:add")
    under_test.unlink()
    replayed = again(path)
    assert replayed.is_same_bug and any("judging the text stored" in note for note in replayed.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ('{"version": 1, "case"', "is not JSON.*cut or edited"),
        ("[]", "has no version"),
        ('{"case": {}}', "has no version"),
        ('{"version": 99, "versions": {"harness": "abc"}}', r"version 99, this checkout reads version 2; .* that wrote it \(abc\)"),
        ('{"version": 1, "case": {}}', "version 1, this checkout reads version 2"),
        ('{"version": 2, "case": {}}', "lacks signature, target, verdict"),
    ],
)
def test_a_broken_file_or_one_of_another_version_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        reproducers.read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        reproducers.read(tmp_path / "none.json")


def test_a_promoted_file_carries_what_is_expected_and_leaves_its_place(tmp_path: Path) -> None:
    path = stored()
    kept = reproducers.promote(path, Decision.PASS, tmp_path / "kept")
    assert not path.exists() and kept.parent == tmp_path / "kept"
    assert reproducers.read(kept).expected_outcome == {"decision": "pass"}
    assert json.loads(kept.read_text())["version"] == reproducers.VERSION


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        reproducers.write_atomically(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_failure_that_does_not_repeat_is_called_nondeterministic(tmp_path: Path) -> None:
    verdict = judge(case(100, fault="wrong"), HOST)
    with WorkerPool(journal=Journal(tmp_path / "j.jsonl")) as pool:
        assert rerun(case(100, fault="wrong"), HOST, verdict, pool) == ""
        assert rerun(case(100), HOST, verdict, pool) == "nondeterministic: 1 of 5 runs show it"


def test_a_file_of_a_draw_holds_its_blob_and_others_say_why_not(state: Path) -> None:
    source = CaseSource("tests.support.vector_add:WRONG", HOST)
    drawn = next(c for c in source.drawn(20) if judge(c, HOST).failed)
    seed = reproducers.read(reproducers.write(reproducers.reproducer_of(drawn, "host", judge(drawn, HOST))))
    assert seed.hypothesis["draws"] == "this case" and seed.hypothesis["version"] == hypothesis.__version__
    strategy = resolve(seed.case["contract"]).cases(HOST)

    @hypothesis.reproduce_failure(seed.hypothesis["version"], seed.hypothesis["blob"].encode())
    @hypothesis.given(case=strategy)
    def look(case: Case) -> None:
        assert case.problem != drawn.problem, "here it is"

    with pytest.raises(AssertionError, match="here it is"):
        look()
    assert "required cases" in reproducers.read(stored()).hypothesis["absent"]


def test_a_file_written_before_a_field_was_added_is_read(state: Path) -> None:
    path = stored()
    record = json.loads(path.read_text())
    del record["hypothesis"], record["knobs"]
    path.write_text(json.dumps(record | {"a later field": 1}))
    assert reproducers.read(path).hypothesis == {} and again(path).is_same_bug


def test_a_files_knobs_are_set_and_nothing_else_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    path = stored()
    record = json.loads(path.read_text()) | {"knobs": {"DISABLE_PTXAS_OPT": "1", "LD_PRELOAD": "mine.so"}}
    path.write_text(json.dumps(record))
    reproducers.restore_case(reproducers.read(path))
    assert os.environ["DISABLE_PTXAS_OPT"] == "1" and "LD_PRELOAD" not in os.environ


def test_a_failure_is_named_by_its_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / ".bitverdict"))
    monkeypatch.setattr(reproducers, "HOME", tmp_path)
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / ".bitverdict" / "failures").mkdir(parents=True)
    (stored := folder / "mine-emulated_sm_90-0123456789ab.json").touch()
    assert reproducers.replay_line(stored) == "bitverdict replay 01234567"
    assert reproducers.path_of(Path("01234567")) == reproducers.path_of(Path("0123")) == stored
    (folder / "other-emulated_sm_90-01234567cdef.json").touch()
    assert reproducers.replay_line(stored) == f"bitverdict replay {stored}", "the digits of two"
    with pytest.raises(UsageError, match=r"01234567: stands for mine-.*, other-"):
        reproducers.path_of(Path("01234567"))
