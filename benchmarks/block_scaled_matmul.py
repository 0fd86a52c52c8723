"""Throughput of block_scaled_matmul next to cuBLAS on the same operands widened to bf16, checked word for word before it is timed.

    python benchmarks/block_scaled_matmul.py --format nvfp4
    python benchmarks/block_scaled_matmul.py --format mxfp4 --K_range 512 8192 --bench
    python benchmarks/block_scaled_matmul.py --format mxfp8 --K_range 8192 16384 --K_step 2048 --bench

M = N = 8192 (`--size`). The check takes chosen elements of the result and holds them to the words of the machine's own model:
scaled tcgen05 where there is one, the compiler's widening elsewhere. Exit status 1 when a word differs, 2 without a GPU. `--proton
NAME` has Triton's profiler count launches by their metadata too, into NAME.hatchet (of a range NAME_K512.hatchet, ...): look at it
with `proton-viewer -m tflop/s NAME.hatchet`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

CHECKED = 4096  # elements of the result


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    import torch

    if not torch.cuda.is_available():
        print("this benchmark times launches and needs a CUDA GPU; emulated ones: bitverdict run block_scaled_matmul")
        return 2
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    first, last = given.K_range or (given.K, given.K)
    wrong = 0
    for k in range(first, last + 1, given.K_step):
        wrong += measured(given, k, arch, "cuda")
    return 1 if wrong else 0


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The tutorial's options, and three more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-K", type=int, default=512)
    parser.add_argument("--K_range", type=int, nargs=2, metavar=("FIRST", "LAST"))
    parser.add_argument("--K_step", type=int, default=512)
    parser.add_argument("--bench", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--format", choices=["mxfp4", "nvfp4", "mxfp8", "mixed"], default="nvfp4")
    parser.add_argument("--size", type=int, default=8192, help="of M and N")
    parser.add_argument(
        "--regime", default="codes", help="what is multiplied: see bitverdict.harness.contracts.inputs.block_scaled_inputs.REGIMES"
    )
    parser.add_argument("--proton", metavar="NAME", help="count by launch metadata too, into NAME.hatchet")
    given = parser.parse_args(arguments)
    if given.K_step < 1:
        parser.error(f"--K_step {given.K_step}: must be at least 1")
    if given.proton and not given.bench:
        parser.error(f"--proton {given.proton}: counts timed launches, and --no-bench times none; leave one of them out")
    if given.proton and not (place := Path(given.proton).absolute().parent).is_dir():
        parser.error(f"--proton {given.proton}: must be in a directory that exists; make {place} first")
    return given


def measured(given: argparse.Namespace, k: int, arch: str, device: str) -> int:
    """One line for one K; how many of the checked words differ."""
    import torch
    from triton.testing import do_bench

    from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT
    from bitverdict.kernels.block_scaled_matmul import block_scaled_matmul

    size = given.size
    case = CONTRACT.case(CONTRACT.sized(given.format, size, size, k) | {"format": given.format}, {}, regime=given.regime)
    a, b, tensors = placed(case, device)

    def run():
        return CONTRACT.launch(case, tensors, block_scaled_matmul)["c"]

    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, size, CHECKED), rng.integers(0, size, CHECKED)
    got = run().cpu()[torch.from_numpy(rows), torch.from_numpy(columns)].numpy().view(np.uint16)  # (CHECKED,)
    wrong = int((got != expected_outcome(case, a, b, rows, columns, arch)).sum())
    line = f"{given.format} {arch} [M={size}, N={size}, K={case.problem.k}]: {wrong} of {CHECKED} words differ"
    if given.bench:
        flops = 2.0 * size * size * case.problem.k
        if given.proton:
            profiled(run, f"{given.proton}_K{case.problem.k}" if given.K_range else given.proton)
        ours = do_bench(run)
        left, right = (torch.randn(size, case.problem.k, device=device, dtype=torch.bfloat16) for _ in range(2))
        peer = do_bench(lambda: left @ right.T)
        line += f"; {flops / ours / 1e9:.0f} TFLOP/s, cuBLAS in bf16 {flops / peer / 1e9:.0f}"
    print(line, flush=True)
    return wrong


def placed(case, device: str) -> tuple:
    """(logical a, logical b, tensors by name on `device`, laid out as the contract lays them)."""
    import torch

    from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT
    from bitverdict.harness.judge.guarded_buffers import TORCH_DTYPES

    operands = {operand.name: operand for operand in CONTRACT.operands(case)}
    tensors = {}
    for name, operand in operands.items():
        held = torch.from_numpy(np.ascontiguousarray(operand.codes)).to(device).view(TORCH_DTYPES[operand.format])
        room = torch.empty_strided(held.shape, operand.strides, dtype=held.dtype, device=device)
        room.view(torch.uint8).copy_(held.view(torch.uint8))
        tensors[name] = room
    return *CONTRACT.sides(case, operands), tensors


def expected_outcome(case, a, b, rows: np.ndarray, columns: np.ndarray, arch: str) -> np.ndarray:
    """fp16 words of the chosen elements, by this machine's model."""
    from bitverdict.harness.contracts.oracle.dot_scaled_lowering import element_words, scaled_plan
    from bitverdict.kernels.scaled_operands import FORMATS

    f = FORMATS[case.problem.format]
    plan = scaled_plan(arch, f.a, f.b, f.scale, f.block_size)
    return element_words(plan, "fp16", arch, a.codes[rows], a.scales[rows], b.codes[columns], b.scales[columns])


def profiled(run, name: str) -> None:
    """A hundred launches under Triton's profiler, whose hook asks each for its metadata: NAME.hatchet."""
    import triton.profiler as proton

    proton.start(name, hook="triton")
    try:
        for _ in range(100):
            run()
    finally:
        proton.finalize()


if __name__ == "__main__":
    sys.exit(main())
