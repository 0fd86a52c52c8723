"""How one bug is told to a person: its name, the first wrong words, clusters, a picture, the case, the line that replays it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import path_from_here, source_line
from bitverdict.harness.model.verdict import NAMELESS, Decision, Outcome, Verdict
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.source_excerpt import excerpt, mask_help

ALTERNATIVE = ", or "  # between causes that predict the same words
SHADES = " ·░▒▓█"
_PARTS = [f"{shade} below {25 * place}%" for place, shade in enumerate(SHADES[1:-1], 1)]
LEGEND = ", ".join(["blank none", *_PARTS, f"{SHADES[-1]} all"])
MOST_LINES, LONGEST = 10, 300  # lines of one detail, characters of a line
DETAILS_ELSEWHERE = {"first", "clusters", "heat", "output", "wrong", "of", "never_written", "inconclusive_words"}
DETAILS_ELSEWHERE |= {
    "cause",
    "cause_kind",
    "cause_kinds",
    "summary",
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
HELP = ("remedy", "if this is meant", "tested by default")
FULL_DETAILS = {
    "operation",
    "other operation",
    "other landed",
    "program",
    "argument",
    "offset",
    "schedule",
    "timeline",
    "executed",
    "lanes",
}
"""Details that the sentence or the lines of source say already; shown where all is asked for."""


def headline(verdict: Verdict) -> str:
    """What is wrong in one sentence: the outcome, and the cause, else what was observed first."""
    details = verdict.details
    observed = details.get("summary") or _clauses(verdict.message)[0]
    cause = str(details.get("cause") or details.get("probable cause") or "").partition(ALTERNATIVE)[0]
    return path_from_here(f"{verdict.outcome}: {' '.join((cause or str(observed)).split())}")


def place_of(verdict: Verdict) -> str:
    """ "FILE:LINE" where it is seen, else of the first line that adds to an error, else of the kernel that was launched last."""
    by_line = "".join(verdict.details.get("error by line", ())[:1]).split("  ")
    launches = verdict.recorded.get("launches") or [{}]
    place = path_from_here(verdict.location or launches[-1].get("place", ""))
    file, _, line = place.rpartition(":")
    if len(by_line) > 2 and not verdict.location:
        return by_line[1]
    return source_line(file, line) if Path(file).is_absolute() else place


def _clauses(message: str) -> tuple[str, str]:
    """The first clause of a message, and the rest."""
    first, _, rest = message.partition("\n")
    clause, _, others = first.partition("; ")
    return clause, "\n".join(part for part in (others, rest) if part)


def failure_report(
    contract: str,
    target: str,
    case: Case,
    verdict: Verdict,
    notes: list[str],
    replay_line: str,
    *,
    call: str = "",
    is_full: bool = True,
) -> Group:
    """What a person reads about one bug: its headline, the lines of source, what helps, the smallest case, how to replay it.

    `call`: the case as Python. `is_full`: and the wrong words, the picture, and every detail."""
    details, message, sentence = verdict.details, path_from_here(verdict.message), headline(verdict)
    parts: list[Any] = [Text(f"FAIL {contract} on {target}: {sentence}", style="bold red")]
    if verdict.decision is Decision.ERROR:
        parts = [Text(f"ERROR {contract} on {target}, which is no fault of the kernel", style="bold magenta"), Text(message)]
    operation = str(details.get("operation", "")).partition("= ")[2]
    if place := verdict.location or place_of(verdict):
        is_line = verdict.location or "error by line" in details
        parts += [Text(f"  at {path_from_here(place)}"), *(excerpt(place, case, operation) if is_line else ())]
    for name in (each for each in details if each.endswith("location")):
        parts += [Text(f"  {name}: {path_from_here(str(details[name]))}"), *excerpt(str(details[name]), case)]
    if verdict.decision is not Decision.ERROR:
        clause, rest = _clauses(message)
        shown = rest if sentence.endswith(f": {' '.join(clause.split())}") else message
        parts += [Paragraph(Text(shown))] if shown else []
        others = str(details.get("cause") or "").split(ALTERNATIVE)[1:]
        parts += [Paragraph(Text(f"or: {other}")) for other in others]
    for cluster in details.get("clusters", ()):
        parts.append(Paragraph(Text(f"- {cluster}")))
    parts += [Paragraph(Text.assemble(("help: ", "bold green"), line)) for line in help_lines(verdict, case)]
    if is_full:
        parts += _words_and_pictures(details)
    elsewhere = DETAILS_ELSEWHERE | ({"text"} if details.get("layer") == "front end" else set())  # its message and line are above
    elsewhere |= {*HELP, "probable cause"} | (set() if is_full else FULL_DETAILS)
    for name, value in details.items():
        if name not in elsewhere and not name.endswith("location") and not _is_told(name, value, verdict, case):
            parts.append(Paragraph(Text(f"{name}: " + "\n  ".join(_lines(value)))))
    parts += [Paragraph(Text(f"note: {note}", style="yellow")) for note in notes]
    parts += [_whole_line("call", call)] if call else []
    return Group(*parts, _whole_line("case", describe(case)), _whole_line("replay", replay_line, "bold"))


def _is_told(name: str, value: object, verdict: Verdict, case: Case) -> bool:
    """Whether a detail is empty, or in the message or the line of the case; a timeline of one event is none."""
    if name in ("program", "argument", "offset"):
        sentence = f"byte {value} of" if name == "offset" else str(value)
        return re.search(rf"(?<!\w){re.escape(sentence)}(?!\w)", verdict.message) is not None
    if name == "timeline" and isinstance(value, list) and len(value) < 2:
        return True
    return value in (None, "", [], {}) or (name == "schedule" and value == case.schedule)


def help_lines(verdict: Verdict, case: Case) -> list[str]:
    """What to do about it, a sentence each."""
    lines = [str(verdict.details[name]) for name in HELP if verdict.details.get(name)]
    if verdict.outcome in (Outcome.STRAY_READ, Outcome.STRAY_WRITE) and verdict.location:
        operation = str(verdict.details.get("operation", "")).partition("= ")[2]
        lines.append(mask_help(verdict.location, case, operation))
    return [line for line in lines if line]


def _words_and_pictures(details: Mapping[str, Any]) -> list[Any]:
    """The first wrong words as a table, and where wrong words lie."""
    parts: list[Any] = []
    if len(details.get("first", ())) > 1:
        more = ("without rounding", "mathematics") if "real value" in details["first"][0] else ()
        words = Table("at", "got", "expected", "ulp", *more, box=None, padding=(0, 2), header_style="dim")
        for row in details["first"]:
            real = (row["real value"], row["exact"]) if more else ()
            words.add_row(str(row["at"]), row["got"], row["expected"], "" if row["ulp"] is None else str(row["ulp"]), *real)
        parts.append(words)
    if details.get("heat") and cells(details["heat"]) > 1:
        parts.append(Text(heat_map(details["heat"]), style="red"))
    return parts


@dataclass(frozen=True)
class Paragraph:
    """A text two columns to the right, wrapped between words; in a log each of its lines stays whole."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_whole = options.no_wrap
        for line in self.text.split() if is_whole else self.text.wrap(console, max(options.max_width - 2, 20)):
            yield Text.assemble("  ", line, no_wrap=True, overflow="ignore")


def _whole_line(name: str, line: str, style: str = "") -> Text:
    """A line that is copied: never broken, however narrow the screen."""
    return Text.assemble(f"  {name}: ", (line, style), no_wrap=True, overflow="ignore")


def _lines(value: object) -> list[str]:
    if isinstance(value, dict):
        return [path_from_here(f"{name}: {item}")[:LONGEST] for name, item in value.items()][:MOST_LINES]
    lines = value if isinstance(value, list) else str(value).splitlines()
    return [path_from_here(str(line))[:LONGEST] for line in lines][-MOST_LINES:]


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
