"""Contract under test: reductions and scans of floats combine in the order that the compiled program's layout implies, word for
word as its PTX does; each wrong order shows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.experimental.gluon import language as gl

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.execution.threads import bases
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.frontend import stop_compiler
from bitverdict.harness.emulator.numerics.scalar_ops import fma
from bitverdict.harness.model.triton_release import sums_by_tree
from bitverdict.reference.reduction_order import (
    Layout,
    ReductionOrder,
    ScanOrder,
    blocked_layout,
    copies,
    reduce_parts,
    reduction_order,
    scan_order,
    scan_parts,
)
from tests.support import reduction_kernels as kernels
from tests.support.reduction_words import Found, both_ways, drawn

ROWS, COLUMNS = 8, 64
ROW = blocked_layout(
    (ROWS, COLUMNS), (1, 4), (2, 16), (4, 1), (1, 0)
)  # what the compiler takes for a tile of that shape, on four warps


CHAIN = not sums_by_tree()  # by the Triton that is installed


def compiled_order(layout: Layout, *, pairs: bool = False) -> ReductionOrder:
    """Along the last axis."""
    return reduction_order(layout, 1, pairs=pairs, chain=CHAIN)


def named(count: int) -> np.ndarray:
    return np.array([chr(ord("a") + i) for i in range(count)], object)


def added(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
    """Sums as texts: ab is a + b."""
    return (np.vectorize(lambda x, y: f"({x}{y})", otypes=[object])(a, b),)


def tree(layout: Layout, count: int, pairs: bool = False) -> str:
    return str(reduce_parts((named(count),), 0, reduction_order(layout, 0, pairs=pairs), added)[0])


# -- the order as a text ------------------------------------------------------------------------------------------------
def test_a_thread_sums_by_a_balanced_tree_in_the_order_of_registers():
    assert tree(Layout(((1,), (2,), (4,)), (), ()), 8) == "(((ab)(cd))((ef)(gh)))"
    assert tree(Layout(((4,), (0,), (1,), (2,)), (), ()), 8) == "(((ae)(bf))((cg)(dh)))"


def test_pairs_of_registers_are_summed_side_by_side_and_in_the_end():
    assert tree(Layout(((1,), (2,), (4,)), (), ()), 8, pairs=True) == "(((ac)(eg))((bd)(fh)))"
    assert tree(Layout(((1,),), (), ()), 2, pairs=True) == "(ab)"


def test_until_3_7_a_thread_sums_one_register_after_another():
    for registers, text in ((((1,), (2,), (4,)), "(((((((ab)c)d)e)f)g)h)"), (((4,), (0,), (1,), (2,)), "(((((((ae)b)f)c)g)d)h)")):
        order = reduction_order(Layout(registers, (), ()), 0, pairs=True, chain=True)
        assert str(reduce_parts((named(8),), 0, order, added)[0]) == text and order.steps_of_thread == 7
        assert copies((named(8),), 0, order, added)[0].tolist() == [text]
    assert [sums_by_tree(version) for version in ("3.6.0", "3.7.1", "3.8.0", "3.9.1")] == [False, False, True, True]


def test_lanes_are_summed_from_the_highest_bit_and_warps_likewise():
    assert tree(Layout((), ((1,), (2,)), ()), 4) == "((ac)(bd))"
    assert tree(Layout((), ((1,),), ((2,), (4,))), 8) == "(((ab)(ef))((cd)(gh)))"
    assert tree(Layout(((1,),), ((2,),), ((4,),)), 8) == "(((ab)(cd))((ef)(gh)))"


def test_a_combination_with_sides_differs_from_lane_to_lane():
    found = copies((named(4),), 0, ReductionOrder((), (1, 0), ()), added)
    assert found is not None and found[0].tolist() == ["((ac)(bd))", "((bd)(ac))", "((ca)(db))", "((db)(ca))"]


def test_copies_are_not_known_where_lanes_that_disagree_meet():
    """In shared memory, before warps are summed."""
    assert copies((named(4),), 0, ReductionOrder((), (0,), (1,)), added) is None
    assert copies((np.ones(4),), 0, ReductionOrder((), (0,), (1,)), lambda a, b: (a + b,)) is not None


def test_a_scan_is_a_chain_in_a_thread_and_doubles_over_lanes():
    found = scan_parts((named(8),), 0, ScanOrder(2, 4, 1), added)[0].tolist()
    assert found[1::2] == ["(ab)", "((ab)(cd))", "((ab)((cd)(ef)))", "(((ab)(cd))((ef)(gh)))"]
    assert found[::2] == ["a", "((ab)c)", "(((ab)(cd))e)", "(((ab)((cd)(ef)))g)"]
    chunks = scan_parts((named(6),), 0, ScanOrder(1, 1, 2), added)[0].tolist()
    assert chunks[-1] == "(((((ab)c)d)e)f)"
    assert scan_parts((named(4),), 0, ScanOrder(1, 4, 1), added, reverse=True)[0].tolist() == ["((dc)(ba))", "(d(cb))", "(dc)", "d"]


@pytest.mark.parametrize(
    "shape, per_thread, per_warp, warps, order",
    [
        ((8, 64), (1, 4), (2, 16), (4, 1), (1, 0)),
        ((64, 4), (2, 2), (16, 2), (2, 2), (0, 1)),
        ((4, 8), (1, 4), (8, 4), (2, 2), (1, 0)),
        ((4, 8, 32), (1, 1, 4), (1, 4, 8), (2, 2, 1), (2, 1, 0)),
    ],
)
def test_a_blocked_layout_has_the_bases_that_the_compiler_gives_it(shape, per_thread, per_warp, warps, order):
    text = "sizePerThread = {}, threadsPerWarp = {}, warpsPerCTA = {}, order = {}".format(
        *(list(each) for each in (per_thread, per_warp, warps, order))
    )
    assert Layout.from_bases(*bases(shape, f"#ttg.blocked<{{{text}}}>")) == blocked_layout(
        shape, per_thread, per_warp, warps, order
    )


def test_a_basis_of_two_axes_is_refused():
    with pytest.raises(ValueError, match="more than one axis"):
        Layout.from_bases([[1, 1]], [], [])


# -- the words ----------------------------------------------------------------------------------------------------------
@cache
def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return drawn((ROWS, COLUMNS), torch.float32, 1), drawn((ROWS, COLUMNS), torch.float32, 2)


@cache
def words(arch: str) -> Found:
    outputs = [torch.zeros(n) for n in (ROWS, COLUMNS, ROWS + 1, ROWS * COLUMNS)]
    return both_ways(kernels.folds, list(inputs()), outputs, {"ROWS": ROWS, "COLUMNS": COLUMNS}, arch, 4)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_reductions_and_scans_have_the_words_of_their_ptx(arch):
    assert words(arch).differing == 0


def test_a_row_is_summed_by_as_many_instructions_as_the_tree_has_steps():
    outputs = [torch.zeros(ROWS)]
    constants = {"ROWS": ROWS, "COLUMNS": COLUMNS, "AXIS": 1, "KIND": "dot"}
    ran = {arch: both_ways(kernels.fold, list(inputs()), outputs, constants, arch, 4).ran for arch in ("sm_90", "sm_100")}
    counts = [ran["sm_90"][opcode] for opcode in ("mul.f32", "fma.rn.f32", "add.f32", "shfl.sync.bfly.b32")]
    assert counts == ([1, 3, 4, 4] if CHAIN else [2, 2, 5, 4])
    packed = [ran["sm_100"][opcode] for opcode in ("mul.f32x2", "fma.rn.f32x2", "add.f32", "shfl.sync.bfly.b32")]
    assert packed == ([2, 2, 4, 4] if CHAIN else [1, 1, 5, 4])


@pytest.mark.parametrize("dtype, arch", [(torch.float16, "sm_80"), (torch.bfloat16, "sm_90")])
def test_sums_of_16_bits_round_at_each_step_in_their_own_format(dtype, arch):
    """Triton does not widen them; pairs of registers are packed from sm_90 on."""
    x, y = (each.to(dtype) for each in inputs())
    constants = {"ROWS": ROWS, "COLUMNS": COLUMNS, "AXIS": 1, "KIND": "dot"}
    assert both_ways(kernels.fold, [x, y], [torch.zeros(ROWS, dtype=dtype)], constants, arch, 4).differing == 0


def test_without_fusion_products_are_rounded_before_they_are_summed():
    constants = {"ROWS": ROWS, "COLUMNS": COLUMNS, "AXIS": 1, "KIND": "dot"}
    found = both_ways(kernels.fold, list(inputs()), [torch.zeros(ROWS)], constants, "sm_90", 4, enable_fp_fusion=False)
    a, b = (each.numpy() for each in inputs())
    due = reduce_parts((a * b,), 1, compiled_order(ROW), lambda x, y: (x + y,))[0]
    assert found.differing == 0 and (found.emulated[0].view(np.float32)[:, 0] == due).all()


def test_a_product_by_two_that_became_a_sum_is_a_product_still():
    """Weights are one, so a thread's second step multiplies by two: LLVM writes a * b * 2 as the fused a * b + (a * b)."""
    x = drawn((4, 32), torch.float32, 3)
    constants = {"ROWS": 4, "COLUMNS": 32, "AXIS": 1, "KIND": "counted"}
    assert both_ways(kernels.fold, [x, x], [torch.zeros(4, 32)], constants, "sm_90", 1).differing == 0


