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
from dataclasses import dataclass
from pathlib import Path

from harness import sanitizer
from harness.outcomes import told_by_device
from harness.verdict import Outcome

VERSION = 1
EMULATED = ("emulated", "emulated iisan")
UNEXPLAINED = "not explained"
_FOUND = ("race", "barrier misuse", "deadlock", "uninitialised read", "stray read", "stray write", "illegal address")
_LEFT = ("wrong words", "launch failure", "illegal instruction", "illegal address", "stray write", "timeout", "misaligned address")
_PLAIN = ("bare", "iisan", "memcheck", "racecheck")


@dataclass(frozen=True, kw_only=True)
class Explained:
    """Why a GPU said one thing and the emulated GPU another. Empty fits anything; `case` is a text in the case's title."""

    modes: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    case: tuple[str, ...] = ("",)
    why: str

    def fits(self, mode: str, said: str, there: Sequence[str], case: str) -> bool:
        given = ((self.modes, (mode,)), (self.said, (said,)), (self.there, there))
        return all(not wanted or set(wanted) & set(got) for wanted, got in given) and any(text in case for text in self.case)


_BETWEEN_PROGRAMS = ("two programs store",)
_OWED_WORDS = "the words that came are compared with what is owed in every mode but fpsan"
EXPLAINED = (  # the first that fits
    Explained(modes=("fpsan",), said=("right",),
              why="fpsan computes other words, which are not compared: it shows a fault of the device and nothing else"),
    Explained(said=("timeout",), there=("deadlock",),
              why="one finding, two words: the launch does not return, and the watchdog ends it; the emulated GPU says who waits "
                  "for what"),
    Explained(modes=("consan",), said=("device assert",), there=("race", "barrier misuse", "deadlock", "uninitialised read"),
              why="one finding, two words: consan traps with an assertion, whose message is its name (below)"),
    Explained(modes=("consan",), there=("race",), case=_BETWEEN_PROGRAMS,
              why=f"consan follows one program's shared memory and barriers; two programs that store to one place are not its "
                  f"subject. {_OWED_WORDS}"),
    Explained(modes=("consan",), there=("uninitialised read",),
              why=f"consan asks who is still reading or writing, not whether anybody ever wrote. {_OWED_WORDS}"),
    Explained(modes=("consan",), there=("stray read", "stray write", "illegal address"),
              why=f"consan does not look at global memory. {_OWED_WORDS}"),
    Explained(said=("wrong words",), there=("illegal address",), case=("sanitizer bait",),
              why="the store lands 12 MiB behind its tensor, in memory that torch's allocator has mapped: the GPU faults nowhere, "
                  "and the court sees a word that was never written"),
    Explained(said=("wrong words",), there=("stray write",), case=("rows outside",),
              why="the rows past the end fall on what follows the result"),
    Explained(said=("right",), there=("stray read",),
              why="what is read outside lies in memory that is mapped, and is masked out of the result: nothing shows. The "
                  "emulated GPU knows every tensor's end"),
    Explained(said=("right",), there=("race", "barrier misuse"), modes=_PLAIN,
              why="nothing guarantees the order, and in this launch it came out well; the emulated GPU convicts what may happen"),
    Explained(said=("right",), there=("uninitialised read",), modes=_PLAIN,
              why="what the memory held happened to be what was owed"),
    Explained(modes=_PLAIN, said=_LEFT, there=_FOUND,
              why="the emulated GPU names the fault, with its lines; iisan, memcheck and racecheck are silent about order in "
                  "shared memory under TMA and mbarriers, and the launch shows what it came to"),
    Explained(modes=("memcheck", "racecheck"), said=("not run",),
              why="no verdict: compute-sanitizer printed no summary"),
)


def kept(files: Sequence[Path], origin: dict[str, str], without: Sequence[str] = ()) -> dict:
    """The rows of `sanitize --json` files, and of files made by this, each case once, without what no page shows. Cases of a file
    made by this whose contract's name holds one of `without` are left out."""
    cases: dict[str, int] = {}
    records: list[dict] = []
    rows: list[list] = []

    def place_of(case: dict) -> int:
        place = cases.setdefault(json.dumps(case, sort_keys=True), len(cases))
        if place == len(records):
            records.append(case)
        return place

    fresh: list[dict] = []
    for file in files:
        if (held := _held(file)) is None:
            fresh += sanitizer.read(file)
            continue
        origin = held["origin"] | origin
        left = {n for n, case in enumerate(held["cases"]) if not any(text in case["contract"] for text in without)}
        rows += [[place_of(held["cases"][row[0]]), *row[1:]] for row in held["rows"] if row[0] in left]
    for row in fresh:
        name = sanitizer.name_of(row["contract"])
        place = place_of({k: v for k, v in row["case"].items() if k != "schedule"} | {"contract": name})
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


