"""What matmul expects for each element type, target and configuration: words, a refusal by the front end, or "out of resources".

A rule, and its table for people (``python -m bitverdict.harness.contracts.oracle.matmul_support`` prints it; it is kept in
`docs/matmul_support.md`). A test holds every row to the compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bitverdict.kernels.matmul
from bitverdict.harness.contracts.oracle.dot_lowering import FMA, dot_plan
from bitverdict.harness.model.architectures import ARCHITECTURES, EMULATED, architecture
from bitverdict.harness.model.contract import ExpectedOutcome
from bitverdict.kernels.features import Feature, features_of

if TYPE_CHECKING:
    from bitverdict.harness.model.targets import Target

KINDS = (("fp16", "tf32"), ("bf16", "tf32"), ("e4m3", "tf32"), ("int8", "tf32"), ("fp32", "tf32"), ("fp32", "ieee"))
"""Element type and precision of what is multiplied: each has its own instruction."""

ARCHS = EMULATED


def has_type(name: str, target: Target) -> bool:
    return name not in ("e4m3", "e5m2") or Feature.FP8_E4M3 in target.features


def outcome(problem: Any, config: Any, target: Target) -> ExpectedOutcome:
    """The expected outcome of a legal problem: the table of `docs/matmul_support.md`, as a rule."""
    if 0 in (problem.m, problem.n):
        return ExpectedOutcome()
    if not (has_type(problem.dtype, target) and has_type(problem.out, target)):
        return ExpectedOutcome(
            result=False, outcome="refused", layer="front end", message="fp8e4nv", reason=f"{target.arch} has no e4m3"
        )
    needed = shared_bytes(problem, config, target.arch) if config is not None else 0
    known = ARCHITECTURES.get(target.arch)  # none of AMD's
    if known and needed > (limit := known.shared_memory):
        return ExpectedOutcome(
            result=False,
            outcome="out of resources",
            layer="capacity",
            message="shared memory",
            reason=f"{needed} bytes of shared memory, {target.arch} has {limit}",
        )
    return ExpectedOutcome()


def shared_bytes(problem: Any, config: Any, arch: str) -> int:
    """Bytes of the ring of operand tiles, for the types whose ring can exceed a limit: fp32, which is always pipelined. One
    ring slot less than stages where the product reads registers or a synchronous instruction frees its slot at once (mma.sync,
    fma)."""
    if problem.dtype != "fp32" or problem.k == 1:  # one K block known to the compiler: no loop, no ring
        return 0
    plan = dot_plan(
        arch,
        problem.dtype,
        precision=problem.precision,
        block_m=config.block_m,
        block_n=config.block_n,
        block_k=config.block_k,
        num_warps=config.num_warps,
    )
    slots = config.num_stages if plan.family in ("wgmma", "tcgen05") else config.num_stages - 1
    return slots * 4 * config.block_k * (config.block_m + config.block_n)


def row(arch: str, kind: tuple[str, str], config: Any) -> str:
    """The expected outcome in a few words: the instruction and its operand type, or what stops it."""
    dtype, precision = kind
    if dtype == "e4m3" and Feature.FP8_E4M3 not in features_of(arch):
        return "refused: no e4m3"
    problem = bitverdict.kernels.matmul.Problem(
        m=config.block_m, n=config.block_n, k=2 * config.block_k, dtype=dtype, out=dtype, precision=precision
    )
    needed = shared_bytes(problem, config, arch)
    if needed > (limit := architecture(arch).shared_memory):
        return f"out of resources: {needed} of {limit} bytes"
    plan = dot_plan(
        arch,
        dtype,
        precision=precision,
        block_m=config.block_m,
        block_n=config.block_n,
        block_k=config.block_k,
        num_warps=config.num_warps,
    )
    if plan.family == FMA:
        return "words: fp32 fused multiply-adds"
    widened = f", {dtype} as {plan.operand}" if plan.operand not in (dtype, "tf32") else ""
    return f"words: {plan.family}{widened}"


def render() -> str:
    """The table of all (element type, target, configuration), as Markdown."""
    configs = bitverdict.kernels.matmul.configurations("cuda")
    lines = [
        "# What matmul expects, by element type, target and configuration",
        "",
        "Configurations are block_m x block_n x block_k, g: rows of tiles in a group, w: warps, s: stages. The words of one type",
        "differ between instructions: the autotuned launcher expects those of the configuration that won.",
        "",
        "An output in e4m3 is refused on sm_80, whatever the operands. With K = 1 there is no loop to pipeline, and what is out of",
        "resources below fits.",
        "",
        "Printed by `python -m bitverdict.harness.contracts.oracle.matmul_support`; a test holds each row to the compiler.",
        "",
    ]
    for arch in ARCHS:
        lines += [
            f"## {arch}",
            "",
            "| configuration | " + " | ".join(_title(kind) for kind in KINDS) + " |",
            "| --- |" + " --- |" * len(KINDS),
        ]
        lines += [f"| {config.name} | " + " | ".join(row(arch, kind, config) for kind in KINDS) + " |" for config in configs]
        lines.append("")
    return "\n".join(lines)


def _title(kind: tuple[str, str]) -> str:
    return f"fp32 ({kind[1]})" if kind[0] == "fp32" else kind[0]


if __name__ == "__main__":
    print(render(), end="")
