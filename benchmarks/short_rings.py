"""Wrong words of a product whose tile registers read too: triton 6691, a fault of the compiler that docs/emulator.md describes.

    python -m benchmarks.short_rings [--target cuda:0] [--programs 264] [--launches 5] [--depth 2048]

Each program of a launch multiplies the same integers, so every word is known. It prints how many words of fp32 are others,
by form and number of stages. An emulated target names the hazard instead.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

from benchmarks.campaign import parse, run_script
from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.model.targets import target

SHAPES = ((128, 256, 64, 8), (128, 128, 64, 4), (64, 256, 64, 4), (64, 64, 128, 4))  # m, n, block_k, warps
FORMS = ("before", "behind", "again", "alone")


@triton.jit
def sum_and_multiply(
    a, b, out, sums, steps, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, FORM: tl.constexpr, DESCRIBED: tl.constexpr
):
    """`out`, (programs, M, N), is a @ b; `sums`, (programs, M), are those of a's rows: of the tile that is multiplied, ahead of the
    product or behind it, or of one that is loaded again. `a` is a tensor descriptor, or a pointer to rows."""
    program, m, n = tl.program_id(0), tl.arange(0, M), tl.arange(0, N)
    product, rows = tl.zeros((M, N), tl.float32), tl.zeros((M,), tl.float32)
    for step in range(steps):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        if DESCRIBED:
            tile = a.load([0, step * BLOCK_K])
        else:
            tile = tl.load(a + m[:, None] * (steps * BLOCK_K) + k[None, :])
        if FORM == "before":
            rows += tl.sum(tile.to(tl.float32), 1)
        product += tl.dot(tile, tl.load(b + k[:, None] * N + n[None, :]))
        if FORM == "behind":
            rows += tl.sum(tile.to(tl.float32), 1)
        if FORM == "again":
            again = tl.load(a + m[:, None] * (steps * BLOCK_K) + k[None, :], eviction_policy="evict_first")
            rows += tl.sum(again.to(tl.float32), 1)
    tl.store(out + (program * M + m)[:, None] * N + n[None, :], product)
    tl.store(sums + program * M + m, rows)


def main() -> int:
    given = parse(__doc__, target="cuda:0", programs=264, launches=5, depth=2048)
    machine = target(given.target)
    with emulated(machine.arch) if machine.emulated else nullcontext():
        where = given.target if machine.emulated else torch.cuda.get_device_name(given.target)
        print(
            f"| form, Triton {triton.__version__}, {where} | "
            + " | ".join(f"num_stages={stages}" for stages in (1, 2, 3, 4))
            + " |"
        )
        print("| --- |" + " --- |" * 4)
        for (m, n, block_k, warps), form in ((shape, form) for shape in SHAPES for form in FORMS):
            a, b = (
                torch.randint(-3, 4, size, generator=torch.Generator().manual_seed(0)).half()
                for size in ((m, given.depth), (given.depth, n))
            )
            expected, left, right = (a.float() @ b.float()).cuda(), a.cuda(), b.cuda()
            cells = []
            for stages in (1, 2, 3, 4):
                wrong = words = 0
                try:
                    for _ in range(given.launches):
                        out, sums = (torch.zeros(given.programs, *size, device="cuda") for size in ((m, n), (m,)))
                        sum_and_multiply[(given.programs,)](
                            left,
                            right,
                            out,
                            sums,
                            given.depth // block_k,
                            m,
                            n,
                            block_k,
                            form,
                            False,
                            num_warps=warps,
                            num_stages=stages,
                        )
                        wrong, words = wrong + int((out != expected).sum()), words + out.numel()
                    cells.append(f"{wrong:,} of {words:,}")
                except EmulatedFault as fault:
                    cells.append(f"{fault.outcome} {fault.details.get('made by', '').partition(':')[0]}".strip())
            print(f"| {form} {m} x {n}, K in blocks of {block_k}, {warps} warps | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    run_script(main)
