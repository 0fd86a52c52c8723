"""E3M2: the wider 6-bit element of MXFP6 (OCP Microscaling Formats 1.0, section 5.3.2; PTX ISA, alternate data formats).

No infinity and no NaN. Largest 28, smallest 0.0625. A code lies in the low six bits of its byte.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

E3M2 = Format(name="e3m2", exponent_bits=3, mantissa_bits=2, bias=3, specials=Specials.FINITE_ONLY, storage=np.uint8)
