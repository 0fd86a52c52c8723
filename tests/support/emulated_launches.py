"""One small launch of each kernel, for the emulator's checks of time: operands, the call, and what exact arithmetic gives."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

CHECKOUT = Path(__file__).resolve().parents[2]
GUARD = 8192  # elements
SCHEDULES = ("eager", "latest", *(f"drawn:{seed}" for seed in range(2)))


def guarded(values: torch.Tensor) -> torch.Tensor:
    """`values` in the middle of a larger storage: what lies around it is memory, and not the launch's."""
    around = torch.zeros(values.numel() + 2 * GUARD, dtype=values.dtype)
    middle = around[GUARD : GUARD + values.numel()].view(values.shape)
    return middle.copy_(values)


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return guarded(torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).half())


def numbers(count: int, step: int, rows: int) -> torch.Tensor:
    """`count` row numbers below `rows`, all different."""
    return guarded((torch.arange(count, dtype=torch.int32) * step) % rows)


def described(tensor: torch.Tensor, box: list[int]) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(tensor, box, gl.NVMMASharedLayout.get_default_for(box, gl.float16))


def blocked(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = matrix(70, 200), matrix(200, 72, 1), torch.empty(70, 72, dtype=torch.float16)
    return module.blocked_matmul(a, b, c, 64, 64, 64), a.double() @ b.double()


def pipelined(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = matrix(130, 328), matrix(328, 56, 1), torch.empty(130, 56, dtype=torch.float16)
    return module.blocked_matmul_pipelined(a, b, c, 64, 64, 64), a.double() @ b.double()


def hopper(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = matrix(70, 328), matrix(328, 56, 1)
    return module.hopper_matmul(a, b, block_m=64, block_n=64), a.double() @ b.double()


def ampere(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = matrix(70, 104), matrix(72, 104, 1)
    return module.ampere_gemm(a, b, stages=3), a.double() @ b.double().T


def small(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = matrix(128, 64), matrix(64, 64, 1), matrix(128, 64, 2).float()
    return module.small_mma(a, b, c, torch.empty_like(c)), a.double() @ b.double() + c.double()


def gather(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    table, rows = matrix(60, 128), numbers(40, 7, 60)
    return module.tma_gather(table, rows, 0, 32, 64), table[rows.long(), :64].double()


def scatter(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    table, rows, source = matrix(60, 128), numbers(40, 7, 60), matrix(40, 64, 3)
    expected = table.double()
    expected[rows.long(), :64] = source.double()
    return module.tma_scatter(table, rows, 0, source, 32, 64), expected


def fused(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    x, w = matrix(150, 200), matrix(200, 136, 1)
    rows, targets = numbers(140, 11, 150), guarded(torch.arange(140, dtype=torch.int32).flip(0))
    expected = torch.empty(140, 136, dtype=torch.float64)
    expected[targets.long()] = x[rows.long()].double() @ w.double()
    return module.fused_gather_scatter_matmul(
        x, rows, w, targets, out=torch.empty(140, 136, dtype=torch.float16), programs=1
    ), expected


def triton_matmul(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = matrix(70, 96), matrix(96, 64, 1)
    config = module.Config(block_m=32, block_n=32, block_k=32, group_m=2)
    return module.matmul_configured(a, b, "", torch.float32, config), a.double() @ b.double()


def through_tensor_memory(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    source = guarded(matrix(128, 64).float())
    return module.tmem_copy(source), source.double()


def block_scaled(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    """mxfp8: codes of one sign, so that no sum cancels; scales of 1."""
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randint(40, 64, (rows, 512), dtype=torch.uint8, generator=draw).view(torch.float8_e4m3fn) for rows in (250, 128))
    scales = [guarded(torch.full((2 - place, 4, 32, 4, 4), 127, dtype=torch.uint8)) for place in range(2)]
    got = module.block_scaled_matmul(a, scales[0], b, scales[1], torch.float32, configs=module.Config(num_stages=2))
    return got, a.double() @ b.double().T


def specialised(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = matrix(128, 320), matrix(320, 64, 1), torch.empty(128, 64, dtype=torch.float16)
    module.specialised[(1,)](described(a, [128, 64]), described(b, [64, 64]), described(c, [128, 64]), 320, 2, num_warps=4)
    return c, a.double() @ b.double()


def idioms(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    table, out = matrix(64, 64), torch.empty(64, 64, dtype=torch.float16)
    module.idioms[(1,)](described(table, [64, 64]), described(out, [64, 64]), num_warps=4)
    return out, table.double()


def drained_tail(module: ModuleType) -> tuple[torch.Tensor, torch.Tensor]:
    got, expected = module.product(2, 1, guarded=True)
    return got, expected.double()


Launch = Callable[[ModuleType], tuple[torch.Tensor, torch.Tensor]]
KERNELS: dict[str, tuple[Launch, str]] = {
    "matmul": (triton_matmul, "sm_80"),
    "tmem_copy": (through_tensor_memory, "sm_100"),
    "block_scaled_matmul": (block_scaled, "sm_100"),
    "blocked_matmul": (blocked, "sm_100"),
    "blocked_matmul_pipelined": (pipelined, "sm_100"),
    "hopper_matmul": (hopper, "sm_90"),
    "ampere_gemm": (ampere, "sm_80"),
    "small_mma": (small, "sm_100"),
    "tma_gather": (gather, "sm_100"),
    "tma_scatter": (scatter, "sm_100"),
    "fused_gather_scatter_matmul": (fused, "sm_100"),
    "specialised": (specialised, "sm_100"),
    "idioms": (idioms, "sm_100"),
    "drained_tail": (drained_tail, "sm_100"),
}


def source_of(kernel: str) -> Path:
    """The file of a kernel of this project, or of one made for these checks."""
    places = (CHECKOUT / "kernels" / f"{kernel}.py", CHECKOUT / "tests" / "support" / f"{kernel}.py")
    return next((place for place in places if place.is_file()), CHECKOUT / "tests" / "support" / "gluon_kernels.py")


def load(path: Path) -> ModuleType:
    """The module at `path`, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"_emulator_time_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
