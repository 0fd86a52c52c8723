"""Pictures of one output: which words are wrong and which program stored them, and how large their errors are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitverdict.harness.report.svg import element, picture, text, title_element

COLOURS = 8
WIDTH, TALLEST = 660.0, 420.0  # pixels of a map
LEFT_MARGIN, TOP = 56.0, 26.0
MAX_NAMED_PROGRAMS = 12  # programs of a legend


def tile_map(output: Mapping[str, Any], writers: Sequence[Sequence]) -> str:
    """Each cell is filled from below by its share of wrong words, in the colour of the program that stored the first of them."""
    cell_map, (rows, columns) = output["map"], output["map"]["shape"]
    height, width = cell_map["cell"]
    row_cells, across = len(cell_map["cells"]), len(cell_map["cells"][0])
    side_x = min(max((WIDTH - LEFT_MARGIN) / across, 4.0), 44.0)
    side_y = min(max(min(side_x * height / width, TALLEST / row_cells), 6.0), 44.0)
    parts, wrong_by_writer = [], dict[int, int]()
    for i, row in enumerate(cell_map["cells"]):
        for j, (count, wrong_words, writer) in enumerate(row):
            x, y = LEFT_MARGIN + j * side_x, TOP + i * side_y
            last_row, last_column = min((i + 1) * height, rows) - 1, min((j + 1) * width, columns) - 1
            where = f"rows {i * height} to {last_row}, columns {j * width} to {last_column}"
            tooltip = f"{where}: {wrong_words} of {count} words wrong, stored by {program(writer, writers)}"
            parts.append(element("rect", title_element(tooltip), x=x, y=y, width=side_x - 1, height=side_y - 1, class_="right"))
            if wrong_words:
                wrong_by_writer[writer] = wrong_by_writer.get(writer, 0) + wrong_words
                tall = max((side_y - 1) * wrong_words / count, 2.0)
                at = {"x": x, "y": y + side_y - 1 - tall, "width": side_x - 1, "height": tall}
                parts.append(element("rect", title_element(tooltip), class_=colour(writer), **at))
    bottom, right_edge = TOP + row_cells * side_y, LEFT_MARGIN + across * side_x
    parts += [
        text(LEFT_MARGIN, TOP - 8, "column 0", "label quiet"),
        text(right_edge, TOP - 8, str(columns - 1), "label quiet", "end"),
    ]
    parts += [text(LEFT_MARGIN - 6, TOP + 10, "row 0", "label quiet", "end")]
    if rows > 1:
        parts.append(text(LEFT_MARGIN - 6, bottom - 3, str(rows - 1), "label quiet", "end"))
    y = bottom + 20
    for writer, wrong_words in sorted(wrong_by_writer.items(), key=lambda each: -each[1])[:MAX_NAMED_PROGRAMS]:
        parts.append(element("rect", x=LEFT_MARGIN, y=y - 9, width=11, height=11, class_=colour(writer)))
        parts.append(text(LEFT_MARGIN + 18, y, f"{wrong_words:,} wrong words stored by {program(writer, writers)}"))
        y += 17
    if len(wrong_by_writer) > MAX_NAMED_PROGRAMS:
        parts.append(text(LEFT_MARGIN + 18, y, f"and by {len(wrong_by_writer) - MAX_NAMED_PROGRAMS} more programs", "label quiet"))
        y += 17
    label = f"{output['name']}: {output['wrong']} of {output['of']} words wrong, by the program that stored them"
    return picture(max(right_edge + 8, 420), y + 4, label, parts)


def colour(writer: int) -> str:
    return "wrong" if not writer else f"p{(writer - 1) % COLOURS}"


def program(writer: int, writers: Sequence[Sequence]) -> str:
    """The name of a writer by its number."""
    if not writer:
        return "no kernel"
    launched, place = writers[writer - 1]
    while len(place) > 1 and place[-1] == 0:
        place = place[:-1]
    said = f"program {place[0] if len(place) == 1 else tuple(place)}"
    return said + (f" of launch {launched}" if any(each[0] != writers[0][0] for each in writers) else "")


def histogram(output: Mapping[str, Any]) -> str:
    """Words by their error, in powers of two of the bound, or of an ulp. The scale of the counts is logarithmic."""
    from math import log2

    error_data = output["errors"]
    unit = "the bound" if error_data["unit"] == "bound" else "ulp"
    last_row = error_data["first"] + len(error_data["counts"]) - 1
    names = [
        "0",
        *(_power(error_data["first"] + index, error_data["unit"]) for index in range(len(error_data["counts"]))),
        "NaN, inf",
    ]
    names[-2] = f">{_power(last_row - 1, error_data['unit'])}"
    bars = [error_data["zero"], *error_data["counts"], error_data["unplaced"]]
    if error_data["unit"] == "ulp":  # no distance lies below one
        kept = [0, *(index for index in range(1, len(bars) - 1) if error_data["first"] + index - 1 >= 0), len(bars) - 1]
        bars, names = [bars[index] for index in kept], [names[index] for index in kept]
    largest = max((log2(1 + sum(each)) for each in bars), default=0.0) or 1.0
    left, top, tall, step = 16.0, 24.0, 130.0, 46.0
    parts = []
    for index, (passing_words, wrong_words) in enumerate(bars):
        x, total = left + index * step, passing_words + wrong_words
        if total:
            height = tall * log2(1 + total) / largest
            part = height * wrong_words / total
            tooltip = f"{names[index]}: {passing_words:,} words pass, {wrong_words:,} wrong"
            box = {"x": x + 3, "width": step - 6}
            if passing_words:
                parts.append(
                    element(
                        "rect", title_element(tooltip), y=top + tall - height + part, height=height - part, class_="passes", **box
                    )
                )
            if wrong_words:
                parts.append(
                    element("rect", title_element(tooltip), y=top + tall - height, height=max(part, 2.0), class_="wrong", **box)
                )
            parts.append(text(x + step / 2, top + tall - height - 4, _short_count(total), "label", "middle"))
        parts.append(text(x + step / 2, top + tall + 15, names[index], "label quiet", "middle"))
    right = left + len(bars) * step
    parts.append(element("line", x1=left, x2=right, y1=top + tall, y2=top + tall, class_="edge"))
    if error_data["unit"] == "bound":
        x = left + (1 - error_data["first"] + 1) * step
        parts.append(element("line", x1=x, x2=x, y1=top - 14, y2=top + tall, class_="bound"))
        parts.append(text(x + 5, top - 6, "the bound", "label"))
    parts.append(
        text(
            left,
            top + tall + 34,
            f"error, up to this many times {unit}" if unit != "ulp" else "distance, up to so many ulp",
            "label quiet",
        )
    )
    parts.append(element("rect", x=left + 290, y=top + tall + 25, width=11, height=11, class_="passes"))
    parts.append(text(left + 306, top + tall + 34, "pass"))
    parts.append(element("rect", x=left + 350, y=top + tall + 25, width=11, height=11, class_="wrong"))
    parts.append(text(left + 366, top + tall + 34, "wrong"))
    return picture(max(right + 12, 440), top + tall + 44, f"{output['name']}: errors against {unit}", parts)


def _power(exponent: int, unit: str) -> str:
    if 0 <= exponent <= 13:
        return str(2**exponent)
    return f"1/{2**-exponent}" if exponent < 0 else f"2^{exponent}"


def _short_count(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:.3g}k" if count < 1_000_000 else f"{count / 1e6:.3g}M"
