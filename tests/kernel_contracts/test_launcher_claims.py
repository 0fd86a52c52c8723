"""Contract under test: what a launcher claims is asked, what it waives is not, and its own tile decides which sizes are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.judge.first_launch import LauncherTraits, launcher_traits
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Tile
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.session.case_source import CaseSource
from tests.faults.mutants import replaced_once

CHECKOUT = Path(__file__).resolve().parents[2]
GENERAL = (CHECKOUT / "tests" / "support" / "general_matmul.py").read_text()
PLAIN = f"{CHECKOUT / 'tests' / 'support' / 'plain_gather.py'}"
SM_90 = target("emulated:sm_90")


def written(text: str, directory: Path) -> str:
    file = directory / f"launcher_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
    file.write_text(text)
    return f"{file}:matmul"


def changed(directory: Path, *edits: tuple[str, str]) -> str:
    """The address of the general launcher with each text of `edits` replaced."""
    text = GENERAL
    for old, new in edits:
        text = replaced_once(text, old, new, "general_matmul")
    return written(text, directory)


def verdicts(launcher: str, chosen: Callable[[Case], bool], *, shows: LauncherTraits | None = None, most: int = 3) -> list[Verdict]:
    """Of the required cases of `launcher` on sm_90 that are `chosen`, the first `most`, each judged once."""
    source = CaseSource("matmul", SM_90, launcher=launcher, launcher_traits=shows)
    cases = [replace(case, calls=1) for case in source.required() if chosen(case)][:most]
    assert cases, "nothing of the kind is asked"
    return [judge(case, SM_90, source.contract) for case in cases]


CLAIMED = {
    "activation": (lambda c: c.problem.activation and c.regime != "planted", ("    acc = leaky_relu(acc)", "    pass"), "outside"),
    "NaN through an activation": (
        lambda c: c.problem.activation and c.regime == "planted" and c.problem.dtype == "fp16",
        ("return tl.where(x >= 0, x, 0.01 * x)", "return tl.maximum(x, 0) + 0.01 * tl.minimum(x, 0)"),
        "outside",
    ),
    "out_dtype": (
        lambda c: c.problem.out != c.problem.dtype and c.problem.dtype != "int8",
        ("dtype=out_dtype or a.dtype", "dtype=a.dtype"),
        "wrong shape",
    ),
    "int8": (
        lambda c: c.problem.dtype == "int8" and c.problem.out == "int8",
        ("acc.to(c_ptr.dtype.element_ty)", "tl.clamp(acc.to(tl.float32), -128, 127).to(c_ptr.dtype.element_ty)"),
        "wrong words",
    ),
    "e4m3": (
        lambda c: c.problem.dtype == "e4m3" and c.regime != "integers",
        ("tl.dot(a, b, acc", "tl.dot(a, b.to(tl.float16).to(tl.float8e5).to(tl.float16).to(b.dtype), acc"),
        "outside",
    ),
    "stride 0": (
        lambda c: c.problem.a.broadcast or c.problem.b.broadcast,
        ("a, b, c, M, N, K, a.stride(0)", "a, b, c, M, N, K, a.stride(0) or K"),
        "stray",
    ),
    "refusals": (
        lambda c: c.problem.k_of_b is not None or c.problem.dtype_of_b,
        ("    if K != L or a.dtype != b.dtype:\n", "    if False:\n"),
        "not refused",
    ),
    "K = 0": (
        lambda c: c.problem.k == 0,
        ("    tiles = triton", "    if not K:\n        return c\n    tiles = triton"),
        "no launch",
    ),
}
WRONG = {
    "stray": {Outcome.WRONG_MATHEMATICS, Outcome.STRAY_READ},
    "outside": {Outcome.WRONG_MATHEMATICS, Outcome.LOST_PRECISION},
    "wrong words": {Outcome.WRONG_WORDS, Outcome.WRONG_MATHEMATICS},
    "no launch": {Outcome.OUTSIDE_BOUND},  # no kernel ran, so nothing has real values
    "wrong shape": {Outcome.WRONG_SHAPE},
    "not refused": {Outcome.NOT_REFUSED, Outcome.STRAY_READ, Outcome.REFUSED},
}


@pytest.mark.share(2)
@pytest.mark.parametrize("claim", CLAIMED)
def test_what_is_claimed_is_asked_and_held_to(claim: str, tmp_path: Path) -> None:
    chosen, fault, outcome = CLAIMED[claim]
    right = verdicts(written(GENERAL, tmp_path), chosen)
    assert {verdict.decision for verdict in right} == {Decision.PASS}, [(v.outcome, v.message) for v in right]
    wrong = [verdict for verdict in verdicts(changed(tmp_path, fault), chosen) if verdict.failed]
    assert wrong and {verdict.outcome for verdict in wrong} <= WRONG[outcome], [(v.outcome, v.message) for v in wrong]


def test_what_is_not_claimed_is_not_asked(tmp_path: Path) -> None:
    plain = written(GENERAL.partition("matmul.claims")[0], tmp_path)
    asked = [case.problem for case in CaseSource("matmul", SM_90, launcher=plain).required()]
    assert {(p.dtype, p.out, p.activation, p.k_of_b, p.dtype_of_b) for p in asked} == {("fp16", "fp16", "", None, "")}
    assert all(p.a == p.b and not p.a.broadcast and p.a.order == "row" for p in asked)
    assert {0 in (p.m, p.n, p.k) for p in asked} == {True, False}, "sizes of 0 are asked of everybody"


@pytest.mark.parametrize("body", ["raise ValueError('K = 0')", "assert K, 'K = 0'", "raise NotImplementedError('K = 0')"])
def test_a_size_of_0_may_be_refused_but_not_answered_wrongly(body: str, tmp_path: Path) -> None:
    refusing = changed(tmp_path, ("    tiles = triton", f"    if not K:\n        {body}\n    tiles = triton"))
    empty = verdicts(refusing, lambda c: c.problem.k == 0)
    assert {(verdict.decision, verdict.basis) for verdict in empty} == {(Decision.PASS, Basis.EXPECTED_REFUSAL)}


def test_a_refusal_of_what_was_claimed_is_no_refusal_that_is_due(tmp_path: Path) -> None:
    launcher = changed(tmp_path, ("    tiles = triton", "    assert a.dtype != torch.bfloat16\n    tiles = triton"))
    refused = verdicts(launcher, lambda c: c.problem.dtype == "bf16" and c.problem.k_of_b is None, most=1)
    assert refused[0].failed and refused[0].outcome is Outcome.LAUNCHER_ERROR


def shown_by(launcher: str) -> LauncherTraits:
    first = CaseSource("matmul", SM_90, launcher=launcher).first_case()
    assert first is not None
    return launcher_traits(judge(first, SM_90).recorded)


def test_a_first_launch_shows_the_tile_and_the_group(tmp_path: Path) -> None:
    seen = shown_by(written(GENERAL, tmp_path))
    assert seen.tile is not None and (seen.tile.m, seen.tile.n, seen.tile.k, seen.tile.group) == (32, 32, 32, 4)
    assert seen.configurations == 0


@pytest.mark.parametrize(("stem", "arch"), [("matmul", "sm_90"), ("block_scaled_matmul", "sm_100")])
def test_a_launcher_of_whole_tiles_is_asked_a_second_one(stem: str, arch: str, tmp_path: Path) -> None:
    """Sizes just above a tile move to the tile itself; a kernel that takes its first tile for every one would pass."""
    launcher = written(GENERAL + "\n\nmatmul.requires = lambda n: n % 256 == 0\n", tmp_path)
    asked = CaseSource(
        stem, target(f"emulated:{arch}"), launcher=launcher, launcher_traits=LauncherTraits(Tile(128, 256, 128))
    ).required()
    sizes = {(case.problem.m, case.problem.n) for case in asked}
    assert all(n % 256 == 0 for _, n in sizes) and any(m > 128 and n > 256 for m, n in sizes)


def at_the_edges(launcher: str) -> list[Verdict]:
    """Those of the cases that follow the general launcher's tile, down to the first that it fails."""
    found: list[Verdict] = []
    tile = Tile(32, 32, 32, 4)
    source = CaseSource("matmul", SM_90, launcher=launcher, launcher_traits=LauncherTraits(tile))
    edges = {(case.problem.m, case.problem.n, case.problem.k) for case in source.contract.around(tile, SM_90)}
    for case in source.required():
        if (case.problem.m, case.problem.n, case.problem.k) in edges and not any(verdict.failed for verdict in found):
            found.append(judge(replace(case, calls=1), SM_90, source.contract))
    return found


