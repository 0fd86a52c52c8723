"""Tensor cores, bit for bit: mma.sync, wgmma, tcgen05 (docs/arithmetic.md) and AMD's MFMA (docs/amd_arithmetic.md).

One step (`fused_sum`), chained over K (`chain`), with one file of numbers an architecture or family. To add one: write its file,
name it in `lookup.INSTRUCTIONS`.
"""

from bitverdict.reference.tensor_core.block_scaled import scaled_elements, scaled_product
from bitverdict.reference.tensor_core.evidence import Evidence, EvidenceKind
from bitverdict.reference.tensor_core.lookup import INSTRUCTIONS, instruction
from bitverdict.reference.tensor_core.product import elements, product, stacked_products
from bitverdict.reference.tensor_core.record import (
    Accumulator,
    BlockOrder,
    Choices,
    ConsumerFp8,
    ExponentFloor,
    InfiniteAccumulator,
    Instruction,
    ScaledGroups,
    ScaledWindow,
    ZeroTerms,
)
from bitverdict.reference.tensor_core.upcast import ScaleModel, upcast_operand, upcast_product

__all__ = [
    "INSTRUCTIONS",
    "Accumulator",
    "BlockOrder",
    "Choices",
    "ConsumerFp8",
    "Evidence",
    "EvidenceKind",
    "ExponentFloor",
    "InfiniteAccumulator",
    "Instruction",
    "ScaleModel",
    "ScaledGroups",
    "ScaledWindow",
    "ZeroTerms",
    "elements",
    "instruction",
    "product",
    "scaled_elements",
    "scaled_product",
    "stacked_products",
    "upcast_operand",
    "upcast_product",
]