LAYOUTS = {
    "wgmma": gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 32, 16]),
    "linear": gl.DistributedLinearLayout(
        reg_bases=[[4, 0], [0, 1], [0, 16], [32, 0]],
        lane_bases=[[0, 2], [1, 0], [0, 4], [2, 0], [0, 8]],
        warp_bases=[[16, 0], [8, 0]],
        block_bases=[],
        shape=[64, 32],
    ),
}


@pytest.mark.parametrize(
    "layout, arch, axis, dtype", [("wgmma", "sm_90", 1, torch.float16), ("linear", "sm_100", 0, torch.float32)]
)
def test_other_layouts_are_asked_of_the_compiler(layout, arch, axis, dtype):
    x, out = drawn((64, 32), dtype, 1), torch.zeros(64 if axis else 32, dtype=dtype)
    constants = {"ROWS": 64, "COLUMNS": 32, "AXIS": axis, "LAYOUT": LAYOUTS[layout]}
    if CHAIN and layout == "linear":  # the compiler's fault: it shuffles by 4 and 2
        with pytest.raises(NotModelled, match=r"over bits 1, 3 of the lane: before Triton 3\.8 the compiler combines other lanes"):
            both_ways(kernels.fold_layout, [x], [out], constants, arch, 4)
        return
    assert both_ways(kernels.fold_layout, [x], [out], constants, arch, 4).differing == 0


