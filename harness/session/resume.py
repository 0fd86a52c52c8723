"""``run --resume``: a run that was killed or cancelled goes on from its journal and comes to the results of an undisturbed one.

Besides the cases (`bitverdict.harness.workers.journal`) a run's journal holds what it was asked, first of all (``asked``:
arguments, directory, versions, a digest of the code, knobs), what its clock decided (`bitverdict.harness.session.deadline`), and
its end (``finished``). Going on deals the same cases in the same order: one with a verdict in the journal is counted and not
judged, one that was out when the run died is judged again. Cancelled is not a verdict."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import code_digest, state_directory
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session.reproducers import KNOBS, versions
from bitverdict.harness.workers.journal import Journal, in_use, records

VERSION = 1
PATHS = ("json", "junit", "html", "pictures")
UNSTORED_NAMES = ("command", "resume", "secret", "on")  # of the command line's names, those that no file of the run is told


@dataclass
class Past:
    """What an earlier part of a run has come to. Empty for a run that begins."""

    verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)  # (target, case's key) -> its first verdict
    begun_cases: set[tuple[str, str]] = field(default_factory=set)  # of all cases, judged or out when the run died
    seconds: float = 0.0  # spent dealing by the earlier parts, summed
    drawn: int | None = None  # case sources that were drawn from, where that was decided
    enough: int | None = None  # drawn cases dealt before the time for more was over, or they all were

    def dealt(self, target: str, case: Case) -> bool:
        return (target, case.key) in self.begun_cases

    def verdict(self, target: str, case: Case) -> Verdict | None:
        return self.verdicts.get((target, case.key))


def begin(arguments: argparse.Namespace, machines: Iterable[Target] = ()) -> Journal:
    """A new journal whose first line says what is asked, of which machines."""
    journal = Journal()
    journal.note(
        "asked",
        targets=[{"name": each.name, "arch": each.arch, "model": each.model, "index": each.index} for each in machines],
        version=VERSION,
        arguments=_plain_arguments(arguments),
        directory=str(Path.cwd()),
        versions=_deciding_versions(),
        code=code_digest(),
        sources=sources_of(arguments),
        knobs={name: os.environ[name] for name in KNOBS if name in os.environ},
    )
    return journal


def take_up(arguments: argparse.Namespace, defaults: Mapping[str, object]) -> tuple[argparse.Namespace, Journal, Past]:
    """The arguments, the journal and the past of the run that ``--resume`` names.

    ValueError (value, rule, remedy), with nothing written, for other arguments besides, for no journal that can go on, and for one
    of other versions, another directory or other code, whose verdicts would not be comparable.
    """
    besides = [name for name, value in _plain_arguments(arguments).items() if value != _plain_value(defaults.get(name))]
    besides += ["secret"] if getattr(arguments, "secret", "") else []
    if besides:
        given = ", ".join("--" + name.replace("_", "-") if name != "stems" else " ".join(arguments.stems) for name in besides)
        raise UsageError(f"--resume with {given}: a run goes on with its own arguments; give --resume alone, or run anew")
    path = Path(arguments.resume) if arguments.resume else _newest()
    if not path.is_file():
        raise UsageError(f"--resume {path}: there is no such journal; give a file of {state_directory() / 'journal'}")
    journal_records = list(records(path))
    request = journal_records[0] if journal_records else {}
    try:
        _check(path, request, journal_records)
        before = past(journal_records)
    except UsageError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(f"--resume {path}: has a record that cannot be read ({said}); run anew without --resume") from error
    if in_use(path):
        raise UsageError(f"--resume {path}: this run is still going; wait for its end, or end it")
    for name in KNOBS:  # one that is set only now would decide the cases that are left, and no earlier one
        os.environ.pop(name, None)
    os.environ.update(request["knobs"])
    original = argparse.Namespace(**vars(arguments) | request["arguments"])
    for name in PATHS:
        setattr(original, name, Path(request["arguments"][name]) if request["arguments"].get(name) else None)
    if sources_of(original) != request["sources"]:
        changed = ", ".join(sorted(set(sources_of(original)) | set(request["sources"])))
        raise UsageError(f"--resume {path}: {changed} changed since; restore it, or run anew without --resume")
    numbers = [record["number"] for record in journal_records if record["event"] == "begin"]
    return original, Journal(path, first=max(numbers, default=-1) + 1), before


def past(told: list[dict]) -> Past:
    """What the records of a journal come to. The first verdict on a case counts: later ones are of shrinking and of reruns."""
    run_past, out = Past(), dict[int, tuple[str, str]]()
    last_time: float | None = None
    since: float | None = None
    for record in told:
        match record["event"]:
            case "asked" | "resumed":
                run_past.seconds += last_time - since if last_time is not None and since is not None else 0.0
                last_time = since = record["time"]
            case "begin":
                out[record["number"]] = record["target"], _key(record["case"])
                run_past.begun_cases.add(out[record["number"]])
            case "end" if record["number"] in out:
                verdict = Verdict.from_json(record["verdict"])
                if verdict.decision not in (Decision.CANCELLED, Decision.ERROR):  # what failed then may not fail now
                    run_past.verdicts.setdefault(out[record["number"]], verdict)
            case "drawn":
                run_past.drawn = record["case_sources"]
            case "enough":
                run_past.enough = record["cases"]
        last_time = record["time"]
    run_past.seconds += last_time - since if last_time is not None and since is not None else 0.0
    return run_past


def comparable(subject: str, request: Mapping, remedy: str) -> None:
    """UsageError, which begins with `subject`, where `request` rests on other versions or other code than those of today."""
    now = _deciding_versions()
    for name, then in request["versions"].items():
        if then != now.get(name):
            said = f"{name} was {then}, is {now.get(name)}: their verdicts are not comparable"
            raise UsageError(f"{subject}: {said}; go back to {name} {then}, or {remedy}")
    if request["code"] != code_digest():
        said = "the code of harness, kernels or reference changed since: its verdicts are not comparable"
        raise UsageError(f"{subject}: {said}; restore the code, or {remedy}")


def _check(path: Path, request: dict, journal_records: list[dict]) -> None:
    if request.get("event") != "asked":
        raise UsageError(f"--resume {path}: does not begin with a run's settings (pytest's journals do not); give one of `run`'s")
    if request.get("version") != VERSION:
        raise UsageError(f"--resume {path}: version {request.get('version')}, this checkout takes up version {VERSION}; run anew")
    if journal_records[-1]["event"] == "finished":
        raise UsageError(
            f"--resume {path}: this run came to its end, with status {journal_records[-1]['status']}; run anew without --resume"
        )
    comparable(f"--resume {path}", request, "run anew without --resume")
    if Path(request["directory"]) != Path.cwd():
        raise UsageError(f"--resume {path}: was run in {request['directory']}, where its paths lead; change there and say it again")


def _newest() -> Path:
    """The newest journal of `run` that did not come to its end and is nobody's at the moment."""
    directory = state_directory() / "journal"
    for path in sorted(directory.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True):
        told = list(records(path))
        if told and told[0]["event"] == "asked" and told[-1]["event"] != "finished" and not in_use(path):
            return path
    raise UsageError(f"--resume: no unfinished run in {directory}; name its journal, or run without --resume")


def _deciding_versions() -> dict[str, str]:
    """Versions that decide verdicts; this checkout's own is told by its code's digest."""
    return {name: version for name, version in versions().items() if name != "harness"}


def sources_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Digests of the files that addresses name: the kernel under test, wherever they lie."""
    addresses = [arguments.contract, arguments.launcher, *arguments.stems]
    places = [Path(address.rpartition(":")[0]) for address in addresses if address.rpartition(":")[0].endswith(".py")]
    return {str(place): hashlib.sha256(place.read_bytes()).hexdigest()[:16] if place.is_file() else "gone" for place in places}


def _plain_arguments(arguments: argparse.Namespace) -> dict[str, object]:
    return {name: _plain_value(value) for name, value in vars(arguments).items() if name not in UNSTORED_NAMES}


def _plain_value(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _key(case: dict) -> str:
    """`Case.key` of a case's record."""
    return json.dumps(case, sort_keys=True, separators=(",", ":"))
