"""Contract under test: launchers that are right in ways no plan of ours has pass, and the same launchers with one fault fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bitverdict.harness.contracts.base.single_config import EXACT_SIZES
from bitverdict.harness.contracts.fused_gather_scatter_matmul import scatter_bound
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product
from bitverdict.harness.judge.first_launch import LauncherTraits
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, Tile
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome, Verdict
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.kernels.block_scaled_matmul import Problem as ScaledProblem
from bitverdict.kernels.matmul import Problem as MatmulProblem
from bitverdict.kernels.scaled_operands import FORMATS
from bitverdict.reference import formats
from bitverdict.reference.formats import FP16, decode, encode
from bitverdict.reference.scale_layout import padding_mask
from tests.faults.mutants import replaced_once

PASS = Path(__file__).resolve().parents[1] / "support" / "right_launchers.py"
EMULATED = {arch: target(f"emulated:{arch}") for arch in ("sm_80", "sm_90", "sm_100")}
SCALED, SMALL, FUSED = (resolve(stem) for stem in ("block_scaled_matmul", "small_mma", "fused_gather_scatter_matmul"))


def launcher(name: str, tmp_path: Path, *edits: tuple[str, str]) -> str:
    """Address of a right launcher, or of a copy of it with each of `edits` made once."""
    if not edits:
        return f"{PASS}:{name}"
    text = PASS.read_text()
    for old, new in edits:
        text = replaced_once(text, old, new, PASS.name)
    copy = tmp_path / f"{name}.py"
    copy.write_text(text)
    return f"{copy}:{name}"


def judged(case: Case, arch: str, address: str) -> Verdict:
    contract = resolve(case.contract)
    asked = contract.for_launcher(case, address)
    assert asked is not None
    return judge(asked, EMULATED[arch], contract)


# --------------------------------------------------------------------------------------------------- matmul, in any order
def matmul_case(regime: str, dtype: str) -> Case:
    return Case(contract="matmul", problem=MatmulProblem(m=40, n=33, k=75, dtype=dtype), regime=regime, data_seed=6)


SHORT = ("mask=(rows[:, None] < M) & (depth[None, :] < K), other", "mask=(rows[:, None] < M) & (depth[None, :] < K - 1), other")
SUMMED = ("descending", "restarted", "pairs", "split_with_atomics", "split_under_a_lock", "streamed")


DTYPES = ("fp16", "bf16", "fp32")


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("name", "arch", "dtype"), [(name, [*EMULATED][at % 3], DTYPES[at * 2 % 5 % 3]) for at, name in enumerate(SUMMED)]
)
def test_any_order_of_sums_passes_and_fails_without_its_last_k(name: str, arch: str, dtype: str, tmp_path: Path) -> None:
    assert judged(matmul_case("exact", dtype), arch, launcher(name, tmp_path)).outcome is Outcome.PASS
    assert judged(matmul_case("exact", dtype), arch, launcher(name, tmp_path, SHORT)).outcome is Outcome.WRONG_MATHEMATICS


def deep(stem: str, address: str, arch: str = "sm_90") -> list[Case]:
    """The cases of exact sums that a launcher is asked whatever its tile."""
    cases = CaseSource(stem, EMULATED[arch], launcher=address, launcher_traits=LauncherTraits(Tile(32, 32, 16, 1))).required()
    return [case for case in cases if case.regime == "exact" and (case.problem.m, case.problem.n, case.problem.k) in EXACT_SIZES]


def test_each_claimed_type_is_asked_exact_sums_of_a_deep_k(tmp_path: Path) -> None:
    address = launcher("restarted", tmp_path, ('CLAIMS = ("strides", "bf16", "fp32")', 'CLAIMS = ("e4m3", "bf16")'))
    depths = {size[2] for size in EXACT_SIZES}
    for arch, types in (("sm_80", {"fp16", "bf16"}), ("sm_90", {"fp16", "bf16", "e4m3"})):
        asked = {(case.problem.dtype, case.problem.k) for case in deep("matmul", address, arch)}
        assert asked == {(dtype, k) for dtype in types for k in depths}
    for stem, types in (("ampere_gemm", {"bf16", "fp16"}), ("hopper_matmul", {"bf16", "fp16", "e4m3", "e5m2"})):
        assert {case.problem.dtype for case in deep(stem, address)} == types


def test_an_accumulator_that_is_narrowed_fails_in_every_type(tmp_path: Path) -> None:
    claims = ('CLAIMS = ("strides", "bf16", "fp32")', 'CLAIMS = ("e4m3", "bf16", "fp32")')
    wide = ("BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 16", "BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 32")  # the least K of e4m3
    narrowed = ("acc += product_of_block(", "acc = acc.to(tl.bfloat16).to(tl.float32) + product_of_block(")
    for edits, due in (((claims, wide), Outcome.PASS), ((claims, wide, narrowed), Outcome.LOST_PRECISION)):
        (folder := tmp_path / due.name).mkdir()
        cases = [case for case in deep("matmul", launcher("restarted", folder, *edits)) if case.problem.k == 640]
        found = {case.problem.dtype: judge(case, EMULATED["sm_90"], resolve("matmul")).outcome for case in cases}
        assert found == dict.fromkeys(("fp16", "bf16", "fp32", "e4m3"), due)


@pytest.mark.parametrize("regime", ["planted", "subnormals"])
def test_fp32_may_be_rounded_to_tf32_and_not_to_bf16(regime: str, tmp_path: Path) -> None:
    for name in ("tf32", "nearest_tf32"):
        assert judged(matmul_case(regime, "fp32"), "sm_90", launcher(name, tmp_path)).outcome is Outcome.PASS
    to_bf16 = ("(bits + 0x1000) & -0x2000", "(bits + 0x8000) & -0x10000")
    found = judged(matmul_case(regime, "fp32"), "sm_90", launcher("nearest_tf32", tmp_path, to_bf16))
    assert found.outcome is Outcome.OUTSIDE_BOUND


def factors(contract: Contract, case: Case) -> list[np.ndarray]:
    """Values of A (M, K) and B (K, N) of a case."""
    left, right = (decode(formats.FORMATS[operand.format], operand.codes) for operand in contract.operands(case)[:2])
    return [left, right if right.shape == (case.problem.k, case.problem.n) else right.T]


@pytest.mark.parametrize(
    "stem", ["matmul", "ampere_gemm", "hopper_matmul", "blocked_matmul", "small_mma", "fused_gather_scatter_matmul"]
)
def test_launchers_of_a_product_are_asked_exact_sums_and_no_overflow(stem: str, tmp_path: Path) -> None:
    contract, where = resolve(stem), EMULATED["sm_100"]
    cases = [contract.for_launcher(case, launcher("descending", tmp_path)) for case in contract.required(where)]
    asked = {case.regime.partition("/")[0] for case in cases if case is not None}
    assert "exact" in asked and "largest" not in asked and {"normal", "integers", "wide", "planted", "subnormals"} <= asked
    kinds = {case.regime.partition("/")[2] for case in cases if case is not None and case.regime.startswith("exact")}
    for case in [
        case
        for case in cases
        if case is not None and case.regime.startswith("exact") and contract.expected_outcome(case, where).result
    ][:4]:
        operands = {operand.name: operand for operand in contract.operands(case)}
        due = contract.expected(case, where, operands, {})[0]
        assert due.low is not None and np.array_equal(due.low, due.high)
        left, right = (np.abs(side) for side in factors(contract, case))
        apart = np.abs(np.matmul(*factors(contract, case))) / (left @ right)
        cancel = (apart < 0.05).mean()  # of fp8 in every other column
        assert left.shape[1] < 16 or cancel > (0.4 if case.problem.dtype in ("e4m3", "e5m2") else 0.5), (case.problem.dtype, cancel)
    assert kinds == ({""} if stem != "fused_gather_scatter_matmul" else kinds - {""}), "the kind of row numbers stays"


# ------------------------------------------------------------------------------------------- the padding of packed scales
def scaled(name: str, regime: str, **sizes: int) -> Case:
    problem = SCALED.size_fields(name, sizes["m"], sizes["n"], sizes["k"]) | {"format": name, "out": "fp32"}
    return Case(contract="block_scaled_matmul", problem=ScaledProblem(**problem), regime=regime, data_seed=5)


@pytest.mark.share(3)
@pytest.mark.parametrize(("arch", "name"), [("sm_80", "mxfp4"), ("sm_90", "nvfp4"), ("sm_100", "mxfp8")])
def test_a_launcher_may_rely_on_zeros_in_the_padding_of_scales(arch: str, name: str, tmp_path: Path) -> None:
    case = scaled(name, "normal", m=40, n=33, k=80)
    verdict = judged(case, arch, launcher("zero_padding", tmp_path))
    assert verdict.outcome is Outcome.PASS, verdict.message
    wrong = ("row % 32 * 16 + row // 32 * 4", "row % 32 * 16")  # rows 32 and on take the scales of the first 32
    assert judged(case, arch, launcher("zero_padding", tmp_path, wrong)).outcome in (
        Outcome.WRONG_MATHEMATICS,
        Outcome.OUTSIDE_BOUND,
    )


def test_only_the_kernels_own_cases_have_nan_codes_in_the_padding(tmp_path: Path) -> None:
    for name, f in FORMATS.items():
        own = scaled(name, "normal", m=40, n=33, k=80)
        for case, zero in ((own, False), (replace(own, launcher=launcher("zero_padding", tmp_path)), True)):
            codes = next(operand.codes for operand in SCALED.operands(case) if operand.name == "a_scale")
            padded = codes[padding_mask(40, -(-case.problem.k // f.block_size))]
            nan = 0xFF if f.scale == "e8m0" else 0x7F
            assert padded.size and bool((padded == 0).all()) is zero and bool((padded == nan).any()) is not zero


# ------------------------------------------------------------------- kernels whose words are the plan's, launchers whose are not
def small(regime: str = "normal", dtype: str = "fp16") -> Case:
    problem, config = {"m": 64, "n": 32, "k": 64, "dtype": dtype}, {"block_m": 64, "block_n": 32}
    return SMALL.case(problem, config, regime=regime, data_seed=3)


def fused(regime: str = "normal/permuted", dtype: str = "bf16") -> Case:
    problem = FUSED.size_fields({"dtype": dtype}, 70, 40, 90, 50, 90)
    return FUSED.case(problem, {"block_m": 64, "block_n": 32, "block_k": 32}, regime=regime, data_seed=3)


def test_c_may_be_added_last_and_not_subtracted(tmp_path: Path) -> None:
    assert judged(small(), "sm_100", launcher("added_last", tmp_path)).outcome is Outcome.PASS
    wrong = ("acc += tl.load(c_ptr", "acc -= tl.load(c_ptr")
    assert judged(small(), "sm_100", launcher("added_last", tmp_path, wrong)).outcome is Outcome.WRONG_MATHEMATICS


def test_a_gathered_product_may_be_summed_by_blocks(tmp_path: Path) -> None:
    found = judged(fused(), "sm_100", launcher("gathered_restarted", tmp_path))
    assert (found.outcome, found.words, found.bound_used is not None) == (Outcome.PASS, 90 * 40, True)
    short = ("mask=there[:, None] & (depth[None, :] < k)", "mask=there[:, None] & (depth[None, :] < k - 1)")
    found = judged(fused(), "sm_100", launcher("gathered_restarted", tmp_path, short))
    assert found.outcome is Outcome.WRONG_MATHEMATICS


def test_rows_that_no_number_names_are_held_to_their_words(tmp_path: Path) -> None:
    """-0 for +0 lies inside any bound: a row that is not written keeps its bits."""
    negated = """    kept = torch.ones(out.shape[0], dtype=torch.bool)
    kept[scatter[scatter < out.shape[0]].long()] = False
    out[kept] = torch.where(out[kept] == 0, -out[kept], out[kept])
    return out
