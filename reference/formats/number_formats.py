"""The formats, a record each; the text below a record is its source, and what it says beside the fields."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

E2M1 = Format(name="e2m1", exponent_bits=2, mantissa_bits=1, bias=1, specials=Specials.FINITE_ONLY, storage=np.uint8)
"""E2M1: the 4-bit element of MXFP4 and NVFP4 (OCP Microscaling Formats 1.0, section 5.3.3; PTX ISA, alternate data formats).

No infinity and no NaN: what overflows becomes 6. One subnormal, 0.5. A code lies in the low four bits of its byte;
`bitverdict.reference.packing` puts two in one.
"""

E2M3 = Format(name="e2m3", exponent_bits=2, mantissa_bits=3, bias=1, specials=Specials.FINITE_ONLY, storage=np.uint8)
"""E2M3: the finer 6-bit element of MXFP6 (OCP Microscaling Formats 1.0, section 5.3.2; PTX ISA, alternate data formats).

No infinity and no NaN. Largest 7.5, smallest 0.125. A code lies in the low six bits of its byte.
"""

E3M2 = Format(name="e3m2", exponent_bits=3, mantissa_bits=2, bias=3, specials=Specials.FINITE_ONLY, storage=np.uint8)
"""E3M2: the wider 6-bit element of MXFP6 (OCP Microscaling Formats 1.0, section 5.3.2; PTX ISA, alternate data formats).

No infinity and no NaN. Largest 28, smallest 0.0625. A code lies in the low six bits of its byte.
"""

E4M3 = Format(name="e4m3", exponent_bits=4, mantissa_bits=3, bias=7, specials=Specials.NAN_ALL_ONES, storage=np.uint8)
"""E4M3: the finer 8-bit float (OCP OFP8 1.0, table 1; PTX ISA, alternate data formats). Triton's fp8e4nv.

The largest exponent is an ordinary one: only the magnitude 0x7F is NaN and there is no infinity, so 448 is the largest.
"""

E4M3FNUZ = Format(name="e4m3fnuz", exponent_bits=4, mantissa_bits=3, bias=8, specials=Specials.NAN_NEGATIVE_ZERO, storage=np.uint8)
"""E4M3FNUZ: the finer 8-bit float of CDNA3 (AMD Instinct MI300 ISA, "FP8"; Triton's fp8e4b8).

Finite, NaN, unsigned zero: the code of a negative zero is the one NaN, there is no infinity, and the bias is one more than E4M3's.
"""

E5M2 = Format(name="e5m2", exponent_bits=5, mantissa_bits=2, bias=15, specials=Specials.IEEE, storage=np.uint8)
"""E5M2: the wider 8-bit float (OCP OFP8 1.0, table 1; PTX ISA, alternate data formats). Triton's fp8e5.

IEEE-like: the top byte of an fp16. Infinity 0x7C; NaNs 0x7D, 0x7E, 0x7F, of which NVIDIA's `cvt` writes 0x7F.
"""

E5M2FNUZ = Format(name="e5m2fnuz", exponent_bits=5, mantissa_bits=2, bias=16, specials=Specials.NAN_NEGATIVE_ZERO, storage=np.uint8)
"""E5M2FNUZ: the wider 8-bit float of CDNA3 (AMD Instinct MI300 ISA, "BF8"; Triton's fp8e5b16).

Finite, NaN, unsigned zero: the code of a negative zero is the one NaN, there is no infinity, and the bias is one more than E5M2's.
"""

E8M0 = Format(
    name="e8m0",
    exponent_bits=8,
    mantissa_bits=0,
    bias=127,
    specials=Specials.NAN_ALL_ONES,
    storage=np.uint8,
    has_sign=False,
    subnormals=False,
)
"""E8M0: the scale of the MX formats (OCP Microscaling Formats 1.0, section 5.4.1; PTX ISA, ue8m0).

An unsigned power of two: code w is 2^(w - 127), code 0 is 2^-127 and not zero, 0xFF is NaN. No sign, no zero, no infinity:
zero and negative values have no code, and `encode` gives NaN for them. With one significand bit, which is odd in every code,
a tie (1.5 * 2^e) goes up under nearest-even, as in ml_dtypes.
"""

UE4M3 = Format(
    name="ue4m3",
    exponent_bits=4,
    mantissa_bits=3,
    bias=7,
    specials=Specials.NAN_ALL_ONES,
    storage=np.uint8,
    has_sign=False,
    ignored_high_bits=1,
)
"""UE4M3: the block scale of NVFP4 (PTX ISA, alternate data formats: a 7-bit format, NaN 0x7F).

E4M3 without the sign. The tensor core ignores bit 7 of the byte, and so does `decode`; `encode` writes it as zero. A negative
value has no code: `encode` gives NaN.
"""

FP16 = Format(name="fp16", exponent_bits=5, mantissa_bits=10, bias=15, specials=Specials.IEEE, storage=np.uint16)
"""FP16: IEEE 754-2019 binary16. The NaN that NVIDIA's instructions write is 0x7FFF."""

BF16 = Format(name="bf16", exponent_bits=8, mantissa_bits=7, bias=127, specials=Specials.IEEE, storage=np.uint16)
"""BF16: the top half of an fp32 (PTX ISA, alternate data formats). The NaN that NVIDIA's instructions write is 0x7FFF."""

TF32 = Format(name="tf32", exponent_bits=8, mantissa_bits=10, bias=127, specials=Specials.IEEE, storage=np.uint32, low_padding=13)
"""TF32: fp32's exponent with fp16's mantissa, in an fp32 container (PTX ISA, alternate data formats).

The low 13 bits are ignored when read, so an fp32 NaN whose payload lies only there reads as infinity (two B200 hardware words
say so), and are written as zero.
"""

FP32 = Format(name="fp32", exponent_bits=8, mantissa_bits=23, bias=127, specials=Specials.IEEE, storage=np.uint32)
"""FP32: IEEE 754-2019 binary32. The NaN that NVIDIA's tensor cores write is 0x7FFFFFFF."""

FORMATS: dict[str, Format] = {fmt.name: fmt for fmt in list(globals().values()) if isinstance(fmt, Format)}
