"""A case in one line, as reports print it behind ``case:``, and back: ``m=1 n=1 k=33 dtype=fp16 regime=normal data_seed=3``.

A line names fields of the kernel's `Problem`, of its `Config` and of `Case`. What has its default may be left out; what a report
prints is taken verbatim.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.case_fields import check_case
from bitverdict.harness.model.contract import Contract, case_from_record
from bitverdict.harness.model.usage import UsageError, did_you_mean

TYPES = ("dtype", "format")  # fields that are told even where they have their default
MOST_RUNS = 12  # equal neighbours of a list of row numbers, told as one each
LAUNCHER_CHOICE = "auto"  # a config that the launcher chooses
CASE_FIELDS = ("regime", "data_seed", "schedule", "tuning", "calls", "real_values", "recover_order", "ptx", "sealed", "promises")
_NAME, _NEXT_FIELD = re.compile(r"([\w.]+)="), re.compile(r"\s+([\w.]+=|$)")
_RUN = re.compile(r"(\[[-\d,\s]*\])(?:\*(\d+))?")


def describe(case: Case) -> str:
    """The case in one line: its element type, and what differs from the defaults of its records. Whose it is stands elsewhere."""
    parts = [
        *_describe_record(case.problem),
        *_config_told(case),
        f"regime={case.regime}",
        f"data_seed={case.data_seed}",
        f"schedule={case.schedule}",
        *([f"tuning={case.tuning}"] if case.tuning else []),
        *([f"calls={case.calls}"] if case.calls > 1 else []),
        *([] if case.real_values else ["real_values=False"]),
        *(["recover_order=True"] if case.recover_order else []),
        *(["ptx=True"] if case.ptx else []),
        *(["sealed=True"] if case.sealed else []),
        *([f"promises={case.promises}"] if case.promises else []),
        *(f"{name}={in_runs(numbers)}" for name, numbers in case.indices),
    ]
    return " ".join(parts)


def _config_told(case: Case) -> list[str]:
    """The fields of its config; one that the problem or the case has too by its whole name, config.schedule."""
    if case.config is None:
        chosen = bool(case.launcher) or hasattr(case.problem, "describe_parts")  # by a user's launcher, always
        return [] if chosen else [f"config={LAUNCHER_CHOICE}"]
    if not dataclasses.is_dataclass(case.config):
        return [f"config={case.config}"]
    taken = {*CASE_FIELDS, *(_names(case.problem) if dataclasses.is_dataclass(case.problem) else ())}
    return [f"config.{told}" if told.partition("=")[0] in taken else told for told in _describe_record(case.config)]


def in_runs(numbers: Sequence[int]) -> str:
    """A list of integers in one expression, equal neighbours as one: ``[0]*7+[41]``. Of more than `MOST_RUNS` runs the first."""
    runs = [(number, len(list(same))) for number, same in itertools.groupby(numbers)]
    parts: list[str] = []
    for alone, group in itertools.groupby(runs[:MOST_RUNS], lambda run: run[1] == 1):
        if alone:
            parts.append(str([number for number, _ in group]))
        else:
            parts += [f"[{number}]*{count}" for number, count in group]
    told = "+".join(parts).replace(" ", "")
    return told if len(runs) <= MOST_RUNS else f"{told}+... ({len(numbers)} numbers)"


def _describe_record(record: object) -> list[str]:
    if record is None:
        return []
    if not dataclasses.is_dataclass(record):
        return [str(record)]
    if hasattr(record, "describe_parts"):  # it says itself what a person wants to know
        return record.describe_parts()
    parts = []
    for item in dataclasses.fields(record):
        value = getattr(record, item.name)
        factory = item.default_factory
        default = factory() if factory is not dataclasses.MISSING else item.default
        if value != default or item.name in TYPES:
            parts.append(
                f"{item.name}=({' '.join(_describe_record(value))})" if dataclasses.is_dataclass(value) else f"{item.name}={value}"
            )
    return parts


def case_of(line: str, contract: Contract, like: Sequence[Case], launcher: str = "") -> Case:
    """The case that `line` tells of `contract`; `like` are cases of it, whose records say which fields there are.

    UsageError (value, rule, remedy) for a line that tells none.
    """
    if not like:
        raise UsageError(f"--case {line!r}: {contract.stem or contract.address} has no required case that shows its fields")
    parts = list(fields_of(line))
    drawn = contract.problem_told([(name, text) for name, text in parts if name not in CASE_FIELDS])
    if drawn is not None:
        rest = {name: _value(name, text, Case) for name, text in parts if name in CASE_FIELDS}
        parsed_case = Case(
            contract=like[0].contract, search_path=like[0].search_path, launcher=like[0].launcher, problem=drawn, **rest
        )
        check_case(parsed_case.to_json())
        return parsed_case
    problem, configs = type(like[0].problem), {type(case.config) for case in like if dataclasses.is_dataclass(case.config)}
    config = None if launcher or not configs else next(iter(configs))
    lists = {item.name for case in like for item in contract.index_lists(case)}
    field_names = {"case": [*CASE_FIELDS, *sorted(lists)], "problem": _names(problem), "config": _names(config)}
    given_fields: dict[str, dict[str, Any]] = {"problem": {}, "config": {}, "case": {}}
    config_choice: list[Any] = []  # the config, where the line says which as a whole
    for name, text in parts:
        if name == "config" and (text == LAUNCHER_CHOICE or config is None):
            config_choice = [None if text == LAUNCHER_CHOICE else text]
            continue
        room, _, name = name.rpartition(".")
        place = next((place for place, names in field_names.items() if name in names and room in ("", place)), "")
        if not place or name in given_fields[place]:
            every = list(dict.fromkeys(item for names in field_names.values() for item in names))
            why = "is given twice" if place else f"is no field of it{did_you_mean(name, every, 0.6)}"
            raise UsageError(f"--case: {name} {why}; the fields are {', '.join(every)}")
        kind = {"problem": problem, "config": config, "case": Case}[place]
        given_fields[place][name] = _numbers(name, text) if name in lists else _value(name, text, kind)
    parsed_case = Case(
        contract=like[0].contract,
        search_path=like[0].search_path,
        problem=_build_record(problem, given_fields["problem"], "Problem"),
        config=_config(config, given_fields["config"], config_choice, like),
        launcher=launcher,
        indices=tuple((name, given_fields["case"].pop(name)) for name in list(given_fields["case"]) if name in lists),
        **given_fields["case"],
    )
    record = parsed_case.to_json()
    check_case(record)
    return dataclasses.replace(case_from_record(contract, record), contract=parsed_case.contract)


def _config(kind: Any, given_fields: dict[str, object], config_choice: Sequence[object], like: Sequence[Case]) -> Any:
    """The config of a line with the fields `given_fields`. Where there is none, and the defaults make none: what the launcher
    chooses, else that of the first case of `like`."""
    if kind is None or config_choice:
        if given_fields:
            raise UsageError(
                f"--case: config={LAUNCHER_CHOICE} with {', '.join(given_fields)}: the launcher "
                f"chooses all of it, or nothing; leave one out"
            )
        return config_choice[0] if config_choice else None
    if not given_fields and any(each.default is each.default_factory is dataclasses.MISSING for each in dataclasses.fields(kind)):
        return None if any(case.config is None for case in like) else like[0].config
    return _build_record(kind, given_fields, "Config")


def fields_of(line: str) -> Iterator[tuple[str, str]]:
    """(name, text) of each field of a line. A value goes on to the next ``name=`` outside brackets: "drawn:5 on 2"."""
    line, place = line.strip().removeprefix("case:").strip(), 0
    while place < len(line):
        name = _NAME.match(line, place)
        if not name:
            raise UsageError(f"--case: {line[place:].split()[0]!r}: must be name=value; for example --case 'm=1 n=1 k=33'")
        start = place = name.end()
        depth = 0
        while place < len(line) and (depth or not _NEXT_FIELD.match(line, place)):
            depth += (line[place] in "([") - (line[place] in ")]")
            place += 1
        if depth:
            raise UsageError(f"--case: {name[0]}{line[start:]}: has a bracket that is not closed; take the whole line")
        yield name[1], line[start:place]
        while place < len(line) and line[place].isspace():
            place += 1


def _names(kind: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)] if kind is not None else []


def _value(name: str, text: str, kind: object) -> Any:
    """`text` as a value of the field `name` of the dataclass `kind`, whose hints say of which type."""
    hint = typing.get_type_hints(kind).get(name, Any)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not (text.startswith("(") and text.endswith(")")):
            raise UsageError(f"--case: {name}={text}: must be fields in brackets, ({', '.join(_names(hint))})")
        return _build_record(hint, {inner: _value(inner, value, hint) for inner, value in fields_of(text[1:-1])}, name)
    allowed_types = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if str in allowed_types and not (text == "None" and type(None) in allowed_types):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        wanted = " or ".join(each.__name__ if isinstance(each, type) else str(each) for each in allowed_types)
        raise UsageError(f"--case: {name}={text}: must be a value of {wanted}") from None


def _numbers(name: str, text: str) -> tuple[int, ...]:
    """A list of row numbers, as `in_runs` tells it."""
    if "..." in text:
        raise UsageError(f"--case: {name}={text}: the report cut this list; `bitverdict replay FILE` has it whole")
    numbers: list[int] = []
    for part in text.split("+"):
        run = _RUN.fullmatch(part.strip())
        if not run:
            raise UsageError(f"--case: {name}={text}: must be a list of integers, such as [0]*7+[41]")
        numbers += [*ast.literal_eval(run[1])] * int(run[2] or 1)
    return tuple(numbers)


def _build_record(kind: Any, given: dict[str, object], what: str) -> Any:
    needed = [each.name for each in dataclasses.fields(kind) if each.default is each.default_factory is dataclasses.MISSING]
    missing = [name for name in needed if name not in given]
    if missing:
        raise UsageError(f"--case: {', '.join(missing)} of {what} missing: has no default; add {missing[0]}=VALUE")
    return kind(**given)
