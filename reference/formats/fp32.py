"""FP32: IEEE 754-2019 binary32. The NaN that NVIDIA's tensor cores write is 0x7FFFFFFF."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

FP32 = Format(name="fp32", exponent_bits=8, mantissa_bits=23, bias=127, specials=Specials.IEEE, storage=np.uint32)
