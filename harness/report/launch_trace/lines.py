"""A program of a trace, line by line: the tiles after each line as they were last, and on one screen of a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from bitverdict.harness.report.launch_trace.layouts import layout_text
from bitverdict.harness.report.launch_trace.records import UNNAMED_VALUE, Assignment, Tile, last_tile, source_of
from bitverdict.harness.report.launch_trace.trace import Trace


@dataclass(frozen=True, eq=False)
class TileLine:
    """The last value of a variable after a line of a program; `times`: how often it came."""

    tile: Tile
    times: int

    @property
    def location(self) -> str:
        return f"{self.tile.file}:{self.tile.line}"

    @property
    def type_text(self) -> str:
        """Element and shape, as "fp16[16, 32]"."""
        kind = self.tile.assignment.kind
        if kind is None:
            return self.tile.assignment.type_text
        element = "pointer" if kind.pointers else kind.format or kind.element
        return element + (f"[{', '.join(map(str, kind.shape))}]" if kind.kind == "tensor" else "")

    @property
    def layout(self) -> str:
        return layout_text(self.tile.assignment.kind)


def range_text(tile: Tile) -> str:
    """The least and the greatest number of a tile, and how many are none."""
    low, high = (tile.decode(words) for words in tile.ends or (tile.words, tile.words))
    nans = int(np.isnan(low.astype(np.float64)).sum())
    if tile.words.dtype == np.bool_:
        return f"true in {int(tile.words.sum())} of {tile.words.size}"
    if nans == low.size:
        return f"{nans} NaN"
    ends = f"{np.nanmin(low):.6g}", f"{np.nanmax(high):.6g}"
    found = ends[0] if ends[0] == ends[1] else " to ".join(ends)
    is_open = tile.ends is not None and not np.array_equal(*tile.ends)
    return found + (f", {nans} NaN" if nans else "") + (", open" if is_open else "")


def tile_lines(trace: Trace, program: int) -> list[TileLine]:
    """Of each line the kernel's variables, in the order of files and lines; of a line without any its last tile."""
    trace.check_program(program)
    tiles_by_name: dict[tuple[str, int, str], list[Tile]] = {}
    for tile in trace.tiles:
        if tile.program == program and is_shown(tile.assignment):
            tiles_by_name.setdefault((tile.file, tile.line, tile.name), []).append(tile)
    named = {(file, line) for file, line, name in tiles_by_name if not UNNAMED_VALUE.fullmatch(name)}
    rows = dict[tuple[str, int, str], TileLine]()
    for (file, line, name), tiles in sorted(tiles_by_name.items(), key=lambda item: item[0][:2]):
        last = last_tile(tiles)
        is_named = (file, line) in named
        if not is_named or not UNNAMED_VALUE.fullmatch(name):
            same = [tile for tile in tiles if tile.assignment is last.assignment]
            rows[file, line, name if is_named else ""] = TileLine(last, len(same))
    return list(rows.values())


@cache
def is_shown(assignment: Assignment) -> bool:
    """Whether a value is a tile, or a scalar that its line names: what the compiler makes for itself is neither."""
    is_tile = assignment.kind is not None and assignment.kind.kind == "tensor"
    source = source_of(f"{assignment.file}:{assignment.line}") if assignment.line else ""
    return bool(source) and (is_tile or re.search(rf"\b{assignment.name}\b", source) is not None)


def screen(trace: Trace, program: int = 0, width: int = 100) -> Iterator[str]:
    """One screen: the launch, then a line for each tile, with its source."""
    yield launch_text(trace)
    rows, file = tile_lines(trace, program), ""
    sides = [max((len(cell) for cell in column), default=0) for column in zip(*map(_cells, rows), strict=True)] or [0] * 5
    for row in rows:
        if row.tile.file != file:
            file = row.tile.file
            yield f"{file.rpartition('/')[2]}, program {program}:"
        cells = "  ".join(cell.ljust(side) for cell, side in zip(_cells(row), sides, strict=True))
        yield f"{cells}  {source_of(row.location)}"[:width].rstrip()
    if not rows:
        yield f"program {program} assigns nothing on a line of the kernel"
    why = {said for (of_program, _), said in trace.omissions.items() if of_program == program}
    yield from (f"not kept: a value that {said}" for said in sorted(why))


def launch_text(trace: Trace) -> str:
    """Kernel, target, grid and what its programs take."""
    grid = " x ".join(map(str, trace.grid))
    attributes = trace.launch.metadata if trace.launch is not None else {}
    warps, shared = attributes.get("num_warps", "?"), attributes.get("shared", "?")
    return f"{trace.kernel} on {trace.arch}, grid {grid}, {warps} warps, {shared} bytes of shared memory a program"


def _cells(row: TileLine) -> tuple[str, ...]:
    times = f"x{row.times}" if row.times > 1 else ""
    return f"{row.tile.line:>5}", row.tile.name, row.type_text, range_text(row.tile), times


__all__ = ["TileLine", "is_shown", "launch_text", "range_text", "screen", "tile_lines"]
