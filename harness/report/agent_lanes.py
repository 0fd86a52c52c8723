"""Swim lanes: what each partition of a program, and the hardware, does by time. Loads, stores and products as they are issued,
waits from begin to end, accesses to memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bitverdict.harness.report.svg import element, text, title_element

LANE = 24.0
HARDWARE = "the hardware"
_PRODUCTS = ("wgmma", "tcgen05.mma")
ISSUED_SHAPE = ("M0 0h10v10h-10z", "landed")
SHAPES = {
    "product": ("M5 -1l6 6l-6 6l-6 -6z", "p3"),
    "tcgen05.commit": ("M0 5l5 -5l5 5l-5 5z", "issued"),
    "landed": ("M1 3h8v5h-8z", "reads"),
    "known": ("M4 0h2v11h-2z", "label"),
    "passes": ("M1 0l8 5l-8 5z", "pass-mark"),
    "load": ("M5 1l4 8h-8z", "reads"),
    "read": ("M5 2l3 3l-3 3l-3 -3z", "reads"),
    "store": ("M5 9l4 -8h-8z", "store"),
    "written": ("M5 2l3 3l-3 3l-3 -3z", "store"),
    "atomic": ("M1 1h8v8h-8z", "store"),
    "fault": ("M0 0l10 10m0 -10l-10 10", "over"),
}
"""What is drawn of an event by its kind, or by the kind of its operation: a path in 10 by 10 pixels, and its class."""
KEY = (
    ("issued", ISSUED_SHAPE), ("mma issued", SHAPES["product"]), ("mma committed", SHAPES["tcgen05.commit"]),
    ("landed", SHAPES["landed"]), ("global load", SHAPES["load"]),
    ("global store", SHAPES["store"]), ("on-chip read", SHAPES["read"]), ("on-chip write", SHAPES["written"]),
)  # fmt: skip


def agents_of(events: Sequence[Mapping]) -> list[str]:
    """The partitions in the order in which they come, the hardware last."""
    names = dict.fromkeys(event["agent"] for event in events)
    return [*(name for name in names if name != HARDWARE), *(name for name in names if name == HARDWARE)]


def agent_lanes(events: Sequence[Mapping], left_margin: float, top: float, step: float) -> tuple[list[str], float]:
    """A row for each partition, and their height: `step` pixels for each of `events`."""
    parts: list[str] = []
    for row, agent in enumerate(agents_of(events)):
        y = top + row * LANE
        parts.append(text(left_margin - 8, y + 15, agent, "label", "end"))
        right = left_margin + len(events) * step
        parts.append(element("line", x1=left_margin, x2=right, y1=y + LANE - 1, y2=y + LANE - 1, class_="grid"))
        begin: int | None = None
        for index, event in enumerate([*events, None]):
            if event is not None and event["agent"] != agent:
                continue
            if event is None or event["kind"] == "passes":
                if begin is not None:
                    until = "" if event is None else f" to step {event['step']}"
                    sentence = f"waits from step {events[begin]['step']}{until}, at {events[begin]['line'].rpartition('/')[2]}"
                    x, width = left_margin + begin * step + 2, max((index - begin) * step - 2, 3.0)
                    parts.append(element("rect", title_element(sentence), x=x, y=y + 5, width=width, height=12, class_="wait"))
                begin = None
            elif event["kind"] == "waits":
                begin = index
                continue
            if event is not None and (shape := shape_of(event)) is not None:
                parts.append(mark(shape, left_margin + index * step + max(step - 10, 0) / 2, y + 6, event_text(event)))
    return parts, LANE * len(agents_of(events)) + (8 if events else 0)


def shape_of(event: Mapping) -> tuple[str, str] | None:
    if event["kind"] != "issued":
        return SHAPES.get(event["kind"])
    name = event["operation"]
    return SHAPES.get("product" if name.startswith(_PRODUCTS) else name, ISSUED_SHAPE)


def mark(shape: tuple[str, str], x: float, y: float, told: str) -> str:
    path, class_ = shape
    return element("path", title_element(told), d=path, class_=class_, transform=f"translate({x:.1f} {y:.1f})")


def event_text(event: Mapping) -> str:
    """One event in a sentence."""
    more = f", {event['note']}" if event["note"] else ""
    what = event["operation"] if event["kind"] in ("load", "store", "atomic") else f"{event['operation']} {event['kind']}"
    return f"step {event['step']}, {event['agent']}: {what}{more}, at {event['line'].rpartition('/')[2]}"
