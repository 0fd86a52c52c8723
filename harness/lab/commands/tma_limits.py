"""``bitverdict lab tma-limits``: where the legality of TMA operations ends, by rule, compiler, emulation, iisan and hardware."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bitverdict.harness.model.usage import UsageError

PAGE = Path("docs/tma_limits.md")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", action="append", metavar="sm_NN", help="only this architecture (may be repeated)")
    parser.add_argument("--operation", action="append", help="only this operation: 'tiled load', 'tiled store', gather or scatter")
    parser.add_argument("--hardware", default="", metavar="cuda:N", help="answer the hardware columns, on this GPU, and no others")
    parser.add_argument("--merge", type=Path, action="append", default=[], metavar="FILE", help="answers from elsewhere, by --json")
    parser.add_argument("--only-merged", action="store_true", help="ask nothing here: show what the merged files hold")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all answers to this file")
    parser.add_argument("--page", type=Path, metavar="FILE", help=f"write the page there, for instance {PAGE}")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="worker processes (default: one a core)")


def run(arguments: argparse.Namespace) -> int:
    """Ask, merge, write and print. Status 0: the map is made, whatever it shows; 2: usage."""
    from bitverdict.harness.lab.tma_limits import answers, page
    from bitverdict.harness.lab.tma_limits.points import OPERATIONS
    from bitverdict.harness.model.targets import target

    jobs = arguments.jobs or answers.cores()
    for name, given, known in (("--arch", arguments.arch, answers.ARCHITECTURES), ("--operation", arguments.operation, OPERATIONS)):
        if unknown := [value for value in given or () if value not in known]:
            raise UsageError(f"{name} {unknown[0]!r}: must be one of {', '.join(known)}")
    gpu = target(arguments.hardware) if arguments.hardware else None
    if gpu is not None and gpu.emulated:
        raise UsageError(f"--hardware {gpu.name}: must be a GPU; emulated targets need no such option")
    files = [answers.read(path) for path in arguments.merge]
    if arguments.only_merged:
        map_columns: dict = {}
    elif gpu is not None:
        map_columns = answers.hardware(gpu, jobs=jobs)
    else:
        operations = tuple(arguments.operation) if arguments.operation else None
        map_columns = answers.columns(arguments.arch or answers.ARCHITECTURES, jobs=jobs, operations=operations)
    if arguments.json:
        answers.write(arguments.json, map_columns, gpu)
    for file in files:
        map_columns = answers.merge_columns(map_columns, file["columns"])
    text = page.text(map_columns, [answers.origin(), *(file["origin"] for file in files)])
    if arguments.page:
        arguments.page.write_text(text)
        print(f"written: {arguments.page}", file=sys.stderr)
    print(page.brief(map_columns))
    return 0
