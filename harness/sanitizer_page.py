"""docs/sanitizers.md: what each sanitizer said of each case on a GPU, beside the emulated GPU's verdict on the same case.

    python -m harness.sanitizer_page --keep HELD.json FILE ...     the files of `sanitize --json`, cut down to what the page needs
    python -m harness.sanitizer_page HELD.json > docs/sanitizers.md

The page is made from what was kept, and asks nothing: a test holds the file to what this prints.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import sanitizer
from harness.outcomes import told_by_device
from harness.verdict import Outcome

VERSION = 1
EMULATED = ("emulated", "emulated iisan")
UNEXPLAINED = "not explained"
_RACE = "the emulated GPU names the race, with both lines; {} what it came to in that launch"
EXPLAINED = {  # (mode, what it said, what the emulated GPU said); "" fits anything
    ("consan", "device assert", "race"): "one finding, two words: consan's assertion says that the buffer has outstanding writes",
    ("fpsan", "right", ""): "fpsan computes other words, which are not compared: it shows a fault of the device and nothing else",
    ("bare", "wrong words", "race"): _RACE.format("the bare launch shows"),
    ("bare", "launch failure", "race"): _RACE.format("the bare launch shows"),
    ("iisan", "wrong words", "race"): _RACE.format("iisan asserts coordinates and descriptors, not order, and leaves"),
    ("iisan", "launch failure", "race"): _RACE.format("iisan asserts coordinates and descriptors, not order, and leaves"),
    ("", "not run", ""):
        "no verdict: that run saw no summary of compute-sanitizer, most likely because it stood behind a last line of the "
        "process's that nobody ended (it is read from there now; these cases have not been run again)",
    ("", "wrong words", "illegal address"):
        "the store lands 12 MiB behind its tensor, in memory that torch's allocator has mapped: the GPU faults nowhere, and the "
        "court sees a word that was never written",
}


def kept(files: Sequence[Path], origin: dict[str, str]) -> dict:
    """The rows of `sanitize --json` files, each case once, without what no page shows."""
    cases: dict[str, int] = {}
    records: list[dict] = []
    rows: list[list] = []
    for row in [row for file in files for row in sanitizer.read(file)]:
        name = sanitizer.name_of(row["contract"])
        case = {k: v for k, v in row["case"].items() if k != "schedule"} | {"contract": name}
        place = cases.setdefault(json.dumps(case, sort_keys=True), len(cases))
        if place == len(records):
            records.append(case)
        verdict = row["verdict"]
        emulated = row["target"].startswith("emulated")
        mode = (f"emulated {row['mode']}" if row["mode"] != "bare" else "emulated") if emulated else row["mode"]
        kind, message = verdict["outcome"], (verdict["message"].splitlines() or [""])[0]
        named = told_by_device(verdict["details"].get("text", ""))
        if kind == Outcome.DEVICE_ASSERT and named is not None and named is not Outcome.DEVICE_ASSERT:
            kind = message = str(named)  # runs before this was mended took torch's advice for the fault
        own = bool(verdict["details"].get("said")) and kind != Outcome.NOT_RUN
        told = [place, mode, row["case"]["schedule"] if emulated else "", kind, "" if kind == "right" else _short(message),
                verdict["location"] and verdict["location"].rpartition("/")[2], own]
        if told not in rows:
            rows.append(told)
    return {"version": VERSION, "origin": origin, "cases": records, "rows": rows}


def _short(message: str) -> str:
    """A message without addresses and places of this run."""
    message = re.sub(r"/[\w./-]*/([\w-]+\.py)", r"\1", message)
    return re.sub(r"0x[0-9a-f]{6,}", "an address", message)[:180]


def read(path: Path) -> dict:
    """What `kept` made. ValueError for anything else."""
    try:
        found = json.loads(path.read_text())
        if found["version"] == VERSION and all(len(row) == 7 for row in found["rows"]):
            return found
        problem = f"version {found['version']}: this checkout reads version {VERSION}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"no kept verdicts ({error!r})"
    raise ValueError(f"{path}: {problem}; write it with python -m harness.sanitizer_page --keep")


def page(held: dict) -> str:
    """The whole page, as Markdown."""
    return "\n".join([*_head(held["origin"]), *_table(held), *_said(held), *_differences(held)]) + "\n"


def _head(origin: dict[str, str]) -> Iterator[str]:
    yield from (
        "# Sanitizers, and the emulated GPU, on the same cases",
        "",
        "Each case is judged in a child of its own: bare; compiled with Triton's iisan, consan or fpsan; under compute-sanitizer's",
        "memcheck or racecheck; and on the emulated GPU, plain and with iisan. The first cases are kernels as they are, then",
        "`hopper_matmul` with a fault planted (nobody waits for the load; the buffer being read is refilled, which needs more",
        "stages than the one of these cases: right everywhere), then launches made to be caught. **Bold** is what the sanitizer",
        "itself named; the rest is the judge's verdict on what the launch left behind.",
        "",
        "Made by `python -m harness.sanitizer_page tests/hardware_words/sanitizers_h200.json > docs/sanitizers.md`; the verdicts",
        "are from `python -m harness sanitize STEM --target cuda:0 --json FILE` (`harness/frontier/on_a_gpu.sh`) and, for the",
        "emulated GPU, `sanitize STEM --target emulated:sm_90 --schedule eager --schedule latest --cases-of FILE --json FILE`.",
        "",
        "- " + ", ".join(f"{name} {value}" for name, value in origin.items()),
        "",
    )


def title(case: dict, number: int) -> str:
    """A case's name in the tables."""
    name = case["contract"].removesuffix(":CONTRACT").removesuffix(".py").replace("harness.frontier.contract", "frontier")
    problem = case["problem"]
    if "operation" in problem:
        plain = {"row": 0, "column": 0, "columns": 64, "pad": 0}
        told = ", ".join([problem["operation"], *(f"{k} {problem[k]}" for k, v in plain.items() if problem[k] != v)])
    elif "past" in problem:
        told = f"past {problem['past']}"
    else:
        told = f"{problem['m']}x{problem['n']}x{problem['k']} {problem['dtype']}"
    return f"{number} {name.removeprefix('tests.harness_checks.').replace('_', ' ')}: {told}"


