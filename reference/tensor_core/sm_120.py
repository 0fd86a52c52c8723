"""Consumer Blackwell (RTX 50): mma.sync as on Hopper; fp8, fp6 and fp4 with 25 fraction bits, and block scales as tcgen05 has them.

No words of it are at hand: a model's numbers.
"""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.tensor_core import sm_90, sm_100
from bitverdict.reference.tensor_core.constructors import dense, integers
from bitverdict.reference.tensor_core.evidence import analogy, model_only
from bitverdict.reference.tensor_core.record import Choices

ARCH = "sm_120"
BY_MODEL = model_only("MS")
OF_TCGEN05 = analogy("sm_100", "MMA-Sim differs in corners, as there", "SF")
INSTRUCTIONS = (
    *(dense(ARCH, "mma.sync", "mma.sync", *key, BY_MODEL) for key in sm_90.DENSE),  # [MS]
    *(
        replace(rule, arch=ARCH, family="mma.sync", evidence=BY_MODEL, choices=Choices())  # [MS]
        for rule in sm_100.INSTRUCTIONS
        if rule.kind in ("f8f6f4", "mxf8f6f4")
    ),
    *(
        replace(rule, arch=ARCH, family="mma.sync", evidence=OF_TCGEN05)
        for rule in sm_100.INSTRUCTIONS
        if rule.kind in ("mxf4", "mxf4nvf4")
    ),
    integers(ARCH, "mma.sync", "mma.sync"),
)
