"""Contract under test: a run that was killed or cancelled goes on with ``run --resume`` to the results of an undisturbed one, each
case counted once; what cannot be gone on with is refused before anything is written."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.injected_faults import books, command, differences, journal_of, results, run
from bitverdict.harness.frontends.main import main
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.result_files import Records
from bitverdict.harness.session.resume import Past, past
from bitverdict.harness.session.session import Session
from bitverdict.harness.workers.journal import Journal, records
from bitverdict.harness.workers.pool import WorkerPool
from tests.support.interrupts import answering

ADDRESS = "tests.support.vector_add:WRONG"
ASKED = ["--contract", ADDRESS, "--target", "emulated:sm_90", "--jobs", "2", "--max-cases", "14"]
CASES = 13  # of the 9 draws two are one case


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The directory of a run that came to its end, judged with shrinking, and the text of its journal."""
    place, shown = tmp_path_factory.mktemp("run"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        patch.setenv("BITVERDICT_STATE", str(place / "state"))
        assert main(["run", *ASKED, "--json", str(place / "run.jsonl"), "--junit", str(place / "run.xml")]) == 1
    (place / "stdout.txt").write_text(shown.getvalue())
    yield place, journal(place).read_text()


@pytest.fixture
def undisturbed(done: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """That directory with its journal as the run left it, and the state directory for this test."""
    place, text = done
    monkeypatch.setenv("BITVERDICT_STATE", str(place / "state"))
    journal(place).write_text(text)
    return place


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the cases that a worker pool is asked for in this test, which shrinks nothing."""
    keys: list[str] = []
    judge = WorkerPool.judge

    def noted(pool: WorkerPool, case: Case, *rest: Any, **more: Any) -> Verdict:
        keys.append(case.key)
        return judge(pool, case, *rest, **more)

    monkeypatch.setattr(WorkerPool, "judge", noted)
    monkeypatch.setattr(Session, "reduce", lambda session: None)
    return keys


def journal(directory: Path) -> Path:
    (found,) = (directory / "state" / "journal").glob("*.jsonl")
    return found


def cut(path: Path, ends: int, *, torn: bool = False) -> None:
    """Leave of a journal what a kill after `ends` verdicts would."""
    kept, seen = [], 0
    for line in path.read_text().splitlines():
        seen += '"event":"end"' in line
        if seen > ends:
            break
        kept.append(line)
    path.write_text("\n".join(kept) + "\n" + ('{"event":"end","number":' if torn else ""))


@pytest.mark.parametrize(("ends", "torn"), [(0, False), (6, True)])
def test_a_cut_run_goes_on_to_the_same_results(undisturbed: Path, capsys: pytest.CaptureFixture, ends: int, torn: bool) -> None:
    before = results(undisturbed, 1)
    cut(journal(undisturbed), ends, torn=torn)
    for path in (undisturbed / "state" / "failures").glob("*.json"):
        path.unlink()
    assert main(["run", "--resume"]) == 1
    (undisturbed / "stdout.txt").write_text(capsys.readouterr().out)
    after = results(undisturbed, 1)
    for name in before:
        if name == "table":  # progress lines aside: what was counted before the cut goes by at once
            assert after[name][-1] == before[name][-1]
        else:
            assert after[name] == before[name], name


def test_what_has_a_verdict_is_not_judged_again(undisturbed: Path, asked: list[str]) -> None:
    cut(journal(undisturbed), 8)
    main(["run", "--resume"])
    assert len(asked) == CASES - 8 and len(set(asked)) == len(asked)


def test_a_lost_verdict_shows_as_a_case_judged_again(undisturbed: Path, asked: list[str]) -> None:
    """The check above can fail: with one end record gone there is one case more."""
    path = journal(undisturbed)
    cut(path, 8)
    lines = path.read_text().splitlines()
    lines.remove(next(line for line in lines if '"event":"end"' in line))
    path.write_text("\n".join(lines) + "\n")
    main(["run", "--resume", str(path)])
    assert len(asked) == CASES - 7


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A run over 24 cases with two faults that came to its end, and its results."""
    out = tmp_path_factory.mktemp("whole")
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        patch.setenv("BITVERDICT_STATE", str(out / "state"))
        patch.setenv("COLUMNS", "160")
        assert main(command(24, out, contract="SMALL")[3:]) == 1
    (out / "stdout.txt").write_text(shown.getvalue())
    assert books(out) == []
    return out, results(out, 1)


def resumed(held: tuple[Path, dict], out: Path, capsys: pytest.CaptureFixture, patch: pytest.MonkeyPatch) -> list[str]:
    """What the run in `out`, gone on with, differs in from the whole one."""
    patch.setenv("BITVERDICT_STATE", str(out / "state"))
    patch.setenv("COLUMNS", "160")
    capsys.readouterr()
    status = main(["run", "--resume"])
    (out / "stdout.txt").write_text(capsys.readouterr().out)
    return differences(held[1], results(out, status), out)


@pytest.mark.share(4)
def test_ctrl_c_and_resume_come_to_the_undisturbed_results(
    held: tuple[Path, dict], tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):  # on a busy machine a run may be over before this process is asked again
        tmp_path = tmp_path / "run"
        tmp_path.mkdir()
        with answering():
            process = run(command(24, tmp_path, contract="SMALL"), tmp_path)
        while process.poll() is None and '"event":"end"' not in "".join(
            path.read_text() for path in (tmp_path / "state" / "journal").glob("*.jsonl")
        ):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        status, told = process.wait(300), [*records(journal_of(tmp_path))]
        if told[-1]["event"] != "finished":
            break
    ends = [record for record in told if record["event"] == "end"]
    assert 0 < len(ends) < 24 and told[-1]["event"] != "finished", "it was not cut in the middle"
    assert status == 3, "a cancelled run is inconclusive"
    assert all(record["verdict"]["decision"] != "cancelled" for record in ends)
    shown = [line for line in (tmp_path / "run.jsonl").read_text().splitlines() if '"event": "verdict"' in line]
    assert len(shown) <= len(ends) and "cancelled" in (tmp_path / "stdout.txt").read_text()
    assert resumed(held, tmp_path, capsys, monkeypatch) == []
    assert "cancelled" not in (tmp_path / "stdout.txt").read_text()


def loses_a_verdict(patch: pytest.MonkeyPatch) -> None:
    choose = Session.choose

    def without_the_fourth(session: Session, sources: Sequence[CaseSource]) -> Iterator:
        for place, item in enumerate(choose(session, sources)):
            if place != 3:
                yield item

    patch.setattr(Session, "choose", without_the_fourth)


def judges_twice(patch: pytest.MonkeyPatch) -> None:
    verdict = Past.verdict
    patch.setattr(Past, "verdict", lambda past, name, case: None if case.data_seed == 3 else verdict(past, name, case))


def counts_twice(patch: pytest.MonkeyPatch) -> None:
    counted = Records.on_count

    def doubled(records: Records, case: Case, *rest: Any) -> None:
        for _ in range(1 + (case.data_seed == 3)):
            counted(records, case, *rest)

    patch.setattr(Records, "on_count", doubled)


def takes_a_cancelled_case_for_judged(patch: pytest.MonkeyPatch) -> None:
    verdict = Past.verdict
    cancelled = Verdict(decision=Decision.CANCELLED, outcome=Outcome.CANCELLED)

    def told(past: Past, name: str, case: Case) -> Verdict | None:
        return verdict(past, name, case) or (cancelled if past.dealt(name, case) else None)

    patch.setattr(Past, "verdict", told)


def changes_a_verdict(patch: pytest.MonkeyPatch) -> None:
    verdict = Past.verdict
    fourth = Verdict(decision=Decision.FAIL, outcome=Outcome.KILLED, message="the process died of SIGKILL")
    patch.setattr(Past, "verdict", lambda past, name, case: fourth if case.data_seed == 3 else verdict(past, name, case))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda patch: None, ""),
        (loses_a_verdict, "in the results 0 times"),
        (judges_twice, "judged again after its verdict"),
        (counts_twice, "in the results 2 times"),
        (takes_a_cancelled_case_for_judged, "table differs"),
        (changes_a_verdict, "shown as killed, judged as pass"),
    ],
)
def test_a_resume_at_fault_is_told_from_one_that_is_not(
    held: tuple[Path, dict],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    says: str,
) -> None:
    """The comparison that the kills are held to can fail, each of its parts."""
    journal = tmp_path / "state" / "journal" / "cut.jsonl"
    journal.parent.mkdir(parents=True)
    lines = journal_of(held[0]).read_text().replace(str(held[0]), str(tmp_path)).splitlines()
    ends = [place for place, line in enumerate(lines) if '"event":"end"' in line]
    begun = next(place for place in range(ends[-3], len(lines)) if '"event":"begin"' in lines[place])
    journal.write_text("\n".join(lines[: begun + 1]) + "\n")  # killed with a case out
    fault(monkeypatch)
    differs = resumed(held, tmp_path, capsys, monkeypatch)
    assert any(says in line for line in differs) if says else differs == [], differs


