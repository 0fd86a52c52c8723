"""What a run shows: the table of verdicts with what each rests on, convictions with their picture, JSON and JUnit as it goes.

Everything here reads verdicts and decides nothing but the exit status: 0 all right, 1 convicted, 3 too much undecided or a cover
list not seen, 5 nothing ran (2, usage, is the command line's).
"""

from __future__ import annotations

import dataclasses
import io
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from harness.contract import Case
from harness.seed_files import versions, write_atomically
from harness.verdict import Ruling, Verdict

OURS = ("the contract raised", "the emulator failed")  # bugs of the court, not of the accused
MOST_UNDECIDED = 0.05  # of the cases that ran; beyond it a run has not judged what it says
SHADES = " ·░▒▓█"
RIGHT, CONVICTED, USAGE, UNDECIDED, NOTHING_RAN = 0, 1, 2, 3, 5


@dataclass
class Row:
    """One line of the table: a contract on a target, one dtype."""

    contract: str
    target: str
    dtype: str
    rulings: Counter = field(default_factory=Counter)
    outcomes: Counter = field(default_factory=Counter)
    rests_on: Counter = field(default_factory=Counter)
    words: int = 0
    bound_used: float | None = None
    seconds: float = 0.0
    said: set[str] = field(default_factory=set)  # of cases that did not run

    @property
    def cases(self) -> int:
        return sum(self.rulings.values())


@dataclass
class Tally:
    """Everything counted in one run."""

    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    required: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # keys of the cover list not yet judged
    covered: Counter = field(default_factory=Counter)
    classes: dict[str, Counter] = field(default_factory=dict)  # coverage: dimension -> class -> cases
    bucket_seconds: Counter = field(default_factory=Counter)
    advice: Counter = field(default_factory=Counter)
    contract_errors: list[str] = field(default_factory=list)
    cancelled: bool = False

    def require(self, contract: str, target: str, cases: list[Case]) -> None:
        self.required[contract, target] = {case.key for case in cases}

    def count(self, case: Case, contract: str, target: str, classes: dict, verdict: Verdict) -> None:
        dtype = str(classes.get("dtype", ""))
        row = self.rows.setdefault((contract, target, dtype), Row(contract, target, dtype))
        row.rulings[verdict.ruling] += 1
        row.outcomes[str(verdict.outcome)] += 1
        row.words += verdict.words
        row.seconds += verdict.seconds.get("total", 0.0)
        if verdict.ruling is Ruling.NOT_RUN:
            row.said.add(verdict.message)
        else:
            row.rests_on[verdict.rests_on.partition(":")[0]] += 1
        if verdict.bound_used is not None and verdict.ruling is Ruling.RIGHT:
            row.bound_used = max(row.bound_used or 0.0, verdict.bound_used)
        for name, spent in verdict.seconds.items():
            self.bucket_seconds[name] += spent
        for dimension, member in classes.items():
            self.classes.setdefault(dimension, Counter())[str(member)] += 1
        self.advice.update(verdict.advice)
        left = self.required.get((contract, target), set())
        if case.key in left:
            left.discard(case.key)
            self.covered[contract, target] += 1
        if verdict.ruling is Ruling.UNDECIDED and verdict.message.startswith(OURS):
            self.contract_errors.append(verdict.message)

    def not_run(self, contract: str, target: str, reason: str) -> None:
        """A whole contract that a target cannot serve: one line, counted as nothing."""
        row = self.rows.setdefault((contract, target, ""), Row(contract, target, ""))
        row.rulings[Ruling.NOT_RUN] += 1
        row.said.add(reason)

    def total(self, ruling: Ruling) -> int:
        return sum(row.rulings[ruling] for row in self.rows.values())

    @property
    def ran(self) -> int:
        return sum(self.total(ruling) for ruling in (Ruling.RIGHT, Ruling.CONVICTED, Ruling.UNDECIDED))

    @property
    def unseen(self) -> int:
        return sum(map(len, self.required.values()))

    def status(self) -> int:
        """The exit status of the run."""
        if self.total(Ruling.CONVICTED):
            return CONVICTED
        if not self.ran and not self.cancelled:
            return NOTHING_RAN
        if self.total(Ruling.UNDECIDED) > MOST_UNDECIDED * self.ran or self.unseen or self.contract_errors or self.cancelled:
            return UNDECIDED
        return RIGHT

    def sentence(self) -> str:
        """The last line: what the status says, in words."""
        words = sum(row.words for row in self.rows.values())
        counts = ", ".join(f"{self.total(ruling)} {ruling}" for ruling in Ruling if self.total(ruling))
        text = f"{self.ran} cases judged, {words:,} output words compared: {counts or 'nothing ran'}"
        if self.cancelled:
            text += "; cancelled"
        if self.unseen:
            text += f"; {self.unseen} cases of the cover lists were not judged"
        if self.contract_errors:
            text += f"; {len(self.contract_errors)} cases decide nothing because the court itself failed: {self.contract_errors[0]}"
        return text

    def to_json(self) -> dict:
        rows = [
            {
                "contract": row.contract,
                "target": row.target,
                "dtype": row.dtype,
                "cases": row.cases,
                "words": row.words,
                "rulings": {str(ruling): n for ruling, n in row.rulings.items()},
                "outcomes": dict(row.outcomes),
                "rests_on": dict(row.rests_on),
                "bound_used": row.bound_used,
                "seconds": round(row.seconds, 3),
                "not_run": sorted(row.said),
            }
            for row in self.rows.values()
        ]
        cover = [
            {"contract": contract, "target": target, "judged": self.covered[contract, target], "not_judged": len(left)}
            for (contract, target), left in self.required.items()
        ]
        return {
            "status": self.status(),
            "sentence": self.sentence(),
            "rows": rows,
            "cover": cover,
            "classes": {name: dict(sorted(counts.items())) for name, counts in self.classes.items()},
            "seconds": {name: round(spent, 3) for name, spent in self.bucket_seconds.items()},
            "advice": dict(self.advice),
        }


