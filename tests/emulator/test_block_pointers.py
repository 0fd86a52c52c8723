"""Contract under test: block pointers, on the releases that have them: a forgotten boundary check is a stray access at its line,
and what lies outside reads as `padding_option` says; on others a kernel that makes one is not run."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.releases import installed_release
from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.model.verdict import Outcome

HAS_BLOCK_POINTERS = "language.advance" not in installed_release().removed_names


@triton.jit
def transpose(x, out, m, n, M: tl.constexpr, N: tl.constexpr, LOADED: tl.constexpr, STORED: tl.constexpr, STEP: tl.constexpr):
    """out (n, m) = x (m, n) transposed, by tiles (M, N) of all rows."""
    source = tl.make_block_ptr(x, shape=(m, n), strides=(n, 1), offsets=(0, 0), block_shape=(M, N), order=(1, 0))
    target = tl.make_block_ptr(out, shape=(n, m), strides=(m, 1), offsets=(0, 0), block_shape=(N, M), order=(0, 1))
    for _ in range(0, n, N):
        tile = tl.load(source, boundary_check=LOADED)  # (M, N)
        tl.store(target, tl.trans(tile), boundary_check=STORED)
        source = tl.advance(source, (0, N))
        target = tl.advance(target, (STEP, 0))


@triton.jit
def sum_rows(x, out, m, n, M: tl.constexpr, N: tl.constexpr, PADDING: tl.constexpr):
    """out (m) = the sums of x (m, n), m = M and n at most N."""
    source = tl.make_block_ptr(x, shape=(m, n), strides=(n, 1), offsets=(0, 0), block_shape=(M, N), order=(1, 0))
    tile = tl.load(source, boundary_check=(1,), padding_option=PADDING)  # (M, N)
    tl.store(out + tl.arange(0, M), tl.sum(tile, axis=1))


def line_of(kernel: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(number for number, line in enumerate(lines) if text in line)


def launch(arch: str, loaded: tuple = (0, 1), stored: tuple = (0, 1), step: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """What a launch on x (13, 37) gives, and what is right."""
    x, out = torch.arange(13.0 * 37).reshape(13, 37), torch.zeros(37, 13)
    with emulated(arch):
        transpose[(1,)](x, out, 13, 37, 16, 16, loaded, stored, step)
    return out, x.T


ARCHITECTURES = ["sm_80", "sm_90", "sm_100", "gfx942"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_block_pointer_is_followed_where_the_release_has_one(arch: str) -> None:
    if HAS_BLOCK_POINTERS:
        assert torch.equal(*launch(arch))
        assert not torch.equal(*launch(arch, step=8))  # another column than the tile's
        return
    with pytest.raises(Exception) as caught:
        launch(arch)
    result = outcome_of(caught.value)
    assert result.outcome is Outcome.NOT_RUN and result.message.endswith("lacks language.advance, which 3.9.x removed")


if HAS_BLOCK_POINTERS:

    @pytest.mark.parametrize("arch", ARCHITECTURES)
    @pytest.mark.parametrize("checked", [(), (0,), (1,)])
    def test_a_forgotten_boundary_check_is_a_stray_access_at_its_line(arch: str, checked: tuple) -> None:
        """A store whose columns are not checked writes into the next row, where another lane has its own value."""
        written = "stray write: .*write at byte" if 1 in checked else "lanes of one store write different values to one address"
        for fields, text, outcome in (
            ({"loaded": checked}, "tl.load(source", "stray read: .*read at byte"),
            ({"stored": checked}, "tl.store(target", written),
        ):
            with pytest.raises(EmulatedFault, match=outcome) as caught:
                launch(arch, **fields)
            assert caught.value.location.endswith(f"test_block_pointers.py:{line_of(transpose, text)}")

    @pytest.mark.parametrize("arch", ARCHITECTURES)
    @pytest.mark.parametrize("padding", ["", "zero", "nan"])
    def test_what_lies_outside_reads_as_the_padding_option_says(arch: str, padding: str) -> None:
        """Of a sum zeros are right; with NaN each row with an element outside is NaN."""
        x, out = torch.arange(16.0 * 13).reshape(16, 13), torch.zeros(16)
        with emulated(arch):
            sum_rows[(1,)](x, out, 16, 13, 16, 16, padding)
        assert out.isnan().all() if padding == "nan" else torch.equal(out, x.sum(1))
