"""The figures of this repository beside their goals, and a ceiling of each: `python -m bitverdict.harness.lab.size`.

    python -m bitverdict.harness.lab.size [--list FIGURE] [--of FOLDER] [--wheel FILE] [--store]

Ends with status 1 where a figure is above its ceiling, which is the figure of the last --store, rounded up (`ceilings.json`).
Figures fall, and --store lowers their ceilings. What raises one is a decision, made by --store and seen in the diff. --list prints
what a figure counts, each entry with its file and line, --of those of one folder. --wheel fails where a wheel that was built holds
other files than are counted here.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bitverdict.harness.lab.dialect_names import dialect_names
from bitverdict.harness.lab.import_graph import arrows_up, emulator_circles
from bitverdict.harness.lab.source_figures import (
    Sources,
    any_arguments,
    bytes_in_wheel,
    core_dependencies,
    core_lines,
    long_files,
    repository_lines,
    short_files,
    total,
    wheel_bytes,
)
from bitverdict.harness.model.paths import ROOT

CEILINGS = Path(__file__).with_name("ceilings.json")
MB = 1_000_000


@dataclass(frozen=True)
class Figure:
    """What is counted, what counts it, and what it is to come to. `unit`: entries end in sizes, whose sum is divided by it; 0: the
    entries themselves are counted. A ceiling is a multiple of `step`: a mend of ten lines needs no new one."""

    name: str
    says: str
    goal: float
    entries: Callable[[Sources], list[str]]
    unit: int = 0
    step: float = 1

    def ceiling(self, value: float) -> float:
        return round(math.ceil(value / self.step) * self.step, 2)

    def value(self, entries: list[str]) -> float:
        return round(total(entries) / self.unit, 2) if self.unit else len(entries)


FIGURES = (
    Figure("core-lines", "lines of the product that a plain installation brings", 77_000, core_lines, 1, 1000),
    Figure("repository-lines", "lines of Python in the repository", 165_000, repository_lines, 1, 1000),
    Figure("wheel", "MB of the wheel, unpacked", 9, wheel_bytes, MB, 0.1),
    Figure("core-dependencies", "core dependencies that only an extra needs", 0, core_dependencies),
    Figure("arrows-up", "imports that run up the rooms of the design", 0, arrows_up),
    Figure("circles", "circles of the emulator's imports", 0, emulator_circles),
    Figure("long-files", "files over 400 lines without a reason in them", 0, long_files),
    Figure("short-files", "files of the product under 40 lines", 40, short_files),
    Figure("any-arguments", "arguments of the product typed Any", 500, any_arguments, step=10),
    Figure("dialect-names", "names of the product that say no thing", 0, dialect_names),
)


def measured_figures(sources: Sources) -> dict[str, list[str]]:
    """{figure: its entries}."""
    return {figure.name: figure.entries(sources) for figure in FIGURES}


def table(values: Mapping[str, float], ceilings: Mapping[str, float]) -> list[str]:
    """A line a figure: its value, ceiling and goal, and whether it is above its ceiling or has come to its goal."""
    lines = [f"{'figure':18s} {'value':>10s} {'ceiling':>10s} {'goal':>10s}"]
    for figure in FIGURES:
        value, ceiling = values[figure.name], ceilings.get(figure.name, 0)
        mark = "ABOVE ITS CEILING" if value > ceiling else "goal" if value <= figure.goal else ""
        lines.append(f"{figure.name:18s} {value:10,g} {ceiling:10,g} {figure.goal:10,g}  {figure.says} {mark}".rstrip())
    return lines


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bitverdict.harness.lab.size", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", choices=[figure.name for figure in FIGURES], metavar="FIGURE", help="print what it counts")
    parser.add_argument("--of", default="", metavar="FOLDER", help="with --list: entries of this folder alone")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="hold this wheel to the files that are counted")
    parser.add_argument("--store", action="store_true", help="make today's figures the ceilings")
    options = parser.parse_args(words)
    entries = measured_figures(Sources(ROOT))
    if options.wheel is not None and (unlike := set(bytes_in_wheel(options.wheel)) ^ set(entries["wheel"])):
        print(f"{options.wheel}: holds other files than pyproject.toml says: {sorted(unlike)[:5]}", file=sys.stderr)
        return 1
    if options.list:
        print("\n".join(entry for entry in entries[options.list] if entry.startswith(options.of)))
        return 0
    values = {figure.name: figure.value(entries[figure.name]) for figure in FIGURES}
    if options.store:
        stored = {figure.name: figure.ceiling(values[figure.name]) for figure in FIGURES}
        CEILINGS.write_text(json.dumps(stored, indent=1) + "\n")
    ceilings = json.loads(CEILINGS.read_text())
    print("\n".join(table(values, ceilings)))
    above = [name for name, value in values.items() if value > ceilings.get(name, 0)]
    for name in above:
        print(f"{name}: see --list {name}; make it fall again, or say in the commit why it rose and run --store", file=sys.stderr)
    return int(bool(above))


if __name__ == "__main__":
    raise SystemExit(main())
