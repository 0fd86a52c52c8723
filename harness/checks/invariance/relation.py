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
from bitverdict.harness.checks.invariance.invariance_finding import End, InvarianceFinding
from bitverdict.harness.judge.diagnose import values
from bitverdict.harness.model.contract import ExpectedOutput, UndecidedCase
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
    difference: str
    maps: Mapping[str, Map]
    same_call: bool = False
    same_operands: bool = False
    is_promised: bool = False

    def not_applicable_finding(self, reason: str) -> InvarianceFinding:
        """The finding where there is nothing to compare."""
        return _relation_finding(self, End.NOT_APPLICABLE, reason=reason)


def identity_map(array: np.ndarray) -> np.ndarray:
    """The map of two outputs that must be equal."""
    return array


def compare_calls(relation: Relation, caller: Caller, first_call: Call, other_call: Call) -> InvarianceFinding:
    """What `other` shows against `first`, which ended in a result."""
    if (ended := _of_the_end(relation, other_call)) is not None:
        return ended
    compared_count = differing_count = 0
    broken: tuple[str, np.ndarray] | None = None
    for name, output_map in relation.maps.items():
        words, due = other_call.outputs()[name], output_map(first_call.outputs()[name])
        if words.shape != due.shape:
            return relation.not_applicable_finding(f"{name} has the shape {words.shape}, and {due.shape} in the first call")
        differs = (words != due) & ~(other_call.unwritten(name) & output_map(first_call.unwritten(name)))
        if differs.any():
            differs &= ~(output_map(left_open(caller, first_call, name)) | left_open(caller, other_call, name))
        compared_count, differing_count = compared_count + words.size, differing_count + int(differs.sum())
        if differs.any() and broken is None:
            broken = name, differs
    if broken is None:
        return _relation_finding(relation, End.SAME_WORDS, compared=compared_count)
    if not relation.same_call and not relation.same_operands and (reason := not_implied(relation, caller, first_call, other_call)):
        return _relation_finding(relation, End.NOT_APPLICABLE, reason=reason)
    return _broken(relation, first_call, other_call, *broken, compared_count, differing_count)


def _of_the_end(relation: Relation, other: Call) -> InvarianceFinding | None:
    """The finding where `other` came to no result; None where it did."""
    launch_result = other.launch_result
    if launch_result.outcome is None:
        missing = [name for name in relation.maps if name not in launch_result.outputs]
        return _relation_finding(relation, End.NOT_DECIDED, reason=f"{missing[0]} was not returned") if missing else None
    said = f"{launch_result.outcome}: {launch_result.message}".partition("\n")[0] + (
        f" ({launch_result.location})" if launch_result.location else ""
    )
    if launch_result.outcome in REFUSALS and not relation.same_call:
        return _relation_finding(relation, End.NOT_APPLICABLE, reason=said)
    return _relation_finding(relation, End.NOT_DECIDED if launch_result.outcome in UNABLE else End.FAULT, reason=said)


def left_open(caller: Caller, call: Call, name: str) -> np.ndarray:
    """Where the contract leaves an output open, because two rows are scattered to one place: of its shape."""
    nothing = np.zeros(call.outputs()[name].shape, bool)
    if not caller.contract.either_row:
        return nothing
    expected = caller.contract.expected(call.case, caller.target, call.operands, call.launch_result.launch_record)
    found = next((each.inconclusive for each in expected if each.name == name), None)
    return nothing if found is None else found


