"""What a run shows: the table of verdicts, and lines on what is open."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bitverdict.harness.model.log_lines import Log, case_count
from bitverdict.harness.model.paths import path_from_here
from bitverdict.harness.model.verdict import BESIDE_BUCKETS, Decision
from bitverdict.harness.session.tally import OWN_BUCKETS, Row, Tally, own_share

COLUMNS = ("contract", "target", "dtype", "cases", "words", "pass", "fail", "inconclusive", "error", "basis", "cover")
DISPENSABLE = ("basis", "cover", "words", "cases", "dtype")  # what a narrow screen goes without, in this order
WIDEST = 1000  # columns of no screen
NOT_RUN_LINES = 3  # that are printed one by one where nobody asks for all


def table(tally: Tally, screen: Console | None = None) -> Table:
    """The verdict table: a line for each contract, target and dtype, with the columns that `screen` has room for."""
    counts = {"fail": Decision.FAIL, "inconclusive": Decision.INCONCLUSIVE, "error": Decision.ERROR}
    absent = [name for name, decision in counts.items() if name != "fail" and not tally.total(decision)]
    for number in range(len(DISPENSABLE) + 1):
        columns = [name for name in COLUMNS if name not in (*absent, *DISPENSABLE[:number])]
        verdict_table = _table_of(tally, columns)
        if screen is None or screen.measure(verdict_table, options=screen.options.update(width=WIDEST)).minimum <= screen.width:
            break
    return verdict_table


def _table_of(tally: Tally, columns: list[str]) -> Table:
    verdict_table = Table(title="Verdicts", title_justify="left", title_style="bold", pad_edge=False)
    for name in columns:
        is_text = name in ("contract", "target", "dtype", "basis", "cover")
        is_folded = name == "basis" or (name == "contract" and "basis" not in columns)
        width = 24 if name == "basis" else None
        verdict_table.add_column(
            name, justify="left" if is_text else "right", no_wrap=not is_folded, overflow="fold", min_width=width
        )
    for row, places in _lines(tally):
        shown = _cells(row, _cover(tally, places))
        verdict_table.add_row(*(shown[name] for name in columns), style="dim" if row.did_not_run else None)
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


def _cells(row: Row, cover: str) -> Mapping[str, str | Text]:
    """What stands under each column."""
    names = {"contract": row.contract, "target": row.target, "dtype": row.dtype}
    if row.did_not_run:
        return dict.fromkeys(COLUMNS, "") | names | {"cases": "-", "words": "-", "pass": "not run"}
    failures, inconclusive = row.decisions[Decision.FAIL], row.decisions[Decision.INCONCLUSIVE]
    rests = ", ".join(f"{name} {count}" for name, count in row.basis.most_common())
    rests += f" (largest share of the bound {row.bound_used:.2g})" if row.bound_used is not None else ""
    return {
        **names,
        "cases": str(row.cases),
        "words": f"{row.words:,}",
        "pass": Text(str(row.decisions[Decision.PASS]), style="green"),
        "fail": Text(str(failures), style="bold red" if failures else "dim"),
        "inconclusive": Text(str(inconclusive), style="yellow" if inconclusive else "dim"),
        "error": Text(str(row.decisions[Decision.ERROR]), style="bold magenta"),
        "basis": rests,
        "cover": cover,
    }


LEGEND = (
    "inconclusive: the inputs could not show a bug; error: bitverdict or the machine failed; not run: the target lacks a feature",
    "words: output elements compared; basis, and in how many cases: words (the plan's bits, and what its instruction is known "
    "by), real values (the mathematics, without rounding), bound (derived from the operands), exact (no rounding), refusal or "
    "fault (one that is expected)",
    "largest share of the bound: of what it allows, how much the result nearest to it used (1: all)",
    "cover: edge cases that every run includes, decided of required; the others are drawn from --seed, as --profile says",
    "a case: fields of problem and launch that are no default, regime (what values the operands have), data_seed, schedule (when "
    "what is asynchronous completes)",
)
"""Below the table: what its columns and the cases under it say."""


def not_run_lines(tally: Tally) -> list[str]:
    """Why lines of the table say "not run", "inconclusive" or "error": none ever reads as a pass."""
    lines = [f"not run: {row.contract}: {reason}" for row in tally.rows.values() for reason in sorted(row.messages)]
    for reason, count in tally.inconclusive.most_common(5):
        example = tally.inconclusive_examples.get(reason)
        lines += [f"inconclusive ({case_count(count)}): {reason}", *([f"  the first: {example}"] if example else [])]
    lines += [f"error ({case_count(count)}): {reason}" for reason, count in tally.errors.most_common(5)]
    return lines + [f"cancelled ({case_count(count)}): {reason}" for reason, count in tally.cancelled_cases.items()]


def time_line(tally: Tally) -> str:
    """Cases a second of the wall, and where the time of the workers went: summed over all of them, with the harness's own share."""
    spent = {name: seconds for name, seconds in tally.bucket_seconds.items() if name not in BESIDE_BUCKETS}
    parts = [f"{name} {seconds:.1f} s" for name, seconds in sorted(spent.items(), key=lambda item: -item[1]) if seconds >= 0.05]
    if not parts:
        return ""
    pace = f"{tally.ran / tally.wall:.1f} cases a second, {tally.wall:.1f} s; " if tally.wall and tally.ran else ""
    share = own_share(spent)
    return f"{pace}time in workers: {', '.join(parts)}; the harness's own ({' + '.join(OWN_BUCKETS)}): {share:.0%}"


