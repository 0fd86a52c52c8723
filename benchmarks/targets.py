"""Every shipped kernel on every emulated target: a few required cases each, or the missing feature. Prints docs/targets.md.

Run: `python -m benchmarks.targets [--cases N] [--seconds S] > docs/targets.md` (1 case and 300 s). What the time does not reach is
printed as "not judged". Exit status 1 where a case did not pass. After a change of some kernels or targets:
`python -m benchmarks.targets --renew docs/targets.md [--target ARCH] [STEM ...]` judges and writes those cells, and the cells that
are out of date; the others stay. `tests/docs/test_targets_page.py` holds the page to the kernels, targets and features there are. A
kernel or target that is in no frozen list (`harness/report/required_lists.py`) may lack its row or column.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.campaign import Option, parse, run_script
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.architectures import CHIPS, EMULATED_ARCHITECTURES
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.report.required_lists import frozen_architectures, frozen_kernels
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.reference.tensor_core.lookup import ALL_INSTRUCTIONS

Cell = tuple[str, str]
REFUSED_FOR_SM_75 = {
    ("fp16", "bf16"): "Feature '.bf16' requires .target sm_80 or higher",
    ("fp32", "e5m2"): "Feature 'cvt.f16x2.f32' requires .target sm_80 or higher",
}
SM_75 = f"""
## sm_75

There is no emulated sm_75 (T4). Triton 3.9.0 compiles for it, and makes no `mma.sync`: `tl.dot` of fp16 is a chain of fp32 fused
multiply-adds. Its ptxas refuses some conversions. The emulated GPU stops before ptxas, so it would pass them:

| conversion | ptxas for sm_75 |
| --- | --- |
{chr(10).join(f"| {source} to {goal} | {message} |" for (source, goal), message in REFUSED_FOR_SM_75.items())}

`python -m pytest -n 0 tests/docs/test_targets_page.py -k sm_75` asks the compiler. `reference.tensor_core` has its m16n8k8 of fp16
by MMA-Sim, and `bitverdict lab record --send` records its words on a T4 ([sending_words.md](sending_words.md))."""
PASSED = re.compile(r"[1-9]\d* pass; [\d,]+ words")


def lacking_of(stems: Sequence[str], archs: Sequence[str] = EMULATED_ARCHITECTURES) -> dict[Cell, str]:
    """The features that a target lacks for a kernel, in words, of each cell where there are some."""
    found = {}
    for stem in stems:
        for arch in archs:
            source = CaseSource(stem, target(f"emulated:{arch}"))
            if source.missing_features:
                found[stem, arch] = ", ".join(sorted(map(str, source.missing_features)))
    return found


def cells_of(text: str) -> dict[Cell, str]:
    """The cells of a printed page, by kernel and target. ValueError for a text without the table."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in row] for row in rows]
    heads = [row for row in table if row[0] == "kernel"]
    if len(heads) != 1:
        raise ValueError(f"{len(heads)} tables of kernels: the page has one, which begins with `| kernel |`; print it anew")
    return {
        (row[0], arch): cell
        for row in table
        if len(row) == len(heads[0]) and row[0] not in ("kernel", "---")
        for arch, cell in zip(heads[0][1:], row[1:], strict=True)
    }


def kernels_due(cells: Mapping[Cell, str]) -> list[str]:
    """The kernels that a page with `cells` must have: those of the frozen list, and new ones that have a row."""
    due = {*frozen_kernels(), *(stem for stem, _ in cells)}
    return [stem for stem in kernels_with_a_contract() if stem in due]


def targets_due(text: str) -> list[str]:
    """The emulated architectures that the page must have: the frozen ones, and new ones that have a column."""
    due = {*frozen_architectures(), *(arch for _, arch in cells_of(text))}
    return [arch for arch in EMULATED_ARCHITECTURES if arch in due]


def out_of_date(text: str, stems: Sequence[str], archs: Sequence[str] = EMULATED_ARCHITECTURES) -> list[Cell]:
    """Cells of `stems` on `archs` and of the page that do not say what they should: the lacking features, else passes alone."""
    held = cells_of(text)
    lacking = lacking_of(stems, archs)
    due = {(stem, arch): f"needs {lacking[stem, arch]}" if (stem, arch) in lacking else None for stem in stems for arch in archs}
    wrong = [cell for cell, what in due.items() if not (held.get(cell) == what if what else PASSED.fullmatch(held.get(cell, "")))]
    return wrong + [cell for cell in held if cell not in due]


def work(cells: list[Cell], most: int, until: float) -> Iterator[tuple[Case, Target]]:
    """The first required cases of each cell, until the time `until`."""
    for stem, arch in cells:
        if time.monotonic() < until:
            machine = target(f"emulated:{arch}")
            yield from ((case, machine) for case in CaseSource(stem, machine).required()[:most])


