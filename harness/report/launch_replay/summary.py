"""What the rows of a replay come to: counts, the launches that differ, and what was not compared and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
COUNTS = ("words", "written", "bytes", "differing", "enclosed", "enclosed_differing", "outside")
BOUND = "enclosed words outside of their enclosure"


@dataclass
class Summary:
    """Sums over the launches that were compared. `differing` does not count words inside an enclosure; `lost` are launches that
    were recorded, and of which no row says anything."""

    tasks: int = 0
    launches: int = 0
    kernels: int = 0
    words: int = 0
    written: int = 0
    bytes: int = 0
    differing: int = 0
    enclosed: int = 0
    enclosed_differing: int = 0
    outside: int = 0
    with_atomics: int = 0
    lost_launches: int = 0
    states: Counter = field(default_factory=Counter)  # of tasks
    not_compared: Counter = field(default_factory=Counter)  # reason -> launches
    raised_rows: list[Row] = field(default_factory=list)  # launches that the machine did not run to the end
    at_fault: list[Row] = field(default_factory=list)  # the first launch of each kernel that differs, or lies outside

    @property
    def is_equal(self) -> bool:
        """Whether everything that was launched and compared is equal, inside of enclosures, and nothing was lost on the way."""
        return not (self.differing or self.outside or self.lost_launches or self.raised_rows)

    @property
    def sentence(self) -> str:
        return (
            f"{self.launches:,} launches of {self.kernels:,} kernels, {self.words:,} words compared, {self.written:,} written: "
            f"{self.differing:,} differ outside of enclosures; {self.enclosed:,} enclosed, {self.enclosed_differing:,} of these "
            f"another word, {self.outside:,} outside of their bounds; {sum(self.not_compared.values()):,} launches not compared, "
            f"{len(self.raised_rows):,} not run to the end, {self.lost_launches:,} lost"
        )


def sum_rows(rows: Iterable[Row]) -> Summary:
    summary, kernels, reported_kernels = Summary(), set[tuple[str, str]](), set[str]()
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    launch_counts: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row["task"], row["configuration"]
        if row["event"] == "task":
            summary.tasks += 1
            summary.states[row["state"]] += 1
            launch_counts[key] = row.get("launches", 0)
            continue
        numbers[key].add(row["launch"])
        if "not_compared" in row:
            summary.not_compared[row["not_compared"].partition(":")[0]] += 1
            continue
        if "raised" in row:
            summary.raised_rows.append(row)
            continue
        summary.launches += 1
        summary.with_atomics += row["atomics"]
        kernels.add((row["task"].partition(":")[0], row["kernel"]))
        for name in COUNTS:
            setattr(summary, name, getattr(summary, name) + row[name])
        if (row["differing"] or row["outside"]) and row["kernel"] not in reported_kernels:
            reported_kernels.add(row["kernel"])
            summary.at_fault.append(row)
    summary.kernels = len(kernels)
    summary.lost_launches = sum(len(set(range(count)) - numbers[key]) for key, count in launch_counts.items())
    return summary


def lines(summary: Summary) -> list[str]:
    """The summary as a person reads it."""
    text_lines = [summary.sentence]
    text_lines += [f"tasks: {', '.join(f'{count} {state}' for state, count in sorted(summary.states.items()))}"]
    text_lines += [f"not compared, {count} launches: {reason}" for reason, count in summary.not_compared.most_common()]
    for row in summary.at_fault:
        where = f"{row['task']} (configuration {row['configuration']}), launch {row['launch']}, {row['kernel']}{row['grid']}"
        if "first" in row:
            difference = row["first"]
            text_lines.append(
                f"{where}: {row['differing']:,} of {row['words']:,} words differ; first "
                f"{difference['storage']}[{difference['index']}]: "
                f"got {difference['got']}, expected {difference['expected']}" + (" (it has atomics)" if row["atomics"] else "")
            )
        if "first_outside" in row:
            difference = row["first_outside"]
            got, low, high = difference["keys"]
            text_lines.append(
                f"{where}: {row['outside']:,} {BOUND}; first at byte {difference['offset']} of {difference['storage']}: "
                f"key {got}, which must be in {low}..{high}"
            )
    text_lines += [
        f"{row['task']} (configuration {row['configuration']}), launch {row['launch']}, {row['kernel']}: {row['raised']}"
        for row in summary.raised_rows
    ]
    return text_lines


__all__ = ["Summary", "lines", "sum_rows"]
