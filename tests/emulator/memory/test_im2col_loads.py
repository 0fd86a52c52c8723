"""Contract under test: TMA in im2col mode walks through the pixels of its box as the PTX ISA has it, pads what lies outside, and
is held to the rules of any other TMA load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia import hopper

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from tests.faults.mutants import replaced_once
from tests.support.emulated_launches import SCHEDULES, load

PIXELS, CHANNELS = 32, 8
BYTES = PIXELS * CHANNELS * 4
NAN_WORD = 0x7FF77FF7  # of all 212 elements outside the last form's image on an H100, 2026-11-22


@gluon.jit
def pixels(image, out, n, h, w, c, BYTES: gl.constexpr, DOWN: gl.constexpr, RIGHT: gl.constexpr):
    tile = gl.allocate_shared_memory(image.dtype, image.block_shape, image.layout)  # (pixels, channels)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    mbarrier.expect(arrived, BYTES)
    tma.async_load_im2col(image, [n, h, w, c], [DOWN, RIGHT], arrived, tile)
    mbarrier.wait(arrived, 0)
    mbarrier.invalidate(arrived)
    tma.async_store(out, [0, 0], tile)
    tma.store_wait(pendings=0)


@dataclass(frozen=True)
class Form:
    """An image (n, h, w, c) and what is loaded of it."""

    shape: tuple[int, int, int, int] = (2, 5, 6, 16)
    lower: tuple[int, int] = (0, 0)
    upper: tuple[int, int] = (0, 0)
    steps: tuple[int, int] = (1, 1)
    start: tuple[int, int, int, int] = (0, 0, 0, 0)
    offsets: tuple[int, int] = (0, 0)
    padding: str = "zero"


FORMS = {
    "from the first pixel on": Form(),
    "into the next image and beyond the last": Form(start=(1, 3, 2, 8)),
    "a box with a margin around the image": Form(lower=(-1, -1), upper=(1, 1), start=(0, -1, -1, 0)),
    "moved by a tap of a filter": Form(lower=(-1, -1), upper=(-1, -1), start=(0, -1, 0, 0), offsets=(2, 1)),
    "each second pixel, and NaN outside": Form(lower=(-1, 0), steps=(2, 2), start=(0, 1, 2, 12), padding="nan"),
}


def expected(image: np.ndarray, form: Form) -> np.ndarray:
    """(PIXELS, CHANNELS), pixel by pixel."""
    count, height, width, channels = image.shape
    fill = np.array(NAN_WORD if form.padding == "nan" else 0, np.uint32).view(np.float32)
    found = np.full((PIXELS, CHANNELS), fill)
    n, h, w, c = form.start
    for pixel, channel in product(range(PIXELS), range(CHANNELS)):
        row, column = h + form.offsets[0], w + form.offsets[1]
        if n < count and 0 <= row < height and 0 <= column < width and c + channel < channels:
            found[pixel, channel] = image[n, row, column, c + channel]
        if channel == CHANNELS - 1:
            w += form.steps[1]
            if w > width - 1 + form.upper[1]:
                w, h = form.lower[1], h + form.steps[0]
            if h > height - 1 + form.upper[0]:
                h, n = form.lower[0], n + 1
    return found


def loaded(
    form: Form, schedule: str = "eager", bytes_: int = BYTES, kernel=pixels, options: LaunchOptions | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(got, expected)."""
    with emulated("sm_90", schedule, options=options):
        return launched(form, "cpu", bytes_, kernel)


def launched(form: Form, device: str, bytes_: int = BYTES, kernel=pixels) -> tuple[np.ndarray, np.ndarray]:
    image = torch.randn(form.shape, generator=torch.Generator().manual_seed(0)).to(device)
    out = torch.empty(PIXELS, CHANNELS, device=device)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=32, element_bitwidth=32, rank=2)
    box = hopper.TensorDescriptorIm2Col.from_tensor(
        image, [PIXELS, CHANNELS], layout, form.padding, element_strides=[1, *form.steps, 1],
        pixel_box_lower_corner=list(form.lower), pixel_box_upper_corner=list(form.upper),
    )  # fmt: skip
    kernel[(1,)](box, hopper.TensorDescriptor.from_tensor(out, [PIXELS, CHANNELS], layout), *form.start, bytes_, *form.offsets)
    return out.cpu().numpy(), expected(image.cpu().numpy(), form)


@pytest.mark.parametrize("name", FORMS)
def test_pixels_are_those_that_a_walk_through_the_box_meets(name: str) -> None:
    for schedule in SCHEDULES:
        got, due = loaded(FORMS[name], schedule)
        np.testing.assert_array_equal(got.view(np.uint32), due.view(np.uint32))
    assert len({*due[:, 0].tolist()} - {0.0}) > 2


def test_a_first_channel_off_16_bytes_is_an_illegal_instruction() -> None:
    with pytest.raises(EmulatedFault, match=r"illegal instruction: .* begins at innermost coordinate 2 of 4-byte elements"):
        loaded(replace(FORMS["from the first pixel on"], start=(0, 0, 0, 2)))


@pytest.mark.parametrize(("more", "outcome"), [(-16, "barrier misuse"), (16, "deadlock")])
def test_bytes_outside_the_image_are_counted_too(more: int, outcome: str) -> None:
    with pytest.raises(EmulatedFault) as raised:
        loaded(FORMS["into the next image and beyond the last"], bytes_=BYTES + more)
    assert raised.value.outcome == outcome


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pixels_that_have_not_been_waited_for_are_a_race(schedule: str, tmp_path: Path) -> None:
    path = tmp_path / "unwaited.py"
    kernel = Path(__file__).read_text().partition("\n\n\n@dataclass")[0]
    path.write_text(replaced_once(kernel, "    mbarrier.wait(arrived, 0)\n", "", "pixels"))
    with pytest.raises(EmulatedFault, match=r"race: ttng.async_tma_copy_local_to_global reads .* TMA load"):
        loaded(FORMS["from the first pixel on"], schedule, kernel=load(path).pixels)
