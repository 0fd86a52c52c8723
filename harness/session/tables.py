"""What a run shows: the table of verdicts, and lines on what is open."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bitverdict.harness.model.log_lines import Log
from bitverdict.harness.model.verdict import BESIDE_BUCKETS, Decision
from bitverdict.harness.session.tally import OWN_BUCKETS, Row, Tally, own_share

NOT_RUN_LINES = 3  # that are printed one by one where nobody asks for all


def table(tally: Tally) -> Table:
    """The verdict table: a line for each contract, target and dtype."""
    verdict_table = Table(title="Verdicts", title_justify="left", title_style="bold", pad_edge=False)
    for name, justify in (
        ("contract", "left"),
        ("target", "left"),
        ("dtype", "left"),
        ("cases", "right"),
        ("words", "right"),
        ("pass", "right"),
    ):
        verdict_table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name in ("fail", "inconclusive", *(["error"] if tally.errors else [])):
        verdict_table.add_column(name, justify="right", no_wrap=True)
    verdict_table.add_column("basis", min_width=24)
    verdict_table.add_column("cover", no_wrap=True)
    for row, places in _lines(tally):
        _add(verdict_table, row, _cover(tally, places), with_errors=bool(tally.errors))
    return verdict_table


def _sort_rows(tally: Tally) -> list[Row]:
    return sorted(tally.rows.values(), key=lambda row: (row.contract, row.target, row.dtype))


def _lines(tally: Tally) -> Iterator[tuple[Row, list[tuple[str, str]]]]:
    """Each row, and the (contract, target) whose cover it tells: that of its own, where no row before it did."""
    told: set[tuple[str, str]] = set()
    for row in _sort_rows(tally):
        place = (row.contract, row.target)
        yield row, [] if place in told else [place]
        told.add(place)


def _cover(tally: Tally, places: list[tuple[str, str]]) -> str:
    decided, asked = (sum(counts.get(place, 0) for place in places) for counts in (tally.decided_counts, tally.required_counts))
    return f"{decided}/{asked}" if places else ""


def _add(verdict_table: Table, row: Row, cover: str, *, with_errors: bool) -> None:
    failures, inconclusive = row.decisions[Decision.FAIL], row.decisions[Decision.INCONCLUSIVE]
    if row.did_not_run:
        verdict_table.add_row(row.contract, row.target, row.dtype, "-", "-", "not run", style="dim")
        return
    rests = ", ".join(f"{name} {count}" for name, count in row.basis.most_common())
    rests += f" (largest share of the bound {row.bound_used:.2g})" if row.bound_used is not None else ""
    verdict_table.add_row(
        row.contract,
        row.target,
        row.dtype,
        str(row.cases),
        f"{row.words:,}",
        Text(str(row.decisions[Decision.PASS]), style="green"),
        Text(str(failures), style="bold red" if failures else "dim"),
        Text(str(inconclusive), style="yellow" if inconclusive else "dim"),
        *([Text(str(row.decisions[Decision.ERROR]), style="bold magenta")] if with_errors else []),
        rests,
        cover,
    )


LEGEND = (
    "inconclusive: the inputs could not show a bug; error: bitverdict or the machine failed; not run: the target lacks a feature",
    "words: output elements compared; basis, and in how many cases: words (the plan's bits, and what its instruction is known "
    "by), real values (the mathematics, without rounding), bound (derived from the operands), exact (no rounding), refusal or "
    "fault (one that is expected)",
    "largest share of the bound: of what it allows, how much the result nearest to it used (1: all)",
    "cover: edge cases that every run includes, decided of asked; the others are drawn from --seed, as --profile says",
    "a case: fields of problem and launch that are no default, regime (what values the operands have), data_seed, schedule (when "
    "what is asynchronous completes)",
)
"""Below the table: what its columns and the cases under it say."""


def not_run_lines(tally: Tally) -> list[str]:
    """Why lines of the table say "not run", "inconclusive" or "error": none ever reads as a pass."""
    lines = [f"not run: {row.contract}: {reason}" for row in tally.rows.values() for reason in sorted(row.messages)]
    for reason, count in tally.inconclusive.most_common(5):
        example = tally.inconclusive_examples.get(reason)
        lines += [f"inconclusive ({count} cases): {reason}", *([f"  the first: {example}"] if example else [])]
    lines += [f"error ({count} cases): {reason}" for reason, count in tally.errors.most_common(5)]
    return lines + [f"cancelled ({count} cases): {reason}" for reason, count in tally.cancelled_cases.items()]


def time_line(tally: Tally) -> str:
    """Cases a second of the wall, and where the time of the workers went: summed over all of them, with the harness's own share."""
    spent = {name: seconds for name, seconds in tally.bucket_seconds.items() if name not in BESIDE_BUCKETS}
    parts = [f"{name} {seconds:.1f} s" for name, seconds in sorted(spent.items(), key=lambda item: -item[1]) if seconds >= 0.05]
    if not parts:
        return ""
    pace = f"{tally.ran / tally.wall:.1f} cases a second, {tally.wall:.1f} s; " if tally.wall and tally.ran else ""
    share = own_share(spent)
    return f"{pace}time in workers: {', '.join(parts)}; the harness's own ({' + '.join(OWN_BUCKETS)}): {share:.0%}"


