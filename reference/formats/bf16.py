"""BF16: the top half of an fp32 (PTX ISA, alternate data formats). The NaN that NVIDIA's instructions write is 0x7FFF."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats.record import Format, Specials

BF16 = Format(name="bf16", exponent_bits=8, mantissa_bits=7, bias=127, specials=Specials.IEEE, storage=np.uint16)
