"""The hypothesis that a program never wrote its tile: every wrong word still holds what the output held before the launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bitverdict.harness.checks.explain.evidence import ENOUGH, CauseFinding, Fit, places_named, tiles_hit

MAX_LISTED_TILES = 3
LEAST_OF_LINES = 4  # unwritten elements: no four words are the poison by chance
LEAST = 2  # unwritten elements: one word may be the poison by chance


def never_written_tiles(
    unwritten: np.ndarray, differs: np.ndarray, tile: tuple[int, int] | None, launches: tuple[Mapping, ...]
) -> Iterator[CauseFinding]:
    """`unwritten` and `differs` (bool, of the output's shape): which elements hold the poison, and which are wrong."""
    if not differs.any() or not np.array_equal(unwritten & differs, differs):
        return
    if differs.sum() < LEAST and differs.size > 1:
        return
    fit = Fit(ENOUGH, "", differs)
    if differs.all():
        yield CauseFinding("never written", "no program wrote the output", fit)
        return
    lines = _lines(differs)
    if differs.ndim == 2 and tile is not None:
        tiles = tiles_hit(differs, tile)
        part = np.kron(tiles, np.ones(tile, bool))[: differs.shape[0], : differs.shape[1]].astype(bool)
        if np.array_equal(part, differs) and tiles.size > 1:
            said = _of_programs(tiles, launches)
            yield CauseFinding("never written", f"{lines} never written: {said}" if lines.count(" ") == 1 else said, fit)
            return
    if lines:
        yield CauseFinding("never written", f"{lines} never written", fit)
        return
    yield CauseFinding("never written", f"{int(differs.sum())} elements never written", fit)


def lines_never_written(unwritten: np.ndarray, differs: np.ndarray) -> str:
    """The rows, columns or elements that hold the poison from end to end, where other elements are wrong too; empty if none do."""
    left = unwritten & differs
    if left.sum() < LEAST_OF_LINES or np.array_equal(left, differs):
        return ""
    return _lines(left)


def _lines(differs: np.ndarray) -> str:
    """The rows, or the columns, that are unwritten from end to end, where these are all that is; else empty."""
    if differs.ndim not in (1, 2):
        return ""
    for axis, name in enumerate(("row", "column") if differs.ndim == 2 else ("element",)):
        hit = differs.any(axis=1 - axis) if differs.ndim == 2 else differs
        if differs.ndim == 1 or np.take(differs, np.flatnonzero(hit), axis=axis).all():
            if said := places_named(np.flatnonzero(hit), hit.size, name):
                return said.removeprefix("in ")
    return ""


def _of_programs(tiles: np.ndarray, launches: tuple[Mapping, ...]) -> str:
    """Programs by number where the grid is that of the tiles, else the tiles."""
    grid = tuple(launches[-1].get("grid", ()))[:2] if launches else ()
    name = "program" if grid == tiles.shape or grid == tiles.shape[::-1] != tiles.shape else "tile"
    hit = [
        tuple(at) if grid != tiles.shape[::-1] or tiles.shape[0] == tiles.shape[1] else tuple(at[::-1])
        for at in np.argwhere(tiles).tolist()
    ]
    told = ", ".join(map(str, hit[:MAX_LISTED_TILES])) + (
        f" and {len(hit) - MAX_LISTED_TILES} more" if len(hit) > MAX_LISTED_TILES else ""
    )
    if name == "program":
        return f"program{'s' if len(hit) > 1 else ''} {told} never wrote {'their tiles' if len(hit) > 1 else 'its tile'}"
    return f"tile{'s' if len(hit) > 1 else ''} {told} never written"
