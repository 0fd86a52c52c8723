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
import triton

from benchmarks.fusion_probes import Launch, Tally, by_ptx
from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator import emulated
from bitverdict.harness.emulator.frontend.combination_numbers import CombinationNumbers
from bitverdict.harness.emulator.frontend.contraction import Contraction
from bitverdict.harness.emulator.frontend.fold_code import FoldCode
from bitverdict.harness.emulator.frontend.fold_dialect import FoldDialect
from bitverdict.harness.emulator.frontend.fold_sums import FoldSums
from bitverdict.harness.emulator.frontend.region_sums import WORDS, RegionSums
from bitverdict.harness.emulator.frontend.translator import Translator
from bitverdict.harness.emulator.frontend.value_numbers import of_code, of_dialect
from bitverdict.harness.emulator.numerics.scalar_ops import binary, fma
from bitverdict.harness.emulator.releases import RELEASES, installed_release
from bitverdict.reference.reduction_order import ScanOrder, scan_parts
from tests.support import default_kernels
from tests.support.reduction_words import drawn

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
    Launch("delta rule", 4, 32, F32, 1),  # LLVM moves the last sum out of the loop, and forgets its lines
    Launch("delta rule of pairs", 8, 64, F32, 1),  # it joins the loads of keys, by which products are told apart
    Launch("scan of columns", 8, 256, F32, 1),  # each thread has a whole column, a chunk of one element a row
    Launch("scan of columns", 16, 256, F32, 2),  # and here one chunk: nothing stands before it, and LLVM removes those sums
    Launch("scan, swapped", 8, 256, BF16, 1),  # of two halves, their signs changed together
    Launch("sum of rows", 2, 64, F16, 1),  # of two shuffles, put together by prmt
    Launch("sum of rows", 8, 64, BF16, 4),
    Launch("sum of columns", 16, 16, BF16, 1, "sm_80"),  # of bf16 a sum and a product are multiply-adds; both stand under one mark
    Launch("variance of squares", 1, 64, F32, 1),  # two sums without a line, one of which takes in a product
    Launch("variance of squares", 16, 16, F32, 1, "sm_80"),
    Launch("variance of squares, kept", 4, 32, F32, 1, "sm_100"),  # of two products the mean's square is taken in
    Launch("Welford", 16, 64, F32, 4),  # a combination of several sums, each of which is fused everywhere, or nowhere
    Launch("Welford of weights", 8, 64, F32, 4),
    Launch("delta rule", 64, 16, F16, 1),  # loads of keys that LLVM moves out of the loop, and that lose their lines
    Launch("flash decoding", 4, 128, F32, 1),  # a carried sum that is fused in some registers
    Launch("kept, and taken away", 1, 1024, F32, 1),  # a sum under the line of its products
    Launch("variance of squares", 1, 1024, F32, 1),
    Launch("products in two orders", 4, 64, F32, 1),  # of which LLVM takes in one in some registers and the other in others
    Launch("rounded, and not", 4, 64, F32, 1),  # two products that differ in a rounding
    Launch("extremes of scores", 32, 8, F32, 1, "sm_80"),  # lanes hold copies that differ, and one instruction combines them all
    Launch("extremes of scores", 16, 16, F32, 1, "sm_100"),
    Launch("flash decoding", 16, 16, F16, 1, "sm_100"),  # a sum on the copies of all threads, whose shape is not its layout's
)
REGIONS = (  # of several sums, which fuse products among the elements first, and others further on
    Launch("Welford of products", 8, 64, F32, 4),
    Launch("Welford of products", 8, 64, F32, 1),  # the vectoriser puts sums of four threads' rows under one mark
    Launch("Welford of products", 4, 32, F32, 4),  # the first step is between lanes
    Launch("scan of pairs of products", 4, 32, F32, 1),
    Launch("scan of pairs of products", 1, 64, F32, 4),  # each thread has one element, and a chain that nobody needs
    Launch("scan of pairs of products", 16, 16, F16, 1),  # two products are one instruction
    Launch("scan of pairs of products", 32, 8, F32, 4, "sm_100"),
    Launch("variance of counts", 32, 8, F32, 1),  # LLVM knows the mean times the count of what a thread has combined before
    Launch("variance of counts", 8, 64, F32, 4, "sm_100"),
    Launch("variance of counts", 4, 32, F32, 1),
    Launch("variance of counts", 1, 64, BF16, 4),  # a thread has one element, and loads what other warps have
    Launch("variance of counts", 1, 1024, F32, 4),
    Launch("variance of counts", 4, 128, F32, 1),  # a sum takes in other sides in other registers and lanes
    Launch("variance of counts", 32, 32, F16, 4),
    Launch("Welford", 32, 8, F32, 1, "sm_100"),
    Launch("Welford of products", 32, 8, F32, 1),
)


