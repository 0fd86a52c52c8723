"""The arguments of ``bitverdict run``, and those that other commands share with it."""

from __future__ import annotations

import argparse
from pathlib import Path

from bitverdict.harness.frontends import fleet
from bitverdict.harness.frontends.project_settings import project_settings
from bitverdict.harness.session.profiles import PROFILES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "stems",
        nargs="*",
        metavar="WHAT",
        help="FILE, FILE::TEST, FILE:LAUNCHER, a folder, or a kernel that bitverdict brings (default: the tests of this folder)",
    )
    add(
        "--launcher",
        default="",
        metavar="FILE:FUNCTION",
        help="judge your own launcher by the kernel's mathematics; its "
        "attributes claims and requires say what it takes (docs/judging.md)",
    )
    add("--contract", default="", metavar="ADDRESS", help="judge the contract at package.module:NAME or path/file.py:NAME")
    add(
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
    add = parser.add_argument
    project = project_settings()
    add(
        "--target",
        action="append",
        default=[],
        metavar="T",
        help="sm_90; cuda, cuda:hopper: each such GPU; cuda:N (default: sm_80, sm_90, sm_100, GPUs)",
    )
    add("--all-targets", action="store_true", help="every emulated target, and the GPUs that are here")
    add("--arch", default="", metavar="sm_NN", help="every GPU of this architecture; an error when there is none")
    add(
        "--profile",
        choices=sorted(PROFILES),
        default=project.get("profile", "quick"),
        help="how long to draw; whole: the tutorials' own sizes too",
    )
    add_selection(parser)
    add("--shard", default="", metavar="I/N", help="share I of N of the cases, for example 3/16; `merge` joins their journals")
    fleet.add_on(parser)
    add("-x", "--exitfirst", dest="x", action="store_true", help="stop at the first case that fails")
    add("--max-cases", type=int, default=None, metavar="N", help="at most N cases per contract and target")
    add("--seed", type=int, default=0, metavar="S", help="base seed of the draws (default 0)")
    add("--secret", default="", metavar="HEX", help="of a sealed run: the secret that an earlier one revealed, for the same draws")
    add("--accept-claims", action="store_true", help="believe a sealed launcher's claims and requires")
    add(
        "--accept-compiler-faults",
        action="store_true",
        help="status 0 in spite of cases that end in a fault which the installed Triton's compiler is known for (selftest: always)",
    )
    add("--jobs", type=int, default=0, metavar="N", help="workers at a time (default 0: one a core)")
    add(
        "--timeout",
        type=float,
        default=project.get("timeout"),
        metavar="SECONDS",
        help="a case that takes longer is a timeout (default: 120; whole: 7200)",
    )
    add("--first-configuration", action="store_true", help="a launcher's autotuners take their first configuration, and no other")
    add(
        "--no-real-values", action="store_true", help="judge a launcher by its words alone: sooner, and blind to what a bound hides"
    )
    add(
        "--certificate",
        nargs="?",
        const="contracts",
        choices=("contracts", "cases"),
        default="",
        help="what passing cases would have exposed: a line for each contract, or for each case too (docs/judging.md)",
    )
    add("--recover-order", action="store_true", help="expect words by the order of a launcher's sums (docs/order_of_sums.md)")
    add("--ptx", action="store_true", help="execute the PTX of emulated launches too: equal words (docs/ptx.md)")
    add("--shrink-seconds", type=float, default=None, metavar="SECONDS", help="time to shrink one bug; 0: store it as it came")
    add("--json", type=Path, default=None, metavar="FILE", help="every verdict as a line of JSON, then a summary")
    add("--junit", type=Path, default=None, metavar="FILE", help="JUnit XML, valid at any time")
    add_pages(parser)
    add_format(parser)
    add("--coverage", action="store_true", help="print the classes seen of each dimension")
    add("-q", "--quiet", action="store_true", help="failures and the last line alone")
    add("-v", "--verbose", action="store_true", help="the table of verdicts, what its columns say, and where time went")


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
    add = parser.add_argument
    add(
        "-k",
        default=None,
        metavar="EXPR",
        help="cases that match an expression: 'fp16 and not normal', 'm>64 or k=33', race (the last run's outcome)",
    )
    add("--case", default="", metavar="FIELDS", help="one case, as a report prints it behind 'case:': 'm=1 n=1 k=33 dtype=fp16'")
    add("--lf", "--last-failed", dest="lf", action="store_true", help="the cases that failed in the last run")
