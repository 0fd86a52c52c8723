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
from bitverdict.harness.model.code_digest import code_digest
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session.reproducers import KNOBS, versions
from bitverdict.harness.workers.journal import Journal, in_use, records

VERSION = 1
PATHS = ("json", "junit", "html", "pictures")
NOT_ASKED = ("command", "resume", "secret", "on")  # of the command line's names, those that no file of the run is told


@dataclass
class Past:
    """What an earlier part of a run has come to. Empty for a run that begins."""

    verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)  # (target, case's key) -> its first verdict
    begun: set[tuple[str, str]] = field(default_factory=set)  # of all cases, judged or out when the run died
    seconds: float = 0.0  # spent dealing by the earlier parts, summed
    drawn: int | None = None  # case sources that were drawn from, where that was decided
    enough: int | None = None  # drawn cases dealt before the time for more was over, or they all were

    def dealt(self, target: str, case: Case) -> bool:
        return (target, case.key) in self.begun

    def verdict(self, target: str, case: Case) -> Verdict | None:
        return self.verdicts.get((target, case.key))


def begin(arguments: argparse.Namespace, machines: Iterable[Target] = ()) -> Journal:
    """A new journal whose first line says what is asked, of which machines."""
    journal = Journal()
    journal.note(
        "asked",
        targets=[{"name": each.name, "arch": each.arch, "model": each.model, "index": each.index} for each in machines],
        version=VERSION,
        arguments=_plain(arguments),
        directory=str(Path.cwd()),
        versions=_deciding(),
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
    besides = [name for name, value in _plain(arguments).items() if value != _plain_value(defaults.get(name))]
    besides += ["secret"] if getattr(arguments, "secret", "") else []
    if besides:
        given = ", ".join("--" + name.replace("_", "-") if name != "stems" else " ".join(arguments.stems) for name in besides)
        raise UsageError(f"--resume with {given}: a run goes on with its own arguments; give --resume alone, or run anew")
    path = Path(arguments.resume) if arguments.resume else _newest()
    if not path.is_file():
        raise UsageError(f"--resume {path}: there is no such journal; give a file of {state_directory() / 'journal'}")
    told = list(records(path))
    asked = told[0] if told else {}
    try:
        _check(path, asked, told)
        before = past(told)
    except UsageError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(f"--resume {path}: has a record that cannot be read ({said}); run anew without --resume") from error
    if in_use(path):
        raise UsageError(f"--resume {path}: this run is still going; wait for its end, or end it")
    for name in KNOBS:  # one that is set only now would decide the cases that are left, and no earlier one
        os.environ.pop(name, None)
    os.environ.update(asked["knobs"])
    original = argparse.Namespace(**vars(arguments) | asked["arguments"])
    for name in PATHS:
        setattr(original, name, Path(asked["arguments"][name]) if asked["arguments"].get(name) else None)
    if sources_of(original) != asked["sources"]:
        changed = ", ".join(sorted(set(sources_of(original)) | set(asked["sources"])))
        raise UsageError(f"--resume {path}: {changed} changed since; restore it, or run anew without --resume")
    numbers = [record["number"] for record in told if record["event"] == "begin"]
    return original, Journal(path, first=max(numbers, default=-1) + 1), before


def past(told: list[dict]) -> Past:
    """What the records of a journal come to. The first verdict on a case counts: later ones are of shrinking and of reruns."""
    found, out = Past(), dict[int, tuple[str, str]]()
    last: float | None = None
    since: float | None = None
    for record in told:
        match record["event"]:
            case "asked" | "resumed":
                found.seconds += last - since if last is not None and since is not None else 0.0
                last = since = record["time"]
            case "begin":
                out[record["number"]] = record["target"], _key(record["case"])
                found.begun.add(out[record["number"]])
            case "end" if record["number"] in out:
                verdict = Verdict.from_json(record["verdict"])
                if verdict.decision not in (Decision.CANCELLED, Decision.ERROR):  # what failed then may not fail now
                    found.verdicts.setdefault(out[record["number"]], verdict)
            case "drawn":
                found.drawn = record["case_sources"]
            case "enough":
                found.enough = record["cases"]
        last = record["time"]
    found.seconds += last - since if last is not None and since is not None else 0.0
    return found


def comparable(named: str, asked: Mapping, remedy: str) -> None:
    """UsageError, which begins with `named`, where what was `asked` rests on other versions or other code than those of today."""
    now = _deciding()
    for name, then in asked["versions"].items():
        if then != now.get(name):
            said = f"{name} was {then}, is {now.get(name)}: their verdicts are not comparable"
            raise UsageError(f"{named}: {said}; go back to {name} {then}, or {remedy}")
    if asked["code"] != code_digest():
        said = "the code of harness, kernels or reference changed since: its verdicts are not comparable"
        raise UsageError(f"{named}: {said}; restore the code, or {remedy}")


def _check(path: Path, asked: dict, told: list[dict]) -> None:
    if asked.get("event") != "asked":
        raise UsageError(f"--resume {path}: does not begin with what was asked (pytest's journals do not); give one of `run`'s")
    if asked.get("version") != VERSION:
        raise UsageError(f"--resume {path}: version {asked.get('version')}, this checkout takes up version {VERSION}; run anew")
    if told[-1]["event"] == "finished":
        raise UsageError(f"--resume {path}: this run came to its end, with status {told[-1]['status']}; run anew without --resume")
    comparable(f"--resume {path}", asked, "run anew without --resume")
    if Path(asked["directory"]) != Path.cwd():
        raise UsageError(f"--resume {path}: was run in {asked['directory']}, where its paths lead; change there and say it again")


def _newest() -> Path:
    """The newest journal of `run` that did not come to its end and is nobody's at the moment."""
    directory = state_directory() / "journal"
    for path in sorted(directory.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True):
        told = list(records(path))
        if told and told[0]["event"] == "asked" and told[-1]["event"] != "finished" and not in_use(path):
            return path
    raise UsageError(f"--resume: no unfinished run in {directory}; name its journal, or run without --resume")


def _deciding() -> dict[str, str]:
    """Versions that decide verdicts; this checkout's own is told by its code's digest."""
    return {name: version for name, version in versions().items() if name != "harness"}


def sources_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Digests of the files that addresses name: the kernel under test, wherever they lie."""
    addresses = [arguments.contract, arguments.launcher, *arguments.stems]
    places = [Path(address.rpartition(":")[0]) for address in addresses if address.rpartition(":")[0].endswith(".py")]
    return {str(place): hashlib.sha256(place.read_bytes()).hexdigest()[:16] if place.is_file() else "gone" for place in places}


def _plain(arguments: argparse.Namespace) -> dict[str, object]:
    return {name: _plain_value(value) for name, value in vars(arguments).items() if name not in NOT_ASKED}


def _plain_value(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _key(case: dict) -> str:
    """`Case.key` of a case's record."""
    return json.dumps(case, sort_keys=True, separators=(",", ":"))