def told(verdicts: Counter[Decision], words: int) -> str:
    counts = (f"{count} {decision.value}" for decision, count in sorted(verdicts.items(), key=lambda row: row[0].value))
    return f"{', '.join(counts)}; {words:,} words"


def parts(stems: list[str], whole: set[Cell], archs: Sequence[str]) -> Iterator[str]:
    """Rows of what a target lacks for a part of a kernel, of the cells that are not lacking as a `whole`: targets alike in one."""
    for stem in stems:
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for arch in archs:
            if (stem, arch) not in whole:
                for what, missing in resolve(stem).lacking_in_part(target(f"emulated:{arch}")).items():
                    found[what, ", ".join(sorted(map(str, missing)))].append(arch)
        yield from (f"| {what} | {stem} | {', '.join(alike)} | {missing} |" for (what, missing), alike in found.items())


def page(
    stems: list[str], most: int, judged: dict[Cell, str], lacking: dict[Cell, str], archs: Sequence[str] = EMULATED_ARCHITECTURES
) -> str:
    """The page: kernels by targets, then the evidence that each target's numbers rest on."""
    cells = judged | {cell: f"needs {what}" for cell, what in lacking.items()}
    lines = [
        "# Every kernel on every emulated target",
        "",
        f"`python -m benchmarks.targets --cases {most}` printed this page: "
        f"at most {most} required cases of each kernel on each target.",
        "A cell has the verdicts of the cases that were judged and the output words compared, "
        "or the features that the target lacks.",
        "A pass of 0 words is an expected refusal or fault. No GPU was run for this page: each target is a model.",
        "A kernel without a row is not measured yet, nor a target without a column.",
        "",
        f"| kernel | {' | '.join(archs)} |",
        f"| --- | {' | '.join('---' for _ in archs)} |",
        *(f"| {stem} | {' | '.join(cells.get((stem, arch), 'not judged') for arch in archs)} |" for stem in stems),
        "",
        "What no case asks of a target, though the kernel can do it elsewhere, and the feature that is missing. "
        "On NVIDIA's the refusal",
        "of a type is judged in its place:",
        "",
        "| part of a kernel | kernel | target | needs |",
        "| --- | --- | --- | --- |",
        *parts(stems, set(lacking), archs),
        "",
        "What the numbers of each target's matrix instructions rest on ([arithmetic.md](arithmetic.md)):",
        "",
        "| target | chip | evidence |",
        "| --- | --- | --- |",
    ]
    for arch in archs:
        kinds = sorted({rule.evidence.basis for rule in ALL_INSTRUCTIONS if rule.arch == arch})
        lines.append(f"| emulated:{arch} | {CHIPS[arch].model} | {'; '.join(kinds)} |")
    return "\n".join(lines) + "\n" + SM_75


def main() -> int:
    asked = parse(
        __doc__, "stems*", cases=1, seconds=300.0, renew=Option(Path, "write these cells, and those out of date, into this page"),
        target=Option([], choices=EMULATED_ARCHITECTURES),
    )  # fmt: skip
    every = list(kernels_with_a_contract())
    lacking = lacking_of(every if asked.renew else asked.stems or every)
    kept = cells_of(asked.renew.read_text()) if asked.renew else {}
    wanted = [
        (stem, arch)
        for stem in asked.stems or every
        for arch in asked.target or EMULATED_ARCHITECTURES
        if asked.stems or asked.target or not asked.renew
    ]
    stale = out_of_date(asked.renew.read_text(), every) if asked.renew else []
    cells = [
        cell
        for cell in dict.fromkeys(wanted + stale)
        if cell not in lacking and cell[0] in every and cell[1] in EMULATED_ARCHITECTURES
    ]
    judged: dict[Cell, Counter[Decision]] = defaultdict(Counter)
    words: Counter[Cell] = Counter()
    with WorkerPool(jobs=len(os.sched_getaffinity(0))) as pool:
        for case, machine, verdict in pool.judge_all(work(cells, asked.cases, time.monotonic() + asked.seconds)):
            judged[case.contract, machine.arch][verdict.decision] += 1
            words[case.contract, machine.arch] += verdict.words
            if verdict.decision is not Decision.PASS:
                print(f"{machine.name}: {verdict.outcome}: {verdict.message}\n  {case.to_json()}", file=sys.stderr)
    found = kept | {cell: told(verdicts, words[cell]) for cell, verdicts in judged.items()}
    text = page(every if asked.renew else asked.stems or every, asked.cases, found, lacking)
    if asked.renew:
        asked.renew.write_text(text + "\n")
    else:
        print(text)
    return int(any(decision is not Decision.PASS for verdicts in judged.values() for decision in verdicts))


if __name__ == "__main__":
    run_script(main)
