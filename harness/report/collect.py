"""What a page tells of a run, as JSON: it goes through a pytest worker's properties unchanged, and several make one page."""

from __future__ import annotations

import platform
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import path_from_here
from bitverdict.harness.model.targets import Target, nearest_emulated
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.report.examine import task_of
from bitverdict.harness.report.maps import error_map, histogram, tile_map
from bitverdict.harness.report.source import listing, listing_of
from bitverdict.harness.report.timeline import timeline
from bitverdict.harness.session import tables
from bitverdict.harness.session.bugs import Bug
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.failure_report import DETAILS_ELSEWHERE, HELP, cells, headline, help_lines, place_of
from bitverdict.harness.session.reproducers import versions
from bitverdict.harness.session.tally import Tally
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import task_result_of

LEAST_DRAWN = 64  # words: of fewer that are all wrong the sentence says as much as a picture
MOST_EXAMINED = 12  # failing cases of a run that are launched again for pictures
NOT_A_CASE = DETAILS_ELSEWHERE | {*HELP, "timeline", "in flight", "text"}


def header(command: list[str] | None = None) -> dict[str, Any]:
    """Where and how a run was made: command, date, commit and versions, machine."""
    words = sys.argv if command is None else command
    name = Path(words[0]).name if words else ""
    program = "python -m pytest" if "pytest" in name or "pytest" in Path(words[0]).parent.name else "bitverdict"
    found = dict(versions())
    return {
        "command": shlex.join([*program.split(), *words[1:]]),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "commit": found.pop("harness"),
        "versions": found,
        "machine": f"{platform.system()} {platform.machine()}, {platform.node()}",
    }


def of_run(tally: Tally, bugs: Iterable[Bug], pool: WorkerPool | None, *, base_path: Path | None = None) -> dict[str, Any]:
    """The rows, failures and remarks of a run. `pool` launches its first failing cases again; None: there are no pictures."""
    rows = [
        {
            **row.facts,
            **{str(decision): row.decisions[decision] for decision in Decision},
            "basis": ", ".join(f"{name} {count}" for name, count in row.basis.most_common()),
            "cover": [tally.decided_counts[row.contract, row.target], tally.required_counts.get((row.contract, row.target), 0)],
        }
        for row in sorted(tally.rows.values(), key=lambda row: (row.contract, row.target, row.dtype))
    ]
    failures: list[dict[str, Any]] = []
    for bug in bugs:
        notes = [f"{bug.case_count} cases show it", *bug.notes] if bug.case_count > 1 else list(bug.notes)
        asked = pool if len(failures) < MOST_EXAMINED else None
        line, drawn = bug.replay_line(directory=base_path), bug.widest_case if bug.verdict.details.get("output") else None
        failures.append(failure(bug.source.name, bug.source.target, bug.case, bug.verdict, notes, line, asked, drawn=drawn))
    gaps = [f"{name}: {said}" for name, each in tally.scope.limits.items() for said in each] + tally.completeness.lines()
    sizes = [
        {"contract": name, "sizes": ", ".join(f"{axis} = {size:,}" for axis, size in most.items())}
        for name, most in tally.scope.largest.items()
        if most
    ]
    configurations = tally.scope.lines()[bool(sizes) : len(tally.scope.lines()) - sum(map(len, tally.scope.limits.values()))]
    return {
        "rows": rows,
        "cases": [[*one[:2], describe(one[2]), *one[3:5], round(one[5], 3)] for one in tally.cases],
        "failures": failures,
        "left_out": gaps,
        "sizes": sizes,
        "configurations": configurations,
        "remarks": [*tables.not_run_lines(tally), *tally.discrimination.lines()],
        "sentences": [tally.sentence()],
        "status": tally.status(),
    }


def of_replay(where: Target, case: Case, verdict: Verdict, notes: list[str], line: str, pool: WorkerPool) -> dict[str, Any]:
    """One stored case that was judged again, as a run of one case."""
    contract, counted = resolve(case.contract), Tally()
    name = CaseSource(case.contract, where, launcher=case.launcher).name
    counted.count(case, name, where.name, contract.coverage(case, where), verdict)
    told = of_run(counted, (), pool)
    if verdict.failed or verdict.decision is Decision.ERROR:
        told["failures"] = [failure(name, where, case, verdict, notes, line, pool)]
    return told


def of_faults(faults: Iterable[dict[str, Any]], sentences: list[str]) -> dict[str, object]:
    """What launches without a contract came to: one failure for each outcome at a line, of the records of an `EmulationTally`, and
    the `sentences` of its end, the first of which heads the page."""
    places: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for fault in faults:
        places.setdefault((fault["outcome"], fault["file"], fault["line"]), []).append(fault)
    failures = []
    for (outcome, file, line), fault_records in places.items():
        fault_record = fault_records[0]
        marks = {line: f"{outcome}: here"}
        other_file, _, other_line = fault_record["details"].get("other location", "").rpartition(":")
        if other_line.isdigit() and Path(other_file).name == Path(file).name:
            marks.setdefault(int(other_line), other_mark(outcome))
        failures.append(
            {
                "contract": fault_record["kernel"] or "a launch",
                "target": ", ".join(dict.fromkeys(f"emulated:{fault['target']}" for fault in fault_records)),
                "outcome": outcome,
                "message": fault_record["message"],
                "headline": fault_record["details"].get("summary", fault_record["message"]),
                "case": fault_record["where"],
                "notes": [f"{len(fault_records):,} launches show it"] if len(fault_records) > 1 else [],
                "replay": fault_record["details"].get("replay", ""),
                "details": [
                    [key, _lines(value)]
                    for key, value in fault_record["details"].items()
                    if key not in NOT_A_CASE | {"replay", "barriers", "other location"} and value
                ],
                "source": [lines] if (lines := listing_of(Path(file), marks)) else [],
            }
        )
    status_text = f"{len(failures):,} fault{'s' * (len(failures) > 1)}" if failures else "no fault"
    shown = {"failures": failures, "sentences": sentences[:1], "remarks": sentences[1:]}
    return {**shown, "status": int(bool(failures)), "status_text": status_text}


