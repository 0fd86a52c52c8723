"""``bitverdict order``: the order of a kernel's sums on a target, found by launches, and whether it is the recorded one."""

from __future__ import annotations

import argparse
from pathlib import Path

from bitverdict.harness.frontends.subjects import find_subject_or_launcher
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import targets_called
from bitverdict.harness.model.usage import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("contract", metavar="STEM | FILE:FUNCTION", help="a kernel, or a test that bv.judged made")
    add("--launcher", default="", metavar="FILE:FUNCTION", help="a launcher of your own of the kernel's mathematics")
    add("--target", action="append", default=[], metavar="T", help="as of run (default: sm_90)")
    add("--cases", type=int, default=1, metavar="N", help="the N required cases of most work that have an order (default 1)")
    add("--case", default="", metavar="FIELDS", help="one case, as a report prints it: 'm=8 n=100'")
    add("--record", type=Path, default=None, metavar="FILE", help="write the orders there: a promise")
    add("--check", type=Path, default=None, metavar="FILE", help="status 1 where an order is not the recorded one")
    add("--no-tree", action="store_true", help="leave the brackets out")


def run(arguments: argparse.Namespace) -> int:
    """Print an order a case and target. Status 0: all were recovered; 1: one is not the recorded one; 3: one was not
    recovered, or depends on timing."""
    from bitverdict.harness.report.orders_of_sums import cases_of, departures, read_orders, survey, survey_largest, write
    from bitverdict.harness.session.case_line import case_of

    machines = targets_called(arguments.target or ["emulated:sm_90"])
    address, arguments.launcher = find_subject_or_launcher(arguments.contract, arguments.launcher, "order")
    contract = resolve(address)
    recorded_orders = read_orders(arguments.check) if arguments.check else None
    rows = []
    for machine in machines:
        if arguments.case:
            like = cases_of(contract, machine, arguments.launcher, 100)
            surveyed = survey(contract, [(case_of(arguments.case, contract, like, arguments.launcher), machine)])
        else:
            surveyed = survey_largest(contract, machine, arguments.launcher, arguments.cases, recorded_orders or ())
        for row in surveyed:
            rows.append(row)
            print("\n".join(row.lines(tree=not arguments.no_tree)), flush=True)
    if not rows:
        raise UsageError(f"{arguments.contract}: no required case of it expects a result on {machines[0].name}")
    if arguments.record:
        write(arguments.record, rows)
        print(f"written: {arguments.record}")
    if recorded_orders is not None:
        said = list(departures(rows, recorded_orders))
        print("\n".join(said) if said else f"every order is the one recorded in {arguments.check}")
        return int(bool(said))
    return 0 if all(row.recovery.outputs for row in rows) else 3
