"""Words of our row kernels, attention and blockwise products: plan, emulated GPU and a real one, over many words of each.

    python -m benchmarks.kernel_words --device cuda:0 [--words 10000000] [--jobs 14] [KERNEL ...]
    python -m benchmarks.kernel_words --words 100000                      without a GPU: plan and emulated sm_90

Each case is judged by its contract, which compares every word of the plan, on the device and on the emulated GPU of its
architecture. So 0 that fail means that the three agree. Types, configurations, regimes and operands change from case to case.
Exit status 1 where a case does not pass.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from typing import Any

from benchmarks.campaign import Option, parse, refuse, run_script

Fields = dict[str, Any]
FLOATS = ("fp32", "fp16", "bf16")
LEAST = 1 << 14  # words of a case that `--words` asks for by few


@dataclass(frozen=True)
class Part:
    """What came of one case on one target."""

    kernel: str
    target: str
    decision: str
    words: int
    seconds: float
    said: str = ""


def asked(kernel: str, number: int, share: float) -> tuple[Fields, Fields]:
    """Problem and configuration of case `number`, a million words or so where `share` is 1."""
    dtype, odd = FLOATS[number % 3], 3 * number + 1
    rows = max(int(1000 * share), 3) + number % 5
    matrix = {"rows": rows, "columns": 1200 + odd, "dtype": dtype}
    if kernel in ("softmax", "rms_norm"):
        return matrix, {"per_thread": (4, 8, 2)[number % 3], "num_warps": (4, 2, 8)[number % 3]}
    if kernel == "swiglu":
        return matrix, {"block": (1024, 512)[number % 2]}
    if kernel == "dropout":
        return matrix | {"p": (0.1, 0.5, 0.9)[number % 3], "key": odd}, {"block": (1024, 512)[number % 2]}
    if kernel == "cross_entropy":
        return matrix | {"smoothing": (0.0, 0.1)[number % 2]}, {"block": (2048, 512)[number % 2]}
    if kernel == "quantize_mxfp":
        return matrix | {"format": ("mxfp4", "mxfp8_e4m3", "mxfp8_e5m2", "nvfp4")[number % 4]}, {}
    if kernel == "rope":
        return {"positions": rows, "heads": 8 + number % 3, "columns": 128, "dtype": dtype}, {}
    m, n, k = max(int(640 * share), 17) + number, 1250 + odd, 200 + 17 * (number % 5)
    if kernel == "fp8_blockwise_matmul":
        return {"m": m, "n": n, "k": k, "out": dtype}, {"block_n": (64, 128)[number % 2]}
    dtype = ("fp16", "bf16")[number % 2]
    if kernel == "split_k_matmul":
        return {"m": m, "n": n - n % 8, "k": k - k % 8, "dtype": dtype, "out": dtype}, {"split": (2, 4)[number % 2]}
    if kernel == "grouped_matmul":
        return {"sizes": ((m, n // 2, k), (1, 7, 3), (n // 2, m, 64)), "dtype": dtype, "out": dtype}, {}
    heads = {"batch": max(int(8 * share), 1), "heads": 8, "kv_heads": 2, "m": 100 + odd, "n": 90 + odd, "d": 64}
    return heads | {"dtype": dtype, "causal": number % 4 < 2, "backward": number % 2 == 0}, {"block_m": 64, "num_warps": 4}


KERNELS = ("attention", "fp8_blockwise_matmul", "split_k_matmul", "grouped_matmul", "cross_entropy", "quantize_mxfp", "rms_norm",
           "softmax", "swiglu", "dropout", "rope")  # fmt: skip


def judged(kernel: str, number: int, share: float, device: str) -> list[Part]:
    """Case `number` of `kernel` on `device` (where there is one) and on the emulated GPU of its architecture."""
    from bitverdict.harness.judge.judge import judge
    from bitverdict.harness.model.addresses import resolve
    from bitverdict.harness.model.targets import target

    contract = resolve(kernel)
    problem, config = asked(kernel, number, share)
    case = contract.case(problem, config, regime=contract.regime(number), data_seed=number)
    here = [target(device)] if device else []
    found = []
    for where in (*here, target(f"emulated:{here[0].arch if here else 'sm_90'}")):
        begun = time.perf_counter()
        verdict = judge(case, where, contract)
        said = "" if str(verdict.decision) == "pass" else f"{case.problem} {case.config}: {verdict.message}"
        found.append(Part(kernel, where.name, str(verdict.decision), verdict.words, time.perf_counter() - begun, said))
    return found


def run(kernels: list[str], words: int, device: str, jobs: int) -> Iterator[Part]:
    """Cases of each kernel, until each has `words` words on each target or a case that does not pass."""
    share = min(max(words, LEAST) / 1_000_000, 1.0)
    numbers, had = {kernel: count() for kernel in kernels}, dict.fromkeys(kernels, 0)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:

        def next_of(kernel: str) -> Future[list[Part]]:
            return pool.submit(judged, kernel, next(numbers[kernel]), share, device)

        waiting = {next_of(kernel) for kernel in kernels for _ in range(max(words // 1_500_000, 1))}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for parts in (each.result() for each in done):
                yield from parts
                kernel, passed = parts[0].kernel, all(part.decision == "pass" and part.words for part in parts)
                had[kernel] = had[kernel] + parts[0].words if passed else words
                if had[kernel] < words:
                    waiting.add(next_of(kernel))


def main() -> int:
    given = parse(__doc__, "kernels*", device="", words=Option(10_000_000, "of each kernel"), jobs=2)
    if unknown := set(given.kernels) - set(KERNELS):
        refuse(f"{', '.join(sorted(unknown))}: must be of {', '.join(KERNELS)}")
    begun, failed, total = time.perf_counter(), 0, Counter[tuple[str, str]]()
    for part in run(given.kernels or list(KERNELS), given.words, given.device, given.jobs):
        total[part.kernel, part.target] += part.words
        failed += part.decision != "pass"
        print(
            f"[{time.perf_counter() - begun:6.1f} s] {part.kernel} {part.target}: {part.decision}, {part.words:,} words", part.said
        )
    print()
    for (kernel, where), words in sorted(total.items()):
        print(f"{kernel:24} {where:16} {words:>12,} words")
    print(f"{failed} cases do not pass; {time.perf_counter() - begun:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    run_script(main)
