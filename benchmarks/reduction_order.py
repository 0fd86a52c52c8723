"""Reductions and scans of drawn shapes, layouts and types on the emulated GPU, held to their PTX or to a real GPU.

    python benchmarks/reduction_order.py [--cases 150] [--seed 0] [--arch sm_90]
    python benchmarks/reduction_order.py --device cuda:0 [--cases 100] [--jobs 12] [--words 16384]

Without a device each case is one program, and its PTX is executed for all threads. With one, emulated sm_90 words are held to those
of the device, `--words` a case. Exit status 1 where a word differs. A case that is refused is counted by its reason.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.advice import Advice
from bitverdict.harness.emulator.frontend.lowerings import reductions
from tests.support import reduction_kernels as kernels
from tests.support.reduction_words import as_bytes, both_ways, drawn

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
REDUCTIONS = ("sum", "product", "dot", "less", "largest")
SCANS = ("cumsum", "reverse", "cumprod", "decayed", "normalised", "less dot")  # as many words as elements
TYPES = (torch.float32, torch.float32, torch.float32, torch.float16, torch.bfloat16)
LARGEST = 4096  # elements of a tile: PTX is executed by exact rationals


@dataclass(frozen=True)
class Case:
    kind: str
    rows: int
    columns: int
    axis: int
    dtype: torch.dtype
    warps: int
    fused: bool
    seed: int
    arch: str

    @classmethod
    def draw(cls, generator: random.Random, arch: str | None) -> Case:
        kind = generator.choice(REDUCTIONS + SCANS)
        rows, columns = 1 << generator.randrange(8), 1 << generator.randrange(11)
        while rows * columns > LARGEST:
            rows, columns = max(rows // 2, 1), max(columns // 2, 1)
        axis, dtype, warps = generator.randrange(2), generator.choice(TYPES), generator.choice((1, 2, 4, 8))
        dtype = torch.float32 if kind == "normalised" else dtype  # correctly rounded division and root are of fp32
        chosen = generator.choice(ARCHITECTURES)
        return cls(kind, rows, columns, axis, dtype, warps, generator.random() < 0.8, generator.randrange(1 << 30), arch or chosen)

    def __str__(self) -> str:
        name = f"{self.kind} {self.rows}x{self.columns} axis {self.axis} {self.dtype} {self.arch} {self.warps} warps"
        return name if self.fused else name + " without fusion"

    @property
    def left(self) -> int:
        """Words that one program stores."""
        return self.rows * self.columns if self.kind in SCANS else (self.columns if self.axis == 0 else self.rows)

    def tensors(self, programs: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        shape = (programs, self.rows, self.columns)
        x, y = drawn(shape, self.dtype, self.seed), drawn(shape, self.dtype, self.seed + 1)
        if self.kind in ("product", "cumprod"):
            x = (1 + x.double() / 64).to(self.dtype)
        if self.kind == "normalised":
            y = y.abs()
        return x, y, torch.zeros(programs * self.left, dtype=self.dtype)

    def constants(self) -> dict[str, int | str]:
        return {"ROWS": self.rows, "COLUMNS": self.columns, "AXIS": self.axis, "KIND": self.kind}

    def launch(self, tensors: tuple[torch.Tensor, ...], programs: int) -> torch.Tensor:
        options = {"num_warps": self.warps, "enable_fp_fusion": self.fused}
        kernels.fold[(programs,)](*tensors, **self.constants(), **options)
        return tensors[-1]


def by_ptx(case: Case) -> tuple[int, int]:
    """Words compared, and words that differ."""
    x, y, out = case.tensors(1)
    found = both_ways(kernels.fold, [x[0], y[0]], [out], case.constants(), case.arch, case.warps, enable_fp_fusion=case.fused)
    return out.numel(), found.differing


def on_the_emulator(case: Case, programs: int) -> tuple[list[bytes], str]:
    """The words of all programs, and why the case is refused. Two versions where lanes store different words to one place: that of
    the last lane, then that of the first."""
    warnings.simplefilter("ignore")
    found: list[bytes] = []
    for lane in (-1, 0):
        reductions.STORED_LANE = lane
        try:
            with emulated(case.arch) as device:
                found.append(as_bytes(case.launch(case.tensors(programs), programs)).tobytes())
                if not any(Advice.LANES_DIFFER.value in each for each in device.advice):
                    return found, ""
        except EmulatedFault as error:
            return [], str(error).partition(" [")[0]
    return found, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arch", choices=ARCHITECTURES)
    parser.add_argument("--device")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--words", type=int, default=1 << 14)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    generator = random.Random(options.seed)
    cases = [Case.draw(generator, "sm_90" if options.device else options.arch) for _ in range(options.cases)]
    return held_to_the_device(cases, options) if options.device else held_to_the_ptx(cases)


def held_to_the_ptx(cases: list[Case]) -> int:
    ran, words, wrong, refused, began = Counter[str](), 0, 0, Counter[str](), time.perf_counter()
    for case in cases:
        try:
            count, differing = by_ptx(case)
        except EmulatedFault as error:
            refused[str(error).partition(" [")[0]] += 1
            continue
        except NotImplementedError as error:
            refused[f"not executed: {error}"] += 1
            continue
        ran[case.arch] += 1
        words, wrong = words + count, wrong + differing
        if differing:
            print(f"{differing} of {count} words differ: {case}")
    by_target = ", ".join(f"{arch} {n}" for arch, n in sorted(ran.items()))
    print(f"{sum(ran.values())} cases ({by_target}), {words:,} words, {wrong} differ")
    return _told(refused, began, wrong)


def held_to_the_device(cases: list[Case], options: argparse.Namespace) -> int:
    refused, words, wrong, ran, began = Counter[str](), 0, 0, 0, time.perf_counter()
    clashes, last, first = 0, 0, 0
    programs = [max(options.words // case.left, 1) for case in cases]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        waiting = [pool.submit(on_the_emulator, case, count) for case, count in zip(cases, programs, strict=True)]
        for case, count, future in zip(cases, programs, waiting, strict=True):
            tensors = tuple(tensor.to(options.device) for tensor in case.tensors(count))
            got = as_bytes(case.launch(tensors, count).cpu())
            versions, reason = future.result()
            if reason:
                refused[reason] += 1
                continue
            differing = [int((got.reshape(-1) != _words(each)).reshape(got.shape).any(-1).sum()) for each in versions]
            if len(versions) > 1:
                clashes, last, first = clashes + 1, last + differing[0], first + differing[1]
                print(
                    f"lanes differ, of {len(got)} words {differing[0]} differ by the last lane, {differing[1]} by the first: {case}"
                )
                continue
            ran, words, wrong = ran + 1, words + len(got), wrong + differing[0]
            if differing[0]:
                print(f"{differing[0]} of {len(got)} words differ: {case}")
    print(f"{torch.cuda.get_device_name(options.device)}: {ran} cases, {words:,} words, {wrong} differ")
    print(f"{clashes} cases whose lanes differ: {last} words differ by the last lane, {first} by the first")
    return _told(refused, began, wrong + last)


def _words(held: bytes) -> np.ndarray:
    return np.frombuffer(held, np.uint8)


def _told(refused: Counter[str], began: float, wrong: int) -> int:
    for reason, n in refused.most_common():
        print(f"{n} refused: {reason}")
    print(f"{time.perf_counter() - began:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
