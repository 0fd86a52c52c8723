"""Document 001's own kernel, from its own source: executed as PTX and judged by the contract of `ampere_gemm`.

    python -m benchmarks.pyptx_kernels [--package DIR] [--largest N] [--hopper] [--blackwell] [--examples]

pyptx is installed by pip into a folder of its own, which DIR names where it is there already. The kernel emits its PTX without a
GPU; what a GPU would be handed is launched by `bv.ptx_kernel` on an emulated sm_80, in place of the shipped kernel. The contract
draws the document's operands (0.1 randn in bf16), and each word must be that of one chain of mma.sync over all of K.

--hopper: pyptx's `gemm_warp_specialized` too, on an emulated sm_90: clusters of two CTAs, multicast, a persistent producer. It is
launched as it is, then with each of `REPAIRS` in turn, until its words are those of one chain of wgmma over all of K. --blackwell:
`build_gemm` likewise, on an emulated sm_100, of tcgen05. --examples: pyptx's other examples, called as with torch on a GPU, and
held to their own references; each is launched as it is, then with the repairs of what is found.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
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
    return c.numel(), differing_words(c, a, b)


def differing_words(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> int:
    """Words of c (m, n) in fp32 that are not those of one chain of tcgen05 over all of a (m, k) and b (n, k) in bf16."""
    codes = [each.cpu().view(torch.int16).numpy().view(np.uint16) for each in (a, b)]
    expected = tensor_core.product(tensor_core.instruction("sm_100", "tcgen05", "bf16", "bf16", "fp32"), codes[0], codes[1].T)
    return int((c.cpu().numpy().view(np.uint32) != expected).sum())


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


EXAMPLE_REPAIRS = (
    ("a proxy fence behind its stores", r"no fence\.proxy\.async", r"bar\.sync ", "fence.proxy.async.shared::cta; bar.sync "),
    ("a commit that frees its buffer", "a tcgen05.mma in flight reads", *BLACKWELL_REPAIRS[0][1:]),
    ("a barrier before it frees its columns", "frees column", *BLACKWELL_REPAIRS[1][1:]),
    ("the parity that it has to wait for", "deadlock", r"(try_wait\.parity\S* %p\d+, \[%r\d+\]), 1;", r"\1, 0;"),
    ("one address a warp", "a warp reaches one address", "2031616", "0"),
    ("a wait for its load", "a tcgen05.ld in flight", r"(tcgen05\.ld[^;]*;)", r"\1 tcgen05.wait::ld.sync.aligned;"),
    (
        "an mbarrier that ends before the next one",
        "a barrier lives already",
        r"(?s)(mbarrier\.init.*?)(mbarrier\.init\S* \[(%r\d+)\], 1;)",
        r"\1mbarrier.inval.shared::cta.b64 [\3]; \2",
    ),
    ("a place of its own for P", "race", r"mov\.b32 %r22, dyn_smem;", "mov.b32 %r22, dyn_smem; add.u32 %r22, %r22, 49152;"),
)
"""What is found of a text, and what mends it. The last is of `flash_attention_hopper`, which stores P over the first tile of Q."""

TORCH, SMALL = "_run_torch_case", {"swiglu": (16, 512), "rms_norm": (8, 512), "softmax": (8, 512), "layer_norm": (8, 512)}
EXAMPLES: tuple[tuple[str, str, str, tuple[int, ...], str], ...] = (
    *(("sm_80", f"ampere.{name}", TORCH, sizes, "OK") for name, sizes in SMALL.items()),
    ("sm_80", "ampere.gemm", TORCH, (64, 32, 64), "OK"),
    ("sm_80", "ampere.gemm_highperf_ampere", TORCH, (256, 256, 128), "OK"),
    *(("sm_90", f"hopper.{name}", TORCH, sizes, "OK") for name, sizes in SMALL.items()),
    ("sm_90", "hopper.grouped_gemm", "run_torch", (2, 128, 64, 64), "OK"),
    ("sm_90", "hopper.experimental.flash_attention_hopper", TORCH, (128, 128, 64), "OK"),
    ("sm_90", "hopper.experimental.flash_attention_parallel", TORCH, (64, 32), "OK"),
    ("sm_90", "hopper.experimental.flash_attention_wgmma_kloop", TORCH, (32,), "OK"),
    *(("sm_100", f"blackwell.{name}", TORCH, sizes, "OK") for name, sizes in SMALL.items() if name != "softmax"),
    ("sm_100", "blackwell.grouped_gemm", "run_torch", (2, 128, 64, 64), "OK"),
    ("sm_100", "blackwell.gemm_highperf_blackwell", "run_torch_2sm", (256, 256, 256), "OK"),
    ("sm_100", "blackwell.gemm_experimental_blackwell", "build_gemm_no_tma_debug", (128, 256, 64), "OK"),
    ("sm_100", "blackwell.tcgen05_roundtrip", "run_torch", (), r"\[ 1\.,  2\.,  3\., .*16\.\]"),
    ("sm_100", "blackwell.tcgen05_mma_probe", "run_torch", (), r"max_abs_to_16 0\.0"),
    ("sm_100", "blackwell.tcgen05_accum_probe", "run_torch_sweep", (), "num_mmas=4 got=64.0"),
    ("sm_100", "blackwell.tcgen05_ld_register_probe", "run", (), r"\[x64\] row0 vals \[1\.0, 2\.0, .*63\.0, 64\.0\]"),
    ("sm_100", "blackwell.tcgen05_epilogue_partition_probe", "run", (), r"col0 vals \[1\.0, 2\.0, .*32\.0\]"),
)
"""Chip, module, the function that runs it or builds it, sizes, and what is printed where it is right. Left out: `tcgen05_smoke`,
which multiplies what it never wrote, with the suite that begins with it; `tcgen05_ld_phase_probe`, whose tcgen05.shift is refused;
and `build_gemm_persistent`, which nothing runs, and whose 256 threads load 256 lanes of tensor memory, which has 128."""


def box_of(tensor: torch.Tensor, spec: Any) -> TensorDescriptor:
    """The tensor map that pyptx makes of a tensor of a `Tile`."""
    swizzle, size = {"TMA_128B": 128, "TMA_64B": 64, "TMA_32B": 32}.get(spec.layout.name, 0), tensor.element_size()
    sizes = [min(each, length) for each, length in zip(spec.tma_box or (128, (swizzle or 128) // size), tensor.shape, strict=True)]
    layout = gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=8 * size, rank=2)
    return TensorDescriptor.from_tensor(tensor, sizes, layout)


def called_with_torch(kernel: Any, *tensors: torch.Tensor) -> torch.Tensor:
    """In the place of a pyptx kernel's own call: its launch on the emulated GPU that is active, repaired where that is needed."""
    from pyptx.kernel import emit

    import bitverdict as bv

    sizes = {
        name: size
        for tensor, spec in zip(tensors, kernel.in_specs, strict=True)
        for name, size in spec.extract_env(tensor.shape).items()
    }
    out = torch.empty(kernel.out_specs[0].resolve_shape(sizes), dtype=torch.float32, device="cuda")
    text = emit(kernel._trace(_shape_env=sizes, **kernel.template_params))
    named = dict(
        zip(kernel._positional_names, zip((*tensors, out), (*kernel.in_specs, *kernel.out_specs), strict=True), strict=True)
    )
    names = re.findall(r"(\w+)\s*[,)]", re.search(r"\.entry\s+\w+\s*(\(.*?\))", text, re.S)[1])  # type: ignore[index]
    maps = {f"{name}_tma_desc": pair for name, pair in named.items()}
    values = [box_of(*maps[name]) if name in maps else named[name][0] for name in names]
    shared = max(kernel.smem, kernel._last_trace_smem) if ".extern" in text else 0
    repairs = list(EXAMPLE_REPAIRS)
    while True:
        try:
            bv.ptx_kernel(text, shared_bytes=shared)[kernel._resolve_grid(sizes), kernel.block](*values)
        except EmulatedFault as fault:
            repair = next((each for each in repairs if re.search(each[1], str(fault)) and re.search(each[2], text)), None)
            if repair is None:
                raise
            repairs.remove(repair)
            print(
                f"    {str(fault).partition(':')[0]} (line {fault.details['PTX line']} of the PTX): with {repair[0]}",
                file=sys.stderr,
            )
            text = re.sub(repair[2], repair[3], text)
        else:
            return out


