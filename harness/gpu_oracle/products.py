"""The functions of `bitverdict.reference.tensor_core` that give words of whole products, computed on a GPU.

They take and give the same arrays, so one stands where the other does: `contracts.oracle.dot_lowering.mutated_model(on_gpu(...))`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from bitverdict.harness.gpu_oracle import chain, grouped_chain, integer_chain, operands
from bitverdict.reference.tensor_core.record import ExponentFloor, InfiniteAccumulator, Instruction, ZeroTerms

Product = Callable[[Instruction, np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32}


def on_gpu(device: torch.device | str) -> Product:
    """`reference.tensor_core.product` on `device`."""

    def product(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
        given = None if c is None else sent(c, device)  # (M, N)
        return came(rule, words(rule, sent(a, device).t(), sent(b, device), given))

    return product


def scaled_on_gpu(device: torch.device | str) -> Callable[..., np.ndarray]:
    """`reference.tensor_core.scaled_product` on `device`."""

    def scaled_product(
        rule: Instruction,
        a: np.ndarray,
        scale_a: np.ndarray,
        b: np.ndarray,
        scale_b: np.ndarray,
        c: np.ndarray | None = None,
    ) -> np.ndarray:
        given = None if c is None else sent(c, device)  # (M, N)
        sides = (sent(a, device).t(), sent(scale_a, device).t()), (sent(b, device), sent(scale_b, device).t())
        return came(rule, scaled_words(rule, *sides, given))

    return scaled_product


def words(rule: Instruction, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None) -> torch.Tensor:
    """Words (M, N) of A B + C: codes `a` (K, M) and `b` (K, N), `c` (M, N), on one device, as signed integers of their width."""
    if a.shape[0] != b.shape[0]:
        raise ValueError(f"a (K, M) and b (K, N) do not meet: {tuple(a.shape)} and {tuple(b.shape)}; give both with K first")
    _refuse_choices(rule)
    if rule.scale is not None:
        raise ValueError(f"{rule.name} takes block scales: use scaled_words")
    if rule.d == "int32":
        if rule.saturates:
            raise ValueError(f"{rule.name} clamps its sum, which is not computed on a GPU: use reference.tensor_core.product")
        return integer_chain.integer_product(a, b, c)
    return chain.product(rule, operands.packed(rule, rule.a, a), operands.packed(rule, rule.b, b), c)


def scaled_words(
    rule: Instruction, a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor], c: torch.Tensor | None = None
) -> torch.Tensor:
    """The same of a scaled instruction. `a`, `b`: codes (K, L), one element a code, and scale codes (ceil(K / scale_block), L)."""
    _refuse_choices(rule)
    if rule.scale is None:
        raise ValueError(f"{rule.name} takes no block scales: use words")
    if rule.grouped:
        if rule.choices.infinite_accumulator is InfiniteAccumulator.REFUSED:
            raise ValueError("InfiniteAccumulator.REFUSED is not computed on a GPU: use reference.tensor_core.scaled_product")
        return grouped_chain.grouped_product(rule, grouped_chain.grouped(rule, *a), grouped_chain.grouped(rule, *b), c)
    return chain.product(rule, operands.scaled(rule, rule.a, *a), operands.scaled(rule, rule.b, *b), c)


def _refuse_choices(rule: Instruction) -> None:
    """What this implementation does not compute: sides of `Choices` that only MMA-Sim takes."""
    chosen = rule.choices
    if chosen.zero_terms is not ZeroTerms.LEFT_OUT or chosen.exponent_floor is ExponentFloor.ZERO_ACCUMULATOR:
        raise ValueError(f"{rule.name} with {chosen.zero_terms}, {chosen.exponent_floor}: use reference.tensor_core, on the host")


def sent(codes: np.ndarray, device: torch.device | str) -> torch.Tensor:
    """`codes` on `device`, as signed integers of their width: torch has few operators for unsigned ones."""
    return torch.from_numpy(np.ascontiguousarray(codes).view(_SIGNED[codes.itemsize])).to(device)


def came(rule: Instruction, found: torch.Tensor) -> np.ndarray:
    """Words of a device, in the storage of the rule's output."""
    return found.cpu().numpy().view(np.int32 if rule.d == "int32" else rule.output.storage)
