"""E5M2: the wider 8-bit float (OCP OFP8 1.0, table 1; PTX ISA, alternate data formats). Triton's fp8e5.

IEEE-like: the top byte of an fp16. Infinity 0x7C; NaNs 0x7D, 0x7E, 0x7F, of which NVIDIA's `cvt` writes 0x7F.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

E5M2 = Format(name="e5m2", exponent_bits=5, mantissa_bits=2, bias=15, specials=Specials.IEEE, storage=np.uint8)
