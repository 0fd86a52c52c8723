"""CDNA2 (MI200): fp16 and bf16 by fp32 operations, four products as a tree, each subnormal flushed; fp32 as on CDNA3.

No GPU of AMD's was run: every number is a model's. `block` is the K of the instruction, at whose begin a c that is subnormal or
-0 becomes +0. The older bf16 forms (without `_1k`), which Triton does not emit, are left out.
"""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.tensor_core.evidence import model_only
from bitverdict.reference.tensor_core.gfx942 import NO_GPU, exact_integers, mfma
from bitverdict.reference.tensor_core.record import Step

ARCH = "gfx90a"
BY_MODEL = model_only("MS", note=NO_GPU)
INSTRUCTIONS = (
    *(replace(mfma(ARCH, name, name, 16, Step.PAIRWISE, BY_MODEL), tree=4) for name in ("fp16", "bf16")),  # [MS]
    mfma(ARCH, "fp32", "fp32", 1, Step.MULTIPLY_ADD, BY_MODEL),
    exact_integers(ARCH, 16),
)
