"""Functions of rows and of their elements: each value in float64, and the words of a plan that rounds after every operation.

A plan says which instruction makes each step, and in which order a row is added. Words are fp32 (uint32), all arrays
(rows, columns) unless said. `RowSum` is the order of a sum along a row: a fact of the layout of its tile and of the target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.reference.philox import uniform
from bitverdict.reference.reduction_order import blocked_layout, reduce_parts, reduction_order, uses_register_pairs
from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions import sequences
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

FP32_ONE = np.array(1, np.float32)


@dataclass(frozen=True)
class RowSum:
    """How a row is added that lies in a tile of `block` columns: `per_thread` neighbours a thread, `threads` threads a warp,
    `warps` warps. `sm`: the number of the architecture; from 100 on two registers are added by one instruction. `chain`: a thread
    adds one register after another."""

    block: int
    per_thread: int
    warps: int
    sm: int
    threads: int = 32
    chain: bool = False

    def pad(self, values: np.ndarray, fill: float) -> np.ndarray:
        """(rows, block): `values` (rows, columns) and `fill` behind them."""
        return np.pad(values, ((0, 0), (0, self.block - values.shape[1])), constant_values=np.float32(fill))

    def total(self, values: np.ndarray) -> np.ndarray:
        """(rows, 1) float32: the sum of each row of `values` (rows, block)."""
        layout = blocked_layout([self.block], [self.per_thread], [self.threads], [self.warps], [0])
        order = reduction_order(layout, 0, pairs=uses_register_pairs(layout, 0, "fp32", sm=self.sm), chain=self.chain)
        (found,) = reduce_parts((values,), 1, order, lambda a, b: (fp32.add(a, b),))
        return found[:, None]


def softmax(x: np.ndarray, order: RowSum) -> np.ndarray:
    """Less the largest, exponential, the sum of these, quotient by div.full."""
    values = order.pad(x.view(np.float32), -np.inf)  # (rows, block)
    with np.errstate(invalid="ignore"):
        below = fp32.add(values, -np.fmax.reduce(values, axis=1, keepdims=True))  # (rows, block)
    powers = sequences.exp(_words(below))  # (rows, block)
    total = order.total(powers.view(np.float32))  # (rows, 1)
    return sequences.divide(powers[:, : x.shape[1]], _words(total))


def rms_norm(x: np.ndarray, w: np.ndarray, eps: float, order: RowSum) -> tuple[np.ndarray, np.ndarray]:
    """y and r (rows,) for the weights w (columns,): the squares added, times 1 / N, plus eps, rsqrt.approx.ftz;
    x r, then times w."""
    values = x.view(np.float32)  # (rows, columns)
    squares = order.total(order.pad(fp32.multiply(values, values), 0))  # (rows, 1)
    mean = fp32.multiply(squares, _share(x.shape[1]))
    inverse = INSTRUCTIONS["rsqrt.approx.ftz.f32"](_words(fp32.add(mean, np.array(eps, np.float32)))).view(np.float32)  # (rows, 1)
    found = fp32.multiply(fp32.multiply(values, inverse), w.view(np.float32)[None, :])
    return _words(found), _words(inverse[:, 0])


def rms_norm_backward(
    x: np.ndarray, w: np.ndarray, r: np.ndarray, dy: np.ndarray, order: RowSum, rows_per_program: int
) -> tuple[np.ndarray, np.ndarray]:
    """dx and dw (columns,): rows of a program are added in ascending order, then the programs."""
    values, gradients = x.view(np.float32), dy.view(np.float32)
    inverse = r.view(np.float32)[:, None]  # (rows, 1)
    scaled = fp32.multiply(gradients, w.view(np.float32)[None, :])
    total = order.total(order.pad(fp32.multiply(scaled, values), 0))  # (rows, 1)
    along = fp32.multiply(fp32.multiply(fp32.multiply(inverse, inverse), _share(x.shape[1])), total)
    with np.errstate(invalid="ignore"):
        dx = fp32.multiply(inverse, fp32.add(scaled, -fp32.multiply(values, along)))
    parts = fp32.multiply(fp32.multiply(gradients, values), inverse)  # (rows, columns)
    programs = [_chain(parts[start : start + rows_per_program]) for start in range(0, len(parts), rows_per_program)]
    return _words(dx), _words(_chain(np.array(programs, np.float32).reshape(-1, x.shape[1])))


def swiglu(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """exp(-a), plus 1, a by that by div.full, times b."""
    opened = sequences.divide(a, _words(fp32.add(FP32_ONE, sequences.exp(a ^ np.uint32(1 << 31)).view(np.float32))))
    return _words(fp32.multiply(opened.view(np.float32), b.view(np.float32)))


def rope(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x (positions, heads, D) turned by cos and sin (positions, D / 2): both products are rounded, then their sum."""
    left, right = np.split(x.view(np.float32), 2, axis=2)  # (positions, heads, D / 2) each
    c, s = cos.view(np.float32)[:, None, :], sin.view(np.float32)[:, None, :]
    first = fp32.add(fp32.multiply(left, c), -fp32.multiply(right, s))
    second = fp32.add(fp32.multiply(right, c), fp32.multiply(left, s))
    return _words(np.concatenate([first, second], axis=2))