def run_built(build: Any, m: int, n: int, k: int) -> None:
    """A GEMM that has no run of its own: each word is that of one chain of tcgen05 over A (m, k) and B (n, k) in bf16."""
    drawn = torch.Generator().manual_seed(0)
    a, b = ((0.1 * torch.randn(shape, generator=drawn)).bfloat16().to("cuda") for shape in ((m, k), (n, k)))
    differing = differing_words(build(m, n, k)(a, b), a, b)
    print(f"{differing} words differ" if differing else "OK")


def run_examples() -> int:
    """How many of `EXAMPLES` are not right."""
    import jax
    from pyptx.kernel import Kernel

    import bitverdict as bv

    jax.jit, Kernel.__call__, failed = (lambda function: function), called_with_torch, 0
    for chip, name, function, sizes, expected in EXAMPLES:
        said = io.StringIO()
        try:
            with bv.emulated(chip), contextlib.redirect_stdout(said):
                module = importlib.import_module(f"pyptx.examples.{name}")
                run = getattr(module, function)
                run_built(run, *sizes) if function.startswith("build") else run(*sizes)
            right = bool(re.search(expected, said.getvalue(), re.S))
            outcome = "right by its own reference" if right else f"wrong: {' '.join(said.getvalue().split())[:100]}"
        except Exception as error:
            right, outcome = False, f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        failed += not right
        print(f"{name}.{function} on {chip}, {'x'.join(map(str, sizes)) or 'as it is'}: {outcome}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", default="", metavar="DIR", help="a folder in which pyptx is installed")
    parser.add_argument("--largest", type=int, default=1024, metavar="N", help="the largest size of document 001 (default 1024)")
    parser.add_argument("--blackwell", action="store_true", help="its Blackwell GEMM too, on an emulated sm_100")
    parser.add_argument("--examples", action="store_true", help="its other examples too, by their own references")
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
    if arguments.examples:
        failed += run_examples()
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
