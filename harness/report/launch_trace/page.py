"""The page of a launch that was traced: one file that loads nothing. A slider goes through what one program did, in its order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bitverdict.harness.emulator.faults import BadArgument
from bitverdict.harness.report.agent_lanes import event_text
from bitverdict.harness.report.launch_trace.error_lines import LineError
from bitverdict.harness.report.launch_trace.layouts import layout_of_tile
from bitverdict.harness.report.launch_trace.lines import TileLine, is_shown, launch_text, range_text, tile_lines
from bitverdict.harness.report.launch_trace.memory_facts import MemoryFacts
from bitverdict.harness.report.launch_trace.records import Tile, event_of, program_of
from bitverdict.harness.report.launch_trace.trace import Trace
from bitverdict.harness.report.source import listing_of
from bitverdict.harness.report.timeline import LEFT_MARGIN, step_of, timeline

FOLDER = Path(__file__).parent
ROWS, COLUMNS = 16, 32  # elements of a tile that are drawn
MOST_MOMENTS, MOST_EVENTS = 600, 400  # of a page; of its picture


def trace_page(
    trace: Trace, program: int = 0, facts: MemoryFacts | None = None, errors: Mapping[str, Sequence[LineError]] | None = None
) -> str:
    """The page of `program`, with `facts` and `errors` (by tensor) where they are given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([FOLDER, FOLDER.parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = tile_lines(trace, program)
    events = [asdict(event) for event in trace.timeline(program)]
    count = min(len(events), MOST_EVENTS)
    data = {"left": LEFT_MARGIN, "step": step_of(count), "shown": count, **_moments(trace, program)}
    texts = {"colours.css": FOLDER.parent, "page.css": FOLDER.parent, "trace.css": FOLDER, "trace.js": FOLDER}
    picture = timeline({"kernel": trace.kernel, "program": _place(trace, program), "events": events}, most_events=MOST_EVENTS)
    return environment.get_template("trace.html.j2").render(
        title=trace.kernel,
        launch=launch_text(trace),
        program=program,
        rows=[(row, range_text(row.tile)) for row in rows],
        sources=_sources(rows, events),
        picture=Markup(picture),
        undrawn=len(events) - count if picture else 0,
        untold=data.pop("untold"),
        data=Markup(json.dumps(data).replace("<", "\\u003c")),
        facts=facts,
        errors=errors or {},
        text={name: Markup((folder / name).read_text()) for name, folder in texts.items()},
    )


def _place(trace: Trace, program: int) -> tuple[int, int, int]:
    x, y, _ = trace.grid
    return program % x, program // x % y, program // (x * y)


def _sources(rows: Sequence[TileLine], events: Sequence[Mapping]) -> list[dict[str, Any]]:
    """The lines around those of tiles and events, file by file."""
    marks: dict[str, dict[int, str]] = {}
    for location in (*(row.location for row in rows), *(event["line"] for event in events)):
        file, _, line = location.rpartition(":")
        if line.isdigit():
            marks.setdefault(file, {})[int(line)] = ""
    return [{**listing, "path": file} for file, at in marks.items() if (listing := listing_of(Path(file), at)) is not None]


def _moments(trace: Trace, program: int) -> dict[str, Any]:
    """What the slider goes through, as JSON: tiles with a sample of their elements, events by their number in the picture."""
    layouts: dict[str, list[str]] = {}
    moments, event_number, untold = list[dict[str, Any]](), 0, 0
    for moment in (each for each in trace.moments if program_of(each) == program):
        event = event_of(moment)
        event_number += event is not None
        if isinstance(moment, Tile) and not is_shown(moment.assignment):
            continue
        if len(moments) >= MOST_MOMENTS:
            untold += 1
            continue
        if event is not None:
            moment_data = {"line": event.line, "agent": event.agent, "text": event_text(asdict(event)), "event": event_number}
        else:
            assert isinstance(moment, Tile)
            place = f"{moment.file}:{moment.line}"
            moment_data = {"line": place, "agent": moment.agent, "event": event_number, **_tile_data(moment)}
            key = moment.assignment.type_text
            if moment.words.size > 1 and key not in layouts:
                layouts[key] = list(_holders(moment))
        moments.append(moment_data)
    return {"moments": moments, "layouts": layouts, "untold": untold}


def _sample(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Indices of the elements that are drawn, and how many stand in a row: evenly apart, `ROWS` by `COLUMNS` at most."""
    columns = shape[-1]
    rows = int(np.prod(shape[:-1]))
    down, across = (-(-size // most) for size, most in ((rows, ROWS), (columns, COLUMNS)))
    flat = (np.arange(0, rows, down)[:, None] * columns + np.arange(0, columns, across)).reshape(-1)
    return [tuple(map(int, index)) for index in zip(*np.unravel_index(flat, shape), strict=True)]


def _tile_data(tile: Tile) -> dict[str, Any]:
    row, value = TileLine(tile, 1), tile.value
    tile_data = {"name": tile.name, "type": row.type_text, "range": range_text(tile), "layout": row.layout}
    if value.size < 2 or value.ndim == 0:
        return {**tile_data, "text": f"{tile.name} = {range_text(tile)}"}
    sample = _sample(value.shape)
    across = -(-value.shape[-1] // COLUMNS)
    numbers = [f"{value[index]:.6g}" if value.dtype.kind == "f" else str(int(value[index])) for index in sample]
    return {
        **tile_data,
        "text": f"{tile.name}: {row.type_text}, {range_text(tile)}",
        "columns": -(-value.shape[-1] // across),
        "numbers": numbers,
        "key": tile.assignment.type_text,
    }


def _holders(tile: Tile) -> Iterator[str]:
    """Of each element that is drawn its index, and the first register that holds it."""
    try:
        layout = layout_of_tile(tile)
    except BadArgument:
        layout = None
    for index in _sample(tile.words.shape):
        held = f": warp {layout.warps[index]}, lane {layout.lanes[index]}, register {layout.registers[index]}" if layout else ""
        yield f"{list(index)}{held}"


__all__ = ["trace_page"]
