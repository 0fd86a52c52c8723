"""Contract under test: where lanes have different words of one result, each use takes the word that the compiled program's thread
has, and shared memory keeps the one that an H100 keeps; each wrong copy shows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.model.triton_release import sums_by_tree
from bitverdict.reference import thread_words
from bitverdict.reference.reduction_order import Layout, blocked_layout, copies, reduction_order
from bitverdict.reference.thread_words import (
    MATRIX,
    Reduction,
    UnsettledWordError,
    inside_threads,
    reduced_by_threads,
    settle_stores,
    shuffle_sources,
)
from tests.support import reduction_kernels as kernels
from tests.support.reduction_words import both_ways, drawn

COPIES = Layout((), ((0,),) * 5, ())  # one element, which all lanes of one warp hold
LANES = np.arange(32.0)[:, None]


def widths(*forms: int):
    return lambda: forms


# -- which word stays in shared memory ----------------------------------------------------------------------------------
@pytest.mark.parametrize("form, stays", [(2, 0), (4, 0), (8, 16), (16, 24), (MATRIX, 0)])
def test_the_lowest_lane_of_the_last_turn_stays(form, stays):
    assert (settle_stores(LANES, COPIES, widths(form)) == stays).all()


def test_only_lanes_that_hold_one_element_meet():
    rows = Layout((), ((1,), (2,), (4,), (0,), (0,)), ())
    assert settle_stores(LANES, rows, widths(4))[:, 0].tolist() == list(range(8)) * 4
    assert settle_stores(LANES, rows, widths(16))[:, 0].tolist() == list(range(24, 32)) * 4
    columns = Layout((), ((0,), (0,), (1,), (2,), (4,)), ())
    assert settle_stores(LANES, columns, widths(16))[:, 0].tolist() == [each for each in range(0, 32, 4) for _ in range(4)]


def test_what_order_does_not_settle_is_refused():
    both = Layout((), ((0,),) * 5, ((0,),))
    assert (settle_stores(np.concatenate([LANES, LANES]), both, widths(4)) == 0).all()
    for words, forms, said in (
        (np.concatenate([LANES, LANES + 1]), (4,), "from warp to warp"),
        (LANES, (4, 16), "several widths"),
        (LANES, (), "not known"),
    ):
        layout = both if len(words) == 64 else COPIES
        with pytest.raises(UnsettledWordError, match=said):
            settle_stores(words, layout, widths(*forms))
    assert (settle_stores(np.ones((32, 1)), COPIES, widths()) == 1).all()  # the same words: nothing to settle


# -- which copy a thread goes on with -----------------------------------------------------------------------------------
def test_a_shuffle_names_the_lane_whose_copy_is_taken():
    """Lanes 8 and 16 hold copies, then lanes 1 and 2: what lay in lane bits 0 to 2 moves up."""
    before = Layout((), ((1,), (2,), (4,), (0,), (0,)), ())
    after = Layout((), ((0,), (0,), (1,), (2,), (4,)), ())
    lane, register = shuffle_sources(before, after)
    assert (register == 0).all() and lane[:, 0].tolist() == [(i >> 2) + 8 * (i & 3) for i in range(32)]
    assert shuffle_sources(before, before)[0][:, 0].tolist() == list(range(32))
    with_registers = Layout(((1,), (2,)), ((4,), (0,), (0,), (0,), (0,)), ())
    lane, register = shuffle_sources(with_registers, Layout(((4,),), ((1,), (2,), (0,), (0,), (0,)), ()))
    assert lane[:4].tolist() == [[0, 1], [0, 1], [0, 1], [0, 1]] and register[:4].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_a_thread_takes_what_it_holds_and_nothing_else():
    held, words = np.array([[0, 1], [2, 3]]), np.array([["a", "b"], ["c", "d"]])
    assert inside_threads(words, held, np.array([[1, 1, 0], [2, 2, 3]])).tolist() == [["b", "b", "a"], ["c", "c", "d"]]
    with pytest.raises(ValueError, match="has not what it needs"):
        inside_threads(words, held, np.array([[2], [2]]))


def test_threads_have_the_copies_that_lanes_have():
    """The two ways to the words of a reduction inside a warp are one."""
    layout, shape = blocked_layout((2, 16), (1, 1), (2, 16), (1, 1), (1, 0)), (2, 16)
    order, values = reduction_order(layout, 1), np.array([[chr(97 + i) for i in range(16)]] * 2, object)

    def added(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
        return (a + b,)

    due = copies((values,), 1, order, added)
    plan = Reduction(layout, shape, 1, order, Layout((), (*[(0,)] * 4, (1,)), ()))
    held = thread_words.elements(layout, shape)
    (found,), differ = reduced_by_threads((values.reshape(-1)[held],), plan, added, None, widths())
    assert due is not None and not differ
    bits = [int(f"{lane:04b}", 2) for lane in range(16)]  # copies are counted from the highest lane bit too
    assert found[:16, 0].tolist() == [due[0][0][i] for i in bits]


def test_words_of_lanes_and_those_that_they_load_are_combined_apart():
    """Of 256 elements a thread has two, a warp 64: 128 sums in threads, 124 over lanes, two of what is loaded, one over lanes."""

    def combine(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
        return (a + b + 1,)

    combine.across = lambda a, b: (a + b + 1_000,)  # type: ignore[attr-defined]
    combine.loaded = lambda a, b: (a + b + 1_000_000,)  # type: ignore[attr-defined]
    layout, shape = blocked_layout((1, 256), (1, 2), (1, 32), (1, 4), (1, 0)), (1, 256)
    order, values = reduction_order(layout, 1), np.zeros((1, 256), np.int64)
    due = copies((values,), 1, order, combine)
    plan, held = Reduction(layout, shape, 1, order, None), thread_words.elements(layout, shape)
    (found,), _ = reduced_by_threads((values.reshape(-1)[held],), plan, combine, None, widths())
    assert due is not None and {*due[0].flat} == {*found.flat} == {128 + 125_000 + 2_000_000}


# -- the words of compiled programs -------------------------------------------------------------------------------------
def differing(kind: str, rows: int, columns: int, axis: int, warps: int, arch: str = "sm_90", left: int = 0) -> int:
    """Words that differ between the emulated GPU and the PTX."""
    further = kind in ("squared", "carried", "behind", "turned", "all")
    x, y = drawn((rows, columns), torch.float32, 3), drawn((rows, columns), torch.float32, 4).abs()
    constants = {"ROWS": rows, "COLUMNS": columns, "AXIS": axis, "KIND": kind}
    out = torch.zeros(left or rows * columns)
    return both_ways(kernels.fold_further if further else kernels.fold, [x, y], [out], constants, arch, warps).differing


def first_lane(form: int) -> np.ndarray:
    return -np.arange(32)


def last_lane(form: int) -> np.ndarray:
    return np.arange(32)


MEETINGS = {  # how the words are stored -> the case, and a rule that gives other words
    "four words a lane": (("dot", 8, 32, 0, 2, "sm_90", 32), first_lane if sums_by_tree() else last_lane),
    "by matrices": (("normalised", 8, 16, 0, 2), last_lane),
}
if sums_by_tree():  # before, no lanes meet in this one
    MEETINGS["one word a lane"] = (("less", 8, 16, 1, 8, "sm_90", 8), last_lane)


@pytest.mark.parametrize("meeting", MEETINGS)
def test_what_lanes_store_to_one_place_has_the_words_of_the_ptx(meeting, monkeypatch):
    """The PTX is executed by its own statement of what stays. By it, in 16384 words of these cases, as many differ from the last
    lane's as on an H100: 0, 5569, 9951."""
    case, wrong = MEETINGS[meeting]
    assert differing(*case) == 0
    monkeypatch.setattr(thread_words, "precedence", wrong)
    assert differing(*case) > 0


