"""docs/sanitizers.md: what each sanitizer said of each case on a GPU, beside the emulated GPU's verdict on the same case.

    python -m bitverdict.harness.lab.sanitizers.page --keep HELD.json FILE ...

cuts the files of `sanitize --json` down to what the page needs. The page is made from what was kept, and asks nothing:
``bitverdict lab pages sanitizers.md``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bitverdict.harness.judge.classify import told_by_device
from bitverdict.harness.lab.sanitizers import runs
from bitverdict.harness.lab.sanitizers.known_differences import EXPLANATIONS, emulated_name
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Outcome

VERSION = 1
EMULATED_MODES = ("emulated", "emulated iisan")
NO_EXPLANATION = "not explained"
_NAMELESS = ("not run", "timeout", "killed", "launcher error", "launch failure")  # nothing that a sanitizer has named
_LEGEND = (
    "A hazard is a changed kernel that the emulator fails. The emulator's own row is therefore complete by construction. Other",
    "tools contradict it in the cases listed [below](#where-they-differ-from-the-emulated-gpu). A clean case is one that the",
    "emulator passes: an unmodified kernel, or a hazard that the compiler repairs. Such a repair is a barrier or fence inside one",
    "partition.",
    "",
    "A launch that does not return, faults or leaves wrong results counts as a failure in every mode. A tool names a hazard where",
    "it identifies the same kind of error: a race, misuse of a barrier, a deadlock, an uninitialised read, or a stray access. The",
    "text of a consan assertion says which. A report that also appears on the unmodified kernel is a false alarm.",
)


def condense(files: Sequence[Path], origin: dict[str, str], exclude: Sequence[str] = ()) -> dict:
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
        if (held := _read_condensed(file)) is None:
            fresh += runs.read(file)
            continue
        origin = held["origin"] | origin
        left = {n for n, case in enumerate(held["cases"]) if not any(text in case["contract"] for text in exclude)}
        rows += [[place_of(held["cases"][row[0]]), *row[1:]] for row in held["rows"] if row[0] in left]
    for row in fresh:
        name = runs.name_of(row["contract"])
        place = place_of({k: v for k, v in row["case"].items() if k != "schedule"} | {"contract": name})
        verdict = row["verdict"]
        emulated = row["target"].startswith("emulated")
        mode = (f"emulated {row['mode']}" if row["mode"] != "bare" else "emulated") if emulated else row["mode"]
        kind, message = verdict["outcome"], (verdict["message"].splitlines() or [""])[0]
        named = told_by_device(verdict["details"].get("text", ""))
        if kind == Outcome.DEVICE_ASSERT and named is not None and named is not Outcome.DEVICE_ASSERT:
            kind = message = str(named)  # runs before this was mended took torch's advice for the fault
        own = bool(verdict["details"].get("said")) and kind not in _NAMELESS
        row_record = [
            place,
            mode,
            row["case"]["schedule"] if emulated else "",
            kind,
            "" if kind == "pass" else _shorten(message),
            verdict["location"] and verdict["location"].rpartition("/")[2],
            own,
        ]
        if row_record not in rows:
            rows.append(row_record)
    return {"version": VERSION, "origin": origin, "cases": records, "rows": rows}


def _read_condensed(path: Path) -> dict | None:
    """What `path` holds if `kept` made it."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return read(path) if isinstance(found, dict) and "version" in found else None


def _shorten(message: str) -> str:
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
    raise UsageError(f"{path}: {problem}; write it with python -m bitverdict.harness.lab.sanitizers.page --keep")


def page(held: dict) -> str:
    """The whole page, as Markdown."""
    parts = (_head(held["origin"]), _counts(held), _table(held), _quote_lines(held), _differences(held))
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _head(origin: dict[str, str]) -> Iterator[str]:
    yield from (
        "# Sanitizers, and the emulated GPU, on the same cases",
        "",
        "The harness judges each case in a worker of its own, in these modes: bare; compiled with Triton's iisan, consan or fpsan;",
        "under compute-sanitizer's memcheck or racecheck; and on the emulated GPU, plain and with iisan. The emulated GPU runs six",
        "schedules: eager, latest, and four drawn.",
        "",
        "Kernels, and launches that a sanitizer should report, come first. Hazards follow. A hazard is a kernel with one text",
        "replaced (`tests/faults/hazards_for_sanitizers.py`), beside the same launch of the unmodified kernel. **Bold** marks what",
        "the sanitizer itself reported. Other entries are the judge's verdict on the results of the launch.",
        "[benchmarks.md](benchmarks.md#under-the-sanitizers) has all required cases of every kernel under every mode.",
        "",
        "`bitverdict lab pages` prints this page from `tests/hardware_words/sanitizers_h200.json`. The verdicts of a GPU come from",
        "`bash benchmarks/sanitizers.sh DIRECTORY hazards` and `bash harness/lab/tma_limits/on_a_gpu.sh DIRECTORY`. Those of",
        "the emulated GPU come from `python -m tests.faults.hazards_for_sanitizers --out FILE` and from `bitverdict lab sanitize",
        "STEM --target emulated:sm_90 --schedule eager --schedule latest --cases-of FILE --json FILE`.",
        "",
        "- " + ", ".join(f"{name} {value}" for name, value in origin.items()),
        "",
    )


