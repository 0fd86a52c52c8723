"""Whether `bitverdict lab large` finds one wrong word of a large product in each kernel and type that it judges, and where.

    python -m benchmarks.one_wrong_word [--target cuda:0] [--size 8192] [STEM ...]

Behind each launch the lowest bit of one word of the result is turned over on the device. The word is drawn. The case must fail by
that word alone, at its row and column, with every word of the result compared. Exit status 1 where one does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.campaign import Option, parse
from bitverdict.harness.lab.commands.large_products import size_of
from bitverdict.harness.lab.large_gemm.cases import Row, cases, large_row
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.supervision import leave
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision

WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32}


@dataclass
class Damage:
    """The word that was turned over in the last launch, and how many launches came: an autotuned one is called again."""

    at: tuple[int, int] = (-1, -1)
    launches: int = 0


@contextmanager
def damaged(case: Case, rng: np.random.Generator) -> Iterator[Damage]:
    """Launches of the case's contract inside leave one word of their first output with its lowest bit turned over."""
    contract: Any = resolve(case.contract)
    launch, done = contract.launch, Damage()

    def launched(*given: Any, **named: Any) -> Mapping[str, torch.Tensor]:
        outputs = launch(*given, **named)
        result = next(iter(outputs.values()))  # (m, n)
        row, column = (int(rng.integers(side)) for side in result.shape)
        result.view(WORDS[result.element_size()])[row, column] ^= 1
        done.at, done.launches = (row, column), done.launches + 1
        return outputs

    contract.launch = launched
    try:
        yield done
    finally:
        del contract.launch


def found(case: Case, where: Target, rng: np.random.Generator) -> tuple[Row, str]:
    """The row of `case` with one damaged word, and what is wrong with it: empty where that word alone is told, of all, and where
    nothing was launched."""
    with damaged(case, rng) as damage:
        row = large_row(case, where)
    if not damage.launches:
        return row, ""
    told = row.examples[0]["at"] if row.examples else None
    as_due = (row.decision, row.differ, told, row.words) == (Decision.FAIL, 1, damage.at, row.result_words)
    return row, "" if as_due else f"damaged {damage.at}, told {told}, {row.differ} differ: {row.message}"


def main(arguments: list[str] | None = None) -> int:
    asked = parse(
        __doc__, "stems*", argv=arguments, target="cuda:0",
        size=Option((8192, 8192, 8192), "N for a cube, or MxNxK", {"type": size_of, "nargs": None}),
    )  # fmt: skip
    where, rng, begun = target(asked.target), np.random.default_rng(8192), time.monotonic()
    words = wrong = ran = 0
    for case in cases([asked.size], where):
        if asked.stems and case.contract not in asked.stems:
            continue
        row, why = found(case, where, rng)
        if not row.words and not why:
            print(f"not run: {row.contract} {row.kind}: {row.message}", flush=True)
            continue
        words, wrong, ran = words + row.words, wrong + bool(why), ran + 1
        said = f"WRONG: {why}" if why else f"one wrong word of {row.words:,} found at {row.examples[0]['at']}"
        print(f"{row.contract} {row.kind} {row.size}: {said}", flush=True)
    print(f"{ran} launches with one wrong word each, {ran - wrong} found; {words:,} words, {time.monotonic() - begun:.0f} s")
    return int(wrong > 0 or not ran)


if __name__ == "__main__":
    leave(main())