def not_implied(relation: Relation, caller: Caller, first_call: Call, other_call: Call) -> str:
    """Why the mathematics does not say that the relation holds on these operands; empty where it does."""
    try:
        first_outputs, two = (
            {
                item.name: item
                for item in caller.contract.expected(call.case, caller.target, call.operands, call.launch_result.launch_record)
            }
            for call in (first_call, other_call)
        )
    except UndecidedCase as why:
        return f"{NOT_IMPLIED}the mathematics is not known: {why}"
    unrounded_outputs: list[dict[str, np.ndarray] | None] = [None, None]
    for name, output_map in relation.maps.items():
        if name not in first_outputs or name not in two:
            return f"nothing is expected of {name}"
        quantity, agrees = "mathematics", _agree(first_outputs[name], two[name], output_map)
        if not agrees.all() and first_outputs[name].exact is None and first_outputs[name].words is not None:
            unrounded_outputs = (
                unrounded_outputs
                if unrounded_outputs[0] is not None
                else [evaluate_call(caller, call) for call in (first_call, other_call)]
            )
            left, right = (item.get(name) if item is not None else None for item in unrounded_outputs)
            if left is None or right is None:
                quantity = "expected word"
            else:
                agrees = _near_values(output_map(left), np.abs(output_map(left)) * CLOSE, right, np.abs(right) * CLOSE)
        if not agrees.all():
            at = tuple(np.argwhere(~agrees)[0].tolist())
            return f"{NOT_IMPLIED}the {quantity} of {name} at {list(at)} is another"
    return ""


def evaluate_call(caller: Caller, call: Call) -> dict[str, np.ndarray] | None:
    """The outputs of a call without rounding, float64, by the mathematics that the contract offers; None where it offers none."""
    found = caller.contract.mathematics(call.case, call.operands)
    if found is None:
        return None
    with np.errstate(all="ignore"):
        made = found.function(np, *found.operands.values(), **found.keyword_values)
    return dict(zip(found.outputs, made if isinstance(made, tuple) else (made,), strict=True))


def _agree(first_output: ExpectedOutput, two: ExpectedOutput, output_map: Map) -> np.ndarray:
    """Where what is expected of two calls is one number, as far as is known of it; of the shape of the second one's output."""
    if (
        first_output.exact is not None
        and two.exact is not None
        and first_output.exact_error is not None
        and two.exact_error is not None
    ):
        return _near_values(output_map(first_output.exact), output_map(first_output.exact_error), two.exact, two.exact_error)
    if first_output.words is not None and two.words is not None and first_output.bounded is None and first_output.others is None:
        due = output_map(first_output.words.view(f"u{first_output.words.itemsize}"))
        return due == two.words.view(due.dtype)
    if first_output.value is not None and two.value is not None:
        return _near_values(
            output_map(first_output.value), np.abs(output_map(first_output.value)) * CLOSE, two.value, np.abs(two.value) * CLOSE
        )
    return np.zeros(two.shape, bool)


def _near_values(one: np.ndarray, error: np.ndarray, two: np.ndarray, other_error: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return (one == two) | (np.isnan(one) & np.isnan(two)) | (np.abs(one - two) <= error + other_error)


def _broken(
    relation: Relation,
    first_call: Call,
    other_call: Call,
    name: str,
    differs: np.ndarray,
    compared_count: int,
    differing_count: int,
) -> InvarianceFinding:
    index = tuple(np.argwhere(differs)[0].tolist())
    words, due_words = other_call.outputs()[name], relation.maps[name](first_call.outputs()[name])
    numbers = np.arange(first_call.outputs()[name].size).reshape(first_call.outputs()[name].shape)
    place = np.unravel_index(int(relation.maps[name](numbers)[index]), numbers.shape)
    return _relation_finding(
        relation,
        End.DIFFERS,
        cause=cause(first_call.launch_result, other_call.launch_result, same_call=relation.same_call),
        output=name,
        at=tuple(int(each) for each in place),
        got=word_told(other_call, name, words[index]),
        other=word_told(first_call, name, due_words[index]),
        compared=compared_count,
        differing=differing_count,
    )


def word_told(call: Call, name: str, word: Any) -> str:
    """A word of the output `name`: ``0x3c00 (1.0)``."""
    hexadecimal, format_name = f"{int(word):#0{2 + 2 * word.dtype.itemsize}x}", call.format(name)
    return f"{hexadecimal} ({values(format_name, np.array([word]))[0]:.9g})" if format_name else hexadecimal


def _relation_finding(relation: Relation, end: End, **rest: Any) -> InvarianceFinding:
    return InvarianceFinding(check=relation.check, end=end, changed=relation.difference, promised=relation.is_promised, **rest)
