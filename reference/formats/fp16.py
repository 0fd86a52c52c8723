"""FP16: IEEE 754-2019 binary16. The NaN that NVIDIA's instructions write is 0x7FFF."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

FP16 = Format(name="fp16", exponent_bits=5, mantissa_bits=10, bias=15, specials=Specials.IEEE, storage=np.uint16)
