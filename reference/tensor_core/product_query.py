"""A product as an oracle asks for it, and the model that answers: the reference, or a wrong one.

A wrong model shows what agreement is worth: how many words would be others if one constant of the instruction were. What is asked
is a record, so that a part of it can be asked again under another rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import numpy as np

from bitverdict.reference.fused_multiply_add import chain
from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.tensor_core.block_scaled import scaled_product
from bitverdict.reference.tensor_core.product import product
from bitverdict.reference.tensor_core.record import Instruction


@dataclass(frozen=True, kw_only=True, eq=False)
class ProductQuery:
    """A B + C by one ascending chain of `rule` over all of K; `rule` None: of fp32 fused multiply-adds.

    `a` (M, K) and `b` (K, N) are codes, `c` (M, N) words of the accumulator or None for zero. `a_scales` (M, blocks) and `b_scales`
    (N, blocks) are codes of block scales, of the instructions that take some.
    """

    rule: Instruction | None
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray | None = None
    a_scales: np.ndarray | None = None
    b_scales: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N) of the result."""
        return self.a.shape[0], self.b.shape[1]

    @property
    def depth(self) -> int:
        """K."""
        return int(self.a.shape[1])

    def words(self) -> np.ndarray:
        """Words (M, N) of the accumulator after the chain. ValueError for shapes that do not meet."""
        if self.rule is None:
            return chain(self.a, self.b, self.c)
        if self.a_scales is not None and self.b_scales is not None:
            return scaled_product(self.rule, self.a, self.a_scales, self.b, self.b_scales, self.c)
        return product(self.rule, self.a, self.b, self.c)

    def select(self, rows: np.ndarray, columns: np.ndarray) -> ProductQuery:
        """The same for some `rows` (R,) and `columns` (C,) of the result."""
        return replace(
            self,
            a=np.ascontiguousarray(self.a[rows]),  # (R, K)
            b=np.ascontiguousarray(self.b[:, columns]),  # (K, C)
            c=None if self.c is None else self.c[np.ix_(rows, columns)],  # (R, C)
            a_scales=None if self.a_scales is None else self.a_scales[rows],  # (R, blocks)
            b_scales=None if self.b_scales is None else self.b_scales[columns],  # (C, blocks)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PromotedQuery:
    """Products of blocks of K, each from zero, added in fp32: total = fma(inner * scale of the row, scale of the column, total).

    `parts`: the inner products, in order, all of one shape (M, N) with fp32 words. `of_rows` (M, parts) and `of_columns` (N, parts)
    are the scales, float32. The product with the scale of the row is rounded."""

    parts: tuple[ProductQuery, ...]
    of_rows: np.ndarray
    of_columns: np.ndarray

    def words(self) -> np.ndarray:
        """fp32 codes (M, N). The inner products are asked as any other is (`answer_product`)."""
        return promoted_sum(map(answer_product, self.parts), self.of_rows, self.of_columns)


def promoted_sum(parts: Iterable[np.ndarray], of_rows: np.ndarray, of_columns: np.ndarray) -> np.ndarray:
    """As `PromotedQuery` adds fp32 words (M, N) of its `parts`: fp32 codes (M, N)."""
    total = np.zeros((len(of_rows), len(of_columns)), np.float32)  # (M, N)
    for place, part in enumerate(parts):
        scaled = fp32.multiply(part.view(np.float32), of_rows[:, place, None])  # (M, N)
        total = fp32.fma(scaled, of_columns[None, :, place], total)  # (M, N)
    return total.view(np.uint32)


Answer = Callable[[ProductQuery], np.ndarray]
"""Words (M, N) of what was asked."""

PromotedAnswer = Callable[[PromotedQuery], np.ndarray]
"""fp32 codes (M, N) of what was asked."""

_answer: ContextVar[Answer] = ContextVar("answer", default=ProductQuery.words)
_promoted_answer: ContextVar[PromotedAnswer] = ContextVar("promoted", default=PromotedQuery.words)
_words_alone: ContextVar[bool] = ContextVar("alone", default=False)


def answer_product(asked: ProductQuery) -> np.ndarray:
    """Words (M, N) of the accumulator, by the reference or by the model that is entered (`with_product_model`)."""
    return _answer.get()(asked)


def promoted_words(asked: PromotedQuery) -> np.ndarray:
    """fp32 codes (M, N) of the promoted sum, by the reference or by what is entered (`with_product_model`)."""
    return _promoted_answer.get()(asked)


def words_alone() -> bool:
    """Whether nothing but the words is of use: a bound on them is not asked."""
    return _words_alone.get()


@contextmanager
def with_product_model(model: Answer, *, alone: bool = False, promoting: PromotedAnswer = PromotedQuery.words) -> Iterator[None]:
    """While entered, what an oracle asks is answered by `model`. `alone`: it need not hold the words to a bound. `promoting`
    answers promoted sums whole; left out, `model` is asked for each of their products and the reference adds."""
    tokens = _answer.set(model), _words_alone.set(alone), _promoted_answer.set(promoting)
    try:
        yield
    finally:
        _answer.reset(tokens[0])
        _words_alone.reset(tokens[1])
        _promoted_answer.reset(tokens[2])
