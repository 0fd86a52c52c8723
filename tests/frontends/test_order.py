"""Contract under test: `bitverdict order` prints the order of a kernel's sums, records it, and tells another one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.checks.sums.order_recovery import RecoveredOrders
from bitverdict.harness.frontends.cli_order import run
from bitverdict.harness.frontends.main import parser
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.report import orders_of_sums

ADDRESS = "tests/support/summing_kernels.py:sequential"


def ordered(*words: str) -> int:
    given = ["order", ADDRESS, "--case", "m=64 n=4", *words]
    return run(parser(given).parse_args(given))


def test_an_order_is_printed_recorded_and_another_one_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, again = tmp_path / "orders.json", tmp_path / "again.json"
    assert ordered("--target", "sm_90", "--record", str(path)) == 0
    shown = capsys.readouterr().out
    assert "4 terms: 4 terms one after another, ascending" in shown
    assert "a node: fp32 addition, to nearest even" in shown
    assert "tree: (((0 1) 2) 3)" in shown
    record = json.loads(path.read_text())
    (due,) = record["orders"].values()
    due["outputs"]["out"]["orders"][0]["tree"] = [[0, 1], [2, 3]]
    path.write_text(json.dumps(record))
    assert ordered("--check", str(path), "--record", str(again)) == 1
    assert "out is added in another order of sums than recorded" in capsys.readouterr().out
    due["outputs"]["out"]["orders"][0]["tree"] = [[[0, 1], 2], 3]
    assert json.loads(again.read_text()) == record  # the right one, twice


def test_the_largest_case_whose_order_is_found_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """`bitverdict order matmul` would show a case with an activation, which has no order, though others have one."""
    contract, machine = resolve(ADDRESS), target("emulated:sm_90")
    made = orders_of_sums.cases_of(contract, machine, "", 1)[0]
    cases = [replace(made, data_seed=seed) for seed in range(4)]
    monkeypatch.setattr(orders_of_sums, "cases_of", lambda *_: cases)
    for found, timing, shown in (((2, 3), "", [2]), ((), "a kernel has atomics", [0]), ((), "", [0])):
        recoveries = [
            RecoveredOrders(machine.name, case, outputs=("an output",) if number in found else (), timing=timing)  # type: ignore[arg-type]
            if number in found or timing
            else RecoveredOrders(machine.name, case, why="the reference is no plain sum")
            for number, case in enumerate(cases)
        ]
        by_case = dict(zip(cases, recoveries, strict=True))
        monkeypatch.setattr(
            orders_of_sums, "survey", lambda _, some: [orders_of_sums.Row(*pair, by_case[pair[0]]) for pair in some]
        )
        rows = list(orders_of_sums.survey_largest(contract, machine, "", 1))
        assert [row.case.data_seed for row in rows] == shown
        assert ("passed over: 2 larger cases" in rows[0].passed_over) == (shown == [2])
    due = list(orders_of_sums.survey_largest(contract, machine, "", 1, [rows[0].key]))
    assert [row.case.data_seed for row in due] == [0], "a recorded order that is not found any more is told"
