"""CDNA4 (MI350): as CDNA3, by analogy: no public model of it was found, and no GPU of AMD's was run.

fp8 is OCP's here. It has no xf32. Its K are twice CDNA3's; the blocks are taken from CDNA3, which nothing settles. Block-scaled
MFMA has no model here.
"""

from __future__ import annotations

from bitverdict.reference.tensor_core import gfx942
from bitverdict.reference.tensor_core.evidence import analogy
from bitverdict.reference.tensor_core.gfx942 import exact_integers, mfma
from bitverdict.reference.tensor_core.record import Step

ARCH = "gfx950"
FP8 = ("e4m3", "e5m2")
LIKE = analogy(gfx942.ARCH, gfx942.NO_GPU, "MS")
INSTRUCTIONS = (
    *(mfma(ARCH, name, name, gfx942.BLOCKS[name], Step.PRODUCTS_FIRST, LIKE) for name in ("fp16", "bf16")),
    *(mfma(ARCH, a, b, 16, Step.EVEN_AND_ODD, LIKE) for a in FP8 for b in FP8),
    mfma(ARCH, "fp32", "fp32", 1, Step.MULTIPLY_ADD, LIKE),
    exact_integers(ARCH, 64),
)