EDGES = {
    "more rows of tiles than a group": ("min(rows - group * GROUP, GROUP)", "min(rows, GROUP)"),
    "more tiles than multiprocessors": (
        "range(tl.program_id(0), rows * columns, PROGRAMS)",
        "range(tl.program_id(0), tl.program_id(0) + 1)",
    ),
    "the end of a deep K": ("for k in range(0, K, BLOCK_K)", "for k in range(0, min(K, 4096), BLOCK_K)"),
    "one above the tile": ("rows, columns = tl.cdiv(M, BLOCK_M),", "rows, columns = tl.maximum(M // BLOCK_M, 1),"),
}


@pytest.mark.parametrize("fault", EDGES)
def test_the_sizes_that_are_asked_follow_the_launchers_own_tile(fault: str, tmp_path: Path) -> None:
    assert any(verdict.failed for verdict in at_the_edges(changed(tmp_path, EDGES[fault])))


@pytest.mark.share(4)
def test_a_right_launcher_is_right_at_the_edges_of_its_tile(tmp_path: Path) -> None:
    judged = at_the_edges(written(GENERAL, tmp_path))
    assert len(judged) == 10 + 2 * 4 and {verdict.decision for verdict in judged} == {Decision.PASS}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_plain_gather_runs_where_the_shipped_kernel_could_not(arch: str, tmp_path: Path) -> None:
    machine = target(f"emulated:{arch}")
    source = CaseSource("tma_gather", machine, launcher=f"{PLAIN}:gather")
    found = [judge(replace(case, calls=1), machine, source.contract) for case in source.required()[:2]]
    assert {verdict.decision for verdict in found} == {Decision.PASS}, [(v.outcome, v.message) for v in found]
    text = Path(PLAIN).read_text()
    (tmp_path / "wrong.py").write_text(text.replace("((rows >= 0) & (rows < table_rows))[:, None] & ", "", 1))
    source = CaseSource("tma_gather", machine, launcher=f"{tmp_path / 'wrong.py'}:gather")
    cases = [case for case in source.required() if case.regime.endswith(("/anywhere", "/edges"))][:2]
    outcomes = {judge(case, machine, source.contract).outcome for case in cases}
    assert outcomes and outcomes <= {Outcome.STRAY_READ, Outcome.ILLEGAL_ADDRESS}