@pytest.mark.parametrize(
    "case",
    [
        ("squared", 4, 16, 1, 2),
        ("carried", 8, 4, 0, 1),
        ("behind", 16, 8, 0, 4),
        ("turned", 4, 8, 1, 1, "sm_100"),
        ("all", 2, 16, 1, 1, "sm_80"),
    ],
    ids=lambda case: case[0],
)
def test_words_that_differ_from_lane_to_lane_are_used_further(case):
    """In further reductions, in sums that take a product, carried by a loop, through scalars, reshaped."""
    assert differing(*case) == 0


def test_a_wrong_lane_of_a_shuffle_has_other_words(monkeypatch):
    x, y = drawn((2, 32), torch.float32, 1), drawn((2, 32), torch.float32, 2)
    constants = {"ROWS": 2, "COLUMNS": 32, "AXIS": 0, "KIND": "dot"}  # two elements a thread, brought to one by a shuffle
    assert both_ways(kernels.fold, [x, y], [torch.zeros(32)], constants, "sm_90", 1).differing == 0
    right = thread_words.shuffle_sources
    monkeypatch.setattr(thread_words, "shuffle_sources", lambda *sides: (right(*sides)[0] ^ 16, right(*sides)[1]))
    assert both_ways(kernels.fold, [x, y], [torch.zeros(32)], constants, "sm_90", 1).differing > 0


def test_lanes_that_store_different_words_to_one_place_draw_an_advice():
    """Where registers are summed one after another the first lane stores alone."""
    x, y = drawn((1, 128), torch.float32, 1), drawn((1, 128), torch.float32, 2)
    constants = {"ROWS": 1, "COLUMNS": 128, "AXIS": 1, "KIND": "dot"}
    with emulated("sm_90") as device:
        kernels.fold[(1,)](x, y, torch.zeros(1), **constants, num_warps=4)
    assert ("different words of one result" in " ".join(device.advice)) == sums_by_tree()
    with emulated("sm_90") as device:  # whole numbers: all lanes have the same word
        kernels.fold[(1,)](x.round(), y.round(), torch.zeros(1), **constants, num_warps=4)
    assert not device.advice


