"""Which side of an open choice a recording settles: its rows whose words differ between the sides, and whose words came.

The choices are those of `reference.tensor_core.sides`: how the blocks of sm_80 follow each other, how sm_120 runs fp8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitverdict.reference.tensor_core import elements, instruction
from bitverdict.reference.tensor_core.sides import sides

Part = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Answer:
    """Of one instruction: the rows [found] whose words differ between sides, and for each side how many of them are its words."""

    ptx: str
    rows: np.ndarray
    agree: dict[str, int]

    @property
    def settled_sides(self) -> tuple[str, ...]:
        """The sides that have every word that tells them apart: one, where the question is settled; none, where all are wrong."""
        return tuple(side for side, count in self.agree.items() if count == len(self.rows)) if len(self.rows) else ()

    def __str__(self) -> str:
        counts = ", ".join(f"{side} {count}" for side, count in self.agree.items())
        match self.settled_sides:
            case (side,):
                said = f"the words are those of {side}"
            case ():
                said = "no side has all of them, so each is wrong" if len(self.rows) else "nothing is settled"
            case several:
                said = f"no row tells {' and '.join(several)} apart"
        return f"{self.ptx}: {len(self.rows)} words tell the sides apart; {counts}: {said}"


def answers(about: Mapping[str, Any], part: Part) -> list[Answer]:
    """Of each instruction of one part (as `sent_words` holds it) that has an open choice."""
    answer_list = []
    for d_name, ptx in about["instruction"].items():
        d, k = about["d"][d_name], about["k"]
        if d == "int32":
            continue
        named = (about["arch"], about["family"], about["a"], about["b"], d)
        operands = part["a"], part["b"], part["c" + d_name[1:]]
        with np.errstate(all="ignore"):
            words = {
                side: elements(instruction(*named, k=k, choices=choices), *operands)
                for side, choices in sides(instruction(*named), k).items()
            }
        if not words:
            continue
        every = np.stack(list(words.values()))  # (sides, R)
        rows = np.nonzero((every != every[0]).any(axis=0))[0]  # (found,)
        agree = {side: int((each[rows] == part[d_name][rows]).sum()) for side, each in words.items()}
        answer_list.append(Answer(f"{about['arch']} {ptx}", rows, agree))
    return answer_list
