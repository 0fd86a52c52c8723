"""What `benchmarks/throughput.py` times them on: operands made on the device, and cuBLAS on the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.throughput_rows import Ask


def launcher(case: Any, device: str) -> Callable[[], Any]:
    """A call of the kernel's own launcher, through its contract, on random operands that lie on `device`."""
    from bitverdict.harness.model.addresses import resolve

    return call_of(case, resolve(case.contract), placed(case, device))


def call_of(case: Any, contract: Any, tensors: dict[str, Any]) -> Callable[[], Any]:
    """A call of the kernel's own launcher: through its contract, or by itself where the contract would copy `out` each time."""
    from bitverdict.harness.contracts.base.single_config import call_launcher

    if "source" in tensors:
        return lambda: call_launcher(contract.module.tmem_copy, tensors["source"], **vars(case.config))
    if "out" not in tensors:
        return lambda: contract.launch(case, tensors, None)
    operands = [tensors[name] for name in ("x", "gather", "w", "scatter")]
    return lambda: call_launcher(getattr(contract.module, contract.stem), *operands, **vars(case.config), out=tensors["out"])


def placed(case: Any, device: str) -> dict[str, Any]:
    """Operands of `case`, made on the device: normal deviates and permuted row numbers, or random codes with scales near one."""
    import torch

    from bitverdict.kernels.element_types import ELEMENT_TYPES

    p = case.problem
    if hasattr(p, "format"):
        return scaled(p, device)[0]
    dtype = ELEMENT_TYPES[p.dtype].torch
    if not hasattr(p, "k"):
        return {"source": torch.randn((p.m, p.n), device=device).to(dtype)}
    if hasattr(p, "table_rows"):
        shapes = {"x": (p.table_rows, p.k), "w": (p.k, p.n), "out": (p.out_rows, p.n)}
        made = {name: torch.randn(shape, device=device).to(dtype) for name, shape in shapes.items()}
        lists = {"gather": p.table_rows, "scatter": p.out_rows}
        return made | {name: torch.randperm(rows, device=device).int()[: p.rows] for name, rows in lists.items()}
    turned = case.contract == "ampere_gemm" or getattr(p, "transpose_b", False)
    shapes = {"a": (p.m, p.k), "b": (p.n, p.k) if turned else (p.k, p.n)}
    return {name: torch.randn(shape, device=device, dtype=torch.float16).to(dtype) for name, shape in shapes.items()}


def scaled(p: Any, device: str) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """Operands of a block-scaled problem, and both sides dequantised to bf16, (m, k) and (n, k)."""
    import torch

    from bitverdict.harness.contracts.inputs.block_scaled_inputs import NEAR_CODES
    from bitverdict.kernels.scaled_operands import FORMATS, scale_shape

    f, made, wide = FORMATS[p.format], {}, []
    for name, element, rows in (("a", f.a, p.m), ("b", f.b, p.n)):
        if element == "e2m1":
            made[name] = torch.randint(0, 256, (rows, p.k // 2), dtype=torch.uint8, device=device)
            table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], device=device)  # (16,)
            values = torch.stack((table[(made[name] & 15).int()], table[(made[name] >> 4).int()]), -1).reshape(rows, p.k)
        else:
            made[name] = torch.randn((rows, p.k), device=device).to(torch.float8_e4m3fn)
            values = made[name].float()  # (rows, k)
        codes = f.one_code + torch.randint(
            -NEAR_CODES[f.scale], NEAR_CODES[f.scale] + 1, scale_shape(rows, p.k, f.block_size), device=device
        )
        codes = codes.to(torch.uint8)  # (row tiles, column tiles, 32, 4, 4)
        made[f"{name}_scale"] = codes.view(torch.float8_e4m3fn) if f.scale == "ue4m3" else codes
        flat = codes.permute(0, 3, 2, 1, 4).reshape(codes.shape[0] * 128, -1)[:rows, : p.k // f.block_size]  # (rows, blocks)
        scales = flat.view(torch.float8_e4m3fn).float() if f.scale == "ue4m3" else torch.exp2(flat.float() - 127)
        wide.append((values * scales.repeat_interleave(f.block_size, 1)).to(torch.bfloat16))
    return made, (wide[0], wide[1])


def peer(ask: Ask, device: str) -> tuple[str, Callable[[], Any]]:
    """cuBLAS through torch.matmul, on operands laid out as the kernel has them; of a copy torch.clone."""
    import torch

    p = ask.case.problem
    if hasattr(p, "format"):
        a, b = scaled(p, device)[1]
        return "cuBLAS bf16, dequantised", lambda: torch.matmul(a, b.T)
    tensors = placed(ask.case, device)
    if "source" in tensors:
        return "torch.clone", tensors["source"].clone
    if "out" in tensors:
        x, w, out, gather, scatter = (tensors[name] for name in ("x", "w", "out", "gather", "scatter"))
        rows, targets = gather.long(), scatter.long()
        return f"index_select, cuBLAS {p.dtype}, index_copy", lambda: out.index_copy_(0, targets, x.index_select(0, rows) @ w)
    a, b = tensors["a"], tensors["b"]
    turned = ask.case.contract == "ampere_gemm" or getattr(p, "transpose_b", False)
    return f"cuBLAS {p.dtype}", lambda: torch.matmul(a, b.T if turned else b)
