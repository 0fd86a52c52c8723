"""Mutants of the kernels of `docs/examples/your_kernels/`, by kernel and name, with what each makes of the result."""

from __future__ import annotations

from pathlib import Path

from tests.faults.causes.record import Explained
from tests.faults.your_kernels.collected import MUTANTS

_CAUSES: dict[str, dict[str, tuple[str, ...]]] = {
    "softmax": {
        "zero behind the last column": ("zeros fill from", "a zero among max"),
        "the last column left out": ("without its last element",),
        "powers of two": ("exp2 in the place of exp",),
        "divided by the number of columns": ("divi", "without"),
        "the sign of the exponent": (r"max\(x\) - x in the place of x - max\(x\)",),
        "columns behind 128 dropped": ("never written", "128"),
        "the maximum not taken away": ("without the subtraction of max",),
        "powers summed in fp16": (r"rounded to fp16",),
        "rounded to bf16 before the store": ("rounded to bf16 before the store",),
    },
    "rms_norm": {
        "epsilon outside the root": ("without the addition of 1e-06", "1e-06 outside"),
        "epsilon forgotten": ("without the addition of 1e-06",),
        "divided by the block": (r"divided by \d+, not",),
        "the tail of the row left out of the sum": (r"mean\(x \* x\) (without its tail|of no element)",),
        "one behind the last column": ("ones fill", "fill"),
        "the weight plus one": ("w plus 1",),
        "weights of the first block everywhere": ("w at axis 0 = 0 to", "first block"),
        "the sum of the last block alone": ("last block alone",),
        "squares summed in bf16": ("bf16",),
        "rounded before the weight": (r"rounded to bf16",),
    },
    "rope": {
        "the sign of the left half": ("added, not subtracted",),
        "the sign of the right half": ("subtracted, not added",),
        "sines for cosines": ("takes sin for cos", "takes operand 2 for operand 1"),
        "cosines of the first position": (r"takes (cos|operand 1) at axis 0 = 0 for all",),
        "heads behind the last whole block left out": ("never wr",),
        "sines in bf16": ("(sin|operand 2) rounded to bf16", r"rounded to bf16"),
        "products rounded to bf16": (r"rounded to bf16",),
    },
    "layer_norm_backward": {
        "the weight forgotten": ("without the factor w wherever it is used",),
        "the mean of the gradient forgotten": ("without the subtraction of mean",),
        "epsilon forgotten": ("without the addition of",),
        "divided by the block": (r"divided by \d+, not",),
        "dw not scaled": ("without the (factor|division)",),
        "the last rows dropped": ("without", "of no element"),
        "db summed in fp16": ("fp16",),
        "rounded before the last product": ("rounded to bf16",),
    },
    "attention": {
        "the scale forgotten": ("without the (factor|division)",),
        "a row does not see its own key": ("in the place of <=|in the place of >=|diagonal|- 1|\\+ 1",),
        "every head reads the first values": ("takes v at axis 0 = 0 for all",),
        "scores rounded to bf16": ("rounded to bf16",),
    },
    "swiglu": {
        "the other half is the gate": ("halves of x",),
        "a sigmoid for a gate": ("without", "1 in the place"),
        "the sign of the exponent": ("without negative", "reference without"),
        "columns behind the last whole block left out": ("never wr",),
        "the gate rounded to bf16": ("rounded to bf16",),
    },
    "top_k": {
        "the largest magnitudes": (r"of \|x\|", "magnitude"),
        "never taken out": ("hold what column 0 should", "column 0"),
        "in ascending order": ("reverse",),
        "indices from one on": ("plus 1",),
        "the last column left out": ("without its last element",),
        "zeros behind the last column": ("zeros fill from",),
    },
    "histogram": {
        "the last bin not stored": ("never written",),
        "the lower edge of the first bin left out": (r"> in the place of >=",),
        "elements behind the last whole block left out": ("without|last",),
    },
    "quantize_mxfp4": {"signs lost": (r"magnitude|\|",), "the exponent one too large": ("- 1 in the place of - 2",)},
    "grouped_matmul": {
        "rows not gathered": ("order that sorts expert",),
        "the tail of K dropped": ("without", "of no element"),
        "the matrix of the expert before": ("- 1",),
        "columns behind the last whole block left out": ("never wr",),
        "the sum kept in bf16": ("bf16",),
    },
    "fp8_blockwise_matmul": {
        "the first scale of a row for all blocks": ("at axis 1 = 0 for all",),
        "scales of b forgotten": (r"without the factor|all ones",),
        "the first rows' scale of b for all": ("at axis 0 = 0 for all",),
        "the tail of K dropped": ("without", "of no element"),
        "the scale of the row before": ("- 1",),
        "the sum kept in bf16": ("bf16",),
        "scales rounded to bf16": ("rounded to bf16",),
    },
}

BUGS = tuple(
    Explained(mutant=mutant, causes=causes, contract="described")
    for mutant in MUTANTS
    if (causes := _CAUSES.get(Path(mutant.kernel).stem, {}).get(mutant.name))
)
