"""Contract under test: what the tutorials state in figures about their own kernels holds of ours: memory, instructions, programs.

The figures are those of `tests/tutorial_parameters.json`."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from bitverdict.harness.contracts.fused_gather_scatter_matmul import CONTRACT as FUSED
from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.judge.offline_driver import capture_compilations
from bitverdict.harness.lab.offline_compile.compile_all import compile_row
from bitverdict.harness.lab.offline_compile.expectations import LOCAL, rows
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.architectures import CHIPS
from bitverdict.harness.model.targets import target
from bitverdict.kernels import ampere_gemm, blocked_matmul_pipelined, tensor_memory
from bitverdict.kernels.features import Feature
from bitverdict.kernels.fused_gather_scatter_matmul import fused_gather_scatter_matmul
from bitverdict.kernels.tensor_memory import Allocation, allocated_columns
from tests.kernel_contracts.tutorial_rows import DOCUMENTS, ROWS
from tests.support.tutorial_facts import holds

ROW: dict[str, dict[str, Any]] = {row["id"]: row for row in ROWS}
HALF, BF16 = torch.float16, torch.bfloat16


@holds("tensor memory")
def test_tensor_memory_has_128_rows_and_512_columns_of_32_bits() -> None:
    has = CHIPS["sm_100"].multiprocessors
    assert (max(tensor_memory.BLOCK_ROWS), has.columns, tensor_memory.COLUMNS) == (128, 512, 512)
    assert 128 * has.columns == has.registers


@holds("allocation", range=[32, 512])
def test_tensor_memory_is_allocated_in_powers_of_two_from_32_to_512() -> None:
    least, most = ROW["allocation"]["range"]
    asked = (1, 2, 16, 31, 32, 33, 64, 100, 128, 129, 256, 257, 511, 512)
    taken = {cells: allocated_columns([Allocation("t", 128, cells, 128, cells, 32)]) for cells in asked}
    assert all(cells <= columns and columns & (columns - 1) == 0 and least <= columns <= most for cells, columns in taken.items())
    assert (taken[1], taken[33], taken[257]) == (32, 64, 512)
    assert allocated_columns([Allocation("t", 128, 513, 128, 513, 32)]) > most


def pipelined(k: int, **tile: int) -> Any:
    """The launch of one program with a tile, and everything of it counted."""
    m, n = 2 * tile["block_m"], tile["block_n"]
    with emulated("sm_100") as device:
        blocked_matmul_pipelined.blocked_matmul_pipelined(
            torch.zeros(m, k, dtype=HALF), torch.zeros(k, n, dtype=HALF), torch.zeros(m, n, dtype=HALF), **tile, num_warps=4
        )
    return device.launches[-1]


@holds("occupancy at BLOCK_K 64")
@holds("shared memory of the pipelined kernel", kib=192)
def test_the_pipelined_kernel_takes_192_kib_at_a_block_k_of_128() -> None:
    kib, shared = ROW["shared memory of the pipelined kernel"]["kib"], {}
    for block_k in (64, 128):
        launch = pipelined(block_k, block_m=128, block_n=128, block_k=block_k)
        shared[block_k] = launch.metadata["shared"]
    assert 0 <= shared[128] - kib * 1024 < 1024 + 2 * 128 * 128, "the ring, barriers, and at most a tile of C beside it"
    assert shared[64] * 2 < 227 * 1024 < shared[128] * 2, "two programs a multiprocessor at 64, one at 128"


@holds("loads to products", ratio=[3, 2])
@pytest.mark.parametrize("blocks", [2, 3, 6])
def test_the_pipelined_kernel_loads_three_tiles_for_two_products(blocks: int) -> None:
    done = pipelined(32 * blocks, block_m=64, block_n=32, block_k=32).operations
    loads, products = ROW["loads to products"]["ratio"]
    assert done["ttng.async_tma_copy_global_to_local"] == loads * blocks
    assert done["ttng.tc_gen5_mma"] == products * blocks


def assembly_of_the_ampere_product() -> str:
    with capture_compilations("sm_80") as kept:
        ampere_gemm.ampere_gemm(torch.zeros(64, 64, dtype=BF16), torch.zeros(64, 64, dtype=BF16))
    return kept[0].assembly


def products_of_the_ampere_program() -> int:
    """Products of a tile that the program has: of its loop, of each drained stage, of a ragged rest."""
    with emulated("sm_80", options=LaunchOptions(dry=True)) as device:
        ampere_gemm.ampere_gemm(torch.zeros(64, 64, dtype=BF16), torch.zeros(64, 64, dtype=BF16))
    (count,) = device.launches[-1].products.values()
    return count


@holds("instruction of the Ampere product", count=8)
def test_a_warp_of_the_ampere_product_issues_eight_instructions_a_step() -> None:
    issued = re.findall(r"mma\.sync\S*m16n8k16\S*f32\.bf16\.bf16\.f32", assembly_of_the_ampere_product())
    assert len(issued) == ROW["instruction of the Ampere product"]["count"] * products_of_the_ampere_program()


@holds("bytes of a thread", bytes=16)
def test_a_thread_of_the_ampere_product_copies_16_bytes_a_stage() -> None:
    bytes_of_each = {
        int(size, 0) for size in re.findall(r"cp\.async\.cg\S* \[[^]]*\], \[[^]]*\], (\w+)", assembly_of_the_ampere_product())
    }
    assert bytes_of_each == {ROW["bytes of a thread"]["bytes"]}
    config = ampere_gemm.Config()
    assert config.block_m * config.block_k * 2 == 32 * config.num_warps * ROW["bytes of a thread"]["bytes"]


@holds("shared memory of the Ampere product", bytes=[2048, 8192])
def test_the_ampere_product_stages_2048_bytes_an_operand() -> None:
    an_operand, in_all = ROW["shared memory of the Ampere product"]["bytes"]
    config = ampere_gemm.Config()
    assert config.block_m * config.block_k * 2 == config.block_n * config.block_k * 2 == an_operand
    assert ampere_gemm.shared_bytes(config) == in_all


@holds("persistent programs", programs=148)
def test_the_largest_fused_product_takes_148_persistent_programs() -> None:
    largest = max(FUSED.whole(target("emulated:sm_100")), key=lambda case: case.problem.k)
    rows, n, k, config = largest.problem.rows, largest.problem.n, largest.problem.k, largest.config
    numbers = torch.arange(rows, dtype=torch.int32)
    with emulated("sm_100", options=LaunchOptions(dry=True)) as device:
        fused_gather_scatter_matmul(
            torch.zeros(rows, k, dtype=BF16), numbers, torch.zeros(k, n, dtype=BF16), numbers, config.block_m, config.block_n,
            config.block_k, config.group_size_m, config.num_buffers, programs=config.programs,
        )  # fmt: skip
    programs = ROW["persistent programs"]["programs"]
    assert device.launches[-1].grid == (programs, 1, 1)
    assert -(-rows // config.block_m) * -(-n // config.block_n) > 6 * programs, "several turns a program"


@holds("fragments stay in registers")
@pytest.mark.parametrize("fragments", ["ldmatrix", "ld.shared"])
def test_no_form_of_the_ampere_product_spills(fragments: str) -> None:
    """No byte of local memory at the tutorial's tile; a row that allowed some would say so."""
    wanted = {"config": {} if fragments == "ldmatrix" else {"fragments": fragments}, "arch": "sm_80"}
    (row,) = (row for row in rows("ampere_gemm") if {name: getattr(row, name) for name in wanted} == wanted)
    assert row.most_stack == 0 and set(LOCAL) <= set(row.must_not)
    made = compile_row(row)
    assert (made.verdict, made.stack) == ("pass", 0)


@holds("Blackwell alone, tcgen05")
@holds("Blackwell alone, gathers")
def test_a_blackwell_kernel_is_not_run_elsewhere_by_what_it_lacks() -> None:
    """In the place of a skip."""
    kernels = [*DOCUMENTS["tcgen05"]["kernels"].values(), "tma_gather", "tma_scatter", "fused_gather_scatter_matmul"]
    for kernel in kernels:
        contract = resolve(kernel)
        assert not contract.lacking(target("emulated:sm_100"))
        assert contract.lacking(target("emulated:sm_90")) & {Feature.TENSOR_MEMORY, Feature.TMA_GATHER, Feature.TMA_SCATTER}
