"""fp64 `mma.sync` against MMA-Sim: our chain of fused multiply-adds (`reference/scalar_arithmetic/fp64.py`).

    python -m benchmarks.mma_sim_doubles [--words N]      # 2^20 words of each form; exit status 1 where a word differs

A word is compared bit for bit; any NaN equals any, because MMA-Sim's is the host's. Operands go round four menus: any words,
near 1, far apart, and cancelling.
"""

from __future__ import annotations

import numpy as np

from benchmarks.campaign import parse, run_script
from bitverdict.reference.scalar_arithmetic import fp64

FORMS = (
    ("sm_80", "Ampere", "m8n8k4", 4),
    ("sm_90", "Hopper", "m16n8k4", 4),
    ("sm_90", "Hopper", "m16n8k8", 8),
    ("sm_90", "Hopper", "m16n8k16", 16),
)
AT_ONCE = 1 << 14


def operands(k: int, rows: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a, b (rows, k) and c (rows,), float64. Row r takes menu r mod 4."""
    menu = np.arange(rows) % 4
    a, b = draw.normal(size=(2, rows, k))
    far = np.ldexp(draw.normal(size=(2, rows, k)), draw.integers(-560, 530, (2, rows, k)))
    words = draw.integers(0, 1 << 64, (2, rows, k), dtype=np.uint64).view(np.float64)
    a, b = (np.where((menu == 0)[:, None], any_, np.where((menu == 2)[:, None], wide, near)) for any_, wide, near in zip(
        words, far, (a, b), strict=True
    ))  # fmt: skip
    with np.errstate(all="ignore"):
        c = -(a * b).sum(axis=1) * draw.choice([1.0, 1.0 + 2.0**-52, 2.0**-30, 0.0], rows)
    return a, b, np.where(menu == 1, draw.normal(size=rows), c)


def differing(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Words that differ, any NaN taken for any."""
    return int(((ours.view(np.uint64) != theirs.view(np.uint64)) & ~(np.isnan(ours) & np.isnan(theirs))).sum())


def ours(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """d (rows,), as `harness/emulator/numerics/matrix_products.py:double_product` chains it."""
    for k in range(a.shape[1]):
        c = fp64.fma(a[:, k], b[:, k], c)
    return c


def main(arguments: list[str] | None = None) -> int:
    given = parse(__doc__, argv=arguments, words=1 << 20, data_seed=1)
    import torch
    from mmasim import nv_ptx

    print("| instruction | words | differ |\n| --- | --- | --- |")
    worst = 0
    for arch, theirs, shape, k in FORMS:
        operation = nv_ptx.MMA(theirs, f"{shape}.f64.f64.f64.f64")
        draw, wrong = np.random.default_rng([given.data_seed, k]), 0
        for start in range(0, given.words, AT_ONCE):
            a, b, c = operands(k, min(AT_ONCE, given.words - start), draw)
            wrong += differing(ours(a, b, c), operation.dpa(*map(torch.from_numpy, (a, b, c))).numpy())
        print(f"| {arch} mma.sync fp64 {shape} | {given.words:,} | {wrong:,} |", flush=True)
        worst = max(worst, wrong)
    return int(worst > 0)


if __name__ == "__main__":
    run_script(main)
