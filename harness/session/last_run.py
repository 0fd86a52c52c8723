"""What the last run came to, from the journals: which cases failed (``--lf``), and each case's outcome (``-k race``).

A run that was asked for some cases alone says nothing about the others: journals are read from the newest on, until one of a run
that judged all of a kernel's cases. The newest verdict on a case counts. A case that was only tried while a bug was reduced is none
of them, unless the bug's reproducer holds it: that one comes first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bitverdict.harness.model.addresses import place_of
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.workers.journal import records

NARROWED_BY = ("k", "case", "lf", "x")  # arguments of a run that judges some cases alone
MOST_JOURNALS = 50
_JUDGED_DECISIONS = (Decision.PASS, Decision.FAIL, Decision.INCONCLUSIVE)


@dataclass
class LastRun:
    """Of one kernel or launcher on one target: case's key -> its record and its newest verdict's decision and outcome."""

    cases: dict[str, dict] = field(default_factory=dict)
    decisions: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    reduced_keys: set[str] = field(default_factory=set)  # keys of cases that were not dealt

    def failed_records(self) -> list[dict]:
        """The records of the cases that failed, those of reproducers first, then as they were dealt."""
        failed = {key for key, decision in self.decisions.items() if decision == Decision.FAIL}
        first = [key for key in _stored_keys() if key in failed]
        return [
            self.cases[key] for key in dict.fromkeys([*first, *(key for key in self.cases if key in failed - self.reduced_keys)])
        ]


def last_runs(asked: Iterable[tuple[str, str, str]], *, before: str = "") -> dict[tuple[str, str, str], LastRun]:
    """What the last run of each (contract, launcher, target) came to, as far as journals say; `before`: those older than the one
    of that name."""
    places = {(_place(contract), _place(launcher), target): (contract, launcher, target) for contract, launcher, target in asked}
    runs: dict[tuple[str, str, str], LastRun] = {subject: LastRun() for subject in places.values()}
    complete_subjects: set[tuple[str, str, str]] = set()
    paths = sorted((state_directory() / "journal").glob("*.jsonl"), key=lambda path: path.name, reverse=True)
    for path in [path for path in paths if not before or path.name < before][:MOST_JOURNALS]:
        told = list(records(path))
        arguments = told[0].get("arguments", {}) if told and told[0]["event"] == "asked" else None
        narrow = arguments is None or any(arguments.get(name) for name in NARROWED_BY)
        met = set()
        for subject, record, dealt, verdict in _judged_cases(told, places):
            met.add(subject)
            _add(runs[subject], record, dealt, verdict, done=subject in complete_subjects)
        complete_subjects |= set() if narrow else met
        if complete_subjects == set(runs):
            break
    return runs


def _add(last_run: LastRun, record: dict, dealt: bool, verdict: dict, *, done: bool) -> None:
    key = json.dumps(record, sort_keys=True, separators=(",", ":"))
    if done or key in last_run.decisions:
        return
    last_run.cases[key], last_run.decisions[key], last_run.outcomes[key] = record, verdict["decision"], verdict["outcome"]
    if not dealt:
        last_run.reduced_keys.add(key)


def _judged_cases(
    journal_records: list[dict], places: dict[tuple[str, str, str], tuple[str, str, str]]
) -> Iterator[tuple[tuple[str, str, str], dict, bool, dict]]:
    """(whose, case's record, whether it was dealt, its verdict) of each case in a journal that is asked for, with its newest
    verdict."""
    open_cases: dict[int, tuple[tuple[str, str, str], dict, bool]] = {}
    verdicts: dict[tuple, tuple[tuple[str, str, str], dict, bool, dict]] = {}
    is_reducing = False
    for record in journal_records:
        match record["event"]:
            case "asked" | "resumed":
                is_reducing = False
            case "reducing":
                is_reducing = True
            case "begin" if "case" in record:
                case = record["case"]
                subject = places.get((_place(case["contract"]), _place(case.get("launcher", "")), record["target"]))
                if subject is not None:
                    open_cases[record["number"]] = subject, case, not is_reducing
            case "end" if record["number"] in open_cases and record["verdict"]["decision"] in _JUDGED_DECISIONS:
                subject, case, dealt = open_cases[record["number"]]
                key = subject, json.dumps(case, sort_keys=True)
                earlier = verdicts.get(key)
                verdicts[key] = subject, case, dealt or (earlier is not None and earlier[2]), record["verdict"]
    yield from verdicts.values()


def _place(address: str) -> str:
    """An address by the file that it leads to, from wherever it was asked."""
    return f"{place_of(address)}:{address.rpartition(':')[2]}" if ":" in address else address


def _stored_keys() -> list[str]:
    """The keys of the cases that reproducers hold, the newest first."""
    keys = []
    paths = (state_directory() / "failures").glob("*.json")
    for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            keys.append(json.dumps(json.loads(Path(path).read_text())["case"], sort_keys=True, separators=(",", ":")))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return keys
