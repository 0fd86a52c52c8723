"""``bitverdict lab crosscheck``: hardware, plan and emulation on the same cases, and how far agreement could have failed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, target, targets
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session import tables as report

if TYPE_CHECKING:
    from rich.console import Console

    from bitverdict.harness.lab.crosscheck import Tally


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("contract", metavar="STEM", help="kernel, or the address of a contract")
    parser.add_argument("--target", default="", metavar="cuda:N", help="the GPU in question (default: the first)")
    parser.add_argument("--cases", type=int, default=200, metavar="N", help="at least N cases that give words (default 200)")
    parser.add_argument("--words", type=int, default=0, metavar="N", help="and at least N output words")
    parser.add_argument("--seconds", type=float, default=None, metavar="S", help="stop after S seconds whatever was reached")
    parser.add_argument("--sharp", action="store_true", help="ask each case where rounding shows")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="base seed of the draws (default 0)")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--json", type=Path, default=Path(".bitverdict/crosscheck.jsonl"), metavar="FILE", help="a line a case")
    parser.add_argument("--without-moved-models", action="store_true", help="do not count what wrong models would have shown")


def run(arguments: argparse.Namespace) -> int:
    """Compare as asked and print the tables; exit status 0 when nothing differs, 1 when something does, 5 when nothing ran."""
    from bitverdict.harness.lab.crosscheck import Tally, crosscheck, write_rows

    if ":" not in arguments.contract and arguments.contract not in kernels_with_a_contract():
        raise UsageError(f"kernel {arguments.contract!r}: has no contract; one of {', '.join(kernels_with_a_contract())}")
    hardware = target(arguments.target) if arguments.target else next((t for t in targets() if not t.emulated), None)
    if hardware is None or hardware.emulated:
        raise UsageError(
            f"target {arguments.target or 'cuda:0'!r}: a GPU is needed, and none is visible here; `run` judges on emulated targets"
        )
    jobs = arguments.jobs or os.cpu_count() or 1
    tally, console = Tally(), report.console()
    rows = crosscheck(
        arguments.contract,
        hardware,
        cases=arguments.cases,
        words=arguments.words,
        seed=arguments.seed,
        jobs=jobs,
        with_moved_models=not arguments.without_moved_models,
        sharp=arguments.sharp,
        seconds=arguments.seconds,
    )
    with console.status("") as status:
        for count, row in enumerate(write_rows(arguments.json, rows), 1):
            tally.add(row)
            status.update(f"{count} cases, {sum(tally.words.values()):,} words, {len(tally.wrong_rows)} cases differ")
    _show(console, tally, arguments, hardware)
    return 5 if not tally.words else 1 if tally.wrong_rows else 0


def _show(console: Console, tally: Tally, arguments: argparse.Namespace, hardware: Target) -> None:
    from rich.table import Table

    from bitverdict.harness.lab.crosscheck import MOVED_MODELS

    table = Table(title=f"{arguments.contract} on {hardware.name} ({hardware.model or hardware.arch}): words of the GPU")
    columns = ["dtype", "cases", "words", "differ from the plan", f"differ from emulated:{hardware.arch}"]
    for column in [*columns, *([] if arguments.without_moved_models else [f"would differ: {name}" for name in MOVED_MODELS])]:
        table.add_column(column, justify="left" if column == "dtype" else "right")
    kinds = sorted(tally.cases)
    for kind in [*kinds, "all"]:
        row_kinds = kinds if kind == "all" else [kind]
        numbers = [
            sum(tally.cases[k] for k in row_kinds),
            sum(tally.words[k] for k in row_kinds),
            *(sum(tally.differ[k, side] for k in row_kinds) for side in ("plan", "emulation")),
        ]
        words = max(numbers[1], 1)
        moved = (
            [] if arguments.without_moved_models else [sum(tally.moved_words[k, name] for k in row_kinds) for name in MOVED_MODELS]
        )
        table.add_row(kind, *(f"{n:,}" for n in numbers), *(f"{n:,} ({n / words:.1%})" for n in moved))
    console.print(table)
    if tally.outcomes:
        told = (f"{kind} {outcome or 'no elements'} {count}" for (kind, outcome), count in sorted(tally.outcomes.items()))
        console.print("gave no words: " + ", ".join(told))
    wrong = f"{len(tally.wrong_rows)} of them differ or end otherwise than expected"
    console.print(f"{len(tally.keys):,} distinct cases; {wrong}; rows in {arguments.json}")
    for row in tally.wrong_rows[:8]:
        said = row["wrong"].strip().splitlines()[-1]
        console.print(f"  {row['kind']}: {said} {row['first'][:3]}\n    {row['key']}", markup=False, style="red")
