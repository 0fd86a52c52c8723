"""Somebody else's program on an emulated GPU: what was launched, found and left unjudged while it ran, and how it is told.

Both front doors stand on it: ``pytest --emulate`` (`pytest_emulate`) and ``bitverdict exec`` (`cli_exec`). No contract is asked: a
launch is judged by what the emulated GPU itself finds.
"""

from __future__ import annotations

import gc
import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions
from bitverdict.harness.emulator.device import Device
from bitverdict.harness.emulator.device_probe import DeviceProbe
from bitverdict.harness.emulator.gpu_operators import PoisonedMemory, WideOperators
from bitverdict.harness.emulator.gpu_random import GpuRandom
from bitverdict.harness.emulator.kernel_traceback import at_the_kernel, function_at, place_of_fault
from bitverdict.harness.emulator.other_schedules import OtherSchedules, other_schedules
from bitverdict.harness.emulator.triton_driver import driven
from bitverdict.harness.emulator.word_distances import WordDistance, WordDistances
from bitverdict.harness.judge.classify import raised_by
from bitverdict.harness.model.architectures import CHIPS
from bitverdict.harness.model.log_lines import count_text
from bitverdict.harness.model.paths import source_line, state_directory
from bitverdict.harness.model.targets import target as target_called
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.ptx_machine.open_words import OpenWords
from bitverdict.harness.report.launch_replay.launch_file import LaunchFiles
from bitverdict.harness.session.result_files import event_line

DEFAULT_TARGET = "sm_90"
UNJUDGED_OUTCOMES = {"not modelled", "error", "refused", "out of memory", "compiler abort"}
_SHOWN_DETAILS = ("rule", "operation", "other operation", "other location", "schedule", "program", "replay")
_MOST_LISTED = 20  # sentences of a list at the end


def architecture_of(text: str) -> str:
    """The emulated GPU that `text` names: "sm_90" or "emulated:sm_90". UsageError for any other."""
    found = target_called(text if text.startswith("emulated:") else f"emulated:{text}")
    return found.arch


def seconds_of(limit: str) -> float:
    """The processor seconds of a launch that `limit` names, "30s" or "30"; 0 where it is empty. UsageError for any other."""
    try:
        seconds = float(limit.removesuffix("s") or "nan") if limit else 0.0
    except ValueError:
        seconds = -1.0
    if limit and not 0 < seconds < 1e9:
        raise UsageError(f"limit {limit!r}: must be seconds of processor time for each launch, above 0; write 30s")
    return seconds


def is_unjudged(fault: EmulatedFault) -> bool:
    """Whether `fault` says that the emulated GPU cannot tell: it knows no such operation or call, or the compiler is at fault."""
    return fault.outcome in UNJUDGED_OUTCOMES or "made by" in fault.details


