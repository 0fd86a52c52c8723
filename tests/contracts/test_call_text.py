"""Contract under test: the call of a case is Python that makes it again, or it is not written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.contracts.described.call_text import ELEMENT_LIMIT, call_text
from bitverdict.harness.contracts.described.record import Entry
from bitverdict.harness.model.case import Operand


def straight(draw: Any) -> Any:
    """Rows."""
    m, n = draw.size(1, 4), draw.size(1, 9)
    x = draw.tensor("fp16", (m, n))
    return launch(x, rows=m + 1, eps=draw.scalar(0, 1))


def branching(draw: Any) -> Any:
    m = draw.size(1, 4)
    return launch(draw.tensor("fp16", (m, draw.size(1, 9)))) if m else draw.scalar(0, 1)


def handing_on(draw: Any) -> Any:
    return launch(draw)


def launch(*operands: Any, **named: Any) -> Any:
    return operands, named


def entries(**tensor: Any) -> tuple[Entry, ...]:
    size, scalar = Entry(kind="size", value=1), Entry(kind="scalar", value=0.5)
    return size, Entry(kind="size", value=3), Entry(**{"kind": "tensor", "dtype": "fp16", "shape": (1, 3)} | tensor), scalar


def words(count: int = 3) -> dict[int, Operand]:
    codes = np.resize(np.array([0x3C00, 0x7C00, 0x8000], np.uint16), count).reshape(1, count)
    return {2: Operand(name="x", format="fp16", codes=codes)}


def test_draws_stand_in_the_call_as_their_values() -> None:
    text = call_text(straight, entries(), words())
    tensor = "torch.tensor([[1.0, float('inf'), -0.0]], dtype=torch.float16, device='cuda')"
    assert text == f"launch({tensor}, rows=1 + 1, eps=0.5)"


def test_the_call_gives_the_words_again() -> None:
    import torch

    text = call_text(straight, entries(), words()).replace(", device='cuda'", "")
    (made,), named = eval(text, {"launch": launch, "torch": torch})
    assert named == {"rows": 2, "eps": 0.5} and made.view(torch.int16).numpy().view(np.uint16).tolist() == words()[2].codes.tolist()


@pytest.mark.parametrize(
    ("body", "drawn", "operands"),
    [
        (branching, entries(), words()),
        (handing_on, entries(), words()),
        (straight, entries(strides=(8, 1)), words()),
        (straight, entries(), words(ELEMENT_LIMIT + 1)),
        (straight, entries()[:3], words()),
        (straight, (*entries(), entries()[0]), words()),
        (len, entries(), words()),
    ],
    ids=["branch", "helper", "strides", "long", "fewer draws", "more draws", "no source"],
)
def test_a_call_that_cannot_be_written_is_not(body: Callable, drawn: tuple[Entry, ...], operands: dict[int, Operand]) -> None:
    assert call_text(body, drawn, operands) == ""
