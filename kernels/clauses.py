"""What makes a launch legal: each rule once, with its reason, its remedy and what it costs when broken.

A kernel's ``CLAUSES`` are read by three parties: its launcher refuses a broken one before anything is compiled, the harness's
strategies draw cases on both sides of it, and the documentation prints it. None of them states the rule a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bitverdict.kernels.features import Feature, features_of


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One precondition of a kernel, over its `Problem` and `Config`.

    `holds` decides; `value` says what was asked, `rule` what must hold, `remedy` what to do, `cost` what a launch that ignored
    it would do. `layer` is who notices a breach first when the launcher does not: "capacity", "verifier", "ptxas", "hardware",
    or "nothing" where the result is silently wrong.
    """

    name: str
    holds: Callable[[Any, Any], bool]
    value: Callable[[Any, Any], str]
    rule: str
    remedy: str
    cost: str
    layer: str = "nothing"


def broken(clauses: Iterable[Clause], problem: object, config: object) -> list[Clause]:
    """The clauses that `problem` and `config` break, in order; a later clause is not asked once an earlier one broke,
    because it may divide by what the earlier one rules out."""
    for clause in clauses:
        if not clause.holds(problem, config):
            return [clause]
    return []


def require(kernel: str, clauses: Iterable[Clause], problem: object, config: object) -> None:
    """Raises ValueError (value, rule, remedy, cost) for the first broken clause; silent otherwise."""
    for clause in broken(clauses, problem, config):
        raise ValueError(
            f"{kernel}: {clause.value(problem, config)}: {clause.rule}; {clause.remedy} "
            f"(clause {clause.name}: otherwise {clause.cost})"
        )


def require_features(kernel: str, needed_features: frozenset[Feature]) -> None:
    """Raises ValueError where the active driver's GPU lacks a feature: for launchers whose compiler would not refuse but end the
    process."""
    from triton.runtime import driver

    target = driver.active.get_current_target()
    arch = f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)
    lacking = needed_features - (features_of(arch) if target.backend == "cuda" else frozenset())
    if lacking:
        raise ValueError(
            f"{kernel}: {arch} lacks {', '.join(sorted(lacking))}: the kernel is made of these instructions; use matmul there"
        )
