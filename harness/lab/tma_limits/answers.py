"""The columns of the map: what each of them answers at every point.

rule             what is documented (`points.rule`)
compiler         compiled to machine code offline, by ptxas too: "compiles" or "refused"
emulated         launched on the emulated GPU
emulated iisan   the same program compiled with Triton's iisan
hardware, hardware iisan   launched on a GPU, each point that faults at the cost of a worker
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bitverdict.harness.lab.tma_limits.contract import MODES, case_of
from bitverdict.harness.lab.tma_limits.points import Point, key, points, rule
from bitverdict.harness.model.architectures import BY_DEFAULT, emulated_with
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.workers.journal import Journal
from bitverdict.kernels.features import Feature
from bitverdict.reference import gather_scatter
from bitverdict.reference.tiled_copy import Direction

ARCHITECTURES = tuple(arch for arch in emulated_with(Feature.TMA) if arch in BY_DEFAULT)
NO_INSTRUCTION = "not there"  # the machine lacks the instruction
VERSION = 2  # of the file that `write` leaves
FIELDS = ("outcome", "message", "location", "layer")
Answers = dict[str, dict]  # key of a point -> {"outcome", "message", "location"}


def has(point: Point, arch: str, features: Iterable[Feature]) -> bool:
    """Whether a machine of `arch` has the point's instruction."""
    if point.is_tiled:
        return Feature.TMA in features
    direction = Direction.STORE if point.stores else Direction.LOAD
    return gather_scatter.refusal(gather_scatter.Request(direction, 8, 32, 4, arch)) is None


def by_rule(grid: list[Point], arch: str, *, iisan: bool) -> Answers:
    return {key(p): {"outcome": (r := rule(p, arch, iisan=iisan)).outcome, "message": r.reason, "location": r.layer} for p in grid}


def by_launch(grid: list[Point], target: Target, mode: str, *, jobs: int, timeout: float = 30.0) -> Answers:
    """Launch every point that `target` has the instruction for, in workers; the others answer `NO_INSTRUCTION`."""
    from bitverdict.harness.workers.pool import WorkerPool

    here = [p for p in grid if has(p, target.arch, target.features)]
    answers_by_key: Answers = {key(p): {"outcome": NO_INSTRUCTION, "message": "", "location": ""} for p in grid}
    with WorkerPool(jobs=jobs, timeout=timeout, journal=Journal()) as pool:
        for case, _, verdict in pool.judge_all((case_of(p, mode), target) for p in here):
            seconds = verdict.seconds.get("total", 0.0)
            answers_by_key[key(case.problem)] = {
                "outcome": str(verdict.outcome),
                "message": verdict.message,
                "location": verdict.location,
                "layer": verdict.details.get("layer", ""),
                "seconds": round(seconds, 2),
            }
    return answers_by_key


def columns(architectures: Iterable[str], *, jobs: int, operations: tuple[str, ...] | None = None) -> dict[str, dict[str, Answers]]:
    """Architecture -> column -> answers, of all columns that need no GPU."""
    from bitverdict.harness.lab.tma_limits.compiler_answers import by_compiler

    grid = points(operations) if operations else points()
    answers_by_arch: dict[str, dict[str, Answers]] = {}
    for arch in architectures:
        target = Target(f"emulated:{arch}", arch)
        answers_by_arch[arch] = {
            "rule": by_rule(grid, arch, iisan=False),
            "rule iisan": by_rule(grid, arch, iisan=True),
            "compiler": by_compiler(grid, arch),
        }
        for mode in MODES:
            answers_by_arch[arch]["emulated" + (f" {mode}" if mode else "")] = by_launch(grid, target, mode, jobs=jobs)
    return answers_by_arch


def hardware(target: Target, *, jobs: int) -> dict[str, dict[str, Answers]]:
    """Architecture -> the two hardware columns, of the points that the GPU has the instruction for."""
    grid = [p for p in points() if has(p, target.arch, target.features)]
    return {target.arch: {"hardware" + (f" {mode}" if mode else ""): by_launch(grid, target, mode, jobs=jobs) for mode in MODES}}


def origin(target: Target | None = None) -> dict[str, str]:
    """When and with what answers were had."""
    import torch
    import triton

    from bitverdict.harness.lab.hardware_words.cuda_library import driver_version

    told = {"date": datetime.now(UTC).date().isoformat(), "triton": triton.__version__, "torch": torch.__version__}
    return told | ({"machine": target.model, "driver": driver_version()} if target else {})


def write(path: Path, made: dict[str, dict[str, Answers]], target: Target | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pack_answers(made, origin(target)))


def pack_answers(answers_by_arch: dict[str, dict[str, Answers]], origin_record: dict[str, str]) -> str:
    """Answers as JSON, small enough to keep: each point, and each different answer, once."""
    keys = list(dict.fromkeys(k for columns in answers_by_arch.values() for answers in columns.values() for k in answers))
    place = {k: number for number, k in enumerate(keys)}
    rows: dict[str, int] = {}
    packed_columns = {
        arch: {
            name: [[place[k], rows.setdefault(json.dumps([a.get(f, "") for f in FIELDS]), len(rows))] for k, a in answers.items()]
            for name, answers in columns.items()
        }
        for arch, columns in answers_by_arch.items()
    }
    lines = [
        f' "points": [\n{_list_lines(keys)}\n ],',
        f' "answers": [\n{_list_lines(list(rows))}\n ],',
        f' "columns": {json.dumps(packed_columns)}',
    ]
    return "\n".join(["{", f' "version": {VERSION}, "origin": {json.dumps(origin_record)},', *lines, "}"]) + "\n"


def _list_lines(texts: list[str]) -> str:
    return ",\n".join(f"  {text}" for text in texts)


def read(path: Path) -> dict[str, Any]:
    """{"origin", "columns"} of a file that `write` left. ValueError for anything else, with what is wrong with it."""
    try:
        record = json.loads(path.read_text())
        version = record["version"]
        if version == VERSION:
            keys = [key(Point(**fields)) for fields in record["points"]]
            answers = [dict(zip(FIELDS, row, strict=True)) for row in record["answers"]]
            record["columns"] = {
                arch: {name: {keys[point]: answers[answer] for point, answer in pairs} for name, pairs in columns.items()}
                for arch, columns in record["columns"].items()
            }
            return record
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UsageError(f"{path}: no answers of a TMA limits ({error!r}); write them with tma-limits --json") from error
    raise UsageError(f"{path}: version {version}: this checkout reads version {VERSION}; write it again with tma-limits --json")


def merge_columns(into: dict[str, dict[str, Answers]], other: dict[str, dict[str, Answers]]) -> dict[str, dict[str, Answers]]:
    """Columns of both; a column of `other` replaces one of the same name."""
    return {arch: into.get(arch, {}) | other.get(arch, {}) for arch in dict.fromkeys([*into, *other])}


def cores() -> int:
    return min(os.cpu_count() or 1, 16)
