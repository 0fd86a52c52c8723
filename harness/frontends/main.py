"""The command line: ``bitverdict run | replay FILE | promote FILE | targets | crosscheck STEM | large | record | compile | pages |
translate KERNEL``.

Exit status: 0 all right, 1 fail, 2 usage, 3 too much inconclusive, an error or cancelled, 5 nothing ran.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from typing import NoReturn

from bitverdict.harness.judge.machine_faults import MachineFault, machine_fault
from bitverdict.harness.judge.out_of_memory import out_of_memory
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.model.supervision import cancels_from_here, ends_by_itself, leave, supervised
from bitverdict.harness.model.usage import UsageError, did_you_mean


class Parser(argparse.ArgumentParser):
    """argparse's, which names the nearest word where one is not known."""

    def error(self, message: str) -> NoReturn:
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += did_you_mean(found[1], re.findall(r"'(.*?)'", found[2]), 0.6)
        elif found := re.search(r"unrecognized arguments: (--[\w-]+)", message):
            message += did_you_mean(found[1], (option for options in _options(self) for option in options))
        super().error(message)


def _options(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    """The option strings of `parser` and of its commands."""
    for action in parser._actions:
        yield list(action.option_strings)
        for command in (action.choices or {}).values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from _options(command)


def parser() -> argparse.ArgumentParser:
    """Every command and its arguments."""
    told = "Judge Triton and Gluon kernels, bit for bit where bits are known."
    made = Parser(prog="bitverdict", description=told)
    commands = made.add_subparsers(dest="command", required=True)

    from bitverdict.harness.frontends import (
        cli_crosscheck,
        cli_large,
        cli_pages,
        cli_replay,
        cli_run,
        cli_sanitize,
        cli_tma_limits,
        cli_translate,
    )
    from bitverdict.harness.studies.hardware_words import record
    from bitverdict.harness.studies.offline_compile import compile_all

    cli_run.add_arguments(commands.add_parser("run", help="judge kernels, or your own launcher, on targets"))
    cli_replay.add_replay_arguments(commands.add_parser("replay", help="judge a stored failing case again"))
    cli_replay.add_promote_arguments(commands.add_parser("promote", help="keep a failing case in tests/reproducers"))
    cli_crosscheck.add_arguments(
        commands.add_parser("crosscheck", help="hold a GPU's words against the plan's and the emulated GPU's")
    )
    cli_large.add_arguments(commands.add_parser("large", help="large products on a GPU, bit for bit at chosen elements"))
    compile_all.add_arguments(commands.add_parser("compile", help="compile every kernel for every GPU it is for, without one"))
    record.add_arguments(commands.add_parser("record", help="write hardware words of an instruction or a kernel"))
    cli_tma_limits.add_arguments(commands.add_parser("tma-limits", help="where the legality of TMA operations ends"))
    cli_sanitize.add_arguments(commands.add_parser("sanitize", help="cases under iisan, consan, fpsan and compute-sanitizer"))
    cli_pages.add_arguments(commands.add_parser("pages", help="print the pages of docs/ that come from the code, or check them"))
    cli_translate.add_arguments(
        commands.add_parser("translate", help="print the Python that an emulated GPU executes for a kernel")
    )
    commands.add_parser("targets", help="list the machines that are here and what they have")
    return made


def main(words: list[str] | None = None) -> int:
    """Run one command; returns its exit status. Anything asked that cannot be is told in one line, with status 2."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset it warns in Triton 3.9 and flips in 3.10: it decides bits
    arguments = parser().parse_args(words)

    import bitverdict.harness.judge.devices  # noqa: F401  (what torch.cuda says to a user's file)
    from bitverdict.harness.frontends import (
        cli_crosscheck,
        cli_large,
        cli_pages,
        cli_replay,
        cli_run,
        cli_sanitize,
        cli_tma_limits,
        cli_translate,
    )
    from bitverdict.harness.studies.hardware_words import record
    from bitverdict.harness.studies.offline_compile import compile_all

    does = {
        "run": cli_run.run,
        "compile": compile_all.run,
        "replay": cli_replay.run_replay,
        "promote": cli_replay.run_promote,
        "crosscheck": cli_crosscheck.run,
        "large": cli_large.run,
        "record": record.run,
        "tma-limits": cli_tma_limits.run,
        "sanitize": cli_sanitize.run,
        "pages": cli_pages.run,
        "translate": cli_translate.run,
        "targets": _targets,
    }
    if arguments.command != "run":  # which says itself from when there is something to cancel
        cancels_from_here()
    try:
        return does[arguments.command](arguments)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except MachineFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 3
    except BrokenPipeError:  # nobody reads standard output any more
        return 3
    except KeyboardInterrupt:
        ends_by_itself()
        print("cancelled", file=sys.stderr)
        return 3
    except Exception as error:
        print(f"error: {machine_fault(error) or out_of_memory(error) or own_failure(error)}", file=sys.stderr)
        return 3


def own_failure(error: Exception) -> str:
    """One sentence on what the harness raised by its own fault; the traceback lies in the state directory, or is printed."""
    import time
    import traceback

    from bitverdict.harness.judge.classify import place_of, raised_by

    whole = "".join(traceback.format_exception(error))
    path = state_directory() / "errors" / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(whole)
        stored = f"its traceback is in {path}"
    except OSError:
        stored = f"its traceback:\n{whole}"
    location, _ = place_of(error)
    said = " ".join(f"{type(error).__name__}: {error}".split())[:400]
    return f"the {raised_by(error) or 'contract'} raised {said} ({location}), which is no fault of a kernel; {stored}"


def _targets(arguments: argparse.Namespace) -> int:
    from bitverdict.harness.model.targets import targets

    for target in targets():
        features = ", ".join(sorted(str(feature) for feature in target.features))
        print(f"{target.name:<16} {target.arch:<7} {target.model or 'emulated':<24} {features}")
    return 0


def entry() -> NoReturn:
    """What ``bitverdict`` and ``python -m bitverdict`` run."""
    if "--in-process" in sys.argv:  # for a debugger, which holds the process that it started
        leave(main())
    os._exit(supervised(main))
