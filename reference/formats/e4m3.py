"""E4M3: the finer 8-bit float (OCP OFP8 1.0, table 1; PTX ISA, alternate data formats). Triton's fp8e4nv.

The largest exponent is an ordinary one: only the magnitude 0x7F is NaN and there is no infinity, so 448 is the largest.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

E4M3 = Format(name="e4m3", exponent_bits=4, mantissa_bits=3, bias=7, specials=Specials.NAN_ALL_ONES, storage=np.uint8)
