"""The expected outputs of a judged case, evaluated again with one thing changed, and how many words that changes.

Matrix products are what an evaluation costs. Where a case has many, some rows and columns of each result are computed again, drawn
by the case's seed, and the others keep their words. To count the output words that depend on the sample, its elements are
set to NaN: every output word that changes depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from bitverdict.harness.judge.compare import compare_words
from bitverdict.harness.judge.diagnose import values
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.reference.formats import FORMATS, encode
from bitverdict.reference.stored_sums import sums_in
from bitverdict.reference.tensor_core.product_query import Answer, ProductQuery, with_product_model

EXHAUSTIVE_TERMS = 1 << 18  # products of a case, all of whose words are computed again
WHOLE_OF_CHAINS = 1 << 21  # likewise where a product takes what another one gave, so that no sample stands for it
WHOLE_OF_SILENT = 1 << 22  # likewise where no word of a sample is changed: a fault may show in one of a thousand
LINES = 16  # rows, and columns, of a sample, its first and its last among them
LARGEST = 1 << 18  # elements of operands, of a case whose reference has no sample


class NotCounted(Exception):
    """Why a change is not counted."""


@dataclass(frozen=True)
class KnownProduct:
    """One product of the case, what it gave, and which rows and columns of it are computed again (None: all)."""

    query: ProductQuery
    words: np.ndarray
    sample: tuple[np.ndarray, np.ndarray] | None = None


@contextmanager
def record_products(products: list[KnownProduct], *, exclusive: bool = False) -> Iterator[None]:
    """While entered, each product that an oracle asks for is kept in `products`."""

    def words(asked: ProductQuery) -> np.ndarray:
        products.append(KnownProduct(asked, asked.words()))
        return products[-1].words

    with with_product_model(words, alone=exclusive):
        yield


class Reevaluation:
    """Evaluates what is expected of `case` again with a changed rule, operand or format. `by_real`: names of the outputs whose
    real values were held."""

    def __init__(
        self,
        contract: Contract,
        case: Case,
        target: Target,
        operands: Mapping[str, Operand],
        recorded: Mapping,
        expected: Sequence[ExpectedOutput],
        products: Sequence[KnownProduct],
        by_real: frozenset[str] = frozenset(),
    ) -> None:
        self.contract, self.case, self.target, self.recorded = contract, case, target, recorded
        self.operands, self.expected, self.by_real = operands, expected, by_real
        self.sampled = False
        self.whole = self.products = list(products)
        self._reached = [decided_elements(each, each.name in by_real) for each in expected]
        if sum(_terms(known.query) for known in products) > EXHAUSTIVE_TERMS:
            self._draw()

    def _draw(self) -> None:
        """Sample the products, where they do not follow each other."""
        rng = np.random.default_rng([self.case.data_seed, len(self.products)])
        self.sampled = True
        self.products = [
            KnownProduct(
                product.query,
                product.words,
                tuple(_lines(rng, size, product.query.depth) for size in product.query.shape),  # type: ignore[arg-type]
            )
            for product in self.whole
        ]
        try:
            marked_outputs = self._outputs(_marker_words, follows=True)
        except _Follows:
            self.products, self.sampled = self.whole, False
            if sum(_terms(product.query) for product in self.whole) > WHOLE_OF_CHAINS:
                raise NotCounted("its products follow each other and are too many to be computed again") from None
            return
        self._reached = [
            there & _differ(one, other, one.name in self.by_real)
            for there, one, other in zip(self._reached, self.expected, marked_outputs, strict=True)
        ]

    @property
    def words(self) -> int:
        """Words that the case compares."""
        return sum(int(decided_elements(each, each.name in self.by_real).sum()) for each in self.expected)

    def count_changed(self, change: Answer | None = None, operands: Mapping[str, Operand] | None = None) -> tuple[int, int]:
        """(words that differ, words looked at), where products are answered by `change`, or `operands` are others. NotCounted
        where there are no such expected outputs."""
        if not self.products and sum(entry.codes.size for entry in self.operands.values()) > LARGEST:
            raise NotCounted(f"more than {LARGEST:,} elements of operands")
        changed, of = self._count_differing(self._outputs(change or ProductQuery.words, operands), self._reached)
        if changed or not self.sampled or sum(_terms(known.query) for known in self.whole) > WHOLE_OF_SILENT:
            return changed, of
        sample, self.products = self.products, self.whole
        try:
            everywhere = [decided_elements(entry, entry.name in self.by_real) for entry in self.expected]
            return self._count_differing(self._outputs(change or ProductQuery.words, operands), everywhere)
        finally:
            self.products = sample

    def _count_differing(self, others: list[ExpectedOutput], reached: list[np.ndarray]) -> tuple[int, int]:
        """(words of `reached` that differ in `others`, words of `reached`)."""
        pairs = zip(reached, self.expected, others, strict=True)
        changed = sum(int((there & _differ(one, other, one.name in self.by_real)).sum()) for there, one, other in pairs)
        return changed, sum(int(there.sum()) for there in reached)

    def with_sums_in(self, name: str) -> tuple[int, int]:
        """(words outside of what is expected, words looked at) of a kernel that is right but for sums that end in format `name`.
        (0, 0) where nothing is summed."""
        if sum(each.codes.size for each in self.operands.values()) > LARGEST:
            raise NotCounted(f"more than {LARGEST:,} elements of operands")
        with sums_in(name) as into:
            others = self._outputs(ProductQuery.words)
        changed = of = 0
        for there, one, other in zip(self._reached, self.expected, others, strict=True) if into.count else ():
            if other.exact is not None and one.format in FORMATS:
                differ, decided_, _, _ = compare_words(one, encode(FORMATS[one.format], other.exact))
                changed, of = changed + int((differ & there).sum()), of + int((decided_ & there).sum())
        return changed, of

    def _outputs(
        self, change: Answer, operands: Mapping[str, Operand] | None = None, *, follows: bool = False
    ) -> list[ExpectedOutput]:
        """The expected outputs; `follows`: _Follows where a product takes what another one gave."""
        left = iter(self.products)

        def words(query: ProductQuery) -> np.ndarray:
            product = next(left, None)
            if product is None or product.query.shape != query.shape or product.sample is None:
                return change(query)
            if follows and not _same_factors(product.query, query):
                raise _Follows
            found = product.words.copy()  # (M, N)
            found[np.ix_(*product.sample)] = change(query.select(*product.sample))
            return found

        with with_product_model(words, alone=True), np.errstate(all="ignore"):
            try:
                outputs = self.contract.expected(self.case, self.target, operands or self.operands, self.recorded)
            except _Follows:
                raise
            except Exception as error:  # a contract that cannot say it of changed operands
                raise NotCounted(f"{type(error).__name__}: {error}".partition("\n")[0][:200]) from None
        if [each.name for each in outputs] != [each.name for each in self.expected]:
            raise NotCounted("other outputs are expected then")
        return outputs


class _Follows(Exception):
    """A product takes what another one gave."""


def _terms(asked: ProductQuery) -> int:
    return asked.shape[0] * asked.shape[1] * asked.depth


def _lines(rng: np.random.Generator, size: int, depth: int) -> np.ndarray:
    """Some of `size` rows or columns, the first and the last among them, in ascending order."""
    count = max(4, min(LINES, int((EXHAUSTIVE_TERMS / max(depth, 1)) ** 0.5)))
    if size <= count:
        return np.arange(size)
    inner = rng.choice(np.arange(1, size - 1), count - 2, replace=False)
    return np.sort(np.concatenate([[0, size - 1], inner]))


def _marker_words(query: ProductQuery) -> np.ndarray:
    """NaN in all places, or integers that no sum comes to."""
    like = np.int32 if query.rule is not None and query.rule.d == "int32" else np.uint32
    narrow = query.rule is not None and query.rule.d == "fp16"
    if narrow:
        return np.full(query.shape, 0x7FFF, np.uint16)
    return np.full(query.shape, 0x7FFFFFFF if like is np.uint32 else 0x55555555, like)


def _same_factors(one: ProductQuery, other: ProductQuery) -> bool:
    return np.array_equal(one.a, other.a) and np.array_equal(one.b, other.b)


def decided_elements(expected: ExpectedOutput, real: bool) -> np.ndarray:
    """Which elements (of the output's shape) the case decides. `real`: its real values were held."""
    found = np.ones(expected.shape, bool) if expected.inconclusive is None else ~expected.inconclusive
    if real and expected.exact is not None:
        found = found | np.isfinite(expected.exact_error if expected.exact_error is not None else np.zeros(expected.shape))
    return found


def _differ(reference: ExpectedOutput, alternative: ExpectedOutput, real: bool) -> np.ndarray:
    """Which elements of what `other` expects cannot pass as `one`: (*shape,)."""
    if reference.shape != alternative.shape or reference.format != alternative.format:
        raise NotCounted("an output of another shape or format is expected then")
    differences = np.zeros(reference.shape, bool)
    if alternative.words is not None:
        differences = _outside(reference, alternative.words)
        if alternative.others is not None:
            for words in alternative.others:
                differences &= _outside(reference, words)
    elif alternative.low is not None and alternative.high is not None:
        low, high = (values(reference.format, _unsigned_words(end)) for end in (alternative.low, alternative.high))
        below, above = _ends(reference)
        apart = (high < below) | (low > above) | (np.isnan(low) != np.isnan(below))
        differences = _outside(reference, alternative.low) & _outside(reference, alternative.high) & apart
    elif (
        alternative.value is not None
        and alternative.bound is not None
        and reference.value is not None
        and reference.bound is not None
    ):
        differences = np.abs(alternative.value - reference.value) > reference.bound + alternative.bound
    if real and reference.exact is not None and alternative.exact is not None:
        differences = differences | _other_mathematics(reference, alternative)
    return differences


def _outside(one: ExpectedOutput, words: np.ndarray) -> np.ndarray:
    return compare_words(one, _unsigned_words(words))[0]


def _unsigned_words(words: np.ndarray) -> np.ndarray:
    words = np.ascontiguousarray(words)
    return words.view(f"u{words.dtype.itemsize}")


def _ends(one: ExpectedOutput) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest value that `one` takes."""
    if one.low is not None and one.high is not None:
        return values(one.format, _unsigned_words(one.low)), values(one.format, _unsigned_words(one.high))
    assert one.words is not None
    return (found := values(one.format, _unsigned_words(one.words))), found


def _other_mathematics(reference: ExpectedOutput, alternative: ExpectedOutput) -> np.ndarray:
    """Where the exact values are further apart than their running errors."""
    assert reference.exact is not None and alternative.exact is not None
    errors = [np.zeros(reference.shape) if each.exact_error is None else each.exact_error for each in (reference, alternative)]
    allowed_error = errors[0] + errors[1]
    agree = (
        (np.abs(reference.exact - alternative.exact) <= allowed_error)
        | (reference.exact == alternative.exact)
        | (np.isnan(reference.exact) & np.isnan(alternative.exact))
    )
    return np.isfinite(allowed_error) & ~agree
