"""Operands with block scales, drawn as logical codes and laid out as a launcher takes them: packed nibbles, packed scales, padding
that holds garbage.

Regimes beyond those of `bitverdict.harness.contracts.inputs.regimes`: what their elements and their scales are is said at
`REGIMES`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.harness.contracts.inputs import regimes as plain
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.usage import UsageError
from bitverdict.reference import packing, scale_layout
from bitverdict.reference.block_scaling import BLOCK_FORMATS, QuantizedTensor, quantize
from bitverdict.reference.formats import FORMATS, Overflow, Rounding, decode, encode

REGIMES = ("normal", "integers", "codes", "wide", "ends", "nan", "layer")
"""normal: elements of normal deviates, scales near one. integers: elements -2..2, scales 1/2, 1 and 2, so that no sum is rounded
and a scale from another place shows. codes: every finite element code alike often, scales near one. wide: the same with scales over
many exponents, so that within a sum products are cut into, and cut off. ends: the smallest and the largest scales, so that sums
overflow and vanish; a large scale meets a small one in three lines of four, as otherwise nearly all would. nan: as codes, with a
few NaN scales, and NaN elements where the format has them. layer: weights and activations of a small transformer layer, quantized.
``cover a``, ``cover b``: see `bitverdict.harness.contracts.inputs.operand_coverage`."""

EPSILON = 1e-8  # what the tutorial adds to each scale
UNIFORM = "uniform"
"""A regime of its own, what the tutorial feeds its kernel: every e2m1 code alike often, exact in e4m3 where the format has that;
scales uniform in (0, 1) with 1e-8 added, an e8m0 scale rounded down, a ue4m3 scale to nearest."""

NEAR_CODES = {"e8m0": 4, "ue4m3": 24}  # codes to either side of one
REACHES = (5, 9, 14, 40)  # exponents to either side of one, a row: about what a sum keeps, and far more
ONE_CODES = {"e8m0": 0x7F, "ue4m3": 0x38}
HALF_TO_TWO = {"e8m0": (0x7E, 0x7F, 0x80), "ue4m3": (0x30, 0x38, 0x40)}
FREE_LINES = 4  # one line of so many has any end anywhere
INSET = {"e8m0": 10, "ue4m3": 0}
"""How many codes the other lines stay from either end: an e4m3 or e2m1 element, 2**-9 to 448, times its e8m0 scale is then a normal
number of bfloat16, which targets without block-scaled instructions widen it to."""


@dataclass(frozen=True)
class Side:
    """One operand as the mathematics sees it: element codes (rows, k), scale codes (rows, ceil(k / block))."""

    codes: np.ndarray
    scales: np.ndarray


def draw(regime: str, element: str, scale: str, block_size: int, rows: int, k: int, data_seed: int, name: str) -> Side:
    """The `name` ("a" or "b") operand of a case. ValueError for an unknown regime."""
    rng = plain.generator(data_seed, name)
    if regime == "layer":
        return _quantize_side(element, scale, block_size, rows, k, data_seed, name)
    if regime not in (*REGIMES, UNIFORM):
        raise UsageError(f"regime {regime!r}: unknown; use one of {', '.join((*REGIMES, UNIFORM))}")
    if regime == UNIFORM:
        return _uniform(element, scale, (rows, k), scale_layout.scale_columns(k, block_size), rng)
    if regime in ("normal", "integers"):
        codes = plain.draw(element, (rows, k), regime, rng)  # (rows, k)
    else:
        codes = _any_finite(element, (rows, k), rng)  # (rows, k)
    shape = rows, scale_layout.scale_columns(k, block_size)
    scales = _scales(regime, scale, shape, rng)  # (rows, blocks)
    if regime == "ends":
        _oppose(scales, scale, plain.generator(data_seed, "ends").integers(0, 2, shape[1]) == int(name == "a"))
    if regime == "nan":
        _strike(codes, FORMATS[element].nan_code, rng)
        _strike(scales, FORMATS[scale].nan_code, rng)
    return Side(codes, scales)


def _uniform(element: str, scale: str, shape: tuple[int, int], blocks: int, rng: np.random.Generator) -> Side:
    pairs = rng.integers(0, 16, shape).astype(np.uint8)  # (rows, k)
    codes = pairs if element == "e2m1" else encode(FORMATS[element], decode(FORMATS["e2m1"], pairs))  # (rows, k)
    scales = rng.random((shape[0], blocks)) + EPSILON  # (rows, blocks)
    rounding = Rounding.TOWARD_ZERO if scale == "e8m0" else Rounding.NEAREST_EVEN
    return Side(codes, encode(FORMATS[scale], scales, rounding=rounding, overflow=Overflow.SATURATE))


def _any_finite(element: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    fmt = FORMATS[element]
    codes = rng.integers(0, 1 << fmt.width, shape).astype(fmt.storage)  # (rows, k)
    if fmt.nan_code is not None:
        codes[(codes & ~fmt.storage(fmt.sign_bit)) == fmt.nan_code] = fmt.largest_code
    return codes


def _scales(regime: str, scale: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    largest_code = FORMATS[scale].largest_code
    if regime == "integers":
        return np.array(HALF_TO_TWO[scale], np.uint8)[rng.integers(0, 3, shape)]
    if regime == "ends":
        ends = np.array([0, 1, 2, 3, largest_code - 3, largest_code - 2, largest_code - 1, largest_code], np.uint8)
        return ends[rng.integers(0, 8, shape)]
    if regime == "wide":
        if scale != "e8m0":
            return rng.integers(0, largest_code + 1, shape).astype(np.uint8)
        reach = np.array(REACHES)[rng.integers(0, len(REACHES), (shape[0], 1))]  # (rows, 1)
        return (ONE_CODES[scale] + np.rint((2 * rng.random(shape) - 1) * reach)).astype(np.uint8)
    return rng.integers(ONE_CODES[scale] - NEAR_CODES[scale], ONE_CODES[scale] + NEAR_CODES[scale] + 1, shape).astype(np.uint8)


def _oppose(scales: np.ndarray, scale: str, large_blocks: np.ndarray) -> None:
    """Make the scales (rows, blocks) of most lines ends of one kind in a block of K, in place: the largest where `large_blocks`
    (blocks,), the smallest elsewhere, by `INSET` nearer to one. The other operand has it the other way: results stay finite."""
    last = FORMATS[scale].largest_code
    low = np.where(scales > 3, last - scales, scales)  # (rows, blocks) 0..3 from either end
    inset = low + INSET[scale]  # (rows, blocks)
    opposed = np.where(large_blocks, last - inset, inset).astype(np.uint8)  # (rows, blocks)
    lines = np.arange(len(scales)) % FREE_LINES != FREE_LINES - 1  # (rows,)
    scales[lines] = opposed[lines]


def _strike(codes: np.ndarray, nan: int | None, rng: np.random.Generator) -> None:
    """Put one or two NaN into `codes`, in place."""
    if nan is not None and codes.size:
        places = rng.integers(0, codes.size, int(rng.integers(1, 3)))
        codes.reshape(-1)[places] = nan


def _quantize_side(element: str, scale: str, block_size: int, rows: int, k: int, data_seed: int, name: str) -> Side:
    from bitverdict.harness.contracts.inputs.transformer_activations import activations, weights

    values = activations(rows, k, data_seed) if name == "a" else weights(rows, k, data_seed)  # (rows, k) float32
    block_format = next(
        f for f in BLOCK_FORMATS.values() if (f.element.name, f.scale.name, f.block_size) == (element, scale, block_size)
    )
    if block_format.tensor_scale:  # the kernel has no place for it: a power of two by which the largest scale is near one
        largest = float(np.abs(values).max(initial=0.0)) or 1.0
        return _side(quantize(block_format, values, tensor_scale=2.0 ** (int(np.frexp(largest)[1]) - 3)))
    return _side(quantize(block_format, values))


def _side(made: QuantizedTensor) -> Side:
    return Side(made.elements, made.scales)


def element_operand(name: str, element: str, side: Side, *, pad: int, offset: int, along_k: bool = True) -> Operand:
    """The elements as a launcher takes them: two e2m1 a byte, `pad` bytes after each row, `offset` bytes before the first. Those
    that follow each other lie along K, or along the rows."""
    packed = element == "e2m1"
    codes = packing.pack(side.codes) if packed else side.codes  # (rows, bytes)
    strides = (codes.shape[1] + pad, 1) if along_k else (1, codes.shape[0] + pad)
    return Operand(name=name, format="uint8" if packed else element, codes=codes, strides=strides, offset=offset)


def scale_operand(
    name: str, scale: str, side: Side, data_seed: int, *, row_pad: int, tile_pad: int, zero_padding: bool = False
) -> Operand:
    """The scales packed in five dimensions. The padding inside the tiles is garbage, NaN codes among it, or zeros, as cuBLAS asks
    (`bitverdict.reference.scale_layout`): a kernel that multiplies it by elements that are zero may rely on zeros, on nothing
    else."""
    packed_scales = scale_layout.pack(side.scales)  # (row tiles, column tiles, 32, 4, 4)
    if not zero_padding:
        padding = scale_layout.padding_mask(*side.scales.shape)
        rng = plain.generator(data_seed, f"{name} padding")
        nan = FORMATS[scale].nan_code or 0
        garbage = np.where(rng.random(packed_scales.shape) < 0.5, nan, rng.integers(0, 256, packed_scales.shape))
        packed_scales = np.where(padding, garbage, packed_scales).astype(np.uint8)
    tile = scale_layout.TILE_BYTES + tile_pad
    return Operand(name=name, format=scale, codes=packed_scales, strides=(packed_scales.shape[1] * tile + row_pad, tile, 16, 4, 1))


def read_back(elements: Operand, scales: Operand, rows: int, k: int, block_size: int) -> Side:
    """The logical side that two operands lay out."""
    codes = packing.unpack(elements.codes, length=k) if elements.format == "uint8" else elements.codes  # (rows, k)
    return Side(codes, scale_layout.unpack(scales.codes, rows, scale_layout.scale_columns(k, block_size)))
