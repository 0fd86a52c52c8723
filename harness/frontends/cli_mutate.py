"""``bitverdict mutate STEM | FILE:FUNCTION``: faults put into a kernel, and which of them its cases would miss.

Exit status: 0 every live mutant was killed, 1 some survive or are doubtful, or the kernel itself fails, 2 usage, 3 an error, or the
run was ended before all were judged, 5 no live mutant.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bitverdict.harness.frontends import fleet
from bitverdict.harness.frontends.subjects import find_subject, is_bare_launcher, mathematics_of
from bitverdict.harness.judge.machine_faults import check_compiler_cache, writing
from bitverdict.harness.model.addresses import add_search_path, load
from bitverdict.harness.model.decorated_object import root_of
from bitverdict.harness.model.extras import require_extra
from bitverdict.harness.model.log_lines import count_text
from bitverdict.harness.model.paths import kernels_with_a_contract, path_from_here, state_directory
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.usage import UsageError, no_such_kernel
from bitverdict.harness.mutants.counts import count_ends
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import End, GeneratedMutant, JudgedMutant, Kind, append, drawn, read
from bitverdict.harness.mutants.report import report
from bitverdict.harness.mutants.shards import begin_shard
from bitverdict.harness.session import tables
from bitverdict.harness.session.shard import Shard

if TYPE_CHECKING:
    from bitverdict.harness.mutants.campaign import PlannedMutants
    from bitverdict.harness.mutants.worker_generation import GeneratedMutants

PREFERRED_TARGETS = ("emulated:sm_90", "emulated:sm_100", "emulated:sm_80")
"""The first of these that has what a kernel requires is its target."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("address", metavar="STEM | FILE:FUNCTION", help="a kernel, or a test or a launcher in a file of yours")
    add("kernel", nargs="?", default="", metavar="KERNEL", help="by whose mathematics a launcher is judged")
    add("--target", default="", metavar="T", help="as of run (default: the first emulated GPU that can)")
    add("--source", action="store_true", help="mutants of the source alone")
    add("--program", action="store_true", help="mutants of the compiled tile programs alone")
    add("--count", type=int, default=0, metavar="N", help="judge N, drawn from all (default: all)")
    add("--seed", type=int, default=0, metavar="S", help="of the draw (default 0)")
    add("--seconds", type=float, default=None, metavar="S", help="begin no mutant after so many seconds")
    fleet.add_on(parser)
    add("--jobs", type=int, default=0, metavar="N", help="workers at a time (default 0: one a core)")
    add("--json", type=Path, default=None, metavar="FILE", help="results, a JSON line each, as they come")
    add("--shard", default="", metavar="I/N", help="share I of N of them; `merge` joins the results")
    add("--resume", action="store_true", help="go on with the results of an earlier run")


def run(arguments: argparse.Namespace) -> int:
    """Generate, judge, report."""
    require_extra("libcst", "mutate")
    from bitverdict.harness.mutants.campaign import PlannedMutants
    from bitverdict.harness.mutants.worker_generation import generate_in_worker

    kernel, shard = of_a_test(kernel_of(arguments)), Shard.parse_shard(arguments.shard)
    where = target_of(kernel, arguments.target)
    if arguments.on == "ray" and not where.emulated:
        raise UsageError(
            f"--on ray --target {where.name}: mutants are judged on emulated GPUs there; name one, or leave --on ray out"
        )
    check_compiler_cache()
    console = tables.console()
    start = time.monotonic()
    kinds = [kind for kind in Kind if getattr(arguments, kind)] or [*Kind]
    if not where.emulated:
        kinds = [Kind.SOURCE]
    files = [] if kernel.file is None else [kernel.file]
    with fleet.pool(fleet.cluster(arguments.on), jobs=1, timeout=3600, files=files) as pool, pool.interruptible():
        generation = generate_in_worker(pool, kernel, where, kinds)
    if generation.failing_cases:
        itself = f"{path_from_here(kernel.address)} itself fails"
        console.print(f"{itself}, so its mutants say nothing; fix it first (bitverdict run)", soft_wrap=True)
        for line in generation.failing_cases:
            console.print(f"  {line}", markup=False, soft_wrap=True)
        return 1
    all_mutants = list(islice(drawn(generation.mutants, arguments.seed), arguments.count or None))
    mutants = shard.share(all_mutants)
    name = f"{_name(kernel)}-{where.arch}" + (f"-{shard.number}of{shard.shard_count}" if shard.shard_count > 1 else "")
    path = arguments.json or state_directory() / "mutants" / f"{name}.jsonl"
    kept_results = _kept_results(path, mutants) if arguments.resume else []
    _begin(path, kept_results)
    begin_shard(path, kernel.address, where.name, shard, all_mutants)
    console.print(_header_line(kernel, where, generation, mutants, kept_results, path), markup=False, soft_wrap=True)
    seconds = None if arguments.seconds is None else max(0.0, arguments.seconds - (time.monotonic() - start))
    start, is_over = time.monotonic(), False
    try:
        _judge(console, PlannedMutants(kernel, where, mutants), path, arguments, files, seconds)
    except KeyboardInterrupt:
        is_over = True
    taken = time.monotonic() - start if not kept_results else 0.0
    judged = [each for each in read(path) if each.result.end is not End.ERROR or not is_over]
    whose = "the contract" if kernel.file is None else "your test"
    console.print()
    console.print(report(judged, path_from_here(kernel.address), where.name, whose, taken), markup=False, soft_wrap=True)
    left = len(mutants) - len(judged)
    if left:
        console.print(f"\n{left} of {len(mutants)} were not judged; the same line with --resume goes on", soft_wrap=True)
    return status(judged, ended=is_over)


