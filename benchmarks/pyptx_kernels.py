"""Document 001's own kernel, from its own source: executed as PTX and held to its words.

    python -m benchmarks.pyptx_kernels [--package DIR] [--largest N]

pyptx is installed by pip into a folder of its own, which DIR names where it is there already. The kernel emits its PTX without a
GPU; what a GPU would be handed is launched by `bv.ptx_kernel` on an emulated sm_80. Its words are held to those of `ampere_gemm`,
which are the words of a chain of mma.sync over all of K, on the document's own operands: 0.1 randn in bf16.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import types
from typing import Any

import numpy as np
import torch

SIZES = ((64, 64, 64), (64, 64, 256), (128, 128, 128), *((size, size, size) for size in (256, 512, 1024, 2048, 4096)))


def install(folder: str) -> None:
    """Put pyptx on the path. Its examples import jax at their top and use it for a front end that is not taken here."""
    if not folder:
        folder = tempfile.mkdtemp()
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, "pyptx"], check=True)
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


def document_001(m: int, n: int, k: int) -> tuple[int, int, float]:
    """(words, words that differ, seconds) of one size."""
    from pyptx.examples.ampere.gemm_pipelined import build_gemm_pipelined

    import bitverdict as bv
    from bitverdict.reference import tensor_core

    generator = np.random.default_rng(m * 7919 + n * 31 + k)  # as the example's own test draws
    a, bt = (
        torch.tensor(generator.standard_normal((rows, k), dtype=np.float32) * 0.1, dtype=torch.bfloat16) for rows in (m, n)
    )  # (m, k), (n, k)
    begun = time.monotonic()
    with bv.emulated("sm_80"):
        d = torch.empty((m, n), dtype=torch.float32, device="cuda")
        launch(build_gemm_pipelined(m, n, k), a.cuda(), bt.cuda(), d)
        words = d.cpu().numpy().view(np.uint32)  # (m, n)
    seconds = time.monotonic() - begun
    rule = tensor_core.instruction("sm_80", "mma.sync", "bf16", "bf16", "fp32")
    codes = [each.view(torch.int16).numpy().view(np.uint16) for each in (a, bt)]
    expected = tensor_core.product(rule, codes[0], codes[1].T)
    return words.size, int((words != expected).sum()), seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", default="", metavar="DIR", help="a folder in which pyptx is installed")
    parser.add_argument("--largest", type=int, default=1024, metavar="N", help="the largest size of document 001 (default 1024)")
    arguments = parser.parse_args()
    install(arguments.package)
    wrong = 0
    for size in SIZES:
        if max(size) <= arguments.largest:
            words, differ, seconds = document_001(*size)
            wrong += differ
            print(f"document 001, {'x'.join(map(str, size))}: {words:,} words, {differ} differ, {seconds:.1f} s", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
