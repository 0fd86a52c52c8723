"""``bitverdict exec script.py ...`` or ``-m module ...``: a program runs with an emulated GPU in place of "cuda"."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

from bitverdict.harness.model.usage import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "bitverdict exec [--target ARCH] [--schedules N] [--report FILE] [--advice] (script.py | -m module) ..."
    parser.add_argument(
        "--target", default="sm_90", metavar="ARCH", help="the emulated GPU (default sm_90); bitverdict targets lists"
    )
    parser.add_argument("--schedules", type=int, default=2, metavar="N", help="run each launch under N schedules (default 2)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was found as JSON, or as SARIF to FILE.sarif")
    parser.add_argument("--advice", action="store_true", help="print advice, which is counted otherwise")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="a module instead of a script")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the script and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """The program's own exit status; 1 after a fault, 3 where it was ended by what the emulated GPU cannot answer."""
    from bitverdict.harness.emulator import EmulatedFault
    from bitverdict.harness.frontends.emulated_session import EmulatedSession, EmulationTally, is_unjudged, traceback_text
    from bitverdict.harness.report.launch_replay.scripts import program_of

    words = ["-m", *arguments.module] if arguments.module is not None else arguments.program
    if not words:
        raise UsageError("exec: names no program; write bitverdict exec script.py, or bitverdict exec -m module")
    program = program_of(words)
    session, status = EmulatedSession([arguments.target], arguments.schedules), 0
    session.enter()
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
        status = 1
        if session.reason_not_judged(error):
            status = 3
            session.note_unanswered(error)
        traceback.print_exception(error)
    swallowed = session.swallowed_fault() is not None
    tally = EmulationTally()
    tally.add(session.take(" ".join(words)))
    session.close()
    for line in tally.lines(arguments.schedules, shows_advice=arguments.advice):
        print(f"emulated {session.targets[0]}: {line}", file=sys.stderr)
    for record in tally.faults if swallowed and not status else ():
        print(
            f"emulated {session.targets[0]}: {record['outcome']}: {record['message']} [{record['file']}:{record['line']}]",
            file=sys.stderr,
        )
    if arguments.report is not None:
        tally.write(arguments.report, session.targets)
    return status or int(swallowed)
