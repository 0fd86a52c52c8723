"""The table of rules, and numbers beside arrays as the rules take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from bitverdict.harness.model.usage import UsageError

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace, Operand


class NoRule(UsageError):
    """An ATen operator, or a form of one, that has no rule: what holds it has no reference."""


RULES: dict[str, Callable] = {}


def rule(*names: str) -> Callable[[Callable], Callable]:
    """Enters a function into `RULES` as the rule of the ATen operators `names`, without namespace and overload."""

    def register(function: Callable) -> Callable:
        RULES.update({f"aten.{name}": function for name in names})
        return function

    return register


def arrays_of(xp: ArrayNamespace, given: Sequence[Operand]) -> list[Array]:
    """`given` as arrays: numbers take the dtype of the first array."""
    first = next((each for each in given if is_array(each)), None)
    return [each if is_array(each) else xp.asarray(each, dtype=dtype_of(xp, each, first)) for each in given]


def is_array(value: object) -> TypeGuard[Array]:
    """Whether `value` is an array of some namespace, not a number."""
    return hasattr(value, "shape")


def dtype_of(xp: ArrayNamespace, number: object, like: Array | None) -> Any:
    """The dtype that `number` takes beside the array `like`, as torch promotes; None for the default of `xp`."""
    floating = like is not None and xp.isdtype(like.dtype, "real floating")
    if isinstance(number, bool):
        return xp.bool
    return like.dtype if like is not None and (floating or isinstance(number, int)) else None
