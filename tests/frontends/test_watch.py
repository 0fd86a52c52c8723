"""Contract under test: what is watched follows from few words, and each save has an answer, on a pipe and a terminal."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from bitverdict.harness.frontends.cli_watch import watch_subject
from bitverdict.harness.frontends.main import main, parser
from bitverdict.harness.frontends.watch_screen import Lines, PanelScreen
from bitverdict.harness.session.watch import Event
from bitverdict.harness.session.watch_round import WatchTarget
from tests.support.interrupts import answering

FILE = "docs/examples/tutorial_matmul.py"


def watched(*words: str) -> WatchTarget:
    return watch_subject(parser(["watch"]).parse_args(["watch", *words]))


@pytest.mark.parametrize(
    ("words", "contract", "launcher"),
    [
        ([f"{FILE}:matmul"], "", f"{FILE}:matmul"),
        ([f"{FILE}:matmul", "block_scaled_matmul"], "block_scaled_matmul", f"{FILE}:matmul"),
        (["matmul", "--launcher", f"{FILE}:matmul"], "matmul", f"{FILE}:matmul"),
        (["matmul"], "matmul", ""),
    ],
)
def test_a_file_a_kernel_or_both_say_what_is_watched(words: list[str], contract: str, launcher: str) -> None:
    found = watched(*words, "--target", "emulated:sm_90")
    assert (found.contract, found.launcher) == (contract, launcher)
    assert found.preload_addresses == ([contract] if contract and launcher else []), "what a save changes is imported after it"


def test_a_launcher_called_as_a_kernel_is_judged_by_its_mathematics() -> None:
    (source,) = watched(f"{FILE}:matmul", "--target", "emulated:sm_90").sources()
    assert (source.address, source.launcher) == ("matmul", f"{FILE}:matmul")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mine.py"], "watch mine.py: name the function in it: mine.py:FUNCTION"),
        (["matmull"], "watch matmull: no such kernel (did you mean 'matmul'?); known: "),
        (["nowhere.py:f"], "watch nowhere.py:f: there is no file nowhere.py; give a path to an existing Python file"),
        ([f"{FILE}:matmul", "matmull"], "no such kernel (did you mean 'matmul'?)"),
        ([f"{FILE}:f", "matmul", "--launcher", f"{FILE}:f"], "give the launcher once: watch"),
        (["matmul", "--timeout", "0"], "--timeout 0: must be more than 0 seconds"),
        (["matmul", "--jobs", "-1"], "--jobs -1: must be at least 0"),
        (["matmul", "-k", "m>"], "-k 'm>': where a value behind m> must be, it ends"),
        (["matmul", "--target", "emulated:sm90"], "(did you mean 'emulated:sm_90'?)"),
    ],
)
def test_what_cannot_be_watched_is_told_before_anything_starts(
    words: list[str], said: str, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    assert main(["watch", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not (tmp_path / "state").exists()


class Answers:
    """A round that passes at once, and then Ctrl-C comes."""

    folders: list[Path] = []

    def __init__(self, watched: WatchTarget, folder: Path) -> None:
        self.folders.append(folder)

    def go(self, first: list[dict]) -> None:
        assert self.folders[0].is_dir()

    def events(self, seconds: float) -> list[Event]:
        os.kill(os.getpid(), signal.SIGINT)
        return [verdict(1)]

    def end(self) -> None:
        pass


def test_ctrl_c_ends_a_watch_quietly_and_leaves_no_folder(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    left = tmp_path / "state" / "watch" / "999999999"  # of a watch that was killed: no process has this number
    left.mkdir(parents=True)
    monkeypatch.setattr("bitverdict.harness.frontends.cli_watch.ForkedRound", Answers)
    with answering():
        assert main(["watch", f"{FILE}:matmul", "--target", "emulated:sm_90"]) == 0
    out, error = capsys.readouterr()
    first, second = out.splitlines()
    assert first == "watching tutorial_matmul.py:matmul on emulated:sm_90; Ctrl-C ends" and error == ""
    assert second.endswith("emulated:sm_90 m=1 dtype=fp16") and not list((tmp_path / "state" / "watch").iterdir())


def verdict(number: int, decision: str = "pass", outcome: str = "pass") -> Event:
    came = {"event": "verdict", "number": number, "of": 9, "target": "emulated:sm_90", "line": f"m={number} dtype=fp16"}
    return came | {"decision": decision, "outcome": outcome, "message": "read at [3]", "location": "mine.py:38", "case": {}}


TOLD: list[tuple[Event, float]] = [
    (verdict(1), 0.4),
    (verdict(2), 0.5),
    (verdict(3, "inconclusive", "inconclusive"), 0.6),
    ({"event": "judged", "kind": "required", "cases": 9, "failed": 0, "why": ["inconclusive (1 case)", "  the first: m=3"]}, 6.0),
    (verdict(10), 7.0),
    (verdict(11, "fail", "stray read"), 8.0),
    ({"event": "report", "report": Text("FAIL mine.py:f\n  case: m=1"), "case": None}, 9.0),
    ({"event": "judged", "kind": "generated", "cases": 11, "failed": 1, "why": []}, 9.0),
    ({"event": "refused", "why": "mine.py cannot be imported"}, 0.1),
    (verdict(1, "fail", "race"), 0.3),
]
PLAIN = """12:00:00 pass in 0.40 s: emulated:sm_90 m=1 dtype=fp16
  inconclusive: read at [3]; emulated:sm_90 m=3 dtype=fp16
  9 required cases judged in 6.0 s, none fails; inconclusive (1 case); the first: m=3
  fail: stray read at mine.py:38: read at [3]; emulated:sm_90 m=11 dtype=fp16
FAIL mine.py:f
  case: m=1
12:00:00 not judged after 0.10 s: mine.py cannot be imported
12:00:00 FAIL in 0.30 s: race at mine.py:38: read at [3]; emulated:sm_90 m=1 dtype=fp16
"""


def test_a_pipe_gets_one_line_a_save_and_what_fails_after_it() -> None:
    page = io.StringIO()
    screen = Lines(Console(file=page, width=160), clock=lambda: time.mktime((2026, 1, 1, 12, 0, 0, 0, 0, -1)))
    for event, seconds in TOLD:
        screen.show_event(event, seconds)
    assert page.getvalue() == PLAIN.replace("  fail:", "  FAIL:")


def test_a_terminal_has_one_panel_with_the_last_answer() -> None:
    page = io.StringIO()
    screen = PanelScreen(Console(file=page, width=100, force_terminal=True, color_system=None), "mine.py:f on emulated:sm_90")
    with screen:
        for event, seconds in TOLD[:7]:
            screen.show_event(event, seconds)
        screen.show_idle((Path("mine.py"), Path("other.py")))
    last = page.getvalue().rpartition("╭")[2]
    for said in ("mine.py:f on emulated:sm_90", "pass in 0.40 s", "FAIL mine.py:f", "waits for a save of 2 files; Ctrl-C ends"):
        assert said in last
