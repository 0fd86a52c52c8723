"""What the scripts of this folder share: options from a line of defaults, kept results, and how a script ends.

    def main() -> int:
        given = parse(__doc__, "stems*", target="emulated:sm_90", cases=0, markdown=False, results=Path)
        ...

    if __name__ == "__main__":
        run_script(main)

A script is started by ``python -m benchmarks.<script>`` in a checkout; --help prints its docstring.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from bitverdict.harness.model.paths import ROOT

HELP = {
    "arch": "of the emulated GPU",
    "cases": "how many",
    "device": "a real GPU, such as cuda:0",
    "jobs": "processes at a time",
    "markdown": "a table as a page has it",
    "names": "by default all",
    "only": "those whose name has this text",
    "out": "where the results go",
    "page": "print or write the page from the results, and run nothing",
    "results": "one JSON record a line: kept, and gone on with",
    "resume": "keep what is there, and run the rest",
    "rounds": "turns that both sides take",
    "stems": "kernels; by default all",
    "target": "emulated:sm_90, cuda:0",
}
"""What options of one name mean in every script that says nothing else of them."""


@dataclass(frozen=True)
class Option:
    """An option of which more is to be said than its default; `more`: arguments of `argparse.ArgumentParser.add_argument`."""

    default: Any
    help: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[str] | None = None


REQUIRED_PATH = Option(Path, more={"required": True})


def parse(doc: str | None, *positional: str, argv: Sequence[str] | None = None, **named: Any) -> Any:
    """What the command line says. `positional`: names, with "*" or "+" behind what may be several, "/" behind a path, and
    "=one|other" behind a choice. `named`: the default of each option, whose type its values have. A type stands for an option that
    has none, False and True for a flag, a list for an option that may come several times, a tuple for one of several words. A
    name of one letter has one dash; "_" behind a name keeps it apart from a word of Python's. ``jobs=0`` is one a core."""
    script = f"python -m benchmarks.{Path(sys.argv[0]).stem}"
    parser = argparse.ArgumentParser(prog=script, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for word in positional:
        spelled, _, choices = word.partition("=")
        name, several = spelled.rstrip("*+/"), spelled[-1] if spelled[-1] in "*+" else None
        shown = {"choices": choices.split("|")} if choices else {"metavar": name.upper().removesuffix("S" if several else "")}
        parser.add_argument(name, help=HELP.get(name), nargs=several, type=Path if spelled[-1] == "/" else str, **shown)
    for name, value in named.items():
        option = value if isinstance(value, Option) else Option(value)
        word = ("-" if len(name) == 1 else "--") + (name if name[:1].isupper() else name.rstrip("_").replace("_", "-"))
        more = _kind(option.default) | ({"choices": option.choices} if option.choices else {}) | dict(option.more)
        parser.add_argument(word, dest=name, **{"help": option.help or HELP.get(name)} | more)
    given = parser.parse_args(argv)
    if named.get("jobs") == 0:
        given.jobs = given.jobs or len(os.sched_getaffinity(0))
    return given


def _kind(default: Any) -> dict[str, Any]:
    """The arguments of `add_argument` that an option with this default has."""
    if default is False:
        return {"action": "store_true"}
    if default is True:
        return {"action": argparse.BooleanOptionalAction, "default": True}
    if isinstance(default, type):
        return {"type": default}
    if isinstance(default, list):
        return {"action": "append", "default": default}
    if isinstance(default, tuple):
        return {"nargs": "+", "default": [*default], "type": type(default[0]) if default else str}
    return {"default": default, "type": type(default)}


def refuse(why: str) -> NoReturn:
    """End with status 2, as after an option that is none."""
    print(f"{Path(sys.argv[0]).stem}: error: {why}", file=sys.stderr)
    raise SystemExit(2)


def run_script(main: Callable[[], int | None]) -> NoReturn:
    """End this process with the status of `main`; after Ctrl-C by that signal, without a traceback: what was written is whole."""
    try:
        status = main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 128 + signal.SIGINT
    sys.stdout.flush()
    raise SystemExit(status or 0)


def records(file: Path | None) -> list[Any]:
    """What a run wrote into `file`, one JSON value a line; a last line that was cut off is taken away from the file."""
    if file is None or not file.is_file():
        return []
    text = file.read_text()
    lines = text.splitlines()
    if not text.endswith("\n") and lines:
        with suppress(ValueError):
            json.loads(lines[-1])
            lines.append("")
        lines.pop()
        file.write_text("".join(f"{line}\n" for line in lines))
    return [json.loads(line) for line in lines if line]


def append(file: Path | None, record: Any) -> None:
    """Add a line to `file`."""
    if file is not None:
        with file.open("a") as to:
            to.write(json.dumps(record) + "\n")


def commit() -> str:
    """The commit of the checkout, shortened; "unknown" in a copy that is none."""
    asked = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"


def write(file: Path, value: Any, **more: Any) -> None:
    """`value` as JSON, in a folder that is made where it is not there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=1, **more) + "\n")
