"""The verdict of every required case of every shipped kernel, and of a case of each deliberate fault, stored and compared.

    python -m bitverdict.harness.lab.frozen_verdicts FILE [STEM ...] [--jobs N] [--no-faults]
    python -m bitverdict.harness.lab.frozen_verdicts FILE [STEM ...] --compare OLD

The first line judges on emulated sm_80, sm_90, sm_100 and gfx942 and writes FILE: compressed JSON lines in a fixed order, the same
bytes for the same verdicts. It goes on where an earlier call was ended, as long as the sources are the same. With --compare FILE
is read where it is there, else judged first; each difference from OLD is printed, and one ends with status 1. OLD may be another
FILE or a file of --digests, which has a digest a kernel and target and is small enough to be committed.

A change that must change no verdict is made between two such files: moves, renames, and tables in the place of `if`.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import REPRODUCERS, ROOT, kernels_with_a_contract, state_directory
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.workers.pool import WorkerPool

TARGETS = ("emulated:sm_80", "emulated:sm_90", "emulated:sm_100", "emulated:gfx942")
VERDICT_FIELDS = (
    "decision",
    "outcome",
    "basis",
    "words",
    "digests",
    "message",
    "location",
    "bound_used",
    "advice",
    "details",
    "recorded",
)
"""Fields of a frozen record, the most important first; seconds are no part of it."""
PRINTED_CHARACTERS = 160  # characters of one value of a difference
CASE_SECONDS = 1800.0  # a busy machine makes no timeout
PROGRESS_SECONDS = 20.0
Record = dict[str, Any]


@dataclass(frozen=True)
class Unit:
    """What is judged at one place of the pool, one after another, up to the first case that fails: one required case, or those of a
    fault. `key` is equal for equal units. A fault is one whatever its cases, which are made when their turn comes."""

    name: str
    key: str
    cases: Callable[[], Iterable[tuple[Case, Target]]]


def required_units(stems: Sequence[str]) -> Iterator[Unit]:
    """Every required case of the kernels `stems` on each target that can serve them."""
    for stem in stems:
        for name in TARGETS:
            source = CaseSource(stem, target(name))
            if not source.missing_features:
                yield from (required_unit(stem, case, source.target) for case in source.required())


def required_unit(stem: str, case: Case, where: Target) -> Unit:
    return Unit(stem, f"{stem} on {where.name} {case.key}", lambda: [(case, where)])


def reproducer_units() -> Iterator[Unit]:
    """The reduced failures in tests/."""
    for path in sorted(REPRODUCERS.glob("*.json")):
        stored, name = reproducers.read(path), f"reproducer: {path.name}"
        case, _ = reproducers.restore_case(stored, use_embedded=True)
        yield Unit(name, name, functools.partial(lambda *judged: [judged], case, target(stored.target)))


def frozen_record(unit: Unit, case: Case, where: Target, verdict: Verdict) -> Record:
    """What is stored of one verdict: all that two runs of the same sources have in common."""
    record = verdict.to_json()
    known = dict(record.pop("recorded"))
    digests = known.pop("digests", {})
    launches = [
        {name: value for name, value in launch.items() if name not in ("program", "place")} for launch in known.pop("launches", ())
    ]
    fields = record | {"digests": digests, "recorded": known | {"launches": launches}}
    return {"name": unit.name, "target": where.name, "case": case.to_json()} | {name: fields[name] for name in VERDICT_FIELDS}


def judge_unit(unit: Unit, pool: WorkerPool, place: int) -> Record | None:
    """The record of the first case of `unit` that fails, or of its last; None where it has no case on our targets."""
    record = None
    for case, where in unit.cases():
        verdict = pool.judge(case, where, place=place)
        record = frozen_record(unit, case, where, verdict)
        if verdict.failed:
            break
    return record


def sources_digest() -> str:
    """Of the commit and of what the checkout changes in it: a part of a file that other sources wrote is not gone on with."""
    commands = (("git", "rev-parse", "HEAD"), ("git", "diff", "HEAD"), ("git", "ls-files", "--others", "--exclude-standard", "-s"))
    answers = [subprocess.run(command, cwd=ROOT, capture_output=True, check=False).stdout for command in commands]
    return hashlib.sha256(b"\0".join(answers)).hexdigest()[:16]


def unfinished_records(path: Path, sources: str) -> dict[str, Record | None]:
    """{key of a unit: its record} of the part of a file at `path` that the same `sources` wrote; a torn last line is left out."""
    records: dict[str, Record | None] = {}
    if not path.is_file():
        return records
    header, *lines = path.read_text().splitlines() or [""]
    if header != sources:
        return records
    for line in lines:
        try:
            key, record = json.loads(line)
        except ValueError:
            continue
        records[key] = record
    return records


class Progress:
    """Prints how many of `total` units are judged, every now and then."""

    def __init__(self, total: int, judged: int) -> None:
        self.total, self.judged, self.begun, self.printed = total, judged, time.monotonic(), 0.0

    def advance(self) -> None:
        self.judged += 1
        seconds = time.monotonic() - self.begun
        if seconds - self.printed > PROGRESS_SECONDS or self.judged == self.total:
            self.printed = seconds
            print(f"{self.judged} of {self.total} judged, {seconds:.0f} s", file=sys.stderr, flush=True)


def judge_units(units: Sequence[Unit], pool: WorkerPool, part: Path, folder: Path) -> list[Record]:
    """The records of `units`, in their order. Each is on disk in `part` when it is made."""
    sources = sources_digest()
    records = unfinished_records(part, sources)
    todo = [unit for unit in units if unit.key not in records]
    progress = Progress(len(units), len(units) - len(todo))
    with part.open("w") as part_file:
        part_file.write(sources + "\n")
        for key, record in records.items():
            write_line(part_file, [key, record])
        for key, record in pool.spread(todo, lambda unit, place: (unit.key, judge_unit(unit, pool, place))):
            records[key] = json.loads(without_places(json.dumps(record), folder))
            write_line(part_file, [key, records[key]])
            progress.advance()
    return [record for unit in units if (record := records[unit.key]) is not None]


def without_places(text: str, folder: Path) -> str:
    """`text` without what is another in each run: the folders that sources were written to, `folder` among them, the checkout's,
    addresses of memory, how far apart two are, and which tensor lies nearest to one."""
    for written in (re.escape(str(folder)), rf"{re.escape(str(state_directory()))}/replayed/\w+", re.escape(str(ROOT))):
        text = re.sub(rf"{written}/?", "", text)
    text = re.sub(r"\b\d{1,3}(,\d{3}){4,} elements", "FAR elements", text)
    text = re.sub(r"\b0x[0-9a-f]{12}\b", "ADDRESS", text)
    return re.sub(r" \(nearest: [^)]*\)", "", text)


def write_line(stored: TextIO, value: object) -> None:
    stored.write(json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n")
    stored.flush()


def write_records(path: Path, records: Iterable[Record]) -> None:
    """The same bytes for the same records: no date, no name of a file."""
    lines = "".join(json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n" for record in records)
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))


def read_records(path: Path) -> list[Record]:
    """UsageError for what is no file of frozen verdicts."""
    try:
        return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    except (OSError, EOFError, ValueError) as error:
        remedy = "give a file that this command wrote"
        raise UsageError(f"frozen verdicts {path}: cannot be read ({error}): {remedy}") from None


def digests_of(records: Iterable[Record]) -> dict[str, dict[str, list]]:
    """{kernel or group of faults: {target: [how many records, their digest]}}."""
    lines: dict[str, dict[str, list[str]]] = {}
    for record in records:
        name = record["name"].partition(":")[0]
        lines.setdefault(name, {}).setdefault(record["target"], []).append(json.dumps(record, sort_keys=True))
    return {
        name: {
            where: [len(texts), hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]]
            for where, texts in sorted(by_target.items())
        }
        for name, by_target in sorted(lines.items())
    }


def identity(record: Record) -> str:
    """What a record is compared by: a required case by itself, a fault by its name."""
    if ":" in record["name"]:
        return record["name"]
    return f"{record['name']} on {record['target']} {json.dumps(record['case'], sort_keys=True)}"


def record_differences(before: Iterable[Record], now: Iterable[Record]) -> Iterator[str]:
    """What of the records `now` is not as `before`, a line each."""
    before_by_key, now_by_key = ({identity(record): record for record in records} for records in (before, now))
    for key in sorted(before_by_key.keys() | now_by_key.keys()):
        record = now_by_key.get(key) or before_by_key[key]
        subject = f"{record['name']} on {record['target']}"
        if key not in now_by_key or key not in before_by_key:
            yield f"{subject}: {'judged no more' if key not in now_by_key else 'not judged before'}: {_cut(record['case'])}"
            continue
        for field in ("target", "case", *VERDICT_FIELDS):
            if before_by_key[key][field] != now_by_key[key][field]:
                was, now_is = _differing_parts(before_by_key[key][field], now_by_key[key][field])
                yield f"{subject}: {field} was {_cut(was)}, is {_cut(now_is)}; case {_cut(record['case'])}"


def _differing_parts(was: object, now_is: object) -> tuple[Any, Any]:
    """The parts of two values that differ, where both are mappings."""
    if not (isinstance(was, Mapping) and isinstance(now_is, Mapping)):
        return was, now_is
    names = [name for name in was.keys() | now_is.keys() if was.get(name) != now_is.get(name)]
    return tuple({name: side[name] for name in sorted(names) if name in side} for side in (was, now_is))  # type: ignore[return-value]


def _cut(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= PRINTED_CHARACTERS else f"{text[:PRINTED_CHARACTERS]}..."


def digest_differences(before: Mapping[str, Mapping[str, list]], now: Mapping[str, Mapping[str, list]]) -> Iterator[str]:
    """The kernels and targets whose digests differ, a line each. Kernels that were not judged now are not compared."""
    for name, by_target in now.items():
        for where in sorted({*by_target, *before.get(name, {})}):
            was, now_is = before.get(name, {}).get(where), by_target.get(where)
            if was != now_is:
                yield f"{name} on {where}: (records, digest) was {was}, is {now_is}; compare two files of records to see which"


def differences(old: Path, records: Sequence[Record]) -> list[str]:
    """What of `records` is not as in the file `old`, of records or of digests; of the names that `records` has."""
    if old.suffix == ".json":
        return list(digest_differences(json.loads(old.read_text())["digests"], digests_of(records)))
    names = {record["name"].partition(":")[0] for record in records}
    before = [record for record in read_records(old) if record["name"].partition(":")[0] in names]
    return list(record_differences(before, records))


def judge_all(stems: Sequence[str], jobs: int, path: Path, *, faults: bool) -> list[Record]:
    """Judge what the command line asks for, and write the file at `path`."""
    with tempfile.TemporaryDirectory(prefix="frozen-") as name:
        folder = Path(name)
        units = list(required_units(stems))
        if faults:
            from bitverdict.harness.lab.frozen_faults import fault_units

            units += [*fault_units(folder, stems), *reproducer_units()]
        part = path.with_name(path.name + ".part")
        with WorkerPool(jobs=jobs, timeout=CASE_SECONDS) as pool:
            records = judge_units(units, pool, part, folder)
    write_records(path, records)
    part.unlink()
    return records


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="python -m bitverdict.harness.lab.frozen_verdicts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("file", type=Path, metavar="FILE")
    arguments.add_argument("stems", nargs="*", metavar="STEM", help="kernels; all without one")
    arguments.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments.add_argument("--no-faults", action="store_true", help="required cases alone")
    arguments.add_argument(
        "--compare", type=Path, metavar="OLD", help="print what differs from OLD, and end with 1 where something does"
    )
    arguments.add_argument("--digests", type=Path, metavar="JSON", help="write a digest a kernel and target")
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    options = parser().parse_args(words)
    try:
        if options.file.is_file() and options.compare is None and options.digests is None:
            raise UsageError(f"{options.file}: is there already; name another file, or --compare it with one")
        unknown = sorted(set(options.stems) - set(kernels_with_a_contract()))
        if unknown:
            raise UsageError(f"{unknown[0]}: no kernel with a contract; there are {', '.join(kernels_with_a_contract())}")
        if options.file.is_file():
            records = read_records(options.file)
        else:
            stems = options.stems or kernels_with_a_contract()
            records = judge_all(stems, options.jobs, options.file, faults=not options.no_faults)
        if options.digests is not None:
            options.digests.write_text(json.dumps({"digests": digests_of(records)}, indent=1) + "\n")
        lines = differences(options.compare, records) if options.compare is not None else []
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    for line in lines:
        print(line)
    print(f"{len(records)} records" + (f", {len(lines)} differences" if options.compare is not None else ""))
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main())
