"""Contract under test: `bitverdict order` prints the order of a kernel's sums, records it, and tells another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitverdict.harness.frontends.cli_order import run
from bitverdict.harness.frontends.main import parser

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
