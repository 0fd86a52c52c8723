"""Contract under test: the rule that says which layouts may hold row offsets, and what they cost, is the compiler's own.

Three layouts are taken from the seed's prose, the others drawn; every verdict is held against what the compiler makes of a gather
with that layout: a legal one compiles to as many gather4 as the verdict says, an illegal one is refused.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch
from triton._C.libtriton import gluon_ir, ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitverdict.harness.judge.offline_driver import capture_compilations
from bitverdict.kernels.offset_layout import FEWEST_ROWS, offset_layout
from bitverdict.kernels.tma_gather import described_rows
from tests.support.tutorial_facts import holds

SPREAD = gl.SliceLayout(0, gl.BlockedLayout([1, 4], [32, 1], [1, 4], [1, 0]))
TRANSPOSED = gl.SliceLayout(1, gl.BlockedLayout([4, 1], [1, 32], [4, 1], [0, 1]))
IN_ONE_WARP = gl.BlockedLayout([256], [32], [4], [0])
BY_LANES = gl.BlockedLayout([4], [32], [4], [0])
PAIRS = gl.SliceLayout(0, gl.BlockedLayout([1, 2], [32, 1], [1, 4], [1, 0]))
EIGHTS = gl.SliceLayout(0, gl.BlockedLayout([1, 8], [32, 1], [1, 4], [1, 0]))
TWO_LANES = gl.SliceLayout(0, gl.BlockedLayout([1, 4], [16, 2], [1, 4], [1, 0]))
ROWS = 256
ROWS_PER_INSTRUCTION = 4


@dataclass(frozen=True)
class LinearLayout:
    """Where each register, lane and warp bit sends an element: bases of a linear map over the bits of the index."""

    registers: tuple[tuple[int, ...], ...]
    lanes: tuple[tuple[int, ...], ...]
    warps: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class OffsetVerdict:
    """Whether a layout may hold row offsets; if so, how many warps issue and how many instructions each of them."""

    legal: bool
    reason: str
    linear: LinearLayout
    issuing_warps: int = 0
    instructions_per_warp: int = 0


def linear_layout(layout, shape: list[int]) -> LinearLayout:
    """The linear form of any distributed layout over `shape`, by the compiler's own conversion."""
    context = ir.context()
    ir.load_dialects(context)
    builder = gluon_ir.GluonOpBuilder(context)
    found = builder.to_linear_layout(layout._to_ir(builder), list(shape))

    def bases(of):
        return tuple(tuple(basis) for basis in of)

    return LinearLayout(bases(found.reg_bases), bases(found.lane_bases), bases(found.warp_bases), tuple(found.shape))


