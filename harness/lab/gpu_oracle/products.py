"""The functions of `bitverdict.reference.tensor_core` that give words of whole products, computed on a GPU.

They take and give the same arrays. `reference.tensor_core.product_query.with_product_model(answer_on(...))` has an oracle's words
computed here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import torch

from bitverdict.harness.lab.gpu_oracle import chain, grouped_chain, integer_chain, operands, promoted_sums
from bitverdict.reference.tensor_core.product_query import Answer, ProductQuery, PromotedAnswer, PromotedQuery
from bitverdict.reference.tensor_core.record import ExponentFloor, InfiniteAccumulator, Instruction, ZeroTerms

Product = Callable[[Instruction, np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]
_SIGNED_TYPES = {1: np.int8, 2: np.int16, 4: np.int32}
_launch_lock = threading.Lock()  # of threads that ask side by side one compiles the kernel, and one at a time packs on the GPU


def on_gpu(device: torch.device | str) -> Product:
    """`reference.tensor_core.product` on `device`."""

    def product(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
        given = None if c is None else to_device(c, device)  # (M, N)
        sides = to_device(a, device).t(), to_device(b, device)  # (K, M), (K, N)
        with _launch_lock:
            found = words(rule, *sides, given)
        return from_device(rule, found)

    return product


def scaled_on_gpu(device: torch.device | str) -> Callable[..., np.ndarray]:
    """`reference.tensor_core.scaled_product` on `device`."""

    def scaled_product(
        rule: Instruction, a: np.ndarray, scale_a: np.ndarray, b: np.ndarray, scale_b: np.ndarray, c: np.ndarray | None = None
    ) -> np.ndarray:
        given = None if c is None else to_device(c, device)  # (M, N)
        sides = (to_device(a, device).t(), to_device(scale_a, device).t()), (to_device(b, device), to_device(scale_b, device).t())
        with _launch_lock:
            found = scaled_words(rule, *sides, given)
        return from_device(rule, found)

    return scaled_product


def computes(asked: ProductQuery) -> bool:
    """Whether this implementation has an answer: not for fp32 fused multiply-adds, sums that saturate, and MMA-Sim's choices."""
    return asked.rule is not None and not asked.rule.saturates and not _refusal(asked.rule)


def answer_on(device: torch.device | str) -> Answer:
    """What an oracle asks, computed on `device` where this implementation can, else by the reference."""

    def words(query: ProductQuery) -> np.ndarray:
        if not computes(query) or not min(*query.shape, query.depth):
            return query.words()
        assert query.rule is not None
        if query.a_scales is None or query.b_scales is None:
            return on_gpu(device)(query.rule, query.a, query.b, query.c)
        return scaled_on_gpu(device)(query.rule, query.a, query.a_scales, query.b, query.b_scales, query.c)

    return words


def promoted_on(device: torch.device | str) -> PromotedAnswer:
    """Promoted sums whole on `device`, where this implementation computes each inner product, else by the reference."""

    def words_of(query: PromotedQuery) -> np.ndarray:
        kinds = {(part.a.dtype, part.b.dtype) for part in query.parts}
        if len(kinds) > 1 or not all(
            computes(part) and part.a_scales is None and min(*part.shape, part.depth) for part in query.parts
        ):
            return query.words()
        a = to_device(np.concatenate([part.a for part in query.parts], axis=1), device).t()  # (K, M) of all parts: one transfer
        b = to_device(np.concatenate([part.b for part in query.parts]), device)  # (K, N)
        rows, columns = (to_device(scales.T.view(np.int32), device) for scales in (query.of_rows, query.of_columns))  # (parts, L)
        ends = np.cumsum([0, *(part.depth for part in query.parts)])
        with _launch_lock:

            def inners() -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
                for place, part in enumerate(query.parts):
                    assert part.rule is not None
                    given = None if part.c is None else to_device(part.c, device)  # (M, N)
                    depths = slice(ends[place], ends[place + 1])
                    yield words(part.rule, a[depths], b[depths], given), rows[place], columns[place]

            found = promoted_sums.promoted_total(inners())
        return found.cpu().numpy().view(np.uint32)

    return words_of


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
    return chain.product(rule, operands.pack_side(rule, rule.a, a), operands.pack_side(rule, rule.b, b), c)


def scaled_words(
    rule: Instruction, a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor], c: torch.Tensor | None = None
) -> torch.Tensor:
    """The same of a scaled instruction. `a`, `b`: codes (K, L), one element a code, and scale codes (ceil(K / scale_block), L)."""
    _refuse_choices(rule)
    if rule.scale is None:
        raise ValueError(f"{rule.name} takes no block scales: use words")
    if rule.sums_groups_exactly:
        return grouped_chain.grouped_product(rule, grouped_chain.group_side(rule, *a), grouped_chain.group_side(rule, *b), c)
    return chain.product(rule, operands.pack_scaled_side(rule, rule.a, *a), operands.pack_scaled_side(rule, rule.b, *b), c)


def _refuse_choices(rule: Instruction) -> None:
    if refused := _refusal(rule):
        raise ValueError(f"{rule.name} with {refused}: use reference.tensor_core, on the host")


def _refusal(rule: Instruction) -> str:
    """The side of `Choices` that this implementation does not compute; those are MMA-Sim's."""
    chosen = rule.choices
    if chosen.zero_terms is not ZeroTerms.LEFT_OUT:
        return str(chosen.zero_terms)
    if chosen.exponent_floor is ExponentFloor.ZERO_ACCUMULATOR:
        return str(chosen.exponent_floor)
    return str(chosen.infinite_accumulator) if chosen.infinite_accumulator is InfiniteAccumulator.REFUSED else ""


def to_device(codes: np.ndarray, device: torch.device | str) -> torch.Tensor:
    """`codes` on `device`, as signed integers of their width: torch has few operators for unsigned ones."""
    return torch.from_numpy(np.ascontiguousarray(codes).view(_SIGNED_TYPES[codes.itemsize])).to(device)


def from_device(rule: Instruction, found: torch.Tensor) -> np.ndarray:
    """Words of a device, in the storage of the rule's output."""
    return found.cpu().numpy().view(np.int32 if rule.d == "int32" else rule.output.storage)
