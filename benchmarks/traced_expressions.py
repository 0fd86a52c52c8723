"""Random expressions: do drawn fp32 evaluations lie in the traced intervals, and the mathematics within the running error?

`python -m benchmarks.traced_expressions --cases 3000` draws expressions of depth 2 to 5 over operands of every regime, each
evaluated in fp32 four times in drawn ways, and once in mpmath. Exit status 1 where a word lies outside, or a value further away
than its error. A word outside is a right kernel that would fail.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from bitverdict.reference.tracing import TracedOutput, trace
from bitverdict.reference.tracing.arrays import Traced
from tests.reference_checks.other_namespaces import PRECISION, Exact, Fp32, Number
from tests.reference_checks.test_tracing_bounds import REGIMES, outside

SHAPE = (3, 5)
SUMS = ("sum", "mean")
ONE = ("exp", "tanh", "sin", "abs", "sqrt", "log")
CHOICES = ("+", "-", "*", "/", "+", "*", "-", "maximum", "where", "negative", *SUMS, *ONE)
Evaluate = Callable[[Any, Any, Any, Any, Callable[[Any], Any]], Any]


def expression(rng: random.Random, depth: int) -> str:
    """Python text over xp, x, y, z, and `array` of what may be a number."""
    if depth == 0 or rng.random() < 0.12:
        return rng.choice(["x", "y", "z", "x", "y", "z", "0.1", "3.0", "1.5"])
    what = rng.choice(CHOICES)
    one, other = f"array({expression(rng, depth - 1)})", f"array({expression(rng, depth - 1)})"
    if what in "+-*/":
        return f"({one} {what} {other})"
    if what in SUMS:
        return f"xp.{what}({one}, axis=1, keepdims=True)"
    if what in ("sqrt", "log"):
        return f"xp.{what}(xp.abs({one}))"
    if what == "negative":
        return f"(-{one})"
    return {"maximum": f"xp.maximum({one}, {other})", "where": f"xp.where(x > y, {one}, {other})"}.get(what, f"xp.{what}({one})")


def evaluation(text: str) -> Evaluate:
    """The function that `text` is."""
    return eval(f"lambda xp, x, y, z, array: array({text})")


def traced(evaluate: Evaluate, operands: list[np.ndarray]) -> TracedOutput:
    def reference(xp: Any, x: Any, y: Any, z: Any) -> Any:
        return evaluate(xp, x, y, z, lambda each: each if isinstance(each, Traced) else xp.full(SHAPE, each))

    (output,) = trace(reference, [("fp32", each.view(np.uint32)) for each in operands])
    return output


def in_fp32(evaluate: Evaluate, operands: list[np.ndarray], seed: int) -> np.ndarray:
    xp = Fp32(seed)

    def array(each: Any) -> Number:
        return each if isinstance(each, Number) else Number(xp, np.full(SHAPE, np.float32(each)))

    with np.errstate(all="ignore"):
        return evaluate(xp, *(Number(xp, each) for each in operands), array).value


def in_mpmath(evaluate: Evaluate, operands: list[np.ndarray]) -> np.ndarray:
    def array(each: Any) -> np.ndarray:
        return each if isinstance(each, np.ndarray) else Exact.array(np.full(SHAPE, each))

    return evaluate(Exact(), *(Exact.array(each.astype(np.float64)) for each in operands), array)


def wrong_mathematics(evaluate: Evaluate, operands: list[np.ndarray], output: TracedOutput) -> bool:
    """Whether a value that is known lies further from mpmath's than its error."""
    try:
        with mpmath.workprec(PRECISION):
            exact = np.broadcast_to(in_mpmath(evaluate, operands), output.shape)
            known = ~output.unknown & np.isfinite(output.value)
            off = np.abs(Exact.array(output.value[known]) - exact[known])
            return bool((off > output.error[known]).any())
    except (ZeroDivisionError, OverflowError, ValueError, MemoryError):  # mpmath has no infinities of its own there
        return False


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cases", type=int, default=1000)
    arguments.add_argument("--first", type=int, default=0, help="the seed of the first case")
    given = arguments.parse_args()
    wrong, open_, unknown, elements = 0, 0, 0, 0
    for case in range(given.first, given.first + given.cases):
        drawn, rng = random.Random(case), np.random.default_rng(case)
        text, regime = expression(drawn, drawn.randint(2, 5)), drawn.choice([*REGIMES, "normal"])
        operands = [REGIMES[regime](rng, SHAPE).astype(np.float32) for _ in range(3)]
        evaluate = evaluation(text)
        output = traced(evaluate, operands)
        open_, unknown = open_ + int(output.interval("fp32")[3].sum()), unknown + int(output.unknown.sum())
        elements += output.value.size
        for seed in range(4):
            found = np.ascontiguousarray(np.broadcast_to(in_fp32(evaluate, operands, 10 * case + seed), output.shape))
            if any(outside(output, found, format).any() for format in ("fp32", "fp16", "bf16")):
                print(f"case {case} ({regime}), words outside: {text}")
                wrong += 1
                break
        if regime in ("normal", "integers", "wide", "large") and wrong_mathematics(evaluate, operands, output):
            print(f"case {case} ({regime}), value further than its error: {text}")
            wrong += 1
    print(f"{given.cases} expressions, {wrong} wrong, {open_ / elements:.1%} of elements open, {unknown / elements:.1%} unknown")
    return int(wrong > 0)


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        sys.exit(main())