def _held(path: Path) -> dict | None:
    """What `path` holds if `kept` made it."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return read(path) if isinstance(found, dict) and "version" in found else None


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
    parts = (_head(held["origin"]), _counts(held), _table(held), _said(held), _differences(held))
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _head(origin: dict[str, str]) -> Iterator[str]:
    yield from (
        "# Sanitizers, and the emulated GPU, on the same cases",
        "",
        "Each case is judged in a child of its own: bare; compiled with Triton's iisan, consan or fpsan; under compute-sanitizer's",
        "memcheck or racecheck; and on the emulated GPU, plain and with iisan, under six schedules (eager, latest, four drawn).",
        "Kernels and launches made to be caught come first; then hazards, each one text replaced in a kernel",
        "(`tests/harness_checks/hazards_for_sanitizers.py`), beside the same launch of the kernel as it is. **Bold** is what the",
        "sanitizer itself named; the rest is the judge's verdict on what the launch left behind. Every kernel's whole cover list",
        "under every mode: [benchmarks.md](benchmarks.md#under-the-sanitizers).",
        "",
        "Made by `python -m harness.sanitizer_page tests/hardware_words/sanitizers_h200.json > docs/sanitizers.md`; the verdicts",
        "are from `bash benchmarks/sanitizers.sh DIRECTORY hazards` and `bash harness/frontier/on_a_gpu.sh DIRECTORY` on a GPU,",
        "and, for the emulated one, from `python -m tests.harness_checks.hazards_for_sanitizers --out FILE` and `sanitize STEM",
        "--target emulated:sm_90 --schedule eager --schedule latest --cases-of FILE --json FILE`.",
        "",
        "- " + ", ".join(f"{name} {value}" for name, value in origin.items()),
        "",
    )


def planted(case: dict) -> bool:
    """Whether the case is of a hazard: of a faulty copy in a file of its own."""
    return ".py:" in case["contract"] and not title(case, 0).split(":")[0].endswith(("as it is", "as it is with TMA"))


def _counts(held: dict) -> Iterator[str]:
    """By mode: of the hazards that the emulated GPU convicts, how many are named, show in what the launch left, or pass."""
    at = _by_place(held)
    wanted = [number for number, case in enumerate(held["cases"]) if planted(case)
              and any(row[3] != "right" for row in at.get((number, "emulated"), []))]
    if not wanted:
        return
    yield from (f"## {len(wanted)} hazards that the emulated GPU convicts", "",
                "| mode | named by the sanitizer | convicted by what it left | silent | not run |",
                "| --- | ---: | ---: | ---: | ---: |")
    for mode in (*sanitizer.MODES, *EMULATED):
        rows = [at[number, mode] for number in wanted if (number, mode) in at]
        named = sum(any(row[6] for row in case) for case in rows) if mode not in EMULATED else \
            sum(any(row[3] != "right" for row in case) for case in rows)
        missing = sum(case[0][3] == "not run" for case in rows) + len(wanted) - len(rows)
        silent = sum(all(row[3] == "right" for row in case) for case in rows)
        yield f"| {mode} | {named} | {len(wanted) - named - silent - missing} | {silent} | {missing} |"
    repaired = sum(map(planted, held["cases"])) - len(wanted)
    yield from ("", f"{repaired} more are repaired by the compiler (a missing barrier or fence inside one partition) and right "
                    "everywhere." if repaired else "", "")


def title(case: dict, number: int) -> str:
    """A case's name in the tables."""
    name = case["contract"].removesuffix(":CONTRACT").removesuffix(".py").replace("harness.frontier.contract", "frontier")
    problem = case["problem"]
    if "operation" in problem:
        plain = {"row": 0, "column": 0, "columns": 64, "pad": 0}
        told = ", ".join([problem["operation"], *(f"{k} {problem[k]}" for k, v in plain.items() if problem[k] != v)])
    elif "form" in problem:
        told = ", ".join(f"{problem[key]} {key}" for key in ("tiles", "programs"))
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
        told = (number, mode if mode not in EMULATED else outcome)  # of the emulated GPU's two builds: where they differ
        if outcome != "right" and (own or mode in ("bare", *EMULATED)) and told not in seen:
            seen.add(told)
            yield f"- {number}, {mode}: {outcome}: {message}" + (f" ({place})" if place else "")
    yield ""


def differences(held: dict) -> dict[str, list[str]]:
    """Reason -> a line for each (case, mode) whose outcome is none of the emulated GPU's on the same build."""
    at, found = _by_place(held), dict[str, list[str]]()
    for (number, mode), rows in at.items():
        beside = at.get((number, "emulated iisan" if mode == "iisan" else "emulated"), [])
        if mode in EMULATED or not beside:
            continue
        said, there = rows[0][3], list(dict.fromkeys(row[3] for row in beside))
        if said not in there:
            case = title(held["cases"][number], number)
            why = next((one.why for one in EXPLAINED if one.fits(mode, said, there, case)), UNEXPLAINED)
            found.setdefault(why, []).append(f"{number}, {mode}: {said}; emulated: {' / '.join(there)}")
    return found


def _differences(held: dict) -> Iterator[str]:
    compared = len({(row[0], row[1]) for row in held["rows"] if row[1] not in EMULATED})
    found = differences(held)
    same = compared - sum(map(len, found.values()))
    yield from ("## Where they differ from the emulated GPU", "",
                f"{compared} verdicts of the GPU; {same} are the emulated GPU's on the same case (under one of its schedules).", "")
    for why, lines in found.items():
        yield from (f"**{len(lines)}**: {why}.", "", *(f"- {line}" for line in lines), "")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.sanitizer_page")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="HELD", help="write what the page needs of FILES, by sanitize --json, to HELD")
    parser.add_argument("--origin", action="append", default=[], metavar="NAME=VALUE", help="with --keep: where FILES come from")
    parser.add_argument("--without", action="append", default=[], metavar="TEXT",
                        help="with --keep: of a HELD among FILES, no case whose contract's name holds TEXT")
    arguments = parser.parse_args(words)
    try:
        if arguments.keep is None:
            print(page(read(arguments.files[0])), end="")
            return 0
        held = kept(arguments.files, dict(pair.partition("=")[::2] for pair in arguments.origin),
                    arguments.without)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    listed = {name: ",\n".join(f"  {json.dumps(row)}" for row in held[name]) for name in ("cases", "rows")}
    arguments.keep.write_text(f'{{\n "version": {VERSION}, "origin": {json.dumps(held["origin"])},\n'
                              f' "cases": [\n{listed["cases"]}\n ],\n "rows": [\n{listed["rows"]}\n ]\n}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
