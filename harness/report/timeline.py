"""The ring-buffer timeline: partitions, stages of on-chip memory by time, what is in flight, landed, read, overwritten; barriers.

A stage is a range of bytes that an asynchronous operation writes, or reads. Time is the order of the events: a step of the program
at which nothing of them happened takes no room.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from bitverdict.harness.emulator.recorder import ADDS
from bitverdict.harness.report.agent_lanes import KEY, agent_lanes, event_text, mark
from bitverdict.harness.report.svg import element, picture, text, title_element

MOST_EVENTS, MOST_LANES = 110, 18  # of a picture
LEFT_MARGIN, LANE, TOP = 236.0, 24.0, 42.0
LEGEND_WIDTH = 700.0  # pixels of its rows, where the picture is narrower
BOX, DOT, TRIANGLE = "M-2 0h14v9h-14z", "M0.5 5a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0", "M0 0l8 5l-8 5z"
LEGEND = (
    ("load in flight", (BOX, "issued"), '<rect [^>]*"issued"'), ("landed, not waited for", (BOX, "landed"), '<rect [^>]*"landed"'),
    ("waited for", ("M4 -2v13", "known"), 'class="known"'), ("read", (DOT, "reads"), '<(circle|rect) [^>]*"reads"'),
    ("stored", (DOT, "store"), '<circle [^>]*"store"'), ("overwritten unread", ("M0 0l9 9m0 -9l-9 9", "over"), 'class="over"'),
    ("reused after the read", ("M0 0h9v9", "reused"), 'class="reused"'), ("phase, by number", (BOX, "phase1"), 'class="phase'),
    ("wait blocks", (TRIANGLE, "wait"), 'class="wait"'), ("wait passes", (TRIANGLE, "pass-mark"), 'class="pass-mark"'),
    *((label, shape, f'd="{shape[0]}" class="{shape[1]}"') for label, shape in KEY),
)  # fmt: skip
"""Labels of the marks, their shapes, and what shows that a picture has one."""
NARROW, WIDE_STEP, ROOM = 13.0, 30.0, 780.0  # pixels of one event, and of all where they are few


@dataclass
class Lane:
    """A range of bytes: what it holds is named by the lines that load it."""

    space: str
    low: int
    high: int
    lines: dict[str, None] = field(default_factory=dict)
    stage: int = 0
    stages: int = 1

    def touches(self, piece: Mapping[str, Any]) -> bool:
        return piece["space"] == self.space and piece["low"] < self.high and self.low < piece["high"]

    @property
    def name(self) -> str:
        line = next(iter(self.lines), "").rpartition(":")[2]
        stage = f"stage {self.stage}" if self.stages > 1 else "buffer"
        return f"{stage}{f' of line {line}' if line else ''}"

    @property
    def bytes(self) -> str:
        return f"{'tmem' if self.space.startswith('tensor') else 'smem'} {self.low}"


def timeline(timeline_data: Mapping[str, Any], fault: str = "", location: str = "", *, most_events: int = MOST_EVENTS) -> str:
    """The picture of the events of one program; empty where nothing asynchronous or no barrier is among them. `fault` is what ended
    it, at `location`: then the last events are drawn, else the first ones, `most_events` of them."""
    events = timeline_data.get("events") or []
    if not any(event["flight"] or event["barrier"] >= 0 for event in events):
        return ""
    shown_events = list(events[-most_events:] if fault else events[:most_events])
    lanes, barriers = (
        _lanes(events, shown_events),
        sorted({event["barrier"] for event in shown_events if event["barrier"] >= 0 and not event["flight"]}),
    )
    barriers = barriers[: max(MOST_LANES - len(lanes), 6)]
    step = step_of(len(shown_events))
    agent_parts, above = agent_lanes(shown_events, LEFT_MARGIN, TOP, step)
    top = TOP + above
    right_edge, bottom = LEFT_MARGIN + (len(shown_events) + 1) * step + 10, top + LANE * (len(lanes) + len(barriers)) + 8
    parts = [*_axis(shown_events, bottom, step), *agent_parts, *_stages(events, shown_events, lanes, top, right_edge, step)]
    parts += _barriers(events, shown_events, barriers, top + LANE * len(lanes) + 8, step)
    if fault:
        x = LEFT_MARGIN + len(shown_events) * step + step / 2
        at = location.rpartition("/")[2]
        parts.append(element("line", title_element(f"{fault} at {at}"), x1=x, x2=x, y1=TOP - 10, y2=bottom, class_="fault"))
        parts.append(text(x, TOP - 26, f"{fault}{f' at {at}' if at else ''}", "label fail", "end"))
    legend, end = _legend("".join(parts), bottom + 24, LEGEND_WIDTH)
    parts += legend
    place = timeline_data["program"]
    label = (
        f"{timeline_data.get('kernel', '')}, program {tuple(place)}: stages and barriers by time, "
        f"{len(shown_events)} of {len(events)} events"
    )
    return picture(max(right_edge, LEGEND_WIDTH), end + 10, label, parts)


def step_of(count: int) -> float:
    """Pixels of each of `count` events."""
    return min(max(ROOM / (count + 1), NARROW), WIDE_STEP)


def _lanes(events: Sequence[Mapping], shown: Sequence[Mapping]) -> list[Lane]:
    """The stages that the events of the picture concern. What is written in flight makes one, then what is read in flight."""
    lanes_by_key: dict[tuple[str, int, int], Lane] = {}
    here = {(p["space"], p["low"], p["high"]) for event in shown for p in (*event["reads"], *event["writes"])}
    for side in ("writes", "reads"):
        for event in events:
            for piece in event[side] if event["flight"] else ():
                key = piece["space"], piece["low"], piece["high"]
                if key not in here or (side == "reads" and any(lane.touches(piece) for lane in lanes_by_key.values())):
                    continue
                lane = lanes_by_key.setdefault(key, Lane(*key))
                if side == "writes":
                    lane.lines.setdefault(event["line"])
    groups: dict[tuple, list[Lane]] = {}
    for lane in sorted(lanes_by_key.values(), key=lambda each: (each.space, each.low)):
        groups.setdefault((lane.space, lane.high - lane.low, next(iter(lane.lines), "")), []).append(lane)
    for group in groups.values():
        for number, lane in enumerate(group):
            lane.stage, lane.stages = number, len(group)
    return [lane for group in groups.values() for lane in group][:MOST_LANES]


def _axis(shown: Sequence[Mapping], bottom: float, step: float) -> list[str]:
    parts = [text(LEFT_MARGIN - 8, TOP - 8, "step, not to scale", "label quiet", "end")]
    numbers = [event["step"] for event in shown]
    for at in range(0, len(shown), 8 if step < 20 else 4):
        x = LEFT_MARGIN + at * step + step / 2
        parts.append(element("line", x1=x, x2=x, y1=TOP - 4, y2=bottom, class_="grid"))
        parts.append(text(x, TOP - 8, str(numbers[at]) if numbers.index(numbers[at]) == at else "", "label quiet", "middle"))
    return parts


def _stages(
    events: Sequence[Mapping], shown_events: Sequence[Mapping], lanes: Sequence[Lane], top: float, right_edge: float, step: float
) -> list[str]:
    parts = []
    for number, lane in enumerate(lanes):
        y = top + number * LANE
        parts.append(text(LEFT_MARGIN - 86, y + 15, lane.name, "label", "end"))
        parts.append(text(LEFT_MARGIN - 8, y + 15, lane.bytes, "label quiet", "end"))
        parts.append(element("line", x1=LEFT_MARGIN, x2=right_edge, y1=y + LANE - 1, y2=y + LANE - 1, class_="grid"))
        parts += _lane(shown_events, lane, y, step, overwritten(events, lane))
    return parts


def overwritten(events: Sequence[Mapping], lane: Lane) -> dict[int, bool]:
    """By the id of each event that issues a load over bytes of `lane` that held something: whether some of them were unread.

    Bytes are read by an access, or by an operation in flight once it has landed: until then it may read them still.
    """
    unread: list[tuple[int, int]] = []
    read: list[tuple[int, int]] = []
    reading: dict[int, list[tuple[int, int]]] = {}  # by flight
    unread_by_event: dict[int, bool] = {}
    for event in events:
        writes, reads = (
            [(each["low"], each["high"]) for each in event[side] if lane.touches(each)] for side in ("writes", "reads")
        )
        if event["kind"] == "fault":
            continue
        if event["flight"] and event["kind"] == "issued":
            if writes and event["note"] != ADDS and any(_meets(held, writes) for held in (unread, read, *reading.values())):
                unread_by_event[id(event)] = any(_meets(held, writes) for held in (unread, *reading.values()))
            unread, read = _subtract_ranges(unread, writes), _subtract_ranges(read, writes)
            if reads:
                reading[event["flight"]] = reads
        elif not event["flight"] or event["kind"] == "landed":
            reading.pop(event["flight"], None)
            read = _subtract_ranges(read, writes) + [part for part in reads if _meets(unread, [part])]
            unread = _subtract_ranges(_subtract_ranges(unread, reads), writes) + writes
    return unread_by_event


def _meets(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    return any(low < end and begin < high for low, high in some for begin, end in others)


def _subtract_ranges(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges `some` less the ranges `others`."""
    left = list(some)
    for low, high in others:
        left = [part for a, b in left for part in ((a, min(b, low)), (max(a, high), b)) if part[0] < part[1]]
    return left


