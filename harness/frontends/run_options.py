"""The arguments of ``bitverdict run``, and those that other commands share with it."""

from __future__ import annotations

import argparse
from pathlib import Path

from bitverdict.harness.frontends import fleet
from bitverdict.harness.frontends.project_settings import project_settings
from bitverdict.harness.session.profiles import PROFILES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "stems",
        nargs="*",
        metavar="WHAT",
        help="FILE, FILE::TEST, FILE:LAUNCHER, a folder, or a kernel that bitverdict brings (default: the tests of this folder)",
    )
    parser.add_argument(
        "--launcher",
        default="",
        metavar="FILE:FUNCTION",
        help="judge your own launcher by the kernel's mathematics; its "
        "attributes claims and requires say what it takes (docs/judging.md)",
    )
    parser.add_argument(
        "--contract", default="", metavar="ADDRESS", help="judge the contract at package.module:NAME or path/file.py:NAME"
    )
    parser.add_argument(
        "--resume", nargs="?", const="", default=None, metavar="JOURNAL", help="go on with a run that was cut (default: the newest)"
    )
    add_sealing(parser)
    add_options(parser)


def add_sealing(parser: argparse.ArgumentParser) -> None:
    """Arguments that say whether a launcher is trusted."""
    parser.add_argument(
        "--sealed",
        action="store_true",
        help="the launcher is not trusted: a jailed process imports its file, and the judge gets bytes alone",
    )
    parser.add_argument(
        "--require-jail", action="store_true", help="with --sealed: refuse to run where the machine lacks a protection of the jail"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """What any judging run may be asked: where, how long, and what it writes."""
    project = project_settings()
    parser.add_argument(
        "--target", action="append", default=[], metavar="T", help="emulated:sm_NN or cuda:N (default: sm_80, sm_90, sm_100, GPUs)"
    )
    parser.add_argument("--all-targets", action="store_true", help="every emulated target, and the GPUs that are here")
    parser.add_argument("--arch", default="", metavar="sm_NN", help="every GPU of this architecture; an error when there is none")
    parser.add_argument(
        "--profile",
        choices=sorted(PROFILES),
        default=project.get("profile", "quick"),
        help="how long to draw; whole: the tutorials' own sizes too",
    )
    add_selection(parser)
    parser.add_argument(
        "--shard", default="", metavar="I/N", help="share I of N of the cases, for example 3/16; `merge` joins their journals"
    )
    fleet.add_on(parser)
    parser.add_argument("-x", "--exitfirst", dest="x", action="store_true", help="stop at the first case that fails")
    parser.add_argument("--max-cases", type=int, default=None, metavar="N", help="at most N cases per contract and target")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="base seed of the draws (default 0)")
    parser.add_argument(
        "--secret", default="", metavar="HEX", help="of a sealed run: the secret that an earlier one revealed, for the same draws"
    )
    parser.add_argument(
        "--accept-claims", action="store_true", help="a sealed launcher may be asked what its claims and requires say"
    )
    parser.add_argument(
        "--accept-compiler-faults",
        action="store_true",
        help="status 0 in spite of cases that end in a fault which the installed Triton's compiler is known for (selftest: always)",
    )
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="workers at a time (default: one a core)")
    parser.add_argument(
        "--timeout",
        type=float,
        default=project.get("timeout"),
        metavar="SECONDS",
        help="a case that takes longer is a timeout (default: 120; whole: 7200)",
    )
    parser.add_argument(
        "--first-configuration", action="store_true", help="a launcher's autotuners take their first configuration, and no other"
    )
    parser.add_argument(
        "--no-real-values", action="store_true", help="judge a launcher by its words alone: sooner, and blind to what a bound hides"
    )
    parser.add_argument(
        "--certificate",
        nargs="?",
        const="contracts",
        choices=("contracts", "cases"),
        default="",
        help="what passing cases could have told apart: a line for each contract, or for each case too (docs/judging.md)",
    )
    parser.add_argument(
        "--recover-order", action="store_true", help="expect words by the order of a launcher's sums (docs/order_of_sums.md)"
    )
    parser.add_argument("--ptx", action="store_true", help="execute the PTX of emulated launches too: equal words (docs/ptx.md)")
    parser.add_argument(
        "--shrink-seconds", type=float, default=None, metavar="SECONDS", help="time to shrink one bug; 0: store it as it came"
    )
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="every verdict as a line of JSON, then a summary")
    parser.add_argument("--junit", type=Path, default=None, metavar="FILE", help="JUnit XML, whole at any time")
    add_pages(parser)
    add_format(parser)
    parser.add_argument("--coverage", action="store_true", help="print the classes seen of each dimension")
    parser.add_argument("-q", "--quiet", action="store_true", help="failures and the last line alone")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="the table of verdicts, what its columns say, and where time went"
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """The form of what is printed."""
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json: events on standard output, one a line (docs/public.md), and text on standard error",
    )


def add_pages(parser: argparse.ArgumentParser) -> None:
    """Arguments for the report as a page."""
    parser.add_argument("--html", type=Path, default=None, metavar="FILE", help="the report as a page of one file, with pictures")
    parser.add_argument("--pictures", type=Path, default=None, metavar="DIR", help="the pictures of each failure, as SVG files")


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Arguments that say which cases are judged (docs/inner_loop.md)."""
    parser.add_argument(
        "-k",
        default=None,
        metavar="EXPR",
        help="cases whose words the expression holds for: 'fp16 and not normal', 'm>64 or k=33', race (the last run's outcome)",
    )
    parser.add_argument(
        "--case", default="", metavar="FIELDS", help="one case, as a report prints it behind 'case:': 'm=1 n=1 k=33 dtype=fp16'"
    )
    parser.add_argument("--lf", "--last-failed", dest="lf", action="store_true", help="the cases that failed in the last run")
