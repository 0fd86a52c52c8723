"""Published Triton kernels on the emulated GPU: each by its own launcher, with drawn operands, against a reference of torch.

Run: `python -m benchmarks.corpus FOLDER [--package NAME] [--only TEXT] [--seconds S] [--results FILE] [--again]`.
Packages are installed by name and version below FOLDER, without their dependencies: torch and Triton stay the environment's.
Nothing of them is part of this repository: `benchmarks/corpus_*.py` say how they are called and what the result should be.

Each entry runs in a process of its own with a time limit, on the emulated GPU and in Triton's interpreter. `--results FILE` keeps
each outcome as a line of JSON, and goes on where a run was ended; `--again` runs those once more that were not right. `--shard I/N`
runs each Nth entry, from the Ith on; the result files of all shards, one behind the other (`cat`), are that of one run.
`--ray` gives the entries to the Ray cluster at RAY_ADDRESS, by batches (docs/fleets.md).

A result is *right* where it is within the package's own tolerance of the reference in float64, rounded to the result's type; one of
integers, and what is only moved, must be equal. `--page` prints `docs/coverage.md` from the results, of `--tests` too
(`benchmarks/upstream_tests.py`).
"""

from __future__ import annotations

import fcntl
import multiprocessing
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from benchmarks.campaign import Option, append, commit, parse, records, refuse, run_script
from benchmarks.corpus_entry import Entry, Package
from benchmarks.corpus_run import INTERPRETER, RIGHT, Outcome, run_package
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.shard import Shard

SECONDS = 60.0


@cache
def entries() -> tuple[Entry, ...]:
    """All entries, package by package."""
    from benchmarks import (
        corpus_fla,
        corpus_flag_gems,
        corpus_gemlite,
        corpus_liger,
        corpus_sglang,
        corpus_torch,
        corpus_vllm,
        corpus_xformers,
    )

    served = (corpus_sglang, corpus_vllm)
    modules = (corpus_flag_gems, corpus_liger, corpus_fla, corpus_xformers, corpus_gemlite, corpus_torch, *served)
    return tuple(entry for module in modules for entry in module.ENTRIES)


def install(packages: Iterable[Package], folder: Path) -> None:
    """Each package in a folder of its own below `folder`, once, whichever of several processes comes first."""
    for package in packages:
        to = folder / package.name
        said = to / "installed"
        if not package.installed:
            continue
        with (folder / f"{package.name}.lock").open("w") as one:
            fcntl.flock(one, fcntl.LOCK_EX)
            if said.exists() and said.read_text().split() == [*package.installed]:
                continue
            print(f"installing {' '.join(package.installed)}", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(to)]
            subprocess.run([*command, *package.installed], check=True)
            said.write_text("\n".join(package.installed))


def keep(outcome: Outcome, file: Path | None, done: dict[tuple, Outcome]) -> None:
    """Put `outcome` into `done` and, as a line, into `file`; say it on standard error."""
    done[outcome.key] = outcome
    line = f"{outcome.state:10s} {outcome.seconds:6.1f} s {outcome.on:11s} {outcome.package}: {outcome.entry}"
    print(f"{line} {outcome.outcome} {outcome.said}".rstrip()[:250], file=sys.stderr, flush=True)
    append(file, asdict(outcome))


def read(file: Path) -> dict[tuple, Outcome]:
    """The last outcome of each entry that a run kept in `file`; a line that was cut off is left out, and taken away."""
    found = [Outcome(**record) for record in records(file)]
    return {each.key: replace(each, kernels=tuple(each.kernels)) for each in found}


def main(arguments: list[str] | None = None) -> int:
    given = parse(
        __doc__, "folder/", argv=arguments, package=Option([], "this package; by default all"), only="",
        entry=Option([], "this entry, by its whole name; by default all"), target="sm_90",
        on=Option([], f"the target, or {INTERPRETER}; by default both"),
        shard=Option(Shard(), "each Nth entry, from the Ith on", {"type": Shard.parse_shard}),
        ray=Option(False, "by the Ray cluster at RAY_ADDRESS, not by this machine alone"),
        seconds=Option(SECONDS, "the limit of an entry"), results=Path,
        again=Option(False, "what was not right is run once more"), list=Option(False, "name the entries and end"), page=False,
        tests=Option(Path, "results of upstream_tests.py, for the page"),
        times=Option(Path, "results of a run whose times alone the page shows"),
        of=Option("", "the commits at which the tests were run, for the page"),
    )  # fmt: skip
    chosen = [e for e in entries() if given.only in e.name and (not given.package or e.package.name in given.package)]
    if given.entry:
        chosen = [e for e in chosen if e.name in given.entry]
    wanted = given.shard.share(chosen)
    if given.list:
        print("\n".join(f"{entry.package.name}: {entry.name}" for entry in wanted))
        return 0
    done = read(given.results) if given.results and given.results.exists() else {}
    if given.page:
        from benchmarks.corpus_page import page

        times = read(given.times) if given.times else None
        print(page(wanted, done, given.tests, given.target, given.of, times), end="")
        return 0
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    packages = {entry.package.name: entry.package for entry in wanted}
    on = given.on or [given.target, INTERPRETER]
    left: dict[tuple[str, str], list[str]] = {}
    for name in packages:
        for place in on:
            of = [e.name for e in wanted if e.package.name == name and _is_left(done.get((name, e.name, place)), given.again)]
            if of:
                left[name, place] = of
    if given.ray:
        from benchmarks.corpus_fleet import batches, on_ray

        outcomes = on_ray(batches(left), folder, given.target, given.seconds)
    else:
        install(packages.values(), folder)
        outcomes = here(left, folder, given.target, given.seconds)
    try:
        for outcome in outcomes:
            keep(outcome, given.results, done)
    except UsageError as error:
        refuse(str(error))
    asked = [(e.package.name, e.name, place) for e in wanted for place in on]
    return int(any(key not in done or done[key].state != RIGHT for key in asked))


def here(left: Mapping[tuple[str, str], list[str]], folder: Path, target: str, seconds: float) -> Iterator[Outcome]:
    """The outcomes of what is left, from this machine: of each package at each place in one process."""
    context, at = multiprocessing.get_context("spawn"), commit()
    for (name, place), names in left.items():
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=run_package, args=(sender, str(folder), name, names, [place], target, seconds))
        process.start()
        sender.close()
        try:
            while (outcome := receiver.recv()) is not None:
                yield replace(outcome, commit=at)
        except EOFError:
            print(f"{name}: the process that imported it ended", file=sys.stderr)
        process.join()


def _is_left(outcome: Outcome | None, again: bool) -> bool:
    return outcome is None or (again and outcome.state != RIGHT and outcome.on != INTERPRETER)


if __name__ == "__main__":
    run_script(main)
