"""Contract under test: a watch answers each save, remembers what failed, and no save, import or crash ends it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.session import watch_round
from bitverdict.harness.session.watch import Event, Watch
from bitverdict.harness.session.watch_round import ForkedRound, WatchTarget
from bitverdict.harness.session.watched_files import WatchedFiles
from tests.support.fake_runs import FakeClock

# --- the loop, with rounds that a test writes


@dataclass
class FakeRound:
    """Tells what the test puts into `tells`."""

    tells: list[Event] = field(default_factory=list)
    first: list[dict] | None = None
    ended: bool = False

    def go(self, first: list[dict]) -> None:
        self.first = list(first)

    def events(self, seconds: float) -> list[Event]:
        told, self.tells = self.tells, []
        return told

    def end(self) -> None:
        self.ended = True


class Seen:
    """A screen."""

    def __init__(self) -> None:
        self.shown: list[tuple] = []

    def show_idle(self, files: tuple[Path, ...]) -> None:
        self.shown.append(("waiting", len(files)))

    def show_save(self, names: list[str]) -> None:
        self.shown.append(("saved", *names))

    def show_event(self, event: Event, seconds: float) -> None:
        self.shown.append((event["event"], seconds))


def verdict(number: int, decision: str = "pass") -> Event:
    return {"event": "verdict", "number": number, "decision": decision, "case": {"n": number}}


class Watching:
    """A watch of one file over fake rounds."""

    def __init__(self, folder: Path) -> None:
        self.file, self.other = folder / "mine.py", folder / "other.py"
        self.file.write_text("0\n")
        self.rounds: list[FakeRound] = []
        self.screen, self.clock = Seen(), FakeClock()
        self.watch = Watch(self.start, WatchedFiles([self.file]), self.screen, clock=self.clock)
        self.watch.begin()

    def start(self) -> FakeRound:
        self.rounds.append(FakeRound())
        return self.rounds[-1]

    def save(self, file: Path | None = None) -> FakeRound:
        """Save, look; the round that judges it."""
        path = file or self.file
        path.write_text(path.read_text() + "0\n" if path.exists() else "0\n")
        self.watch.step()
        assert isinstance(self.watch.running_round, FakeRound)
        return self.watch.running_round

    def tell(self, *events: Event) -> None:
        self.rounds_now().tells += events
        self.watch.step()

    def rounds_now(self) -> FakeRound:
        assert isinstance(self.watch.running_round, FakeRound)
        return self.watch.running_round


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(tmp_path)


def test_a_round_waits_for_each_save_once_an_answer_is_there(watching: Watching) -> None:
    assert len(watching.rounds) == 1 and watching.rounds[0].first == []
    watching.clock.now += 0.5
    watching.tell(verdict(1))
    assert len(watching.rounds) == 2 and watching.rounds[1].first is None, "the next one is ready"
    assert ("verdict", 0.5) in watching.screen.shown
    judging = watching.save()
    assert judging is watching.rounds[1] and watching.rounds[0].ended and not judging.ended
    assert judging.first == [{"n": 1}], "what was answered first before"
    assert len(watching.rounds) == 2, "no other starts while its first case is out"


def test_what_failed_is_judged_first_until_it_passes(watching: Watching) -> None:
    watching.tell(verdict(1), verdict(2), verdict(3, "fail"))
    assert watching.save().first == [{"n": 3}]
    watching.tell({"event": "report", "case": {"n": 33}, "report": ""})
    assert watching.save().first == [{"n": 33}, {"n": 3}], "the reduced one answers sooner"
    watching.tell(verdict(1) | {"case": {"n": 33}}, verdict(2) | {"case": {"n": 3}})
    assert watching.save().first == [{"n": 33}], "the last answer, and nothing that failed"


def test_a_save_ends_the_round_before_it_and_one_without_answer_too(watching: Watching) -> None:
    first = watching.rounds[0]
    second = watching.save()
    third = watching.save()
    assert [each.ended for each in (first, second, third)] == [True, True, False]
    watching.watch.end()
    assert all(each.ended for each in watching.rounds)


@pytest.mark.parametrize("event", [{"event": "refused", "why": "syntax"}, {"event": "ended", "how": "SIGSEGV"}])
def test_what_cannot_be_imported_is_told_and_the_next_save_counts(event: Event, watching: Watching) -> None:
    watching.tell(event)
    assert watching.screen.shown[-2:] == [(event["event"], 0.0), ("waiting", 1)]
    assert watching.save() is not watching.rounds[0]
    assert watching.screen.shown[-1] == ("saved", "mine.py")


def test_files_that_a_round_imported_are_looked_at(watching: Watching) -> None:
    watching.other.write_text("0\n")
    watching.tell({"event": "files", "files": [str(watching.file), str(watching.other)]})
    watching.save(watching.other)
    assert watching.screen.shown[-1] == ("saved", "other.py")


# --- a round, forked here

MINE = """
from tests.support.vector_add import VectorAdd
CONTRACT = VectorAdd(fault={fault!r})
"""
Judge = Callable[..., list[Any]]


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """What a round tells of a file, until nothing more comes of it or `enough` of its verdicts did."""
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    file = tmp_path / "mine.py"
    watched = WatchTarget("", f"{file}:CONTRACT", (target("emulated:sm_90"),), jobs=1, timeout=600.0)

    def judge(text: str, *, first: tuple[dict, ...] = (), enough: int = 1000) -> list[Any]:
        file.write_text("# nothing yet\n")
        round = ForkedRound(watched, tmp_path)
        file.write_text(text)
        round.go(list(first))
        told: list[Any] = []
        until = time.monotonic() + 300
        while time.monotonic() < until and not any(each["event"] in ("drawn", "refused", "ended") for each in told):
            told += round.events(0.1)
            if sum(each["event"] == "verdict" for each in told) >= enough:
                break
        process = round._process
        round.end()
        while os.path.exists(f"/proc/{process}") and time.monotonic() < until:
            ForkedRound._reap()
            time.sleep(0.01)
        assert not os.path.exists(f"/proc/{process}")
        return told

    return judge


@pytest.mark.share(4)
def test_a_round_judges_what_was_saved_after_it_was_forked(judged: Judge, tmp_path: Path) -> None:
    told = judged(MINE.format(fault="wrong"))
    events = [each["event"] for each in told]
    assert events == ["files", *["verdict"] * 3, "report", "judged", "drawn"]
    assert told[0]["files"] == [str(tmp_path / "mine.py")]
    assert [(each["number"], each["decision"]) for each in told[1:4]] == [(1, "pass"), (2, "pass"), (3, "fail")]
    assert told[3]["case"]["problem"]["n"] == 63 and told[4]["case"]["problem"]["n"] == 5, "reduced"
    mended = told[4]["case"] | {"problem": told[4]["case"]["problem"] | {"fault": ""}}
    again = judged(MINE.format(fault=""), first=(mended,), enough=8)
    assert (again[1]["case"]["problem"]["n"], again[1]["decision"]) == (5, "pass"), "what failed comes first"
    assert {"event": "judged", "kind": "required", "cases": 6, "failed": 0, "why": []} in again
    assert again[-1]["number"] >= 8, "then generated ones"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os; os._exit(3)", {"event": "ended", "how": "its process left with exit status 3"}),
        ("def f(:", "mine.py cannot be imported: SyntaxError: invalid syntax (line 1); fix the file"),
        ("CONTRACT = 3", "is a int; name the kernel by whose mathematics it is judged, for example: watch"),
        ("OTHER = 3", "has no CONTRACT"),
    ],
)
def test_a_file_that_cannot_be_judged_is_told_in_one_line(text: str, said: Any, judged: Judge) -> None:
    last = judged(text)[-1]
    assert last == said if isinstance(said, dict) else said in last["why"] and "\n" not in last["why"]


def test_a_kernel_of_which_no_case_is_judged_is_told_so(judged: Judge) -> None:
    needy = "from bitverdict.kernels.features import Feature\nCONTRACT = VectorAdd(requires=frozenset({Feature.TCGEN05}))\n"
    last = judged("from tests.support.vector_add import VectorAdd\n" + needy)[-1]
    assert last["event"] == "refused" and "lacks tcgen05.mma" in last["why"]


@pytest.mark.share(4)
def test_a_crash_of_the_kernel_is_a_verdict(judged: Judge) -> None:
    told = judged(MINE.format(fault="segfault"))
    (failed,) = [each for each in told if each["event"] == "verdict" and each["decision"] == "fail"]
    assert failed["outcome"] == "segmentation fault" and told[-1]["event"] == "drawn"


def test_each_round_of_a_sealed_launcher_draws_by_a_secret_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitverdict.harness.sealed.isolation.ProcessIsolation.begin", lambda self, launcher: None)
    monkeypatch.setattr(watch_round, "check_launcher", lambda contract, launcher: None)
    watched = WatchTarget(
        "matmul", "tests/support/right_launchers.py:ascending", (target("emulated:sm_90"),) * 2, 1, is_sealed=True
    )
    (one, beside), (other, _) = watched.sources(), watched.sources()
    assert one.secret is not None and one.secret == beside.secret != other.secret
    assert one.apply_seed(case := resolve("matmul").required(one.target)[0]).data_seed not in (
        case.data_seed,
        other.apply_seed(case).data_seed,
    )
    assert replace(watched, is_sealed=False).sources()[0].secret is None
