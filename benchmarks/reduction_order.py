"""Reductions and scans of drawn shapes, layouts and types on the emulated GPU, held to their PTX or to a real GPU.

    python -m benchmarks.reduction_order [--cases 150] [--seed 0] [--arch sm_90] [--lanes]
    python -m benchmarks.reduction_order --device cuda:0 [--cases 100] [--jobs 12] [--words 16384] [--lanes]

Without a device each case is one program, and its PTX is executed for all threads. With one, emulated sm_90 words are held to those
of the device, `--words` a case. `--lanes` draws tiles of which a thread holds few elements, so that lanes have different words of
one sum, and uses of these words. Exit status 1 where a word differs. A case that is refused is counted by its reason,
and so is one whose words are enclosed: the compiler leaves them open.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from benchmarks.campaign import Option, parse, run_script
from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.advice import Advice
from bitverdict.harness.emulator.frontend import thread_copies
from tests.support import reduction_kernels as kernels
from tests.support.reduction_words import as_bytes, both_ways, drawn

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
REDUCTIONS = ("sum", "product", "dot", "less", "largest")
SCANS = ("cumsum", "reverse", "cumprod", "decayed", "normalised", "counted", "less dot")  # as many words as elements
FURTHER = ("squared", "chosen", "behind", "carried", "turned", "single", "rounded", "other axis", "scaled", "all")
"""Of `fold_further`."""
TYPES = (torch.float32, torch.float32, torch.float32, torch.float16, torch.bfloat16)
ENCLOSED = "its words are enclosed"
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
        dtype = torch.float32 if kind in ("normalised", "counted") else dtype  # correctly rounded division and root are of fp32
        chosen = generator.choice(ARCHITECTURES)
        return cls(kind, rows, columns, axis, dtype, warps, generator.random() < 0.8, generator.randrange(1 << 30), arch or chosen)

    @classmethod
    def draw_lanes(cls, generator: random.Random, arch: str | None) -> Case:
        """Of which a thread holds few elements along the axis."""
        warps, axis = generator.choice((1, 2, 4, 8)), generator.randrange(2)
        most = 32 * warps if axis else 128 * warps
        rows, columns = 1 << generator.randrange(8), 1 << generator.randrange(6)
        while rows * columns > most:
            rows, columns = max(rows // 2, 1), max(columns // 2, 1)
        if (rows if axis == 0 else columns) == 1:
            rows, columns = (2, columns) if axis == 0 else (rows, 2)
        kind = generator.choice(("dot", "less", "normalised", "counted", "less dot", *FURTHER))
        dtype = generator.choice((*TYPES, torch.float32)) if kind in ("dot", "less", "less dot") else torch.float32
        chosen = generator.choice(ARCHITECTURES)
        return cls(kind, rows, columns, axis, dtype, warps, True, generator.randrange(1 << 30), arch or chosen)

    def __str__(self) -> str:
        name = f"{self.kind} {self.rows}x{self.columns} axis {self.axis} {self.dtype} {self.arch} {self.warps} warps"
        return name if self.fused else name + " without fusion"

    @property
    def left(self) -> int:
        """Words that one program stores."""
        return self.rows * self.columns if self.kind in SCANS + FURTHER else (self.columns if self.axis == 0 else self.rows)

    def tensors(self, programs: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        shape = (programs, self.rows, self.columns)
        x, y = drawn(shape, self.dtype, self.seed), drawn(shape, self.dtype, self.seed + 1)
        if self.kind in ("product", "cumprod"):
            x = (1 + x.double() / 64).to(self.dtype)
        if self.kind == "normalised":
            y = y.abs()
        return x, y, torch.zeros(programs * self.left, dtype=self.dtype)

    @property
    def kernel(self) -> Any:
        return kernels.fold_further if self.kind in FURTHER else kernels.fold

    def constants(self) -> dict[str, int | str]:
        return {"ROWS": self.rows, "COLUMNS": self.columns, "AXIS": self.axis, "KIND": self.kind}

    def launch(self, tensors: tuple[torch.Tensor, ...], programs: int) -> torch.Tensor:
        options = {"num_warps": self.warps, "enable_fp_fusion": self.fused}
        self.kernel[(programs,)](*tensors, **self.constants(), **options)
        return tensors[-1]


class NotCompared(Exception):
    """A case whose words the emulated GPU encloses: none is the one that is due."""


def by_ptx(case: Case) -> tuple[int, int]:
    """Words compared, and words that differ. NotCompared where they are enclosed, NotImplementedError for unknown PTX."""
    x, y, out = case.tensors(1)
    found = both_ways(case.kernel, [x[0], y[0]], [out], case.constants(), case.arch, case.warps, enable_fp_fusion=case.fused)
    if enclosed(found.advice):
        raise NotCompared(ENCLOSED)
    return out.numel(), found.differing


def enclosed(advice: list[str]) -> bool:
    """Whether the emulated GPU holds the words between two others."""
    return any(Advice.OPEN_SUM.value in each for each in advice)


def on_the_emulator(case: Case, programs: int) -> tuple[bytes, str, bool]:
    """The words of all programs, why the case is refused, and whether words of one result differed from lane to lane."""
    warnings.simplefilter("ignore")
    with counting_lanes() as differed:
        try:
            with emulated(case.arch) as device:
                found = as_bytes(case.launch(case.tensors(programs), programs)).tobytes()
                return found, ENCLOSED if enclosed(device.advice) else "", bool(differed)
        except EmulatedFault as error:
            return b"", str(error).partition(" [")[0], bool(differed)


@contextmanager
def counting_lanes() -> Iterator[list[None]]:
    """A list with an item for each reduction, while entered, whose words differ from lane to lane."""
    found: list[None] = []
    original = thread_copies.reduced_by_threads

    def counted(*given: Any) -> Any:
        found.append(None)
        return original(*given)

    thread_copies.reduced_by_threads = counted
    try:
        yield found
    finally:
        thread_copies.reduced_by_threads = original


def main() -> int:
    options = parse(
        __doc__, cases=150, seed=0, arch=Option(str, choices=ARCHITECTURES), device=str, jobs=12, words=1 << 14,
        lanes=False,
    )  # fmt: skip
    warnings.simplefilter("ignore")
    generator = random.Random(options.seed)
    draw = Case.draw_lanes if options.lanes else Case.draw
    cases = [draw(generator, "sm_90" if options.device else options.arch) for _ in range(options.cases)]
    return held_to_the_device(cases, options) if options.device else held_to_the_ptx(cases)


def held_to_the_ptx(cases: list[Case]) -> int:
    ran, words, wrong, refused, began, lanes = Counter[str](), 0, 0, Counter[str](), time.perf_counter(), 0
    for case in cases:
        try:
            with counting_lanes() as differed:
                count, differing = by_ptx(case)
        except EmulatedFault as error:
            refused[str(error).partition(" [")[0]] += 1
            continue
        except NotCompared as error:
            refused[str(error)] += 1
            continue
        except NotImplementedError as error:
            refused[f"not executed: {error}"] += 1
            continue
        ran[case.arch] += 1
        words, wrong, lanes = words + count, wrong + differing, lanes + bool(differed)
        if differing:
            print(f"{differing} of {count} words differ: {case}{', lanes differ' if differed else ''}")
    by_target = ", ".join(f"{arch} {n}" for arch, n in sorted(ran.items()))
    print(f"{sum(ran.values())} cases ({by_target}), in {lanes} of which lanes differ, {words:,} words, {wrong} differ")
    return _told(refused, began, wrong)


def on_the_device(case: Case, programs: int, device: str) -> bytes:
    """The words of all programs on a real GPU."""
    warnings.simplefilter("ignore")
    return as_bytes(case.launch(tuple(tensor.to(device) for tensor in case.tensors(programs)), programs).cpu()).tobytes()


def held_to_the_device(cases: list[Case], options: argparse.Namespace) -> int:
    """A third of the processes compile and launch, so that the emulated GPU and the compiler share the cores."""
    refused, words, wrong, ran, began, lanes = Counter[str](), 0, 0, 0, time.perf_counter(), 0
    programs, real = [max(options.words // case.left, 1) for case in cases], max(options.jobs // 3, 1)
    started = get_context("spawn")
    with ProcessPoolExecutor(max(options.jobs - real, 1), started) as emulated_gpus, ProcessPoolExecutor(real, started) as gpus:
        due = [emulated_gpus.submit(on_the_emulator, case, count) for case, count in zip(cases, programs, strict=True)]
        got = [gpus.submit(on_the_device, case, count, options.device) for case, count in zip(cases, programs, strict=True)]
        for case, ours, theirs in zip(cases, due, got, strict=True):
            found, reason, differed = ours.result()
            if reason:
                refused[reason] += 1
                continue
            size = torch.empty(0, dtype=case.dtype).element_size()
            sides = (np.frombuffer(each, np.uint8).reshape(-1, size) for each in (theirs.result(), found))
            differing, count = int(np.not_equal(*sides).any(-1).sum()), len(found) // size
            ran, words, wrong, lanes = ran + 1, words + count, wrong + differing, lanes + differed
            if differing:
                print(f"{differing} of {count} words differ: {case}{', lanes differ' if differed else ''}")
    device = torch.cuda.get_device_name(options.device)
    print(f"{device}: {ran} cases, in {lanes} of which lanes differ, {words:,} words, {wrong} differ")
    return _told(refused, began, wrong)


def _told(refused: Counter[str], began: float, wrong: int) -> int:
    for reason, n in refused.most_common():
        print(f"{n} refused: {reason}")
    print(f"{time.perf_counter() - began:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    run_script(main)
