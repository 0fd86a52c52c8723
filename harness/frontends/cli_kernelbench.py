"""``bitverdict kernelbench PROBLEM.py CANDIDATE.py``: judge `ModelNew` of one file by the mathematics of `Model` of the other."""

from __future__ import annotations

import argparse

from bitverdict.harness.frontends import cli_run, run_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("problem", metavar="PROBLEM.py", help="has Model, get_inputs and get_init_inputs")
    add("candidate", metavar="CANDIDATE.py", help="has ModelNew; FILE:CLASS for a class of another name")
    add("--unsealed", dest="sealed", action="store_false", help="the candidate is trusted: workers import its file")
    add("--require-jail", action="store_true", help="refuse to run where the machine lacks a protection of the jail")
    run_options.add_options(parser)
    parser.set_defaults(stems=[], resume=None, sealed=True)


def run(arguments: argparse.Namespace) -> int:
    """Judge as `bitverdict run` does, with the problem's contract and the candidate as its launcher; returns the exit status."""
    from bitverdict.harness.contracts.torch_mathematics.kernelbench import address_of

    named = ":" in arguments.candidate
    arguments.contract = address_of(arguments.problem)
    arguments.launcher = arguments.candidate if named else f"{arguments.candidate}:ModelNew"
    return cli_run.run(arguments)