def is_hazard(case: dict) -> bool:
    """Whether the case is of a hazard: of a faulty copy in a file of its own."""
    return ".py:" in case["contract"] and " as it is" not in title(case, 0).split(":")[0]


def alarms(record: dict) -> set[tuple[int, str]]:
    """(case, mode) where the sanitizer says what it says of the kernel as it is, at the same place, give or take a removed line."""
    rows_by_place, alarm_set = _by_place(record), set()
    clean: dict[str, list[int]] = {}
    faulty = {number for number, case in enumerate(record["cases"]) if is_hazard(case)}
    for number, case in enumerate(record["cases"]):
        if ".py:" in case["contract"] and number not in faulty:
            clean.setdefault(_launch(case), []).append(number)
    for (number, mode), rows in rows_by_place.items():
        twins = clean.get(_launch(record["cases"][number]), ())
        same = [other for twin in twins for other in rows_by_place.get((twin, mode), ()) if other[6]]
        if mode not in EMULATED_MODES and any(
            _normalize_message(row) == _normalize_message(other) and abs(_line(row) - _line(other)) < 3
            for row in rows
            if row[6]
            for other in same
        ):
            alarm_set.add((number, mode))
    return alarm_set


def _launch(case: dict) -> str:
    return json.dumps([case["problem"], case["config"]], sort_keys=True)


def _normalize_message(row: list) -> str:
    return re.sub(r"[\w.]+\.py|\+0x[0-9a-f]+|\d+", "", f"{row[3]} {row[4]}")


def _line(row: list) -> int:
    return int(row[5].rpartition(":")[2] or 0)


def summary(record: dict) -> dict[str, list[int]]:
    """Mode -> how many hazards it fails, of these by an alarm that the kernel as it is gets too, names as the emulated GPU does;
    and how many of the clean cases it fails. Hazards are those that the emulated GPU fails."""
    rows_by_place, alarm_set = _by_place(record), alarms(record)
    emulated_outcomes = {n: {row[3] for row in rows_by_place.get((n, "emulated"), ())} for n in range(len(record["cases"]))}
    copies = [n for n, case in enumerate(record["cases"]) if ".py:" in case["contract"] and emulated_outcomes[n]]
    hazards = [n for n in copies if is_hazard(record["cases"][n]) and emulated_outcomes[n] - {"pass"}]
    clean = [n for n in copies if n not in hazards]
    modes = (*runs.MODES, EMULATED_MODES[0])
    failures = {
        mode: {n for n in copies if any(row[3] not in ("pass", "not run") for row in rows_by_place.get((n, mode), ()))}
        for mode in modes
    }
    named_hazards = {
        mode: {
            n
            for n in hazards
            if (n, mode) not in alarm_set
            and any(
                {row[3], emulated_name(row[3], row[4])} & (emulated_outcomes[n] - {"pass"})
                for row in rows_by_place.get((n, mode), ())
            )
        }
        for mode in modes
    }
    only = {mode: {n for n in hazards if (n, mode) in alarm_set} for mode in modes}
    rows = {mode: [failures[mode], only[mode], named_hazards[mode]] for mode in modes}
    gpu = modes[:-1]
    rows["any of these"] = [
        set().union(*(failures[m] - only[m] for m in gpu)),
        set(),
        set().union(*(named_hazards[m] for m in gpu)),
    ]
    rows["any of these"][0] |= set().union(*(failures[m] & set(clean) for m in gpu))
    order = (*gpu, "any of these", EMULATED_MODES[0])
    counted = {mode: [len(group & set(hazards)) for group in rows[mode]] + [len(rows[mode][0] & set(clean))] for mode in order}
    return counted | {"all": [len(hazards), 0, len(hazards), len(clean)]}


def _counts(held: dict) -> Iterator[str]:
    """By mode, what it says of the hazards that the emulated GPU fails and of the clean cases beside them."""
    counts = summary(held)
    hazards, _, _, clean = counts.pop("all")
    if not hazards:
        return
    yield from (
        f"## {hazards} hazards and {clean} clean cases",
        "",
        f"| mode | fails, of {hazards} hazards | of these by a false alarm "
        f"| names it as the emulated GPU does | fails, of {clean} clean cases |",
        "| --- | ---: | ---: | ---: | ---: |",
    )
    for mode, cells in counts.items():
        yield f"| {mode} | " + " | ".join(map(str, cells)) + " |"
    yield from ("", *_LEGEND, "")


