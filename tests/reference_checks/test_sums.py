"""Contract under test: a tree of additions is recovered from sums that follow it, described, and evaluated word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, Rounding
from bitverdict.reference.sums.arithmetic import Addition, FusedSum, Order
from bitverdict.reference.sums.description import brackets, describe_tree
from bitverdict.reference.sums.recovery import NoTree, recover
from bitverdict.reference.sums.rounding import NodeRounding, Span, measure_nodes, operator_of
from bitverdict.reference.sums.terms import NoSum, terms_of
from bitverdict.reference.sums.tree import NestedLeaves, Tree, blocks, chain, halves
from bitverdict.reference.tensor_core import instruction, product
from tests.support.summing_orders import reduced

FP16 = instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
SHAPES: tuple[tuple[str, NestedLeaves, int, str], ...] = (
    ("a chain", chain(list(range(40))), 40, "40 terms one after another, ascending"),
    ("a chain from the end", chain(list(range(40))[::-1]), 40, "40 terms one after another, descending"),
    ("halves", halves(list(range(32))), 32, "a balanced tree over 32 terms, 16, 8, 4, 2, 1 apart"),
    ("a tile", reduced(list(range(50)), list(range(50)), 1), 50, "a balanced tree over 50 terms in 64 places"),
    ("blocks", blocks(range(70), 16), 70, "a chain of 4 fused sums of 16 then a fused sum of 6, ascending, 16 apart"),
    ("shares", chain([blocks(range(at, at + 48), 16) for at in (0, 48, 96)]), 144, "3 parts one after another, each a chain of 3"),
    ("lanes", halves([chain(list(range(lane, 64, 8))) for lane in range(8)]), 64, "8 lanes, each of terms 8 apart"),
    ("two terms", [0, 1], 2, "a balanced tree over 2 terms"),
    ("one term", 0, 1, "one term"),
)


def asked(tree: Tree, count: int, *, most: int = 1 << 20) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A sum that follows `tree`: beside a mask everything is lost. Counts above `most` are rounded to even ones."""

    def ask(masks: np.ndarray, units: np.ndarray) -> np.ndarray:
        held = np.zeros((len(masks), count + len(tree.children)))
        held[:, :count] = units
        for side, sign in ((0, 1.0), (1, -1.0)):
            rows = np.flatnonzero(masks[:, side] >= 0)
            held[rows, masks[rows, side]] = sign * 2.0**60
        for place, inside in enumerate(tree.children):
            terms = held[:, list(inside)]
            large = np.abs(terms) > 2.0**40
            found = np.where(large.any(axis=1), np.where(large, terms, 0.0).sum(axis=1), terms.sum(axis=1))
            held[:, count + place] = np.where((found > most) & (found < 2.0**40), 2 * np.rint(found / 2), found)
        return held[:, tree.root]

    return ask


@pytest.mark.parametrize(("nested", "count", "said"), [each[1:] for each in SHAPES], ids=[each[0] for each in SHAPES])
def test_the_tree_of_a_sum_is_recovered_and_told(nested: NestedLeaves, count: int, said: str) -> None:
    tree = Tree.from_lists(nested, count)
    assert recover(range(count), count, asked(tree, count), most_units=count) == tree
    assert recover(range(count), count, asked(tree, count, most=8), most_units=8, seed=3) == tree
    assert said in describe_tree(tree)
    assert Tree.from_lists(tree.to_lists(), count) == tree
    assert (brackets(tree).count("(") == len(tree.children)) == (len(brackets(tree)) <= 600)


def test_another_tree_than_the_declared_one_is_told_apart() -> None:
    tree = Tree.from_lists(chain(list(range(12))), 12)
    found = recover(range(12), 12, asked(tree, 12), most_units=12)
    assert found != Tree.from_lists(chain([1, 2, 0, *range(3, 12)]), 12)
    assert found != Tree.from_lists(blocks(range(12), 2), 12)
    assert found == Tree.from_lists(chain([1, 0, *range(2, 12)]), 12)  # of two that are added neither is the first


