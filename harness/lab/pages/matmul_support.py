"""docs/matmul_support.md: what matmul expects by element type, target and configuration, printed from the contract's rule."""

from __future__ import annotations

from typing import Any

import bitverdict.kernels.matmul
from bitverdict.harness.contracts.oracle.dot_lowering import FMA, dot_plan
from bitverdict.harness.contracts.oracle.matmul_support import KINDS, shared_bytes
from bitverdict.harness.model.architectures import BY_DEFAULT, architecture
from bitverdict.kernels.features import Feature, features_of


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


def page() -> str:
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
        "Printed by `bitverdict lab pages`; a test holds each row to the compiler.",
        "",
    ]
    for arch in BY_DEFAULT:
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
