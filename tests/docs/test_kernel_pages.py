"""Contract under test: every clause of every kernel, which docs/kernels.md prints, can be broken.

A clause that no case of the contract breaks would be a rule that nobody ever saw hold.
"""

from __future__ import annotations

import importlib

import pytest

from bitverdict.harness.lab.pages.mutation_score import newest_emulated
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import target
from bitverdict.kernels.clauses import Clause, broken, require


@pytest.mark.parametrize("stem", kernels_with_a_contract())
def test_each_refusal_of_the_required_cases_are_of_a_clause_of_its_own(stem: str) -> None:
    contract = resolve(stem)
    where = target("emulated:sm_80") if stem == "ampere_gemm" else newest_emulated(contract)
    clauses = importlib.import_module(f"bitverdict.kernels.{stem}").CLAUSES
    default = importlib.import_module(f"bitverdict.kernels.{stem}").Config() if stem == "block_scaled_matmul" else None
    seen = {found[0].name for case in contract.required(where) if (found := broken(clauses, case.problem, case.config or default))}
    never = [clause.name for clause in clauses if clause.name not in seen]
    assert set(never) == UNREACHED.get(stem, set())


UNREACHED = {  # by a case: an earlier clause covers what would break them
    "matmul": {"sizes"},  # no operand of 2^31 rows is made
    "block_scaled_matmul": {"format", "whole bytes", "largest sizes"},  # their operands cannot be made, or not here
    "tmem_copy": {"element type"},  # every type that torch and Gluon share is copied
    "small_mma": {"boxes", "whole blocks", "capacity"},
    "blocked_matmul": {"block columns", "whole blocks", "capacity"},
    "blocked_matmul_pipelined": {"block columns", "whole blocks", "capacity"},
    "warp_specialized_matmul": {"block columns", "whole blocks"},
    "warp_specialized_gather_scatter_matmul": {"block columns", "whole blocks"},
    "fused_gather_scatter_matmul": {"boxes", "block columns", "whole blocks", "capacity"},
    "grouped_matmul": {"sizes"},  # no size of a case is negative: test_grouped_matmul.py
    "tma_gather": {"element type"},
    "tma_scatter": {"element type"},
}


def test_a_broken_clause_is_told_with_value_rule_remedy_and_cost() -> None:
    clause = Clause(
        name="even",
        holds=lambda p, c: p % 2 == 0,
        value=lambda p, c: f"p = {p}",
        rule="p is even",
        remedy="add one",
        cost="an odd result",
    )
    require("kernel", (clause,), 2, None)
    with pytest.raises(ValueError, match=r"kernel: p = 3: p is even; add one .*otherwise an odd result"):
        require("kernel", (clause,), 3, None)
