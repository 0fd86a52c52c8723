"""What the journals of one CI job come to: each judged case once, and one finding for each clause of a contract that fails.

Journals are those of `bitverdict run` and of pytest, where each xdist worker writes one of its own. A clause that fails on a line
is one finding, whatever cases, targets and workers have seen it. Cases that were tried while a bug was reduced count for nothing.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bitverdict.harness.contracts.described.record import DrawRecord
from bitverdict.harness.model.certificate import TELLS_NOTHING
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.mutants.clauses import clause_of
from bitverdict.harness.session.failure_report import headline
from bitverdict.harness.session.tally import FAIL, INCONCLUSIVE, NOTHING_RAN, PASS, RAN
from bitverdict.harness.workers.journal import records

ERROR = "no verdict, by an error that is no fault of the kernel"


@dataclass
class ClauseFinding:
    """A clause that fails at `file`:`line` of the kernel `name`. `file`: a path below the root; empty where it lies outside."""

    name: str
    clause: str
    outcome: str
    message: str
    file: str
    line: int
    case: str
    error: bool = False
    cases: Counter[str] = field(default_factory=Counter)
    """Target -> cases that show it."""

    @property
    def title(self) -> str:
        return f"{self.name}: {self.clause}"

    @property
    def description(self) -> str:
        shown = ", ".join(f"{target} ({count} case{'s' * (count > 1)})" for target, count in sorted(self.cases.items()))
        return f"{self.outcome}: {self.message}\non {shown}\ncase: {self.case}"


@dataclass(frozen=True)
class JudgedCase:
    """One case with its verdict."""

    name: str
    target: str
    case: str
    verdict: Verdict


@dataclass
class JournalFindings:
    """All of it. `unended_runs`: journals of runs that did not come to their end. `statuses`: what the others ended with."""

    judged: list[JudgedCase] = field(default_factory=list)
    findings: list[ClauseFinding] = field(default_factory=list)
    unended_runs: list[Path] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    def status(self) -> int:
        """The exit status, by the rules of a run, as far as journals tell: they do not name required cases that were not judged."""
        total = Counter(item.verdict.decision for item in self.judged)
        if total[Decision.FAIL] or FAIL in self.statuses:
            return FAIL
        told = {(item.name, item.target) for item in self.judged if item.verdict.decision is Decision.PASS and item.verdict.words}
        doubtful = any(
            item.verdict.decision is Decision.INCONCLUSIVE
            and (TELLS_NOTHING not in item.verdict.details or (item.name, item.target) not in told)
            for item in self.judged
        )
        if total[Decision.ERROR] or doubtful or self.unended_runs or INCONCLUSIVE in self.statuses:
            return INCONCLUSIVE
        return PASS if any(total[decision] for decision in RAN) else NOTHING_RAN


def journals(paths: Iterable[Path]) -> list[Path]:
    """The journals at `paths`: files, or folders with journals in them."""
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        if not path.exists() or not inside:
            raise UsageError(f"ci {path}: there is no journal; judge first, or name a folder such as .bitverdict/journal")
        if inside == [path] and not any(records(path)):
            raise UsageError(f"ci {path}: is no journal of a run; give a file or a folder such as .bitverdict/journal")
        files += inside
    return list(dict.fromkeys(files))


def read(paths: Iterable[Path], root: Path) -> JournalFindings:
    """What the journals `paths` come to; files are named from the folder `root`."""
    journal_findings = JournalFindings()
    last_verdicts: dict[tuple[str, str, str], tuple[dict, dict]] = {}
    for path in paths:
        has_request = False
        status: int | None = None
        out: dict[int, dict] = {}
        is_reducing = False
        for record in records(path):
            match record["event"]:
                case "asked":
                    has_request = True
                case "resumed" | "stored":
                    is_reducing = False
                case "reducing":
                    is_reducing = True
                case "finished":
                    status = record["status"]
                case "begin" if "case" in record and not is_reducing:
                    out[record["number"]] = record
                case "end" if record["number"] in out:
                    begin_record = out[record["number"]]
                    key = json.dumps(begin_record["case"], sort_keys=True)
                    last_verdicts[begin_record["target"], key, begin_record["case"]["contract"]] = begin_record, record["verdict"]
        journal_findings.unended_runs += [path] if has_request and status is None else []
        journal_findings.statuses += [status] if status is not None else []
    findings: dict[tuple, ClauseFinding] = {}
    for begin_record, verdict in last_verdicts.values():
        _add(journal_findings, findings, begin_record["case"], begin_record["target"], Verdict.from_json(verdict), root)
    journal_findings.findings = sorted(findings.values(), key=lambda each: (each.error, each.file, each.line, each.title))
    return journal_findings


def _add(
    journal_findings: JournalFindings, findings: dict[tuple, ClauseFinding], case: dict, target: str, verdict: Verdict, root: Path
) -> None:
    address = case.get("launcher") or case["contract"]
    place, _, function = address.rpartition(":")
    name = f"{Path(place).name}:{function}" if place.endswith(".py") else address
    case_text = " ".join(_fields(case))
    journal_findings.judged.append(JudgedCase(name, target, case_text, verdict))
    if not verdict.failed and verdict.decision is not Decision.ERROR:
        return
    file, line = place_of(verdict.location, case, root)
    clause = clause_of(verdict) if verdict.failed else ERROR
    first = headline(verdict).removeprefix(f"{verdict.outcome}: ")
    message = verdict.message if verdict.message.startswith(first) else f"{first}\n{verdict.message}"
    made = ClauseFinding(name, clause, str(verdict.outcome), message, file, line, case_text, error=not verdict.failed)
    findings.setdefault((name, clause, file, line), made).cases[target] += 1


def _fields(case: dict) -> Iterator[str]:
    """The fields of a case's record, in one line."""
    problem = case.get("problem")
    if isinstance(problem, dict) and "draws" in problem:
        yield from DrawRecord.from_json(problem).describe_parts()
        problem = {}
    for name, value in (problem if isinstance(problem, dict) else {"problem": problem}).items():
        yield f"{name}={value}" if not isinstance(value, dict | list) else f"{name}={json.dumps(value, separators=(',', ':'))}"
    yield from (f"{name}={case[name]}" for name in ("regime", "data_seed", "schedule") if name in case)