def dropout(x: np.ndarray, key: int, p: float) -> np.ndarray:
    """x times 1 / (1 - p), an fp32 number, where the uniform number of the element's index is at least p, else +0."""
    number = uniform(key, np.arange(x.size, dtype=np.uint64)).reshape(x.shape)  # (rows, columns)
    scaled = fp32.multiply(x.view(np.float32), np.array(1 / (1 - p), np.float32))
    return _words(np.where(number >= np.float32(p), scaled, np.float32(0)))


def cross_entropy(
    x: np.ndarray, targets: np.ndarray, label_smoothing: float, ignore_index: int, order: RowSum
) -> tuple[np.ndarray, np.ndarray]:
    """loss and lse (rows,) for targets (rows,) int64. Blocks of `order.block` columns, ascending: the largest so far is taken away,
    total exp(old - new) plus the block's sum; then log, and where labels are smoothed the sum of all logits times 1 / N."""
    values, rows = x.view(np.float32), len(x)
    largest, total, row_sum = (
        np.full((rows, 1), -np.inf, np.float32),
        np.zeros((rows, 1), np.float32),
        np.zeros((rows, 1), np.float32),
    )
    for start in range(0, x.shape[1], order.block):
        block = values[:, start : start + order.block]  # (rows, up to block)
        new_largest = np.fmax(largest, np.fmax.reduce(block, axis=1, keepdims=True))  # (rows, 1)
        shift = np.where(new_largest == -np.inf, np.float32(0), new_largest)
        powers = sequences.exp(_words(fp32.add(order.pad(block, -np.inf), -shift))).view(np.float32)  # (rows, block)
        kept = sequences.exp(_words(fp32.add(largest, -shift))).view(np.float32)  # (rows, 1)
        total = fp32.add(fp32.multiply(total, kept), order.total(powers))
        row_sum = fp32.add(row_sum, order.total(order.pad(block, 0)))
        largest = new_largest
    logarithm = sequences.log(_words(total)).view(np.float32)  # (rows, 1)
    target_counts = (targets != ignore_index)[:, None]  # (rows, 1)
    given = np.where(
        target_counts, np.take_along_axis(values, np.where(target_counts, targets[:, None], 0), 1), np.float32(0)
    )  # (rows, 1)
    loss = fp32.add(logarithm, -fp32.add(given, -largest))
    if label_smoothing:
        mean = fp32.multiply(row_sum, _share(x.shape[1]))
        spread = fp32.multiply(fp32.add(logarithm, -fp32.add(mean, -largest)), np.array(label_smoothing, np.float32))
        loss = fp32.add(fp32.multiply(loss, np.array(1 - label_smoothing, np.float32)), spread)
    return _words(np.where(target_counts, loss, np.float32(0))[:, 0]), _words(fp32.add(logarithm, largest)[:, 0])


def cross_entropy_backward(
    x: np.ndarray, targets: np.ndarray, lse: np.ndarray, g: np.ndarray, label_smoothing: float, ignore_index: int
) -> np.ndarray:
    """dx: exp(x - lse), less s / N, less 1 - s at the target, times g (rows,); 0 in a row that is ignored."""
    shares = sequences.exp(_words(fp32.add(x.view(np.float32), -lse.view(np.float32)[:, None]))).view(np.float32)
    if label_smoothing:
        shares = fp32.add(shares, -np.array(label_smoothing / x.shape[1], np.float32))
    at = np.arange(x.shape[1])[None, :] == targets[:, None]  # (rows, columns)
    shares = fp32.add(shares, np.where(at, -np.array(1 - label_smoothing, np.float32), np.float32(-0.0)))
    found = fp32.multiply(shares, g.view(np.float32)[:, None])
    return _words(np.where((targets != ignore_index)[:, None], found, np.float32(0)))


def _share(columns: int) -> np.ndarray:
    return np.array(1 / columns, np.float32)


def _chain(rows: np.ndarray) -> np.ndarray:
    """(columns,): 0 + row 0 + row 1 + ..."""
    total = np.zeros(rows.shape[1], np.float32)
    for row in rows:
        total = fp32.add(total, row)
    return total


def _words(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)
