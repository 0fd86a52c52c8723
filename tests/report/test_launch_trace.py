"""Contract under test: a trace of a launch has the kernel's variables after each line, in each program, and who touched, held and
rounded what; what it does not have it names."""

from __future__ import annotations

import linecache
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import bitverdict as bv
from bitverdict.harness.emulator.recorder import ADDS
from bitverdict.harness.frontends.main import main
from bitverdict.harness.ptx_machine.program import _mark_lines
from bitverdict.harness.report.launch_trace import memory_facts, trace
from bitverdict.harness.report.launch_trace.layouts import layout_of_tile
from bitverdict.harness.report.launch_trace.lines import screen
from bitverdict.harness.report.launch_trace.page import trace_page
from bitverdict.harness.report.launch_trace.records import GlobalWords, source_of
from bitverdict.harness.report.timeline import timeline
from tests.report.test_page import CONTRAST
from tests.support import chromium, emulated_launches, traced_launches
from tests.support.told_run import RING, TOLD, event, piece
from tests.support.traced_launches import halves_kernel, launch_nothing


@triton.jit
def counted_kernel(x, y, z, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    rounded = (tl.load(x + at) * 1.1).to(tl.float16)
    scaled = rounded.to(tl.float32) * 1.1
    tl.atomic_add(y, 1.0)
    tl.store(z + at, scaled)


@triton.jit
def open_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    z = tl.load(y + at)
    z = tl.where(z > 0, tl.load(x + at) * z, tl.load(x + at) * tl.load(x + BLOCK + at)) + z
    tl.store(y + at, z)


@gluon.jit
def columns_kernel(x, y, BANKS: gl.constexpr):
    rows: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    at = gl.arange(0, 32, gl.SliceLayout(1, rows))[:, None] * 32 + gl.arange(0, 32, gl.SliceLayout(0, rows))[None, :]
    room = gl.allocate_shared_memory(gl.float32, [32, 32], gl.SwizzledSharedLayout(1, 1, BANKS, [1, 0]))
    room.store(gl.load(x + at))
    columns = room.permute((1, 0)).load(rows)
    gl.store(y + at, columns)


@pytest.fixture(scope="module")
def traced() -> tuple:
    with bv.emulated("sm_90") as gpu:
        x = torch.arange(40, dtype=torch.float32).to(torch.bfloat16).cuda()
        y = torch.empty(40, dtype=torch.float32, device="cuda")
        found = bv.trace(halves_kernel[(2,)], x, y, 40, BLOCK=32)
        halves_kernel[(2,)](x, y, 40, BLOCK=32)
        return found, y.cpu().numpy(), len(found.tiles), gpu.options.edited_programs


def test_a_tile_is_that_of_its_program_in_its_format(traced: tuple) -> None:
    found, y, kept, edited = traced
    assert found.tile("a", program=1).tolist() == [*range(32, 40), *[0.0] * 24], "bf16 by value, not by code"
    assert found.tile("a").tolist() == list(range(32))
    assert np.array_equal(y, 3 * np.arange(40)), "the launch itself is as ever"
    assert edited is None and kept == len(found.tiles), "later launches are not traced"


def test_a_variable_of_a_loop_has_its_last_value_and_each_before(traced: tuple) -> None:
    found = traced[0]
    assert found.tile("total").tolist() == [3.0 * i for i in range(32)]
    sums = [each.value[1] for each in found.tiles if each.program == 0 and each.name == "total" and each.value.shape == (32,)]
    assert sums[-1] == 3.0 and 1.0 in sums
    line = next(each.line for each in found.tiles if each.name == "a")
    assert found.tile("a", line=line) is not None
    with pytest.raises(ValueError, match=r"trace of 'b' in program 0: no such value; there are .*a \(line"):
        found.tile("b")
    with pytest.raises(ValueError, match="of no such program"):
        found.tile("a", program=2)


def test_what_is_cut_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_BYTES", 4096)
    with bv.emulated("sm_90"):
        x, y = torch.ones(64, dtype=torch.bfloat16, device="cuda"), torch.empty(64, device="cuda")
        cut = bv.trace(halves_kernel[(2,)], x, y, 64, BLOCK=32)
        with pytest.raises(ValueError, match=r"'total' in program 1: is cut: .*traced_programs=\[1\]"):
            cut.tile("total", program=1)
        assert "not kept: a value that is cut" in "\n".join(screen(cut, 1))
        monkeypatch.setattr(trace, "MOST_BYTES", 1 << 20)
        one = bv.trace(halves_kernel[(2,)], x, y, 64, BLOCK=32, traced_programs=[1])
    assert one.tile("total", program=1).tolist() == [3.0] * 32
    with pytest.raises(ValueError, match=r"program 0: it was not traced; write .*traced_programs=\[0\]"):
        one.tile("total")


def test_a_value_that_the_program_leaves_open_has_bounds_and_no_value() -> None:
    with bv.emulated("sm_90") as gpu:
        x, y = torch.randn(128, generator=torch.Generator().manual_seed(1)), torch.linspace(-1, 1, 64)
        found = bv.trace(open_kernel[(1,)], x, y, BLOCK=64)
        ends = gpu.enclosure(y)
    assert ends is not None
    with pytest.raises(ValueError, match=r"'z' in program 0: has no one value, .*bounds\('z'\)"):
        found.tile("z")
    assert [np.array_equal(low, end.view(np.float32)) for low, end in zip(found.bounds("z"), ends, strict=True)] == [True, True]
    assert ", open" in "\n".join(screen(found))
    pairs = zip(found.tiles, found.tiles[1:], strict=False)
    assert all(one.assignment is not other.assignment for one, other in pairs), "a value and its ends are one tile"
    low, high = found.bounds("at")
    assert low.tolist() == high.tolist() == list(range(64))


def test_who_touched_an_element_in_order(traced: tuple) -> None:
    found = traced[0]
    assert [(each.program, each.kind) for each in found.accesses("x", 33)] == [(1, "load")]
    (stored,) = found.accesses("y", (3,))
    assert (stored.program, stored.kind) == (0, "store") and source_of(stored.location).startswith("tl.store(y + at")
    scattered = GlobalWords(stored, "y", 0, np.array([1, 4]), 4, 0)
    assert [byte in scattered for byte in (4, 7, 8, 16)] == [True, True, False, True]
    with pytest.raises(ValueError, match=r"accesses of y\[40\]: it has the shape \(40,\)"):
        found.accesses("y", 40)
    with pytest.raises(ValueError, match="accesses of 'n': no tensor of the launch; there are x, y, shared memory"):
        found.accesses("n", 0)


def test_an_element_is_held_by_the_threads_of_its_layout(traced: tuple) -> None:
    found = traced[0].layout("total")
    assert found.lanes.tolist() == list(range(32)) and not found.warps.any(), "32 elements, 4 warps: each holds all"
    assert [(each.warp, each.lane, each.register) for each in found.holders(23)] == [(warp, 23, 0) for warp in range(4)]
    scalar = next(tile for tile in traced[0].tiles if tile.words.ndim == 0)
    with pytest.raises(ValueError, match="a scalar, which each thread holds; ask for a tile"):
        layout_of_tile(scalar)
    assert repr(traced[0]).startswith("<Trace of halves_kernel on sm_90, grid (2, 1, 1): ")


@pytest.fixture(scope="module")
def counted() -> trace.Trace:
    with bv.emulated("sm_90"):
        x, y = torch.rand(32, device="cuda"), torch.zeros(1, device="cuda")
        return bv.trace(counted_kernel[(3,)], x, y, torch.empty(32, device="cuda"), BLOCK=32)


def test_the_line_that_rounds_most_leads_the_errors(counted: trace.Trace) -> None:
    counted.tensors["y"].fill_(7.0)
    first, *_ = counted.errors("z")
    assert "rounded = (tl.load(x + at) * 1.1).to(tl.float16)" in first.text and 2**-12 < first.relative < 2**-11
    assert counted.tensors["y"].tolist() == [7.0], "a launch that is made again leaves memory as it was"
    with pytest.raises(ValueError, match="errors of 'at': no tensor of floats of the launch; there are x, y, z"):
        counted.errors("at")


def test_atomics_are_seen_once_by_each_program(counted: trace.Trace) -> None:
    assert [(each.program, each.kind) for each in counted.accesses("y", 0)] == [(0, "atomic"), (1, "atomic"), (2, "atomic")]


@pytest.mark.parametrize(("banks", "served"), [(1, 32 * 32), (32, 32)])
def test_bank_conflicts_are_counted_from_addresses(banks: int, served: int) -> None:
    """Of 32 rows of 32 words a column lies in one bank, and swizzled in 32."""
    with bv.emulated("sm_90"):
        x, y = torch.rand(32, 32, device="cuda"), torch.empty(32, 32, device="cuda")
        found = bv.trace(columns_kernel[(1,)], x, y, banks)
        facts = found.facts()
    loads = [count for count in facts.counts if count.instruction.startswith("ld.shared")]
    assert [(count.width, count.requests, count.transactions, count.ideal) for count in loads] == [(4, 32, served, 32)]
    assert source_of(loads[0].location) == "columns = room.permute((1, 0)).load(rows)"
    (load,) = [count for count in facts.counts if count.instruction.startswith("ld.global")]
    assert "room.store(gl.load(x + at))" in source_of(load.location) and (load.transactions, load.ideal) == (128, 128)
    assert (len(facts.conflicts()) == 1) == (banks == 1)
    text = "\n".join(memory_facts.fact_lines(facts))
    assert ("1024 cycles, 32 at best (bank conflicts)" in text) == (banks == 1)
    assert [each.kind for each in found.accesses("shared memory", 4)] == ["store", "load"]


def test_lines_inside_of_inline_assembly_are_of_the_line_before_it() -> None:
    """LLVM counts on, line by line of the assembly."""
    lines = [
        "{",
        ".loc 1 20 1",
        "// begin inline asm",
        ".loc 1 21 1",
        "ld.global.b32 %r1, [%rd1];",
        "// end inline asm",
        ".loc 1 30 1",
    ]
    assert "loc.1.20.5; ld.global" in _mark_lines("\n".join([*lines, "ret;"])) and "loc.1.30.8; ret" in _mark_lines(
        "\n".join([*lines, "ret;"])
    )


def test_a_partition_has_a_lane_of_its_loads_products_and_waits() -> None:
    two = [
        *RING[:2],
        event(2, "waits", barrier=512, agent="partition 1", note="parity 0"),
        event(3, "landed", 1, writes=[piece(0, 256)], agent="the hardware"),
        event(3, "passes", barrier=512, agent="partition 1"),
        event(4, "issued", 2, operation="tcgen05.mma", agent="partition 1", writes=[piece(0, 64, "tensor memory")]),
        event(5, "landed", 2, agent="the hardware", writes=[piece(0, 64, "tensor memory")]),
        event(5, "issued", 3, operation="tcgen05.mma", agent="partition 1", writes=[piece(0, 64, "tensor memory")], note=ADDS),
    ]
    svg = timeline({**TOLD, "events": two})
    assert svg.index(">partition 0<") < svg.index(">partition 1<") < svg.index(">the hardware<")
    assert "waits from step 2 to step 3" in svg and svg.count('class="p3"') == 3, "two products and the key"
    assert "overwritten before it was read" not in svg, "it adds"
    two[-1]["note"] = ""
    assert "overwritten before it was read: step 5" in timeline({**TOLD, "events": two})


def test_a_ring_of_a_real_launch_is_drawn_without_a_false_mark() -> None:
    from bitverdict.kernels import hopper_matmul

    with bv.emulated("sm_90"):
        found = bv.trace(lambda: emulated_launches.hopper(hopper_matmul))
        page = trace_page(found, 0)
    assert "stage 1 of line" in page and ">the hardware<" in page and "overwritten before it was read" not in page
    assert {"issued", "landed", "passes", "load", "store"} <= {each.kind for each in found.timeline(0)}


@pytest.mark.skipif(chromium.PROGRAM is None, reason="no chromium: install Debian's package chromium")
def test_the_page_loads_nothing_and_its_slider_goes_through_the_program(traced: tuple, tmp_path: Path) -> None:
    path = tmp_path / "trace.html"
    path.write_text(trace_page(traced[0], 0, None, {"y": []}))
    with chromium.tab(tmp_path / "profile") as tab:
        tab.open(path)
        assert tab.value("performance.getEntriesByType('resource').length") == 0
        for width in (400, 1280):
            for scheme in ("light", "dark"):
                tab.show(width, scheme)
                assert tab.value("document.documentElement.scrollWidth") <= width
                low = tab.value(CONTRAST)
                assert [each for each in low[:-1] if not each[2].startswith("cell")] == [], low
        first = tab.value("said.textContent")
        tab.value("document.querySelector('[data-move=\"1\"]').click(); 0")
        assert tab.value("said.textContent") != first and tab.value("said.textContent").startswith("2 of ")
        tab.value("moment.value = moment.max; moment.dispatchEvent(new Event('input')); 0")
        assert (
            tab.value("document.querySelector('tr[data-at=now] code').textContent.trim()") == "tl.store(y + at, total, mask=at < n)"
        )
        titles = tab.value("[...document.querySelectorAll('.value title')].map(each => each.textContent)")
        assert "total[7]: warp 0, lane 7, register 0: 21" in titles


def test_a_notebook_shows_the_page(traced: tuple) -> None:
    shown = traced[0]._repr_html_()
    assert shown.startswith("<iframe") and "total += a.to(tl.float32)" in shown and "<script" not in shown


def test_outside_of_an_emulated_gpu_it_says_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"write it inside of `with bv\.emulated"):
        bv.trace(halves_kernel[(1,)])
    with bv.emulated("sm_90"), pytest.raises(ValueError, match="it launches nothing; give kernel"):
        bv.trace(launch_nothing)
    for no_launch in (halves_kernel, None, 3):
        with bv.emulated("emulated:sm_90"), pytest.raises(ValueError, match=r"is no launch; write bv\.trace\(kernel\[grid\]"):
            bv.trace(no_launch)


