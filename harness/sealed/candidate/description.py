"""What a sealed candidate says of itself: its parameters, its claims, what its `requires` takes. As values of JSON, and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bitverdict.harness.model.usage import UsageError

KINDS = {str(kind): kind for kind in inspect._ParameterKind}
MOST_PARAMETERS = 256  # parameters
_HIDDEN = "..."  # a default, of which nobody need know more than that there is one

ParameterList = list[list[Any]]


def describe_launcher(launcher: Any) -> dict[str, Any]:
    """`launcher`, what asks the candidate's process, as a record."""
    requires = launcher.requires
    return {
        "name": launcher.__name__,
        "kind": launcher.kind,
        "callable": launcher.callable,
        "parameters": _parameters_of(launcher),
        "claims": launcher.claims,
        "requires": None if requires is None else {"said": repr(requires)[:200], "parameters": _parameters_of(requires)},
    }


def _parameters_of(function: Any) -> ParameterList | None:
    """The parameters of `function`; None of what does not tell them."""
    try:
        listed = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [[each.name, str(each.kind), each.default is not inspect.Parameter.empty] for each in listed]


class SealedLauncher:
    """What stands for a sealed candidate where cases are chosen. It is never called.

    `taken(list of fields)` says of each whether its `requires` takes it, or what that raised, in words."""

    def __init__(self, record: Mapping[str, Any], taken: Callable[[Sequence[Mapping[str, Any]]], list[bool | str]]) -> None:
        self.__name__, self.kind, self.is_callable = _text(record["name"]), _text(record["kind"]), record["callable"] is True
        self._parameters, claims, said = record["parameters"], record["claims"], record["requires"]
        self.claims = [_text(each) for each in claims] if isinstance(claims, list | tuple) else claims
        self.requires = None if said is None else SealedRequires(_text(said["said"]), said["parameters"], taken)

    @property
    def __signature__(self) -> inspect.Signature:
        return signature_of(self._parameters)

    def __call__(self, *operands: Any, **configuration: Any) -> Any:
        raise UsageError(f"{self.__name__} is sealed: it is called in a process of its own alone")


class SealedRequires:
    """What stands for the predicate `requires` of a sealed candidate."""

    def __init__(
        self, said: str, parameters: ParameterList | None, taken: Callable[[Sequence[Mapping[str, object]]], list[bool | str]]
    ) -> None:
        self._said, self._parameters, self._taken = said, parameters, taken
        self._known: dict[tuple, bool | str] = {}

    @property
    def __signature__(self) -> inspect.Signature:
        return signature_of(self._parameters)

    def __repr__(self) -> str:
        return self._said

    def ask(self, listed: Sequence[Mapping[str, object]]) -> list[bool | str]:
        """Of each fields whether they are taken, or what was raised. All that are new are asked at once."""
        keys = [tuple(sorted(fields.items())) for fields in listed]
        new = {key: fields for key, fields in zip(keys, listed, strict=True) if key not in self._known}
        if new:
            answers = self._taken(list(new.values()))
            self._known |= dict(zip(new, answers, strict=True))
        return [self._known[key] for key in keys]

    def __call__(self, **fields: Any) -> bool:
        (found,) = self.ask([fields])
        if isinstance(found, str):
            raise ValueError(found)
        return found


def signature_of(parameters: ParameterList | None) -> inspect.Signature:
    """The signature with those parameters. ValueError where it is not known, or is none."""
    if parameters is None:
        raise ValueError("its parameters are not known")
    kind = inspect.Parameter
    listed = [
        kind(_text(name), KINDS[how], default=_HIDDEN if optional else kind.empty)
        for name, how, optional in parameters[:MOST_PARAMETERS]
    ]
    return inspect.Signature(listed)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100}: must be a text")
    return value[:400]
