"""Mutants of the kernels that the project ships, by kernel and name, with what each makes of the result."""

from __future__ import annotations

from importlib import import_module

from tests.faults.causes.record import Explained

_PRODUCTS = "block_scaled_matmul blocked_matmul fp8_blockwise_matmul hopper_matmul matmul split_k_matmul"
_ROWS = "attention cross_entropy rms_norm rope softmax swiglu tma_gather tma_scatter"
_MODULES = [import_module(f"tests.faults.kernels.{name}") for name in f"{_PRODUCTS} {_ROWS}".split()]
_MUTANTS = {(mutant.kernel, mutant.name): mutant for module in _MODULES for mutant in module.MUTANTS}
_TAIL = r"without (its last K tail|the last of K)"
_CAUSES: dict[tuple[str, str], tuple[str, ...]] = {
    ("matmul", "tail mask one too short"): (_TAIL,),
    ("matmul", "tail block left out"): (_TAIL,),
    ("matmul", "activation without its one"): (r"without the addition of 1",),
    ("matmul", "activation never applied"): ("equals a @ b: what follows it is missing",),
    ("matmul", "activation on the wrong side"): ("exchanged", "in the place of >="),
    ("matmul", "result rounded to half first"): ("rounded to fp16 before the store", "saturated to the largest number of fp16"),
    ("matmul", "one row too few"): (r"row \d+ never written", "no program wrote the output"),
    ("matmul", "empty K left unwritten"): ("never w", "no program wrote"),
    ("attention", "heads of K in turn"): ("k one copy after another",),
    ("cross_entropy", "a gradient of labels that are not smooth"): (r"without the addition of 0\.\d+",),
    ("cross_entropy", "the last block alone"): ("of its last block alone",),
    ("cross_entropy", "the sum before not scaled"): ("without rescaling the running sum",),
    ("softmax", "base two"): ("exp2 in the place of exp",),
    ("softmax", "zero behind the last column"): ("zeros fill from",),
    ("rms_norm", "the mean of the tile"): (r"divided by \d+",),
    ("rms_norm", "eps outside the root"): (r"9\.5\S+ outside sqrt",),
    ("rms_norm", "dx without the mean"): ("without the subtraction of",),
    ("rms_norm", "the sum's weights forgotten"): (r"without the factor",),
    ("rms_norm", "dw of the last row alone"): ("last", "zeros"),
    ("rope", "turned the other way"): ("added, not subtracted",),
    ("rope", "the second half not stored"): ("never written",),
    ("swiglu", "the sign forgotten"): (r"without negative\(a\)",),
    ("swiglu", "operands exchanged"): ("takes b for a",),
    ("swiglu", "the gate rounded to the type of the result"): (r"rounded to (fp16|bf16)",),
    ("fp8_blockwise_matmul", "scale of B left out"): ("b_scale ignored",),
    ("fp8_blockwise_matmul", "scale of the next block"): (r"scale of block j \+ 1",),
    ("fp8_blockwise_matmul", "last block of K left out"): (_TAIL,),
    ("block_scaled_matmul", "scale of A for B"): ("scales of a_scale",),
    ("block_scaled_matmul", "the same tile of scales always"): ("scales of the first step",),
    ("block_scaled_matmul", "nibbles of A in the other order"): ("neighbours of a along k",),
    ("block_scaled_matmul", "accumulator in half precision"): ("accumulated in fp16",),
    ("block_scaled_matmul", "short block without a scale"): ("last scale",),
    ("block_scaled_matmul", "output through half precision"): (
        "rounded to fp16 before the store",
        "saturated to the largest number of fp16",
    ),
    ("block_scaled_matmul", "grid rounded down"): ("never w",),
    ("split_k_matmul", "last part left out"): (_TAIL,),
    ("split_k_matmul", "first part added twice"): ("used twice",),
    ("split_k_matmul", "shares overlap by a block"): ("used twice", "with twice"),
    ("split_k_matmul", "share rounded down"): (_TAIL,),
    ("split_k_matmul", "empty share stores nothing"): (r"uninitialised words .*: tensor \d+ \(empty\), parts of the kernel",),
    ("split_k_matmul", "C not zeroed before atomics"): (r"uninitialised words .*: tensor \d+ \(empty_strided\), c of",),
    ("hopper_matmul", "ragged K forgotten"): (_TAIL,),
    ("hopper_matmul", "rounded twice"): ("rounded to bf16 before the store",),
    ("tma_gather", "rows past the end taken from the last"): ("past the end of table as the last row",),
    ("tma_gather", "negative rows taken from the first"): ("below 0 as row 0",),
    ("tma_scatter", "rows numbered from one"): (r"row_offsets \+ 1",),
    ("tma_scatter", "column one step on"): (r"columns \+ 16",),
}
_ON = {
    "attention": "emulated:sm_80",  # Triton 3.6 and 3.7 leave a fence out of it on sm_90
    "block_scaled_matmul": "emulated:sm_90",
    "blocked_matmul": "emulated:sm_100",
    "tma_gather": "emulated:sm_100",
    "tma_scatter": "emulated:sm_100",
}

BUGS = tuple(
    Explained(mutant=_MUTANTS[name], causes=causes, contract=name[0], on=_ON.get(name[0], "emulated:sm_90"))
    for name, causes in _CAUSES.items()
)
