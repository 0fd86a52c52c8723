"""The proof of recovered orders: words of drawn operands, and of sums whose terms cancel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.harness.checks.sums.masks import Scale, in_pairs
from bitverdict.harness.checks.sums.probes import SummedOutput
from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.sums.arithmetic import Order, encode_values

MOST_CANCELLED = 16  # classes of outputs
SPREADS = (0, 3, 6)  # of the exponents of drawn operands


@dataclass
class Proof:
    """Words compared, how many of them are not nearest to the exact sum, and (outputs,) where some was wrong."""

    wrong_outputs: np.ndarray
    words: int = 0
    telling_words: int = 0

    def add(self, outputs: np.ndarray, wrong: np.ndarray, telling: np.ndarray) -> None:
        self.wrong_outputs[outputs[wrong]] = True
        self.words, self.telling_words = self.words + len(outputs), self.telling_words + int(telling.sum())


def prove_orders(summed_output: SummedOutput, members: np.ndarray, orders: list[Order], scale: Scale, seed: int) -> Proof:
    """The words of all outputs on drawn operands, held to those of their orders."""
    proof, all_outputs = Proof(np.zeros(summed_output.terms.size, bool)), np.arange(summed_output.terms.size)
    _prove_cancelling_sums(summed_output, members, orders, scale, seed, proof)
    for number, spread in enumerate(SPREADS):
        codes = summed_output.drawn(np.random.default_rng([seed, 3, number]), spread)
        got = summed_output.launches.launch_codes(codes).outputs[summed_output.name].reshape(-1)
        due, exact = expected_words(summed_output, members, orders, codes)
        same = (got == due.view(got.dtype)) | ((got | due.view(got.dtype)) << 1 == 0)
        proof.add(all_outputs, ~same, due != exact)
    return proof


def _prove_cancelling_sums(
    summed_output: SummedOutput, members: np.ndarray, orders: list[Order], scale: Scale, seed: int, proof: Proof
) -> None:
    """The same of sums whose terms cancel in pairs: what is left is rounding alone, which an output of few bits shows too."""
    rng = np.random.default_rng([seed, 4])
    for place in rng.permutation(len(orders))[:MOST_CANCELLED].tolist():
        order, terms = orders[place], np.asarray(orders[place].tree.terms)
        carriers = summed_output.carriers(np.flatnonzero(members == place))
        factors = summed_output.factors_for(np.stack([in_pairs(summed_output, terms, scale.high, rng) for _ in carriers]))
        probed_words = summed_output.probe_results(factors, carriers)
        expected_words = (
            decode(
                FORMATS[summed_output.format],
                encode_values(order.evaluate(factors) * summed_output.terms.scale, summed_output.format),
            )
            / summed_output.terms.scale
        )
        proof.add(carriers, probed_words != expected_words, expected_words != 0)


def expected_words(
    summed_output: SummedOutput, members: np.ndarray, orders: list[Order] | tuple[Order, ...], codes: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(outputs,) words that the orders give on operands of `codes`, and those nearest to float64's sum."""
    values = summed_output.values_of(codes)
    order_sums, exact = (np.zeros(summed_output.terms.size) for _ in range(2))
    for place, order in enumerate(orders):
        mine = np.flatnonzero(members.reshape(-1) == place)
        for start in range(0, len(mine), step := max(1, (1 << 22) // max(summed_output.terms.count, 1))):
            some = mine[start : start + step]
            factors = summed_output.terms.values(values, some)
            order_sums[some] = order.evaluate(factors)
            exact[some] = factors.prod(axis=0).sum(axis=-1)
    with np.errstate(over="ignore"):
        return encode_values(order_sums * summed_output.terms.scale, summed_output.format), encode_values(
            exact * summed_output.terms.scale, summed_output.format
        )
