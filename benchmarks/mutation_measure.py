"""Which test executes which line, in every process of a run of the suite: loaded by each Python that starts (`sitecustomize`).

Coverage.py measures; this file tells it which test is running. A pytest process writes its test to ``now/PID``; any other process
looks for the nearest ancestor that has such a file. A worker of the harness is killed when it is not needed any more, so what it
executed is saved after each case. Environment: ``MUTATION_MEASURE``, the directory of the data and of ``now``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

ROOMS = ("harness", "reference", "kernels")
SAVED_EVERY = 10.0  # seconds, in a pytest process
_saved = 0.0
measuring: Any = None  # the coverage.Coverage of this process


def start(checkout: Path) -> None:
    """Measure this process and those that it forks. Nothing without ``MUTATION_MEASURE``."""
    global measuring
    place = os.environ.get("MUTATION_MEASURE")
    if not place or measuring is not None:
        return
    import coverage

    measuring = coverage.Coverage(
        data_file=str(Path(place) / "data"),
        data_suffix=True,
        config_file=False,
        auto_data=True,
        source=[str(checkout / room) for room in ROOMS],
    )
    quiet = ["no-data-collected", "module-not-imported", "module-not-measured", "couldnt-parse"]
    measuring.set_option("run:disable_warnings", quiet)
    measuring.start()
    switch(running())
    os.register_at_fork(after_in_child=_forked)
    leave = os._exit

    def saved_first(status: int) -> None:
        save()
        leave(status)

    os._exit = saved_first  # type: ignore[assignment]


def running() -> str:
    """The test that this process works for: "" where none is known."""
    now, process = Path(os.environ["MUTATION_MEASURE"]) / "now", os.getpid()
    while process > 1:
        try:
            return (now / str(process)).read_text()
        except OSError:
            pass
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return ""


def begins(test: str) -> None:
    """This process, a pytest, begins `test`; with "", has ended one."""
    now = Path(os.environ["MUTATION_MEASURE"]) / "now" / str(os.getpid())
    now.parent.mkdir(exist_ok=True)
    now.write_text(test)
    switch(test)
    if not test and time.monotonic() - _saved > SAVED_EVERY:
        save()


def switch(test: str) -> None:
    if measuring is not None:
        measuring.switch_context(test)


def save() -> None:
    global _saved
    if measuring is not None:
        _saved = time.monotonic()
        try:
            measuring.save()
        except Exception as error:  # a process that is measured goes on as one that is not
            print(f"not measured: {error}", file=sys.stderr)


def _forked() -> None:
    """A worker of the harness: each of its cases belongs to the test that asks for it."""
    switch(running())
    module = sys.modules.get("bitverdict.harness.judge.judge")
    judge = getattr(module, "judge", None)
    if module is None or judge is None or hasattr(judge, "measured"):
        return

    def measured(*given: Any, **named: Any) -> Any:
        switch(running())
        try:
            return judge(*given, **named)
        finally:
            save()

    measured.measured = True  # type: ignore[attr-defined]
    module.judge = measured  # type: ignore[attr-defined]
