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

from bitverdict.harness.model.certificate import TELLS_NOTHING
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.mutants.clauses import clause_of
from bitverdict.harness.session.tally import FAIL, INCONCLUSIVE, NOTHING_RAN, PASS, RAN
from bitverdict.harness.workers.journal import records

ERROR = "no verdict, by an error that is no fault of the kernel"


@dataclass
class Finding:
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
    def told(self) -> str:
        shown = ", ".join(f"{target} ({count} case{'s' * (count > 1)})" for target, count in sorted(self.cases.items()))
        return f"{self.outcome}: {self.message}\non {shown}\ncase: {self.case}"


@dataclass(frozen=True)
class Judged:
    """One case with its verdict."""

    name: str
    target: str
    case: str
    verdict: Verdict


@dataclass
class Found:
    """All of it. `unended`: journals of runs that did not come to their end. `statuses`: what the others ended with."""

    judged: list[Judged] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unended: list[Path] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    def status(self) -> int:
        """The exit status, by the rules of a run, as far as journals tell: they do not name required cases that were not judged."""
        total = Counter(each.verdict.decision for each in self.judged)
        if total[Decision.FAIL] or FAIL in self.statuses:
            return FAIL
        told = {(each.name, each.target) for each in self.judged if each.verdict.decision is Decision.PASS and each.verdict.words}
        doubtful = any(
            each.verdict.decision is Decision.INCONCLUSIVE
            and (TELLS_NOTHING not in each.verdict.details or (each.name, each.target) not in told)
            for each in self.judged
        )
        if total[Decision.ERROR] or doubtful or self.unended or INCONCLUSIVE in self.statuses:
            return INCONCLUSIVE
        return PASS if any(total[decision] for decision in RAN) else NOTHING_RAN


def journals(paths: Iterable[Path]) -> list[Path]:
    """The journals at `paths`: files, or folders with journals in them."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        if not path.exists() or not inside:
            raise UsageError(f"ci {path}: there is no journal; judge first, or name a folder such as .harness/journal")
        found += inside
    return list(dict.fromkeys(found))


def read(paths: Iterable[Path], root: Path) -> Found:
    """What the journals `paths` come to; files are named from the folder `root`."""
    found = Found()
    last: dict[tuple[str, str, str], tuple[dict, dict]] = {}
    for path in paths:
        asked = False
        status: int | None = None
        out: dict[int, dict] = {}
        reducing = False
        for record in records(path):
            match record["event"]:
                case "asked":
                    asked = True
                case "resumed" | "stored":
                    reducing = False
                case "reducing":
                    reducing = True
                case "finished":
                    status = record["status"]
                case "begin" if "case" in record and not reducing:
                    out[record["number"]] = record
                case "end" if record["number"] in out:
                    begun = out[record["number"]]
                    key = json.dumps(begun["case"], sort_keys=True)
                    last[begun["target"], key, begun["case"]["contract"]] = begun, record["verdict"]
        found.unended += [path] if asked and status is None else []
        found.statuses += [status] if status is not None else []
    findings: dict[tuple, Finding] = {}
    for begun, verdict in last.values():
        _add(found, findings, begun["case"], begun["target"], Verdict.from_json(verdict), root)
    found.findings = sorted(findings.values(), key=lambda each: (each.error, each.file, each.line, each.title))
    return found


def _add(found: Found, findings: dict[tuple, Finding], case: dict, target: str, verdict: Verdict, root: Path) -> None:
    address = case.get("launcher") or case["contract"]
    place, _, function = address.rpartition(":")
    name = f"{Path(place).name}:{function}" if place.endswith(".py") else address
    told = " ".join(_fields(case))
    found.judged.append(Judged(name, target, told, verdict))
    if not verdict.failed and verdict.decision is not Decision.ERROR:
        return
    file, line = place_of(verdict.location, case, root)
    clause = clause_of(verdict) if verdict.failed else ERROR
    made = Finding(name, clause, str(verdict.outcome), verdict.message, file, line, told, error=not verdict.failed)
    findings.setdefault((name, clause, file, line), made).cases[target] += 1


def _fields(case: dict) -> Iterator[str]:
    """The fields of a case's record, in one line."""
    problem = case.get("problem")
    for name, value in (problem if isinstance(problem, dict) else {"problem": problem}).items():
        if isinstance(value, list) and value and all(isinstance(each, dict) and "value" in each for each in value):
            yield ", ".join(f"{each.get('called') or each.get('name') or each.get('kind')} {_drawn(each)}" for each in value)
            continue
        yield f"{name}={value}" if not isinstance(value, dict | list) else f"{name}={json.dumps(value, separators=(',', ':'))}"
    yield from (f"{name}={case[name]}" for name in ("regime", "data_seed", "schedule") if name in case)


def _drawn(each: dict) -> str:
    """What a described kernel drew: its value, of a tensor its type and shape too."""
    return f"{each['value']}" + (f" {each['dtype']} {each['shape']}" if each.get("dtype") else "")


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
