"""Whether the fields of a case that was read from a file have the types and the range of the kernel's own records.

A file may have been edited, or be another program's. What is wrong with it is told by field, value and rule, before anything runs.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Collection
from functools import cache
from typing import Any

from bitverdict.harness.model.usage import UsageError

_SCHEDULE = re.compile(r"(eager|latest|immediate|drawn:-?\d+)( on [1-9]\d*)?")
_TUNING = re.compile(r"(first|runs|config \d+)?")
_NAMES = {int: "an integer", str: "a text", bool: "true or false", float: "a number", type(None): "null"}


def check_record(record: object, place: str, signed_fields: Collection[str] = ()) -> None:
    """UsageError unless each field of the dataclass `record` has its annotated type, and no integer is negative but those in
    `signed_fields`. `place` is what the record is called, "problem" for one. None has no fields. Annotations of types that no file
    has are not checked.
    """
    kind: Any = type(record)
    for name, hint in _hints(kind).items() if record is not None else ():
        value, field_path = getattr(record, name), f"{place}.{name}"
        if dataclasses.is_dataclass(value):
            check_record(value, field_path, signed_fields)
            continue
        allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if not all(kind in _NAMES for kind in allowed):
            continue
        if not _has_kind(value, allowed):
            raise UsageError(f"{field_path} is {value!r:.100}: must be {' or '.join(_NAMES[kind] for kind in allowed)}")
        if bool not in allowed and isinstance(value, int) and value < 0 and name not in signed_fields:
            raise UsageError(f"{field_path} is {value}: must be an integer of at least 0")


def check_case(record: object) -> None:
    """UsageError unless `record` is a mapping with the fields that every case has, each of its type."""
    if not isinstance(record, dict):
        raise UsageError(f"case is {record!r:.100}: must be an object of JSON")
    texts = ("contract", "launcher", "regime", "schedule", "tuning", "promises")
    flags = (("real_values", bool), ("recover_order", bool), ("ptx", bool), ("sealed", bool), ("certificate", bool))
    for name, kind in (*((text, str) for text in texts), ("data_seed", int), ("calls", int), *flags):
        if name in record and type(record[name]) is not kind:
            raise UsageError(f"case.{name} is {record[name]!r:.100}: must be {_NAMES[kind]}")
    if not isinstance(folders := record.get("search_path", []), list) or not all(isinstance(each, str) for each in folders):
        raise UsageError(f"case.search_path is {folders!r:.100}: must be a list of texts")
    for name in ("problem", "config"):
        if name in record and not isinstance(record[name], dict | str | None):
            raise UsageError(f"case.{name} is {record[name]!r:.100}: must be an object of JSON")
    if not record.get("contract"):
        raise UsageError("case.contract is missing: must be a kernel's name or the address of a contract")
    check_indices(record.get("indices", {}))
    if not _SCHEDULE.fullmatch(record.get("schedule", "eager")):
        known = "'eager', 'latest' or 'drawn:<integer>', and may end in ' on <count>'"
        raise UsageError(f"case.schedule is {record['schedule']!r:.100}: must be {known}")
    if not _TUNING.fullmatch(record.get("tuning", "")):
        raise UsageError(f"case.tuning is {record['tuning']!r:.100}: must be '', 'first', 'runs' or 'config <n>'")
    if record.get("calls", 1) not in (1, 2, 3):
        raise UsageError(f"case.calls is {record['calls']}: must be 1, 2 or 3")
    if record.get("data_seed", 0) < 0:
        raise UsageError(f"case.data_seed is {record['data_seed']}: must be an integer of at least 0")


def check_indices(given: object) -> None:
    """UsageError unless `given` is a mapping from names of operands to lists of 32-bit integers."""
    if not isinstance(given, dict):
        raise UsageError(f"case.indices is {given!r:.100}: must be an object of JSON with a list for each operand")
    for name, numbers in given.items():
        if not isinstance(numbers, list) or not all(type(number) is int and -(2**31) <= number < 2**31 for number in numbers):
            raise UsageError(f"case.indices.{name} is {numbers!r:.100}: must be a list of integers of 32 bits")


def _has_kind(value: object, kinds: Collection[type]) -> bool:
    """Whether `value` is of one of `kinds`: true is no number here, and 3 is one where a float is asked."""
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, tuple(kinds)) or (isinstance(value, int) and float in kinds)


@cache
def _hints(kind: object) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError):  # a user's record with a type that only a checker sees
        return {}