def test_a_sum_that_keeps_what_is_small_has_no_tree() -> None:
    """A compensated sum counts all units, whatever the masks."""
    with pytest.raises(NoTree, match="meet above 2 terms, and"):
        recover(range(6), 6, lambda masks, units: units.sum(axis=1).astype(float), most_units=6)
    with pytest.raises(NoTree, match=r"counts nan of \d units"):
        recover(range(6), 6, lambda masks, units: np.full(len(masks), np.nan), most_units=6)


def test_words_by_a_tree_of_fused_sums_are_those_of_the_instruction() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((20, 50)) * np.exp2(rng.integers(-6, 6, (20, 50))) for _ in range(2))
    codes = [each.astype(np.float16).view(np.uint16) for each in (a, b)]
    factors = np.stack([each.view(np.float16).astype(float) for each in codes])  # (2, 20, 50)
    tree = Tree.from_lists(blocks(range(50), 16), 50)
    order = Order(tree, (FusedSum(FP16),) * len(tree.children), frozenset(), ("fp16", "fp16"))
    found = order.evaluate(factors).astype(np.float32).view(np.uint32)
    due = np.concatenate([product(FP16, codes[0][row : row + 1], codes[1][row : row + 1].T) for row in range(20)])[:, 0]
    assert (found == due).all()
    plain = Order(Tree.from_lists(chain(list(range(50))), 50), (Addition("fp32"),) * 49, frozenset(), ("fp16", "fp16"))
    one_by_one = np.zeros(20, np.float32)
    for k in range(50):
        one_by_one = one_by_one + factors[:, :, k].prod(axis=0).astype(np.float32)
    assert (plain.evaluate(factors) == one_by_one).all()
    assert (plain.evaluate(factors).astype(np.float32).view(np.uint32) != due).any()


def test_fused_multiply_adds_and_narrow_additions_round_as_they_do() -> None:
    factors = np.array([[[1 + 2.0**-12, -(1 + 2.0**-11)]], [[1 + 2.0**-12, 1.0]]])  # (2, 1, 2)
    tree = Tree.from_lists([0, 1], 2)
    order = Order(tree, (Addition("fp32"),), frozenset({0}), ("fp32", "fp32"))
    assert order.evaluate(factors) == [2.0**-24]
    assert Order(tree, (Addition("fp32"),), frozenset(), ("fp32", "fp32")).evaluate(factors) == [0.0]
    terms = np.array([[[2048.0, 1.0, 1.0]]])
    tree = Tree.from_lists([[0, 1], 2], 3)
    for form, due in (("fp16", 2048.0), ("bf16", 2048.0), ("fp32", 2050.0), ("fp64", 2050.0)):
        assert Order(tree, (Addition(form),) * 2, frozenset(), (form,)).evaluate(terms) == [due]


@pytest.mark.parametrize("form", ["fp16", "bf16", "fp32"])
def test_the_rounding_of_an_addition_is_measured(form: str) -> None:
    tree = Tree.from_lists(chain(list(range(5))), 5)
    order = Order(tree, (Addition(form),) * 4, frozenset(), (form,))
    seen = measure_nodes(tree, [6, 8], lambda values: order.evaluate(values[None]), Span(-20, 14), FORMATS[form].mantissa_bits + 1)
    assert seen == [NodeRounding(FORMATS[form].mantissa_bits + 1, False)] * 2
    assert seen[0] is not None
    assert operator_of(seen[0], (1, 1), (form,), "sm_90") == Addition(form)


