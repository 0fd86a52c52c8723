"""Contract under test: the launchers' clauses stand where the compiler's and the hardware's limits are: what lies just inside is
compiled, what lies just outside is refused, of each operand alike; and a launcher takes every argument by its name.
"""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.kernels.clauses import broken

TILED = {"hopper_matmul": "sm_90", "blocked_matmul": "sm_100", "blocked_matmul_pipelined": "sm_100"}
SPARE = 128  # bytes that a clause counts beyond what is taken, for barriers and alignment
HALF, SINGLE = torch.float16, torch.float32


def kernel(stem: str) -> ModuleType:
    return import_module(f"bitverdict.kernels.{stem}")


def zeros(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def shared_memory(stem: str, tile: dict[str, int]) -> int:
    """Bytes that the compiler takes for a launch with this tile, fp16; nothing is executed."""
    with emulated(TILED[stem], options=LaunchOptions(dry=True)) as device:
        getattr(kernel(stem), stem)(zeros(256, 64), zeros(64, 256), c=zeros(256, 256), **tile)
    return device.launches[-1].metadata["shared"]


@pytest.mark.parametrize("sizes", [(128, 128, 16), (128, 128, 32), (64, 32, 32)])
@pytest.mark.parametrize("stem", TILED)
def test_a_clause_counts_the_shared_memory_that_the_compiler_takes(stem: str, sizes: tuple[int, int, int]) -> None:
    """The tile of C decides at 128x128x16, the operands at the others."""
    tile = dict(zip(("block_m", "block_n", "block_k"), sizes, strict=True))
    module = kernel(stem)
    counted = module.shared_bytes(module.Problem(m=256, n=256, k=64, dtype="fp16"), module.Config(**tile))
    assert 0 <= counted - shared_memory(stem, tile) <= SPARE


@pytest.mark.parametrize("stem", TILED)
def test_the_narrowest_tile_is_compiled_and_a_narrower_one_is_refused(stem: str) -> None:
    tile = {"block_m": 64, "block_n": 16, "block_k": 32}
    assert shared_memory(stem, tile) > 0
    with pytest.raises(ValueError, match="block_n = 8 x fp16"):
        shared_memory(stem, tile | {"block_n": 8})


@pytest.mark.parametrize(("warps", "legal"), [(1, True), (2, True), (3, False), (4, True), (8, True), (16, False)])
@pytest.mark.parametrize("stem", ["tma_gather", "tma_scatter"])
def test_rows_are_moved_by_one_two_four_or_eight_warps(stem: str, warps: int, legal: bool) -> None:
    module = kernel(stem)
    problem = module.Problem(table_rows=9, table_columns=64, offsets=8)
    found = broken(module.CLAUSES, problem, module.Config(block_x=8, block_y=64, num_warps=warps))
    assert [clause.name for clause in found] == ([] if legal else ["warps"])


SIZES: dict[str, dict[str, Any]] = {
    "ampere_gemm": {"m": 64, "n": 64, "k": 64},
    "hopper_matmul": {"m": 64, "n": 64, "k": 64},
    "small_mma": {"m": 128, "n": 64, "k": 64},
    "blocked_matmul": {"m": 64, "n": 64, "k": 64},
    "blocked_matmul_pipelined": {"m": 64, "n": 64, "k": 64},
    "block_scaled_matmul": {"m": 128, "n": 128, "k": 256, "format": "mxfp8"},
    "fused_gather_scatter_matmul": {"table_rows": 64, "rows": 64, "out_rows": 64, "n": 64, "k": 64},
    "tma_gather": {"table_rows": 16, "table_columns": 64, "offsets": 128},
    "tma_scatter": {"table_rows": 16, "table_columns": 64, "offsets": 128},
}


def described() -> list[tuple[str, str, str]]:
    """(stem, field of Problem, rule) of each matrix that a tensor map describes: what follows its rows, and where it starts."""
    found = []
    for stem, sizes in SIZES.items():
        module = kernel(stem)
        problem = module.Problem(**sizes)
        for matrix in module.matrices(problem, module.Config()):
            for ending, rule in (("pad", "row strides"), ("offset", "bases")):
                field = f"{matrix.name.lower().replace('bt', 'b')}_{ending}"
                found += [(stem, field, rule)] if hasattr(problem, field) else []
    return found


def test_each_kernel_has_matrices_whose_rows_may_be_padded() -> None:
    assert {stem for stem, _, rule in described() if rule == "row strides"} == set(SIZES)


@pytest.mark.parametrize(("stem", "field", "rule"), described())
def test_each_described_matrix_off_16_bytes_is_refused(stem: str, field: str, rule: str) -> None:
    module = kernel(stem)
    assert not broken(module.CLAUSES, module.Problem(**SIZES[stem]), module.Config())
    found = broken(module.CLAUSES, module.Problem(**SIZES[stem] | {field: 1}), module.Config())
    assert [clause.name.startswith(rule) for clause in found] == [True], found


REFUSED = {
    "C of another type": ("small_mma", (zeros(128, 64), zeros(64, 64), zeros(128, 64), zeros(128, 64, dtype=SINGLE)), "is fp32"),
    "D of another type": ("small_mma", (zeros(128, 64), zeros(64, 64), zeros(128, 64, dtype=SINGLE), zeros(128, 64)), "is fp32"),
    "K of small_mma": ("small_mma", (zeros(128, 64), zeros(32, 64), *[zeros(128, 64, dtype=SINGLE)] * 2), "slice an operand"),
    "K of hopper_matmul": ("hopper_matmul", (zeros(64, 64), zeros(32, 64)), "slice an operand"),
    "B of three dimensions": ("hopper_matmul", (zeros(64, 64), zeros(64, 64, 1)), "slice an operand"),
    "A of three dimensions": ("hopper_matmul", (zeros(64, 64, 1), zeros(64, 64)), "slice an operand"),
    "C of hopper_matmul": ("hopper_matmul", (zeros(64, 64), zeros(64, 32), zeros(64, 64)), "allocate it so"),
    "K of blocked_matmul": ("blocked_matmul", (zeros(64, 64), zeros(32, 64), zeros(64, 64)), "slice an operand"),
    "C of blocked_matmul": ("blocked_matmul", (zeros(64, 64), zeros(64, 32), zeros(64, 64)), "slice an operand"),
    "types that differ": ("blocked_matmul", (zeros(64, 64), zeros(64, 64), zeros(64, 64, dtype=SINGLE)), "one element type"),
    "places that differ": ("blocked_matmul", (zeros(64, 64), zeros(64, 64).to("meta"), zeros(64, 64)), "one device"),
}


@pytest.mark.parametrize("row", REFUSED)
def test_operands_that_do_not_belong_together_are_refused(row: str) -> None:
    stem, given, says = REFUSED[row]
    with pytest.raises(ValueError, match=says):
        getattr(kernel(stem), stem)(*given)


def past_a_boundary(tensor: torch.Tensor) -> torch.Tensor:
    """The same, from 8 bytes past a 16-byte boundary on."""
    elements = 8 // tensor.element_size()
    moved = torch.zeros(tensor.numel() + elements, dtype=tensor.dtype, device=tensor.device)[elements:]
    return moved.view(tensor.shape)


def rows_of(count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.int32)


OPERANDS = {  # operands in the order of the launcher, and the name that it gives each where a tensor map describes it
    "small_mma": ((zeros(128, 64), zeros(64, 64), *[zeros(128, 64, dtype=SINGLE)] * 2), ("A", "B", "C", "D")),
    "hopper_matmul": ((zeros(64, 64), zeros(64, 64), zeros(64, 64)), ("A", "B", "C")),
    "blocked_matmul": ((zeros(64, 64), zeros(64, 64), zeros(64, 64)), ("A", "B", "C")),
    "blocked_matmul_pipelined": ((zeros(64, 64), zeros(64, 64), zeros(64, 64)), ("A", "B", "C")),
    "fused_gather_scatter_matmul": ((zeros(64, 64), rows_of(64), zeros(64, 64), rows_of(64)), ("X", "", "W", "")),
}


@pytest.mark.parametrize(("stem", "name"), [(stem, name) for stem, (_, names) in OPERANDS.items() for name in names if name])
def test_an_operand_that_starts_off_16_bytes_is_named(stem: str, name: str) -> None:
    given, names = OPERANDS[stem]
    with emulated(TILED.get(stem, "sm_100"), options=LaunchOptions(dry=True)):
        operands = [operand.clone() if operand.data_ptr() % 16 else operand for operand in given]
        getattr(kernel(stem), stem)(*operands)
        operands[names.index(name)] = past_a_boundary(operands[names.index(name)])
        with pytest.raises(ValueError, match=f"{stem}: {name} starts .* past a 16-byte boundary: .*clone"):
            getattr(kernel(stem), stem)(*operands)


@pytest.mark.parametrize("stem", kernels_with_a_contract())
def test_a_launcher_takes_every_argument_by_its_name(stem: str) -> None:
    asked = ast.parse(f"def launcher{resolve(stem).parameters}: ...").body[0].args  # type: ignore[attr-defined]
    names = [argument.arg for argument in (*asked.args, *asked.kwonlyargs)]
    inspect.signature(getattr(kernel(stem), stem)).bind(**dict.fromkeys(names))
