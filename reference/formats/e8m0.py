"""E8M0: the scale of the MX formats (OCP Microscaling Formats 1.0, section 5.4.1; PTX ISA, ue8m0).

An unsigned power of two: code w is 2^(w - 127), code 0 is 2^-127 and not zero, 0xFF is NaN. No sign, no zero, no infinity:
zero and negative values have no code, and `encode` gives NaN for them. With one significand bit, which is odd in every code,
a tie (1.5 * 2^e) goes up under nearest-even, as in ml_dtypes.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

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
