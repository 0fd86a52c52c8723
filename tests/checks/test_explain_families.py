"""Each family of hypotheses on a reference names its own bug, and is silent of one that is nearly it."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.checks.explain.cause import cause_of
from bitverdict.harness.checks.explain.evaluation import evaluate_reference
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.verdict import Outcome
from bitverdict.reference.formats import FORMATS, encode
from tests.checks.test_explain_references import Reals

RNG = np.random.default_rng(33)
SCORES, V = 3 * RNG.normal(size=(5, 70)), RNG.normal(size=(70, 4))
X, R, W, B = RNG.normal(size=(6, 50)), RNG.normal(size=(6, 50)), RNG.normal(size=50), RNG.normal(size=50)
STEPS, DECAY = RNG.normal(size=(12, 5)), RNG.uniform(0.2, 0.9, size=(12, 5))
Q, ZEROS, SCALES = RNG.integers(0, 256, (4, 30)), RNG.integers(0, 256, (4, 5)), RNG.normal(size=(4, 5))
TABLE, LENGTHS, PAGES = RNG.integers(0, 9, (5, 6)), np.array([40, 7, 17, 33, 25]), RNG.normal(size=(9, 8, 3))


def said_of(function: Callable, operands: dict, came: np.ndarray, formats: dict | None = None) -> str:
    """The cause that is told where the outputs of `function` came as `came`; empty for none."""
    mathematics = Mathematics(function=function, operands=operands, outputs=("y",), formats=formats or {})
    exact = evaluate_reference(mathematics)["y"]
    expected = ExpectedOutput(
        name="y", format="fp32", shape=exact.shape, value=exact, bound=np.abs(exact) * 2.0**-22, exact=exact,
        exact_error=np.full(exact.shape, 1e-12),
    )  # fmt: skip
    words = encode(FORMATS["fp32"], came).view(np.uint32)
    seen = LaunchResult(outputs={"y": words}, real_values={"y": Reals(came)})
    found = cause_of(mathematics, expected, seen, Outcome.WRONG_MATHEMATICS)
    return "" if found is None else found.sentence


def attention(xp: Any, scores: Any, v: Any) -> Any:
    p = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return p @ v / xp.sum(p, axis=1, keepdims=True)


def entropy(xp: Any, scores: Any) -> Any:
    largest = xp.max(scores, axis=1)
    return largest + xp.log(xp.sum(xp.exp(scores - largest[:, None]), axis=1))


def in_blocks(block: int, forgets: str = "", parts: int = 1) -> np.ndarray:
    """Attention as a loop over blocks of keys in parts makes it, which `forgets` to rescale something."""
    accumulators, sums, maxima = [], [], []
    part = -(-SCORES.shape[1] // parts)
    for first in range(0, SCORES.shape[1], part):
        largest, total, acc = np.full(5, -np.inf), np.zeros(5), np.zeros((5, 4))
        for start in range(first, min(first + part, SCORES.shape[1]), block):
            keys = slice(start, min(start + block, first + part))
            higher = np.maximum(largest, SCORES[:, keys].max(axis=1))
            used = np.where(np.isfinite(largest), largest, higher) if forgets == "new maximum" else higher
            p, rescale = np.exp(SCORES[:, keys] - used[:, None]), np.exp(largest - higher)
            total = total * (1 if forgets == "sum" else rescale) + p.sum(axis=1)
            acc = acc * (1 if forgets == "accumulator" else rescale[:, None]) + p @ V[keys]
            largest = higher
        accumulators, sums, maxima = [*accumulators, acc], [*sums, total], [*maxima, largest]
    weights = np.exp(np.array(maxima) - np.max(maxima, axis=0))
    if forgets == "mean":
        return np.mean([acc / total[:, None] for acc, total in zip(accumulators, sums, strict=True)], axis=0)
    of_sums = np.ones_like(weights) if forgets == "weights of sums" else weights
    return (np.array(accumulators) * weights[:, :, None]).sum(axis=0) / (np.array(sums) * of_sums).sum(axis=0)[:, None]


def powers_of_blocks(block: int) -> np.ndarray:
    """exp(score - the largest score of the blocks so far)."""
    largest = np.stack([part.max(axis=1) for part in np.split(SCORES, range(block, 70, block), axis=1)], axis=1)
    return np.exp(SCORES - np.maximum.accumulate(largest, axis=1).repeat(block, axis=1)[:, :70])


def normalised(xp: Any, x: Any, r: Any, w: Any, b: Any) -> Any:
    h = x + r
    centred = h - xp.mean(h, axis=1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=1, keepdims=True) + 1e-3) * w + b


def normalised_by(variance: np.ndarray, epsilon: float = 1e-3) -> np.ndarray:
    h = X + R
    return (h - h.mean(axis=1, keepdims=True)) / np.sqrt(variance[:, None] + epsilon) * W + B


def scan(xp: Any, x: Any, decay: Any) -> Any:
    h, rows = xp.zeros(x.shape[1]), []
    for t in range(x.shape[0]):
        h = decay[t] * h + x[t]
        rows.append(h * x[t])
    return xp.stack(rows)


def scanned(lost: tuple[int, ...] = (), behind: int = 0) -> np.ndarray:
    h, states = np.zeros(5), [np.zeros(5)] * behind
    for t in range(12):
        h = DECAY[t] * (0 if t in lost else h) + STEPS[t]
        states.append(h)
    return np.stack([states[t] * STEPS[t] for t in range(12)])


def gated(xp: Any, x: Any, b: Any) -> Any:
    z = x + b
    return z / (1 + xp.exp(-z))


def silu(z: np.ndarray) -> np.ndarray:
    return z / (1 + np.exp(-z))


def gelu(xp: Any, z: Any) -> Any:
    return 0.5 * z * (1 + xp.tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)))


def exact_gelu(xp: Any, z: Any) -> Any:
    return xp.astype(0.5 * z * (1 + xp.erf(z / 2**0.5)), xp.bfloat16)


def dequantized(xp: Any, q: Any, z: Any, s: Any) -> Any:
    return (q - xp.repeat(z, 6, axis=1)) * xp.repeat(s, 6, axis=1)


def by_hand(q: np.ndarray = Q, columns: np.ndarray | None = None) -> np.ndarray:
    group = np.arange(30) // 6
    return (q - ZEROS[:, group if columns is None else columns]) * SCALES[:, group]


def paged(xp: Any, pages: Any, table: Any, lengths: Any) -> Any:
    rows = xp.reshape(xp.take(pages, xp.reshape(table, (-1,)), axis=0), (5, 48, 3))
    places = xp.arange(48)
    return xp.sum(xp.where((places < lengths[:, None])[:, :, None], rows, 0.0) * xp.reshape(places + 1, (48, 1)), axis=1)


def paged_by_hand(turned: Callable[[int], np.ndarray]) -> np.ndarray:
    made = []
    for row, length in zip(TABLE, LENGTHS, strict=True):
        used = -(-length // 8)
        rows = PAGES[np.concatenate([row[:used][turned(used)], row[used:]])].reshape(48, 3)
        made.append((rows * np.arange(1, 49)[:, None])[:length].sum(axis=0))
    return np.stack(made)


def shifted(xp: Any, x: Any) -> Any:
    before = xp.concat([xp.zeros((6, 2)), x], axis=1)
    return before[:, :50] + 2 * before[:, 1:51]


def filled(left: np.ndarray) -> np.ndarray:
    before = np.concatenate([left, X], axis=1)
    return before[:, :50] + 2 * before[:, 1:51]


H = X + R
CENTRED = H - H.mean(axis=1, keepdims=True)
VARIANCE, OF_X = (CENTRED**2).mean(axis=1), X.var(axis=1)
ATTENTION, NORM = {"scores": SCORES, "v": V}, {"x": X, "r": R, "w": W, "b": B}
GROUPS = {"q": Q, "z": ZEROS, "s": SCALES}
BYTES = {"q": "uint8", "z": "uint8"}
FAMILIES: dict[str, tuple[Callable, dict, np.ndarray, np.ndarray, str]] = {
    "accumulator not rescaled": (
        attention,
        ATTENTION,
        in_blocks(16, "accumulator"),
        in_blocks(10, "accumulator"),
        "blocks of 16 .*without rescaling the accumulator",
    ),
    "running sum not rescaled": (
        attention,
        ATTENTION,
        in_blocks(32, "sum"),
        in_blocks(20, "sum"),
        "blocks of 32 .*without rescaling the running sum",
    ),
    "the maximum of the blocks before": (
        attention,
        ATTENTION,
        in_blocks(16, "new maximum"),
        in_blocks(10, "new maximum"),
        "blocks of 16 .*old maximum",
    ),
    "parts joined without weights": (
        attention,
        ATTENTION,
        in_blocks(70, "weights of sums", 4),
        in_blocks(70, "weights of sums", 5),
        "parts of 18 .*running sum when the parts",
    ),
    "plain mean of parts": (attention, ATTENTION, in_blocks(70, "mean", 4), in_blocks(70, "mean", 5), "parts of 18 .*plain mean"),
    "sum of a log not rescaled": (
        entropy,
        {"scores": SCORES},
        SCORES.max(axis=1) + np.log(powers_of_blocks(8).sum(axis=1)),
        SCORES.max(axis=1) + np.log(powers_of_blocks(10).sum(axis=1)),
        "blocks of 8 .*without rescaling the running sum",
    ),
    "masked lanes in a variance": (
        normalised,
        NORM,
        normalised_by(VARIANCE + 14 * H.mean(axis=1) ** 2 / 50),
        normalised_by(VARIANCE + 9 * H.mean(axis=1) ** 2 / 50),
        "masked elements count there",
    ),
    "variance of one operand": (
        normalised,
        NORM,
        normalised_by(OF_X),
        normalised_by(1.01 * OF_X),
        r"without the addition of r in mean\(",
    ),
    "another epsilon": (
        normalised,
        NORM,
        normalised_by(VARIANCE, 3e-3),
        normalised_by(VARIANCE, 3e-3) + 1e-4 * X,
        "0.003 in the place of 0.001",
    ),
    "state lost between chunks": (
        scan,
        {"x": STEPS, "d": DECAY},
        scanned((4, 8)),
        scanned((3, 5)),
        "at the beginning of each 4 turns",
    ),
    "state of the turn before": (scan, {"x": STEPS, "d": DECAY}, scanned(behind=1), scanned(behind=2), "of the turn before"),
    "bias behind the activation": (gated, {"x": X, "b": B}, silu(X) + B, silu(X + B / 3) + B, "addition of b moved behind"),
    "gelu by erf": (
        gelu,
        {"z": X},
        0.5 * X * (1 + np.vectorize(erf)(X / np.sqrt(2))),
        0.5 * X * (1 + np.tanh(0.9 * X)),
        "GELU by erf",
    ),
    "gelu by tanh": (exact_gelu, {"z": X}, gelu(np, X), 0.5 * X * (1 + np.tanh(0.9 * X)), "GELU by tanh"),
    "zero point behind the scale": (
        dequantized,
        GROUPS,
        Q * SCALES.repeat(6, 1) - ZEROS.repeat(6, 1),
        Q * SCALES.repeat(6, 1) - ZEROS.repeat(6, 1) / 2,
        "moved behind",
    ),
    "copies for repetitions": (
        dequantized,
        GROUPS,
        by_hand(columns=np.arange(30) % 5),
        by_hand(columns=np.arange(30) * 7 % 5),
        "one copy after another",
    ),
    "signed bytes": (
        dequantized,
        GROUPS,
        by_hand(np.where(Q > 127, Q - 256, Q)),
        by_hand(np.where(Q > 99, Q - 256, Q)),
        "q as signed integers",
    ),
    "an axis exchanged with the next": (
        dequantized,
        GROUPS,
        by_hand(Q.reshape(30, 4).T),
        by_hand(Q.reshape(-1, 2).T.reshape(4, 30)),
        "q with axes 0 and 1 exchanged",
    ),
    "pages in reverse": (
        paged,
        {"pages": PAGES, "table": TABLE, "lengths": LENGTHS},
        paged_by_hand(lambda used: np.arange(used)[::-1]),
        paged_by_hand(lambda used: np.roll(np.arange(used), 2)),
        "table in reverse.*lengths in pages of 8",
    ),
    "the edge for zeros": (shifted, {"x": X}, filled(X[:, [0, 0]]), filled(X[:, [2, 1]]), "first element repeated"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_names_its_fault_and_not_what_is_nearly_it(family: str) -> None:
    function, operands, came, near_miss, sentence = FAMILIES[family]
    formats = {dequantized: BYTES, paged: {"table": "int64", "lengths": "int64"}}.get(function)
    assert re.search(sentence, told := said_of(function, operands, came, formats)), told
    assert said_of(function, operands, near_miss, formats) == ""


def test_what_a_right_loop_gives_is_no_other_result() -> None:
    for block, parts in ((16, 1), (32, 1), (16, 4)):
        assert np.allclose(in_blocks(block, parts=parts), attention(np, SCORES, V), rtol=1e-13, atol=0)
    assert np.array_equal(scanned(), scan(np, STEPS, DECAY))