def target_text(tally: Tally, seconds: float) -> str:
    """How many cases each target judged, and how long all of it took: what one reads of a run whose table nobody asked for."""
    counts = Counter[str]()
    for row in tally.rows.values():
        counts[row.target] += row.cases - row.decisions[Decision.NOT_RUN]
    numbers = ", ".join(f"{target} {count:,}" for target, count in sorted(counts.items()) if count)
    return f"{numbers} in {seconds:.1f} s; -v for the table" if numbers else ""


def _fold_not_run(tally: Tally) -> list[str]:
    """`not_run_lines`, of many kernels that were not run one with the number."""
    lines = not_run_lines(tally)
    not_run = [line for line in lines if line.startswith("not run: ")]
    if len(not_run) <= NOT_RUN_LINES:
        return lines
    kernels = len({line.split(": ")[1] for line in not_run})
    folded = f"not run: {len(not_run)} pairs of a kernel and a target, for a missing feature ({kernels} kernels; -v names them)"
    return [folded, *(line for line in lines if line not in not_run)]


def show(report_console: Console, tally: Tally, seconds: float, *, coverage: bool = False, with_table: bool = False) -> None:
    """What a run of so many `seconds` came to, the last line in one sentence. `with_table`: and the table, what its columns say,
    where time went."""
    if with_table:
        report_console.print(table(tally, report_console))
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
        report_console.print(line, markup=False, style="dim", soft_wrap=not report_console.is_terminal)
    if coverage:
        report_console.print("\n".join(coverage_lines(tally)), markup=False)
    for advice, count in tally.advice.most_common(5):
        line = f"advice ({case_count(count)}): {path_from_here(advice)}"
        report_console.print(line, markup=False, soft_wrap=not report_console.is_terminal)
    if where_time_went := time_line(tally) if with_table else "":
        report_console.print(where_time_went, markup=False, style="dim", soft_wrap=not report_console.is_terminal)
    by_target = "" if with_table else target_text(tally, seconds)
    sentence = Text.assemble((tally.sentence(), "bold"), (f" ({by_target})" if by_target else "", "dim"))
    report_console.print(sentence, soft_wrap=not report_console.is_terminal)


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
        lines.append(f"{dimension}: {len(counts)} classes seen, the rarest {rarest[0]!r} in {case_count(rarest[1])}")
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
