"""How a long run shows that it lives: a live line in a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session.observer import Observer

PLAIN_PERIOD = 5.0  # seconds


class ProgressDisplay(Observer):
    """A context manager. `total` may grow; `on_verdict` is called once a verdict, `say` for what is not a verdict."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[last]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("judging", total=0, last="")
        self.begun = self.told = time.monotonic()
        self.done = self.total = self.failed = 0

    def __enter__(self) -> ProgressDisplay:
        self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.stop()

    def expect(self, more: int) -> None:
        self.total += more
        self.bar.update(self.task, total=self.total)

    def on_verdict(self, name: str, target: str, verdict: Verdict) -> None:
        self.done += 1
        self.failed += verdict.decision is Decision.FAIL
        expected = verdict.decision is Decision.PASS and verdict.outcome is not Outcome.PASS
        came = f"{verdict.outcome}, as expected" if expected else f"{verdict.outcome}"
        last = f"{name} on {target}: {came}" + (f"; {self.failed} failed" if self.failed else "")
        self.bar.update(self.task, completed=self.done, last=last)
        now = time.monotonic()
        if not self.console.is_terminal and (self.done == 1 or now - self.told > PLAIN_PERIOD):
            self.told = now
            self.console.print(f"[{now - self.begun:5.1f} s] {self.done}/{self.total} cases, last {last}", markup=False)

    def say(self, text: str) -> None:
        self.bar.update(self.task, last=text)
        now = time.monotonic()
        if not self.console.is_terminal and now - self.told > PLAIN_PERIOD:
            self.told = now
            self.console.print(f"[{now - self.begun:5.1f} s] {text}", markup=False)
