"""Contract under test: a fault in a kernel looks like its author's: the last frame is the kernel's line, with its values."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import bitverdict as bv
from bitverdict.harness.emulator import EmulatedFault, emulated, kernel_traceback
from bitverdict.harness.model.paths import ROOT

HERE = Path(__file__)


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scale = at * 2
    row = tl.load(x + at)
    tl.store(y + at, row * scale, mask=at < n)


def overrun(values: int = 3, lies_in: str = "cuda") -> EmulatedFault:
    with pytest.raises(EmulatedFault) as raised, emulated("sm_90"):
        x = torch.ones(values, device=lies_in)
        doubled[(1,)](x, torch.ones(4, device=lies_in), values, BLOCK=4)
    return raised.value


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(HERE.read_text().splitlines(), 1) if text in line)


def test_the_last_frame_is_the_kernels_line_and_none_is_the_harnesses() -> None:
    frames = traceback.extract_tb(overrun().__traceback__)
    assert (frames[-1].filename, frames[-1].lineno, frames[-1].name) == (str(HERE), line_of("row = tl.load(x + at)"), "doubled")
    assert {Path(frame.filename) for frame in frames} == {HERE}
    assert [frame.name for frame in frames] == ["overrun", "doubled"]


def test_the_last_frames_locals_are_the_kernels_values_by_their_names() -> None:
    entry = overrun().__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    assert entry is not None
    values = entry.tb_frame.f_locals
    assert {"x", "y", "n", "at", "scale"} <= set(values) and "row" not in values, "row is what the line is about to make"
    assert values["scale"].tolist() == [0, 2, 4, 6] and values["n"] == 3 and values["x"].tolist() == [1, 1, 1]


def test_all_frames_are_shown_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_FRAMES", "all")
    assert any("harness" in frame.filename for frame in traceback.extract_tb(overrun().__traceback__))


def test_a_traceback_that_keeps_the_harnesses_frames_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_traceback, "_is_hidden", lambda file: False)
    assert {Path(frame.filename) for frame in traceback.extract_tb(overrun().__traceback__)} != {HERE}


@pytest.mark.parametrize("lies_in", ["cpu", "cuda"])
def test_an_overrun_is_of_the_tensor_that_the_pointer_leads_to(lies_in: str) -> None:
    """As a judge has it, whose guard bands lie around each operand: a call that was pasted ends in the same outcome."""
    fault = overrun(lies_in=lies_in)
    assert fault.outcome == "stray read" and fault.details["summary"] == "x[3] is read, beyond its 3 elements"


def test_a_wrong_launch_ends_at_the_kernels_line_too() -> None:
    with pytest.raises(AssertionError, match="stray read") as raised:
        bv.assert_right(launches, (torch.ones(3),), reference=lambda xp, x: x * 2, target="emulated:sm_90")
    assert (raised.traceback[-1].path, raised.traceback[-1].lineno + 1) == (HERE, line_of("row = tl.load(x + at)"))


def launches(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    doubled[(1,)](x, y, x.numel(), BLOCK=4)
    return y


@pytest.mark.share(4)
def test_python_prints_the_users_lines_alone(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(HERE.parent)!r})\nfrom {HERE.stem} import *\n{SCRIPT}")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, env=environment)
    assert "row = tl.load(x + at)\nbitverdict.harness.emulator.faults.EmulatedFault: stray read" in done.stderr
    assert "harness/emulator/device.py" not in done.stderr and "jit.py" not in done.stderr


SCRIPT = """with emulated("sm_90"):
    doubled[(1,)](torch.ones(3, device="cuda"), torch.ones(4, device="cuda"), 3, BLOCK=4)
"""
