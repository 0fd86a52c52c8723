"""Contract under test: which product each sum of a reduction or scan takes in is read off the compiled program, by register.

The words of the probes are those of the PTX that Triton's own stages make, executed by its definition; an enclosed word lies
inside. A reading that is one register off, or that takes the first of two products for all, shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.fusion_probes import Launch, Tally, by_ptx
from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator import emulated
from bitverdict.harness.emulator.frontend.contraction import Contraction
from bitverdict.harness.emulator.frontend.fold_sums import FoldSums
from bitverdict.harness.emulator.numerics.scalar_ops import binary, fma
from bitverdict.reference.reduction_order import ScanOrder, scanned

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
PROBES = (
    Launch("scan", 1, 64, F32, 1),
    Launch("scan", 16, 64, F32, 4),
    Launch("scan of columns", 32, 32, BF16, 4),
    Launch("scan from the end", 4, 128, F32, 1),
    Launch("scan, chosen", 2, 64, F32, 1),
    Launch("scan, negated", 16, 16, F16, 4),
    Launch("scan of a row's product", 2, 64, BF16, 1),
    Launch("sum of rows, weights negated", 32, 32, F32, 4),
    Launch("sum of weighted rows", 4, 128, F32, 1),
    Launch("sum of weighted rows", 16, 64, F32, 4),
    Launch("sum of rows", 4, 128, F16, 1),
    Launch("sum of columns, weights negated", 64, 16, BF16, 4),
    Launch("carried", 16, 64, F32, 1),
    Launch("carried, of rows", 8, 64, F32, 1),
    Launch("two sums", 16, 16, F32, 1),
    Launch("scan of columns", 2, 64, F16, 4, "sm_100"),
    Launch("variance", 16, 64, F32, 4),
    Launch("flash decoding", 16, 16, F32, 1),
    Launch("layer norm backward", 1, 64, F32, 1),
)


def compared(launch: Launch) -> tuple[int, int, int]:
    """Words that differ from those of the PTX, that lie inside an enclosure, and outside."""
    ours, theirs = by_ptx(launch)
    assert not ours.refused
    tally = Tally()
    tally.add(launch, ours, theirs)
    return tally.differing.total(), tally.inside.total(), tally.outside.total()


@pytest.mark.parametrize("launch", PROBES, ids=str)
def test_words_are_those_of_the_ptx(launch):
    assert compared(launch) == (0, 0, 0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
@pytest.mark.parametrize("kind", ["scan", "sum of weighted rows", "sum of rows, weights negated"])
def test_words_are_those_of_the_ptx_on_other_targets(kind, arch):
    differing, _, outside = compared(Launch(kind, 4, 128, F32, 1, arch))
    assert (differing, outside) == (0, 0)


def misreads(monkeypatch: pytest.MonkeyPatch, reading: Callable[[Contraction, int], FoldSums]) -> None:
    """Programs are translated anew, by `reading`."""
    monkeypatch.setattr(Contraction, "fold", reading)
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("HARNESS_TRANSLATIONS", "off")


def off_by_one(found: FoldSums) -> FoldSums:
    return replace(found, first=(*found.first[1:], found.first[0]), later=(*found.later[1:], found.later[0]))


def first_of_two(found: FoldSums) -> FoldSums:
    half = len(found.first) // 2
    return replace(found, first=(True,) * half + (False,) * half)


def nothing(found: FoldSums) -> FoldSums:
    return FoldSums()


@pytest.mark.parametrize(
    ("launch", "misread"),
    [(PROBES[1], off_by_one), (PROBES[1], nothing), (PROBES[8], first_of_two), (PROBES[8], off_by_one), (PROBES[7], first_of_two)],
)
def test_a_misreading_shows_in_the_words(launch, misread, monkeypatch):
    right = Contraction.fold
    misreads(monkeypatch, lambda self, line: misread(right(self, line)))
    assert compared(launch)[0]


def test_what_cannot_be_read_is_enclosed_around_the_words_of_the_ptx(monkeypatch):
    misreads(monkeypatch, lambda self, line: FoldSums(open="hides it"))
    differing, inside, outside = compared(PROBES[1])
    assert (differing, outside) == (0, 0) and inside > 500


class Chosen:
    """Elements of which each says whether a sum takes it in; a product is 1 + 2^-24, rounded to 1."""

    def first(self, *sides: np.ndarray) -> tuple[np.ndarray, ...]:
        (found,) = self.behind(sides[0], sides[5:])
        return (np.where(sides[3], fma(sides[1], sides[2], sides[5]), found),)

    def behind(self, before: np.ndarray, element: tuple[np.ndarray, ...], flag: int = 3) -> tuple[np.ndarray, ...]:
        plain = binary(np.add, "fp32")(before, element[0])
        return (np.where(element[flag], fma(element[1], element[2], before), plain),)


@pytest.mark.parametrize("contiguous", [1, 2])
def test_a_scan_takes_each_element_in_where_it_first_goes(contiguous):
    """Two elements of which the second is taken in: 1.5 * 2^-24 more than the sum of the rounded products."""
    x = np.float32([1, 1 + 2.0**-23])
    value, factor = (x * x).astype(np.float32), x
    for taken in (False, True):
        flags = np.array([False, taken])
        parts = (value, factor, factor, flags, np.zeros(2, bool))
        order = ScanOrder(contiguous, 2 // contiguous, 1)
        (found,) = scanned(parts, 0, order, lambda a, b: (binary(np.add, "fp32")(a, b),), elements=Chosen())
        exact = float(x[1]) ** 2 + 1 if taken else float(value[1]) + 1
        assert found[0] == value[0] and found[1] == np.float32(exact)


@pytest.mark.parametrize("exact", [True, False])
def test_a_sum_of_exact_products_is_not_enclosed_whatever_it_takes_in(exact, monkeypatch):
    """Of small integers a product is the same rounded or not, so nothing is open."""
    misreads(monkeypatch, lambda self, line: FoldSums(open="hides it"))
    launch = Launch("sum of rows", 8, 64, F32, 1)
    tensors = launch.tensors(1)
    if exact:
        tensors = tuple(each.round() for each in tensors)
    with emulated("sm_90") as device:
        launch.run(tensors, 1)
    assert (device.enclosure(tensors[-1]) is None) == exact
