"""Document 001's own kernel, from its own source: executed as PTX and judged by the contract of `ampere_gemm`.

    python -m benchmarks.pyptx_kernels [--package DIR] [--largest N]

pyptx is installed by pip into a folder of its own, which DIR names where it is there already. The kernel emits its PTX without a
GPU; what a GPU would be handed is launched by `bv.ptx_kernel` on an emulated sm_80, in place of the shipped kernel. The contract
draws the document's operands (0.1 randn in bf16), and each word must be that of one chain of mma.sync over all of K.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import types
from typing import Any

import torch

from bitverdict.harness.contracts.ampere_gemm import contract
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome
from bitverdict.kernels import ampere_gemm

PYPTX = "pyptx==0.1.1"
TILE = ampere_gemm.Config(fragments="ld.shared")


def install(folder: str) -> None:
    """Put pyptx on the path. Its examples import jax at their top and use it for a front end that is not taken here."""
    if not folder:
        folder = tempfile.mkdtemp()
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, PYPTX], check=True)
    sys.path.append(folder)
    try:
        import jax  # noqa: F401
    except ImportError:
        numpy_of_jax: Any = types.ModuleType("jax.numpy")
        numpy_of_jax.ndarray = object
        jax_module: Any = types.ModuleType("jax")
        jax_module.numpy = numpy_of_jax
        sys.modules.update({"jax": jax_module, "jax.numpy": numpy_of_jax})


def launch(kernel: Any, *tensors: torch.Tensor) -> None:
    """A pyptx kernel on the emulated GPU that is active: its own grid, block and shared memory."""
    import bitverdict as bv

    bv.ptx_kernel(kernel.ptx(), shared_bytes=kernel._smem)[kernel.grid, kernel.block](*tensors)


def document_001(a: torch.Tensor, bt: torch.Tensor, *, block_m: int, block_n: int, block_k: int, fragments: str) -> torch.Tensor:
    """A launcher of `gemm_pipelined` in the place of `ampere_gemm`: it has one tile, and takes whole ones."""
    from pyptx.examples.ampere.gemm_pipelined import build_gemm_pipelined

    if (block_m, block_n, block_k, fragments) != (TILE.block_m, TILE.block_n, TILE.block_k, TILE.fragments):
        raise ValueError(f"{block_m}x{block_n}x{block_k} by {fragments}: the kernel's tile is {TILE}")
    (m, k), n = a.shape, bt.shape[0]
    d = torch.empty((m, n), dtype=torch.float32, device=a.device)
    launch(build_gemm_pipelined(m, n, k), a, bt, d)
    return d


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", default="", metavar="DIR", help="a folder in which pyptx is installed")
    parser.add_argument("--largest", type=int, default=1024, metavar="N", help="the largest size of document 001 (default 1024)")
    arguments = parser.parse_args()
    install(arguments.package)
    chip, failed = target("emulated:sm_80"), 0
    own: Any = types.SimpleNamespace(**vars(ampere_gemm) | {"ampere_gemm": document_001})
    plan = contract(own)
    for problem, config in plan.tutorial(chip):
        size = ampere_gemm.Problem(**problem)
        if config["fragments"] != TILE.fragments or max(size.m, size.n, size.k) > arguments.largest:
            continue
        problem |= {name: 0 for name in problem if name.endswith("_pad")}  # it takes no strides
        verdict = judge(plan.case(problem, config, regime=plan.tutorial_regime), chip, plan)
        right = verdict.outcome is Outcome.PASS and verdict.basis.startswith("words by")
        failed += not right
        seconds = f"{verdict.seconds['launch']:.1f} s of launch, {verdict.seconds['reference']:.1f} s of reference"
        said = f"{verdict.words:,} words equal" if right else f"{verdict.outcome}, {verdict.basis} {verdict.message}"
        print(f"document 001, {size.m}x{size.n}x{size.k}: {said} ({seconds})", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
