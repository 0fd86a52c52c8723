"""What a user's launcher says of itself, by two attributes of the function; nothing else is asked of it.

    matmul.claims = ("strides", "bf16", "fp32")     # it takes these too: it is given them, and held to them
    matmul.claims = ("far",)                        # and, of any kernel, rows so far apart that offsets pass 2^31 elements
    matmul.requires = lambda m, n, k: k % 32 == 0   # it takes no others: it is given none

`claims` names words of the kernel's contract. `requires` is a predicate over fields of the kernel's `Problem` (sizes, `dtype`),
each taken by its name: what the launcher asserts, said where it can be known before a launch.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from bitverdict.harness.model.addresses import load
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.usage import UsageError, did_you_mean

_requires_counts: dict[str, Counter[str]] = {}  # by launcher, since `narrowed_by` was last asked
UNITS = tuple(1 << power for power in range(9))  # 1..256: what sizes are made multiples of where they are refused as they are
TRITON_KERNELS = ("JITFunction", "GluonJITFunction", "Autotuner", "Heuristics")  # names of Triton's own types of kernels


def check_launcher(contract: Contract, address: str) -> None:
    """ValueError where what lies at `address` cannot be called with the operands that `parameters` names."""
    launcher = load(address)
    kind, must = getattr(launcher, "kind", type(launcher).__name__), f"must be a function {contract.parameters}"
    if kind in TRITON_KERNELS:
        raise UsageError(f"--launcher {address}: is a Triton kernel, {must} that launches it")
    if not getattr(launcher, "is_callable", callable(launcher)):
        raise UsageError(f"--launcher {address}: is a {kind}, {must}")
    if not contract.parameters:  # whoever calls it knows
        return
    expected_outcome = ast.parse(f"def launcher{contract.parameters}: ...").body[0].args  # type: ignore[attr-defined]
    names = [argument.arg for argument in expected_outcome.args]
    required = names[: len(names) - len(expected_outcome.defaults)]
    try:
        signature = inspect.signature(launcher)
    except ValueError:  # of a built-in function nobody knows it
        return
    optional = [*names[len(required) :], *(argument.arg for argument in expected_outcome.kwonlyargs)]
    try:
        signature.bind(*required, **{name: None for name in optional if name in signature.parameters})
    except TypeError as error:
        raise UsageError(f"--launcher {address}: is {getattr(launcher, '__name__', kind)}{signature}, {must}: {error}") from None


def read_claims(launcher: str, known_claims: Collection[str], default: Sequence[str] = ()) -> tuple[str, ...]:
    """What the launcher at address `launcher` claims, `default` where it says nothing. ValueError for a claim not of `known`."""
    stated_claims = getattr(load(launcher), "claims", None)
    if stated_claims is None:
        return tuple(default)
    if not isinstance(stated_claims, str | list | tuple | set | frozenset):
        raise UsageError(
            f"--launcher {launcher}: claims is {stated_claims!r}; it must be words of {', '.join(known_claims)}; fix the attribute"
        )
    claims = (stated_claims,) if isinstance(stated_claims, str) else tuple(stated_claims)
    if unknown := [claim for claim in claims if claim not in known_claims]:
        stated_claims, words = f"{unknown[0]!r}{did_you_mean(unknown[0], known_claims)}", ", ".join(known_claims)
        raise UsageError(f"--launcher {launcher}: claims {stated_claims}; it must be of {words}; fix the attribute")
    return claims


FAR_CLAIM_WORD = "far"
"""The claim of a launcher whose offsets may pass 2^31 elements; without it none is asked of it."""
FAR_CLAIM = {FAR_CLAIM_WORD: "rows so far apart that offsets pass 2^31 elements"}
FAR_PAD = 1 << 20  # elements after each row, from which on a case is far


def is_far(problem: object) -> bool:
    """Whether a field of `problem`, or of a dataclass inside it, puts rows of an operand so far apart that offsets may pass 2^31
    elements."""
    return max(_integers(problem), default=0) >= FAR_PAD


def _integers(record: object) -> Iterator[int]:
    for value in vars(record).values() if is_dataclass(record) else ():
        if is_dataclass(value):
            yield from _integers(value)
        elif type(value) is int:
            yield value


def unlimited_launcher(*operands: object) -> None:
    """A launcher that says nothing of itself, which nobody calls: what it is asked is a kernel's plain list."""


UNLIMITED_LAUNCHER = f"{__name__}:unlimited_launcher"