@dataclass
class EmulationTally:
    """What came of launches, and of torch's operators beside them. Tallies of several processes add up."""

    launches: int = 0
    repeated_launches: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)
    reasons_not_judged: Counter[str] = field(default_factory=Counter)
    advice: Counter[str] = field(default_factory=Counter)
    operators: int = 0
    operators_left: Counter[str] = field(default_factory=Counter)
    passed_without_launch: int = 0  # tests
    benchmarks: int = 0  # calls of `triton.testing.do_bench` and its like
    numerics: list[dict[str, Any]] = field(default_factory=list)  # `WordDistance`s

    def add(self, record: dict[str, Any]) -> None:
        """Add one that `vars` gave, here or in another process."""
        for name, value in record.items():
            if isinstance(mine := getattr(self, name), Counter):
                mine.update(value)
            else:
                setattr(self, name, mine + value)

    def lines(self, schedules: int, *, shows_advice: bool, most_listed: int = _MOST_LISTED) -> list[str]:
        """What a person reads at the end of a session, at most `most_listed` sentences of a kind."""
        text = [
            f"{count_text(self.launches, 'launch', 'launches')}, {self.repeated_launches:,} of them under {schedules} schedules "
            f"(the others order nothing); {count_text(len(self.faults), 'fault')}, "
            f"{count_text(len(self.advice), 'piece')} of advice"
        ]
        if self.passed_without_launch:
            text.append(f"{count_text(self.passed_without_launch, 'test')} passed without a launch: no kernel was judged by it")
        if self.benchmarks:
            text.append(f"{count_text(self.benchmarks, 'benchmark')} ran once each: the times mean nothing")
        if total := self.operators + sum(self.operators_left.values()):
            text.append(
                f"torch on fp16 and bf16: {self.operators:,} of {total:,} operators ({100 * self.operators / total:.1f} %) were "
                "computed in fp32 and rounded once, as a GPU computes them"
            )
            text += _list_counts("as the CPU computes it", self.operators_left, most_listed)
        text += _list_counts("not judged", self.reasons_not_judged, most_listed)
        worst: dict[tuple[str, str], WordDistance] = {}
        for found in sorted((WordDistance(**record) for record in self.numerics), key=lambda each: each.units):
            worst[found.kernel, found.tensor] = found
        text += [f"numerics: {found.sentence()}" for found in sorted(worst.values(), key=lambda each: -each.units)]
        return text + (_list_counts("advice", self.advice, most_listed) if shows_advice else [])

    def report(self, targets: Sequence[str]) -> str:
        """All of it as JSON."""
        return json.dumps({"targets": list(targets), **vars(self)}, indent=1) + "\n"

    def write(self, path: Path, targets: Sequence[str], schedules: int) -> None:
        """The report at `path`: SARIF, events or a page where its name ends in .sarif, .jsonl or .html, else JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        forms = {".sarif": self._sarif, ".jsonl": self.events, ".html": lambda: self._page(schedules)}
        path.write_text(forms.get(path.suffix, lambda: self.report(targets))())

    def _page(self, schedules: int) -> str:
        from bitverdict.harness.report.collect import header, of_faults
        from bitverdict.harness.report.page import page

        return page(of_faults(self.faults, self.lines(schedules, shows_advice=True, most_listed=10_000)), header())

    def events(self, status: int | None = None) -> str:
        """Each fault as the event of a verdict, and a summary."""
        lines = []
        for fault in self.faults:
            place = f"{os.path.relpath(fault['file'])}:{fault['line']}" if fault["file"] else ""
            verdict = Verdict(
                decision=Decision.FAIL,
                outcome=Outcome(fault["outcome"]),
                message=fault["message"],
                location=place,
                details=fault["details"],
            )
            target, case = f"emulated:{fault['target']}", {"where": fault["where"]}
            lines.append(event_line("verdict", contract=fault["kernel"], target=target, case=case, verdict=verdict.to_json()))
        status = int(bool(self.faults)) if status is None else status
        sentence = (
            f"{count_text(self.launches, 'launch', 'launches')}: {count_text(len(self.faults), 'fault')}, "
            f"{self.reasons_not_judged.total():,} not judged"
        )
        return "".join([*lines, event_line("summary", time=time.time(), status=status, sentence=sentence)])

    def _sarif(self) -> str:
        from bitverdict.harness.report.ci.findings import ClauseFinding, JournalFindings
        from bitverdict.harness.report.ci.forms import sarif

        findings: dict[tuple[str, str, int], ClauseFinding] = {}
        for fault in self.faults:
            key = fault["outcome"], fault["file"], fault["line"]
            path = os.path.relpath(fault["file"]) if fault["file"] else ""
            clause_finding = findings.setdefault(
                key,
                ClauseFinding(
                    fault["kernel"], fault["outcome"], fault["outcome"], fault["message"], path, fault["line"], fault["where"]
                ),
            )
            clause_finding.cases[fault["target"]] += 1
        return sarif(JournalFindings(findings=list(findings.values())))


def _list_counts(title: str, sentences: Counter[str], most_listed: int) -> list[str]:
    more = len(sentences) - most_listed
    listed = [f"{title}: {sentence} ({count_text(count, 'time')})" for sentence, count in sentences.most_common(most_listed)]
    return listed + ([f"{title}: {more:,} more; --emulate-report FILE has all"] if more > 0 else [])


def spare_collections() -> None:
    """What exists now stays to the end: collections of garbage pass over it, and come less often. Of what torch and Triton bring
    alone each takes as long as a hundred small launches."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # objects that were made and not freed


