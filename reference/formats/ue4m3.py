"""UE4M3: the block scale of NVFP4 (PTX ISA, alternate data formats: a 7-bit format, NaN 0x7F).

E4M3 without the sign. The tensor core ignores bit 7 of the byte, and so does `decode`; `encode` writes it as zero. A negative
value has no code: `encode` gives NaN.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

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
