"""Document 001's own kernel, from its own source: executed as PTX and judged by the contract of `ampere_gemm`.

    python -m benchmarks.pyptx_kernels [--package DIR] [--largest N] [--hopper] [--blackwell]

pyptx is installed by pip into a folder of its own, which DIR names where it is there already. The kernel emits its PTX without a
GPU; what a GPU would be handed is launched by `bv.ptx_kernel` on an emulated sm_80, in place of the shipped kernel. The contract
draws the document's operands (0.1 randn in bf16), and each word must be that of one chain of mma.sync over all of K.

--hopper: pyptx's `gemm_warp_specialized` too, on an emulated sm_90: clusters of two CTAs, multicast, a persistent producer. It is
launched as it is, then with each of `REPAIRS` in turn, until its words are those of one chain of wgmma over all of K. --blackwell:
`build_gemm` likewise, on an emulated sm_100, of tcgen05.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitverdict.harness.contracts.ampere_gemm import contract
from bitverdict.harness.emulator import EmulatedFault
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome
from bitverdict.kernels import ampere_gemm
from bitverdict.reference import tensor_core

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


REPAIRS = (
    ("a barrier of the cluster before it ends", "ret;", "barrier.cluster.arrive; barrier.cluster.wait; ret;"),
    ("a proxy fence behind stmatrix", "bar.sync ", "fence.proxy.async.shared::cta; bar.sync "),
    ("a wait for its last store", "ret;", "cp.async.bulk.wait_group.read 0; ret;"),
)


def run_hopper_gemm(text: str, m: int, n: int, k: int) -> tuple[int, int]:
    """Words of C (n, m) in bf16, and how many are another than expected. EmulatedFault for a race."""
    from pyptx.examples.hopper import gemm_highperf_hopper as gemm

    import bitverdict as bv

    drawn = torch.Generator().manual_seed(0)
    a, b = ((0.1 * torch.randn(shape, generator=drawn)).bfloat16() for shape in ((m, k), (n, k)))
    c, schedule = torch.empty(n, m, dtype=torch.bfloat16), torch.from_numpy(gemm.create_hilbert_schedule(m // 256, n // 256))

    def box(x: torch.Tensor, sizes: list[int], swizzle: int) -> TensorDescriptor:
        """A matrix as 64 columns, rows, groups of columns, as pyptx makes its tensor maps."""
        view = x.view(x.shape[0], -1, 64).transpose(0, 1)  # (columns / 64, rows, 64)
        layout = gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=16, rank=3)
        descriptor = TensorDescriptor.from_tensor(view, [1, 64, 64], layout)
        descriptor.block_shape = sizes  # Gluon takes powers of two, and a row of C has 8 columns more
        return descriptor

    boxes = box(a, [1, 128, 64], 128), box(b, [1, 256, 64], 128), box(c, [1, 256, 72], 0)
    kernel = gemm.gemm_warp_specialized
    with bv.emulated("sm_90"):
        run = bv.ptx_kernel(text, shared_bytes=kernel._smem)[kernel.grid, kernel.block]
        run(a, b, schedule, c, m, n, k, *boxes)
    codes = [each.view(torch.int16).numpy().view(np.uint16) for each in (a, b)]
    sums = tensor_core.product(tensor_core.instruction("sm_90", "wgmma", "bf16", "bf16", "fp32"), codes[0], codes[1].T)
    expected = torch.from_numpy(sums.view(np.float32)).bfloat16().T
    return c.numel(), int((c.view(torch.int16) != expected.contiguous().view(torch.int16)).sum())


BLACKWELL_REPAIRS = (
    (
        "a commit that frees its buffer",
        r"mbarrier\.arrive\.shared\.b64 [^,]*, (\[[^]]*\]);",
        r"tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 \1;",
    ),
    ("a barrier before it frees its columns", r"tcgen05\.wait::ld\.sync\.aligned;", "tcgen05.wait::ld.sync.aligned; bar.sync 0;"),
)


def run_blackwell_gemm(text: str, m: int, n: int, k: int) -> tuple[int, int]:
    """As `run_hopper_gemm`, of C (m, n) in fp32."""
    from pyptx.examples.blackwell import gemm_highperf_blackwell as gemm

    import bitverdict as bv

    drawn = torch.Generator().manual_seed(0)
    a, b = ((0.1 * torch.randn(shape, generator=drawn)).bfloat16() for shape in ((m, k), (n, k)))
    c, kernel = torch.zeros(m, n), gemm.build_gemm(m, n, k)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    boxes = [TensorDescriptor.from_tensor(x, [rows, gemm.BK], layout) for x, rows in ((a, gemm.BM), (b, gemm.BN))]
    with bv.emulated("sm_100"):
        bv.ptx_kernel(text, shared_bytes=kernel._smem)[kernel.grid, kernel.block](a, b, c, *boxes)
    codes = [each.view(torch.int16).numpy().view(np.uint16) for each in (a, b)]
    expected = tensor_core.product(tensor_core.instruction("sm_100", "tcgen05", "bf16", "bf16", "fp32"), codes[0], codes[1].T)
    return c.numel(), int((c.numpy().view(np.uint32) != expected).sum())


def judge_gemm(
    name: str, text: str, repairs: Sequence[tuple[str, str, str]], run: Callable[..., tuple[int, int]], sizes: tuple[int, int, int]
) -> bool:
    """Whether the PTX `text` is right once it is repaired; each fault that it has is printed."""
    said = "as it is"
    for repair, before, after in (*repairs, ("", "", "")):
        try:
            words, differ = run(text, *sizes)
        except EmulatedFault as fault:
            print(f"{name} GEMM {said}: {fault} (line {fault.details['PTX line']} of the PTX)", flush=True)
            if not repair:
                return False
            text, said = re.sub(before, after, text), f"with {repair}"
            continue
        print(f"{name} GEMM {said}, {'x'.join(map(str, sizes))}: {words:,} words, {differ} differ", flush=True)
        return not differ
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", default="", metavar="DIR", help="a folder in which pyptx is installed")
    parser.add_argument("--largest", type=int, default=1024, metavar="N", help="the largest size of document 001 (default 1024)")
    parser.add_argument("--blackwell", action="store_true", help="its Blackwell GEMM too, on an emulated sm_100")
    parser.add_argument("--hopper", action="store_true", help="its Hopper GEMM too, on an emulated sm_90")
    arguments = parser.parse_args()
    install(arguments.package)
    chip, failed = target("emulated:sm_80"), 0
    if arguments.hopper:
        from pyptx.examples.hopper.gemm_highperf_hopper import gemm_warp_specialized

        failed += not judge_gemm("Hopper", gemm_warp_specialized.ptx(), REPAIRS, run_hopper_gemm, (512, 512, 256))
    if arguments.blackwell:
        from pyptx.examples.blackwell.gemm_highperf_blackwell import build_gemm

        sizes = 128, 256, 384
        failed += not judge_gemm("Blackwell", build_gemm(*sizes).ptx(), BLACKWELL_REPAIRS, run_blackwell_gemm, sizes)
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
