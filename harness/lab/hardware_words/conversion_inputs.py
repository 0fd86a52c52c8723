"""What conversion instructions are fed: every word of a small source, chosen words of fp32.

From fp32: for each destination every code (fp8) or drawn codes, the point half way to the next code, and one unit in the last
place to either side of both; the edges of overflow and of the subnormals; infinities and NaNs; drawn words.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats import BF16, E4M3, E5M2, FP16, FP32, TF32, Format, decode

Storage = dict[str, type[np.unsignedinteger]]  # how the results of a conversion are kept, by its name
FROM_FP32: Storage = {
    "cvt_rn_f16_f32": np.uint16, "cvt_rz_f16_f32": np.uint16, "cvt_rn_bf16_f32": np.uint16, "cvt_rna_tf32_f32": np.uint32,
    "cvt_rn_tf32_f32": np.uint32, "cvt_rn_satfinite_e4m3x2_f32": np.uint8, "cvt_rn_satfinite_e5m2x2_f32": np.uint8,
}  # fmt: skip
FROM_FP16: Storage = {"cvt_rn_satfinite_e4m3x2_f16x2": np.uint8, "cvt_rn_satfinite_e5m2x2_f16x2": np.uint8}  # of all 65,536 words
FROM_FP8: Storage = {"cvt_rn_f16x2_e4m3x2": np.uint16, "cvt_rn_f16x2_e5m2x2": np.uint16}  # of all 256 codes
LEAST = {
    "cvt_rn_f16_f32": 75, "cvt_rz_f16_f32": 75, "cvt_rn_bf16_f32": 80, "cvt_rna_tf32_f32": 80, "cvt_rn_tf32_f32": 90,
}  # fmt: skip
"""The first chip that has one, as in sm_NN; the others, of fp8, are sm_89's."""
STEM = "own_cvt"


def boundaries(format: Format, positive_codes: np.ndarray) -> np.ndarray:
    """fp32 words at each code's value and half way to the next, one unit below and above both, of both signs."""
    values = decode(format, np.stack([positive_codes, positive_codes + (1 << format.low_padding)]).astype(format.storage))  # [2, n]
    with np.errstate(invalid="ignore"):
        points = np.concatenate([values[0], (values[0] + values[1]) / 2])
    words = points[np.isfinite(points)].astype(np.float32).view(np.uint32).astype(np.int64)
    words = np.clip(np.concatenate([words - 1, words, words + 1]), 0, 0x7F800000)
    return np.concatenate([words, words | 0x80000000]).astype(np.uint32)


def fp32_sources(data_seed: int) -> np.ndarray:
    """The fp32 words, ascending and without repeats."""
    rng = np.random.default_rng(data_seed)
    parts = [boundaries(format, np.arange(0, 0x7F)) for format in (E4M3, E5M2)]
    for format in (FP16, BF16, TF32):
        top = format.largest_code >> format.low_padding
        edges = np.array([0, 1, 2, (1 << format.mantissa_bits) - 1, 1 << format.mantissa_bits, top - 1])
        drawn = rng.integers(0, top, 100)
        parts.append(boundaries(format, np.concatenate([edges, drawn]) << format.low_padding))
    nan = np.array([0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0x7F801000, 0x7F802000, 0x7FA00000])
    past = np.array([448, 449, 464, 465, 480, 57344, 61440, 61441, 65504, 65519.99, 65520, 65536], np.float32).view(np.uint32)
    special = np.concatenate([nan, past, [0, 1, 0x7F800000, FP32.largest_code]]).astype(np.uint32)
    parts += [special, special | np.uint32(0x80000000), rng.integers(0, 1 << 32, 500).astype(np.uint32)]
    return np.unique(np.concatenate(parts))


def sources(data_seed: int, chip: int = 90) -> dict[str, np.ndarray]:
    """Source words [n] uint32 of each conversion that sm_`chip` has, by name."""
    fp32 = fp32_sources(data_seed)
    every = (
        dict.fromkeys(FROM_FP32, fp32)
        | dict.fromkeys(FROM_FP16, np.arange(1 << 16, dtype=np.uint32))
        | dict.fromkeys(FROM_FP8, np.arange(1 << 8, dtype=np.uint32))
    )
    return {name: source for name, source in every.items() if LEAST.get(name, 89) <= chip}


def storage(name: str) -> type[np.unsignedinteger]:
    """Type in which results of this conversion are kept."""
    return (FROM_FP32 | FROM_FP16 | FROM_FP8)[name]
