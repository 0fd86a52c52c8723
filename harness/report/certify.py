"""Make a conformance pack: every required case of a kernel judged, with digests of the words expected and got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bitverdict.harness.model.paths import KERNELS
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.report import required_lists
from bitverdict.harness.report.own_sources import pack_sources
from bitverdict.harness.report.pack import VERSION, Pack, clause_of, clauses, expected_of
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.first_launches import make_first_launch
from bitverdict.harness.session.replay import Judges
from bitverdict.harness.session.reproducers import versions

KNOWN_FIELDS = {"target", "case", "outcome", "owner", "issue"}


def certify_sources(sources: Sequence[CaseSource], judges: Judges, known_failures: Sequence[Mapping[str, str]] = ()) -> Pack:
    """The pack of `sources`, which are of one kernel on several targets. `known`: failures with owner and issue.

    UsageError where a known failure lacks a field.
    """
    check_known(known_failures)
    records: list[dict[str, Any]] = []
    for asked in sources:
        contract, seen = asked.contract, make_first_launch(asked, judges)
        source = seen.source
        for case in source.required():
            verdict = seen.verdicts.get((source.target.name, case.key)) or judges.judge(case, source.target)
            runs = verdict.decision in (Decision.PASS, Decision.FAIL)
            records.append(
                {
                    "target": source.target.name,
                    "case": case.to_json(),
                    "line": describe(case),
                    "clause": clause_of(case, source.target, contract),
                    "decision": str(verdict.decision),
                    "outcome": str(verdict.outcome),
                    "message": verdict.message,
                    "basis": str(verdict.basis),
                    "words": verdict.words,
                    "expected": expected_of(case, source.target, contract, verdict.recorded) if runs else {},
                    "got": dict(verdict.recorded.get("digests", {})),
                    "recorded": _without_places(verdict.recorded),
                }
            )
    first_source = sources[0]
    about: dict[str, Any] = {
        "version": VERSION,
        "required list": (required_lists.versions() or ["none"])[-1],
        "contract": first_source.address,
        "launcher": first_source.launcher,
        "name": first_source.name,
        "targets": [asdict(source.target) for source in sources],
        "versions": versions(),
        "clauses": clauses(records),
        "known": [dict(each) for each in known_failures],
        "counts": counts(records),
    }
    return Pack(about, records, shipped_sources(sources[0]) | pack_sources(about, records))


def shipped_sources(source: CaseSource) -> dict[str, str]:
    """The text of a shipped kernel by its name in the checkout; nothing of a launcher of one's own."""
    own = KERNELS / f"{source.address}.py"
    return {f"kernels/{own.name}": own.read_text()} if not source.launcher and own.is_file() else {}


def counts(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Cases by decision, and words compared."""
    found = {"cases": len(records), "words": sum(record["words"] for record in records)}
    for record in records:
        found[record["decision"]] = found.get(record["decision"], 0) + 1
    return found


def check_known(known: Sequence[Mapping[str, str]]) -> None:
    """UsageError unless each known failure names its case, outcome, owner and issue."""
    for each in known:
        if not isinstance(each, Mapping) or set(each) != KNOWN_FIELDS or not all(each.values()):
            raise UsageError(f"known failure {each!r}: must have {', '.join(sorted(KNOWN_FIELDS))}, none empty")


def open_points(pack: Pack) -> list[str]:
    """What keeps a pack from certifying, a sentence each: failures that nobody owns, and known ones that pass."""
    known_failures = {(each["target"], each["case"]): each for each in pack.about["known"]}
    seen_keys, points = set(), []
    for record in pack.cases:
        key = record["target"], record["line"]
        own = known_failures.get(key)
        seen_keys.add(key)
        where = f"{record['line']} on {record['target']}"
        if own is not None and record["decision"] == Decision.PASS:
            points.append(f"UNEXPECTED PASS: {where} is a known failure of {own['owner']} ({own['issue']}); take it off the list")
        elif own is not None and record["outcome"] != own["outcome"]:
            points.append(f"{where}: {record['outcome']}, and {own['outcome']} is what {own['issue']} knows")
        elif own is None and record["decision"] != Decision.PASS:
            told = f": {record['message']}" if record["message"] else ""
            decision = f"{record['decision']}: " if record["decision"] != record["outcome"] else ""
            points.append(f"{where}: {decision}{record['outcome']}, which no line of --known owns{told}")
    points += [
        f"known failure {line} on {name}: no required case of that name"
        for name, line in known_failures
        if (name, line) not in seen_keys
    ]
    return points


def target_of(record: Mapping[str, Any]) -> Target:
    """The machine of a pack as it is written there."""
    return Target(**{name: record[name] for name in ("name", "arch", "index", "model", "uuid")})


def _without_places(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What a verdict recorded, without digests, which stand beside it, and the files of this machine that kernels lie in."""
    facts = {name: value for name, value in recorded.items() if name != "digests"}
    if "launches" in facts:
        facts["launches"] = [{name: value for name, value in each.items() if name != "place"} for each in facts["launches"]]
    return facts
