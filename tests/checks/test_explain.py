"""A cause is named where one hypothesis explains every wrong element, and nothing is said where two do or the evidence is thin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.checks.explain import evaluation
from bitverdict.harness.checks.explain.cause import ZEROS, Cause, cause_of, choose_cause
from bitverdict.harness.checks.explain.check import probable_cause
from bitverdict.harness.checks.explain.evaluation import evaluate_reference, operation_text, operations
from bitverdict.harness.checks.explain.evidence import CauseFinding, Evidence, Fit
from bitverdict.harness.checks.explain.places import relocations
from bitverdict.harness.contracts.oracle.row_mathematics import rms_norm
from bitverdict.harness.contracts.oracle.shared_mathematics import product_mathematics, scaled_product
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.verdict import Outcome
from bitverdict.reference.formats import FORMATS, decode, encode
from bitverdict.reference.tracing import namespace as tracing
from bitverdict.reference.tracing.state import Trace

RNG = np.random.default_rng(7)
A, B = (decode(FORMATS["fp16"], encode(FORMATS["fp16"], RNG.normal(size=shape))) for shape in ((70, 105), (105, 40)))
PRODUCT = product_mathematics(A, B)
EXACT = A @ B
LAUNCH = {"launches": [{"grid": [3, 2, 1], "tile": [32, 32, 32]}]}


class Reals:
    """Real values of a launch."""

    def __init__(self, value: np.ndarray) -> None:
        self.value, self.error = value, np.full(value.shape, 1e-12)


def words(values: np.ndarray, name: str = "fp16") -> np.ndarray:
    fmt = FORMATS[name]
    return encode(fmt, values).view(f"u{fmt.width // 8}")


def caused(
    came: np.ndarray,
    *,
    mathematics: Mathematics = PRODUCT,
    real: bool = False,
    bound: float = 4e-3,
    name: str = "c",
    due: np.ndarray | None = None,
    **more: Any,
) -> Cause | None:
    """What is said of a result whose values were `came`, with or without real values; words lie in a bound of fp16 around `due`,
    which is what `mathematics` gives."""
    exact = evaluate_reference(mathematics)[name] if due is None else due
    expected = ExpectedOutput(
        name=name,
        format="fp16",
        shape=exact.shape,
        value=exact,
        bound=np.abs(exact) * 2.0**-11 + bound,
        exact=exact,
        exact_error=np.full(exact.shape, 1e-12),
        **({"tile": (32, 32), "k_block": 32} if exact.ndim == 2 else {}),
    )
    seen = LaunchResult(outputs={name: words(came)}, launch_record=LAUNCH, real_values={name: Reals(came)} if real else {})
    return cause_of(mathematics, expected, seen, Outcome.WRONG_MATHEMATICS if real else Outcome.OUTSIDE_BOUND, **more)


def without(start: int, end: int, times: float = 0.0) -> np.ndarray:
    weights = np.ones(105)
    weights[start:end] = times
    return (A * weights) @ B


def in_tile(made: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
    found = EXACT.copy()
    found[rows, columns] = made
    return found


SAID = {
    "tail": (without(96, 105), "without its last K tail (k = 96 to 104, K = 105, steps of 32)"),
    "twice": (without(31, 32, 2.0), "element k = 31 used twice"),
    "middle": (without(40, 47), "without k = 40 to 46"),
    "turned tile": (in_tile(EXACT[32:64, :32].T, slice(32, 64), slice(0, 32)), "rows and columns exchanged (in tile (1, 0))"),
    "next k": (A @ np.roll(B, -1, 0), "multiplies a at k - 1 by what belongs to k: one of the two is one off"),
    "rows": (np.roll(A, -1, 0) @ B, "takes a at m + 1"),
    "tiles": (in_tile(EXACT[:32], slice(32, 64), slice(None)), "tile (1, 0) holds what tile (0, 0) should"),
    "sign": (-EXACT, "equals the result with the other sign"),
    "zeros": (in_tile(np.zeros((70, 8)), slice(None), slice(32, None)), "zeros: nothing was added or stored"),
}


def test_a_stride_that_the_kernel_ignores_is_named() -> None:
    x = RNG.normal(size=(7, 9))
    memory = np.ascontiguousarray(x.T).ravel()  # columns first: strides 1 and 7
    came = 2 * memory[np.add.outer(np.arange(7), np.arange(9))]
    mathematics = Mathematics(function=lambda xp, x: x * 2, operands={"x": x}, outputs=("c",), strides={"x": (1, 7)})
    found = caused(came, mathematics=mathematics, real=True)
    assert found is not None and found.sentence == "reads x as if its columns lay next to each other: stride 7 of axis 1 is ignored"
    assert caused(came, mathematics=replace(mathematics, strides={}), real=True) is None, "nobody knows how it lies"


@pytest.mark.parametrize("bug", SAID)
def test_a_wrong_product_is_named_by_words_and_by_real_values(bug: str) -> None:
    came, sentence = SAID[bug]
    for real in (False, True):
        found = caused(came, real=real)
        assert found is not None and sentence in found.sentence


ROUNDED = {
    "bf16": (decode(FORMATS["bf16"], encode(FORMATS["bf16"], EXACT)), "rounded to bf16 before the store"),
    "e5m2": (decode(FORMATS["e5m2"], encode(FORMATS["e5m2"], EXACT)), "rounded to e5m2 before the store"),
    "operand": (decode(FORMATS["bf16"], encode(FORMATS["bf16"], A)) @ B, "a rounded to bf16 first"),
}


@pytest.mark.parametrize("bug", ROUNDED)
def test_a_lost_precision_is_named_by_its_rounding(bug: str) -> None:
    came, sentence = ROUNDED[bug]
    found = caused(came, bound=1e-4)
    assert found is not None and sentence in found.sentence


def test_an_accumulator_in_half_precision_is_told_from_a_store() -> None:
    total = np.zeros(EXACT.shape)
    for start in range(0, 105, 32):
        total = decode(FORMATS["fp16"], encode(FORMATS["fp16"], total + A[:, start : start + 32] @ B[start : start + 32]))
    found = caused(total, bound=1e-4)
    assert found is not None and found.sentence == "accumulated in fp16, rounded after each 32 of k"


def test_a_scale_of_another_block_is_named() -> None:
    a, b = A[:, :96], B.T[:, :96].copy()
    scales = [np.exp2(RNG.integers(-2, 3, (len(side), 3)).astype(float)) for side in (a, b)]
    mathematics = scaled_product(a, b, *scales, block=32)
    moved = evaluate_reference(mathematics, {**mathematics.operands, "a_scale": np.roll(scales[0], 1, 1)})["c"]
    for real in (False, True):
        found = caused(moved, mathematics=mathematics, real=real)
        assert found is not None and found.sentence == "takes the scale of block j - 1 of a_scale for that of j"


def test_an_operation_of_a_reference_that_is_missing_is_named_as_written() -> None:
    x, w = RNG.normal(size=(6, 50)) * 0.1, RNG.normal(size=50)
    mathematics = Mathematics(function=rms_norm, operands={"x": x, "w": w}, outputs=("y", "r"), keyword_values={"eps": 1e-2})
    bare = x / np.sqrt((x * x).mean(axis=1, keepdims=True)) * w
    wide = x / np.sqrt((x * x).sum(axis=1, keepdims=True) / 64 + 1e-2) * w
    for came, sentence in ((bare, "without the addition of 0.01"), (wide, "mean(x * x) divided by 64, not 50 (the tile's width)")):
        found = caused(came, mathematics=mathematics, name="y", real=True)
        assert found is not None and sentence in found.sentence
    assert [operation_text(each) for each in operations(mathematics)][:2] == ["x * x", "mean(x * x)"]


def test_references_of_a_verdict_are_references_of_a_cause() -> None:
    names = [name for name in dir(tracing.Namespace(Trace())) if not name.startswith("_") and "." not in name]
    assert "erfc" in names and [name for name in names if not hasattr(evaluation.Namespace(), name)] == []


def test_nothing_is_said_of_thin_evidence_or_of_two_meanings() -> None:
    one = product_mathematics(A[:1], B[:, :1])
    assert caused(without(96, 105)[:1, :1], mathematics=one) is None, "one word is no evidence"
    equal = product_mathematics(np.ones((9, 33)), np.ones((33, 9)))
    assert caused(np.full((9, 9), 32.0), mathematics=equal, bound=0.0) is None, "any element may be the one that is missing"
    noise = EXACT + RNG.normal(size=EXACT.shape)
    assert caused(noise) is None and caused(noise, real=True) is None


def test_a_mathematics_explains_only_what_it_would_pass_for() -> None:
    """It may be as far off as a right result, and no further: here in the part that came as zeros, of which all is known."""
    came = in_tile(np.zeros((70, 8)), slice(None), slice(32, None))
    for factor, told in ((1.0, True), (1.0 + 1e-5, True), (2.0, False)):
        other = B.copy()
        other[:, 32:] *= factor
        found = caused(came, mathematics=product_mathematics(A, other), due=EXACT)
        assert (found is not None and ZEROS in found.sentence) == told


def test_two_predictions_are_one_where_they_are_stored_as_one() -> None:
    """A unit in the last place of the output tells two hypotheses apart, and less does not."""
    ones, all_ = np.ones(4), np.ones(4, bool)
    evidence = Evidence(name="c", format="fp16", exact=ones, observed_values=ones, words=ones, differs=all_,
    decided_elements=all_, written_elements=all_,
                        magnitude=ones, noise=0.0, sharp=False)  # fmt: skip
    for step, alike in ((2.0**-13, True), (2.0**-10, False)):
        made = (("a", ones), ("b", ones * (1.0 + step)))
        found = choose_cause([CauseFinding(kind, kind, Fit(99.0, "", all_), each) for kind, each in made], evidence)
        assert (found.sentence if found is not None else "") == ("a, or b" if alike else "")


def stored(exact: np.ndarray, came: np.ndarray, name: str) -> Evidence:
    """Evidence of words of the format `name` alone, each wrong, none off before it was stored."""
    words, whole = decode(FORMATS[name], encode(FORMATS[name], came)), np.ones(exact.shape, bool)
    return Evidence(name="c", format=name, exact=exact, observed_values=words, words=words, differs=whole, decided_elements=whole,
    written_elements=whole,
                    magnitude=np.abs(exact), noise=0.0, sharp=False)  # fmt: skip


def test_a_factor_is_told_where_the_store_rounds_by_more_than_a_little() -> None:
    """e4m3 stores 3.135 to 3.195 as 3.25: 1.7 to 3.7 % off, which is not a factor of its own."""
    exact = np.linspace(1.045, 1.065, 41)
    evidence = stored(exact, 3 * exact, "e4m3")
    assert [said for _, said, made in relocations(evidence) if evidence.fit(made)] == ["equals the result times 3"]


def test_a_word_is_as_predicted_within_half_a_unit_and_no_further() -> None:
    """Nor is a large number near a larger prediction: that one is stored as the largest, or as infinity."""
    largest = FORMATS["fp16"].largest
    for word, prediction, near in ((1.0, 1 + 2.0**-11, True), (1.0, 1 + 1.0005 * 2.0**-11, False), (largest, 2 * largest, True),
                                   (0.995 * largest, 2 * largest, False), (largest, largest + 16, True)):  # fmt: skip
        one = np.array([prediction])
        assert stored(one, np.array([word]), "fp16").close_elements(one).all() == near, (word, prediction)


def test_one_element_of_a_sharp_result_is_enough() -> None:
    one = product_mathematics(A[:1], B[:, :1])
    found = caused(without(31, 32)[:1, :1], mathematics=one, real=True)
    assert found is not None and "without k = 31" in found.sentence


def test_programs_that_never_wrote_are_named_by_their_tiles() -> None:
    poison = 0x7B7B
    value = decode(FORMATS["fp16"], np.array([poison], np.uint16))[0]
    found = caused(in_tile(np.full((6, 32), value), slice(64, 70), slice(0, 32)), poison=poison)
    assert found is not None and found.sentence == "program (2, 0) never wrote its tile"


def test_an_advice_on_the_operand_is_the_probable_cause_of_a_race() -> None:
    cut = "kernel.py:7: a descriptor's strides must be multiples of 16 bytes: what is over is dropped"
    assert probable_cause(Outcome.RACE, "kernel.py:31", {}, [cut]) == cut
    assert probable_cause(Outcome.TIMEOUT, "kernel.py:31", {}, [cut]) == ""
    equal = "kernel.py:31: writes the words that another write puts there, and nothing orders the two: either may stay"
    assert probable_cause(Outcome.RACE, "kernel.py:31", {}, [equal]) == equal
    assert probable_cause(Outcome.RACE, "kernel.py:40", {}, [equal]) == ""
