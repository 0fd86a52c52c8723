"""The corpus (`benchmarks/corpus.py`) on the emulated GPU and again on a real one, launch by launch, byte for byte.

Run: `python -m benchmarks.corpus_replay FOLDER --on cuda:0 --jobs N --results FILE [--page FILE]`. FOLDER is that of `corpus.py`,
with the packages installed; what is not there is left out by name. Beside the entries of the corpus it launches operations of
FlagGems on `LARGE` elements, for words, and the probes (`benchmarks/fusion_probes.py`), for what is known to be hard: sums and
scans of products, carried sums, rows of flash decoding. `--what clusters`: multicast, layouts converted between CTAs, im2col.

`--ptx` executes the PTX of each launch too (`harness/ptx_machine/`), on the bytes from before it: where neither differs from the
tile program, the real GPU gave the words of the executed PTX.

`--whole S` ends the run in time; a run with the same results file goes on where that ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.campaign import Option, parse, run_script

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import torch

from benchmarks.corpus import entries
from benchmarks.corpus_entry import Entry, Given, Package
from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.frontends.cli_replay_launches import arch_of, progress
from bitverdict.harness.lab.pages.launch_replay import page
from bitverdict.harness.ptx_machine.below_the_tile_program import PtxTwin
from bitverdict.harness.ptx_machine.open_words import OpenWords
from bitverdict.harness.report.launch_replay.campaign import FIRST_CONFIGURATION, Run, Task, carry_out, read
from bitverdict.harness.report.launch_replay.summary import lines, sum_rows

LARGE = 1 << 23
ONE = "abs neg exp sigmoid tanh relu sqrt rsqrt reciprocal silu gelu square ceil cos erf log".split()
TWO = "add sub mul true_divide maximum minimum sigmoid_backward tanh_backward".split()
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
CORPUS, OPERATIONS, PROBES, CLUSTERS = "corpus", "large", "probes", "clusters"


def ready(package: Package, folder: Path) -> bool:
    """Whether the package can be imported, from its own folder or the environment; it is, and made ready."""
    if package.installed and not (folder / package.name / "installed").exists():
        return False
    if package.installed:
        sys.path.insert(0, str(folder / package.name))
    for name, value in package.environment.items():
        os.environ[name] = value.format(folder=folder)
    package.prepare()
    return True


def of_entry(entry: Entry) -> str:
    """Run an entry; what it computes is held to its reference elsewhere."""
    for _ in entry.run(Given(entry.name)):
        pass
    return ""


def operation(name: str, dtype: torch.dtype, operands: int) -> None:
    """A pointwise operation of FlagGems on LARGE elements: the same values over and over, each at another place."""
    import flag_gems

    given = Given(f"{name} {dtype}")
    some = [given.uniform(0.01, 4.0, 4099, dtype=dtype) for _ in range(operands)]
    getattr(flag_gems, name)(*(each.repeat(LARGE // 4099 + 1)[:LARGE] for each in some))


def with_ptx(call: Callable[[], Any], twin: PtxTwin) -> str:
    """Run a task; what it says is what its PTX came to, as `ptx_lines` reads it."""
    call()
    return json.dumps(
        {
            "words": sum(each.words for each in twin.results),
            "launches": sum(not each.not_run for each in twin.results),
            "differ": [f"{each.kernel}: {each.difference}"[:150] for each in twin.results if each.difference][:1],
            "not run": [f"{each.kernel}: {each.not_run}"[:80] for each in twin.results if each.not_run][:1],
        }
    )


def ptx_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What the PTX of all tasks came to."""
    said = [(row["task"], json.loads(row["said"])) for row in rows if row["event"] == "task" and row["said"].startswith("{")]
    words, launches = (sum(each[name] for _, each in said) for name in ("words", "launches"))
    differ = [f"{task}: {text}" for task, each in said for text in each["differ"]]
    yield f"executed as PTX: {launches:,} launches of {len(said):,} tasks, {words:,} words stored; {len(differ)} tasks differ"
    yield from differ
    yield from sorted({f"not executed as PTX: {text}" for _, each in said for text in each["not run"]})


