"""Pictures of one output: which words are wrong and which program stored them, and how large their errors are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bitverdict.harness.model.log_lines import count_text
from bitverdict.harness.report.svg import element, picture, text, title_element

COLOURS = 8
WIDTH, TALLEST = 660.0, 420.0  # pixels of a map
LEFT_MARGIN, TOP = 56.0, 26.0


def tile_map(output: Mapping[str, Any], writers: Sequence[Sequence]) -> str:
    """Each cell is filled from below by its share of wrong words, in the colour of the program that stored the first of them."""
    grid, parts, wrong_by_writer = _Grid(output["map"]), [], dict[int, int]()
    for box, where, (count, wrong_words, writer, *_) in grid.cells():
        tooltip = title_element(
            f"{where}: {wrong_words} of {count_text(count, 'word')} wrong, stored by {program(writer, writers)}"
        )
        parts.append(element("rect", tooltip, class_="right", **box))
        if wrong_words:
            wrong_by_writer[writer] = wrong_by_writer.get(writer, 0) + wrong_words
            tall = max(box["height"] * wrong_words / count, 2.0)
            parts.append(
                element("rect", tooltip, class_=colour(writer), **box | {"y": box["y"] + box["height"] - tall, "height": tall})
            )
    parts += grid.labels()
    y = grid.bottom + 20
    by_colour: dict[str, list[int]] = {}
    for writer in sorted(wrong_by_writer, key=lambda each: -wrong_by_writer[each]):
        by_colour.setdefault(colour(writer), []).append(writer)
    for css_class, some in by_colour.items():
        count = count_text(sum(wrong_by_writer[writer] for writer in some), "wrong word")
        names = ", ".join(program(writer, writers) for writer in some[:3]) + (f" and {len(some) - 3} more" if some[3:] else "")
        parts.append(element("rect", x=LEFT_MARGIN, y=y - 9, width=11, height=11, class_=css_class))
        parts.append(text(LEFT_MARGIN + 18, y, f"{count} stored by {names}"))
        y += 17
    label = f"{output['name']}: {output['wrong']} of {count_text(output['of'], 'word')} wrong, by the program that stored them"
    return picture(max(grid.right + 8, 420), y + 4, label, parts)


def error_map(output: Mapping[str, Any]) -> str:
    """Each cell is the darker the larger its largest error is, by powers of two; empty where no error has a size."""
    from math import log2

    grid, unit = _Grid(output["map"]), "times the bound" if (output["errors"] or {}).get("unit") == "bound" else "ulp"
    cells = [(box, where, cell[3] if len(cell) > 3 else 0.0) for box, where, cell in grid.cells()]
    sizes = [log2(size) for _, _, size in cells if size > 0]
    if not sizes or not output["errors"]:
        return ""
    low, high = min(sizes), max(sizes)
    shade = lambda size: 1.0 if size < 0 or low == high else 0.15 + 0.85 * (log2(size) - low) / (high - low)
    parts = []
    for box, where, size in cells:
        tooltip = title_element(f"{where}: {'NaN or infinite' if size < 0 else f'error up to {size:.3g} {unit}'}")
        parts.append(element("rect", tooltip, class_="right", **box))
        if size:
            kind = "unplaced" if size < 0 else "wrong"
            parts.append(element("rect", tooltip, class_=kind, fill_opacity=f"{shade(size):.2f}", **box))
    parts += grid.labels()
    y = grid.bottom + 20
    for step in range(5):
        at = {"x": LEFT_MARGIN + 22 * step, "y": y - 9, "width": 21, "height": 11}
        parts.append(element("rect", class_="wrong", fill_opacity=f"{0.15 + 0.85 * step / 4:.2f}", **at))
    parts.append(text(LEFT_MARGIN + 118, y, f"{2**low:.3g} to {2**high:.3g} {unit}"))
    if any(size < 0 for _, _, size in cells):
        y += 17
        parts.append(element("rect", x=LEFT_MARGIN, y=y - 9, width=21, height=11, class_="unplaced"))
        parts.append(text(LEFT_MARGIN + 28, y, "NaN or infinite"))
    return picture(max(grid.right + 8, 420), y + 8, f"{output['name']}: the largest error of each cell, {unit}", parts)


class _Grid:
    """Where the cells of a map are drawn."""

    def __init__(self, cell_map: Mapping) -> None:
        self.map, (self.rows, self.columns) = cell_map, cell_map["shape"]
        self.tall, self.wide = cell_map["cell"]
        down, across = len(cell_map["cells"]), len(cell_map["cells"][0])
        self.side_x = min(max((WIDTH - LEFT_MARGIN) / across, 4.0), 44.0)
        self.side_y = min(max(min(self.side_x * self.tall / self.wide, TALLEST / down), 6.0), 44.0)
        self.bottom, self.right = TOP + down * self.side_y, LEFT_MARGIN + across * self.side_x

    def cells(self) -> Iterator[tuple[dict[str, float], str, Sequence]]:
        """The box of each cell, which elements it has, and what the map says of it."""
        for i, row in enumerate(self.map["cells"]):
            for j, cell in enumerate(row):
                last_row, last_column = min((i + 1) * self.tall, self.rows) - 1, min((j + 1) * self.wide, self.columns) - 1
                where = f"rows {i * self.tall} to {last_row}, columns {j * self.wide} to {last_column}"
                box = {"x": LEFT_MARGIN + j * self.side_x, "y": TOP + i * self.side_y}
                yield box | {"width": self.side_x - 1, "height": self.side_y - 1}, where, cell

    def labels(self) -> list[str]:
        """Its first and last column and row."""
        last_column = (
            [text(self.right, TOP - 8, str(self.columns - 1), "label quiet", "end")] if self.right > LEFT_MARGIN + 80 else []
        )
        last_row = [text(LEFT_MARGIN - 6, self.bottom - 3, str(self.rows - 1), "label quiet", "end")] if self.rows > 1 else []
        first = [
            text(LEFT_MARGIN, TOP - 8, "column 0", "label quiet"),
            text(LEFT_MARGIN - 6, TOP + 10, "row 0", "label quiet", "end"),
        ]
        return [*first, *last_column, *last_row]


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
    bound_bar = 1 - error_data["first"] if error_data["unit"] == "bound" else 0  # the last that is inside
    kept = [index for index, each in enumerate(bars) if sum(each) or (bound_bar and index in (bound_bar, bound_bar + 1))]
    first_bar, last_bar = min(kept, default=0), max(kept, default=0)  # a narrow window shows these
    bars, names = bars[first_bar : last_bar + 1], names[first_bar : last_bar + 1]
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
        x = left + (bound_bar + 1 - first_bar) * step
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
