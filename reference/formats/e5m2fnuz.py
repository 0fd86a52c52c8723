"""E5M2FNUZ: the wider 8-bit float of CDNA3 (AMD Instinct MI300 ISA, "BF8"; Triton's fp8e5b16).

Finite, NaN, unsigned zero: the code of a negative zero is the one NaN, there is no infinity, and the bias is one more than E5M2's.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

E5M2FNUZ = Format(name="e5m2fnuz", exponent_bits=5, mantissa_bits=2, bias=16, specials=Specials.NAN_NEGATIVE_ZERO, storage=np.uint8)