@triton.jit
def branching(x, y, out, N: tl.constexpr):
    places = tl.arange(0, N)
    total = tl.sum(tl.load(x + places) * tl.load(y + places))
    if total > 0:
        tl.store(out, total)


def test_a_branch_on_words_that_differ_from_lane_to_lane_is_refused():
    """Lanes would part."""
    y = torch.full((32,), 1 + 2.0**-23)
    x = torch.cat([y[:16], -y[16:]])  # what one product loses by rounding is what a lane's sum is: +2^-46 or -2^-46, 16 times
    with emulated("sm_90"), pytest.raises(EmulatedFault, match="words differ from lane to lane"):
        branching[(1,)](x, y, torch.zeros(1), 32, num_warps=1)
    with emulated("sm_90"):
        out = torch.zeros(1)
        branching[(1,)](x.abs(), y, out, 32, num_warps=1)
    assert out > 32


@triton.jit
def two_quotients(x, total, other, n, eps, C: tl.constexpr):
    at = tl.load(x + tl.arange(0, C))
    level = tl.log(tl.sum(tl.exp(at)))
    one, two = (tl.sum(-eps * at) + eps * C * level) / n, level * level / n
    one += two
    tl.store(total, one)
    tl.store(other, two)


def test_a_sum_of_two_quotients_of_copies_is_enclosed():
    """Which of the two divisions ptxas takes into the sum is open, and a lane may have other words of the first: Liger's cross
    entropy with smoothing. Its users are those of the value that is copied."""
    torch.manual_seed(3)
    x, total, other = torch.randn(128), torch.zeros(1), torch.zeros(1)
    with emulated("sm_90") as device:
        two_quotients[(1,)](x, total, other, 7, 0.1, 128)
        low, high = (each.view(np.float32)[0] for each in device.enclosure(total))
    wide = x.double()
    level = torch.logsumexp(wide, 0)
    exact = float((torch.sum(-0.1 * wide) + 12.8 * level) / 7 + level * level / 7)
    assert low < high and low <= total.item() <= high
    assert low - 1e-5 < exact < high + 1e-5 and high - low < 1e-5


# -- waves of 64 lanes --------------------------------------------------------------------------------------------------
def test_a_shuffle_of_a_wave_of_64_lanes_reaches_all_of_them():
    """Eight by eight elements, one a lane, transposed inside the wave: each thread takes the word of another lane."""
    rows = Layout((), ((0, 1), (0, 2), (0, 4), (1, 0), (2, 0), (4, 0)), ((0, 0),))
    columns = Layout((), ((1, 0), (2, 0), (4, 0), (0, 1), (0, 2), (0, 4)), ((0, 0),))
    words = np.arange(128.0)[:, None]  # two waves, with words of their own
    got = thread_words.shuffle_words(words, rows, columns)[:, 0].reshape(2, 8, 8)
    assert (got == words.reshape(2, 8, 8).transpose(0, 2, 1)).all()


def test_words_that_64_lanes_store_to_one_place_are_refused():
    copies_of_one = Layout((), ((0,),) * 6, ())
    assert (settle_stores(np.ones((64, 1)), copies_of_one, widths(4)) == 1).all()
    with pytest.raises(UnsettledWordError, match="by 64 lanes, of which no GPU was asked"):
        settle_stores(np.arange(64.0)[:, None], copies_of_one, widths(4))


@triton.jit
def normed_rows(x, out, rstd_ptr, R: tl.constexpr, C: tl.constexpr):
    places = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    at = tl.load(x + places)
    far = at - (tl.sum(at, 1) / C)[:, None]
    rstd = 1 / tl.sqrt(tl.sum(far * far, 1) / C + 1e-5)
    tl.store(rstd_ptr + tl.arange(0, R), rstd)
    tl.store(out + places, far * rstd[:, None])


@pytest.mark.parametrize("rows, columns, warps", [(8, 8, 1), (4, 16, 4), (4, 64, 1), (1, 256, 4)])
def test_rows_of_a_wave_of_64_lanes_are_normed(rows, columns, warps):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))
    out, rstd = torch.empty(rows, columns), torch.empty(rows)
    with emulated("gfx942"):
        normed_rows[(1,)](x, out, rstd, rows, columns, num_warps=warps)
    wide = x.double()
    exact = torch.nn.functional.layer_norm(wide, (columns,), eps=1e-5)
    assert (out - exact).abs().max() < 1e-5 and (rstd - (wide.var(1, correction=0) + 1e-5).rsqrt()).abs().max() < 1e-5
