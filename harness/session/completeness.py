"""What a launcher was not asked, and what of it may stay so: how much of a kernel's mathematics a run says something about.

A launcher that says nothing of itself is asked a *plain list* of required cases. `requires` moves some of them to other sizes or
leaves them out, less is claimed, and a refusal leaves a case without a verdict. What is missing is told by dimension: the fields of
the kernel's problem. Of a size these are the classes that Triton compiles anew, multiples of 16 and others; of an element type, a
flag and a layout each value.

The rule has no threshold. A dimension with one value where the plain list has several is not judged: a table of results would pass
as well. Where the launcher's author is trusted, this is told below the table. In a sealed run it makes a size inconclusive,
until the user, not the candidate, accepts it: by `--accept-claims`, by `requires` of `bitverdict.test`, or by asking for no other
sizes (`-k`). So do cases that did not run beside others that did, where the candidate says that the target lacks a feature: its
compiler is its own. What else was left out is named in the last line of the run.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import REFUSED_BY, Decision, Verdict

ALIGNMENT = 16  # Triton compiles a size that is a multiple of it anew
LAYOUT = ("pad", "offset")  # fields whose names end so say how an operand lies, and are no size
ACCEPT = "accept it by --accept-claims, or by requires of bitverdict.test"
MAX_NAMED_VALUES = 4  # values that are named, of those that were left out

Values = dict[str, dict[Any, None]]
"""Dimension -> its values, in the order in which they come."""


@dataclass
class RequestedCases:
    """The required cases of a launcher that declares limits, and those without the limits."""

    contract: Contract
    target: Target
    plain_cases: list[Case]
    required: dict[str, Case]
    """By its key each required case that it is asked."""
    is_strict: bool = False
    """Whether a size with one value is inconclusive: the launcher is sealed, and nobody accepted what it says of itself."""
    refused_keys: set[str] = field(default_factory=set)
    """Keys of those that it refused: they passed without a word, or did not run."""
    ran: bool = False
    feature_skips: int = 0
    """Cases that did not run since it says that the target lacks a feature."""
    judged: Values = field(default_factory=dict)
    """Of the cases whose words were compared, the generated ones too."""

    @cached_property
    def all_values(self) -> Values:
        return _values(classes(case, self.contract, self.target) for case in self.plain_cases)

    def taken_values(self) -> Values:
        """The values of the required cases that it did not refuse, judged or not, and of all that were judged."""
        kept = (case for key, case in self.required.items() if key not in self.refused_keys)
        return _values((classes(case, self.contract, self.target) for case in kept), copy.deepcopy(self.judged))

    def count(self, case: Case, verdict: Verdict) -> None:
        self.ran |= verdict.decision is not Decision.NOT_RUN
        self.feature_skips += REFUSED_BY in verdict.details
        if verdict.words:
            if self.plain_cases:
                _values([classes(case, self.contract, self.target)], into=self.judged)
        elif case.key in self.required and verdict.decision in (Decision.PASS, Decision.NOT_RUN):
            self.refused_keys.add(case.key)

    def narrow(self) -> list[str]:
        """Why the run says too little of it. A target on which nothing of it ran is not run, and says nothing."""
        if not self.is_strict or (self.refused_keys and not self.ran):
            return []
        alone = f"judged at {' and '.join(self.single_sizes())} alone" if self.plain_cases and self.single_sizes() else ""
        lacking = (
            f"{self.feature_skips} cases did not run, since it says that the target lacks a feature" if self.feature_skips else ""
        )
        return [f"{said}; {ACCEPT}" for said in (alone, lacking) if said]

    def single_sizes(self) -> list[str]:
        """The sizes of which one value is left where the mathematics has several: "m = 64". "nothing" where no case is left."""
        taken = self.taken_values()
        sizes = [
            name for name, values in self.all_values.items() if len(values) > 1 and _are_sizes(values) and not _is_layout(name)
        ]
        found = [f"{name} = {next(iter(taken[name]))}" for name in sizes if len(taken.get(name, {})) == 1]
        return found if taken else ["nothing"]

    def missing_phrases(self) -> list[str]:
        """What nobody judges, a phrase each."""
        phrases: list[str] = []
        if not self.plain_cases:
            return phrases
        taken_values = self.taken_values()
        if (lost := len(self.plain_cases) - len(self.required)) > 0:
            phrases.append(f"{lost} of {len(self.plain_cases)} required cases")
        if self.refused_keys:
            phrases.append(f"{len(self.refused_keys)} of {len(self.required)} required cases in which no word was compared")
        for name, values in self.all_values.items():
            phrases += _missing_values(name, values, taken_values.get(name, {}))
        return phrases


def _missing_values(name: str, values: Mapping[Any, None], taken_values: Mapping[Any, None]) -> list[str]:
    """Of the `values` of a dimension those that nobody judges; of an integer the classes of them."""
    unjudged_values = [value for value in values if value not in taken_values]
    if not unjudged_values:
        return []
    if any(type(value) is tuple for value in values):
        return [f"{len(unjudged_values)} of {len(values)} {name}"]
    if not all(type(value) is int for value in values):
        more = f" and {len(unjudged_values) - MAX_NAMED_VALUES} more" if len(unjudged_values) > MAX_NAMED_VALUES else ""
        return [f"{name} {', '.join(map(str, unjudged_values[:MAX_NAMED_VALUES]))}{more}"]
    kinds: dict[str, Callable[[int], bool]] = {
        f"{name} of multiples of {ALIGNMENT}": lambda value: value % ALIGNMENT == 0,
        f"{name} of no multiple of {ALIGNMENT}": lambda value: value % ALIGNMENT != 0,
    }
    if _is_layout(name):
        kinds = {f"{name} of 0": lambda value: value == 0, f"{name} other than 0": lambda value: value != 0}
    return [said for said, of in kinds.items() if any(map(of, values)) and not any(map(of, taken_values))]


@dataclass
class Completeness:
    """Of a run, by the table's name of the launcher and the target."""

    requests: dict[tuple[str, str], RequestedCases] = field(default_factory=dict)

    def take(
        self, launcher: str, target: Target, contract: Contract, plain: list[Case], required: list[Case], *, strict: bool
    ) -> None:
        """`launcher` is asked `required`, and would be asked `plain` if it said nothing of itself."""
        self.requests[launcher, target.name] = RequestedCases(
            contract, target, plain, {case.key: case for case in required}, strict
        )

    def count(self, case: Case, launcher: str, target: str, verdict: Verdict) -> None:
        if (found := self.requests.get((launcher, target))) is not None:
            found.count(case, verdict)

    def open(self) -> list[str]:
        """Why a sealed run says too little, a sentence each."""
        found = self._group_targets(RequestedCases.narrow)
        return [f"{launcher} on {targets}: {sentence}" for (launcher, said), targets in found for sentence in said]

    def lines(self) -> list[str]:
        """What a person reads below the table."""
        return [
            f"{launcher}: not judged: {', '.join(said)}"
            for (launcher, said), _ in self._group_targets(RequestedCases.missing_phrases)
        ]

    def sentence(self) -> str:
        """What the last line of a run names: all that was left out of a sealed one."""
        left = self._group_targets(lambda asked: asked.missing_phrases() if asked.is_strict else [])
        said = [f"{launcher}: {', '.join(told)}" for (launcher, told), _ in left]
        return f"not judged: {'; '.join(said)}" if said else ""

    def _group_targets(self, told: Callable[[RequestedCases], list[str]]) -> list[tuple[tuple[str, tuple[str, ...]], str]]:
        """(launcher, what is told of it) -> the targets of which the same is told."""
        found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (launcher, target), each in self.requests.items():
            if said := tuple(told(each)):
                found.setdefault((launcher, said), []).append(target)
        return [(what, ", ".join(targets)) for what, targets in found.items()]

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "launcher": launcher,
                "target": target,
                "required": len(each.required),
                "plain": len(each.plain_cases),
                "refused": len(each.refused_keys),
                "not_judged": each.missing_phrases(),
                "alone": each.single_sizes(),
            }
            for (launcher, target), each in self.requests.items()
        ]


def classes(case: Case, contract: Contract, target: Target) -> dict[str, Any]:
    """The value of `case` in each dimension: a field of its problem; of one that is a record itself what the contract calls it."""
    found = {each.name: getattr(case.problem, each.name) for each in dataclasses.fields(case.problem)}
    records = {name for name, value in found.items() if dataclasses.is_dataclass(value)}
    told = contract.coverage(case, target) if records else {}
    return {name: value if name not in records else told.get(name) for name, value in found.items()}


def _values(listed: Iterable[Mapping[str, object]], into: Values | None = None) -> Values:
    """The values of each dimension in the records `listed`, put behind those of `into`."""
    found: Values = {} if into is None else into
    for fields in listed:
        for name, value in fields.items():
            found.setdefault(name, {})[value] = None
    return found


def _are_sizes(values: Iterable[object]) -> bool:
    return all(type(value) in (int, tuple) for value in values)


def _is_layout(name: str) -> bool:
    return name.endswith(LAYOUT)