def status(judged: Sequence[JudgedMutant], *, ended: bool = False) -> int:
    """The exit status of a run of these results; `ended`: by Ctrl-C."""
    counts = count_ends(judged)
    if ended or counts.ends.get(End.ERROR):
        return 3
    if not counts.live:
        return 5
    return int(counts.killed_count < counts.live)


def kernel_of(arguments: argparse.Namespace) -> Kernel:
    """What the arguments name. UsageError for what can be known to be wrong before a file is imported."""
    address, like, known_kernels = find_subject(arguments.address, "mutate"), arguments.kernel, kernels_with_a_contract()
    place, colon, _ = address.rpartition(":")
    if not colon and address not in known_kernels:
        if address.endswith(".py"):
            raise UsageError(f"mutate {address}: name the function in it: {address}:FUNCTION")
        raise UsageError(f"mutate {address}: {no_such_kernel(address, known_kernels)}")
    if colon and not Path(place).is_file():
        raise UsageError(f"mutate {address}: there is no file {place}; give a path to an existing Python file")
    if like and like not in known_kernels:
        raise UsageError(f"mutate {address} {like}: {no_such_kernel(like, known_kernels)}")
    if like and not colon:
        raise UsageError(f"mutate {address} {like}: {address} is a kernel itself; name a launcher, FILE:FUNCTION")
    for name in ("count", "jobs"):
        if getattr(arguments, name) < 0:
            raise UsageError(f"--{name} {getattr(arguments, name)}: must be at least 0")
    return Kernel(f"{Path(place).resolve()}:{address.rpartition(':')[2]}" if colon else address, like)


def of_a_test(kernel: Kernel) -> Kernel:
    """`kernel`, by the mathematics that a test of `bitverdict.test` names with `like`. Imports the user's file."""
    if kernel.file is None or kernel.like:
        return kernel
    add_search_path([str(root_of(kernel.file))])
    if is_bare_launcher(kernel.address):
        return replace(kernel, like=mathematics_of(kernel.address, "mutate"))
    test = load(kernel.address, unwrap=False)
    launcher = getattr(test, "__launcher__", None)
    if not hasattr(test, "__bitverdict__") or launcher is None:
        return kernel
    if launcher.function is None:
        raise UsageError(f"mutate {kernel.address}: its launcher is named {launcher.address!r}; import it and give the function")
    return replace(kernel, like=test.__bitverdict__(target(PREFERRED_TARGETS[0]), sealed=False).address)


def target_of(kernel: Kernel, named: str) -> Target:
    """The target that is named; else the first of `PREFERRED_TARGETS` that has what a shipped kernel requires."""
    if named:
        return target(named)
    if kernel.file is not None and not kernel.like:
        return target(PREFERRED_TARGETS[0])
    requires = Kernel(kernel.like or kernel.address).contract().requires
    return next(each for name in PREFERRED_TARGETS if requires <= (each := target(name)).features)


def _name(kernel: Kernel) -> str:
    return kernel.address.rpartition("/")[2].replace(".py:", "-") + (f"-{kernel.like}" if kernel.like else "")


def _kept_results(path: Path, mutants: Iterable[GeneratedMutant]) -> list[JudgedMutant]:
    """The results at `path` of mutants that would be the same today."""
    today = {each.id: each for each in mutants}
    return [each for each in read(path) if today.get(each.mutant.id) == each.mutant]


def _begin(path: Path, kept_results: Iterable[JudgedMutant]) -> None:
    """Leave `kept_results` at `path`, and nothing else."""
    with writing("results of mutants", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        part.write_text("")
        for each in kept_results:
            append(part, each)
        part.replace(path)


def _header_line(kernel: Kernel, where: Target, made: GeneratedMutants, mutants: list, kept: list, path: Path) -> str:
    drawn_of = count_text(len(mutants), "mutant") + (f", drawn of {len(made.mutants)}" if len(mutants) < len(made.mutants) else "")
    again = f"; {len(kept)} judged before" if kept else ""
    results = f"judged by {made.cases} cases{again}; results in {path_from_here(str(path))}"
    return f"{path_from_here(kernel.address)} on {where.name}: {drawn_of}, {results}"


def _judge(
    console: tables.Console,
    plan: PlannedMutants,
    path: Path,
    arguments: argparse.Namespace,
    files: list[Path],
    seconds: float | None,
) -> None:
    """Judge, and show how far it is."""
    from bitverdict.harness.mutants.campaign import BACKSTOP, judge_all

    pool = fleet.pool(fleet.cluster(arguments.on), jobs=arguments.jobs, timeout=BACKSTOP, files=files)
    with console.status("") if console.is_terminal else nullcontext() as status_line:
        for number, each in enumerate(judge_all([plan], path, seconds=seconds, pool=pool), 1):
            if each.result.end in (End.SURVIVAL, End.DOUBTFUL):
                mutant = each.mutant
                console.print(f"{each.result.end}: {mutant.file}:{mutant.line}: {mutant.operator}", markup=False, soft_wrap=True)
            if status_line is not None:
                status_line.update(f"{number} of {len(plan.mutants)} judged")