def _lane(shown_events: Sequence[Mapping], lane: Lane, y: float, step: float, overwrites: Mapping[int, bool]) -> list[str]:
    """What happens to one stage: bars from issue to landing and on to the wait, marks of ordinary accesses and overwriting."""
    parts, marks = [], []
    open_: dict[int, dict[str, int]] = {}
    for index, event in enumerate(shown_events):
        writes, reads = (any(lane.touches(piece) for piece in event[side]) for side in ("writes", "reads"))
        if not writes and not reads:
            continue
        x = LEFT_MARGIN + index * step
        if event["flight"]:
            flight = open_.setdefault(event["flight"], {"from": index if event["kind"] == "issued" else 0, "writes": int(writes)})
            if (early := overwrites.get(id(event))) is not None:
                said = title_element(
                    f"{'overwritten before it was read' if early else 'reused after it was read'}: {event_text(event)}"
                )
                drawn = f"M{x + 1:.1f} {y + 3:.1f}l9 9m0 -9l-9 9" if early else f"M{x + 1:.1f} {y + 3:.1f}h9v9"
                marks.append(element("path", said, d=drawn, class_="over" if early else "reused"))
            if event["kind"] not in flight:
                flight[event["kind"]] = index
        else:
            kind = "store" if writes else "reads"
            if event["kind"] == "fault":
                cross = f"M{x + 1:.1f} {y + 3:.1f}l12 12m0 -12l-12 12"
                marks.append(element("path", title_element(event_text(event)), d=cross, class_="over"))
                continue
            marks.append(element("circle", title_element(event_text(event)), cx=x + step / 2, cy=y + 15, r=3.5, class_=kind))
    for flight in open_.values():
        start, end = flight["from"], len(shown_events)
        landing_index, known_index = flight.get("landed", end), flight.get("known", end)
        event = shown_events[
            flight.get("issued", landing_index if landing_index < end else known_index if known_index < end else 0)
        ]
        top, tall = (y + 3, 9) if flight["writes"] else (y + 13, 7)
        until = min(landing_index, known_index)
        if until > start:
            box = {"x": LEFT_MARGIN + start * step + 2, "y": top, "width": (until - start) * step, "height": tall}
            parts.append(element("rect", title_element(f"in flight: {event_text(event)}"), class_="issued", **box))
        if landing_index < end and known_index >= landing_index:
            box = {
                "x": LEFT_MARGIN + landing_index * step + 2,
                "y": top,
                "width": max((known_index - landing_index) * step, 5.0),
                "height": tall,
            }
            kind = "landed" if flight["writes"] else "reads"
            parts.append(element("rect", title_element(f"landed: {event_text(event)}"), class_=kind, **box))
        if known_index < end:
            x = LEFT_MARGIN + known_index * step + 3
            told = title_element(f"known: {event_text(shown_events[known_index])}")
            parts.append(element("line", told, x1=x, x2=x, y1=top - 2, y2=top + tall + 2, class_="known"))
    return parts + marks


