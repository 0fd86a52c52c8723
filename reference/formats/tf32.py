"""TF32: fp32's exponent with fp16's mantissa, in an fp32 container (PTX ISA, alternate data formats).

The low 13 bits are ignored when read, so an fp32 NaN whose payload lies only there reads as infinity (two B200 hardware words
say so), and are written as zero.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

TF32 = Format(name="tf32", exponent_bits=8, mantissa_bits=10, bias=127, specials=Specials.IEEE, storage=np.uint32, low_padding=13)
