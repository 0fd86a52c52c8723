"""Contract under test: a captured graph executes nothing until it is replayed, and then launches and operators in their order."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.cuda_graphs import CUDAGraph

pytestmark = pytest.mark.compiles


@triton.jit
def add_kernel(x, y, out, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(out + places, tl.load(x + places) + tl.load(y + places))


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_kernel[(1,)](x, y, out, x.numel())
    return out


def test_a_replay_runs_launches_and_operators_on_what_lies_there_by_then() -> None:
    with emulated("sm_90") as device:
        x, y, total = (torch.ones(64, device="cuda") for _ in range(3))
        add(x, y)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            shifted = x * 2 + torch.full((64,), 3.0, device="cuda")
            out = add(shifted, y)
            total += out
        assert not torch.cuda.is_current_stream_capturing()
        assert total.tolist() == [1.0] * 64 and out.isnan().all(), "capturing executed something"
        for value in (1.0, 5.0):
            x.fill_(value)
            graph.replay()
            assert out.tolist() == [2 * value + 4] * 64
        assert total.tolist() == [1.0 + 6 + 14] * 64 and len(device.launches) == 4


def test_what_a_capture_cannot_hold_is_refused() -> None:
    with emulated("sm_90"):
        x = torch.ones(4, device="cuda")
        for draw in (lambda: torch.rand(4, device="cuda"), lambda: x.uniform_()):
            with (
                pytest.raises(EmulatedFault, match=r"torch.cuda.graph of .*, which draws random numbers,"),
                torch.cuda.graph(CUDAGraph()),
            ):
                draw()
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.tolist()
        with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(RuntimeError, match="capturing"):
            torch.cuda.CUDAGraph().capture_begin()
        assert not torch.cuda.is_current_stream_capturing() and x.sum() == 4