def table(tally: Tally) -> Table:
    """The verdict table."""
    shown = Table(title="Verdicts", title_justify="left", title_style="bold", pad_edge=False)
    for name, justify in (
        ("contract", "left"),
        ("target", "left"),
        ("dtype", "left"),
        ("cases", "right"),
        ("words", "right"),
        ("right", "right"),
    ):
        shown.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name in ("convicted", "undecided"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("rests on", min_width=24)
    shown.add_column("cover", no_wrap=True)
    told: set[tuple[str, str]] = set()
    for row in sorted(tally.rows.values(), key=lambda row: (row.contract, row.target, row.dtype)):
        key = (row.contract, row.target)
        cover = "" if key in told else f"{tally.covered[key]}/{tally.covered[key] + len(tally.required.get(key, ()))}"
        told.add(key)
        convicted, undecided = row.rulings[Ruling.CONVICTED], row.rulings[Ruling.UNDECIDED]
        if row.rulings[Ruling.NOT_RUN] == row.cases:
            shown.add_row(row.contract, row.target, row.dtype, "-", "-", "not run", "", "", "", "", style="dim")
            continue
        rests = ", ".join(f"{name} {count}" for name, count in row.rests_on.most_common())
        rests += f" (largest share of the bound {row.bound_used:.2g})" if row.bound_used is not None else ""
        shown.add_row(
            row.contract,
            row.target,
            row.dtype,
            str(row.cases),
            f"{row.words:,}",
            Text(str(row.rulings[Ruling.RIGHT]), style="green"),
            Text(str(convicted), style="bold red" if convicted else "dim"),
            Text(str(undecided), style="yellow" if undecided else "dim"),
            rests,
            cover,
        )
    return shown


def not_run_lines(tally: Tally) -> list[str]:
    """Why lines of the table say "not run": a skip never reads as a pass."""
    return [f"not run: {row.contract}: {reason}" for row in tally.rows.values() for reason in sorted(row.said)]


def time_line(tally: Tally) -> str:
    """Where the time went, summed over all children."""
    spent = {name: seconds for name, seconds in tally.bucket_seconds.items() if name != "total"}
    parts = [f"{name} {seconds:.1f} s" for name, seconds in sorted(spent.items(), key=lambda item: -item[1]) if seconds >= 0.05]
    return "time in children: " + ", ".join(parts) if parts else ""


def coverage_lines(tally: Tally) -> list[str]:
    """One line a dimension of the coverage: how many classes were seen, and the rarest of them."""
    lines = []
    for dimension, counts in sorted(tally.classes.items()):
        rarest = min(counts.items(), key=lambda item: item[1])
        lines.append(f"{dimension}: {len(counts)} classes seen, the rarest {rarest[0]!r} in {rarest[1]} cases")
    return lines


def conviction(contract: str, target: str, case: Case, verdict: Verdict, notes: list[str], replay_line: str) -> Group:
    """What a person reads about one bug: name, first words, clusters, picture, case, and the one line that replays it."""
    details = verdict.details
    parts: list[Any] = []
    parts.append(Text(f"CONVICTED {contract} on {target}: {verdict.outcome}", style="bold red"))
    parts.append(Text(f"  {verdict.message}".replace("\n", "\n  ") + (f"\n  at {verdict.location}" if verdict.location else "")))
    for said in details.get("clusters", ()):
        parts.append(Text(f"  - {said}"))
    if len(details.get("first", ())) > 1:
        words = Table("at", "got", "expected", "ulp", box=None, padding=(0, 2), header_style="dim")
        for row in details["first"]:
            words.add_row(str(row["at"]), row["got"], row["expected"], "" if row["ulp"] is None else str(row["ulp"]))
        parts.append(words)
    if details.get("heat") and cells(details["heat"]) > 1:
        parts.append(Text(heat_map(details["heat"]), style="red"))
    if details.get("heat_before"):
        parts.append(Text("  before it was shrunk:\n" + heat_map(details["heat_before"]), style="red"))
    for name in ("owed", "text", "stderr", "first_access", "second_access", "barriers", "schedule"):
        if details.get(name):
            value = details[name]
            lines = value if isinstance(value, list) else str(value).splitlines()
            parts.append(Text(f"  {name}: " + "\n    ".join(str(line) for line in lines[-8:])))
    parts += [Text(f"  note: {note}", style="yellow") for note in notes]
    parts.append(Text(f"  case: {describe(case)}"))
    parts.append(Text.assemble("  replay: ", (replay_line, "bold")))
    return Group(*parts)


def describe(case: Case) -> str:
    """The case in one line: what differs from the defaults of its records."""
    told = [
        *_told(case.problem),
        *_told(case.config),
        f"regime={case.regime}",
        f"data_seed={case.data_seed}",
        f"schedule={case.schedule}",
    ]
    return " ".join([*told, *([f"launcher={case.launcher}"] if case.launcher else [])])


def _told(record: Any) -> list[str]:
    if record is None:
        return []
    if not dataclasses.is_dataclass(record):
        return [str(record)]
    told = []
    for each in dataclasses.fields(record):
        value = getattr(record, each.name)
        factory = each.default_factory
        default = factory() if factory is not dataclasses.MISSING else each.default
        if value != default:
            told.append(f"{each.name}=({' '.join(_told(value))})" if dataclasses.is_dataclass(value) else f"{each.name}={value}")
    return told


def cells(heat: dict | None) -> int:
    """Cells of a picture: one says nothing."""
    return sum(map(len, heat["percent"])) if heat else 0


def heat_map(heat: dict) -> str:
    """The picture of a wrong output: one character a cell, darker where more of its words are wrong."""
    cell_m, cell_n = heat["cell"]
    tile = f", tiles of {heat['tile'][0]}x{heat['tile'][1]}" if heat["tile"] else ""
    lines = [f"  wrong words by cell of {cell_m}x{cell_n}{tile} (blank none, {SHADES[1]} some, {SHADES[-1]} all):"]
    edge = "  +" + "-" * len(heat["percent"][0]) + "+"
    rows = ["  |" + "".join(SHADES[0 if p == 0 else min(5, 1 + p * 4 // 100)] for p in row) + "|" for row in heat["percent"]]
    return "\n".join([*lines, edge, *rows, edge])


class Records:
    """JSON lines and JUnit, written while the run goes, so that a kill loses nothing."""

    EVERY = 2.0  # seconds between two writes of the JUnit file, which is always whole

    def __init__(self, json_path: Path | None, junit_path: Path | None) -> None:
        self.json = json_path.open("w") if json_path else None
        self.junit_path, self.junit = junit_path, ElementTree.Element("testsuites", name="bitverdict")
        self._suites: dict[str, ElementTree.Element] = {}
        self._written = 0.0

    def begin(self, arguments: dict) -> None:
        self._line({"event": "run", "time": time.time(), "versions": versions(), "arguments": arguments})

    def verdict(self, case: Case, contract: str, target: str, verdict: Verdict) -> None:
        record = verdict.to_json()
        if verdict.ruling is Ruling.RIGHT:
            record = {name: value for name, value in record.items() if name not in ("details",) and value not in ([], {}, None, "")}
        self._line({"event": "verdict", "contract": contract, "target": target, "case": case.to_json(), "verdict": record})
        suite = self._suites.get(f"{contract}-{target}")
        if suite is None:
            suite = self._suites[f"{contract}-{target}"] = ElementTree.SubElement(
                self.junit, "testsuite", name=f"{contract}-{target}"
            )
        seconds = f"{verdict.seconds.get('total', 0.0):.3f}"
        entry = ElementTree.SubElement(suite, "testcase", classname=f"{contract}-{target}", name=describe(case), time=seconds)
        kind = {Ruling.CONVICTED: "failure", Ruling.UNDECIDED: "skipped", Ruling.NOT_RUN: "skipped"}.get(verdict.ruling)
        if kind:
            ElementTree.SubElement(
                entry, kind, message=_printable(f"{verdict.outcome}: {verdict.message}"), type=str(verdict.outcome)
            )
        if time.monotonic() - self._written > self.EVERY:
            self._write_junit()

    def seed_file(self, path: Path, contract: str, target: str) -> None:
        self._line({"event": "seed file", "contract": contract, "target": target, "path": str(path)})

    def end(self, tally: Tally) -> None:
        self._line({"event": "summary", "time": time.time(), **tally.to_json()})
        self._write_junit()
        if self.json:
            self.json.close()

    def _line(self, record: dict) -> None:
        if self.json:
            self.json.write(json.dumps(record, default=str) + "\n")
            self.json.flush()

    def _write_junit(self) -> None:
        if not self.junit_path:
            return
        for suite in self._suites.values():
            suite.set("tests", str(len(suite)))
            suite.set("failures", str(sum(entry.find("failure") is not None for entry in suite)))
            suite.set("skipped", str(sum(entry.find("skipped") is not None for entry in suite)))
        text = io.BytesIO()
        ElementTree.ElementTree(self.junit).write(text, encoding="utf-8", xml_declaration=True)
        write_atomically(self.junit_path, text.getvalue().decode())
        self._written = time.monotonic()


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def text_of(*shown: Any) -> str:
    """What `shown` looks like in a log of 140 columns, without colour."""
    page = Console(width=140, file=io.StringIO(), record=True)
    for item in shown:
        page.print(item)
    return page.export_text()


def console(*, record: bool = False) -> Console:
    """Standard output; 160 columns where it is no terminal, so that logs keep the table whole."""
    shown = Console(record=record, highlight=False, soft_wrap=False)
    if not shown.is_terminal:
        shown = Console(record=record, highlight=False, width=160)
    return shown
