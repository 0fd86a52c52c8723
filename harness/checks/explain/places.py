"""The hypotheses that right values lie at wrong places: tiles, rows or columns of the output exchanged, moved or turned, or one
factor for all. They need no reference: what is expected is compared with itself at other places."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bitverdict.harness.checks.explain.evidence import Evidence, tiles_hit

MOST_LINES = 512  # rows or columns whose origin is looked for
MOST_TILES = 64


def relocations(evidence: Evidence) -> Iterator[tuple[str, str, np.ndarray]]:
    """(kind, sentence, prediction) of each way that the expected values may lie elsewhere."""
    exact = evidence.exact
    if exact.ndim >= 1 and exact.size > 1:
        yield from _factor(evidence)
        yield from _element_changes(evidence)
    if exact.ndim == 2 and exact.size > 1:
        for axis, name in ((0, "row"), (1, "column")):
            yield from _lines(evidence, axis, name)
    elif exact.ndim == 1 and exact.size > 1:
        yield from _lines(evidence, 0, "element")


def transpositions(evidence: Evidence) -> Iterator[tuple[str, str, np.ndarray]]:
    """Rows and columns exchanged, and tiles of other programs."""
    if evidence.exact.ndim == 2 and evidence.exact.size > 1:
        yield from _transposed_values(evidence)
        yield from _tiles(evidence)


def _factor(evidence: Evidence) -> Iterator[tuple[str, str, np.ndarray]]:
    """All elements times one number, or one number added."""
    wrong = evidence.differs & np.isfinite(evidence.exact) & np.isfinite(evidence.observed_values) & (evidence.exact != 0)
    if wrong.sum() < 2:
        return
    ratio = float(np.median(evidence.observed_values[wrong] / evidence.exact[wrong]))
    if ratio < 0:
        yield "sign", "equals the result with the other sign", -evidence.exact
    elif ratio > 0:  # the number nearest to it: whether it is the factor, the prediction has to show
        number, said = min(_numbers(evidence), key=lambda each: abs(np.log(ratio / each[0])))
        yield "factor", f"equals the result times {said}", evidence.exact * number


def _element_changes(evidence: Evidence) -> Iterator[tuple[str, str, np.ndarray]]:
    """What an epilogue makes of each element: a number added, a negative one cut, its magnitude."""
    wrong = evidence.differs & np.isfinite(evidence.exact) & np.isfinite(evidence.observed_values)
    if wrong.any() and (added := float(np.rint(np.median(evidence.observed_values[wrong] - evidence.exact[wrong])))):
        yield "added", f"equals the result plus {added:g}", evidence.exact + added
    if (evidence.exact > 0).any() and (evidence.exact < 0).any():
        yield "cut", "negative results are zero", np.maximum(evidence.exact, 0.0)
        yield "cut", "positive results are zero", np.minimum(evidence.exact, 0.0)
    yield "magnitude", "equals the magnitude of the result", np.abs(evidence.exact)


def _numbers(evidence: Evidence) -> Iterator[tuple[float, str]]:
    """Numbers that a result may be off by as a factor, and what they are."""
    sizes = {int(size) for size in evidence.exact.shape} | ({evidence.k_block} if evidence.k_block else set())
    for size in sorted(sizes):
        if size > 1:
            yield float(size), f"{size} (the size of an axis)"
            yield 1.0 / size, f"1/{size} (the size of an axis)"
    yield float(np.log2(np.e)), "log2(e): powers of 2 and of e"
    yield float(np.log(2)), "log(2): powers of 2 and of e"
    for whole in (2, 3, 4):
        if whole not in sizes:
            yield float(whole), f"{whole}"
            yield 1.0 / whole, f"1/{whole}"


def _transposed_values(evidence: Evidence) -> Iterator[tuple[str, str, np.ndarray]]:
    """Rows and columns exchanged: of all, or inside each tile."""
    exact = evidence.exact
    rows, columns = exact.shape
    if rows == columns:
        yield "rows and columns exchanged", "rows and columns of the result exchanged", exact.T
    elif rows * columns == exact.size:
        yield (
            "rows and columns exchanged",
            "rows and columns of the result exchanged (written as its transpose)",
            exact.T.reshape(rows, columns),
        )
    if evidence.tile is None:
        return
    for size in dict.fromkeys((min(evidence.tile), 16, 32)):
        found = exact.copy()
        for top in range(0, rows - rows % size, size):
            for start in range(0, columns - columns % size, size):
                found[top : top + size, start : start + size] = exact[top : top + size, start : start + size].T
        if evidence.tile == (size, size):
            yield "rows and columns exchanged", "rows and columns exchanged", found


def _tiles(evidence: Evidence) -> Iterator[tuple[str, str, np.ndarray]]:
    """Wrong tiles that hold what another tile should."""
    if evidence.tile is None:
        return
    exact = evidence.exact
    hit = tiles_hit(evidence.differs, evidence.tile)
    if hit.size > MOST_TILES or hit.size < 2:
        return
    prediction, origins = exact.copy(), {}
    for tile_index in map(tuple, np.argwhere(hit).tolist()):
        here = _tile(tile_index, evidence.tile)
        for origin in np.ndindex(*hit.shape):
            there = _tile(origin, evidence.tile)
            shape = tuple(min(one, other) for one, other in zip(exact[here].shape, exact[there].shape, strict=True))
            part = tuple(slice(place.start, place.start + size) for place, size in zip(here, shape, strict=True))
            if shape == exact[here].shape and origin != tile_index:
                moved = exact.copy()
                moved[part] = exact[there][: shape[0], : shape[1]]
                if evidence.close_elements(moved)[part].all():
                    prediction[part], origins[tile_index] = moved[part], origin
                    break
    if origins and len(origins) == int(hit.sum()):
        yield "tile of another program", _origins_of_tiles(origins), prediction


def _tile(at: tuple, tile: tuple[int, int]) -> tuple[slice, slice]:
    return slice(at[0] * tile[0], (at[0] + 1) * tile[0]), slice(at[1] * tile[1], (at[1] + 1) * tile[1])


def _origins_of_tiles(origins: dict[tuple, tuple]) -> str:
    if all(origins.get(of) == at for at, of in origins.items()):
        pairs = sorted({tuple(sorted((at, of))) for at, of in origins.items()})
        return "tiles " + ", ".join(f"{one} and {other}" for one, other in pairs[:3]) + " exchanged"
    told = [f"tile {at} holds what tile {of} should" for at, of in list(origins.items())[:3]]
    return "; ".join(told) + (f"; {len(origins) - 3} more" if len(origins) > 3 else "")


def _lines(evidence: Evidence, axis: int, name: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """Rows (or columns) that hold what others should: all of them moved by one number, or by a rule inside each tile."""
    exact = evidence.exact
    length = exact.shape[axis]
    if length < 2 or length > MOST_LINES:
        return
    steps = {1, -1, *((evidence.tile[axis], -evidence.tile[axis]) if evidence.tile and axis < len(evidence.tile) else ())}
    for step in sorted(steps, key=abs):
        if abs(step) < length:
            said = f"each {name} holds what the {name} {abs(step)} {'after' if step > 0 else 'before'} it should"
            yield "moved", said, np.roll(exact, -step, axis)
            at = np.clip(np.arange(length) + step, 0, length - 1)
            yield "moved", said, np.take(exact, at, axis=axis)
    yield "moved", f"the {name}s are in reverse order", np.flip(exact, axis)
    for group in (2, 4, 8, 16, 32):
        if length % group == 0 and length > group:
            order = np.arange(length).reshape(group, -1).T.reshape(-1)
            yield "moved", f"the {name}s are interleaved in {group} groups", np.take(exact, order, axis=axis)
    if length % 2 == 0 and length > 2:
        yield "moved", f"neighbouring {name}s exchanged", np.take(exact, np.arange(length) ^ 1, axis=axis)
    yield from _origins_of_lines(evidence, axis, name)


def _origins_of_lines(evidence: Evidence, axis: int, name: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """Each wrong row looked for among the expected ones."""
    exact, observed_rows = (
        np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (evidence.exact, evidence.observed_values)
    )
    wrong = np.moveaxis(evidence.differs, axis, 0).reshape(exact.shape).any(axis=1)
    if not wrong.any() or exact.shape[1] < 2 or not np.isfinite(exact).all():
        return
    slack = np.moveaxis(evidence.slack(evidence.exact), axis, 0).reshape(exact.shape)
    origins: dict[int, int] = {}
    for row in np.flatnonzero(wrong).tolist():
        distance = (np.abs(exact - observed_rows[row]) <= 2 * slack + 1e-300).all(axis=1)
        found = np.flatnonzero(distance)
        if found.size != 1 or found[0] == row:
            return
        origins[row] = int(found[0])
    order = np.arange(len(exact))
    order[list(origins)] = list(origins.values())
    told = "; ".join(f"{name} {at} holds what {name} {of} should" for at, of in list(origins.items())[:3])
    if len(set(origins.values())) == 1 and len(origins) > 1:
        told = f"{len(origins)} {name}s hold what {name} {next(iter(origins.values()))} should"
    yield (
        "moved",
        told + (f"; {len(origins) - 3} more" if len(origins) > 3 and ";" in told else ""),
        np.take(evidence.exact, order, axis=axis),
    )
