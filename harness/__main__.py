"""The command line: ``python -m harness run | replay FILE | promote FILE | targets | crosscheck STEM | record``.

Exit status: 0 all right, 1 convicted, 2 usage, 3 too much undecided, 5 nothing ran.
"""

from __future__ import annotations

import argparse
import os
import sys


def main(words: list[str] | None = None) -> int:
    """Run one command; returns its exit status. Anything asked that cannot be is told in one line, with status 2."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset it warns in Triton 3.9 and flips in 3.10: it decides bits
    parser = argparse.ArgumentParser(
        prog="python -m harness", description="Judge Triton and Gluon kernels, bit for bit where bits are known."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="judge kernels, or your own launcher, on targets")
    replay = commands.add_parser("replay", help="judge a stored failing case again")
    promote = commands.add_parser("promote", help="keep a failing case in tests/seeds")
    crosscheck = commands.add_parser("crosscheck", help="hold a GPU's words against the plan's and the emulated GPU's")
    record = commands.add_parser("record", help="write hardware words of an instruction or a kernel")
    commands.add_parser("targets", help="list the machines that are here and what they have")

    from harness import record as record_command
    from harness.commands import crosscheck as crosscheck_command
    from harness.commands import replay as replay_command
    from harness.commands import run as run_command

    run_command.add_arguments(run)
    crosscheck_command.add_arguments(crosscheck)
    record_command.add_arguments(record)
    replay_command.add_replay_arguments(replay)
    replay_command.add_promote_arguments(promote)
    arguments = parser.parse_args(words)
    try:
        if arguments.command == "run":
            return run_command.run(arguments)
        if arguments.command == "crosscheck":
            return crosscheck_command.run(arguments)
        if arguments.command == "record":
            return record_command.run(arguments)
        if arguments.command == "replay":
            return replay_command.run_replay(arguments)
        if arguments.command == "promote":
            return replay_command.run_promote(arguments)
        return _targets()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _targets() -> int:
    from harness.targets import targets

    for target in targets():
        features = ", ".join(sorted(str(feature) for feature in target.features))
        print(f"{target.name:<16} {target.arch:<7} {target.model or 'emulated':<24} {features}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
