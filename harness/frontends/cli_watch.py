"""``bitverdict watch FILE:FUNCTION [KERNEL]``: a verdict at each save of the file, and of what it imports from its repository."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bitverdict.harness.frontends.subjects import address_of_word, decorated_tests
from bitverdict.harness.frontends.watch_screen import Lines, PanelScreen
from bitverdict.harness.judge.machine_faults import check_compiler_cache, writing
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import KERNELS, kernels_with_a_contract, state_directory
from bitverdict.harness.model.targets import targets, targets_called
from bitverdict.harness.model.usage import UsageError, no_such_kernel
from bitverdict.harness.sealed.processes import candidate_descriptions
from bitverdict.harness.session import tables, tally
from bitverdict.harness.session.case_filter import Expression
from bitverdict.harness.session.last_run import last_runs
from bitverdict.harness.session.watch import Watch
from bitverdict.harness.session.watch_round import ForkedRound, WatchTarget
from bitverdict.harness.session.watched_files import WatchedFiles
from bitverdict.harness.workers.forkserver import collect_again

PRELOADED_MODULES = ("hypothesis", "triton", "bitverdict.harness.emulator", "bitverdict.harness.judge.judge")
"""What each round has from this process: no file of the user's, and nothing that a save changes."""
DEFAULT_TARGET = "emulated:sm_90"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("address", metavar="FILE:FUNCTION", help="a launcher, a test or a contract; or a kernel, with --launcher")
    add("kernel", nargs="?", default="", metavar="KERNEL", help="by whose mathematics a launcher is judged (default: its own name)")
    add("--launcher", default="", metavar="FILE:FUNCTION", help="judge this by the mathematics of the kernel named")
    add(
        "--target",
        action="append",
        default=[],
        metavar="T",
        help=f"as of run (default: the GPU that is here, else {DEFAULT_TARGET})",
    )
    add("--sealed", action="store_true", help="the launcher is not trusted, as of run")
    add("-k", default=None, metavar="EXPR", help="cases that match an expression, as of run")
    add("--seed", type=int, default=0, metavar="S", help="base seed of the draws (default 0)")
    add("--jobs", type=int, default=0, metavar="N", help="workers at a time (default 0: one a core)")
    add("--timeout", type=float, default=20.0, metavar="SECONDS", help="a case that takes longer is a timeout (default: 20)")


def run(arguments: argparse.Namespace) -> int:
    """Until Ctrl-C, with status 0. UsageError for what cannot be watched; what a save makes wrong is told, and the next counts."""
    subject = watch_subject(arguments)
    check_compiler_cache()
    files = WatchedFiles([subject.file] if subject.file is not None else _of_kernel(subject.contract))
    if not files.paths:
        raise UsageError(f"watch {arguments.address}: names no file that could be saved; give path/file.py:NAME")
    for module in PRELOADED_MODULES:
        importlib.import_module(module)
    for address in subject.preload_addresses:
        resolve(address)
    collect_again()
    console = tables.console()
    place, _, function = (subject.launcher or subject.contract).rpartition(":")
    name = f"{Path(place).name}:{function}"
    title = f"{name if subject.file else subject.contract} on {', '.join(where.name for where in subject.targets)}"
    screen = PanelScreen(console, title) if console.is_terminal else Lines(console)
    if not console.is_terminal:
        console.print(f"watching {title}; Ctrl-C ends", markup=False, soft_wrap=True)
    folder = _folder()
    watch = Watch(lambda: ForkedRound(subject, folder), files, screen, failing_records=_last_failures(subject))
    with screen, _until_ctrl_c() as over:
        try:
            watch.begin()
            while not over:
                watch.step()
        finally:
            watch.end()
            shutil.rmtree(folder, ignore_errors=True)
    return tally.PASS


@contextmanager
def _until_ctrl_c() -> Iterator[list[int]]:
    """What is yielded is empty until Ctrl-C. Where SIGINT is ignored, as under ``nohup ... &``, it stays so."""
    interrupts: list[int] = []
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield interrupts
        return
    earlier = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, earlier)


def _folder() -> Path:
    """A new folder for the journals of rounds and what their workers print; those of watches that were killed are removed."""
    above = state_directory() / "watch"
    for left in above.glob("[0-9]*"):
        if not Path(f"/proc/{left.name}").exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = above / str(os.getpid())
    with writing("folder of the watch", folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def watch_subject(arguments: argparse.Namespace) -> WatchTarget:
    """What the arguments say. UsageError for what can be known to be wrong before the user's file is imported."""
    launcher, contract = arguments.launcher, address_of_word(arguments.address)
    if contract.endswith(".py") and len(names := decorated_tests(contract)) == 1:
        contract = f"{contract}:{names[0]}"
    if arguments.kernel and launcher:
        once = f"give the launcher once: watch {launcher} {arguments.kernel}"
        raise UsageError(f"--launcher {launcher} and {contract} {arguments.kernel}: {once}")
    if arguments.kernel:
        launcher, contract = contract, arguments.kernel
    known = kernels_with_a_contract()
    if ":" not in contract and contract not in known:
        if contract.endswith(".py"):
            raise UsageError(f"watch {contract}: name the function in it: {contract}:FUNCTION")
        raise UsageError(f"watch {contract}: {no_such_kernel(contract, known)}")
    if ":" in contract and not launcher:
        launcher, contract = contract, ""
    place = (launcher or contract).rpartition(":")[0]
    if place.endswith(".py") and not Path(place).is_file():
        raise UsageError(f"watch {launcher or contract}: there is no file {place}; give a path to an existing Python file")
    if not arguments.timeout > 0:
        raise UsageError(f"--timeout {arguments.timeout:g}: must be more than 0 seconds")
    if arguments.jobs < 0:
        raise UsageError(f"--jobs {arguments.jobs}: must be at least 0")
    if arguments.k is not None:
        Expression(arguments.k)
    names = arguments.target or [next((each.name for each in targets() if not each.emulated), DEFAULT_TARGET)]
    jobs = arguments.jobs or len(os.sched_getaffinity(0))
    if arguments.sealed:
        if not launcher:
            raise UsageError(f"--sealed: {contract} is judged with its own kernel; name another's, FILE:FUNCTION")
        candidate_descriptions.begin(launcher)  # its zygotes are those of all rounds
    machines = tuple(targets_called(names))
    seed, expression, timeout = arguments.seed, arguments.k, arguments.timeout
    return WatchTarget(contract, launcher, machines, jobs, seed, expression, timeout, is_sealed=arguments.sealed)


def _last_failures(watched: WatchTarget) -> list[dict]:
    """What failed in the last run of it, for the first answer."""
    contract = watched.contract or watched.launcher.rpartition(":")[2]
    whose = [(contract, watched.launcher, where.name) for where in watched.targets]
    whose += [(watched.launcher, "", where.name) for where in watched.targets if not watched.contract]
    return [record for last in last_runs(whose).values() for record in last.failed_records()][:1]


def _of_kernel(stem: str) -> list[Path]:
    """The files of a kernel of ours that is watched itself."""
    return [path for path in (KERNELS / f"{stem}.py",) if path.is_file()]
