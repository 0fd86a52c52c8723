"""E4M3FNUZ: the finer 8-bit float of CDNA3 (AMD Instinct MI300 ISA, "FP8"; Triton's fp8e4b8).

Finite, NaN, unsigned zero: the code of a negative zero is the one NaN, there is no infinity, and the bias is one more than E4M3's.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

E4M3FNUZ = Format(name="e4m3fnuz", exponent_bits=4, mantissa_bits=3, bias=8, specials=Specials.NAN_NEGATIVE_ZERO, storage=np.uint8)
