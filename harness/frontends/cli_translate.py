"""``bitverdict translate``: print the Python that the emulated GPU executes for a kernel, or its tile program."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bitverdict.harness.frontends.subjects import decorated_tests, find_subject_or_launcher
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.launcher_limits import check_launcher
from bitverdict.harness.model.targets import Target, target, targets
from bitverdict.harness.model.usage import UsageError

EXIT_PRINTED, FAULT, EXIT_NOTHING = 0, 1, 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", metavar="WHAT", help="a kernel, a test or a launcher, as of run; or a Python file that launches kernels")
    add("--target", default="", metavar="T", help="emulated:sm_NN (default: the first that serves the kernel)")
    add("--launcher", default="", metavar="FILE:FUNCTION", help="your own launcher, on the first required case of the kernel")
    add("--tile-program", action="store_true", help="print the tile program that the compiler made instead")


def run(arguments: argparse.Namespace) -> int:
    """Print each kernel that was launched. Status 1 where a fault ended the launches, 5 where nothing was launched. UsageError for
    anything asked that cannot be."""
    from bitverdict.harness.report import translations

    where = emulated_target(arguments.target)
    path = Path(arguments.what)
    if path.suffix == ".py" and not decorated_tests(arguments.what):
        if arguments.launcher:
            raise UsageError(f"--launcher {arguments.launcher}: is called with a kernel's operands; name the kernel, not {path}")
        if not path.is_file():
            raise UsageError(f"{path}: no such file; give a Python file that launches kernels, or a kernel: translate matmul")
        where = where or target("emulated:sm_90")
        run_translations: translations.Translations | None = translations.of_script(path, where)
    else:
        address, launcher = find_subject_or_launcher(arguments.what, arguments.launcher, "translate")
        contract = resolve(address)
        if launcher:
            check_launcher(contract, launcher)
        able = [item for item in targets() if item.emulated and (launcher or not contract.lacking(item))]
        where = where or able[0]
        run_translations = translations.of_launcher(address, where, launcher)
    if run_translations is None or not run_translations.translations:
        print(f"error: {arguments.what} launches nothing on {where}{_why(run_translations)}", file=sys.stderr)
        return FAULT if run_translations is not None and run_translations.fault else EXIT_NOTHING
    for item in run_translations.translations:
        times = f", launched {item.launches} times" if item.launches > 1 else ""
        sign = "//" if arguments.tile_program else "#"
        print(f"{sign} kernel {item.kernel} on {where}{times}")
        print(item.program if arguments.tile_program else item.python, end="\n\n")
    if run_translations.fault:
        print(f"error: the launches end in {run_translations.fault}", file=sys.stderr)
        return FAULT
    return EXIT_PRINTED


def _why(found: object) -> str:
    fault = getattr(found, "fault", "")
    return f": {fault}" if fault else "; name a target that it serves with --target emulated:sm_NN"


def emulated_target(name: str) -> Target | None:
    """The emulated target `name`, None for no name. UsageError for a real GPU."""
    if not name:
        return None
    found = target(name)
    if not found.emulated:
        here = ", ".join(each.name for each in targets() if each.emulated)
        raise UsageError(f"--target {name}: executes machine code, and nothing is translated for it; give one of {here}")
    return found
