"""The hypotheses that a kernel takes an operand at another place: a neighbour's element, the other operand, rows and columns
exchanged, a scale of another block, the first one for all, or a mask's fill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from bitverdict.harness.checks.explain.evaluation import evaluate_reference, round_to_format
from bitverdict.harness.model.mathematics import Mathematics

Operands = Mapping[str, np.ndarray]
MOST_DIVISORS = 6
TILES = (16, 32, 64, 128, 256, 512, 1024)


def changed_operands(mathematics: Mathematics, k_block: int | None) -> Iterator[tuple[str, str, Operands]]:
    """(kind, sentence, operands) of each way to take one operand, the others as they are."""
    operands = mathematics.operands
    for name, values in operands.items():
        if not isinstance(values, np.ndarray) or not values.size:
            continue
        scale = name in mathematics.blocks
        for axis in range(values.ndim):
            for kind, sentence, replacement in _along(mathematics, name, values, axis, k_block):
                yield kind, sentence, {**operands, name: replacement}
        yield from (
            (kind, sentence, {**operands, name: replacement})
            for kind, sentence, replacement in _laid_out_otherwise(mathematics, name, values)
        )
        if values.ndim == 2 and values.shape[0] == values.shape[1] > 1:
            yield "transposed operand", f"equals the result of {name} with rows and columns exchanged", {**operands, name: values.T}
        for other_name, replacement in operands.items():
            if (
                other_name != name
                and isinstance(replacement, np.ndarray)
                and replacement.shape == values.shape
                and replacement.dtype == values.dtype
            ):
                what = "the scales of" if scale else ""
                yield (
                    "other operand",
                    f"takes {what} {other_name} for {what} {name}".replace("  ", " "),
                    {**operands, name: replacement},
                )
            elif (
                scale
                and other_name in mathematics.blocks
                and values.ndim == 2 == np.ndim(replacement)
                and values.shape[1] == replacement.shape[1]
            ):
                rows = (
                    np.resize(replacement, values.shape)
                    if replacement.shape[0] < values.shape[0]
                    else replacement[: values.shape[0]]
                )
                yield "other operand", f"takes the scales of {other_name} for those of {name}", {**operands, name: rows}
        if scale:
            yield "scale ignored", f"equals the result with {name} ignored (all ones)", {**operands, name: np.ones_like(values)}
            yield "scale twice", f"equals the result with {name} applied twice", {**operands, name: values * values}
        elif np.issubdtype(values.dtype, np.floating):
            yield "added", f"equals the result of {name} plus 1", {**operands, name: values + 1}
            yield "magnitude", f"equals the result of |{name}|", {**operands, name: np.abs(values)}
    yield from _scales(mathematics, k_block)
    pairs = [name for name, values in operands.items() if isinstance(values, np.ndarray)]
    for place, one in enumerate(pairs):
        for other_name in pairs[place + 1 :]:
            if operands[one].shape == operands[other_name].shape and operands[one].dtype == operands[other_name].dtype:
                exchanged = {**operands, one: operands[other_name], other_name: operands[one]}
                yield "other operand", f"equals the result with {one} and {other_name} exchanged", exchanged


def _laid_out_otherwise(mathematics: Mathematics, name: str, values: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
    """Two axes that follow each other in memory in the other order, a stride that is taken for 1, words of the other sign, and rows
    of a table from their end."""
    for axis, elements in _with_stride_of_one(values, mathematics.strides.get(name, ())):
        along = _axis_name(mathematics, name, axis) or ("its columns" if axis == values.ndim - 1 else f"axis {axis}")
        ignored = f"stride {mathematics.strides[name][axis]} of axis {axis} is ignored"
        yield "stride ignored", f"reads {name} as if {along} lay next to each other: {ignored}", elements
    for axis in range(values.ndim - 1):
        if min(values.shape[axis : axis + 2]) > 1:
            exchanged = list(values.shape)
            exchanged[axis], exchanged[axis + 1] = exchanged[axis + 1], exchanged[axis]
            said = f"reads {name} with axes {axis} and {axis + 1} exchanged in memory (its transpose)"
            yield "transposed operand", said, np.swapaxes(np.reshape(values, exchanged), axis, axis + 1)
    if (format := mathematics.formats.get(name, "")).startswith(("int", "uint")) and not format.endswith("64"):
        width = 1 << int(format.removeprefix("u").removeprefix("int"))
        signed = format.startswith("int")
        other = np.where(values < 0, values + width, values) if signed else np.where(values >= width // 2, values - width, values)
        if not np.array_equal(other, values):
            yield "sign of words", f"reads {name} as {'unsigned' if signed else 'signed'} integers", other
    if np.issubdtype(values.dtype, np.integer) and values.ndim == 2:
        yield from _from_their_end(mathematics, name, values)


def _with_stride_of_one(values: np.ndarray, strides: tuple[int, ...]) -> Iterator[tuple[int, np.ndarray]]:
    """Each axis, and what a kernel reads that takes its stride for 1, where an element of the operand lies at every such place."""
    places_by_axis = np.indices(values.shape).reshape(values.ndim, -1)
    places = sum((stride * at for stride, at in zip(strides, places_by_axis, strict=False)), np.zeros(values.size, np.int64))
    order = np.argsort(places)
    for axis, stride in enumerate(strides):
        wanted = places + (1 - stride) * places_by_axis[axis]
        found = order[np.minimum(np.searchsorted(places, wanted, sorter=order), places.size - 1)]
        if stride != 1 and values.shape[axis] > 1 and np.array_equal(places[found], wanted):
            yield axis, values.ravel()[found].reshape(values.shape)


def _from_their_end(mathematics: Mathematics, name: str, table: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
    """Each row of `table` in reverse, of as many numbers as a length of another operand needs, in pages of the size of an axis."""
    rows, row_length = table.shape
    sizes = {size for values in mathematics.operands.values() for size in np.shape(values)} | {1}
    for lengths_name, lengths in mathematics.operands.items():
        if np.shape(lengths) != (rows,) or not np.issubdtype(np.asarray(lengths).dtype, np.integer):
            continue
        for page in sorted(sizes):
            used = -(-lengths // page)
            if page and (used >= 0).all() and (used <= row_length).all():
                place = np.arange(row_length)
                at = np.where(place < used[:, None], used[:, None] - 1 - place, place)
                pages = f" in pages of {page}" if page > 1 else ""
                said = f"takes {name} in reverse, in each row from the end that {lengths_name}{pages} gives"
                yield "reversed operand", said, np.take_along_axis(table, at, axis=1)


def _scales(mathematics: Mathematics, k_block: int | None) -> Iterator[tuple[str, str, Operands]]:
    """Scales of another block for both factors, the last one as 1, and those of the first step for each step."""
    operands = mathematics.operands
    along = {name: (mathematics.axes[name].index(axis), block) for name, (axis, block) in mathematics.blocks.items()}
    scale_names = tuple(along)
    if len(scale_names) == 2:
        for step in (1, -1):
            pairs = (_shift_values(operands[name], step, along[name][0]) for name in scale_names)
            for shifted in zip(*pairs, strict=True):
                sentence = f"takes the scale of block j {'+' if step > 0 else '-'} 1 of {' and '.join(scale_names)} for that of j"
                yield "shifted operand", sentence, {**operands, **dict(zip(scale_names, shifted, strict=True))}
    for names in dict.fromkeys((*((name,) for name in scale_names), scale_names)):
        if names and all(operands[name].shape[along[name][0]] > 1 for name in names):  # else the scale is ignored
            ones = {name: _last_element_as_one(operands[name], along[name][0]) for name in names}
            sentence = f"takes the last scale of {' and '.join(names)} along {mathematics.blocks[names[0]][0]} as 1"
            yield "last scale", sentence, {**operands, **ones}
        if k_block and names:
            counts = {name: k_block // along[name][1] for name in names}
            if all(1 < count < operands[name].shape[along[name][0]] for name, count in counts.items()):
                first = {
                    name: np.take(operands[name], np.arange(operands[name].shape[along[name][0]]) % count, axis=along[name][0])
                    for name, count in counts.items()
                }
                sentence = f"takes the scales of the first step of {k_block} of {' and '.join(names)} for each step"
                yield "first block for all", sentence, {**operands, **first}


def _last_element_as_one(values: np.ndarray, axis: int) -> np.ndarray:
    found = np.moveaxis(values.copy(), axis, -1)
    found[..., -1:] = 1.0
    return np.moveaxis(found, -1, axis)


def _along(
    mathematics: Mathematics, name: str, values: np.ndarray, axis: int, k_block: int | None
) -> Iterator[tuple[str, str, np.ndarray]]:
    length = values.shape[axis]
    label = _axis_name(mathematics, name, axis)
    is_blocked = name in mathematics.blocks and mathematics.blocks[name][0] == label
    is_integer = np.issubdtype(values.dtype, np.integer)
    if length < 2:
        return
    template = (
        f"scale of block j {{}} of {name}"
        if is_blocked
        else f"{name} at {label} {{}}"
        if label
        else f"{name} at index {{}} of axis {axis}"
    )
    for step in (1, -1):
        signed = f"{'+' if step > 0 else '-'} 1"
        sentence = f"takes the {template.format(signed)} for that of j" if is_blocked else f"takes {template.format(signed)}"
        if label in mathematics.sum_axes and not is_blocked:
            sentence = f"multiplies {name} at {label} {signed} by what belongs to {label}: one of the two is one off"
        for shifted_values in _shift_values(values, step, axis):
            yield "shifted operand", sentence, shifted_values
    if k_block and not is_blocked and label in mathematics.sum_axes and length > k_block:
        for step in (k_block, -k_block):
            place = template.format(f"{'+' if step > 0 else '-'} {k_block}")
            sentence = f"takes {place}: one block of {label} {'on' if step > 0 else 'back'}"
            for shifted_values in _shift_values(values, step, axis):
                yield "block of another step", sentence, shifted_values
    first = np.take(values, [0], axis=axis)
    which = f"the first scale of {name} along {label}" if is_blocked else f"{name} at {label or f'axis {axis}'} = 0"
    if not (first == 1).all():  # else it is no other than an operand that is ignored
        yield "first for all", f"takes {which} for all", np.broadcast_to(first, values.shape)
    for block in [k_block] if k_block else TILES:
        if block is not None and length > block and not is_blocked:
            said = f"takes {name} at {label or f'axis {axis}'} = 0 to {block - 1} for each block of it"
            yield "first block for all", said, np.take(values, np.arange(length) % block, axis=axis)
    for divisor in [divisor for divisor in range(2, length) if length % divisor == 0][:MOST_DIVISORS]:
        for sign, at in (("//", np.arange(length) // divisor), ("%", np.arange(length) % divisor)):
            said = f"takes {name} at {label or 'index'} {sign} {divisor} along {label or f'axis {axis}'}"
            yield "index", said, np.take(values, at, axis=axis)
    yield "reversed operand", f"equals the result of {name} in reverse along {label or f'axis {axis}'}", np.flip(values, axis)
    if length % 2 == 0 and length > 2 and not is_integer:
        swapped = np.take(values, np.arange(length) ^ 1, axis=axis)
        yield "neighbours exchanged", f"takes neighbours of {name} along {label or f'axis {axis}'} in exchanged order", swapped
        halves = np.roll(values, length // 2, axis)
        yield (
            "halves exchanged",
            f"equals the result with the two halves of {name} along {label or f'axis {axis}'} exchanged",
            halves,
        )
    if is_integer:
        return


def _shift_values(values: np.ndarray, step: int, axis: int) -> Iterator[np.ndarray]:
    """`values` at index + `step`; past the end around, the last element again, or zero."""
    length = values.shape[axis]
    around = np.roll(values, -step, axis)
    yield around
    at = np.clip(np.arange(length) + step, 0, length - 1)
    yield np.take(values, at, axis=axis)
    outside = (np.arange(length) + step < 0) | (np.arange(length) + step >= length)
    shape = [1] * values.ndim
    shape[axis] = length
    yield np.where(outside.reshape(shape), 0, around)


def changed_indices(mathematics: Mathematics) -> Iterator[tuple[str, str, Operands]]:
    """Integer operands (row numbers) that are taken one more, one less, or modulo what they point into."""
    operands = mathematics.operands
    for name, values in operands.items():
        if not isinstance(values, np.ndarray) or not np.issubdtype(values.dtype, np.integer) or not values.size:
            continue
        for step in (1, -1, 8, -8, 16, -16):
            yield "index", f"takes {name} {'+' if step > 0 else '-'} {abs(step)}", {**operands, name: values + step}
        for table_name, table in operands.items():
            if table_name != name and isinstance(table, np.ndarray) and table.ndim > 1:
                rows = table.shape[0]
                below, past = (values < 0).any(), (values >= rows).any()
                if rows and past:
                    said = f"takes {name} past the end of {table_name} as the last row"
                    yield "index clamped", said, {**operands, name: np.minimum(values, rows - 1)}
                if rows and below:
                    yield (
                        "index clamped",
                        f"takes {name} below 0 as row 0 of {table_name}",
                        {**operands, name: np.maximum(values, 0)},
                    )
                if rows and below and past:
                    yield (
                        "index clamped",
                        f"takes {name} clamped to the rows of {table_name}",
                        {**operands, name: np.clip(values, 0, rows - 1)},
                    )
                if rows and (below or past):
                    yield "index wrapped", f"takes {name} modulo the rows of {table_name}", {**operands, name: values % rows}
        if values.ndim == 1 and values.size > 1:
            yield "index", f"takes {name} in ascending order", {**operands, name: np.sort(values)}
            yield "index", f"takes the place in {name} for the number there", {**operands, name: np.arange(values.size)}
            yield from _in_order(operands, name, values)


def _in_order(operands: Operands, name: str, values: np.ndarray) -> Iterator[tuple[str, str, Operands]]:
    """Rows beside the numbers `values` in the order that sorts these, as a kernel that gathers them by group may leave them."""
    order = np.argsort(values, kind="stable")
    if (order == np.arange(values.size)).all():
        return
    for table_name, table in operands.items():
        if table_name != name and isinstance(table, np.ndarray) and table.ndim and table.shape[0] == values.size:
            place = np.argsort(order)
            yield (
                "order",
                f"takes row p of {table_name} where the row at place p of the order that sorts {name} is expected",
                {**operands, table_name: table[place]},
            )
            yield "order", f"takes the rows of {table_name} in the order that sorts {name}", {**operands, table_name: table[order]}


def missing_elements(mathematics: Mathematics) -> Iterator[tuple[str, str, Operands]]:
    """The last element of an axis, or all from a multiple of a tile on, as a mask that ends too early fills it: zero or -inf."""
    operands = mathematics.operands
    for name, values in operands.items():
        if not isinstance(values, np.ndarray) or not values.ndim or not np.issubdtype(values.dtype, np.floating):
            continue
        length, axis = values.shape[-1], values.ndim - 1
        for start in sorted({length - 1, *(length - length % size for size in TILES if size < length and length % size)}):
            which = "its last element" if start == length - 1 else f"its elements from {start} on"
            for fill in (0.0, -np.inf):
                at = np.arange(length) >= start
                yield (
                    "element left out",
                    f"takes {name} without {which} along axis {axis}",
                    {**operands, name: np.where(at, fill, values)},
                )


def pad_operands(mathematics: Mathematics, output: str) -> Iterator[tuple[str, str, Callable[[], np.ndarray]]]:
    """Operands whose last axis goes on to the width of a tile, filled with zeros: what a mask without the right fill gives."""
    given = {name: values for name, values in mathematics.operands.items() if isinstance(values, np.ndarray) and values.ndim}
    for length in sorted({values.shape[-1] for values in given.values()}):
        width = 1 << (length - 1).bit_length()
        if width == length or length < 2:
            continue
        wider = {name: _wider(values, width) if values.shape[-1] == length else values for name, values in given.items()}

        def predict(wider: Operands = wider, length: int = length, width: int = width) -> np.ndarray:
            made = evaluate_reference(mathematics, {**mathematics.operands, **wider})[output]
            return made[..., :length] if made.ndim and made.shape[-1] == width else made

        yield "fill", f"equals the result of rows that zeros fill from {length} up to {width}: masked elements count", predict


def _wider(values: np.ndarray, width: int) -> np.ndarray:
    return np.concatenate([values, np.zeros((*values.shape[:-1], width - values.shape[-1]), values.dtype)], axis=-1)


def rounded_operands(mathematics: Mathematics, held: Mapping[str, str]) -> Iterator[tuple[str, str, Operands]]:
    """Operands that are rounded to a narrower format, or cut to it, before they are used. `held`: their formats."""
    operands = mathematics.operands
    floats = [
        name for name, values in operands.items() if isinstance(values, np.ndarray) and np.issubdtype(values.dtype, np.floating)
    ]
    floats = [name for name in floats if name not in mathematics.blocks]
    for target_format in ("bf16", "fp16", "tf32", "e4m3", "e5m2"):
        rounded_operands = {name: _narrow(operands[name], target_format) for name in floats}
        if floats and any(not np.array_equal(rounded_operands[name], operands[name], equal_nan=True) for name in floats):
            yield (
                "rounded operand",
                f"equals the result of {' and '.join(floats)} rounded to {target_format} first",
                {**operands, **rounded_operands},
            )
            for name in floats if len(floats) > 1 else ():
                yield (
                    "rounded operand",
                    f"equals the result of {name} rounded to {target_format} first",
                    {**operands, name: rounded_operands[name]},
                )
        if target_format in ("bf16", "tf32"):
            cut = {name: _cut(operands[name], 7 if target_format == "bf16" else 10) for name in floats}
            yield (
                "rounded operand",
                f"equals the result of {' and '.join(floats)} cut to {target_format} first",
                {**operands, **cut},
            )


def _narrow(values: np.ndarray, to: str) -> np.ndarray:
    return np.where(np.isfinite(values), round_to_format(np.where(np.isfinite(values), values, 0.0), to), values)


def _cut(values: np.ndarray, mantissa_bits: int) -> np.ndarray:
    """`values` with the fraction cut to `mantissa_bits`, toward zero."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    return np.where(
        np.isfinite(values), np.ldexp(np.trunc(mantissa * 2.0 ** (mantissa_bits + 1)), exponent - mantissa_bits - 1), values
    )


def _axis_name(mathematics: Mathematics, name: str, axis: int) -> str:
    names = mathematics.axes.get(name, ())
    return names[axis] if axis < len(names) else ""
