"""How one bug is told to a person: its name, the first wrong words, clusters, a picture, the case, the line that replays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.model.verdict import NAMELESS, Decision, Verdict
from bitverdict.harness.session.case_line import describe

SHADES = " ·░▒▓█"
_PARTS = [f"{shade} below {25 * place}%" for place, shade in enumerate(SHADES[1:-1], 1)]
LEGEND = ", ".join(["blank none", *_PARTS, f"{SHADES[-1]} all"])
MOST_LINES, LONGEST = 10, 300  # lines of one detail, characters of a line
DETAILS_ELSEWHERE = {"first", "clusters", "heat", "heat_before", "output", "wrong", "of", "never_written", "inconclusive_words"}
DETAILS_ELSEWHERE |= {
    "cause",
    "cause_kind",
    "cause_kinds",
    "traceback",
    "raised",
    "buffer",
    "first_byte",
    "last_byte",
    "bytes",
    "written",
    "status",
    "layer",
    NAMELESS,
}
"""Details that are part of the message or of the picture, or for a program only."""


def failure_report(contract: str, target: str, case: Case, verdict: Verdict, notes: list[str], replay_line: str) -> Group:
    """What a person reads about one bug: name, first words, clusters, picture, case, and the one line that replays it."""
    details = verdict.details
    parts: list[Any] = []
    if verdict.decision is Decision.ERROR:
        parts.append(Text(f"ERROR {contract} on {target}, which is no fault of the kernel", style="bold magenta"))
    else:
        parts.append(Text(f"FAIL {contract} on {target}: {verdict.outcome}", style="bold red"))
    parts.append(Text(f"  {verdict.message}".replace("\n", "\n  ")))
    if verdict.location:
        parts += [Text(f"  at {verdict.location}"), *_quote_source(verdict.location, case)]
    if details.get("cause"):
        parts.append(Text(f"  cause: {details['cause']}", style="bold"))
    if details.get("probable cause"):
        parts.append(Text(f"  probable cause: {details['probable cause']}", style="bold"))
    for said in details.get("clusters", ()):
        parts.append(Text(f"  - {said}"))
    if len(details.get("first", ())) > 1:
        more = ("without rounding", "mathematics") if "real value" in details["first"][0] else ()
        words = Table("at", "got", "expected", "ulp", *more, box=None, padding=(0, 2), header_style="dim")
        for row in details["first"]:
            real = (row["real value"], row["exact"]) if more else ()
            words.add_row(str(row["at"]), row["got"], row["expected"], "" if row["ulp"] is None else str(row["ulp"]), *real)
        parts.append(words)
    if details.get("heat") and cells(details["heat"]) > 1:
        parts.append(Text(heat_map(details["heat"]), style="red"))
    if details.get("heat_before"):
        parts.append(Text("  before it was shrunk:\n" + heat_map(details["heat_before"]), style="red"))
    elsewhere = DETAILS_ELSEWHERE | ({"text"} if details.get("layer") == "front end" else set())  # its message and line are above
    for name, value in details.items():
        if name not in elsewhere and value not in (None, "", [], {}):
            parts.append(Text(f"  {name}: " + "\n    ".join(_lines(value))))
            parts += _quote_source(str(value), case) if name.endswith("location") else []
    parts += [Text(f"  note: {note}", style="yellow") for note in notes]
    parts.append(Text(f"  case: {describe(case)}"))
    parts.append(Text.assemble("  replay: ", (replay_line, "bold")))
    return Group(*parts)


def _quote_source(location: str, case: Case) -> list[Text]:
    """The line of source at `location` (``file:line``); nothing where it cannot be read."""
    line = source_line(location, case)
    return [Text(f"      {line}", style="cyan")] if line else []


def source_line(location: str, case: Case) -> str:
    """The text at ``file:line``. The judged kernel's own file is known by its name alone: it may be a copy that lies elsewhere."""
    file, _, number = location.rpartition(":")
    under_test = (Path(address.rpartition(":")[0]) for address in (case.launcher, case.contract))
    for path in (*(place for place in under_test if file and place.name == Path(file).name), Path(file), ROOT / file):
        if number.isdigit() and path.suffix == ".py" and path.is_file():
            lines = path.read_text(errors="replace").splitlines()
            return lines[int(number) - 1].strip() if 0 < int(number) <= len(lines) else ""
    return ""


def _lines(value: object) -> list[str]:
    if isinstance(value, dict):
        return [f"{name}: {item}"[:LONGEST] for name, item in value.items()][:MOST_LINES]
    return [str(line)[:LONGEST] for line in (value if isinstance(value, list) else str(value).splitlines())][-MOST_LINES:]


def cells(heat: dict | None) -> int:
    """Cells of a picture: one says nothing."""
    return sum(map(len, heat["percent"])) if heat else 0


def heat_map(heat: dict) -> str:
    """The picture of a wrong output: one character a cell, darker where more of its words are wrong."""
    cell_m, cell_n = heat["cell"]
    tile = f", tiles of {heat['tile'][0]}x{heat['tile'][1]}" if heat["tile"] else ""
    lines = [f"  wrong words by cell of {cell_m}x{cell_n}{tile} ({LEGEND}):"]
    edge = "  +" + "-" * len(heat["percent"][0]) + "+"
    rows = ["  |" + "".join(SHADES[0 if p == 0 else min(5, 1 + p * 4 // 100)] for p in row) + "|" for row in heat["percent"]]
    return "\n".join([*lines, edge, *rows, edge])
