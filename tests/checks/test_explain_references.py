"""Each hypothesis on a reference names its own bug, and is silent of data that another change gives."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitverdict.harness.checks.explain.cause import Cause, cause_of
from bitverdict.harness.checks.explain.evaluation import evaluate_reference
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import bugs
from bitverdict.harness.session.causes import Causes
from bitverdict.reference.formats import FORMATS, decode, encode

RNG = np.random.default_rng(16)
X, W = RNG.normal(size=(6, 50)), RNG.normal(size=50)
DY = RNG.normal(size=X.shape)
EPSILON = 1e-3


class Reals:
    """Real values of a launch."""

    def __init__(self, value: np.ndarray) -> None:
        self.value, self.error = value, np.full(value.shape, 1e-12)


def kept(values: np.ndarray, name: str) -> np.ndarray:
    return decode(FORMATS[name], encode(FORMATS[name], values))


def caused(
    function: Callable, operands: dict, came: Any, *, name: str = "fp32", lost: bool = False, poison: int | None = None
) -> Cause | None:
    """What is said of the first wrong output, where those of `function` were `came`: real values, or (`lost`) words of `name`."""
    outputs = tuple(came) if isinstance(came, dict) else ("y",)
    there = came if isinstance(came, dict) else {"y": came}
    mathematics = Mathematics(function=function, operands=operands, outputs=outputs)
    fmt, exact = FORMATS.get(name), evaluate_reference(mathematics)
    expected, words = [], {}
    for each in outputs:
        whole = there[each].dtype.kind in "iu"
        kind = str(there[each].dtype) if whole else name
        words[each] = there[each].view(f"u{there[each].itemsize}") if whole else encode(fmt, there[each]).view(f"u{fmt.width // 8}")
        right = exact[each].astype(there[each].dtype) if whole else None
        bound, error = np.abs(exact[each]) * 2.0**-22 + 1e-6, np.full(exact[each].shape, 1e-12)
        float_ = {"value": exact[each], "bound": bound, "exact": exact[each], "exact_error": error}
        known = {"words": right} if whole else float_
        expected.append(ExpectedOutput(name=each, format=kind, shape=exact[each].shape, **known))
    reals = {} if lost else {each: Reals(values) for each, values in there.items() if values.dtype.kind == "f"}
    wrong = next(place for place, each in enumerate(outputs) if not np.allclose(there[each], exact[each], rtol=1e-10, atol=0))
    whole = there[outputs[wrong]].dtype.kind in "iu"
    outcome = Outcome.WRONG_WORDS if whole else Outcome.LOST_PRECISION if lost else Outcome.WRONG_MATHEMATICS
    others = [each for place, each in enumerate(expected) if place != wrong]
    return cause_of(mathematics, expected[wrong], LaunchResult(outputs=words, real_values=reals), outcome, poison, others)


def rms_norm(xp: Any, x: Any, w: Any) -> Any:
    return x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + EPSILON) * w


def backward(xp: Any, x: Any, w: Any, dy: Any) -> Any:
    scaled = dy * w
    return scaled - x * xp.mean(scaled * x, axis=1, keepdims=True)


def exponents(xp: Any, x: Any) -> Any:
    return xp.exp(x - xp.max(x, axis=1, keepdims=True))


def grouped(xp: Any, x: Any, w: Any, expert: Any) -> Any:
    return xp.matmul(x[:, None, :], xp.take(w, expert, axis=0))[:, 0, :]


MEAN = (X * X).mean(axis=1, keepdims=True)
EXPERT, MATRICES = RNG.integers(0, 3, 6), RNG.normal(size=(3, 50, 7))
PLACE = np.argsort(np.argsort(EXPERT, kind="stable"))
GROUPED = {"x": X, "w": MATRICES, "expert": EXPERT}


def multiplied(x: np.ndarray, count: int = 50) -> np.ndarray:
    return np.einsum("mk,mkn->mn", x[:, :count], MATRICES[EXPERT][:, :count])


NORM = {"x": X, "w": W}
BACKWARD = NORM | {"dy": DY}
BUGS: dict[str, tuple[Callable, dict, np.ndarray, str]] = {
    "epsilon outside the root": (rms_norm, NORM, X / (np.sqrt(MEAN) + EPSILON) * W, "0.001 outside sqrt(mean(x * x) + 0.001)"),
    "epsilon outside its reciprocal": (
        rms_norm, NORM, X * (1 / np.sqrt(MEAN) + EPSILON) * W, "0.001 outside sqrt(mean(x * x) + 0.001)",
    ),
    "ones as a fill": (rms_norm, NORM, X / np.sqrt(MEAN + 14 / 50 + EPSILON) * W, "ones that fill x * x from 50 up to 64 in mean"),
    "one use without its factor": (
        backward, BACKWARD, DY * W - X * (DY * X).mean(axis=1, keepdims=True), "without the factor w in (dy * w) * x",
    ),
    "a difference turned": (
        exponents, {"x": X}, np.exp(X.max(axis=1, keepdims=True) - X), "with max(x) - x in the place of x - max(x)",
    ),
    "the tail of a product": (grouped, GROUPED, multiplied(X, 48), "without its tail from 48 on"),
    "rows not gathered": (grouped, GROUPED, multiplied(X[PLACE]), "the order that sorts expert"),
    "overwritten rows": (
        lambda xp, x: xp.sum(x, axis=0), {"x": X}, X[1::2].sum(axis=0), "sum(x) of the last of every 2 elements alone",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_changed_reference_is_named_and_noise_is_not(bug: str) -> None:
    function, operands, came, sentence = BUGS[bug]
    found = caused(function, operands, came)
    assert found is not None and sentence in found.sentence
    assert caused(function, operands, came + 1e-3 * RNG.normal(size=came.shape)) is None, ""


def test_an_operand_ignored_at_all_its_uses_is_no_single_operation() -> None:
    def twice(xp: Any, x: Any, w: Any) -> Any:
        return x * w - xp.mean(x * w, axis=1, keepdims=True)

    found = caused(twice, NORM, X - X.mean(axis=1, keepdims=True))
    assert found is not None and found.sentence == "equals the reference without the factor w wherever it is used"
    once = caused(twice, NORM, X * W - X.mean(axis=1, keepdims=True))
    assert once is not None and "wherever" not in once.sentence


def test_of_two_hypotheses_the_one_the_other_output_refutes_is_dropped() -> None:
    def largest(xp: Any, x: Any) -> Any:
        order = xp.argsort(x, axis=1, descending=True, stable=True)[:, :3]
        return x[:, 0], order

    x = np.where(np.arange(50) == 49, -9.0, X)  # the last is never among the largest
    order = np.argsort(-x, axis=1, kind="stable")[:, :3].astype(np.int32)
    found = caused(largest, {"x": x}, {"first": x[:, 0], "i": order + 1})
    assert found is not None and found.sentence == "equals the result plus 1"
    found = caused(largest, {"x": x}, {"first": np.roll(x, 1, 1)[:, 0], "i": order + 1})
    assert found is not None and found.sentence == "takes x at index - 1 of axis 1"


def test_words_of_a_reference_are_evaluated_with_their_changes() -> None:
    def quantized(xp: Any, x: Any) -> Any:
        exponent = (xp.bits(xp.max(xp.abs(xp.round_to(x, "fp32")), axis=1), "int32") >> 23) - 2
        codes = xp.bits(xp.round_to(x * xp.from_bits((254 - exponent) << 23, "fp32")[:, None], "e2m1", saturate=True), "uint8")
        return codes[:, ::2] | codes[:, 1::2] << 4, exponent

    def by_hand(x: np.ndarray, less: int = 2) -> dict[str, np.ndarray]:
        exponent = (np.abs(x).max(axis=1).astype(np.float32).view(np.int32) >> 23) - less
        scaled = x * np.ldexp(1.0, 127 - exponent)[:, None]
        codes = encode(FORMATS["e2m1"], np.clip(scaled, -6, 6)).astype(np.uint8)
        return {"codes": codes[:, ::2] | codes[:, 1::2] << 4, "e": exponent.astype(np.int32)}

    x = X.astype(np.float32).astype(np.float64) * np.exp2(np.arange(6))[:, None]
    exact = evaluate_reference(Mathematics(function=quantized, operands={"x": x}, outputs=("codes", "e")))
    assert all(np.array_equal(exact[name], values) for name, values in by_hand(x).items())
    found = caused(quantized, {"x": x}, by_hand(x, 1))
    assert found is not None and "- 1 in the place of - 2" in found.sentence
    found = caused(quantized, {"x": x}, by_hand(np.abs(x)))
    assert found is not None and found.sentence == "equals the result of |x|"
    shuffled = by_hand(x)
    shuffled["codes"] = RNG.permutation(shuffled["codes"].reshape(-1)).reshape(6, 25)
    assert caused(quantized, {"x": x}, shuffled) is None


def rope(xp: Any, a: Any, b: Any, c: Any, s: Any) -> Any:
    return xp.concat([a * c - b * s, b * c + a * s], axis=1)


A, B, C, S = (kept(RNG.normal(size=(9, 40)), "fp32") for _ in range(4))
SUMMED = kept(RNG.normal(size=(200, 60)), "fp16")


def in_steps(x: np.ndarray, step: int) -> np.ndarray:
    lanes = np.zeros((step, x.shape[1]))
    for start in range(0, len(x), step):
        lanes[: len(x[start : start + step])] = kept(lanes[: len(x[start : start + step])] + x[start : start + step], "fp16")
    return lanes.sum(axis=0)


LOST: dict[str, tuple[Callable, dict, np.ndarray, str]] = {
    "one use of an operand": (
        rope, {"a": A, "b": B, "c": C, "s": S}, np.concatenate([A * C - B * kept(S, "bf16"), B * C + A * S], axis=1),
        "s rounded to bf16 in b * s",
    ),
    "both products": (
        rope, {"a": A, "b": B, "c": C, "s": S},
        np.concatenate([A * C - B * S, kept(kept(B * C, "bf16") + kept(A * S, "bf16"), "bf16")], axis=1),
        "b * c, a * s and the result of (b * c) + (a * s) rounded to bf16",
    ),
    "a reciprocal": (
        lambda xp, a, b: a / (1 + xp.exp(b)) * a, {"a": A, "b": B}, A * kept(1 / (1 + np.exp(B)), "bf16") * A,
        "1 / 1 + exp(b) rounded to bf16",
    ),
    "a sum in tiles": (
        lambda xp, x: xp.sum(x, axis=0), {"x": SUMMED}, in_steps(SUMMED, 8), "sum(x) rounded to fp16 after each 8 elements",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", LOST)
def test_a_rounding_of_one_use_is_named_and_another_size_of_it_is_not(bug: str) -> None:
    function, operands, came, sentence = LOST[bug]
    found = caused(function, operands, came, lost=True)
    assert found is not None and sentence in found.sentence
    exact = evaluate_reference(Mathematics(function=function, operands=operands, outputs=("y",)))["y"]
    assert caused(function, operands, exact + 1.3 * (came - exact), lost=True) is None


def test_columns_never_written_are_told_beside_what_the_others_hold() -> None:
    def softmax(xp: Any, x: Any) -> Any:
        p = xp.exp(x - xp.max(x, axis=1, keepdims=True))
        return p / xp.sum(p, axis=1, keepdims=True)

    poison = 0x7B7B7B7B
    value = float(np.array([poison], np.uint32).view(np.float32)[0])
    powers = np.exp(X - X.max(axis=1, keepdims=True))
    came = powers / powers[:, :32].sum(axis=1, keepdims=True)
    came[:, 32:] = value
    found = caused(softmax, {"x": X}, came, poison=poison)
    assert found is not None and found.sentence.startswith("columns 32 to 49 never written; elsewhere ")
    assert "sum(exp(x - max(x))) without its tail from 32 on" in found.sentence
    came[0, 40] = 0.5  # then no column is unwritten from end to end
    found = caused(softmax, {"x": X}, came, poison=poison)
    assert found is None or "never written" not in found.sentence


def test_a_result_of_zeros_is_told_by_what_is_left_out_alone() -> None:
    def centred(xp: Any, x: Any) -> Any:
        return xp.sum(x - xp.max(x, axis=1, keepdims=True), axis=1)

    found = caused(centred, {"x": X}, np.zeros(6))
    assert found is not None and "of no element" in found.sentence and "axis 1 = 0 for all" not in found.sentence


def test_infinities_alone_are_no_evidence_of_a_rounding_that_overflows() -> None:
    x = np.where(np.arange(300).reshape(6, 50) % 7 == 0, 1e5, 1.0)
    came = np.where(x > 65520, np.inf, x)  # of ones nothing is rounded, and many changes overflow
    assert caused(lambda xp, x: xp.abs(x), {"x": x}, came, lost=True) is None


def test_the_kind_that_holds_in_each_case_is_the_cause_of_all() -> None:
    def said(kinds: list[str], size: int) -> Verdict:
        details = {"cause": " or ".join(kinds), "cause_kind": kinds[0], "cause_kinds": kinds, "of": size}
        return Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS, details=details)

    causes = Causes()
    for kinds, size in ((["added"], 4), (["moved", "added"], 9), (["moved", "added"], 9)):
        causes.add(said(kinds, size))
    assert causes.details["cause"] == "added"
    causes.add(said(["moved"], 1))
    causes.add(said(["twice"], 1))
    assert causes.details == {}


def test_a_cause_that_speaks_of_a_wider_case_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bugs, "failure_report", lambda *told, **named: told[4])
    for words, note in (
        ("divided by 4", "2 cases show it"),
        ("divided by 512", "2 cases show it; the cause speaks of one with 900 elements"),
    ):
        cases = [
            Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS, details={"cause": each, "cause_kind": "mean", "of": of})
            for each, of in (("divided by 4", 3), (words, 900))
        ]
        bug: Any = bugs.Bug(
            SimpleNamespace(contract=SimpleNamespace(call_text=lambda case: ""), target=SimpleNamespace(), name=""), None, cases[0]
        )
        bug.source.target.name, bug.source.target.emulated, bug.case_count, bug.not_stored = "", False, 2, "no room"
        for verdict in cases:
            bug.add_verdict(verdict)
        bug.explain()
        assert bug.verdict.details["cause"] == words and bug.report() == [note]


@pytest.mark.parametrize(("sizes", "number"), [((50, 40, 30, 50), 0.003), ((50, 50, 50, 20), 0.0)])
def test_a_constant_is_the_cause_if_it_is_the_same_in_all_cases(sizes: tuple[int, ...], number: float) -> None:
    """Of a kernel that adds 0.003, and of one that adds what differs from size to size."""
    causes = Causes()
    for columns in sizes:
        x, added = X[:, :columns], number or 0.15 / columns
        came = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + added)
        found = caused(lambda xp, x: x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-3), {"x": x}, came)
        assert found is not None and "in the place of 0.001 in" in found.sentence
        details = {"cause": found.sentence, "cause_kind": found.kind, "cause_kinds": list(found.kinds), "of": came.size}
        causes.add(Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS, details=details))
    assert causes.details.get("cause", "").startswith("equals the reference with 0.003 in the place of 0.001") == bool(number)
    assert bool(causes.details) == bool(number)
