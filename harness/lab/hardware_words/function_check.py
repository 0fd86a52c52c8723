"""`bitverdict.reference.special_functions` held to the digests that a GPU wrote: how many ranges of 2^16 arguments give other
words.

    python -m bitverdict.harness.lab.hardware_words.function_check                  all 2^32 arguments of each instruction (half
    an hour of two cores) python -m bitverdict.harness.lab.hardware_words.function_check --share 0.01     a drawn share of the
    ranges (seconds)

Exit status 1 when a range differs. The 16-bit functions, the words at the edges and the ranges around special arguments are
compared whatever the share.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from bitverdict.harness.lab.hardware_words.function_words import (
    OF_16_BITS,
    OF_FP32_PAIRS,
    OF_FP64,
    OF_HIGH_WORDS,
    digest,
    edges,
    operands,
    ptx,
    ranges,
)
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

RECORDS_FOLDER = Path(__file__).parents[3] / "tests" / "function_words"
DIGESTS, SMALL_WORDS = RECORDS_FOLDER / "h100_own_functions_digests.npz", RECORDS_FOLDER / "h100_own_functions_small.npz"
RANGES_AT_ONCE = 64  # ranges a process takes at once

SPECIAL = (
    0x0000, 0x007F, 0x0080, 0x0010, 0x001F, 0x0020, 0x3B7F, 0x3B80, 0x3F00, 0x3F7F, 0x3F80, 0x3FF0, 0x4080, 0x40FF, 0x4100, 0x42FB,
    0x42FC, 0x42FF, 0x4300, 0x4B7F, 0x4B80, 0x7E7F, 0x7E80, 0x7F00, 0x7F7F, 0x7F80, 0x7FC0, 0x7FCF, 0x7FD0, 0x7FE0, 0x7FEF, 0x7FF0,
    0x7FFF,
)  # fmt: skip
"""Ranges in which a function changes its way, for fp32 and high words of fp64; of both signs."""


def results(name: str, a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """What `FunctionMachine.results` is without a GPU: result words [n] uint32 for operand words a (and b) [n] uint32."""
    instruction = INSTRUCTIONS[ptx(name)]
    if name in OF_16_BITS:
        return instruction(a.astype(np.uint16)).astype(np.uint32)
    if name in OF_HIGH_WORDS:
        return (instruction(a.astype(np.uint64) << np.uint64(32)) >> np.uint64(32)).astype(np.uint32)
    if name in OF_FP64:
        assert b is not None
        found = instruction(a.astype(np.uint64) << np.uint64(32) | b)  # (n,)
        return (found >> np.uint64(32 if name.endswith("high") else 0)).astype(np.uint32)
    return instruction(a) if b is None else instruction(a, b)


def differing_ranges(name: str, numbers: list[int], kept: list[int]) -> list[int]:
    """Which of the ranges `numbers` of a function do not have their kept digest."""
    return [number for number, word in zip(numbers, kept, strict=True) if digest(results(name, *operands(name, number))) != word]


def drawn(name: str, share: float, data_seed: int) -> list[int]:
    """Numbers of a share of a function's ranges, ascending, with those of SPECIAL where it has one argument."""
    total = ranges(name)
    numbers = set(map(int, np.random.default_rng(data_seed).choice(total, round(share * total), replace=False)))
    if name not in OF_FP32_PAIRS + OF_FP64:
        numbers |= {number | sign for number in SPECIAL for sign in (0, 0x8000)}
    return sorted(numbers)


def check_small_words(words: dict[str, np.ndarray]) -> Iterator[tuple[str, int, int]]:
    """(name, words that differ, words) of each array of `function_words.small_words` that an instruction of the reference gives."""
    a, b = (grid.reshape(-1) for grid in np.meshgrid(edges(), edges(), indexing="ij"))  # (65536,) each
    for key, kept in words.items():
        name, _, which = key.partition("-")
        if ptx(name) in INSTRUCTIONS:
            first, second = {"": (np.arange(1 << 16, dtype=np.uint32), None), "edges": (a, b), "mixed": operands(name, 0)}[which]
            yield key, int((results(name, first, second) != kept).sum()), len(kept)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bitverdict.harness.lab.hardware_words.function_check", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--share", type=float, default=1.0, help="share of the ranges to compute, 0 to 1 (default: all)")
    parser.add_argument("--data-seed", type=int, default=0, help="which ranges are drawn")
    parser.add_argument("--function", action="append", help="only this one, by its name in the file (ex2_approx_f32); repeatable")
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")
    arguments = parser.parse_args(argv)
    total = 0
    with np.load(SMALL_WORDS, allow_pickle=False) as archive:
        for key, wrong, count in check_small_words({key: archive[key] for key in archive.files}):
            total += wrong
            print(f"{key:32} {wrong} of {count} words differ")
    with np.load(DIGESTS, allow_pickle=False) as archive, ProcessPoolExecutor(arguments.workers) as pool:
        for name in arguments.function or [name for name in archive.files if name != "meta"]:
            start_time, digests = time.monotonic(), archive[name]
            numbers = list(range(len(digests))) if arguments.share >= 1 else drawn(name, arguments.share, arguments.data_seed)
            parts = [numbers[at : at + RANGES_AT_ONCE] for at in range(0, len(numbers), RANGES_AT_ONCE)]
            tasks = [pool.submit(differing_ranges, name, part, digests[part].tolist()) for part in parts]
            bad = [number for task in tasks for number in task.result()]
            total += len(bad)
            seconds = time.monotonic() - start_time
            first = f", the first is {bad[0]:#06x}" if bad else ""
            print(f"{ptx(name):24} {len(bad)} of {len(numbers)} ranges differ{first} ({seconds:.1f} s)", flush=True)
    print(f"{total} differ")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
