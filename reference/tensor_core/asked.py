"""A product as an oracle asks for it, and the model that answers: the reference, or a wrong one.

A wrong model shows what agreement is worth: how many words would be others if one constant of the instruction were. What is asked
is a record, so that a part of it can be asked again under another rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import numpy as np

from bitverdict.reference.fused_multiply_add import chain
from bitverdict.reference.tensor_core.block_scaled import scaled_product
from bitverdict.reference.tensor_core.product import product
from bitverdict.reference.tensor_core.record import Instruction


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
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
        return self.a.shape[1]

    def words(self) -> np.ndarray:
        """Words (M, N) of the accumulator after the chain. ValueError for shapes that do not meet."""
        if self.rule is None:
            return chain(self.a, self.b, self.c)
        if self.a_scales is not None and self.b_scales is not None:
            return scaled_product(self.rule, self.a, self.a_scales, self.b, self.b_scales, self.c)
        return product(self.rule, self.a, self.b, self.c)

    def of(self, rows: np.ndarray, columns: np.ndarray) -> Asked:
        """The same for some `rows` (R,) and `columns` (C,) of the result."""
        return replace(
            self,
            a=np.ascontiguousarray(self.a[rows]),  # (R, K)
            b=np.ascontiguousarray(self.b[:, columns]),  # (K, C)
            c=None if self.c is None else self.c[np.ix_(rows, columns)],  # (R, C)
            a_scales=None if self.a_scales is None else self.a_scales[rows],  # (R, blocks)
            b_scales=None if self.b_scales is None else self.b_scales[columns],  # (C, blocks)
        )


Answer = Callable[[Asked], np.ndarray]
"""Words (M, N) of what was asked."""

_answer: ContextVar[Answer] = ContextVar("answer", default=Asked.words)
_alone: ContextVar[bool] = ContextVar("alone", default=False)


def answered(asked: Asked) -> np.ndarray:
    """Words (M, N) of the accumulator, by the reference or by the model that is entered (`answering`)."""
    return _answer.get()(asked)


def words_alone() -> bool:
    """Whether nothing but the words is of use: a bound on them is not asked."""
    return _alone.get()


@contextmanager
def answering(model: Answer, *, alone: bool = False) -> Iterator[None]:
    """While entered, what an oracle asks is answered by `model`. `alone`: it need not hold the words to a bound."""
    tokens = _answer.set(model), _alone.set(alone)
    try:
        yield
    finally:
        _answer.reset(tokens[0])
        _alone.reset(tokens[1])
