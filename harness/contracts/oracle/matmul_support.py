"""What matmul expects for each element type, target and configuration: words, a refusal by the front end, or "out of resources".

A rule; `bitverdict.harness.lab.pages.matmul_support` prints its table for people. A test holds every row to the compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitverdict.harness.contracts.oracle.dot_lowering import dot_plan, without_a_model
from bitverdict.harness.model.architectures import ARCHITECTURES, is_amd
from bitverdict.harness.model.contract import ExpectedOutcome
from bitverdict.kernels.features import Feature
from bitverdict.reference.formats.convert import FP8_BY_INTEGERS

if TYPE_CHECKING:
    from bitverdict.harness.model.targets import Target


def beyond_shared_memory(needed: int, limit: int, arch: str) -> ExpectedOutcome | None:
    """Out of resources where a launch needs `needed` bytes of shared memory and `arch` has but `limit`; None if they fit."""
    if needed <= limit:
        return None
    reason = f"{needed} bytes of shared memory, {arch} has {limit}"
    return ExpectedOutcome(result=False, outcome="out of resources", layer="capacity", message="shared memory", reason=reason)


def without_e4m3(arch: str) -> ExpectedOutcome:
    """Triton's front end refuses the type e4m3 (fp8e4nv) on `arch`, which has none."""
    return ExpectedOutcome(result=False, outcome="refused", layer="front end", message="fp8e4nv", reason=f"{arch} has no e4m3")


KINDS = (("fp16", "tf32"), ("bf16", "tf32"), ("e4m3", "tf32"), ("int8", "tf32"), ("fp32", "tf32"), ("fp32", "ieee"))
"""Element type and precision of what is multiplied: each has its own instruction."""


def has_type(name: str, target: Target) -> bool:
    """Whether a result may be in type `name` on `target`: in fp8 on AMD where its conversions are known."""
    known = not is_amd(target.arch) or target.arch in FP8_BY_INTEGERS
    return name not in ("e4m3", "e5m2") or (Feature.FP8_E4M3 in target.features and known)


def has_operands(name: str, target: Target) -> bool:
    """Whether operands may be in type `name` on `target`: on AMD where the product that e4m3 is given to has a model."""
    if is_amd(target.arch) and name == "e4m3":
        return not without_a_model(target.arch)
    return has_type(name, target)


def has_pair(operands: str, result: str, target: Target) -> bool:
    """Whether `operands` may give a `result`. On AMD e4m3 is widened to fp16, whose overflow the mode for fp8 results changes."""
    return has_type(result, target) and not (is_amd(target.arch) and operands == result == "e4m3")


def outcome(problem: Any, config: object, target: Target) -> ExpectedOutcome:
    """The expected outcome of a legal problem: the table of `docs/matmul_support.md`, as a rule."""
    if 0 in (problem.m, problem.n):
        return ExpectedOutcome()
    if not (has_operands(problem.dtype, target) and has_type(problem.out, target)):
        return without_e4m3(target.arch)
    needed = shared_bytes(problem, config, target.arch) if config is not None else 0
    known = ARCHITECTURES.get(target.arch)  # none of AMD's
    beyond = beyond_shared_memory(needed, known.shared_memory, target.arch) if known else None
    return beyond or ExpectedOutcome()


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