"""
    stray = ("    return out\n", negated)
    case = fused("integers/permuted")
    assert judged(case, "sm_100", launcher("gathered_restarted", tmp_path)).outcome is Outcome.PASS
    assert judged(case, "sm_100", launcher("gathered_restarted", tmp_path, stray)).outcome is Outcome.WRONG_WORDS


def test_where_rows_that_differ_land_on_one_nothing_is_decided() -> None:
    asked = SimpleNamespace(m=3, n=2, k=1, dtype="fp16", out="fp16", activation="")
    a, b = encode(FP16, np.array([[1.0], [1.0], [3.0]])), encode(FP16, np.array([[1.0, 0.0]]))
    due = bounded_product(asked, a, b, "sm_100")
    table = np.full((4, 2), 0x8000, np.uint16)
    left = scatter_bound(due, table, np.array([1, 1, 2]))
    assert left.inconclusive is not None and left.bounded is not None and not left.inconclusive.any()
    assert left.bounded[:, 0].tolist() == [False, True, True, False]
    left = scatter_bound(due, table, np.array([1, 0, 1]))
    assert left.inconclusive is not None and left.inconclusive[1].tolist() == [True, False], "both rows bring the same zero"


# --------------------------------------------------------------------------------------------- launchers whose programs wait
WAITING = {
    "split_under_a_lock": (
        ('tl.atomic_cas(lock, 0, 1, sem="acquire")', 'tl.atomic_cas(lock, 0, 1, sem="relaxed")'),
        ('tl.atomic_xchg(lock, 0, sem="release")', 'tl.atomic_xchg(lock, 0, sem="relaxed")'),
        ('    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:\n        pass\n', ""),
    ),
    "streamed": (
        ('tl.atomic_add(turn, 0, sem="acquire")', "tl.load(turn, volatile=True)"),
        ('tl.atomic_xchg(turn, part + 1, sem="release")', 'tl.atomic_xchg(turn, part + 1, sem="acquire")'),
        (
            "        tl.store(places, chain, mask=inside)\n"
            "        tl.debug_barrier()  # every thread has stored before one says so\n"
            '        tl.atomic_xchg(turn, part + 1, sem="release")\n',
            '        tl.atomic_xchg(turn, part + 1, sem="release")\n        tl.store(places, chain, mask=inside)\n',
        ),
    ),
}


def product(schedule: str) -> Case:
    problem = MatmulProblem(m=40, n=33, k=70, dtype="fp16")
    return Case(contract="matmul", problem=problem, regime="normal", data_seed=2, schedule=schedule)


@pytest.mark.share(2)
@pytest.mark.parametrize("schedule", ["eager", "latest", "drawn:4", "latest on 2"])
@pytest.mark.parametrize("name", WAITING)
def test_a_product_shared_by_programs_that_wait_is_right(name: str, schedule: str, tmp_path: Path) -> None:
    for arch in EMULATED:
        assert judged(product(schedule), arch, launcher(name, tmp_path)).outcome is Outcome.PASS


@pytest.mark.parametrize(("name", "edit"), [(name, edit) for name, edits in WAITING.items() for edit in edits])
def test_shares_that_nothing_orders_are_a_race(name: str, edit: tuple[str, str], tmp_path: Path) -> None:
    verdict = judged(product("eager"), "sm_90", launcher(name, tmp_path, edit))
    assert verdict.outcome is Outcome.RACE and "nothing orders them" in verdict.message


def test_a_share_that_nobody_hands_on_to_is_a_deadlock(tmp_path: Path) -> None:
    never = ('tl.atomic_add(turn, 0, sem="acquire") != part', 'tl.atomic_add(turn, 0, sem="acquire") != part + 1')
    verdict = judged(product("eager"), "sm_90", launcher("streamed", tmp_path, never))
    assert verdict.outcome is Outcome.DEADLOCK and "no program can move" in verdict.message
