"""The command line: ``python -m harness run | replay FILE | promote FILE | targets | crosscheck STEM | large | record | compile``.

Exit status: 0 all right, 1 convicted, 2 usage, 3 too much undecided, 5 nothing ran.
"""

from __future__ import annotations

import argparse
import atexit
import logging
import os
import sys
from typing import NoReturn


def parser() -> argparse.ArgumentParser:
    """Every command and its arguments."""
    told = "Judge Triton and Gluon kernels, bit for bit where bits are known."
    made = argparse.ArgumentParser(prog="python -m harness", description=told)
    commands = made.add_subparsers(dest="command", required=True)

    from harness import offline_compile, record
    from harness.commands import crosscheck, frontier, large, replay, run, sanitize

    run.add_arguments(commands.add_parser("run", help="judge kernels, or your own launcher, on targets"))
    replay.add_replay_arguments(commands.add_parser("replay", help="judge a stored failing case again"))
    replay.add_promote_arguments(commands.add_parser("promote", help="keep a failing case in tests/seeds"))
    crosscheck.add_arguments(commands.add_parser("crosscheck", help="hold a GPU's words against the plan's and the emulated GPU's"))
    large.add_arguments(commands.add_parser("large", help="large products on a GPU, bit for bit at chosen elements"))
    offline_compile.add_arguments(commands.add_parser("compile", help="compile every kernel for every GPU it is for, without one"))
    record.add_arguments(commands.add_parser("record", help="write hardware words of an instruction or a kernel"))
    frontier.add_arguments(commands.add_parser("frontier", help="where the legality of TMA operations ends"))
    sanitize.add_arguments(commands.add_parser("sanitize", help="cases under iisan, consan, fpsan and compute-sanitizer"))
    commands.add_parser("targets", help="list the machines that are here and what they have")
    return made


def main(words: list[str] | None = None) -> int:
    """Run one command; returns its exit status. Anything asked that cannot be is told in one line, with status 2."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset it warns in Triton 3.9 and flips in 3.10: it decides bits
    arguments = parser().parse_args(words)

    from harness import offline_compile, record
    from harness.commands import crosscheck, frontier, large, replay, run, sanitize

    does = {
        "run": run.run,
        "compile": offline_compile.run,
        "replay": replay.run_replay,
        "promote": replay.run_promote,
        "crosscheck": crosscheck.run,
        "large": large.run,
        "record": record.run,
        "frontier": frontier.run,
        "sanitize": sanitize.run,
        "targets": _targets,
    }
    try:
        return does[arguments.command](arguments)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _targets(arguments: argparse.Namespace) -> int:
    from harness.targets import targets

    for target in targets():
        features = ", ".join(sorted(str(feature) for feature in target.features))
        print(f"{target.name:<16} {target.arch:<7} {target.model or 'emulated':<24} {features}")
    return 0


def _leave(status: int) -> NoReturn:
    """End this process with everything that ends in Python done, and without the interpreter's own teardown.

    There Triton's bindings print a page of "leaked" functions once Gluon was imported, below the report somebody wants to read.
    """
    logging.shutdown()
    atexit._run_exitfuncs()  # multiprocessing's too: no directory of a forkserver is left behind
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _leave(main())
