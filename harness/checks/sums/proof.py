"""The proof of recovered orders: words of drawn operands, and of sums whose terms cancel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.harness.checks.sums.masks import Scale, in_pairs
from bitverdict.harness.checks.sums.probing import Summed
from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.sums.arithmetic import Order, kept

MOST_CANCELLED = 16  # classes of outputs
SPREADS = (0, 3, 6)  # of the exponents of drawn operands


@dataclass
class Proof:
    """Words compared, how many of them are not nearest to the exact sum, and (outputs,) where some was wrong."""

    wrong: np.ndarray
    words: int = 0
    telling: int = 0

    def add(self, outputs: np.ndarray, wrong: np.ndarray, telling: np.ndarray) -> None:
        self.wrong[outputs[wrong]] = True
        self.words, self.telling = self.words + len(outputs), self.telling + int(telling.sum())


def proved(summed: Summed, members: np.ndarray, orders: list[Order], scale: Scale, seed: int) -> Proof:
    """The words of all outputs on drawn operands, held to those of their orders."""
    proof, every = Proof(np.zeros(summed.terms.size, bool)), np.arange(summed.terms.size)
    _cancelling(summed, members, orders, scale, seed, proof)
    for number, spread in enumerate(SPREADS):
        codes = summed.drawn(np.random.default_rng([seed, 3, number]), spread)
        got = summed.launches.of(codes).outputs[summed.name].reshape(-1)
        due, exact = expected_words(summed, members, orders, codes)
        same = (got == due.view(got.dtype)) | ((got | due.view(got.dtype)) << 1 == 0)
        proof.add(every, ~same, due != exact)
    return proof


def _cancelling(summed: Summed, members: np.ndarray, orders: list[Order], scale: Scale, seed: int, proof: Proof) -> None:
    """The same of sums whose terms cancel in pairs: what is left is rounding alone, which an output of few bits shows too."""
    rng = np.random.default_rng([seed, 4])
    for place in rng.permutation(len(orders))[:MOST_CANCELLED].tolist():
        order, terms = orders[place], np.asarray(orders[place].tree.terms)
        carriers = summed.carriers(np.flatnonzero(members == place))
        factors = summed.factored(np.stack([in_pairs(summed, terms, scale.high, rng) for _ in carriers]))
        got = summed.asked(factors, carriers)
        due = (
            decode(FORMATS[summed.format], kept(order.evaluated(factors) * summed.terms.scale, summed.format)) / summed.terms.scale
        )
        proof.add(carriers, got != due, due != 0)


def expected_words(
    summed: Summed, members: np.ndarray, orders: list[Order] | tuple[Order, ...], codes: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(outputs,) words that the orders give on operands of `codes`, and those nearest to float64's sum."""
    values = summed.values_of(codes)
    found, exact = (np.zeros(summed.terms.size) for _ in range(2))
    for place, order in enumerate(orders):
        mine = np.flatnonzero(members.reshape(-1) == place)
        for start in range(0, len(mine), step := max(1, (1 << 22) // max(summed.terms.count, 1))):
            some = mine[start : start + step]
            factors = summed.terms.values(values, some)
            found[some] = order.evaluated(factors)
            exact[some] = factors.prod(axis=0).sum(axis=-1)
    with np.errstate(over="ignore"):
        return kept(found * summed.terms.scale, summed.format), kept(exact * summed.terms.scale, summed.format)
