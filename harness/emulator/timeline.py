"""What happened, in the order it happened: the lines a person follows from a finding back to its cause."""

from __future__ import annotations

from collections import deque

KEPT, SHOWN = 400, 40


class Timeline:
    """The last events of one program: who, what, which line of the kernel, and what came of it."""

    def __init__(self) -> None:
        self.events: deque[tuple[int, str, str, str, str]] = deque(maxlen=KEPT)  # step, agent, what, file:line, said

    def add(self, step: int, agent: str, what: str, location: str, said: str) -> None:
        self.events.append((step, agent, what, location, said))

    def lines(self, collides: str = "", other: str = "") -> list[str]:
        """One line an event, the last `SHOWN`; those at the two lines that collide are marked."""
        shown = list(self.events)[-SHOWN:]
        columns = (lambda e: str(e[0]), lambda e: e[1], lambda e: e[2], _place)
        wide = [max((len(column(event)) for event in shown), default=0) for column in columns]
        told = []
        for event in shown:
            step, agent, what, location, said = event
            mark = "=> " if location and location == collides else "-> " if location and location == other else "   "
            told.append(
                f"{mark}step {step:{wide[0]}d}  {agent:{wide[1]}s}  {what:{wide[2]}s}  {_place(event):{wide[3]}s}  {said}".rstrip()
            )
        return told


def _place(event: tuple[int, str, str, str, str]) -> str:
    return event[3].rsplit("/", 1)[-1]
