"""`split_k_matmul` beside tiles that are not split, at small sizes: why `matmul` has none (docs/benchmarks.md).

    python -m benchmarks.split_k --out DIR        about a minute on an H100; writes DIR/split_k.json

    part s of C = sum over the K blocks of share s of A @ B, fp32        C = fp16(part 0 + part 1 + ...), added in this order

A share is ceil(K blocks / split) blocks. "second kernel": another launch adds the parts. "last program": the last program to
arrive at a tile, by an atomic counter, adds them. Their words are the same. A, B, C: fp16 (m, k), (k, n), (m, n), contiguous;
k and n multiples of 8, as tensor maps need; split at least 1. Each call is timed through one CUDA graph, in turns with cuBLAS.
Exit status 1 when a word of the two forms differs, 2 without a GPU.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.campaign import Option, parse, run_script, write

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import torch

from benchmarks.throughput import driver_versions, times_of
from benchmarks.throughput_rows import GRAPH, size_of
from bitverdict.kernels.split_k_matmul import Config, split_k_matmul, workspace

SIZES = ("1024", "2048", "512x512x16384")
SPLITS = ((128, 128, 64, 4, 2), (128, 128, 64, 8, 4), (128, 256, 64, 8, 2), (128, 128, 64, 8, 8))  # tile, warps, split
WHOLE = (
    (64, 128, 128, 4, 4),
    (128, 64, 64, 4, 6),
    (128, 128, 64, 4, 3),
    (128, 256, 64, 8, 3),
    (64, 64, 128, 4, 5),
)  # tile, warps, stages
STAGES = 4  # of a split tile


def split_matmul(
    a: torch.Tensor, b: torch.Tensor, *, tile: tuple[int, int, int], num_warps: int, split: int, last_adds: bool
) -> torch.Tensor:
    """C by `kernels/split_k_matmul.py`. The parts and the counters of one shape are kept for the next call."""
    config = Config(**dict(zip(("block_m", "block_n", "block_k"), tile, strict=True)), num_warps=num_warps, split=split,
                    reduction="last program" if last_adds else "second kernel", stages=STAGES)  # fmt: skip
    return split_k_matmul(a, b, config=config, room=_room(a.shape[0], b.shape[1], config, a.device))


_room = functools.cache(workspace)


def calls(a: torch.Tensor, b: torch.Tensor) -> dict[tuple[str, str], Callable[[], Any]]:
    """(form, configuration) -> the call that is timed."""
    from bitverdict.kernels.matmul import Config as Tile
    from bitverdict.kernels.matmul import matmul_configured

    made: dict[tuple[str, str], Callable[[], Any]] = {}
    for block_m, block_n, block_k, warps, stages in WHOLE:
        config = Tile(block_m=block_m, block_n=block_n, block_k=block_k, num_warps=warps, num_stages=stages, loads="descriptors")
        made["not split", config.name] = functools.partial(matmul_configured, a, b, "", None, config)
    for *tile, warps, split in SPLITS:
        shown = f"{'x'.join(map(str, tile))} w{warps} s{STAGES} split {split}"
        for last in (False, True):
            call = functools.partial(split_matmul, a, b, tile=tuple(tile), num_warps=warps, split=split, last_adds=last)
            made["last program" if last else "second kernel", shown] = call
    return made


def measured(size: str, hardware: Any, rounds: int, seconds: float) -> list[dict]:
    """Rows of one size: the configurations of each form, fastest first. `ratio`: of cuBLAS, of the medians."""
    m, n, k = size_of(size)
    generator = torch.Generator(device="cuda").manual_seed(1)
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16, generator=generator) for shape in ((m, k), (k, n)))
    rows, refused = [], {}
    for (form, config), call in calls(a, b).items():
        taken: dict[bool, list[float]] = {True: [], False: []}
        try:
            call()
            for _ in range(rounds):
                for is_peer, each in ((True, lambda: torch.matmul(a, b)), (False, call)):
                    taken[is_peer] += times_of(each, hardware, seconds, GRAPH)
        except Exception as error:  # out of resources, for one: told, and the others are timed
            refused[f"{form} {config}"] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            continue
        ms, peer = (statistics.median(taken[is_peer]) for is_peer in (False, True))
        rows.append({"size": size, "form": form, "config": config, "us": round(1e3 * ms, 2),
                     "tflops": round(2.0 * m * n * k / ms / 1e9, 1), "ratio": round(peer / ms, 3)})  # fmt: skip
    print(*(f"{size} {what}: {why}" for what, why in refused.items()), sep="\n")
    return sorted(rows, key=lambda row: (row["form"], row["us"]))


def differing(a: torch.Tensor, b: torch.Tensor, repeats: int) -> int:
    """Words in which the two forms differ, in `repeats` launches of each split."""
    wrong = 0
    for *tile, warps, split in SPLITS:
        ask = functools.partial(split_matmul, a, b, tile=tuple(tile), num_warps=warps, split=split)
        by_second = ask(last_adds=False)
        wrong += sum(int((by_second.view(torch.int16) != ask(last_adds=True).view(torch.int16)).sum()) for _ in range(repeats))
    return wrong


def main(arguments: list[str] | None = None) -> int:
    given = parse(
        __doc__, argv=arguments, out=Path(".bitverdict/benchmarks"), sizes=Option(SIZES, "N for a cube, or MxNxK"), rounds=2,
        seconds=Option(0.02, "of one turn's graph, which is replayed ten times"),
    )  # fmt: skip
    from bitverdict.harness.model.targets import target
    from bitverdict.harness.session.reproducers import versions

    try:
        hardware = target("cuda:0")
    except ValueError as error:
        print(f"{error}; this benchmark times launches and needs a CUDA GPU")
        return 2
    rows = [row for size in given.sizes for row in measured(size, hardware, given.rounds, given.seconds)]
    a, b = (torch.randn((512, 512), device="cuda", dtype=torch.float16) for _ in "ab")
    told = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "command": "python -m benchmarks.split_k " + " ".join(sys.argv[1:]),
            "model": hardware.model, "versions": versions() | driver_versions(), "rows": rows,
            "differ": differing(a, b, 50)}  # fmt: skip
    write(given.out / "split_k.json", told)
    for row in rows:
        print(f"{row['size']} {row['form']} {row['config']}: {row['us']} us, {row['ratio']:.3f} of cuBLAS")
    print(f"words in which the two forms differ: {told['differ']}")
    return 1 if told["differ"] else 0


if __name__ == "__main__":
    run_script(main)