def claims_far(launcher: str) -> bool:
    """Whether the launcher at address `launcher` claims `FAR_CLAIM_WORD`, whatever else it claims."""
    said = getattr(load(launcher), "claims", None) or ()
    return FAR_CLAIM_WORD in ((said,) if isinstance(said, str) else said)


def nearest(launcher: str, fields: Mapping[str, object], sizes: Sequence[str] = ()) -> dict[str, Any] | None:
    """`fields` as the launcher's `requires` takes them: those named in `sizes` moved to near multiples of powers of two, as few of
    them and as little as meets it. None where nothing near does. ValueError for a predicate that cannot be asked."""
    requires = getattr(load(launcher), "requires", None)
    requested_fields, counts = dict(fields), _requires_counts.setdefault(launcher, Counter())
    counts["asked"] += 1
    if requires is None:
        return requested_fields
    names = _names(launcher, requires, requested_fields)
    moved_values = _move_to_units(
        launcher, requires, names, tuple(requested_fields[name] for name in names), tuple(name for name in sizes if name in names)
    )
    if moved_values is None:
        counts["left out"] += 1
        return None
    counts["moved"] += bool(moved_values)
    return requested_fields | moved_values


@functools.lru_cache(maxsize=1 << 14)
def _move_to_units(
    launcher: str, requires: Callable[..., object], names: tuple[str, ...], values: tuple[Any, ...], sizes: tuple[str, ...]
) -> dict[str, Any] | None:
    """What `nearest` moves of the fields `names`, which have `values`; None where nothing near is taken. The same fields are asked
    in many cases and several lists of them: a launcher that takes little is asked a thousand sizes for each."""
    for count in range(len(sizes) + 1):
        candidates = [
            candidate
            for chosen in itertools.combinations(sizes, count)
            for candidate in itertools.product(
                *(_nearby_sizes(value) if name in chosen else (value,) for name, value in zip(names, values, strict=True))
            )
        ]
        met_limits = [
            candidate
            for candidate, taken in zip(candidates, _check_requires(launcher, requires, names, candidates), strict=True)
            if taken
        ]
        if met_limits:
            least = min(
                met_limits, key=lambda each: sum(abs(each[names.index(name)] - values[names.index(name)]) for name in sizes)
            )
            return {name: value for name, value, before in zip(names, least, values, strict=True) if value != before}
    return None


def narrowed_by(launcher: str, prepare: Callable[[], object]) -> Counter[str]:
    """Of how many cases that `prepare` asks the launcher for it was "asked" whether it takes them, and how many of those its
    `requires` "moved" to other sizes or "left out"."""
    _requires_counts.pop(launcher, None)
    prepare()
    return _requires_counts.get(launcher, Counter())


def _nearby_sizes(size: int) -> list[int]:
    """Multiples of each unit just below and above `size`, and the units themselves."""
    return sorted({value for unit in UNITS for value in (size // unit * unit, -(-size // unit) * unit, unit) if value > 0})


def _names(launcher: str, requires: Callable[..., object], fields: Mapping[str, object]) -> tuple[str, ...]:
    """The fields that the predicate asks for."""
    try:
        names = tuple(inspect.signature(requires).parameters)
    except (TypeError, ValueError):  # no function, or a built-in one that does not tell
        raise UsageError(
            f"--launcher {launcher}: requires is {requires!r}; it must be a function of {', '.join(fields)}; fix the attribute"
        ) from None
    if unknown := [name for name in names if name not in fields]:
        known = ", ".join(fields)
        meant = did_you_mean(unknown[0], fields)
        raise UsageError(f"--launcher {launcher}: requires takes {unknown[0]!r}{meant}; it may take {known}; fix the attribute")
    return names


def _check_requires(
    launcher: str, requires: Callable[..., object], names: tuple[str, ...], cases: Sequence[tuple[object, ...]]
) -> list[bool]:
    """Of the values of each of `cases` whether `requires` takes them. A sealed one is asked of all at once."""
    given = (dict(zip(names, each, strict=True)) for each in cases)
    ask = getattr(requires, "ask", None)
    answers = []
    for values, said in zip(cases, ask(list(given)) if ask else (_ask_requires(requires, each) for each in given), strict=True):
        if isinstance(said, str):
            asked = ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True))
            raise UsageError(f"--launcher {launcher}: requires({asked}) raises {said}; fix it")
        answers.append(said)
    return answers


def _ask_requires(requires: Callable[..., object], fields: Mapping[str, object]) -> bool | str:
    """Whether `requires` takes `fields`, or what it raised."""
    try:
        return bool(requires(**fields))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
