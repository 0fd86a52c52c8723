"""``bitverdict replay FILE`` judges a stored case again; ``promote FILE`` keeps it in tests/reproducers with what is expected."""

from __future__ import annotations

import argparse
import faulthandler
import shlex
import time
from importlib import import_module
from pathlib import Path

from bitverdict.harness.frontends.cli_run import check_timeout, write_told
from bitverdict.harness.frontends.run_options import add_format, add_pages
from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.machine_faults import check_compiler_cache
from bitverdict.harness.model import trusted_imports
from bitverdict.harness.model.certificate import Certificate
from bitverdict.harness.model.paths import REPRODUCERS, path_from_here
from bitverdict.harness.model.protocols import LaunchProbe
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.session import reproducers, tables, tally
from bitverdict.harness.session.failure_report import failure_report
from bitverdict.harness.session.replay import InThisProcess, ReplayResult, replay
from bitverdict.harness.session.result_files import event_line, tell
from bitverdict.harness.workers.forkserver import collect_again
from bitverdict.harness.workers.journal import verdict_record
from bitverdict.harness.workers.pool import WorkerPool


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="the digits that a report says, or a file of .bitverdict/failures or tests/reproducers",
    )
    add("--embedded", action="store_true", help="judge the source stored in the file, not the one on disk")
    add("--in-process", action="store_true", help="judge in this very process, for cuda-gdb or compute-sanitizer; no timeout")
    add("--pdb", action="store_true", help="in this process, and a debugger at the kernel's line where it fails")
    add(
        "--pdbcls",
        default="pdb:Pdb",
        metavar="MODULE:CLASS",
        help="with --pdb: another debugger, such as IPython.terminal.debugger:TerminalPdb",
    )
    add_format(parser)
    add_pages(parser)
    add("--timeout", type=float, default=120.0, metavar="SECONDS", help="a case that takes longer is a timeout (default: 120)")


def run_replay(arguments: argparse.Namespace) -> int:
    """Exit status: 1 where one fails again, 0 where all pass now, else 3. UsageError for a file that does not serve."""
    if len(arguments.files) > 1 and (arguments.html or arguments.pictures):
        raise UsageError(f"replay: a page is of one case; leave out all but {arguments.files[0]}")
    statuses = {_replay_file(arguments, reproducers.path_of(file)) for file in arguments.files}
    return tally.FAIL if tally.FAIL in statuses else max(statuses)


def _replay_file(arguments: argparse.Namespace, file: Path) -> int:
    """The exit status of one of the files, which is told."""
    arguments.file = file
    if arguments.file.suffix == ".launch":
        from bitverdict.harness.frontends.cli_exec import replay_launch

        return replay_launch(arguments.file)
    seed = reproducers.read(arguments.file)
    reproducers.check_foreign(seed, arguments.file, embedded=arguments.embedded)
    trusted_imports.begin(always=True)  # the file says in which folders modules are looked for
    collect_again()
    replay_result = _replay(arguments)
    case, record = replay_result.case.to_json(), verdict_record(replay_result.verdict)
    tell(event_line("verdict", contract=replay_result.case.contract, target=seed.target, case=case, verdict=record))
    console = tables.console()
    if replay_result.verdict.decision in (Decision.FAIL, Decision.ERROR):
        line = reproducers.replay_line(arguments.file)
        named = path_from_here(replay_result.case.launcher or replay_result.case.contract)
        report = failure_report(named, seed.target, replay_result.case, replay_result.verdict, replay_result.notes, line)
        tables.print_wrapped(console, report)
    else:
        for note in replay_result.notes:
            console.print(f"note: {note}", markup=False)
    if arguments.html or arguments.pictures:
        write_told(_page_data(replay_result, arguments), arguments)
    console.print(replay_result.sentence, markup=False, style="bold")
    if replay_result.verdict.certificate:
        told = Certificate.from_json(replay_result.verdict.certificate).line()
        console.print(f"would have exposed: {told}", markup=False, soft_wrap=True)
    status = {Decision.FAIL: tally.FAIL, Decision.PASS: tally.PASS}.get(replay_result.verdict.decision, tally.INCONCLUSIVE)
    tell(event_line("summary", time=time.time(), status=status, sentence=replay_result.sentence))
    return status


def _page_data(replay_result: ReplayResult, arguments: argparse.Namespace) -> dict:
    """What a page tells of one case; where it does not fail, no pictures are there to be drawn."""
    from bitverdict.harness.report.collect import of_replay

    seed = reproducers.read(arguments.file)
    with WorkerPool(timeout=arguments.timeout) as pool:
        line = reproducers.replay_line(arguments.file)
        return of_replay(
            target(seed.target),
            replay_result.case,
            replay_result.verdict,
            [*replay_result.notes, replay_result.sentence],
            line,
            pool,
        )


def _replay(arguments: argparse.Namespace) -> ReplayResult:
    check_timeout(arguments.timeout)
    check_compiler_cache()
    if arguments.pdb:
        return _debug(arguments)
    if arguments.in_process:
        faulthandler.enable()
        options = "--in-process --embedded" if arguments.embedded else "--in-process"
        command = f"bitverdict replay {options} {shlex.quote(str(arguments.file))}"
        here = InThisProcess(command, lambda line: print(line, flush=True))
        return replay(arguments.file, here, embedded=arguments.embedded)
    with WorkerPool(timeout=arguments.timeout) as pool:
        return replay(arguments.file, pool, embedded=arguments.embedded)


class _FaultKeeper(LaunchProbe):
    """Keeps what ended a launch."""

    fault: BaseException | None = None

    def on_failure(self, error: BaseException) -> None:
        self.fault = error


def _debug(arguments: argparse.Namespace) -> ReplayResult:
    """Judge here, then open a debugger at the line of the kernel whose fault ended the launch: its tiles are its locals."""
    module, _, name = arguments.pdbcls.partition(":")
    try:
        debugger = getattr(import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--pdbcls {arguments.pdbcls}: {error}; give MODULE:CLASS, a subclass of pdb.Pdb") from None
    keeper = _FaultKeeper()
    with launched_with(probes=(keeper,)):
        here = InThisProcess(f"bitverdict replay {shlex.quote(str(arguments.file))}", lambda line: None)
        result = replay(arguments.file, here, embedded=arguments.embedded)
    if keeper.fault is not None:
        debugger.reset()
        debugger.interaction(None, keeper.fault.__traceback__)
    else:
        print("--pdb: no fault ended the launch, so there is no line to stop at; bitverdict trace shows tiles after any line")
    return result


def add_promote_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", type=Path, help="a reproducer of .bitverdict/failures")
    add(
        "--expected",
        dest="expected_outcome",
        choices=["pass", "fail"],
        default="pass",
        help="the decision that is expected from now on (default: pass)",
    )
    add("--directory", type=Path, default=REPRODUCERS, metavar="DIR", help="where it is kept (default: tests/reproducers)")


def run_promote(arguments: argparse.Namespace) -> int:
    kept = reproducers.promote(reproducers.path_of(arguments.file), Decision(arguments.expected_outcome), arguments.directory)
    print(f"kept as {kept}, expected: {arguments.expected_outcome}; add it to git")
    return 0