def compared(launch: Launch) -> tuple[int, int, int]:
    """Words that differ from those of the PTX, that lie inside an enclosure, and outside."""
    ours, theirs = by_ptx(launch)
    assert not ours.refused
    tally = Tally()
    tally.add(launch, ours, theirs)
    return tally.differing.total(), tally.inside.total(), tally.outside.total()


@pytest.mark.share(2)
@pytest.mark.parametrize("launch", [*PROBES, *REGIONS], ids=str)
def test_words_are_those_of_the_ptx(launch):
    assert compared(launch) == (0, 0, 0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
@pytest.mark.parametrize("kind", ["scan", "sum of weighted rows", "sum of rows, weights negated"])
def test_words_are_those_of_the_ptx_on_other_targets(kind, arch):
    differing, _, outside = compared(Launch(kind, 4, 128, F32, 1, arch))
    assert (differing, outside) == (0, 0)


def misreads(monkeypatch: pytest.MonkeyPatch, reading: Callable, name: str = "fold") -> None:
    """Programs are translated anew, by `reading`."""
    monkeypatch.setattr(Contraction, name, reading)
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("BITVERDICT_TRANSLATIONS", "off")


def off_by_one(found: FoldSums) -> FoldSums:
    return replace(
        found, first_sums=(*found.first_sums[1:], found.first_sums[0]), later_sums=(*found.later_sums[1:], found.later_sums[0])
    )


def first_of_two(found: FoldSums) -> FoldSums:
    half = len(found.first_sums) // 2
    return replace(found, first_sums=(True,) * half + (False,) * half)


def nothing(found: FoldSums) -> FoldSums:
    return FoldSums()


@pytest.mark.parametrize(
    ("launch", "misread"),
    [(PROBES[1], off_by_one), (PROBES[1], nothing), (PROBES[8], first_of_two), (PROBES[8], off_by_one), (PROBES[7], first_of_two)],
)
def test_a_misreading_shows_in_the_words(launch, misread, monkeypatch):
    right, readings = Contraction.fold, list[tuple[FoldSums, FoldSums]]()

    def reading(self: Contraction, line: int) -> FoldSums:
        readings.append((right(self, line), misread(right(self, line))))
        return readings[-1][1]

    misreads(monkeypatch, reading)
    differing = compared(launch)[0]
    assert bool(differing) == any(first != second for first, second in readings)
    assert readings and (differing or launch is PROBES[7])  # whose sums a chain has as the misreading


def test_what_cannot_be_read_is_enclosed_around_the_words_of_the_ptx(monkeypatch):
    misreads(monkeypatch, lambda self, line: FoldSums(open="hides it"))
    differing, inside, outside = compared(PROBES[1])
    assert (differing, outside) == (0, 0) and inside > 500


def exchanged(found: RegionSums) -> RegionSums:
    return {pair: {line: 1 - side if side in (0, 1) else side for line, side in sides.items()} for pair, sides in found.items()}


def as_of_words(found: RegionSums) -> RegionSums:
    return dict.fromkeys(found, found[WORDS])


def exchanged_places(right: Callable) -> Callable:
    return staticmethod(lambda places: right([(*place, side if side is None else 1 - side) for *place, side in places]))


def same_place(right: Callable) -> Callable:
    """What is combined makes no difference."""
    return lambda self, left, other: np.full_like(left, self.results[0])


@pytest.mark.parametrize(
    ("misread", "name", "launch"),
    [
        (exchanged_places, "sides", Launch("variance of counts", 4, 128, F32, 1)),
        (same_place, "results_of", Launch("variance of counts", 32, 32, F16, 4)),
    ],
)
def test_a_misreading_by_place_shows_in_the_words(misread, name, launch, monkeypatch):
    assert launch in REGIONS  # where it is read right
    misreads(monkeypatch, Contraction.region, "region")
    asked: list[object] = []
    misreading = misread(getattr(CombinationNumbers, name))
    counted = lambda *given: (asked.append(given), getattr(misreading, "__func__", misreading)(*given))[1]
    monkeypatch.setattr(CombinationNumbers, name, staticmethod(counted) if isinstance(misreading, staticmethod) else counted)
    differing, inside, outside = compared(launch)
    if not asked and installed_release().name != RELEASES[-1].name:
        pytest.skip(f"triton {triton.__version__} packs no sums of this launch: none is read by what it computes")
    assert differing + inside and not outside


def test_numbers_of_what_is_not_combined_are_an_error():
    numbers = CombinationNumbers.of_places({WORDS: {3: [(0, 1, 65536, 0), (65536, 2, 65537, None)], 4: None}})
    assert numbers.results_of(np.array([65536, 0]), np.array([2, 1])).tolist() == [65537, 65536]
    with pytest.raises(KeyError, match="does not combine"):
        numbers.results_of(np.array([1]), np.array([0]))


DIALECT = """
    %0 = llvm.mlir.addressof @global_smem : !llvm.ptr<3> loc("tile program":9:2)
    %1 = nvvm.read.ptx.sreg.tid.x : i32 loc("tile program":9:3)
    %2 = llvm.mlir.constant(16 : i32) : i32 loc("tile program":9:4)
    %3 = llvm.and %1, %2 : i32 loc("tile program":9:5)
    %4 = llvm.getelementptr inbounds %0[%3] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8 loc("tile program":9:6)
    %5 = llvm.load %4 {alignment = 16 : i64} : !llvm.ptr<3> -> vector<2xf32> loc("tile program":9:7)
    %6 = llvm.xor %3, %2 : i32 loc("tile program":9:8)
    %7 = llvm.getelementptr inbounds %0[%6] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8 loc("tile program":9:9)
    %8 = llvm.load %7 {alignment = 16 : i64} : !llvm.ptr<3> -> vector<2xf32> loc("tile program":9:10)
    %9 = llvm.mlir.constant(1 : i32) : i32 loc("tile program":9:11)
    %10 = llvm.extractelement %5[%9 : i32] : vector<2xf32> loc("tile program":9:12)
    %11 = llvm.extractelement %8[%9 : i32] : vector<2xf32> loc("tile program":9:13)
"""
JOINED_LOADS = """
\t.loc\t1 9 3
\tmov.u32 \t%r1, %tid.x;
\tand.b32 \t%r2, %r1, 16;
\tmov.b32 \t%r3, global_smem;
\tadd.s32 \t%r4, %r3, %r2;
\t.loc\t1 9 12
\tld.shared.v2.b32 \t{%r5, %r6}, [%r4+16];
\tld.shared.v2.b32 \t{%r7, %r8}, [%r4];
"""


WAIT = """\
\t{
\t@!%p1 bra.uni skipWait;
\t.reg .pred complete;
\twaitLoop:
\tmbarrier.try_wait.parity.shared::cta.b64 complete, [%r9], %r8;
\t@!complete bra.uni waitLoop;
\tskipWait:
\t}
"""
INNER_LOOP = """\
%inline0_1:
\tadd.s32 \t%inline0_2, %inline0_2, 1;
\t@%inline0_3 bra.uni %inline0_1;
"""


@pytest.mark.parametrize("assembly", [WAIT, INNER_LOOP])
def test_a_loop_around_inline_assembly_with_labels_carries_its_registers(assembly):
    """As of a wait under a predicate, whose labels are in each wait: what goes around the loop is read behind it."""
    text = f"\tmov.b32 \t%r1, 1;\n\tmov.b32 \t%inline0_2, 0;\n$L__BB0_1:\n{assembly}\tadd.s32 \t%r2, %r1, 1;\n"
    code = FoldCode.from_ptx(text + "\tadd.s32 \t%r1, %r2, 1;\n\t@%p2 bra \t$L__BB0_1;\n", set())
    written = {each.writes[0]: each for each, _ in code.marked_instructions if each.writes}
    assert [each.opcode for each in code.definitions[written["%r2"].reads[0]]] == ["mov.b32", "add.s32"]
    if assembly is INNER_LOOP:
        assert [each.opcode for each in code.definitions[written["%inline0_2"].reads[0]]] == ["mov.b32", "add.s32"]


@pytest.mark.parametrize("knows_addresses", [True, False])
def test_loads_under_one_mark_are_told_apart_by_their_addresses(knows_addresses):
    """LLVM joins two loads and splits them again, the later one first. By its mark each would be the other, or both."""
    dialect = FoldDialect(DIALECT)
    numbers = of_dialect(dialect)
    numbers.number([("%10", ()), ("%11", ())])
    first, second = (numbers.numbers[name, ()] for name in ("%10", "%11"))
    of_ptx = of_code(FoldCode.from_ptx(JOINED_LOADS, dialect.addressed_lines if knows_addresses else set()))
    of_ptx.number([(f"%r{register}", None, None) for register in range(5, 9)])
    others = [of_ptx.numbers[f"%r{register}", None, None] for register in range(5, 9)]
    assert (others[3] == first, others[1] == second) == (knows_addresses, knows_addresses)
    assert len({first, second, others[0], others[2]}) == 4


@pytest.mark.parametrize(("launch", "misread"), [(REGIONS[0], exchanged), (REGIONS[3], as_of_words), (REGIONS[4], exchanged)])
def test_a_misreading_of_a_combination_shows_in_the_words(launch, misread, monkeypatch):
    right = Contraction.region
    misreads(monkeypatch, lambda self, line: misread(right(self, line)), "region")
    differing, inside, _ = compared(launch)
    assert differing or inside  # of a product that is none the choice is open


@pytest.mark.parametrize("launch", [REGIONS[0], REGIONS[3]], ids=str)
def test_a_combination_that_cannot_be_read_is_enclosed(launch, monkeypatch):
    misreads(monkeypatch, lambda self, line: {"element": {}}, "region")
    differing, inside, outside = compared(launch)
    assert (differing, outside) == (0, 0) and inside


@pytest.mark.parametrize("launch", [REGIONS[0], REGIONS[3]], ids=str)
def test_an_element_taken_for_no_product_shows_in_the_words(launch, monkeypatch):
    monkeypatch.setattr(Translator, "combined", property(lambda self: {}, lambda self, value: None), raising=False)
    misreads(monkeypatch, lambda self, line: {"element": {}}, "region")
    differing, _, outside = compared(launch)
    assert differing + outside


class Chosen:
    """Elements of which each says whether a sum takes it in; a product is 1 + 2^-24, rounded to 1."""

    words = 1

    def add_first(self, *sides: np.ndarray) -> tuple[np.ndarray, ...]:
        (found,) = self.behind(sides[:1], sides[5:])
        return (np.where(sides[3], fma(sides[1], sides[2], sides[5]), found),)

    def behind(self, before: tuple[np.ndarray, ...], element: tuple[np.ndarray, ...], flag: int = 3) -> tuple[np.ndarray, ...]:
        plain = binary(np.add, "fp32")(*before, element[0])
        return (np.where(element[flag], fma(element[1], element[2], *before), plain),)


@pytest.mark.parametrize("contiguous", [1, 2])
def test_a_scan_takes_each_element_in_where_it_first_goes(contiguous):
    """Two elements of which the second is taken in: 1.5 * 2^-24 more than the sum of the rounded products."""
    x = np.float32([1, 1 + 2.0**-23])
    value, factor = (x * x).astype(np.float32), x
    for taken in (False, True):
        flags = np.array([False, taken])
        parts = (value, factor, factor, flags, np.zeros(2, bool))
        order = ScanOrder(contiguous, 2 // contiguous, 1)
        (found,) = scan_parts(parts, 0, order, lambda a, b: (binary(np.add, "fp32")(a, b),), elements=Chosen())
        exact = float(x[1]) ** 2 + 1 if taken else float(value[1]) + 1
        assert found[0] == value[0] and found[1] == np.float32(exact)


@pytest.mark.parametrize(("warps", "taken"), [(1, 1), (3, 1), (1, 0)])
def test_chunks_of_one_element_take_in_what_they_store(warps, taken):
    """What stands before the third element is the word of the second where one warp has them all; between warps it is a plain sum
    of what each of them left. The product `taken` of the first two, 1 + 2^-11 + 2^-24, rounds down, and its sum with 2^-26 up."""
    x = np.float32([2.0**-13, 1 + 2.0**-12, 2.0**-11] if taken else [1 + 2.0**-12, 2.0**-13, 2.0**-11])
    value = (x * x).astype(np.float32)
    parts = (value, x, x, np.array([not taken, taken, True]), np.zeros(3, bool))
    (words,) = scan_parts(parts, 0, ScanOrder(1, 1, warps), lambda a, b: (binary(np.add, "fp32")(a, b),), elements=Chosen())
    before = np.float32(1 + 2.0**-11 + (2.0**-23 if warps == 1 else 0))
    assert words[1] == np.float32(1 + 2.0**-11 + 2.0**-23) and words[2] == before + value[2]


@pytest.mark.share(4)
def test_a_sum_of_what_a_scan_leaves_as_it_is_lies_inside_its_enclosure():
    """The first elements of a scan are products still, which a sum behind it takes in: in some registers and not in others."""
    differing, inside, outside = compared(Launch("several scans", 16, 256, F32, 1))
    assert (differing, outside) == (0, 0) and inside > 1000


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


def test_reductions_whose_values_share_a_name_keep_their_products() -> None:
    """An H100 gives these words. Where the second combination's p is taken for the first one's, its sums round their products."""
    x, y = torch.arange(1, 9, dtype=F32) / 7, torch.zeros(2)
    with emulated("sm_90"):
        default_kernels.two_reductions[(1,)](x, y, 8, num_warps=1)
    lanes = [x.numpy()] * 2
    for step in (4, 2, 1):
        others = [lane[np.arange(8) ^ step] for lane in lanes]
        lanes = [fma(lanes[0], others[0], lanes[0]), (lanes[1] + others[1]) * others[1]]
    rounded = x.numpy()
    for step in (4, 2, 1):
        rounded = rounded * rounded[np.arange(8) ^ step] + rounded
    assert y.view(torch.int32).tolist() == [int(lane[0].view("i4")) for lane in lanes]
    assert lanes[0][0] != rounded[0], "the words tell the two apart"


@pytest.mark.parametrize(("rows", "columns"), [(4, 128), (16, 64)])
def test_functions_that_are_not_inlined_have_names_of_their_own(rows, columns):
    """Their values were those of the kernel with the same number: the reading was open, or ended in an IndexError."""
    x, y = (drawn((rows * columns,), F32, seed) for seed in (1, 2))
    found = []
    for kernel in (default_kernels.sum_beside_a_call, default_kernels.sum_beside_a_sum):
        out = torch.zeros(2 * columns)
        with emulated("sm_90") as device:
            kernel[(1,)](x, y, out, rows, columns, num_warps=1)
        assert device.enclosure(out) is None
        found.append(out)
    assert torch.equal(*found)
