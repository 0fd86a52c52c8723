"""The page of `benchmarks/corpus.py`: docs/coverage.md, from the outcomes of the corpus and of upstream's tests."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median

from benchmarks.corpus_entry import Entry
from benchmarks.corpus_examined import EXAMINED, TESTS, Examined
from benchmarks.corpus_run import INTERPRETER, RIGHT, WRONG, Outcome
from benchmarks.tutorial_cases import BY_TRITON, FAIL, LIMIT, NOT_RUN, PASS, REFUSED, Result

EXECUTED = (RIGHT, WRONG)


def page(
    wanted: Sequence[Entry],
    done: dict[tuple, Outcome],
    tests: Path | None,
    target: str,
    of: str = "",
    times: dict[tuple, Outcome] | None = None,
) -> str:
    """The whole page, Markdown. The tests were run at the commits `of`. `times`: of another run, whose launches are timed alone."""
    import torch
    import triton

    timed_at = ""
    if times is not None:
        done = {key: replace(o, launching=times[key].launching if key in times else 0.0) for key, o in done.items()}
        at = dict.fromkeys(times[key].commit for key, o in done.items() if o.launching and o.on == INTERPRETER)
        timed_at = f" at {', '.join(at)}"
    found = [done[each.package.name, each.name, target] for each in wanted if (each.package.name, each.name, target) in done]
    beside = {(o.package, o.entry): o for o in done.values() if o.on == INTERPRETER}
    lines = ["# Published kernels on the emulated GPU", ""]
    lines += ["Printed by `python -m benchmarks.corpus` and `python -m benchmarks.upstream_tests`.", ""]
    lines += [f"{date.today()}, Triton {triton.__version__}, torch {torch.__version__.split('+')[0]}, {target}.", ""]
    lines += _packages(wanted, found)
    lines += _speed(found, beside, timed_at)
    lines += ["## Not right", "", "| package | operation | state | said | at | whose |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [_missed(outcome) for outcome in found if outcome.state != RIGHT]
    lines += ["", *_examined(EXAMINED)]
    if tests is not None and tests.exists():
        from benchmarks.upstream_tutorials import read

        lines += _tests({result.case.key: result for result in read(tests)}.values(), of)
    lines += ["## Each operation", ""]
    lines += [
        "| package | operation | kernels | launches | state | seconds | in launches, ms | interpreter | in its launches, ms |"
    ]
    lines += ["| --- | --- | --- | ---: | --- | ---: | ---: | --- | ---: |"]
    lines += [_row(outcome, beside.get((outcome.package, outcome.entry))) for outcome in found]
    return "\n".join(lines) + "\n"


def kernels_of(outcomes: Iterable[Outcome]) -> set[tuple[str, str]]:
    """(package, kernel) of each kernel that was launched, or refused when it was."""
    return {(outcome.package, kernel) for outcome in outcomes for kernel in outcome.kernels}


def _packages(wanted: Sequence[Entry], found: list[Outcome]) -> list[str]:
    packages = {entry.package.name: entry.package for entry in wanted}
    lines = ["| package | version | commits | operations | kernels | executed | right | tolerance |"]
    lines += ["| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"]
    for name, package in packages.items():
        own = [outcome for outcome in found if outcome.package == name]
        version = package.version or "as installed"
        commits = ", ".join(dict.fromkeys(outcome.commit for outcome in own))
        lines.append(f"| {name} | {version} | {commits} | {_counts(own)} | {package.tolerance} |")
    lines.append(f"| all | | | {_counts(found)} | |")
    return [*lines, ""]


def _counts(outcomes: list[Outcome]) -> str:
    executed = [outcome for outcome in outcomes if was_executed(outcome)]
    right = [outcome for outcome in executed if outcome.state == RIGHT]
    shares = (_share(executed, outcomes), _share(right, executed))
    return f"{len(outcomes)} | {len(kernels_of(outcomes))} | {shares[0]} | {shares[1]}"


def was_executed(outcome: Outcome) -> bool:
    """Whether the launches were executed to their end, or to a fault that was found in them."""
    return outcome.state in EXECUTED or (outcome.state == FAIL and bool(outcome.kernels) and outcome.outcome not in OURS)


OURS = ("error", "process ended", "launcher error", "refused")
"""Outcomes of a failure that say nothing of the kernel: nothing was executed."""


def _share(part: Sequence, whole: Sequence) -> str:
    return f"{len(part)} ({100 * len(part) / len(whole):.0f} %)" if whole else "0"


def _speed(found: list[Outcome], beside: dict[tuple[str, str], Outcome], timed_at: str) -> list[str]:
    pairs = [(outcome, beside.get((outcome.package, outcome.entry))) for outcome in found if outcome.launching]
    by_package: dict[str, list[float]] = defaultdict(list)
    for mine, other in pairs:
        if other is not None and other.launching:
            by_package[mine.package].append(other.launching / mine.launching)
    ratios = [ratio for own in by_package.values() for ratio in own]
    states = Counter(outcome.state for outcome in beside.values())
    if not states:
        return []
    counts = ", ".join(f"{n} {state}" for state, n in states.most_common())
    said = f"Triton's interpreter ran {len(beside)} of these operations: {counts}."
    if ratios:
        slower, which = sum(ratio < 1 for ratio in ratios), "right and timed" if timed_at else "right"
        said += (
            f" Where both are {which} ({len(ratios)}), its launches take {median(ratios):.1f} times as long (median, by the"
            f" processor's clock{timed_at}; {min(ratios):.2f} at least); the emulated GPU is slower on {slower}."
        )
    if len(by_package) > 1:
        shares = (f"{median(own):.1f} of {name} ({len(own)})" for name, own in by_package.items())
        said += f" By package: {', '.join(shares)}."
    return [said, ""]


def _missed(outcome: Outcome) -> str:
    word = f"{outcome.state}: {outcome.outcome}" if outcome.outcome else outcome.state
    whose = next((each.whose for each in EXAMINED if each.holds(outcome.package, outcome.entry)), "")
    shown = (outcome.package, outcome.entry, word, outcome.said[:160], Path(outcome.where).name, whose)
    return "| " + " | ".join(_plain(each) for each in shown) + " |"


def _row(outcome: Outcome, other: Outcome | None) -> str:
    said = (other.state if other.state != FAIL else other.outcome) if other is not None else ""
    kernels = ", ".join(f"`{kernel}`" for kernel in outcome.kernels)
    shown = (
        outcome.package, outcome.entry, kernels, str(outcome.launches), outcome.state,
        f"{outcome.seconds:.1f}", f"{1e3 * outcome.launching:.1f}" if outcome.launching else "", said,
        f"{1e3 * other.launching:.1f}" if other is not None and other.launching else "",
    )  # fmt: skip
    return "| " + " | ".join(_plain(each) for each in shown) + " |"


def _examined(examined: Sequence[Examined]) -> list[str]:
    if not examined:
        return []
    lines = ["What was read to its cause:", ""]
    return [*lines, *(f"- {each.package}, {each.entry} ({each.whose}): {each.why}" for each in examined), ""]


def _tests(results: Iterable[Result], of: str) -> list[str]:
    """The section of upstream's tests: counts by file, then what did not pass."""
    groups: dict[tuple[str, str], Counter] = defaultdict(Counter)
    said: dict[tuple, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.case.file, result.case.target.removeprefix("emulated:")][result.state] += 1
        if result.state not in (PASS, NOT_RUN):
            said[result.case.file, result.state, result.outcome, _general(result.said)].append(result)
    shown = (PASS, REFUSED, FAIL, BY_TRITON, LIMIT)
    lines = ["## Triton's own tests", ""]
    lines += ["Three drawn parametrisations of each function, by upstream's own assertions. The files are a fork's copy of"]
    lines += [
        "triton-lang/triton at 9d9a2d7 (27 April 2026), the nearest to Triton 3.9 within reach. *Not run* is what skips itself,"
    ]
    lines += ["or launches nothing. *Refused by Triton* is mostly what 3.9 removed or renamed.", ""]
    lines += [f"Commits: {of}.", ""] if of else []
    lines += ["| file | target | sampled | not run | " + " | ".join(shown) + " | pass, of those run | of those that Triton takes |"]
    lines += ["| --- | --- |" + " ---: |" * (len(shown) + 4)]
    for (file, target), counts in sorted(groups.items()):
        run = sum(counts.values()) - counts[NOT_RUN]
        shares = [f"{100 * counts[PASS] / of:.0f} %" if of else "" for of in (run, run - counts[BY_TRITON])]
        cells = [str(sum(counts.values())), *(str(counts[state] or "") for state in (NOT_RUN, *shown)), *shares]
        lines.append(f"| {file} | {target} | " + " | ".join(cells) + " |")
    lines += ["", "| file | state | cases | for example | said |", "| --- | --- | ---: | --- | --- |"]
    for (file, state, outcome, _), alike in sorted(said.items(), key=lambda item: (item[0][0], -len(item[1]))):
        word = f"{state}: {outcome}" if outcome else state
        cells = [file, word, str(len(alike)), f"`{alike[0].case.case}`", alike[0].said[:160]]
        lines.append("| " + " | ".join(map(_plain, cells)) + " |")
    return [*lines, "", *_examined(TESTS)]


def _general(said: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?|%\w+", "#", said)[:80]


def _plain(text: str) -> str:
    """`text` as a cell of a table, without names of temporary folders."""
    return re.sub(r"(?<![\w.])/(?:[^\s/]+/)+", "", " ".join(text.split())).replace("|", "\\|")


__all__ = ["kernels_of", "page", "was_executed"]