CELL = """import triton
import triton.language as tl
@triton.jit
def cell_kernel(x):
    at = tl.arange(0, 8)
    tl.store(x + at, tl.load(x + at) * 2)
"""


def test_the_page_has_the_source_of_a_notebooks_cell() -> None:
    """A cell is no file: its text lies in Python's own cache of lines."""
    name, cell = "/nowhere/ipykernel_1/2.py", dict[str, Any]()
    linecache.cache[name] = len(CELL), None, CELL.splitlines(keepends=True), name
    exec(compile(CELL, name, "exec"), cell)
    with bv.emulated("sm_90"):
        page = trace_page(bv.trace(cell["cell_kernel"][(1,)], torch.ones(8, device="cuda")))
    assert page.count('<tr data-line="/nowhere/ipykernel_1/2.py:') == 6 and "tl.store" in page


HERE = traced_launches.__file__
COMMANDS = {
    "launch_halves": ["halves_kernel on sm_90, grid 2 x 1 x 1", "total  fp32[32]  0 to 93", "a      bf16[32]  0 to 31"],
    "launch_halves --program 1 --tile a": ["a after line", "in program 1: bf16[32], blocked each 1 lanes 32 warps 4", "39."],
    "launch_halves --element y[33]": ["y[33]  store  by program 1", "tl.store(y + at, total, mask=at < n)"],
    "launch_halves --element total[7]": ["total[7] = 21.0  warp 0, lane 7, register 0"],
    "launch_halves --facts --errors y": ["no element of y is rounded", "st.global.b32", "4 bytes a thread"],
    "test_halves --case 2 --errors y": ["no element of y is rounded"],
}