def _by_place(held: dict) -> dict[tuple[int, str], list[list]]:
    found: dict[tuple[int, str], list[list]] = {}
    for row in held["rows"]:
        found.setdefault((row[0], row[1]), []).append(row)
    return found


def _table(held: dict) -> Iterator[str]:
    columns = (*sanitizer.MODES, *EMULATED)
    at = _by_place(held)
    yield from ("## What each said", "", "| case | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|")
    for number, case in enumerate(held["cases"]):
        cells = []
        for mode in columns:
            told = dict.fromkeys(f"**{row[3]}**" if row[6] else row[3] for row in at.get((number, mode), []))
            cells.append(" / ".join(told) or "-")
        yield f"| {title(case, number)} | " + " | ".join(cells) + " |"
    yield ""


def _said(held: dict) -> Iterator[str]:
    yield from ("## In its own words", "")
    seen = set()
    for number, mode, _schedule, outcome, message, place, own in held["rows"]:
        if outcome != "right" and (own or mode in ("bare", *EMULATED)) and (number, mode) not in seen:
            seen.add((number, mode))
            yield f"- {number}, {mode}: {outcome}: {message}" + (f" ({place})" if place else "")
    yield ""


def differences(held: dict) -> dict[str, list[str]]:
    """Reason -> a line for each (case, mode) whose outcome is not the emulated GPU's on the same build."""
    at, found = _by_place(held), dict[str, list[str]]()
    for (number, mode), rows in at.items():
        beside = at.get((number, "emulated iisan" if mode == "iisan" else "emulated"), [])
        if mode in EMULATED or not beside:
            continue
        said, there = rows[0][3], beside[0][3]
        if said != there:
            why = next((why for key, why in EXPLAINED.items() if all(part in ("", given) for part, given in
                                                                     zip(key, (mode, said, there), strict=True))), UNEXPLAINED)
            found.setdefault(why, []).append(f"{number}, {mode}: {said}; emulated: {there}")
    return found


def _differences(held: dict) -> Iterator[str]:
    compared = len({(row[0], row[1]) for row in held["rows"] if row[1] not in EMULATED})
    found = differences(held)
    same = compared - sum(map(len, found.values()))
    yield from ("## Where they differ from the emulated GPU", "",
                f"{compared} verdicts of the GPU; {same} are the emulated GPU's on the same case.", "")
    for why, lines in found.items():
        yield from (f"**{len(lines)}**: {why}.", "", *(f"- {line}" for line in lines), "")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.sanitizer_page")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="HELD", help="write what the page needs of FILES, by sanitize --json, to HELD")
    parser.add_argument("--origin", action="append", default=[], metavar="NAME=VALUE", help="with --keep: where FILES come from")
    arguments = parser.parse_args(words)
    try:
        if arguments.keep is None:
            print(page(read(arguments.files[0])), end="")
            return 0
        held = kept(arguments.files, dict(pair.partition("=")[::2] for pair in arguments.origin))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    listed = {name: ",\n".join(f"  {json.dumps(row)}" for row in held[name]) for name in ("cases", "rows")}
    arguments.keep.write_text(f'{{\n "version": {VERSION}, "origin": {json.dumps(held["origin"])},\n'
                              f' "cases": [\n{listed["cases"]}\n ],\n "rows": [\n{listed["rows"]}\n ]\n}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