def title(case: dict, number: int) -> str:
    """A case's name in the tables."""
    name = (
        case["contract"]
        .removesuffix(":CONTRACT")
        .removesuffix(".py")
        .replace("bitverdict.harness.lab.tma_limits.contract", "tma_limits")
    )
    problem = case["problem"]
    if "operation" in problem:
        plain = {"row": 0, "column": 0, "columns": 64, "pad": 0}
        description = ", ".join([problem["operation"], *(f"{k} {problem[k]}" for k, v in plain.items() if problem[k] != v)])
    elif "form" in problem:
        description = ", ".join(f"{problem[key]} {key}" for key in ("tiles", "programs"))
    elif "past" in problem:
        description = f"past {problem['past']}"
    else:
        description = f"{problem['m']}x{problem['n']}x{problem['k']} {problem['dtype']}"
    return f"{number} {name.removeprefix('tests.faults.').replace('_', ' ')}: {description}"


def _by_place(held: dict) -> dict[tuple[int, str], list[list]]:
    found: dict[tuple[int, str], list[list]] = {}
    for row in held["rows"]:
        found.setdefault((row[0], row[1]), []).append(row)
    return found


def _table(held: dict) -> Iterator[str]:
    columns = (*runs.MODES, *EMULATED_MODES)
    at = _by_place(held)
    yield from ("## What each said", "", "| case | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|")
    for number, case in enumerate(held["cases"]):
        cells = []
        for mode in columns:
            told = dict.fromkeys(f"**{row[3]}**" if row[6] else row[3] for row in at.get((number, mode), []))
            cells.append(" / ".join(told) or "-")
        yield f"| {title(case, number)} | " + " | ".join(cells) + " |"
    yield ""


def _quote_lines(held: dict) -> Iterator[str]:
    yield from ("## In its own words", "")
    seen = set()
    for number, mode, _schedule, outcome, message, place, own in held["rows"]:
        told = (number, mode if mode not in EMULATED_MODES else outcome)  # of the emulated GPU's two builds: where they differ
        if outcome != "pass" and (own or mode in ("bare", *EMULATED_MODES)) and told not in seen:
            seen.add(told)
            yield f"- {number}, {mode}: {outcome}: {message}" + (f" ({place})" if place else "")
    yield ""


def differences(record: dict) -> dict[str, list[str]]:
    """Reason -> a line for each (case, mode) whose outcome is none of the emulated GPU's on the same build, or is an alarm."""
    at, alarmed, lines_by_reason = _by_place(record), alarms(record), dict[str, list[str]]()
    for (number, mode), rows in at.items():
        beside = at.get((number, "emulated iisan" if mode == "iisan" else "emulated"), [])
        if mode in EMULATED_MODES or not beside:
            continue
        said, there, alarm = rows[0][3], list(dict.fromkeys(row[3] for row in beside)), (number, mode) in alarmed
        if said not in there or alarm:
            case = title(record["cases"][number], number)
            why = next((one.why for one in EXPLANATIONS if one.fits(mode, said, there, case, rows[0][4], alarm)), NO_EXPLANATION)
            lines_by_reason.setdefault(why, []).append(f"{number}, {mode}: {said}; emulated: {' / '.join(there)}")
    return lines_by_reason


def _differences(held: dict) -> Iterator[str]:
    verdict_count = len({(row[0], row[1]) for row in held["rows"] if row[1] not in EMULATED_MODES})
    lines_by_reason = differences(held)
    same = verdict_count - sum(map(len, lines_by_reason.values()))
    yield from (
        "## Where they differ from the emulated GPU",
        "",
        f"The GPU gave {verdict_count} verdicts. {same} of them equal the emulated GPU's on the same "
        f"case, under one of its schedules.",
        "",
    )
    for why, lines in lines_by_reason.items():
        yield from (f"**{len(lines)}**: {why}.", "", *(f"- {line}" for line in lines), "")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bitverdict.harness.lab.sanitizers.page")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="HELD", help="write what the page needs of FILES, by sanitize --json, to HELD")
    parser.add_argument("--origin", action="append", default=[], metavar="NAME=VALUE", help="with --keep: where FILES come from")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="TEXT",
        help="with --keep: of a HELD among FILES, no case whose contract's name holds TEXT",
    )
    arguments = parser.parse_args(words)
    try:
        if arguments.keep is None:
            print(page(read(arguments.files[0])), end="")
            return 0
        record = condense(arguments.files, dict(pair.partition("=")[::2] for pair in arguments.origin), arguments.without)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    listed = {name: ",\n".join(f"  {json.dumps(row)}" for row in record[name]) for name in ("cases", "rows")}
    arguments.keep.write_text(
        f'{{\n "version": {VERSION}, "origin": {json.dumps(record["origin"])},\n'
        f' "cases": [\n{listed["cases"]}\n ],\n "rows": [\n{listed["rows"]}\n ]\n}}\n'
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
