"""Entries of the corpus as they are run: each in a fork of a process that has imported its package, on the emulated GPU."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.corpus_entry import Entry, Given, wrong
from benchmarks.forked_runs import Ended, forked
from benchmarks.tutorial_cases import FAIL, LIMIT, NOT_RUN, last_line, told

RIGHT, WRONG = "right", "wrong"
INTERPRETER = "interpreter"
CALLS, ENOUGH = 5, 2.0  # calls that are timed, and seconds of launches after which no other is


@dataclass(frozen=True)
class Outcome:
    """What an entry came to on the emulated GPU `on`, or in Triton's interpreter.

    `kernels` are the names of what was launched, the last of them what was refused. `seconds` are those of the first call, with
    compilation; `launching` those of the processor in the launches of a later call, the median of several.
    """

    package: str
    version: str
    entry: str
    on: str
    state: str
    outcome: str = ""
    said: str = ""
    where: str = ""
    kernels: tuple[str, ...] = ()
    launches: int = 0
    seconds: float = 0.0
    launching: float = 0.0
    commit: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.package, self.entry, self.on


def attempt(entry: Entry, device: Any, on: str) -> Outcome:
    """Run `entry` and hold it to its reference; where it is right, run it again for the time of its launches."""
    watched = _Interpreted() if on == INTERPRETER else _Watched(device)
    blank = Outcome(entry.package.name, entry.package.version, entry.name, on, RIGHT)
    begun, taken = time.monotonic(), 0.0
    try:
        pairs = list(entry.run(Given(entry.name)))
        taken = time.monotonic() - begun
        seen = watched.seen
        if faults := [said for said in map(wrong, pairs) if said]:
            return replace(blank, state=WRONG, said="; ".join(faults)[:300], seconds=taken, **seen)
        if not seen["launches"]:
            return replace(blank, state=NOT_RUN, said="no kernel was launched", seconds=taken)
        spent: list[float] = []
        while len(spent) < CALLS and sum(spent) < ENOUGH:
            watched.seconds = 0.0
            list(entry.run(Given(entry.name)))
            spent.append(watched.seconds)
        return replace(blank, seconds=taken, launching=median(spent), **seen)
    except BaseException as error:
        state, outcome, said, where = told(error)
        if state == FAIL and on == INTERPRETER:
            outcome, said = type(error).__name__, " ".join(str(error).split())[:200]
        taken = taken or time.monotonic() - begun
        said = re.sub(r" at 0x[0-9a-f]+", "", said)  # an address of this process: no other run has it
        return replace(blank, state=state, outcome=outcome, said=said, where=where, seconds=taken, **watched.seen)


class _Watched:
    """The launches on the emulated GPU, by the kernels' names, and the seconds they took."""

    def __init__(self, device: Any) -> None:
        self.names: list[str] = []
        self.seconds = 0.0
        run = device.run
        device.run = lambda program, metadata, *given: self.timed(metadata.name, lambda: run(program, metadata, *given))

    def timed(self, name: str, launch: Callable[[], None]) -> None:
        self.names.append(name)
        begun = time.process_time()
        try:
            launch()
        finally:
            self.seconds += time.process_time() - begun

    @property
    def seen(self) -> dict[str, Any]:
        return {"kernels": tuple(dict.fromkeys(self.names)), "launches": len(self.names)}


class _Interpreted(_Watched):
    """The same of launches that Triton's interpreter makes."""

    def __init__(self) -> None:
        from benchmarks.corpus_interpreter import interpret
        from bitverdict.harness.emulator.triton_driver import _Launcher

        self.names, self.seconds = [], 0.0

        def launch(launcher: Any, x: int, y: int, z: int, *given: Any) -> None:
            source, values = launcher.source, given[6:]  # behind stream, function, metadata and hooks
            self.timed(source.fn.__name__, lambda: interpret(source, (x, y, z), values))

        _Launcher.__call__ = launch  # type: ignore[method-assign, assignment]


def outcome_of(entry: Entry, on: str, ended: Ended) -> Outcome:
    """What `entry` came to, whose fork `ended`."""
    if ended.sent is not None:
        return ended.sent
    blank = Outcome(entry.package.name, entry.package.version, entry.name, on, LIMIT, seconds=ended.seconds)
    return blank if ended.over else replace(blank, state=FAIL, outcome="process ended", said=last_line(ended.text))


def run_package(pipe: Any, folder: str, package_name: str, names: list[str], on: list[str], target: str, seconds: float) -> None:
    """The entries called `names` of one package, in this process; each Outcome goes into `pipe`, and None at the end."""
    from benchmarks.corpus import entries

    found = {entry.name: entry for entry in entries() if entry.package.name == package_name}
    package = found[names[0]].package
    if package.installed:
        sys.path.insert(0, str(Path(folder, package.name)))
    for name, value in package.environment.items():
        os.environ[name] = value.format(folder=folder)
    import torch

    from bitverdict.harness.emulator import LaunchOptions, emulated
    from bitverdict.harness.ptx_machine.open_words import OpenWords

    torch.set_num_threads(1)
    log = Path(folder, f"{package.name}.log")
    with emulated(target, options=LaunchOptions(takes_cpu_tensors=False, whole_storages=True, probes=(OpenWords(),))) as device:
        package.prepare()
        for name in names:
            for place in on:
                entry = found[name]
                pipe.send(outcome_of(entry, place, forked(lambda e=entry, o=place: attempt(e, device, o), seconds, log)))
    pipe.send(None)


__all__ = ["INTERPRETER", "RIGHT", "WRONG", "Outcome", "attempt", "outcome_of", "run_package"]
