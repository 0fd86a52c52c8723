"""Contract under test: what `torch.cuda` tells of memory and NVTX on the emulated GPU, and what only its CUDA operators compute."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from triton._C.libtriton import nvidia

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.gpu_operators import WideOperators
from bitverdict.harness.judge.classify import raised_by


def test_memory_is_what_tensors_of_the_device_hold() -> None:
    """In blocks of 512 bytes, a storage once however many views hold it; the peak since it was restarted."""
    gc.collect()
    with emulated("sm_90"):
        before, total = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[1]
        x = torch.zeros(1000, device="cuda")
        y = x[:10]
        torch.zeros(1 << 20)
        assert torch.cuda.memory_allocated() - before == 4096 == total - torch.cuda.mem_get_info()[0] - before
        torch.cuda.reset_peak_memory_stats()
        del x
        assert torch.cuda.memory_allocated() - before == 4096
        z = y + 1
        assert torch.cuda.memory_allocated() - before == 4096 + 512
        del y, z
        assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() - before == 4096 + 512
        assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == torch.cuda.max_memory_reserved() == before + 4608
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == before


def test_ranges_of_nvtx_nest_and_decorate() -> None:
    nvtx = torch.cuda.nvtx
    with emulated("sm_90"):
        assert (nvtx.range_push("outer"), nvtx.range_push("inner"), nvtx.range_pop(), nvtx.range_pop()) == (0, 1, 1, 0)
        nvtx.range_end(nvtx.range_start("apart"))
        nvtx.mark("here")
        with nvtx.range("block {}", 1):
            pass

        @nvtx.range("function")
        def seven() -> int:
            return 7

        assert seven() == 7


@pytest.mark.parametrize(
    ("values", "bins", "low", "high", "expected"),
    [
        ([0, 1, 1, 3, 9, -2], 4, 0, 4, [1, 2, 0, 1]),
        ([0, 1, 2, 3, 4], 4, 0, 4, [1, 1, 1, 2]),
        ([0, 5, 10], 2, 0, 0, [1, 2]),
        ([7, 7], 2, 0, 0, [0, 2]),
    ],
)
def test_integers_have_a_histogram(values: list[int], bins: int, low: int, high: int, expected: list[int]) -> None:
    """The last bin is closed; without bounds they are the smallest and the largest, or one on each side where these are one."""
    with emulated("sm_90"):
        counts = torch.histc(torch.tensor(values, device="cuda", dtype=torch.int32), bins=bins, min=low, max=high)
    assert counts.tolist() == expected and counts.dtype is torch.int32 and counts.is_cuda


_PRODUCTS: dict[str, Callable] = {
    "mm": lambda c, a, b, **named: torch.mm(a, b, **named),
    "bmm": lambda c, a, b, **named: torch.bmm(a[None], b[None], **named),
    "addmm": lambda c, a, b, **named: torch.addmm(c, a, b, alpha=0.5, **named),
    "baddbmm": lambda c, a, b, **named: torch.baddbmm(c[None], a[None], b[None], beta=2, **named),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("watches", [(), (WideOperators(),)])
@pytest.mark.parametrize("name", _PRODUCTS)
def test_a_product_of_another_type_is_not_rounded_to_its_operands(name: str, watches: tuple, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    c, a, b = (torch.randn(shape, generator=generator).to(dtype) for shape in ((5, 7), (5, 9), (9, 7)))
    product = _PRODUCTS[name]
    unrounded = product(c.float(), a.float(), b.float())
    with emulated("sm_90", options=LaunchOptions(watches=watches)):
        c, a, b = c.cuda(), a.cuda(), b.cuda()
        out, held = torch.empty_like(unrounded, device="cuda"), torch.empty(0, device="cuda")
        for result in (
            product(c, a, b, out_dtype=torch.float32),
            product(c.float(), a, b, out_dtype=torch.float32),
            product(c, a, b, out_dtype=torch.float32, out=out),
            product(c, a, b, out_dtype=torch.float32, out=held),
            out,
            held,
        ):
            assert result.is_cuda and torch.equal(result.cpu(), unrounded)
        assert torch.equal(product(c, a, b, out_dtype=dtype).cpu(), unrounded.to(dtype))
        with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
            product(c, a, b, out_dtype=torch.float64)
    assert not any(watch.left for watch in watches)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn])
def test_tritons_handle_of_cublas_gives_products_that_are_rounded_once(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=generator).to(dtype) for shape in ((5, 16), (7, 16)))
    c, unrounded = torch.ones(5, 7).half(), a.float() @ b.float().T
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False)):
        cublas = nvidia.cublas.CublasLt(torch.empty(32, device="cuda", dtype=torch.uint8))
        product, total = torch.empty(5, 7, device="cuda", dtype=torch.float16), torch.empty(5, 7, device="cuda")
        cublas.matmul(a.cuda(), b.cuda(), product)
        cublas.gemm(a.cuda(), b.cuda(), c.cuda(), total, 0.5, 2.0)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as raised:
            cublas.matmul(a.cuda(), b[:, 1:].cuda(), product)
        with pytest.raises(EmulatedFault, match=r"block-scaled product of cuBLAS: the emulated GPU does not answer"):
            cublas.block_scaled_matmul_mxfp8(a, b, product, c, c)
    assert torch.equal(product.cpu(), unrounded.half()) and raised_by(raised.value) == ""
    assert torch.equal(total.cpu(), torch.addmm(c.float(), a.float(), b.float().T, alpha=0.5, beta=2.0))
    assert nvidia.cublas.CublasLt.__module__ != cublas.__module__


def test_an_operator_of_gpus_alone_is_not_answered() -> None:
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"torch\.ops\.aten\._flash_attention_forward.*does not answer"):
        q = torch.zeros(1, 8, 2, 16, device="cuda", dtype=torch.float16)
        torch.ops.aten._flash_attention_forward(q, q, q, None, None, 8, 8, 0.0, False, False)


def test_what_names_no_device_selects_the_current_one() -> None:
    """FlagGems hands `torch.cuda` tuples; a device that is not there is refused as ever."""
    with emulated("sm_90"):
        with torch.cuda.device((0, 1)):  # type: ignore[arg-type]
            assert torch.cuda.current_device() == 0
        assert torch.cuda.get_device_capability((0, 5, 2)) == (9, 0)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="Expected a cuda device"):
            torch.cuda.device("cpu")