def here(folder: Path, run: Run) -> dict[str, bool]:
    """Whether each package is here. Those that are have been imported, as on the emulated GPU."""
    found: dict[str, bool] = {}
    with emulated(run.arch, options=run.options):
        for package in {entry.package.name: entry.package for entry in entries()}.values():
            try:
                found[package.name] = ready(package, folder)
            except Exception as error:
                found[package.name] = False
                print(f"{package.name}: {type(error).__name__}: {error}", file=sys.stderr)
            if not found[package.name]:
                print(f"{package.name} {package.version}: is not here, and left out", file=sys.stderr, flush=True)
    return found


def tasks(folder: Path, of: list[str], only: str, run: Run) -> Iterator[Task]:
    """What is run: the longest first. It is asked when no GPU is seen any more: whatever a package asks of one, none is used."""
    found = here(folder, run)
    listed: list[tuple[str, str, Callable[[], Any]]] = []
    if PROBES in of:
        from benchmarks.fusion_probes import KINDS, launch_kind

        listed += [("probe", kind, partial(launch_kind, kind)) for kind in KINDS]
    if CORPUS in of:
        listed += [(e.package.name, e.name, partial(of_entry, e)) for e in entries() if found[e.package.name]]
    if OPERATIONS in of and found["flag_gems"]:
        for dtype in DTYPES:
            for names, operands in ((ONE, 1), (TWO, 2)):
                for name in names:
                    call = partial(operation, name, dtype, operands)
                    listed.append(("flag_gems", f"{name}, {str(dtype).removeprefix('torch.')}, {LARGE} elements", call))
    if CLUSTERS in of:
        from tests.emulator.memory.test_im2col_loads import FORMS, launched
        from tests.emulator.test_clusters import launch_plain, multicast_rows
        from tests.support import cluster_kernels

        listed.append(("clusters", "multicast", partial(multicast_rows, cluster_kernels, "cuda")))
        listed += [("clusters", f"{n} CTAs of plain Triton", partial(launch_plain, 256, 16, 16, n, "cuda")) for n in (2, 4)]
        listed += [("clusters", f"im2col, {name}", partial(launched, form, "cuda")) for name, form in FORMS.items()]
    for package_name, name, call in listed:
        if only in f"{package_name}: {name}":
            yield Task(f"{package_name}: {name}", call)


def main(arguments: list[str] | None = None) -> int:
    given = parse(
        __doc__, "folder/", argv=arguments, on=Option("cuda:0", "cuda:N, or emulated:sm_NN to try it out"), arch="", jobs=0,
        configurations=(FIRST_CONFIGURATION, "1", "3"), seconds=Option(120.0, "the limit of a task"),
        whole=Option(0.0, "the limit of the run"),
        what=Option((OPERATIONS, PROBES, CORPUS), choices=(OPERATIONS, PROBES, CORPUS, CLUSTERS)), only="", ptx=False, results=Path,
        page=Path, of=Option("", "the commit, the machine and the date, for the page"),
    )  # fmt: skip
    if given.page:
        given.page.write_text(page(given.page.read_text(), sum_rows(read(given.results)), given.of))
        return 0
    torch.set_num_threads(1)
    sys.modules.setdefault("transformers", None)  # type: ignore[arg-type]  # docs/coverage.md is measured without it
    folder = given.folder.resolve()
    arch = given.arch or arch_of(given.on)
    twin = PtxTwin()
    options = LaunchOptions(takes_cpu_tensors=False, whole_storages=True, probes=(OpenWords(), *([twin] if given.ptx else [])))
    run = Run(arch, given.on, given.jobs, given.seconds, given.whole, given.configurations, given.results, options, progress)
    listed = tasks(folder, given.what, given.only, run)
    rows = carry_out((Task(each.name, partial(with_ptx, each.run, twin)) for each in listed) if given.ptx else listed, run)
    told = sum_rows(rows)
    print("\n".join([*lines(told), *(ptx_lines(rows) if given.ptx else ())]))
    return 0 if told.is_equal else 1


if __name__ == "__main__":
    run_script(main)
