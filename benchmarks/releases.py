"""Every shipped kernel on the release of Triton that is installed: a required case on each target. Writes its column of a page.

In each release's environment: `python -m benchmarks.releases --into docs/releases.md [--cases N] [--seconds S] [STEM ...]`
(4 cases of each target, 300 s). The columns of other releases stay. What the time does not reach is written as "not judged".
`tests/docs/test_releases_page.py` holds the page to the records. Exit status 1 where a case fails.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import torch
import triton

from benchmarks.campaign import Option, commit, parse, run_script
from benchmarks.targets import Cell, cells_of, kernels_due, lacking_of, told, work
from bitverdict.harness.emulator.releases import RELEASES, Release, installed_release
from bitverdict.harness.model import triton_release
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.workers.pool import WorkerPool

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
JUDGED = "judged at"  # a row of the page: commit, day and torch of each column


def facts_of(release: Release) -> list[str]:
    """What the record of `release` says, as the cells of a row."""
    version = ".".join(map(str, release.numbers))
    hazards = [f"`{each.operation}` and `{each.other_operation}`" for each in release.hazards]
    return [
        "a balanced tree" if triton_release.sums_by_tree(version) else "one after another",
        "twice below sm_90" if triton_release.converts_through_fp16(version) else "once",
        "2^-127" if triton_release.has_exact_scales(version) else "0",
        "0 - x" if release.negates_by_subtraction else "its sign changed",
        "tcgen05" if triton_release.has_tcgen05_int8(version) else "mma.sync",
        "LLVM's conversion" if release.inserting_passes else "the tile program",
        "; ".join(hazards),
        "; ".join(f"{each.form} on {', '.join(each.architectures)}" for each in release.compiler_faults) or "none known",
    ]


FACTS = ("a thread's sum in `tl.sum`", "fp32 to fp8 is rounded", "a scale of code 0", "`-x` of a float", "int8 products of sm_100",
         "barriers stand in", "hazards that the compiler makes", "what the compiler fails at")  # fmt: skip

MEASURED = (  # by other commands, whose results stand beside the table
    "Published kernels on Triton 3.8.0, emulated sm_90, 2026-11-30, by `python -m benchmarks.corpus FOLDER --package NAME",
    "--on sm_90`: 314 of 323 are right. flag_gems 5.0.2: 166 of 170, liger_kernel 0.8.5: 50 of 50, fla-core 0.6.0: 51 of 54",
    "(torch 2.11.0, 32 cores, bdc45944); sglang 0.5.23: 26 of 26, vllm 0.33.0: 21 of 23 (torch 2.14.1, two cores, b119f292).",
    "The other nine are those that are not right on 3.9.0 either: [what they are](coverage.md).",
    "",
    "Real launches on an NVIDIA H200, torch 2.11.0, 2026-11-30: on Triton 3.8.0 (bdc45944) and on 3.9.0 (c4a9c648) 332 tests",
    "passed, 153 skipped for a missing feature, by `pytest tests/kernel_contracts/test_contracts.py",
    "tests/kernel_contracts/test_large.py --bv-profile ci --bv-shards 16 --bv-target cuda:hopper`.",
    "",
    "All of bitverdict's own tests, `pytest -n 16` at c4a9c648, torch 2.11.0, Python 3.12, emulated, 2026-11-30: 10,973",
    "passed on Triton 3.6.0, 11,165 on 3.7.1, 11,852 on 3.8.0, in 278 to 318 s; 1,002, 825 and 147 were skipped for a missing",
    "feature; 33, 18, 20 failed. What failed stands on that machine, not on a release: no bubblewrap, ssh-keygen or site",
    "builder there, no history of git, plugins of pytest that load NumPy, a NumPy that Numba-CUDA does not know, processes",
    "without end that starved the tests beside them, and once a Ctrl-C that came later than a test expected. At d494e017 the",
    "same tests pass on Triton 3.6.0, 3.7.1 and 3.8.0 with torch 2.13.0 on two cores, those of Numba-CUDA left out, which is",
    "not installed there.",
)


def page(cells: dict[Cell, str], cases: int) -> str:
    """Kernels by releases, then the records."""
    stems, names = [*kernels_due(cells), JUDGED], [each.name for each in RELEASES]
    columns = [facts_of(release) for release in RELEASES]
    lines = [
        "# Every kernel on every release of Triton",
        "",
        "`python -m benchmarks.releases --into docs/releases.md`, run in each release's environment, wrote its",
        f"column: at most {cases} required cases of each kernel on each of {', '.join(TARGETS)}, all emulated, that can run it.",
        "A cell has the verdicts, the output words compared, and what keeps a case from being run. No GPU was run for this table.",
        "",
        f"| kernel | {' | '.join(names)} |",
        f"| --- | {' | '.join('---' for _ in names)} |",
        *(f"| {stem} | {' | '.join(cells.get((stem, name), empty_cell(stem)) for name in names)} |" for stem in stems),
        "",
        *MEASURED,
        "",
        "What differs, by the records (`harness/emulator/releases/records.py`, `harness/model/triton_release.py`):",
        "",
        f"| what | {' | '.join(names)} |",
        f"| --- | {' | '.join('---' for _ in names)} |",
        *(f"| {what} | {' | '.join(column[place] for column in columns)} |" for place, what in enumerate(FACTS)),
    ]
    return "\n".join(lines) + "\n"


def empty_cell(stem: str) -> str:
    """Of a row of the page where a column has nothing."""
    return "not kept" if stem == JUDGED else "not judged"


def reason_of(message: str) -> str:
    """What keeps a case from being run, without the release that the column names."""
    first_line = message.partition("\n")[0]
    lacking = first_line.removeprefix(f"triton {triton.__version__} ")
    return lacking if lacking != first_line else first_line.partition(":")[0]


def main() -> int:
    asked = parse(__doc__, "stems*", cases=4, seconds=300.0, into=Option(Path, "the page"), jobs=len(os.sched_getaffinity(0)))
    stems = asked.stems or list(kernels_with_a_contract())
    lacking, here = lacking_of(stems, TARGETS), installed_release().name
    wanted = [(stem, arch) for stem in stems for arch in TARGETS if (stem, arch) not in lacking]
    judged: dict[str, Counter[Decision]] = defaultdict(Counter)
    words, reasons = Counter[str](), defaultdict[str, set[str]](set)
    with WorkerPool(jobs=asked.jobs) as pool:
        for case, machine, verdict in pool.judge_all(work(wanted, asked.cases, time.monotonic() + asked.seconds)):
            judged[case.contract][verdict.decision] += 1
            words[case.contract] += verdict.words
            if verdict.decision is not Decision.PASS:
                reasons[case.contract].add(reason_of(verdict.message))
                print(f"{machine.name}: {verdict.outcome}: {verdict.message}\n  {case.to_json()}", file=sys.stderr)
    cells = cells_of(asked.into.read_text()) if asked.into and asked.into.exists() else {}
    cells |= {(stem, here): "; ".join([told(found, words[stem]), *sorted(reasons[stem])]) for stem, found in judged.items()}
    if not asked.stems:
        cells[JUDGED, here] = f"{commit()}, {time.strftime('%Y-%m-%d', time.gmtime())}, torch {torch.__version__.partition('+')[0]}"
    text = page(cells, asked.cases)
    if asked.into:
        asked.into.write_text(text)
    else:
        print(text)
    return int(any(found[Decision.FAIL] or found[Decision.ERROR] for found in judged.values()))


if __name__ == "__main__":
    run_script(main)
