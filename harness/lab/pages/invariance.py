"""docs/invariance.md: its text, and the table of all kernels as stored runs left it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitverdict.harness.checks.invariance.invariance_finding import End

EQUAL_CALL_CHECKS = ("repeat", "neighbours", "alignment", "schedules", "multiprocessors", "stream", "graph")
"""Checks of the same call: they have one column."""
MARK = "## All kernels\n"
"""Above it the page is written by hand, below it printed."""
COLUMNS = ("kernel", "on", "configurations", "the same call", "batch", "position", "zeros", "all configurations")


def read(path: Path) -> list[dict]:
    """The stored runs."""
    runs: list[dict] = json.loads(path.read_text())["runs"]
    return runs


def page(written: str, runs: Sequence[Mapping[str, object]]) -> str:
    """The whole page: `written` as far as `MARK`, then what `runs` came to."""
    head, _, _ = written.partition(MARK)
    return f"{head}{MARK}\n" + "\n".join(_lines(runs)) + "\n"


def _lines(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "Printed from `tests/hardware_words/invariance.json` by `bitverdict lab pages`."
    yield "`python -m benchmarks.invariance` makes the runs: a case in each configuration, and one of each type in all."
    yield ""
    yield "| basis | machine | date, commit | Triton, torch | cases | words compared |"
    yield "| --- | --- | --- | --- | ---: | ---: |"
    for run in runs:
        words = sum(check["words"] for kernel in run["kernels"].values() for check in kernel["checks"].values())
        place = f"{run['date']}, {run['commit']}"
        versions = f"{run['triton']}, {run['torch']}"
        cases = f"{run['cases']} of {run['planned']}"
        yield f"| {basis(run)} | {run['machine']} | {place} | {versions} | {cases} | {words:,} |"
    yield ""
    yield from LEGEND
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"| {' | '.join('---' for _ in COLUMNS)} |"
    for name in sorted({name for run in runs for name in run["kernels"]}):
        for run in runs:
            if (kernel := run["kernels"].get(name)) is not None:
                yield f"| {' | '.join(row(name, run, kernel))} |"
    others = [line for run in runs for line in _causes(run)]
    if others:
        yield ""
        yield "What gives other words, the first of each:"
        yield ""
        yield from others


LEGEND = (
    "*The same call* is `repeat`, `neighbours`, `alignment` and, as the target has them, `schedules`, `multiprocessors`, `stream`",
    "and `graph`. *Batch* and *position* name the sizes along which a row has the same bits. *Zeros* names the sizes behind which",
    "zeros change no word. *All configurations* names the fields that decide words, or says that all give the same words.",
    "A kernel without a row is not measured yet.",
)


def basis(run: Mapping[str, Any]) -> str:
    """What a run rests on: "emulated sm_90", "real sm_90 (H100)"."""
    if run["machine"] == "emulated":
        return f"emulated {run['arch']}"
    model, _, _ = run["machine"].removeprefix("NVIDIA ").partition(" ")
    return f"real {run['arch']} ({model})"


def row(name: str, run: Mapping[str, Any], kernel: Mapping[str, Any]) -> list[str]:
    checks: Mapping[str, Mapping[str, Any]] = kernel["checks"]
    return [
        name,
        basis(run),
        str(kernel["configurations"]),
        _equal_calls_cell([checks[each] for each in EQUAL_CALL_CHECKS if each in checks]),
        _sizes(checks, "batch "),
        _sizes(checks, "position "),
        _sizes(checks, "zeros "),
        _configurations(checks.get("configurations"), kernel.get("decided by", ())),
    ]


def _equal_calls_cell(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return "not run"
    fails = sum(each["fails"] for each in found)
    other = sum(each.get(End.DIFFERS, 0) for each in found)
    words = sum(each["words"] for each in found)
    said = f"FAILS {fails} times" if fails else f"other words {other} times" if other else "same"
    return f"{said}: {words:,} words" if words else "not decided"


def _sizes(checks: Mapping[str, Mapping[str, object]], prefix: str) -> str:
    """The sizes with the same words, and those with others."""
    named = {name.removeprefix(prefix): check for name, check in checks.items() if name.startswith(prefix)}
    other = [name for name, check in named.items() if check.get(End.DIFFERS) or check.get(End.FAULT)]
    same = [name for name, check in named.items() if check.get(End.SAME_WORDS) and name not in other]
    said = [", ".join(same)] if same else []
    said += [f"other words: {', '.join(other)}"] if other else []
    return "; ".join(said) or "-"


def _configurations(check: Mapping[str, Any] | None, deciding_fields: Sequence[str]) -> str:
    if check is None:
        return "-"
    same_count, other_count = check.get(End.SAME_WORDS, 0), check.get(End.DIFFERS, 0)
    if not same_count and not other_count:
        return "no other one takes the case"
    if not other_count:
        return f"same words ({same_count} compared)"
    by = f" by {', '.join(f'`{name}`' for name in deciding_fields)}" if deciding_fields else ""
    return f"other words{by} ({other_count} of {same_count + other_count})"


def _causes(run: Mapping[str, Any]) -> Iterator[str]:
    for name, kernel in run["kernels"].items():
        for check, found in kernel["checks"].items():
            if "first" in found and check != "configurations":
                first = found["first"]
                yield f"- {name} on {basis(run)}, {check}: {first['changed']}: {first['cause']}"