@pytest.mark.parametrize(("claims", "outcomes"), [("()", {Outcome.PASS, Outcome.RACE}), ("('distinct rows',)", {Outcome.PASS})])
def test_a_scatter_may_say_that_its_rows_are_distinct(claims: str, outcomes: set[Outcome], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"from tests.support.plain_gather import scatter\n\nscatter.claims = {claims}\n")
    machine = target("emulated:sm_90")
    source = CaseSource("tma_scatter", machine, launcher=f"{tmp_path / 'mine.py'}:scatter")
    cases = [replace(case, calls=1) for case in source.required()]
    kinds = {case.regime.partition("/")[2] for case in cases}
    assert kinds == ({"permuted"} if "distinct" in claims else {"permuted", "anywhere", "repeated", "edges", "spanned"})
    assert {judge(case, machine, source.contract).outcome for case in cases[:4]} == outcomes
    assert any("so not tested: row numbers that come twice" in said for said in source.limit_notes()) == ("distinct" in claims)


def test_the_report_names_what_claims_and_requires_left_out(tmp_path: Path) -> None:
    text = GENERAL.replace('"e4m3", "int8", "activation", "out_dtype", "refusals"', '"int8"')
    launcher = written(f"{text}\nmatmul.requires = lambda dtype, k: dtype != 'bf16' and k % 32 == 0\n", tmp_path)
    said = CaseSource("matmul", SM_90, launcher=launcher).limit_notes()
    assert said[0] == "not claimed, so not tested: e4m3, activation, out_dtype, far, refusals"
    assert len(said) == 3 and "moved to other sizes" in said[1] and "left out" in said[2]
