"""``bitverdict exec script.py ...`` or ``-m module ...``: a program runs with an emulated GPU in place of "cuda". ``--record``
keeps launches of it as files, and `replay_launch` runs one."""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
from pathlib import Path
from types import TracebackType

from bitverdict.harness.frontends.run_options import add_format
from bitverdict.harness.model.usage import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options = (
        "[--target ARCH] [--schedules N] [--limit SECONDS] [--report FILE] [--format json] [--advice] [--numerics] "
        "[--record DIR [--where TEXT]]"
    )
    parser.usage = f"bitverdict exec {options} (script.py | -m module) ..."
    add("--target", default="sm_90", metavar="ARCH", help="the emulated GPU (default sm_90); bitverdict targets lists")
    add("--schedules", type=int, default=2, metavar="N", help="run each launch under N schedules (default 2)")
    add("--limit", default="", metavar="SECONDS", help="processor time of a launch, such as 30s, after which it is too large")
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="write what was found as JSON, SARIF (FILE.sarif), events (.jsonl) or a page (.html)",
    )
    add_format(parser)
    add("--advice", action="store_true", help="print advice, which is counted otherwise")
    add("--numerics", action="store_true", help="how far words are from those without rounding, tensor by tensor")
    add("--record", type=Path, metavar="DIR", help="keep the first launch of each kernel and specialisation there")
    add("--where", default="", metavar="TEXT", help="with --record: of kernels whose name has TEXT in it")
    add("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="a module instead of a script")
    add("program", nargs=argparse.REMAINDER, help="the script and its arguments")


def replay_launch(path: Path) -> int:
    """Launch the file at `path` again. Exit status 1 where it fails, or leaves other words than where it was sampled, 3 where the
    emulated GPU cannot tell, 0 where it runs."""
    import triton

    from bitverdict.harness.emulator import EmulatedFault
    from bitverdict.harness.frontends.emulated_session import EmulatedSession, is_unjudged, traceback_text
    from bitverdict.harness.report.launch_replay.launch_file import SampledWords, StoredLaunch

    launch_file = StoredLaunch(path)
    words = SampledWords(launch_file) if "sampled_on" in launch_file.record else None
    session = EmulatedSession([launch_file.record["arch"]], files=[words] if words else [])
    then, now = launch_file.record.get("triton", ""), triton.__version__
    if then and then != now:
        print(f"note: triton was {then}, is {now}")
    session.enter()
    try:
        launch_file.run(session.device)
    except EmulatedFault as fault:
        print(traceback_text(fault))
        return 3 if is_unjudged(fault) else 1
    finally:
        session.close()
    before = launch_file.record["fault"]
    print(f"runs without a fault on emulated {session.targets[0]}" + (f"; it ended in {before[0]}: {before[1]}" if before else ""))
    if words is not None:
        print(words.verdict[1])
    return words.verdict[0] if words is not None else 0


def _trace_of_program(error: BaseException) -> TracebackType | None:
    """The traceback of `error` from the program on; None where Python did not come to its first line."""
    from bitverdict.harness.report.launch_replay import scripts

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, scripts.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace


def run(arguments: argparse.Namespace) -> int:
    """The program's own exit status; 1 after a fault, 3 where it was ended by what the emulated GPU cannot answer."""
    from bitverdict.harness.emulator import EmulatedFault
    from bitverdict.harness.frontends.emulated_session import (
        EmulatedSession,
        EmulationTally,
        architecture_of,
        is_unjudged,
        spare_collections,
        traceback_text,
    )
    from bitverdict.harness.report.launch_replay import scripts
    from bitverdict.harness.report.launch_replay.launch_file import LaunchFiles

    words = ["-m", *arguments.module] if arguments.module is not None else arguments.program
    if not words:
        raise UsageError("exec: names no program; write bitverdict exec script.py, or bitverdict exec -m module")
    program = scripts.program_of(words, "exec")
    folder, where = arguments.record, arguments.where
    if where and folder is None:
        raise UsageError(f"--where {where}: says which launches --record keeps; give --record DIR too, or leave it out")
    files = None if folder is None else [LaunchFiles(architecture_of(arguments.target), folder, lambda name: where in name)]
    session = EmulatedSession([arguments.target], arguments.schedules, files, numerics=arguments.numerics, limit=arguments.limit)
    status = 0
    session.enter()
    spare_collections()
    try:
        program()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except EmulatedFault as fault:
        status = 3 if is_unjudged(fault) else 1
        if is_unjudged(fault):
            session.note_unanswered(fault)
        print(traceback_text(fault), file=sys.stderr)
    except Exception as error:
        status, error.__traceback__ = 1, _trace_of_program(error)
        if error.__traceback__ is not None and session.reason_not_judged(error):
            status = 3
            session.note_unanswered(error)
        traceback.print_exception(error)
    gc.unfreeze()  # as at the end of pytest
    has_swallowed_fault = session.swallowed_fault() is not None
    tally = EmulationTally()
    tally.add(session.take(" ".join(words)))
    session.close()
    for line in tally.lines(arguments.schedules, shows_advice=arguments.advice):
        print(f"emulated {session.targets[0]}: {line}", file=sys.stderr)
    for record in tally.faults if has_swallowed_fault and not status else ():
        print(
            f"emulated {session.targets[0]}: {record['outcome']}: {record['message']} [{record['file']}:{record['line']}]",
            file=sys.stderr,
        )
    for path in (path for kept in files or () for path in dict.fromkeys(kept.written)):
        print(f"emulated {session.targets[0]}: recorded {path}", file=sys.stderr)
    status = status or int(has_swallowed_fault)
    if arguments.report is not None:
        tally.write(arguments.report, session.targets, arguments.schedules)
    if arguments.format == "json":
        from bitverdict.harness.session.result_files import tell

        tell(tally.events(status))
    return status
