"""What happened, in the order it happened: the lines a person follows from a finding back to its cause."""

from __future__ import annotations

from collections import deque

MOST_EVENTS, MOST_LINES = 400, 40


class Timeline:
    """The last events of one program: who, what, which line of the kernel, and what came of it."""

    def __init__(self) -> None:
        self.events: deque[tuple[int, str, str, str, str]] = deque(maxlen=MOST_EVENTS)  # step, agent, what, file:line, said

    def add(self, step: int, agent: str, what: str, location: str, said: str) -> None:
        self.events.append((step, agent, what, location, said))

    def lines(self, collides: str = "", other_location: str = "") -> list[str]:
        """One line an event, the last `MOST_LINES`; those at the two lines that collide are marked."""
        shown = list(self.events)[-MOST_LINES:]
        columns = (lambda e: str(e[0]), lambda e: e[1], lambda e: e[2], _place)
        widths = [max((len(column(event)) for event in shown), default=0) for column in columns]
        report_lines = []
        for event in shown:
            step, agent, what, location, said = event
            mark = "=> " if location and location == collides else "-> " if location and location == other_location else "   "
            report_lines.append(
                f"{mark}step {step:{widths[0]}d}  {agent:{widths[1]}s}  {what:{widths[2]}s}  "
                f"{_place(event):{widths[3]}s}  {said}".rstrip()
            )
        return report_lines


def _place(event: tuple[int, str, str, str, str]) -> str:
    return event[3].rsplit("/", 1)[-1]