def summed(order: ReductionOrder) -> np.ndarray:
    return reduce_parts((inputs()[0].numpy(),), 1, order, lambda a, b: (a + b,))[0]


def right(pairs: bool) -> ReductionOrder:
    return compiled_order(ROW, pairs=pairs)


MUTANTS: dict[str, tuple[str, Callable[[], np.ndarray]]] = {
    "a chain in the thread, or a tree": ("sm_90", lambda: summed(reduction_order(ROW, 1, chain=not CHAIN))),
    "lanes from the lowest bit": ("sm_90", lambda: summed(replace(right(False), lanes=right(False).lanes[::-1]))),
    "lanes before the thread": ("sm_90", lambda: summed(ReductionOrder(right(False).lanes, right(False).thread, ()))),
}
if not CHAIN:
    MUTANTS |= {
        "pairs where there are none": ("sm_90", lambda: summed(right(True))),
        "no pairs where there are some": ("sm_100", lambda: summed(right(False))),
    }


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_order_of_a_sum_has_other_words(mutant):
    arch, wrong = MUTANTS[mutant]
    got = words(arch).by_ptx[0].view(np.float32)[:, 0]
    assert (got == summed(right(arch == "sm_100"))).all()
    assert (got != wrong()).any()


def test_warps_in_the_wrong_order_have_other_words():
    values = drawn((16, 1024), torch.float32, 5).numpy()
    order = compiled_order(blocked_layout((1, 1024), (1, 4), (1, 32), (1, 4), (1, 0)))
    orders = [replace(order, warps=warps) for warps in (order.warps, order.warps[::-1])]
    ways = [reduce_parts((values,), 1, each, lambda a, b: (a + b,))[0] for each in orders]
    assert (ways[0] != ways[1]).any()
    constants = {"ROWS": 1, "COLUMNS": 1024, "AXIS": 1, "KIND": "sum"}
    for row, due, wrong in zip(values, *ways, strict=True):
        if due != wrong:
            given = torch.from_numpy(row[None].copy())
            found = both_ways(kernels.fold, [given, given], [torch.zeros(1)], constants, "sm_90", 4)
            assert found.differing == 0 and found.emulated[0].view(np.float32)[0, 0] == due
            return


def test_wrong_orders_of_a_scan_have_other_words():
    values, weights = (each.numpy() for each in inputs())
    got = words("sm_90").by_ptx[3].view(np.float32).reshape(ROWS, COLUMNS)
    right_order = scan_order(ROW, (ROWS, COLUMNS), 1)
    assert right_order == ScanOrder(4, 16, 1)

    def ran(order: ScanOrder, reverse: bool = True) -> np.ndarray:
        return scan_parts((weights, values), 1, order, _decayed, reverse=reverse)[1]

    assert (ran(right_order) == got).all()
    for wrong in (ScanOrder(64, 1, 1), ScanOrder(1, 16, 4), ScanOrder(4, 1, 1), ScanOrder(2, 32, 1)):
        assert (ran(wrong) != got).any(), wrong
    assert (ran(right_order, reverse=False) != got).any()


def _decayed(decay_a: np.ndarray, value_a: np.ndarray, decay_b: np.ndarray, value_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return decay_a * decay_b, fma(value_a, decay_b, value_b)


@triton.jit
def total(x, out):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, 32)), 0))


@pytest.mark.parametrize(("order", "is_taken"), [("unordered", True), ("inner_tree", False)])
def test_a_reduction_in_a_given_order_is_refused(
    order: str, is_taken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The name that Meta's fork gives the order that every release has is taken."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    printed = stop_compiler.generic_text
    due = f'axis = 0 : i32, reduction_ordering = "{order}"}}>'
    monkeypatch.setattr(stop_compiler, "generic_text", lambda *given: printed(*given).replace("axis = 0 : i32}>", due))
    x, out = torch.arange(32.0), torch.zeros(1)
    with emulated("sm_90"):
        total.device_caches.clear()
        with nullcontext() if is_taken else pytest.raises(EmulatedFault, match="in a given order"):
            total[(1,)](x, out)
        total.device_caches.clear()
    assert (out[0] == x.sum()) == is_taken
