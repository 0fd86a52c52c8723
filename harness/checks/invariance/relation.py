"""Two calls and what the outputs of one must be of those of the other.

The words are compared first. Where they differ, the mathematics of both cases is asked: only a relation that it implies on these
very operands can be broken by the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitverdict.harness.checks.invariance.calls import Call, Caller
from bitverdict.harness.checks.invariance.cause import cause
from bitverdict.harness.checks.invariance.finding import End, Finding
from bitverdict.harness.judge.diagnose import values
from bitverdict.harness.model.contract import ExpectedOutput, Undecided
from bitverdict.harness.model.verdict import Outcome

Map = Callable[[np.ndarray], np.ndarray]
"""An array of the shape of an output of the first call -> the elements that the other call's output must have, in its shape."""
REFUSALS = (Outcome.REFUSED, Outcome.OUT_OF_RESOURCES)
NOT_IMPLIED = "not implied: "
"""How a reason begins that the mathematics gives."""
CLOSE = 2.0**-30
"""By so much of themselves may two float64 evaluations of one number differ, whose sums are made in other orders."""
UNABLE = (Outcome.NOT_MODELLED, Outcome.OUT_OF_MEMORY, Outcome.COMPILER_FAULT, Outcome.ERROR, Outcome.NOT_RUN,
          Outcome.COMPUTED_ON_HOST)  # fmt: skip


@dataclass(frozen=True)
class Relation:
    """`maps`: of each output that is compared by its name. `same_call`: both calls are the same case. `same_operands`: they are of
    one mathematics. `promised`: other words are a failure of the kernel."""

    check: str
    changed: str
    maps: Mapping[str, Map]
    same_call: bool = False
    same_operands: bool = False
    promised: bool = False

    def not_asked(self, reason: str) -> Finding:
        """The finding where there is nothing to compare."""
        return _finding(self, End.NOT_APPLICABLE, reason=reason)


def same(array: np.ndarray) -> np.ndarray:
    """The map of two outputs that must be equal."""
    return array


def held(relation: Relation, caller: Caller, first: Call, other: Call) -> Finding:
    """What `other` shows against `first`, which ended in a result."""
    if (ended := _of_the_end(relation, other)) is not None:
        return ended
    compared = differing = 0
    broken: tuple[str, np.ndarray] | None = None
    for name, mapped in relation.maps.items():
        got, due = other.outputs()[name], mapped(first.outputs()[name])
        if got.shape != due.shape:
            return relation.not_asked(f"{name} has the shape {got.shape}, and {due.shape} in the first call")
        differs = (got != due) & ~(other.unwritten(name) & mapped(first.unwritten(name)))
        if differs.any():
            differs &= ~(mapped(left_open(caller, first, name)) | left_open(caller, other, name))
        compared, differing = compared + got.size, differing + int(differs.sum())
        if differs.any() and broken is None:
            broken = name, differs
    if broken is None:
        return _finding(relation, End.SAME, compared=compared)
    if not relation.same_call and not relation.same_operands and (reason := not_implied(relation, caller, first, other)):
        return _finding(relation, End.NOT_APPLICABLE, reason=reason)
    return _broken(relation, first, other, *broken, compared, differing)


def _of_the_end(relation: Relation, other: Call) -> Finding | None:
    """The finding where `other` came to no result; None where it did."""
    seen = other.launch_result
    if seen.outcome is None:
        missing = [name for name in relation.maps if name not in seen.outputs]
        return _finding(relation, End.NOT_DECIDED, reason=f"{missing[0]} was not returned") if missing else None
    said = f"{seen.outcome}: {seen.message}".partition("\n")[0] + (f" ({seen.location})" if seen.location else "")
    if seen.outcome in REFUSALS and not relation.same_call:
        return _finding(relation, End.NOT_APPLICABLE, reason=said)
    return _finding(relation, End.NOT_DECIDED if seen.outcome in UNABLE else End.FAULT, reason=said)


def left_open(caller: Caller, call: Call, name: str) -> np.ndarray:
    """Where the contract leaves an output open, because two rows are scattered to one place: of its shape."""
    nothing = np.zeros(call.outputs()[name].shape, bool)
    if not caller.contract.either_row:
        return nothing
    expected = caller.contract.expected(call.case, caller.target, call.operands, call.launch_result.recorded)
    found = next((each.inconclusive for each in expected if each.name == name), None)
    return nothing if found is None else found