@pytest.mark.parametrize("words", COMMANDS)
def test_the_command_prints_one_screen_or_what_is_asked(words: str, capsys: pytest.CaptureFixture) -> None:
    name, *options = words.split()
    assert main(["trace", f"{HERE}::{name}", *options]) == 0
    said = capsys.readouterr().out
    assert [text for text in COMMANDS[words] if text not in said] == [], said


def test_the_command_says_what_it_cannot_show(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["trace", f"{HERE}:launch_nothing"]) == 5 and "launches nothing on emulated:sm_90" in capsys.readouterr().err
    assert main(["trace", f"{HERE}:launch_halves", "--tile", "nothing"]) == 2
    assert "no such value; there are at (line" in capsys.readouterr().err
    assert main(["trace", f"{HERE}:launch_halves", "--launch", "2"]) == 2 and "numbered from 1" in capsys.readouterr().err
    assert main(["trace", f"{HERE}:launch_halves", "--element", "y"]) == 2 and "such as y[3]" in capsys.readouterr().err
    assert main(["trace", f"{HERE}:launch_halves", "--html", str(tmp_path / "a.html")]) == 0
    assert "step by step" in (tmp_path / "a.html").read_text().lower()


def test_who_traces_nothing_imports_nothing_of_it() -> None:
    told = "import sys; import bitverdict.harness.frontends.main; print([m for m in sys.modules if 'launch_trace' in m])"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.strip() == "[]"
