"""Contract under test: a row of the compile table is right only if the machine code has what it must have.

For each expected instruction there is a changed source that loses it: compiled through the same door, the row must fail and name
the instruction. Expected refusals, limits and a dying compiler are held too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from triton.runtime import driver

from bitverdict.harness.judge.offline_driver import capture_compilations
from bitverdict.harness.lab.offline_compile import compile_all
from bitverdict.harness.lab.offline_compile.compile_all import CompileResult, _over_limit, compile_row, compile_rows, table
from bitverdict.harness.lab.offline_compile.expectations import LOCAL, Row, rows
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import Target
from tests.faults.mutants import Mutant, mutant_contract, once


@dataclass(frozen=True)
class Loses:
    """One text of a kernel replaced, and what its row must then say."""

    stem: str
    arch: str
    replace: str
    by: str
    says: str


LOSSES = (
    Loses("ampere_gemm", "sm_80", "    async_copy.async_load(buffer, operand + places, mask=(row < rows)[:, None])",
          "    buffer.store(gl.load(operand + places, mask=(row < rows)[:, None], other=0.0))", r"lacks cp\.async\.cg"),
    Loses("ampere_gemm", "sm_80",
          "return gl.SwizzledSharedLayout(vec=vector,", "return gl.SwizzledSharedLayout(vec=2,", r"cp\.async\.cg"),
    Loses("ampere_gemm", "sm_80", '"ld.shared": 4}', '"ld.shared": 8}', r"lacks ld\.shared"),
    Loses("ampere_gemm", "sm_80", "            async_copy.wait_group(STAGES - 1 - consumed)  #", "            #", "wait_group"),
    Loses("hopper_matmul", "sm_90", "    fence_async_shared()\n    tma.async_store(c_matrix, [row, column], c_tile)",
          "    tma.async_store(c_matrix, [row, column], c_tile)\n    tma.async_store(c_matrix, [row, column], c_tile)",
          r"has 2 of cp\.async\.bulk\.tensor\.2d\.global"),
    Loses("small_mma", "sm_100", "        tcgen05_commit(barriers.index(0))\n        mbarrier.wait(barriers.index(0), phase=0)",
          "        gl.barrier()", r"lacks tcgen05\.commit"),
    Loses("small_mma", "sm_100",
          "        a = allocate_tensor_memory(a_matrix.dtype, [M, K], TensorMemoryLayout([BLOCK_M, BLOCK_K], col_stride=1))"
          "  # (M, K) packed\n        a.store(a_tile.load(a.get_reg_layout()))", "        a = a_tile", r"lacks tcgen05\.mma.*kind"),
    Loses("blocked_matmul", "sm_100", "    tma.async_store(c_matrix, [row, column], c_tile)\n", "", "lacks cp"),
    Loses("blocked_matmul", "sm_100",
          "        tcgen05_mma(a_tile, b, accumulator, use_acc=accumulate)\n", "", r"has 0 of tcgen05\.mma"),
    Loses("tmem_copy", "sm_100",
          "stored = gl.convert_layout(held.load(held.get_reg_layout(instr_variant=ATOM)), coalesced_layout)",
          "stored = gl.load(source + places_of(PARTS - 1 - step, M, N, PARTS, coalesced_layout))", "lacks tcgen05"),
    Loses("tmem_copy", "sm_100", "held.load(held.get_reg_layout(instr_variant=ATOM))", "held.load()", r"has 0 of tcgen05\.ld"),
    Loses("tma_gather", "sm_100", "row_numbers = gl.convert_layout(row_numbers, offset_layout(gl.num_warps()))",
          "row_numbers = gl.convert_layout(row_numbers, gl.BlockedLayout([BLOCK_X], [32], [gl.num_warps()], [0]))",
          "tile::gather4, must have"),
    Loses("tma_scatter", "sm_100", "    tma.store_wait(pendings=0)\n", "", r"lacks cp\.async\.bulk\.wait_group"),
    Loses("fused_gather_scatter_matmul", "sm_100",
          "        tma.async_scatter(out, targets, tile_n * BLOCK_N, out_tile)\n", "", "lacks cp"),
)  # fmt: skip


def rows_of(loses: Loses) -> list[Row]:
    return [row for row in rows(loses.stem) if row.arch == loses.arch and row.expected_outcome is None]


HAVE = {"tcgen05": {"sm_100", "sm_103"}, "wgmma": {"sm_90"}}  # the architectures that have them, of those with rows


@pytest.mark.parametrize("stem", dict.fromkeys(row.stem for row in rows()))
def test_each_row_is_a_launch_that_its_contract_takes(stem: str) -> None:
    """A row that the launcher refuses compiles nothing; one whose refusal the compiler expects must reach the compiler."""
    contract = resolve(stem)
    for row in rows(stem):
        problem = compile_all._problem(contract, row)
        record = {"version": 1, "problem": problem, "config": row.config or {}, "regime": "integers", "data_seed": 0}
        case = contract.case_from_json(record | {"schedule": "eager", "launcher": ""})
        arch = "sm_90" if row.arch.startswith("gfx") else row.arch  # features are NVIDIA's; the launcher's clauses are for all
        expected_outcome = contract.expected_outcome(case, Target(f"emulated:{arch}", arch))
        if not expected_outcome.result:
            assert (
                row.expected_outcome is not None
                and row.expected_outcome[0] == expected_outcome.layer
                and expected_outcome.message in row.expected_outcome[1]
            ), (row, expected_outcome)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.stem}-{row.arch}-{row.label}")
def test_a_row_asks_for_instructions_that_its_architecture_has(row: Row) -> None:
    asked = {name for pattern in (*row.must, *row.counts) for name in HAVE if name in pattern}
    assert all(row.arch in HAVE[name] for name in asked), row.must
    assert row.expected_outcome is not None or row.must, "a row that asks for nothing is right whatever came"
    if row.stem == "matmul" and row.expected_outcome is None:
        assert any("mma" in pattern or "mfma" in pattern for pattern in row.must) and len(asked) <= 1


@pytest.mark.share(3)
@pytest.mark.parametrize("loses", LOSSES, ids=lambda loses: f"{loses.stem}-{loses.says.split('.')[0]}")
def test_a_source_that_loses_an_instruction_makes_its_row_fail(loses: Loses, tmp_path: Path) -> None:
    mutant = Mutant(kernel=loses.stem, name="loses", edits=once(loses.replace, loses.by), expected=())
    contract = mutant_contract(mutant, tmp_path)
    said: list[str] = []
    for row in rows_of(loses):
        said.append(compile_row(row, contract).verdict)
        if loses.says in said[-1]:
            return
    pytest.fail(f"no row says {loses.says!r}: {said}")


def test_an_unintended_fallback_makes_its_row_fail() -> None:
    row = next(row for row in rows("matmul") if row.arch == "sm_100" and row.problem["dtype"] == "fp16")
    narrow = replace(row, config={"block_m": 32, "block_n": 64, "block_k": 32, "num_warps": 4, "num_stages": 2})
    assert "tcgen05" in compile_row(narrow).verdict


def test_a_refusal_that_is_expected_is_right_and_one_that_is_not_is_wrong() -> None:
    expected_outcome = next(row for row in rows("tma_scatter") if row.expected_outcome is not None and row.arch == "sm_120")
    found = compile_row(expected_outcome)
    assert (found.verdict, found.refused_by) == ("pass", "ptxas")
    assert compile_row(replace(expected_outcome, expected_outcome=None)).verdict.startswith("refused by the ptxas")
    assert (
        "expects a refusal by the front end" in compile_row(replace(expected_outcome, expected_outcome=("front end", ""))).verdict
    )


def test_a_kernel_that_compiles_where_a_refusal_is_expected_is_wrong() -> None:
    row = next(row for row in rows("tma_gather") if row.expected_outcome is None)
    assert compile_row(replace(row, expected_outcome=("ptxas", ""))).verdict.startswith("compiled, but expects")


def test_a_row_of_several_launches_compiles_the_kernel_it_names() -> None:
    row = next(row for row in rows("rms_norm") if row.kernel == "added_rows_kernel")
    found = [compile_row(replace(row, kernel=name)) for name in ("added_rows_kernel", "another_kernel", "")]
    assert [one.verdict == "pass" for one in found] == [True, False, False]
    assert all("launched rms_norm_kernel, rms_norm_backward_kernel, added_rows_kernel" in one.refusal for one in found[1:])


def test_a_wrong_count_a_forbidden_instruction_and_a_spill_are_wrong() -> None:
    row = next(row for row in rows("tma_gather") if row.expected_outcome is None)
    count = dict.fromkeys(row.counts, 3)
    assert "must have 3" in compile_row(replace(row, counts=count)).verdict
    assert "must have none" in compile_row(replace(row, must_not=(*LOCAL, "mbarrier"))).verdict
    spills = Row(stem="tmem_copy", arch="sm_100", problem={"m": 256, "n": 128}, config={"num_warps": 4})
    assert "bytes of stack" in compile_row(spills).verdict
    assert compile_row(replace(spills, most_stack=2048)).verdict == "pass"


@pytest.mark.parametrize(
    ("arch", "figure", "most", "unit"),
    [("sm_90", "registers", 255, "registers"), ("gfx942", "registers", 512, "registers"), ("sm_90", "stack", 0, "bytes of stack"),
     ("sm_90", "shared", 227 << 10, "bytes of shared memory"), ("sm_100", "columns", 512, "columns of tensor memory")],
)  # fmt: skip
def test_a_figure_at_the_machines_limit_is_right_and_one_more_is_wrong(arch: str, figure: str, most: int, unit: str) -> None:
    row = Row(stem="matmul", arch=arch, problem={}, config={})
    assert _over_limit(row, CompileResult(**{figure: most})) == "pass"
    assert _over_limit(row, CompileResult(**{figure: most + 1})) == f"{most + 1} {unit}, the limit is {most}"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_the_driver_tells_one_warp_size_of_a_machine(arch: str) -> None:
    with capture_compilations(arch):
        active = driver.active
        told = active.utils.get_device_properties(active.get_current_device())["warpSize"]
        assert told == active.get_current_target().warp_size == (64 if arch.startswith("gfx") else 32)


def test_a_compiler_that_dies_loses_its_row_and_not_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = rows("tma_gather")[:2]
    monkeypatch.setattr(compile_all, "WORKER", ("-c", "import os; input(); os.abort()"))
    found = compile_rows(wanted, workers=1)
    assert [one.verdict.split(":")[0] for one in found] == ["compiler abort"] * 2


def test_a_row_of_a_field_that_the_kernel_has_not_is_told_by_the_field() -> None:
    found = compile_row(replace(rows("softmax")[0], problem={"count": 5}))
    assert "unexpected keyword argument 'count'" in found.verdict and "fix the row" in found.verdict


def test_the_table_has_a_line_a_row_and_counts_what_is_wrong() -> None:
    wanted = rows("tma_gather")[:2]
    text = table(wanted, [CompileResult(registers=40), CompileResult(verdict="lacks x", refused_by="ptxas")])
    assert len(text.splitlines()) == 4
    assert "lacks x" in text
    assert text.endswith("2 compilations, 1 refusals, 1 wrong")


def test_an_unknown_kernel_is_told_in_one_line_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_all.main(["no_such_kernel"]) == 2
    assert "no_such_kernel" in capsys.readouterr().err


AMD = [row for row in rows("matmul") if row.arch.startswith("gfx")]


def amd_row(arch: str, dtype: str) -> Row:
    """The smallest of the five configurations."""
    return next(row for row in AMD if (row.arch, row.problem["dtype"]) == (arch, dtype) and row.config["block_n"] == 64)


def test_each_amd_configuration_has_a_row_on_each_chip_and_type() -> None:
    from bitverdict.kernels.matmul import CONFIGS

    assert len(CONFIGS["hip"]) == 5 and len(AMD) == 5 * 3 * 5
    assert {row.arch for row in AMD} == {"gfx90a", "gfx942", "gfx950"}
    refused = {(row.arch, row.problem["dtype"]) for row in AMD if row.expected_outcome is not None}
    assert refused == {("gfx90a", "fp32"), ("gfx950", "fp32")}


@pytest.mark.parametrize(
    ("arch", "dtype", "waves"), [("gfx90a", "fp16", 8), ("gfx942", "bf16", 8), ("gfx950", "e4m3", 8), ("gfx950", "fp32", 0)]
)
def test_an_amd_row_compiles_to_the_mfma_of_its_chip(arch: str, dtype: str, waves: int) -> None:
    found = compile_row(amd_row(arch, dtype))
    assert (found.verdict, found.waves_per_eu) == ("pass", waves)


def test_a_wrong_mfma_and_another_count_of_waves_fail_by_name() -> None:
    row, other = amd_row("gfx90a", "fp16"), amd_row("gfx950", "fp16")
    assert compile_row(replace(row, must=other.must)).verdict.startswith("lacks v_mfma_f32_32x32x16_f16")
    assert "v_mfma_(?!f32_32x32x16_f16" in compile_row(replace(row, must_not=other.must_not)).verdict
    assert compile_row(replace(row, waves_per_eu=2)).verdict == "is compiled for waves_per_eu = 8, must be for 2"


def test_a_kernel_that_names_tf32_for_every_type_is_refused_on_gfx90a(tmp_path: Path) -> None:
    """What the launcher did: the front end refuses the name there, whatever the operands are."""
    mutant = Mutant(
        kernel="matmul",
        name="names tf32 for every type",
        edits=once('return problem.precision if problem.dtype == "fp32" else None', "return problem.precision"),
        expected=(),
    )
    said = compile_row(amd_row("gfx90a", "fp16"), mutant_contract(mutant, tmp_path)).verdict
    assert said.startswith("refused by the front end: input_precision must be one of")
