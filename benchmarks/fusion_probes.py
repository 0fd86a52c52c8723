"""Scans and sums of products on the emulated GPU, held word for word to their PTX or to a real GPU.

    python -m benchmarks.fusion_probes [--arch sm_90] [--kind "scan"] [--share 8] [--jobs 2]
    python -m benchmarks.fusion_probes --device cuda:0 [--jobs 12] [--words 4096] [--whole S]

Which product a sum takes in is the compiler's choice, register by register. Every kind of `tests/support/fusion_kernels.py` is
launched in each shape, type and number of warps below. Without a device, one program of each: its PTX is executed for all threads
(`--share n`: every n-th of them). With one, the words of emulated sm_90 are held to those of the device, `--words` a launch.

Words that the tile program leaves open are those of the launch's PTX, as in judged tests (`harness/ptx_machine/open_words.py`).
A word that the emulated GPU still encloses is counted apart: it must lie inside. Exit status 1 where a word differs or lies
outside.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from benchmarks.campaign import Option, parse, run_script
from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.numerics.enclosures import keys
from bitverdict.harness.ptx_machine.open_words import OpenWords
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS
from tests.support import fusion_kernels
from tests.support.ptx_threads import DeviceMemory, Threads
from tests.support.reduction_words import as_bytes, drawn

SCANS = (
    "scan", "scan of columns", "scan from the end", "scan, chosen", "scan, and one", "scan, negated", "scan of a row's product",
    "scan of pairs", "scan of pairs of products", "kept, and taken away", "scan, swapped", "several scans", "scan by columns",
    "products in two orders", "rounded, and not", "scan of a scan",
)  # fmt: skip
OF_COLUMNS = (
    "sum of rows", "sum of weighted rows", "sum of rows, weights negated", "sum, chosen", "sum of products of sums",
    "carried, of rows", "sum of two products",
)  # fmt: skip
OF_ROWS = (
    "sum of columns", "sum of weighted columns", "sum of columns, weights negated", "two sums", "carried", "variance",
)  # fmt: skip
WELFORD = ("Welford", "Welford of products", "Welford of weights", "variance of counts")
ATTENTION = (
    "flash decoding", "extremes of scores", "delta rule", "delta rule of pairs", "layer norm backward", "variance of squares",
    "variance of squares, kept",
)  # fmt: skip
"""One word a column, computed in fp32."""
KINDS = (*SCANS, *OF_COLUMNS, *OF_ROWS, *WELFORD, *ATTENTION)
SHAPES = ((1, 64), (2, 64), (4, 32), (4, 128), (8, 64), (16, 16), (16, 64), (32, 32), (64, 16), (1, 1024))
WIDE = ((8, 256), (16, 256), (4, 512))
"""Shapes of scans beside: a thread has many groups of elements along the axis, of one element or all."""
TYPES = (torch.float32, torch.float16, torch.bfloat16)
WARPS = (1, 4)
STEPS = 3


@dataclass(frozen=True)
class Launch:
    """One launch of a probe, of any number of programs."""

    kind: str
    rows: int
    columns: int
    dtype: torch.dtype
    warps: int
    arch: str = "sm_90"
    resolves: bool = False  # words that the tile program leaves open are those of the PTX

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return f"{self.kind}, {self.rows} x {self.columns} of {name}, {self.warps} warps, {self.arch}"

    @property
    def left(self) -> int:
        """Words that one program stores."""
        return self.rows * self.columns if self.kind in SCANS else self.rows if self.kind in (*OF_ROWS, *WELFORD) else self.columns

    @property
    def output(self) -> torch.dtype:
        return torch.float32 if self.kind in (*WELFORD, *ATTENTION) else self.dtype

    def tensors(self, programs: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        count = (programs + 1) * self.rows * self.columns + STEPS * self.columns
        return drawn((count,), self.dtype, 1), drawn((count,), self.dtype, 2), torch.zeros(programs * self.left, dtype=self.output)

    def constants(self) -> dict[str, Any]:
        return {"ROWS": self.rows, "COLUMNS": self.columns, "KIND": self.kind}

    def run(self, tensors: tuple[torch.Tensor, ...], programs: int) -> Any:
        options = {"num_warps": self.warps, "enable_fp_fusion": True}
        return fusion_kernels.probe[(programs,)](*tensors, STEPS, **self.constants(), **options)


@dataclass
class Words:
    """What the emulated GPU gave: bytes of the words, the ends of their enclosures as bytes of int64 keys, or why it refused; and
    the PTX, where it is asked for."""

    words: bytes = b""
    low: bytes = b""
    high: bytes = b""
    refused: str = ""
    text: str = ""


@dataclass
class Tally:
    """Launches, words, and those that differ, lie inside an enclosure or outside of it, by kind."""

    launches: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)
    inside: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, launch: Launch, ours: Words, theirs: bytes) -> None:
        got, size = np.frombuffer(ours.low, np.int64), launch.output.itemsize
        due, mine = (np.frombuffer(each, f"u{size}") for each in (theirs, ours.words))
        self.launches[launch.kind] += 1
        self.words[launch.kind] += due.size
        open_ = np.zeros(due.size, bool)
        if got.size:
            low, high, at = got, np.frombuffer(ours.high, np.int64), keys(due)
            open_ = low < high
            within = (low <= at) & (at <= high)
            self.inside[launch.kind] += int((open_ & within).sum())
            self.outside[launch.kind] += int((open_ & ~within).sum())
        wrong = int(((due != mine) & ~open_).sum())
        self.differing[launch.kind] += wrong
        if wrong:
            print(f"{wrong} of {due.size} words differ: {launch}", flush=True)

    def told(self, where: str, began: float) -> int:
        """Print it; the exit status."""
        for kind in sorted(self.launches):
            print(
                f"{kind:32} {self.launches[kind]:4} launches {self.words[kind]:9,} words, {self.differing[kind]} differ, "
                f"{self.inside[kind]} inside an enclosure, {self.outside[kind]} outside"
            )
        for reason, count in self.refused.most_common():
            print(f"{count} refused: {reason}")
        total = [each.total() for each in (self.launches, self.words, self.differing, self.inside, self.outside)]
        print("{}: {} launches, {:,} words, {} differ, {} inside an enclosure, {} outside".format(where, *total), end="")
        print(f", {self.refused.total()} refused, {time.perf_counter() - began:.0f} s")
        return int(bool(self.differing.total() or self.outside.total()))


def launches(arch: str, kinds: tuple[str, ...] = KINDS) -> Iterator[Launch]:
    """All probes for `arch`."""
    for kind in kinds:
        for rows, columns in (*SHAPES, *WIDE) if kind in SCANS else SHAPES:
            for dtype in TYPES:
                yield from (Launch(kind, rows, columns, dtype, warps, arch, resolves=True) for warps in WARPS)


def on_the_emulator(launch: Launch, programs: int, with_text: bool = False) -> Words:
    """The words of all programs, and their enclosures."""
    warnings.simplefilter("ignore")
    tensors = launch.tensors(programs)
    try:
        with emulated(launch.arch, options=LaunchOptions(probes=(OpenWords(),) if launch.resolves else ())) as device:
            made = launch.run(tensors, programs)
            text = made.asm["ptx"] if with_text else ""
    except EmulatedFault as error:
        return Words(refused=str(error).partition(" [")[0])
    words, ends = as_bytes(tensors[-1]).tobytes(), device.enclosure(tensors[-1])
    if ends is None:
        return Words(words, text=text)
    low, high = (keys(each).tobytes() for each in ends)
    return Words(words, low, high, text=text)


class ApproximatingThreads(Threads):
    """With the instructions that only tables decide: their words are those of `reference`."""

    def execute(self, opcode: str, operands: list[str], when: np.ndarray) -> None:
        if (run := INSTRUCTIONS.get(opcode)) is None:
            super().execute(opcode, operands, when)
            return
        given = (self.read(each).astype(np.uint32) for each in operands[1:])
        self.write(operands[0], run(*given).astype(np.uint64), when, 32)


def by_ptx(launch: Launch) -> tuple[Words, bytes]:
    """The words of one program both ways."""
    ours = on_the_emulator(launch, 1, with_text=True)
    if ours.refused:
        return ours, b""
    room = [as_bytes(each).copy() for each in launch.tensors(1)]
    addresses = [each.__array_interface__["data"][0] for each in room]
    threads = ApproximatingThreads(ours.text, [*addresses, STEPS], DeviceMemory(*room), 32 * launch.warps)
    try:
        threads.run()
    except NotImplementedError as error:
        return Words(refused=f"not executed: {error}"), b""
    return ours, room[-1].tobytes()


def on_the_device(launch: Launch, programs: int, device: str) -> bytes:
    """The words of all programs on a real GPU."""
    warnings.simplefilter("ignore")
    tensors = tuple(each.to(device) for each in launch.tensors(programs))
    launch.run(tensors, programs)
    return as_bytes(tensors[-1].cpu()).tobytes()


def launch_kind(kind: str) -> None:
    """All probes of a kind on "cuda", one program each: where a sum is open, a launch may be refused, and the next goes on."""
    for launch in launches("", (kind,)):
        with suppress(EmulatedFault):
            on_the_device(launch, 1, "cuda")


def held_to_the_ptx(listed: list[Launch], jobs: int) -> int:
    tally, began = Tally(), time.perf_counter()
    pool = ProcessPoolExecutor(jobs, get_context("spawn")) if jobs > 1 else None
    for launch, (ours, theirs) in zip(listed, pool.map(by_ptx, listed) if pool else map(by_ptx, listed), strict=True):
        if ours.refused:
            tally.refused[f"{launch.kind}: {ours.refused}"] += 1
        else:
            tally.add(launch, ours, theirs)
    return tally.told("PTX", began)


def see_no_gpu() -> None:
    """For a process that emulates: what it imports makes no context of the real GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def held_to_the_device(listed: list[Launch], device: str, jobs: int, words: int, whole: float) -> int:
    """A third of the processes compile and launch, so that the emulated GPU and the compiler share the cores."""
    tally, began, real, started = Tally(), time.perf_counter(), max(jobs // 3, 1), get_context("spawn")
    with ProcessPoolExecutor(max(jobs - real, 1), started, see_no_gpu) as emulators, ProcessPoolExecutor(real, started) as gpus:

        def both(pools: tuple[Executor, Executor], launch: Launch) -> tuple[Future, Future]:
            count = max(words // launch.left, 1)
            return pools[0].submit(on_the_emulator, launch, count), pools[1].submit(on_the_device, launch, count, device)

        answers = [both((emulators, gpus), launch) for launch in listed]
        for count, (launch, (ours, theirs)) in enumerate(zip(listed, answers, strict=True)):
            if time.perf_counter() - began > whole:
                print(f"--whole {whole:.0f}: ended after {count} of {len(listed)} launches", flush=True)
                emulators.shutdown(wait=False, cancel_futures=True)
                gpus.shutdown(wait=False, cancel_futures=True)
                break
            found = ours.result()
            if found.refused:
                tally.refused[f"{launch.kind}: {found.refused}"] += 1
            else:
                tally.add(launch, found, theirs.result())
    return tally.told(torch.cuda.get_device_name(device), began)


def main() -> int:
    options = parse(
        __doc__, arch=Option("sm_90", choices=("sm_80", "sm_90", "sm_100")), kind=Option([], choices=KINDS),
        share=1, jobs=1, device=str, words=1 << 12, whole=Option(float("inf"), "the limit of the run, in seconds"),
    )  # fmt: skip
    warnings.simplefilter("ignore")
    listed = list(launches("sm_90" if options.device else options.arch, tuple(options.kind or KINDS)))[:: options.share]
    if options.device:
        return held_to_the_device(listed, options.device, options.jobs, options.words, options.whole)
    return held_to_the_ptx(listed, options.jobs)


if __name__ == "__main__":
    run_script(main)