def test_a_cancelled_case_has_no_verdict(undisturbed: Path) -> None:
    cut(journal(undisturbed), CASES)  # what follows are cases of shrinking, some of them judged before
    told = list(records(journal(undisturbed)))
    whole = len(past(told).verdicts)
    ended = next(record for record in told if record["event"] == "end")
    ended["verdict"] = {"decision": "cancelled", "outcome": "cancelled"}
    assert len(past(told).verdicts) == whole - 1


def spoiled(path: Path, **changes: object) -> None:
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | changes), *rest]) + "\n")


def test_what_cannot_go_on_is_refused_with_a_remedy(undisturbed: Path, capsys: pytest.CaptureFixture) -> None:
    path = journal(undisturbed)

    def refused(*words: str) -> str:
        text = path.read_text()
        assert main(["run", *words]) == 2
        assert path.read_text() == text, "a refused run wrote into the journal"
        return capsys.readouterr().err

    assert "came to its end, with status 1; run anew" in refused("--resume", str(path))
    assert "no unfinished run in" in refused("--resume")
    assert "there is no such journal" in refused("--resume", "nowhere.jsonl")
    cut(path, 5)
    assert "--resume with --seed, --max-cases" in refused("--resume", "--seed", "4", "--max-cases", "3").replace(
        "--max-cases, --seed", "--seed, --max-cases"
    )
    busy = Journal(path)
    busy.note("resumed")
    assert "this run is still going" in refused("--resume", str(path))
    busy.close()
    asked = next(records(path))
    for changes, says in (
        ({"versions": asked["versions"] | {"triton": "1.0"}}, "triton was 1.0, is "),
        ({"code": "other"}, "the code of harness, kernels or reference changed since"),
        ({"directory": "/elsewhere"}, "was run in /elsewhere"),
        ({"version": 99}, "version 99, this checkout takes up version 1"),
        ({"event": "begin"}, "does not begin with a run's settings"),
    ):
        spoiled(path, **changes)
        assert says in refused("--resume", str(path))
        spoiled(path, **asked)
