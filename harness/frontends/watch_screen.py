"""What a watch shows: a line a save where the output is a pipe, a panel that stays in its place on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from bitverdict.harness.model.paths import path_from_here
from bitverdict.harness.session import tables
from bitverdict.harness.session.watch import Event

STYLES = {"pass": "bold green", "fail": "bold red"}
DRAW_PERIOD = 0.1  # seconds between two pictures of the panel while cases pass


def first_line(event: Event, seconds: float) -> str:
    """The answer to a save: what the first case came to."""
    return f"{_decision_text(event)} in {seconds:.2f} s: {_verdict_line(event)}"


def _decision_text(event: Event) -> str:
    return "FAIL" if event["decision"] == "fail" else str(event["decision"])


def _verdict_line(event: Event) -> str:
    """What a verdict says in one line, and of which case."""
    place = f" at {path_from_here(event['location'])}" if event["location"] else ""
    outcome = f"{event['outcome']}{place}: " if event["outcome"] != event["decision"] else ""
    said = f"{outcome}{event['message']}; " if event["decision"] != "pass" else ""
    return f"{said}{event['target']} {event['line']}"


def later_line(event: Event, seconds: float) -> str:
    """What came after the first case, in one line; empty where it is not worth one."""
    match event["event"]:
        case "verdict":
            return f"{_decision_text(event)}: {_verdict_line(event)}" if event["decision"] != "pass" else ""
        case "refused":
            return f"not judged after {seconds:.2f} s: {event['why']}"
        case "ended":
            return f"not judged on: {event['how']} while it imported or judged; save again once that is fixed"
        case "judged" if not event["failed"] and event["kind"] == "required":
            return "; ".join(
                [f"{event['cases']} required cases judged in {seconds:.1f} s, none fails", *map(str.strip, event["why"])]
            )
    return ""


class Lines:
    """For a pipe: the answer to each save is one line, and what comes after it is indented."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self.console, self.clock = console, clock

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def show_idle(self, files: tuple[Path, ...]) -> None:
        pass

    def show_save(self, names: list[str]) -> None:
        pass

    def show_event(self, event: Event, seconds: float) -> None:
        if event["event"] == "report":
            tables.print_wrapped(self.console, event["report"])
        elif event["event"] == "verdict" and event["number"] == 1:
            self._say(f"{self._time_text()} {first_line(event, seconds)}")
        elif line := later_line(event, seconds):
            begins = event["event"] in ("refused", "ended")
            self._say(f"{self._time_text()} {line}" if begins else f"  {line}")

    def _time_text(self) -> str:
        return time.strftime("%H:%M:%S", time.localtime(self.clock()))

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


class PanelScreen:
    """For a terminal: one panel, drawn again as something comes."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title = console, title
        self.live = Live(console=console, auto_refresh=False, vertical_overflow="visible")
        self.answer, self.state, self.parts = Text(""), "", list[RenderableType]()
        self.files = 1
        self._drawn = 0.0

    def __enter__(self) -> PanelScreen:
        self.live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.live.stop()

    def show_idle(self, files: tuple[Path, ...]) -> None:
        self.files = len(files)
        self._draw(f"waits for a save of {len(files)} file{'s' if len(files) > 1 else ''}; Ctrl-C ends")

    def show_save(self, names: list[str]) -> None:
        self.answer, self.parts = Text(""), []
        self._draw(f"judging {', '.join(names)}" if names else "judging")

    def show_event(self, event: Event, seconds: float) -> None:
        match event["event"]:
            case "verdict":
                if event["number"] == 1:
                    self.answer = Text(first_line(event, seconds), style=STYLES.get(event["decision"], "bold yellow"))
                elif line := later_line(event, seconds):
                    self.parts = [Text(line, style="red")]
                if time.monotonic() - self._drawn > DRAW_PERIOD or event["number"] == 1:
                    self._draw(_progress(event))
            case "report":
                self.answer, self.parts = Text(self.answer.plain.partition(": ")[0], style=self.answer.style), [event["report"]]
                self._draw("judged")
            case "refused" | "ended":
                self.answer = Text(later_line(event, seconds), style="bold yellow")
                self._draw("")
            case "judged":
                if line := later_line(event, seconds):
                    self.parts = [Text(line, style="green")]
                self._draw("generating cases")

    def _draw(self, state: str) -> None:
        self.state, self._drawn = state, time.monotonic()
        inside: list[Any] = [self.answer, *self.parts, Text(self.state, style="dim")]
        self.live.update(Panel(Group(*inside), title=self.title, title_align="left"), refresh=True)


def _progress(event: Event) -> str:
    number, of = event["number"], event["of"]
    return f"{number} of {of} required cases" if number <= of else f"{of} required cases, {number - of} generated ones"
