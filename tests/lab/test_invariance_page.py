"""Contract under test: the table of invariance says of each kernel what its cases came to, and a report which finding fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.invariance import of_each_configuration
from bitverdict.harness.checks.invariance.invariance_finding import End, InvarianceFinding
from bitverdict.harness.frontends.main import main
from bitverdict.harness.lab.pages.condensed_runs import condense_run, deciding_fields, merge_files
from bitverdict.harness.lab.pages.invariance import COLUMNS, MARK, page, read
from bitverdict.harness.lab.pages.printed_pages import INVARIANCE
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import ROOT, kernels_with_a_contract
from bitverdict.harness.model.targets import target
from bitverdict.harness.report.invariance.campaign import Examination
from bitverdict.harness.report.invariance.report_lines import line, report
from bitverdict.harness.report.invariance.tasks import verdict_on
from bitverdict.harness.report.required_lists import frozen_kernels

MADE = {
    "target": "cuda:0",
    "arch": "sm_90",
    "machine": "NVIDIA H200",
    "date": "2026-11-22",
    "commit": "abc",
    "torch": "2",
    "triton": "3",
    "planned": 2,
}


def finding(check: str, end: End = End.SAME_WORDS, **rest: Any) -> InvarianceFinding:
    return InvarianceFinding(
        check=check, end=end, **{"changed": "something", "compared": 8 * (end in (End.SAME_WORDS, End.DIFFERS))} | rest
    )


def configured(changed: str, end: End = End.DIFFERS) -> InvarianceFinding:
    return finding("configurations", end, changed=changed, differing=3)


FINDINGS = [
    finding("repeat"),
    finding("graph", End.DIFFERS, changed="a CUDA graph", cause="it races", differing=2, promised=True),
    finding("batch m"),
    finding("batch n", End.DIFFERS, changed="n = 1 for 8, from 0", cause="BLOCK 2 -> 4", output="c", at=(0, 1), got="1", other="2"),
    finding("position m", End.NOT_APPLICABLE, reason="several of m share an element"),
    finding("zeros k"),
    configured("block_k = 32 for 64, stages = 2 for 3"),
    configured("block_k = 16 for 64"),
    configured("stages = 4 for 3, num_warps = 8 for 4", End.SAME_WORDS),
]


@pytest.fixture(scope="module")
def examined() -> Examination:
    where = target("emulated:sm_90")
    return Examination("softmax", where.name, resolve("softmax").required(where)[0], FINDINGS, verdict_on(FINDINGS))


def test_a_new_run_takes_the_place_of_one_on_its_machine(examined: Examination, tmp_path: Path) -> None:
    stored, new = tmp_path / "stored.json", tmp_path / "new.jsonl"
    old = condense_run([json.dumps(MADE | {"commit": "old"}), line(examined)])
    stored.write_text(json.dumps({"runs": [old, old | {"machine": "emulated"}]}))
    new.write_text(f"{json.dumps(MADE | {'machine': 'emulated'})}\n{line(examined)}\n")
    assert [(run["machine"], run["commit"]) for run in merge_files([stored, new])] == [("NVIDIA H200", "old"), ("emulated", "abc")]


def test_a_table_has_a_row_for_each_kernel_and_basis(examined: Examination) -> None:
    run = condense_run([json.dumps(MADE), line(examined), line(examined)])
    text = page(f"by hand\n\n{MARK}an old table\n", [run, run | {"machine": "emulated"}])
    assert text.startswith(f"by hand\n\n{MARK}\nPrinted from `tests/hardware_words/invariance.json`")
    assert "an old table" not in text
    assert "| real sm_90 (H200) | NVIDIA H200 | 2026-11-22, abc | 3, 2 | 2 of 2 | 128 |" in text
    row = "| softmax | real sm_90 (H200) | 1 | FAILS 2 times: 32 words | m; other words: n | - | k | "
    row += "other words by `block_k` (4 of 6) |"
    assert row in text and row.replace("real sm_90 (H200)", "emulated sm_90") in text
    assert "- softmax on real sm_90 (H200), graph: a CUDA graph: it races" in text
    assert "- softmax on real sm_90 (H200), batch n: n = 1 for 8, from 0: BLOCK 2 -> 4" in text


@pytest.mark.parametrize(
    ("findings", "fields"),
    [
        ([configured("a = 1 for 2, b = 1 for 2"), configured("a = 1 for 2", End.SAME_WORDS)], ["b"]),
        ([configured("a = 1 for 2"), configured("b = 1 for 2")], ["a", "b"]),
        ([configured("a = 1 for 2"), configured("a = 3 for 2", End.SAME_WORDS)], []),
        ([configured("a = 1 for 2", End.SAME_WORDS)], []),
        ([configured("configuration 2 of the autotuner")], []),
    ],
)
def test_the_fewest_fields_that_decide_words_are_named(findings: list[InvarianceFinding], fields: list[str]) -> None:
    assert deciding_fields(findings) == fields


def test_a_report_tells_the_worst_of_each_check_and_its_case(examined: Examination) -> None:
    lines = list(report([examined]))
    assert lines[:2] == ["softmax on emulated:sm_90, 1 cases", "  repeat: pass: 1 same words; 8 words compared"]
    assert "  graph: FAIL: 1 other words; 8 words compared" in lines
    assert "  batch n: information: 1 other words; 8 words compared" in lines
    assert (
        "    n = 1 for 8, from 0: 0 of 8 words differ, first at [0, 1] of c: 2, and 1 with n = 1 for 8, from 0; BLOCK 2 -> 4"
        in lines
    )
    assert "  position m: not applicable: several of m share an element" in lines
    assert any(each.startswith("    case: rows=") for each in lines)


def test_the_stored_runs_have_every_kernel_on_its_targets() -> None:
    runs = read(ROOT / INVARIANCE)
    assert set(frozen_kernels()) <= {name for run in runs for name in run["kernels"]} <= set(kernels_with_a_contract())
    printed = (ROOT / "docs" / "invariance.md").read_text().partition(MARK)[2].splitlines()
    table = [each for each in printed if each.count(" | ") == len(COLUMNS) - 1]
    assert len(table) == 2 + sum(len(run["kernels"]) for run in runs)


def test_the_stored_runs_have_every_configuration_of_a_kernel() -> None:
    missing = [
        (name, run["arch"], has, asked)
        for run in read(ROOT / INVARIANCE)
        if run["machine"] == "emulated"
        for where in [target(run["target"])]
        for name in sorted({*frozen_kernels(), *run["kernels"]})
        for contract in [resolve(name)]
        if not contract.lacking(where)
        for asked in [len({case.config for case in of_each_configuration(contract, contract.required(where), where)})]
        for has in [run["kernels"].get(name, {"configurations": 0})["configurations"]]
        if has < asked
    ]
    assert not missing, "run `python -m benchmarks.invariance --target` of these anew"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["softmax", "--check", "bach"], "--check 'bach': no such check (did you mean 'batch'?); it must be of repeat, "),
        (["softmax", "--cases", "-1"], "--cases -1: must be at least 0"),
        (["sofmax"], "contract 'sofmax': no such kernel (did you mean 'softmax'?)"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_status_2(words: list[str], said: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["invariance", *words, "--target", "emulated:sm_90"]) == 2
    assert said in capsys.readouterr().err