def merge_runs(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Several runs as one: rows and failures of all, the worst status."""
    merged_run: dict[str, Any] = {
        name: [] for name in ("rows", "cases", "failures", "left_out", "sizes", "configurations", "remarks", "sentences")
    }
    status = 0
    for part in parts:
        for name, kept in merged_run.items():
            kept += [each for each in part[name] if name in ("rows", "cases") or each not in kept]
        status = max(status, part["status"])
    merged_run["rows"].sort(key=lambda row: (row["contract"], row["target"], row["dtype"]))
    return {"status": status} | merged_run


def failure(
    name: str,
    where: Target,
    case: Case,
    verdict: Verdict,
    notes: list[str],
    replay: str,
    pool: WorkerPool | None,
    *,
    drawn: Case | None = None,
) -> dict[str, Any]:
    """One failure with its pictures, of the wider case `drawn` where there is one. What cannot be launched again says so, and is
    told by its verdict alone."""
    details = verdict.details
    drawn = case if drawn is None else drawn
    examination, why = _examine_failure(drawn, where, verdict, pool)
    marks: dict[str, str] = {}
    if verdict.location:
        marks[verdict.location] = f"{verdict.outcome}: here"
    if details.get("other location"):
        marks.setdefault(details["other location"], other_mark(str(verdict.outcome)))
    if examination.get("stored_at"):
        marks.setdefault(examination["stored_at"], "the first wrong word is stored here")
    if details.get("error by line"):
        marks[place_of(verdict)] = "most of the error enters here"
    if not marks:
        marks = {at: "the kernel under test" for each in verdict.recorded.get("launches", ()) if (at := each.get("place"))}
    event = examination.get("timeline", {})
    pictures = [
        {"kind": kind, "name": output["name"], "svg": svg}
        for output in examination.get("outputs", ())
        if output["wrong"] and not output["wrong"] == output["of"] < LEAST_DRAWN
        for kind, svg in (
            ("tiles", tile_map(output, examination["writers"]) if output["wrong"] < output["of"] else ""),
            ("sizes", error_map(output)),
            ("errors", histogram(output) if output["errors"] else ""),
        )
        if svg
    ]
    if svg := timeline(event, examination.get("outcome", ""), verdict.location):
        pictures.append({"kind": "timeline", "name": "", "svg": svg})
    return {
        "contract": name,
        "target": where.name,
        "outcome": str(verdict.outcome),
        "error": verdict.decision is Decision.ERROR,
        "message": path_from_here(verdict.message),
        "location": verdict.location,
        "headline": headline(verdict).removeprefix(f"{verdict.outcome}: "),
        "clusters": list(details.get("clusters", ())),
        "first": list(details.get("first", ())),
        "heat": details["heat"] if not examination and cells(details.get("heat")) > 1 else None,
        "details": [
            [key, _lines(value)] for key, value in details.items() if key not in NOT_A_CASE and value not in (None, "", [], {})
        ],
        "help": help_lines(verdict, case),
        "notes": notes,
        "case": describe(case),
        "drawn": describe(drawn) if pictures and drawn.key != case.key else "",
        "replay": replay,
        "source": [] if not marks else listing(marks, case),
        "pictures": pictures,
        "examined": f"launched again on {examination['target']} for the pictures" if pictures else "",
        "not_examined": why,
        "program": f"{event['kernel']}, program {tuple(event['program'])}" if event else "",
    }


def _examine_failure(case: Case, where: Target, verdict: Verdict, pool: WorkerPool | None) -> tuple[dict[str, Any], str]:
    """What a launch with a recorder shows, and why there is none."""
    if pool is None:
        return {}, "the run has more failures than are launched again for pictures"
    if case.sealed:
        return {}, "the candidate is sealed: its file is not imported for pictures"
    if verdict.decision is Decision.ERROR:
        return {}, "an error of the harness is not launched again"
    there = where if where.emulated else nearest_emulated(where.arch)
    try:
        answered = pool.judge(task_of(case), there)  # type: ignore[arg-type]
    except (EmulatedFault, OSError) as error:
        return {}, f"the launch for the pictures failed: {error}"
    found = task_result_of(answered)
    if found is None:
        return {}, f"the launch for the pictures ended with {answered.outcome}: {answered.message}"
    return found, ""


def other_mark(outcome: str) -> str:
    """What is said of the other line that a failure names."""
    return "the other access" if outcome == "race" else "this line too"


def _lines(value: object) -> list[str]:
    if isinstance(value, dict):
        return [path_from_here(f"{name}: {each}") for name, each in value.items()]
    return [path_from_here(str(each)) for each in (value if isinstance(value, list) else str(value).splitlines())]


def stem_of(told: Mapping[str, object], number: int) -> str:
    """The beginning of the names of a failure's picture files."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in f"{told['contract']}-{told['target']}")
    return f"{number:02d}-{plain}"
