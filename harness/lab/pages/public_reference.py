"""docs/api.md, docs/command_line.md and docs/xp.md: what `bitverdict`, its command line and `xp` offer: docstrings and parsers."""

from __future__ import annotations

import argparse
import enum
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from bitverdict.harness.frontends.main import COMMANDS, LABORATORY, parser
from bitverdict.reference.tracing.namespace import ABSENT, RECIPES
from bitverdict.reference.tracing.state import OPERATIONS

NOTICE = "Printed from the code by `bitverdict lab pages {}`."


def api_page() -> str:
    """Each public name: its signature and its docstring; of a class its public methods."""
    lines = ["# The names of `bitverdict`", "", f"{NOTICE.format('api.md')} What is promised of them: [public.md](public.md).", ""]
    package = import_module("bitverdict")
    for name in sorted(package.__all__, key=lambda each: (each[0].isupper(), each)):
        if name != "__version__":
            lines += _name_sections(name, getattr(package, name), 2)
    return "\n".join(lines).rstrip() + "\n"


def _name_sections(name: str, item: object, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {name}", "")
    if callable(item) and (signature := _signature(name, item)):
        yield from ("```text", signature, "```", "")
    yield from (_docstring_text(item), "")
    if isinstance(item, ModuleType):
        members = [getattr(item, each) for each in item.__all__]
        for member in sorted(members, key=lambda each: each.__name__):
            yield from _name_sections(member.__name__, member, level + 1)
    elif inspect.isclass(item):
        for method_name, member in sorted(vars(item).items()):
            if not method_name.startswith("_") and inspect.isfunction(member) and member.__doc__:
                yield from _name_sections(f"{name}.{method_name}", member, level + 1)


def _signature(name: str, item: object) -> str:
    """A call of `item`, an argument a line where it has more than three; of an enumeration its values."""
    if isinstance(item, enum.EnumMeta):
        return "\n".join(f"{name}.{member.name} == {str(member)!r}" for member in list[enum.Enum](item))
    plain = [
        each.replace(annotation=str(each.annotation)) if each.annotation is not each.empty else each for each in _parameters(item)
    ]
    texts = [re.sub(r": '(.*?)'( = |$)", r": \1\2", str(each)) for each in _with_marks(plain)]
    returned = "" if inspect.isclass(item) else inspect.signature(item).return_annotation  # type: ignore[arg-type]
    arguments = "\n    " + ",\n    ".join(texts) + ",\n" if len(plain) > 3 else ", ".join(texts)
    return f"{name}({arguments})" + (f" -> {returned}" if isinstance(returned, str) and returned else "")


def _parameters(item: object) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(item).parameters.values() if each.name != "self"]  # type: ignore[arg-type]


def _with_marks(parameters: list[inspect.Parameter]) -> Iterator[inspect.Parameter | str]:
    """They, and `/` and `*` where they stand."""
    kinds = [each.kind for each in parameters]
    for place, each in enumerate(parameters):
        if each.kind is each.KEYWORD_ONLY and each.KEYWORD_ONLY not in kinds[:place] and each.VAR_POSITIONAL not in kinds:
            yield "*"
        yield each
        if each.kind is each.POSITIONAL_ONLY and each.POSITIONAL_ONLY not in kinds[place + 1 :]:
            yield "/"


def _docstring_text(item: object) -> str:
    return re.sub(r"``", "`", inspect.getdoc(item) or "").strip()


def command_line_page() -> str:
    """Each command with its arguments, under its heading."""
    lines = [
        "# The command line",
        "",
        f"{NOTICE.format('command_line.md')} How commands go together: [commands.md](commands.md).",
        "",
    ]
    (parsers,) = (action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    for heading in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += [f"## {heading.partition(',')[0]}", ""]
        for name, command in COMMANDS.items():
            if command.group == heading:
                lab = "lab " if name in LABORATORY else ""
                lines += [f"### bitverdict {lab}{name}", "", f"{command.help[0].upper()}{command.help[1:]}".rstrip("?") + ".", ""]
                lines += ["It has the arguments of `run`.", ""] if name == "selftest" else _table(parsers[name])
    return "\n".join(lines).rstrip() + "\n"


def _table(command: argparse.ArgumentParser) -> list[str]:
    rows = [f"| {_words(action)} | {_cell(action.help or '')} |" for action in command._actions if action.dest != "help"]
    return ["| argument | what it does |", "| --- | --- |", *rows, ""] if rows else []


def _words(action: argparse.Action) -> str:
    """The words of an argument as one writes them."""
    value = action.metavar or (
        "|".join(map(str, action.choices)) if action.choices and len(list(action.choices)) < 8 else action.dest.upper()
    )
    value = " ".join(value) if isinstance(value, tuple) else value
    value = "" if action.nargs == 0 else f" {value}" + ("..." if action.nargs in ("*", "+") else "")
    names = action.option_strings or [value.strip()]
    return ", ".join(f"`{name}{value if action.option_strings else ''}`".replace("|", "\\|") for name in names)


def _cell(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|").replace("<", "\\<").replace("\n", " ")


def xp_page() -> str:
    """The names of `xp`, those it lacks, and what to write for the usual ones of torch."""
    lines = ["# The names of `xp`", "", NOTICE.format("xp.md"), "How a reference is written, and the bound of each operation:"]
    lines += ["[references.md](references.md). Meanings are those of the Python array API standard, version 2024.12.", ""]
    lines += [", ".join(f"`{name}`" for name in sorted(OPERATIONS) if not name.startswith("_")) + ".", ""]
    lines += ["## What of the standard is absent", "", "| name | why |", "| --- | --- |"]
    lines += [f"| `{name}` | {why} |" for name, why in ABSENT.items()]
    lines += ["", "## What to write for names of torch", "", "| name | write |", "| --- | --- |"]
    lines += [f"| `{name}` | `{recipe}` |" for name, recipe in RECIPES.items()]
    return "\n".join(lines) + "\n"
