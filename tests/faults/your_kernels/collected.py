"""The mutants of all kernels of `docs/examples/your_kernels/`, and the files of one of them."""

from __future__ import annotations

from pathlib import Path

from tests.faults.mutants import CHECKOUT, Mutant, mutant_source, replaced_once
from tests.faults.your_kernels import (
    attention,
    fp8_blockwise_matmul,
    grouped_matmul,
    histogram,
    layer_norm_backward,
    quantize_mxfp4,
    rms_norm,
    rope,
    softmax,
    swiglu,
    top_k,
)
from tests.faults.your_kernels.records import FOLDER

KERNELS = (
    softmax, rms_norm, rope, layer_norm_backward, attention, swiglu, top_k, histogram, quantize_mxfp4, grouped_matmul,
    fp8_blockwise_matmul,
)  # fmt: skip
NAMES = tuple(module.__name__.rpartition(".")[2] for module in KERNELS)
MUTANTS: tuple[Mutant, ...] = tuple(mutant for module in KERNELS for mutant in module.MUTANTS)


def written(mutant: Mutant, directory: Path) -> str:
    """Write the edited kernel and its test into `directory`, under names of its own; returns the address of the test."""
    name = Path(mutant.kernel).stem
    asks = replaced_once(
        (CHECKOUT / FOLDER / f"test_{name}.py").read_text(), f"from {name} import", f"from {mutant.stem} import", name
    )
    (directory / f"{mutant.stem}.py").write_text(mutant_source(mutant))
    (directory / f"test_{mutant.stem}.py").write_text(asks)
    return f"{directory / f'test_{mutant.stem}.py'}:test_{name}"
