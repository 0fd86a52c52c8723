"""``bitverdict new``: the files of a new kernel, which work as they are and are then changed."""

from __future__ import annotations

import argparse
import importlib
import keyword
import re
from pathlib import Path

from bitverdict.harness.model.paths import IS_CHECKOUT, ROOT
from bitverdict.harness.model.usage import UsageError

TEMPLATES = Path(__file__).resolve().parents[1] / "kernel_template"
FILES = {"kernel": "kernels", "contract": "harness/contracts", "mutants": "tests/faults/kernels"}
"""Template -> the folder that a kernel's own file of it lies in."""
COMPILE_TABLE, TABLE_HEAD = "harness/lab/offline_compile/expectations.py", "SINGLE: tuple[Row, ...] = (\n"
PAGE = "kernels.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("kernel",), help="what to write")
    parser.add_argument("name", metavar="NAME", help="what it is called: kernels/NAME.py and its launcher")


def run(arguments: argparse.Namespace) -> int:
    """Write the kernel, print what was written and what comes next. UsageError for a name that cannot be taken."""
    name = arguments.name
    paths = [*write_kernel(name, ROOT), print_page()]
    for path in paths:
        print(f"written: {path}")
    print("\nIt computes 0.1 A + B. Judge it, compile it and test it, then change it and do so again:\n")
    for command in (f"bitverdict run {name}", f"bitverdict lab compile {name}"):
        print(f"    {command}")
    print(f"    bitverdict lab pages && python -m tests.support.kernel_tests {name}")
    print(f"\nWith the kernel change its contract, its mutants and its rows in {COMPILE_TABLE}.")
    return 0


def write_kernel(name: str, root: Path) -> list[str]:
    """Write the files of the kernel `name` into the checkout at `root`, and its rows into the compile table; returns their paths.
    Nothing is written where the name cannot be taken."""
    check_name(name, root)
    for template, folder in FILES.items():
        (root / folder / f"{name}.py").write_text(fill_template(template, name))
    table = root / COMPILE_TABLE
    before, head, after = table.read_text().partition(TABLE_HEAD)
    table.write_text(before + head + fill_template("rows", name) + after)
    return [*(f"{folder}/{name}.py" for folder in FILES.values()), COMPILE_TABLE]


def check_name(name: str, root: Path) -> None:
    """UsageError where no kernel of the checkout at `root` can be called `name`."""
    if not (IS_CHECKOUT and all((root / folder).is_dir() for folder in FILES.values())):
        raise UsageError(
            f"new kernel {name}: it is written into a checkout of the repository, and {root} is none; run it in a clone"
        )
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(
            f"kernel {name!r}: must be a Python identifier of lower-case letters, digits and _; take one like scaled_sum"
        )
    for folder in FILES.values():
        if (root / folder / f"{name}.py").exists():
            raise UsageError(f"kernel {name!r}: {folder}/{name}.py exists, and nothing is overwritten; take another name")


def fill_template(template: str, name: str) -> str:
    """The text of `template` for the kernel `name`."""
    class_name = "".join(word.capitalize() for word in name.split("_"))
    return (TEMPLATES / f"{template}.txt").read_text().replace("KERNEL_NAME", name).replace("ClassName", class_name)


def print_page() -> str:
    """Print the page that lists the clauses of all kernels; returns its path."""
    from bitverdict.harness.lab.pages import printed_pages

    importlib.invalidate_caches()  # the new files
    for page, text in printed_pages.stale_pages([PAGE], printed_pages.DOCS):
        (printed_pages.DOCS / page.name).write_text(text)
    return f"{printed_pages.DOCS.name}/{PAGE}"