def _barriers(
    events: Sequence[Mapping], shown_events: Sequence[Mapping], barriers: Sequence[int], top: float, step: float
) -> list[str]:
    """A row for each mbarrier: its phases as bands, its waits as marks."""
    parts = []
    first = id(shown_events[0])
    before = list(takewhile(lambda event: id(event) != first, events))
    for number, byte in enumerate(barriers):
        y = top + number * LANE
        parts.append(text(LEFT_MARGIN - 8, y + 15, f"mbarrier at {byte}", "label", "end"))
        earlier = [event["phase"] for event in before if event["barrier"] == byte and event["kind"] in ("barrier", "phase")]
        phase = earlier[-1] if earlier else -1
        start = 0
        marks = []
        for index, event in enumerate([*shown_events, None]):
            if event is not None and (event["barrier"] != byte or event["flight"]):
                continue
            if event is None or event["kind"] in ("barrier", "phase"):
                if phase >= 0 and index > start:
                    box = {"x": LEFT_MARGIN + start * step, "y": y + 4, "width": (index - start) * step, "height": LANE - 8}
                    parts.append(element("rect", title_element(f"phase {phase} is open"), class_=f"phase{phase % 2}", **box))
                    parts.append(text(LEFT_MARGIN + start * step + 4, y + 15, str(phase)))
                if event is not None:
                    phase, start = event["phase"], index
            elif event["kind"] in ("waits", "passes"):
                x = LEFT_MARGIN + index * step + 3
                kind = "wait" if event["kind"] == "waits" else "pass-mark"
                marks.append(element("path", title_element(event_text(event)), d=f"M{x:.1f} {y + 7:.1f}l8 5l-8 5z", class_=kind))
        parts += marks
    return parts


def _legend(drawn: str, y: float, width: float) -> tuple[list[str], float]:
    """What each mark in the picture `drawn` means, in rows of at most `width`; and where the last row ends."""
    x, parts = 10.0, []
    for label, shape, pattern in LEGEND:
        if not re.search(pattern, drawn):
            continue
        needed = 19 + 6.8 * len(label) + 12
        if x + needed > width and x > 10.0:
            x, y = 10.0, y + 20
        parts += [mark(shape, x + 2, y - 9, label), text(x + 19, y, label, "label quiet")]
        x += needed
    return parts, y
