"""E2M1: the 4-bit element of MXFP4 and NVFP4 (OCP Microscaling Formats 1.0, section 5.3.3; PTX ISA, alternate data formats).

No infinity and no NaN: what overflows becomes 6. One subnormal, 0.5. A code lies in the low four bits of its byte;
`bitverdict.reference.packing` puts two in one.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

E2M1 = Format(name="e2m1", exponent_bits=2, mantissa_bits=1, bias=1, specials=Specials.FINITE_ONLY, storage=np.uint8)