def offset_verdict(layout, rows: int) -> OffsetVerdict:
    """Whether `layout` may hold the offsets of `rows` rows, and what it costs."""
    linear = linear_layout(layout, [rows])
    if rows < FEWEST_ROWS:
        return OffsetVerdict(False, f"{rows} rows: at least {FEWEST_ROWS} must be moved", linear)
    if linear.registers[:2] != ((1,), (2,)):
        return OffsetVerdict(
            False,
            f"first register bases {linear.registers[:2]}: must be (1,) and (2,), four consecutive rows in consecutive registers",
            linear,
        )
    if any(basis != (0,) for basis in linear.lanes):
        return OffsetVerdict(False, f"lane bases {linear.lanes}: must all be (0,), the same rows in every lane of a warp", linear)
    issuing = 2 ** sum(basis != (0,) for basis in linear.warps)
    repeated = 2 ** sum(basis == (0,) for basis in linear.registers)
    registers = 2 ** len(linear.registers) // repeated
    spread = "spread over the warps" if issuing > 1 or not linear.warps else "all in one warp, the others hold copies"
    return OffsetVerdict(True, spread, linear, issuing, registers // ROWS_PER_INSTRUCTION)


@holds(
    "layouts",
    bases={
        "slice": {"registers": [[1], [2], [16], [32], [64], [128]], "lanes": [[0], [0], [0], [0], [0]], "warps": [[4], [8]]},
        "one warp": {
            "registers": [[1], [2], [4], [8], [16], [32], [64], [128]],
            "lanes": [[0], [0], [0], [0], [0]],
            "warps": [[0], [0]],
        },
        "illegal": {"registers": [[1], [2]], "lanes": [[4], [8], [16], [32], [64]], "warps": [[128], [0]]},
    },
)
@holds("transposed layout")
def test_the_three_layouts_of_the_prose_have_its_bases_and_verdicts() -> None:
    spread = linear_layout(SPREAD, [ROWS])
    assert spread.registers == ((1,), (2,), (16,), (32,), (64,), (128,))
    assert (spread.lanes, spread.warps) == (((0,),) * 5, ((4,), (8,)))
    assert linear_layout(TRANSPOSED, [ROWS]) == spread
    one = linear_layout(IN_ONE_WARP, [ROWS])
    assert one.registers == tuple((1 << bit,) for bit in range(8))
    assert (one.lanes, one.warps) == (((0,),) * 5, ((0,), (0,)))
    lanes = linear_layout(BY_LANES, [ROWS])
    assert (lanes.registers, lanes.lanes, lanes.warps) == (((1,), (2,)), ((4,), (8,), (16,), (32,), (64,)), ((128,), (0,)))
    assert [offset_verdict(layout, ROWS).legal for layout in (SPREAD, TRANSPOSED, IN_ONE_WARP, BY_LANES)] == [
        True,
        True,
        True,
        False,
    ]


@holds("instructions of a gather", counts=[64, 16])
def test_spreading_costs_a_quarter_of_the_instructions_of_one_warp() -> None:
    assert offset_verdict(SPREAD, ROWS).instructions_per_warp == 16
    assert offset_verdict(IN_ONE_WARP, ROWS).instructions_per_warp == 64
    assert offset_verdict(IN_ONE_WARP, ROWS).issuing_warps == 1


@gluon.jit
def gather_with(table, offsets, LAYOUT: gl.constexpr, ROWS: gl.constexpr):
    numbers = gl.load(offsets + gl.arange(0, ROWS, LAYOUT))  # (ROWS,)
    tile = gl.allocate_shared_memory(table.dtype, [ROWS, table.block_shape[1]], table.layout)  # (ROWS, columns)
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(done, count=1)
    mbarrier.expect(done, ROWS * table.nbytes_per_cta)
    tma.async_gather(table, numbers, 0, done, tile)
    mbarrier.wait(done, phase=0)


def gathers(layout, rows: int) -> int:
    """How many gather4 a warp runs through when the offsets have this layout; -1 where the compiler refuses."""
    table = described_rows(torch.zeros(64, 32, dtype=torch.bfloat16), rows, 32)
    try:
        with capture_compilations("sm_100") as kept:
            gather_with[(1,)](table, torch.zeros(rows, dtype=torch.int32), layout, rows, num_warps=4)
    except RuntimeError:
        return -1
    return len(re.findall(r"tile::gather4", kept[0].assembly))


@pytest.mark.parametrize("rows", [8, 32, 256])
@pytest.mark.parametrize("layout", [SPREAD, TRANSPOSED, BY_LANES, PAIRS, EIGHTS, TWO_LANES, IN_ONE_WARP])
def test_the_compiler_does_what_the_verdict_says(layout, rows: int) -> None:
    verdict = offset_verdict(layout, rows)
    assert gathers(layout, rows) == (verdict.instructions_per_warp if verdict.legal else -1), verdict.reason


@pytest.mark.parametrize("registers", [[[1], [2], [0], [4]], [[1], [2], [4], [0]], [[1], [2], [0]]])
def test_rows_that_registers_repeat_are_gathered_once(registers: list[list[int]]) -> None:
    layout = gl.DistributedLinearLayout(registers, [[0]] * 5, [[0], [0]] if [4] in registers else [[4], [0]], [], [8])
    verdict = offset_verdict(layout, 8)
    assert verdict.legal and gathers(layout, 8) == verdict.instructions_per_warp, verdict


def test_the_kernels_own_layout_is_legal_for_all_rows_and_warps() -> None:
    for warps in (1, 2, 4, 8):
        for rows in (8, 16, 32, 64, 128, 256):
            assert offset_verdict(offset_layout(warps), rows).legal


def test_a_verdict_names_what_is_wrong_with_a_layout() -> None:
    assert "lane" in offset_verdict(BY_LANES, ROWS).reason
    assert "register" in offset_verdict(PAIRS, ROWS).reason
    assert "at least 8" in offset_verdict(SPREAD, 4).reason


@holds("block of the descriptor")
def test_a_descriptor_with_blocks_of_several_rows_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    """By Triton itself, where one row a block compiles."""
    table = torch.zeros(64, 32, dtype=torch.bfloat16)
    layout = described_rows(table, 8, 32).layout
    for block in ([1, 32], [2, 32]):
        box = TensorDescriptor.from_tensor(table, block, layout)
        refused = nullcontext() if block[0] == 1 else pytest.raises(RuntimeError)
        with refused, capture_compilations("sm_100"):
            gather_with[(1,)](box, torch.zeros(8, dtype=torch.int32), SPREAD, 8, num_warps=4)
        assert ("must have exactly 1 row" in capfd.readouterr().err) == (block[0] == 2)
