"""E2M3: the finer 6-bit element of MXFP6 (OCP Microscaling Formats 1.0, section 5.3.2; PTX ISA, alternate data formats).

No infinity and no NaN. Largest 7.5, smallest 0.125. A code lies in the low six bits of its byte.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

E2M3 = Format(name="e2m3", exponent_bits=2, mantissa_bits=3, bias=1, specials=Specials.FINITE_ONLY, storage=np.uint8)