def place_of(location: str, case: dict, root: Path) -> tuple[str, int]:
    """(file from `root`, line) of a verdict: its location, else the function that is judged; ("", 0) where both lie outside."""
    addresses = [address for address in (case.get("launcher", ""), case["contract"]) if ".py:" in address]
    file, _, number = location.rpartition(":")
    if file and number.isdigit():
        beside = [Path(address.rpartition(":")[0]).parent for address in addresses]
        for path in (Path(file), root / file, *(folder / Path(file).name for folder in beside)):
            if inside := _inside(path, root):
                return inside, int(number)
        if len(same := [path for path in root.rglob(Path(file).name) if path.is_file()]) == 1:
            return str(same[0].relative_to(root)), int(number)
    for address in addresses:
        path, _, function = address.rpartition(":")
        if inside := _inside(root / path, root):
            return inside, _line(root / inside, function)
    return "", 0


def _inside(path: Path, root: Path) -> str:
    whole = path.resolve()
    return str(whole.relative_to(root.resolve())) if whole.is_file() and whole.is_relative_to(root.resolve()) else ""


def _line(path: Path, name: str) -> int:
    """The line of the function or the variable called `name`; the first where it has none."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        names += [each.id for each in node.targets if isinstance(each, ast.Name)] if isinstance(node, ast.Assign) else []
        if name.rpartition(".")[2] in names and isinstance(node, ast.stmt):
            return node.lineno
    return 1
