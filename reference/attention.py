"""Attention: its values in float64, and the words of a plan that takes K and V block by block.

A plan says which instruction makes each step: products of a block by a tensor core (`Tiles.product`), and in which order a row is
added. Codes are fp16 or bf16, words fp32 (uint32). All functions take one head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bitverdict.reference.reduction_order import Layout, reduce_parts, reduction_order, uses_register_pairs
from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS
from bitverdict.reference.special_functions.sequences import divide, exp2

Product = Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]
FP32_ONE = np.array(1, np.float32)


@dataclass(frozen=True)
class Tiles:
    """How a head is computed: `rows` of Q a program, `columns` rows of K and V a step, `depth` elements of a row, zeros included.

    `product(a, b, c)`: words (M, N) of codes a (M, K) and b (K, N) and of words c (M, N); None: zeros. `narrow`: codes of fp32
    words; `widen`: words of codes. `family` and `warps` of the product and `sm`, the number of the architecture, decide the order
    of a row's sum."""

    rows: int
    columns: int
    depth: int
    warps: int
    family: str
    sm: int
    product: Product
    narrow: Callable[[np.ndarray], np.ndarray]
    widen: Callable[[np.ndarray], np.ndarray]
    chain: bool = False

    def row_sums(self, values: np.ndarray) -> np.ndarray:
        """(M,) float32 of `values` (M, columns), each row in the order in which threads hold it."""
        return self._sums(values, self.row_layout())

    def output_products(self, o: np.ndarray, do: np.ndarray) -> np.ndarray:
        """(m,) float32 of codes o and do (m, D): their products rounded, then added: eight neighbours in a thread, then threads."""
        left, right = (self.widen(each).view(np.float32) for each in (o, do))  # (m, D) each
        steps = [[1 << bit] for bit in range(self.depth.bit_length() - 1)]
        products = np.pad(fp32.multiply(left, right), ((0, 0), (0, self.depth - o.shape[1])))  # (m, depth)
        return self._sums(products, Layout.from_bases(steps[:3], steps[3:], []))

    def _sums(self, values: np.ndarray, layout: Layout) -> np.ndarray:
        order = reduction_order(layout, 0, pairs=uses_register_pairs(layout, 0, "fp32", sm=self.sm), chain=self.chain)
        (found,) = reduce_parts((values,), 1, order, lambda a, b: (fp32.add(a, b),))
        return found

    def row_layout(self) -> Layout:
        """Where the elements of one row of scores lie.

        mma.sync and wgmma: of each eight elements a thread has two neighbours, and four threads have the eight (PTX ISA,
        accumulator fragments of m16n8k16 and m64nNk16). Warps have rows of their own. Only with mma.sync, where o has more columns
        than rows, they have eights in turn (Triton 3.9, AccelerateMatmul: products that follow one another). tcgen05: a thread has
        the row, of 128 rows by 4 warps. Otherwise it has one half and another thread the other (Triton 3.9, the layouts in which
        tensor memory is read)."""
        steps = [[1 << bit] for bit in range(self.columns.bit_length() - 1)]
        if self.family == "tcgen05":
            return (
                Layout.from_bases(steps, [], [])
                if (self.rows, self.warps) == (128, 4)
                else Layout.from_bases(steps[:-1], steps[-1:], [])
            )
        shared = self.warps.bit_length() - 1 if self.family == "mma.sync" and self.rows < self.depth else 0
        return Layout.from_bases([*steps[:1], *steps[3 + shared :]], steps[1:3], steps[3 : 3 + shared])


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float | None, causal: bool, tiles: Tiles
) -> tuple[np.ndarray, np.ndarray]:
    """o (m, D) and lse (m,), words, of codes q (m, D), k and v (n, D). `scale` None: 1 / sqrt(D).

    Block by block: scores, their largest so far, 2^(log2(e) scale score - largest) by a fused multiply-add and ex2. What was
    added before is faded by 2^(largest before - largest). The sum of the row is taken in by a fused multiply-add, the product with
    V by the accumulator. Then the product with the reciprocal of the sum, and lg2."""
    (m, d), n, factor = q.shape, len(k), exponent(q.shape[1], scale)
    last_keys = _last_key(m, n, causal)  # (m,)
    ends = (np.arange(m) // tiles.rows + 1) * tiles.rows + n - m if causal else np.full(m, n)  # (m,)
    ends = np.clip(ends, 1, n)  # one block at least
    largest, total = np.full(m, -np.inf, np.float32), np.zeros(m, np.float32)
    sums = np.zeros((m, d), np.float32)
    for first in range(0, n, tiles.columns):
        rows = slice(int(np.searchsorted(ends, first, side="right")), m)  # whose program takes this block
        keys, values = (_block(each, first, tiles.columns) for each in (k, v))  # (columns, D) each
        scores = tiles.product(q[rows], keys.T, None).view(np.float32)  # (rows, columns)
        scores = np.where(first + np.arange(tiles.columns) <= last_keys[rows, None], scores, np.float32(-np.inf))
        higher = np.fmax(largest[rows], fp32.multiply(np.fmax.reduce(scores, axis=1), factor))  # (rows,)
        base = np.where(np.isneginf(higher), np.float32(0), higher)  # (rows,)
        powers = exp2(_words(fp32.fma(scores, factor, -base[:, None])))  # (rows, columns)
        faded = exp2(_words(fp32.add(largest[rows], -base))).view(np.float32)  # (rows,)
        total[rows] = fp32.fma(total[rows], faded, tiles.row_sums(powers.view(np.float32)))
        kept = _words(fp32.multiply(sums[rows], faded[:, None]))  # (rows, D)
        sums[rows] = tiles.product(tiles.narrow(powers), values, kept).view(np.float32)
        largest[rows] = higher
    with np.errstate(all="ignore"):
        share = np.where(total == 0, np.float32(0), divide(_words(FP32_ONE), _words(total)).view(np.float32))  # (m,)
    logarithm = INSTRUCTIONS["lg2.approx.ftz.f32"](_words(total)).view(np.float32)  # (m,)
    return _words(fp32.multiply(sums, share[:, None])), _words(fp32.add(largest, logarithm))


def attention_backward(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray, lse: np.ndarray, do: np.ndarray,
    scale: float | None, causal: bool, tiles: Tiles,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """dq (H, m, D), dk and dv (n, D), words, of the H heads of Q that share a head of K: codes q, o, do (H, m, D), k and v (n, D),
    words lse (H, m). `tiles.rows` are those of a program's own side, `tiles.columns` those of the other in a step.

    Powers are 2^(log2(e) scale score - lse), slopes powers times (do . v - o . do), narrowed before their products. dq goes through
    K in ascending blocks, dk and dv through the heads and their rows. dq and dk are multiplied by the scale at the end."""
    (heads, m, d), n, factor = q.shape, len(k), exponent(q.shape[2], scale)
    own, step = tiles.rows, tiles.columns
    last_keys = _last_key(m, n, causal)  # (m,)
    deltas, bases = [tiles.output_products(o[head], do[head]) for head in range(heads)], lse.view(np.float32)  # (m,), (H, m)

    def score_powers(left: np.ndarray, right: np.ndarray, met: np.ndarray, base: np.ndarray) -> np.ndarray:
        """Powers (M, N) of codes left (M, D) and right (N, D), 0 where not met."""
        scores = tiles.product(left, right.T, None).view(np.float32)  # (M, N)
        return np.where(met, exp2(_words(fp32.fma(scores, factor, -base))).view(np.float32), np.float32(0))

    def score_slopes(powers: np.ndarray, left: np.ndarray, right: np.ndarray, along: np.ndarray) -> np.ndarray:
        """Codes (M, N) of powers times (left . right - along)."""
        wide = tiles.product(left, right.T, None).view(np.float32)  # (M, N)
        return tiles.narrow(_words(fp32.multiply(powers, fp32.add(wide, -along))))

    dq = np.zeros((heads, m, d), np.uint32)
    ends = np.clip((np.arange(m) // own + 1) * own + n - m, 1, n) if causal else np.full(m, n)  # (m,)
    for head in range(heads):
        for start in range(0, n, step):
            rows = slice(int(np.searchsorted(ends, start, side="right")), m)  # whose program takes this block
            keys, values = (_block(codes, start, step) for codes in (k, v))  # (columns, D) each
            visible = start + np.arange(step) <= last_keys[rows, None]  # (rows, columns)
            powers = score_powers(q[head, rows], keys, visible, bases[head, rows, None])
            slopes = score_slopes(powers, do[head, rows], values, deltas[head][rows, None])
            dq[head, rows] = tiles.product(slopes, keys, dq[head, rows])
    dk, dv = np.zeros((n, d), np.uint32), np.zeros((n, d), np.uint32)
    begins = np.maximum(np.arange(n) // own * own + m - n, 0) // step * step if causal else np.zeros(n, int)  # (n,)
    for head in range(heads):
        for start in range(0, m, step):
            columns = slice(0, int(np.searchsorted(begins, start, side="right")))  # whose program takes this block
            queries, gradients = (_block(codes[head], start, step) for codes in (q, do))  # (rows, D) each
            base, along = (_block(codes[:, None], start, step).T for codes in (bases[head], deltas[head]))  # (1, rows) each
            visible = np.arange(columns.stop)[:, None] <= last_keys[start : start + step]  # (columns, rows)
            visible = np.pad(visible, ((0, 0), (0, step - visible.shape[1])), constant_values=True)  # powers of 1 times zeros
            powers = score_powers(k[columns], queries, visible, base)
            dv[columns] = tiles.product(tiles.narrow(_words(powers)), gradients, dv[columns])
            slopes = score_slopes(powers, v[columns], gradients, along)
            dk[columns] = tiles.product(slopes, queries, dk[columns])
    natural = np.array(d**-0.5 if scale is None else scale, np.float32)
    return _words(fp32.multiply(dq.view(np.float32), natural)), _words(fp32.multiply(dk.view(np.float32), natural)), dv


def exponent(d: int, scale: float | None) -> np.ndarray:
    """log2(e) times the scale, rounded once to fp32."""
    return np.array((d**-0.5 if scale is None else scale) * np.log2(np.e), np.float32)


def _last_key(m: int, n: int, causal: bool) -> np.ndarray:
    """(m,) the last row of K that each row of Q meets."""
    return np.arange(m) + n - m if causal else np.full(m, n - 1)


def _block(codes: np.ndarray, first: int, columns: int) -> np.ndarray:
    """(columns, D): rows of `codes` from `first`, zeros behind the last."""
    taken = codes[first : first + columns]
    return np.pad(taken, ((0, columns - len(taken)), (0, 0)))


def _words(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)