def not_implied(relation: Relation, caller: Caller, first: Call, other: Call) -> str:
    """Why the mathematics does not say that the relation holds on these operands; empty where it does."""
    try:
        one, two = (
            {
                each.name: each
                for each in caller.contract.expected(call.case, caller.target, call.operands, call.launch_result.recorded)
            }
            for call in (first, other)
        )
    except Undecided as why:
        return f"{NOT_IMPLIED}the mathematics is not known: {why}"
    plain: list[dict[str, np.ndarray] | None] = [None, None]
    for name, mapped in relation.maps.items():
        if name not in one or name not in two:
            return f"nothing is expected of {name}"
        what, agrees = "mathematics", _agree(one[name], two[name], mapped)
        if not agrees.all() and one[name].exact is None and one[name].words is not None:
            plain = plain if plain[0] is not None else [evaluated(caller, call) for call in (first, other)]
            left, right = (each.get(name) if each is not None else None for each in plain)
            if left is None or right is None:
                what = "expected word"
            else:
                agrees = _near(mapped(left), np.abs(mapped(left)) * CLOSE, right, np.abs(right) * CLOSE)
        if not agrees.all():
            at = tuple(np.argwhere(~agrees)[0].tolist())
            return f"{NOT_IMPLIED}the {what} of {name} at {list(at)} is another"
    return ""


def evaluated(caller: Caller, call: Call) -> dict[str, np.ndarray] | None:
    """The outputs of a call without rounding, float64, by the mathematics that the contract offers; None where it offers none."""
    found = caller.contract.mathematics(call.case, call.operands)
    if found is None:
        return None
    with np.errstate(all="ignore"):
        made = found.function(np, *found.operands.values(), **found.named)
    return dict(zip(found.outputs, made if isinstance(made, tuple) else (made,), strict=True))


def _agree(one: ExpectedOutput, two: ExpectedOutput, mapped: Map) -> np.ndarray:
    """Where what is expected of two calls is one number, as far as is known of it; of the shape of the second one's output."""
    if one.exact is not None and two.exact is not None and one.exact_error is not None and two.exact_error is not None:
        return _near(mapped(one.exact), mapped(one.exact_error), two.exact, two.exact_error)
    if one.words is not None and two.words is not None and one.bounded is None and one.others is None:
        due = mapped(one.words.view(f"u{one.words.itemsize}"))
        return due == two.words.view(due.dtype)
    if one.value is not None and two.value is not None:
        return _near(mapped(one.value), np.abs(mapped(one.value)) * CLOSE, two.value, np.abs(two.value) * CLOSE)
    return np.zeros(two.shape, bool)


def _near(one: np.ndarray, error: np.ndarray, two: np.ndarray, other_error: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return (one == two) | (np.isnan(one) & np.isnan(two)) | (np.abs(one - two) <= error + other_error)


def _broken(relation: Relation, first: Call, other: Call, name: str, differs: np.ndarray, compared: int, differing: int) -> Finding:
    at = tuple(np.argwhere(differs)[0].tolist())
    got, due = other.outputs()[name], relation.maps[name](first.outputs()[name])
    numbers = np.arange(first.outputs()[name].size).reshape(first.outputs()[name].shape)
    place = np.unravel_index(int(relation.maps[name](numbers)[at]), numbers.shape)
    return _finding(
        relation,
        End.DIFFERS,
        cause=cause(first.launch_result, other.launch_result, same_call=relation.same_call),
        output=name,
        at=tuple(int(each) for each in place),
        got=word_told(other, name, got[at]),
        other=word_told(first, name, due[at]),
        compared=compared,
        differing=differing,
    )


def word_told(call: Call, name: str, word: Any) -> str:
    """A word of the output `name`: ``0x3c00 (1.0)``."""
    hexadecimal, format_name = f"{int(word):#0{2 + 2 * word.dtype.itemsize}x}", call.format(name)
    return f"{hexadecimal} ({values(format_name, np.array([word]))[0]:.9g})" if format_name else hexadecimal


def _finding(relation: Relation, end: End, **rest: Any) -> Finding:
    return Finding(check=relation.check, end=end, changed=relation.changed, promised=relation.promised, **rest)
