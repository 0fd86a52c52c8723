"""What a session tells while it goes. A progress display, a results file and the properties of a pytest node are observers."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Verdict


class Observer:
    """Every method may be left as it is. A session enters it, as a context, before the first case, and leaves it after the last.

    `name` is the kernel under test as tables name it (`CaseSource.name`), `target` the name of the machine.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return None

    def expect(self, more: int) -> None:
        """So many more cases are going to be judged."""

    def on_verdict(self, name: str, target: str, verdict: Verdict) -> None:
        """A verdict came, in whatever order."""

    def on_count(self, case: Case, name: str, target: str, classes: dict[str, str | int], verdict: Verdict) -> None:
        """A verdict was counted, in the order in which the cases were dealt; `classes` are those of its coverage."""

    def say(self, text: str) -> None:
        """Something goes on that is no verdict."""

    def on_reproducer(self, path: Path, address: str, target: str) -> None:
        """The reproducer of a bug lies at `path`."""