class EmulatedSession:
    """The emulated GPUs of one process, of which one at a time is entered. `schedules`: under how many each launch runs; `files`:
    what keeps launches, by default those that fail in the state directory; `numerics`: words are held to real values; `limit`: what
    a launch may take (`seconds_of`)."""

    def __init__(
        self,
        targets: Iterable[str],
        schedules: int = 2,
        files: Iterable[DeviceProbe] | None = None,
        *,
        numerics: bool = False,
        limit: str = "",
    ) -> None:
        self.targets = list(dict.fromkeys(map(architecture_of, targets)))
        if schedules < 1:
            raise UsageError(f"--schedules {schedules}: must be 1 or more; 1 runs each launch once")
        self.schedules, self.operators, self.memory = schedules, WideOperators(), PoisonedMemory()
        self.files = files if files is None else list(files)
        self.seconds_limit = seconds_of(limit)
        self.dependences: Counter[str] = Counter()  # on the schedule, where atomics choose
        self.unanswered: list[EmulatedFault] = []
        self.distances = WordDistances() if numerics else None
        self._devices: dict[str, tuple[Device, OtherSchedules]] = {}
        self._entered, self._stack = "", ExitStack()

    @property
    def device(self) -> Device:
        """The one that is entered."""
        return self._devices[self._entered][0]

    def enter(self, arch: str = "") -> None:
        """`arch`, by default the first of the targets, answers for "cuda" from here on, until another is entered."""
        arch = arch or self.targets[0]
        if arch == self._entered:
            return
        self.close()
        if arch not in self._devices:
            repeats = OtherSchedules(other_schedules(self.schedules), lambda sentence: self.dependences.update([sentence]))
            multiprocessors = CHIPS[arch].multiprocessors
            numbers = GpuRandom(multiprocessors.count, multiprocessors.threads)
            failing: Sequence[DeviceProbe] = (
                [LaunchFiles(arch, state_directory() / "failures")] if self.files is None else self.files
            )
            probes = repeats, OpenWords(), *failing, self.memory, *filter(None, [self.distances])
            watches = self.operators, self.memory, numbers
            reals = None if self.distances is None else frozenset[str]()
            options = LaunchOptions(
                takes_cpu_tensors=False,
                views_bind=False,
                real_values=reals,
                probes=probes,
                watches=watches,
                seconds_limit=self.seconds_limit,
            )
            device = Device(arch, "eager", options)
            repeats.device = device
            self._devices[arch] = device, repeats
        if self.distances is not None:
            self.distances.device = self._devices[arch][0]
        self._stack.enter_context(driven(self._devices[arch][0]))
        self._entered = arch

    def close(self) -> None:
        """No emulated GPU is entered any more."""
        self._stack.close()
        self._entered = ""

    def swallowed_fault(self) -> EmulatedFault | None:
        """The first fault since the last `take`, whether the program caught it or not."""
        return next((fault for fault in self.device.findings if not is_unjudged(fault)), None)

    def reason_not_judged(self, error: BaseException) -> str:
        """Why the exception `error` says nothing of the program: what the emulated GPU cannot answer, or its own failure; empty
        where it does."""
        if isinstance(error, EmulatedFault):
            return _sentence(error) if is_unjudged(error) else ""
        room = raised_by(error)
        return f"bitverdict's {room} raised {type(error).__name__}: {' '.join(str(error).split())[:200]}" if room else ""

    def note_unanswered(self, error: BaseException) -> None:
        """`error`, which ended a test or the script, counts among what was not judged."""
        if not isinstance(error, EmulatedFault) or error not in self.device.findings:
            self.unanswered.append(EmulatedFault("error", self.reason_not_judged(error)))

    def take(self, where: str) -> dict[str, Any]:
        """The tally since the last call, as `EmulationTally.add` takes it. `where`: the test, or the script."""
        tally = EmulationTally(operators=self.operators.computed, operators_left=Counter(self.operators.left))
        tally.numerics = [] if self.distances is None else self.distances.take()
        self.operators.computed = 0
        self.operators.left.clear()
        for arch, (device, repeats) in self._devices.items():
            launches, findings, advice = device.take_findings()
            tally.launches += len(launches)
            tally.benchmarks += device.benchmarks
            device.benchmarks = 0
            tally.repeated_launches += repeats.repeated_launches
            repeats.repeated_launches = 0
            tally.advice.update(advice)
            for fault in findings:
                if is_unjudged(fault):
                    tally.reasons_not_judged[_sentence(fault)] += 1
                else:
                    tally.faults.append(_record(fault, arch, where))
        tally.advice.update(self.dependences)
        tally.advice.update(self.memory.take())
        tally.reasons_not_judged.update(fault.message for fault in self.unanswered)
        self.dependences.clear()
        self.unanswered.clear()
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(tally).items()}


def _sentence(fault: EmulatedFault) -> str:
    place = f" ({source_line(*fault.location.rsplit(':', 1))})" if ":" in fault.location else ""
    return f"{fault.outcome}: {fault.message}{place}" if fault.outcome != "error" else fault.message


def _record(fault: EmulatedFault, arch: str, where: str) -> dict[str, Any]:
    file, line = place_of_fault(fault)
    return {
        "where": where,
        "target": arch,
        "outcome": fault.outcome,
        "message": fault.message,
        "file": file,
        "line": line,
        "kernel": function_at(file, line)[0],
        "details": {name: str(value) for name, value in fault.details.items()},
    }


def details_of(fault: EmulatedFault) -> str:
    """What stands below the traceback of a fault."""
    return "\n".join(f"{name:<16}{fault.details[name]}" for name in _SHOWN_DETAILS if fault.details.get(name))


def traceback_text(fault: EmulatedFault) -> str:
    """`fault` as Python prints it, with its details."""
    return "".join(traceback.format_exception(at_the_kernel(fault))) + details_of(fault)


__all__ = [
    "DEFAULT_TARGET",
    "EmulatedSession",
    "EmulationTally",
    "architecture_of",
    "at_the_kernel",
    "details_of",
    "is_unjudged",
    "place_of_fault",
    "spare_collections",
    "traceback_text",
]