def test_a_fused_sum_is_measured_and_its_instruction_found() -> None:
    tree = Tree.from_lists(blocks(range(48), 16), 48)
    order = Order(tree, (FusedSum(FP16),) * 3, frozenset(), ("fp16", "fp16"))

    seen = measure_nodes(tree, [49], lambda values: order.evaluate(_factors(values)), Span(-26, 4), 24)[0]
    assert seen == NodeRounding(24, True, ((24, True), (25, True), (26, False)))
    found = operator_of(seen, (16, 1), ("fp16", "fp16"), "sm_90")
    assert isinstance(found, FusedSum)
    assert (found.rule.fraction_bits, found.rule.block, found.rule.rounding) == (25, 16, Rounding.TOWARD_ZERO)
    assert operator_of(seen, (16, 1), ("fp16", "fp16"), "sm_80") is None  # its blocks have 8 products, cut at 24 bits


def _factors(values: np.ndarray) -> np.ndarray:
    """(2, P, T) of +-(1 or 1.5) times powers of two."""
    exponent = np.floor(np.log2(np.where(values == 0, 1.0, np.abs(values))))
    later = np.exp2(np.floor(exponent / 2))
    return np.stack([values / later, np.where(values == 0, 1.0, later)])


@pytest.mark.parametrize(
    ("reference", "shapes", "outputs", "count"),
    [
        (lambda xp, a, b: a @ b, {"a": (3, 5), "b": (5, 2)}, (3, 2), 5),
        (lambda xp, a, b: a @ b.T, {"a": (2, 3, 5), "b": (4, 5)}, (2, 3, 4), 5),
        (lambda xp, a, b: xp.sum(a * b, axis=1, keepdims=True) * 0.5, {"a": (3, 5), "b": (3, 5)}, (3, 1), 5),
        (lambda xp, a, b: xp.mean(xp.reshape(a, (3, 2, 4)), axis=2) + b, {"a": (3, 8), "b": (2,)}, (3, 2), 5),
        (lambda xp, a, b: xp.cumulative_sum(a, axis=0) + b[None, :] * 1, {"a": (4, 3), "b": (3,)}, (4, 3), 5),
    ],
    ids=["matmul", "batched", "products", "mean and bias", "prefixes"],
)
def test_terms_of_a_reference_add_up_to_what_it_computes(reference: Any, shapes: Any, outputs: Any, count: int) -> None:
    rng = np.random.default_rng(1)
    operands = {name: rng.integers(-4, 5, shape).astype(float) for name, shape in shapes.items()}
    try:
        (terms,) = terms_of(reference, shapes)
    except NoSum as why:
        assert "different scales" in str(why)  # a bias beside a mean is no plain sum
        return
    assert (terms.shape, terms.count) == (outputs, count)
    found = terms.values(operands, np.arange(terms.size)).prod(axis=0).sum(axis=-1).reshape(outputs) * terms.scale
    assert (found == reference(np, *operands.values())).all()


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (lambda xp, x: xp.sum(xp.exp(x)), "exp makes it more than a sum of products"),
        (lambda xp, x: xp.sum(x, axis=1) * 3.0, r"multiplied by 3\.0"),
        (lambda xp, x: xp.mean(x, axis=1), "a mean of 5"),
        (lambda xp, x: (x @ x.T) @ x, "a product of matrices that are sums"),
        (lambda xp, x: x - xp.sum(x), "an operator makes it more"),
    ],
)
def test_what_is_more_than_a_sum_is_refused_with_its_operator(reference: Any, why: str) -> None:
    with pytest.raises(NoSum, match=why):
        terms_of(reference, {"x": (3, 5)})


def test_squares_are_told() -> None:
    (terms,) = terms_of(lambda xp, x: xp.sum(x * x, axis=1), {"x": (2, 3)})
    assert terms.squares()
    (terms,) = terms_of(lambda xp, x: x @ x.T, {"x": (2, 3)})
    assert terms.squares()
    (terms,) = terms_of(lambda xp, x, y: x @ y, {"x": (2, 3), "y": (3, 2)})
    assert not terms.squares()
