"""`lookup.EVERY_ONE` as JSON, so that others can hold their models to these.

    python -m bitverdict.reference.tensor_core.export > instructions.json

prints {"version": 1, "instructions": [...]}: an object for each, with every field of `Instruction` by its name. Enumerations go by
their names, and `floor` is spelled out. `evidence` has its own fields, beside `basis` and `text` as reports print them.
docs/arithmetic.md says what the numbers mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.evidence import Evidence, EvidenceKind
from bitverdict.reference.tensor_core.lookup import ALL_INSTRUCTIONS
from bitverdict.reference.tensor_core.record import Accumulator, Choices, Instruction, Step

VERSION = 1


def to_json(rule: Instruction) -> dict[str, Any]:
    """The record of one instruction."""
    evidence = {field.name: _json_value(getattr(rule.evidence, field.name)) for field in fields(Evidence)}
    choices = {field.name: _json_value(getattr(rule.choices, field.name)) for field in fields(Choices)}
    values = {
        field.name: _json_value(getattr(rule, field.name))
        for field in fields(Instruction)
        if field.name not in ("evidence", "choices")
    }
    derived = {"name": rule.name, "floor": rule.floor, "span": rule.span}
    return (
        derived | values | {"choices": choices, "evidence": evidence | {"basis": rule.evidence.basis, "text": str(rule.evidence)}}
    )


def from_json(record: Mapping[str, Any]) -> Instruction:
    """The instruction that `to_json` wrote."""
    arguments = {field.name: record[field.name] for field in fields(Instruction)}
    choice_values = {field.name: type(getattr(Choices(), field.name))[record["choices"][field.name]] for field in fields(Choices)}
    evidence_values = {field.name: record["evidence"][field.name] for field in fields(Evidence)}
    evidence_values |= {
        "kind": EvidenceKind[evidence_values["kind"]],
        "sources": tuple(evidence_values["sources"]),
        "rows": tuple(evidence_values["rows"]),
    }
    arguments |= {
        "rounding": Rounding[arguments["rounding"]],
        "accumulator": Accumulator[arguments["accumulator"]],
        "step": Step[arguments["step"]],
    }
    arguments["passes"] = None if arguments["passes"] is None else tuple(map(tuple, arguments["passes"]))
    return Instruction(
        **arguments
        | {
            "choices": Choices(**choice_values),
            "evidence": Evidence(**evidence_values | {"open": frozenset(evidence_values["open"])}),
        }
    )


def _json_value(value: object) -> Any:
    if isinstance(value, Enum):
        return value.name
    return sorted(value) if isinstance(value, frozenset) else value


def text() -> str:
    return json.dumps({"version": VERSION, "instructions": [to_json(rule) for rule in ALL_INSTRUCTIONS]}, indent=1)


if __name__ == "__main__":
    print(text())
