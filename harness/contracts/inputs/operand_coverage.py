"""Operands with which a block-scaled kernel reads all codes and positions, as `harness/lab/pages/reached_codes.py` counts them.

They make two cases a format: one side is dense, the other probes it with one element a row, in each block of K under scales from
one end of the range to the other, so that every scale has a probe that brings its products into range. No element times its scale
leaves bf16, where a kernel that widens would make infinity of it, and NaN of infinity times the zeros beside the probe.
"""

from __future__ import annotations

import numpy as np

from bitverdict.harness.contracts.inputs.block_scaled_inputs import ONE_CODES, Side
from bitverdict.harness.contracts.inputs.exact_inputs import generator
from bitverdict.reference.formats import FORMATS, Format, decode

COVER_DENSE, COVER_PROBE, COVER_K = 132, 256, 256  # rows of the dense side, rows of the probing side, K
DENSE_TILE = 128  # rows of it without a NaN: a whole packed block

_E8M0_CLASSES = (("smallest", 0), ("1..31", 31), ("32..95", 95), ("96..126", 126), ("one", 127), ("128..158", 158),
                 ("159..222", 222), ("223..253", 253), ("largest", 254), ("NaN", 255))  # fmt: skip
_UE4M3_CLASSES = (("zero", 0), ("subnormal", 7), ("below one", 55), ("one", 56), ("above one", 125), ("largest", 126), ("NaN", 127))


def scale_class(scale: str, code: int) -> str:
    """The class of a scale code, its sign bit (ue4m3: ignored by the instruction, not by the compiler's widening) named apart."""
    if scale == "e8m0":
        return next(name for name, last in _E8M0_CLASSES if code <= last)
    return next(name for name, last in _UE4M3_CLASSES if code & 0x7F <= last) + (" with bit 7" if code > 0x7F else "")


def cover(dense: str, a: str, b: str, scale: str, block_size: int, data_seed: int) -> tuple[Side, Side]:
    """Operands of the cover case whose `dense` side ("a" or "b") carries every code; the other probes it."""
    rng = generator(data_seed, f"cover {dense}")
    carried = _dense(a if dense == "a" else b, scale, block_size, rng)
    probing = _probe(b if dense == "a" else a, scale, block_size, rng)
    return (carried, probing) if dense == "a" else (probing, carried)


def _dense(element: str, scale: str, block_size: int, rng: np.random.Generator) -> Side:
    fmt, scale_fmt = FORMATS[element], FORMATS[scale]
    finite = _finite_codes(fmt)
    codes = _shuffle_codes(finite, (COVER_DENSE, COVER_K), rng)  # (rows, K)
    blocks = COVER_K // block_size
    members: dict[str, list[int]] = {}
    for code in _finite_codes(scale_fmt, 256):
        members.setdefault(scale_class(scale, int(code)), []).append(int(code))
    turns = [np.resize(rng.permutation(ones), DENSE_TILE * blocks // len(members) + 1) for ones in members.values()]
    scales = rng.permutation(np.concatenate(turns))[: COVER_DENSE * blocks]
    scales = np.resize(scales, (COVER_DENSE, blocks)).astype(np.uint8)  # (rows, blocks) each class alike often
    scales[DENSE_TILE:] = ONE_CODES[scale]
    for step, nan in enumerate(_nan_codes(scale_fmt, 256)):  # each has a row of its own: it takes the whole row
        scales[DENSE_TILE + 2 + step, step] = nan ^ 1
    _keep_in_bf16(codes, scales, fmt, scale_fmt, block_size)
    for step, nan in enumerate(_nan_codes(scale_fmt, 256)):
        scales[DENSE_TILE + 2 + step, step] = nan
    for step, nan in enumerate(_nan_codes(fmt)):
        codes[DENSE_TILE + step, 5 + step] = nan
    return Side(codes, scales)


def _probe(element: str, scale: str, block_size: int, rng: np.random.Generator) -> Side:
    fmt = FORMATS[element]
    codes = np.zeros((COVER_PROBE, COVER_K), fmt.storage)  # (rows, K)
    rows = np.arange(COVER_PROBE)
    at = rows % COVER_K
    codes[rows, at] = _shuffle_codes(_finite_codes(fmt), (COVER_PROBE,), rng)
    scales = np.full((COVER_PROBE, COVER_K // block_size), ONE_CODES[scale], np.uint8)  # (rows, blocks)
    block, step = at // block_size, at % block_size
    if scale == "e8m0":  # 32 steps of 8 exponents, begun elsewhere in each block: all codes but NaN
        scales[rows, block] = np.minimum(8 * step + block % 8, 254)
    else:
        scales[rows, block] = (block_size * block + step) % 256
    _keep_in_bf16(codes, scales, fmt, FORMATS[scale], block_size)
    return Side(codes, scales)


def _keep_in_bf16(codes: np.ndarray, scales: np.ndarray, fmt: Format, scale_fmt: Format, block_size: int) -> None:
    """Replace, in place, elements that would overflow bf16 under their scale by ones between 1 and 2."""
    spread = np.repeat(decode(scale_fmt, scales), block_size, axis=1)  # (rows, K)
    beyond = np.abs(decode(fmt, codes) * spread) >= 2.0**128
    mantissa = fmt.storage((1 << fmt.mantissa_bits) - 1)
    codes[beyond] = (codes[beyond] & mantissa) | fmt.storage(fmt.bias << fmt.mantissa_bits)


def _shuffle_codes(codes: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(np.resize(codes, int(np.prod(shape)))).reshape(shape)


def _finite_codes(fmt: Format, count: int = 0) -> np.ndarray:
    """Of the first `count` codes; by default of all. A ue4m3 scale is a byte: its bit 7 is there, whatever it means."""
    codes = np.arange(count or 1 << fmt.width).astype(fmt.storage)
    return codes[np.isfinite(decode(fmt, codes))]


def _nan_codes(fmt: Format, count: int = 0) -> list[int]:
    codes = np.arange(count or 1 << fmt.width).astype(fmt.storage)
    return [int(code) for code in codes[np.isnan(decode(fmt, codes))]]