def target_line(tally: Tally) -> str:
    """How many cases each target judged, and how long it took: what one reads of a run whose table nobody asked for."""
    counts = Counter[str]()
    for row in tally.rows.values():
        counts[row.target] += row.cases - row.decisions[Decision.NOT_RUN]
    numbers = ", ".join(f"{target} {count:,}" for target, count in sorted(counts.items()) if count)
    return f"{numbers} in {tally.wall:.1f} s; -v for the table" if numbers else ""


def _fold_not_run(tally: Tally) -> list[str]:
    """`not_run_lines`, of many kernels that were not run one with the number."""
    lines = not_run_lines(tally)
    not_run = [line for line in lines if line.startswith("not run: ")]
    if len(not_run) <= NOT_RUN_LINES:
        return lines
    kernels = len({line.split(": ")[1] for line in not_run})
    folded = f"not run: {len(not_run)} pairs of a kernel and a target, for a missing feature ({kernels} kernels; -v names them)"
    return [folded, *(line for line in lines if line not in not_run)]


def show(report_console: Console, tally: Tally, *, coverage: bool = False, with_table: bool = False) -> None:
    """What a run came to, the last line in one sentence. `with_table`: and the table, what its columns say, where time went."""
    if with_table:
        report_console.print(table(tally))
    if tally.discrimination.places:
        report_console.print(tally.discrimination.table())
    for line in (
        *(LEGEND if with_table else ()),
        *(not_run_lines(tally) if with_table else _fold_not_run(tally)),
        *([f"few drawn: {tally.draw_shortfall}"] if tally.draw_shortfall else []),
        *(tally.scope.lines() if with_table else tally.scope.limit_lines()),
        *tally.completeness.lines(),
        *tally.discrimination.lines(),
    ):
        report_console.print(line, markup=False, style="dim", soft_wrap=True)
    if coverage:
        report_console.print("\n".join(coverage_lines(tally)), markup=False)
    for advice, count in tally.advice.most_common(5):
        report_console.print(f"advice ({count} cases): {advice}", markup=False)
    if line := time_line(tally) if with_table else target_line(tally):
        report_console.print(line, markup=False, style="dim", soft_wrap=True)
    report_console.print(tally.sentence(), markup=False, style="bold", soft_wrap=True)


def print_wrapped(report_console: Console, part: RenderableType) -> None:
    """Print a report: on a terminal its prose is wrapped between words, in a log each line stays whole."""
    if report_console.is_terminal:
        report_console.print(part, crop=False)
    else:
        report_console.print(part, soft_wrap=True)


def coverage_lines(tally: Tally) -> list[str]:
    """One line a dimension of the coverage: how many classes were seen, and the rarest of them."""
    lines = []
    for dimension, counts in sorted(tally.classes.items()):
        rarest = min(counts.items(), key=lambda item: item[1])
        lines.append(f"{dimension}: {len(counts)} classes seen, the rarest {rarest[0]!r} in {rarest[1]} cases")
    return lines


def text_of(*shown: object) -> str:
    """What `shown` looks like in a log of 140 columns, without colour."""
    page = Console(width=140, file=io.StringIO(), record=True)
    for item in shown:
        page.print(item, soft_wrap=True)  # a line to be copied stays whole
    return page.export_text()


def console(*, record: bool = False) -> Console:
    """Standard output; 160 columns where it is no terminal, so that logs keep the table whole."""
    shown = Console(record=record, highlight=False, soft_wrap=False)
    if not shown.is_terminal:
        log: Any = Log(sys.stdout)
        shown = Console(file=log, record=record, highlight=False, width=160)
    return shown
