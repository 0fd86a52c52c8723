"""Contract under test: the report counts what was judged, says what verdicts rest on, and its status follows from the counts."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from bitverdict.harness.frontends.progress import ProgressDisplay
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.certificate import TELLS_NOTHING, Certificate, CertificateFinding, Kind
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import tables as report
from bitverdict.harness.session.failure_report import failure_report
from bitverdict.harness.session.result_files import Records
from bitverdict.harness.session.tally import Tally
from tests.support.vector_add import HOST, case


def counted(*decisions: Decision, message: str = "") -> Tally:
    tally = Tally()
    for number, decision in enumerate(decisions):
        verdict = Verdict(decision=decision, outcome=Outcome.PASS, message=message, basis="words: the plan's", words=10)
        tally.count(case(number), "add", "host", {"dtype": "fp32"}, verdict)
    return tally


R, C, U, N, E = Decision.PASS, Decision.FAIL, Decision.INCONCLUSIVE, Decision.NOT_RUN, Decision.ERROR


@pytest.mark.parametrize(
    ("decisions", "status"),
    [([R], 0), ([R, C], 1), ([C, U, N], 1), ([R] * 10_000 + [U], 3), ([U], 3), ([N, N], 5), ([], 5), ([R, N], 0),
     ([E], 3), ([R, E], 3), ([C, E], 1), ([N, E], 3)],
)  # fmt: skip
def test_the_status_follows_from_the_decisions(decisions: list[Decision], status: int) -> None:
    assert counted(*decisions).status() == status


def test_cases_that_tell_nothing_apart_are_open_only_where_no_other_does() -> None:
    quiet = Verdict(decision=U, outcome=Outcome.INCONCLUSIVE, message="tells nothing", details={TELLS_NOTHING: True})
    alone, beside = Tally(), counted(R)
    for number in (1, 2):
        alone.count(case(number), "add", "host", {}, quiet)
        beside.count(case(number), "add", "host", {}, quiet)
    assert alone.status() == 3 and "none of 2 cases of add on host tells anything apart" in alone.sentence()
    assert beside.status() == 0 and "2 inconclusive" in beside.sentence()


def test_known_faults_of_the_compiler_are_open_unless_accepted() -> None:
    known = Verdict(decision=U, outcome=Outcome.COMPILER_FAULT, message="race made by the compiler", details={"known": True})
    unknown, other = replace(known, details={}), replace(known, outcome=Outcome.NOT_MODELLED)
    loud = "2 OF THEM NOT JUDGED, by faults that this release of Triton's compiler is known for"
    tallies = {name: counted(*given) for name, given in {"refused": [R], "alone": [], "beside": [R], "failing": [R, C]}.items()}
    for name, tally in tallies.items():
        tally.accepts_known_faults = name != "refused"
        tally.require("add", "host", [case(501)])
        for number in (501, 502):
            tally.count(case(number), "add", "host", {}, known)
    assert {name: tally.status() for name, tally in tallies.items()} == {"refused": 3, "alone": 3, "beside": 0, "failing": 1}
    assert {name: tally.to_json()["known_faults"] for name, tally in tallies.items()} == dict.fromkeys(tallies, 2) | {"refused": 0}
    assert {name for name, tally in tallies.items() if loud in tally.sentence()} == {"alone", "beside", "failing"}
    assert "none of 2 cases of add on host comes through the compiler without a fault" in tallies["alone"].sentence()
    assert "2 of 3 cases of add on host are inconclusive, 1 of them of the required" in tallies["refused"].sentence()
    for verdict in (unknown, other):
        tally = counted(R)
        tally.accepts_known_faults = True
        tally.count(case(501), "add", "host", {}, verdict)
        assert tally.status() == 3 and "NOT JUDGED" not in tally.sentence()


def test_a_run_says_what_its_cases_told_apart_and_what_none_did() -> None:
    findings = (
        CertificateFinding(Kind.CONSTANT, "F", "one bit less", 3, 100),
        CertificateFinding(Kind.CONSTANT, "F", "one bit more", 1, 100),
        CertificateFinding(Kind.CONSTANT, "block", "halved", 2, 100),
        CertificateFinding(Kind.CONSTANT, "block", "doubled", 0, 100),
        CertificateFinding(Kind.CONSTANT, "order", "K in reverse", 0, 100),
        CertificateFinding(Kind.MOVEMENT, "a axis 0", "index without its lowest bit", 50, 100),
    )
    certificate = Certificate(findings, words=1000, formats="fp16")
    told = "constant: F 1 % (10); movement: a axis 0; not exposed: block (doubled) in 100 words, order in 100 words"
    assert certificate.line() == f"fp16 out, 1,000 words: {told}"
    tally = Tally()
    verdict = Verdict(decision=R, outcome=Outcome.PASS, words=1000, certificate=certificate.to_json())
    tally.count(case(1), "add", "host", {}, Verdict.from_json(json.loads(json.dumps(verdict.to_json()))))
    assert tally.discrimination.lines() == [
        "exposed on host by 1 case: F 1 of 1 cases, block 0 of 1 cases, order 0 of 1 cases, movement in 1 of 1 dimensions",
        "not exposed on host: block, order",
    ]
    assert "F 1/1, block 0/1, order 0/1" in report.text_of(tally.discrimination.table())


def test_required_cases_that_was_not_judged_whole_is_not_right() -> None:
    tally = Tally()
    tally.require("add", "host", [case(1), case(2)])
    verdict = judge(case(1), HOST)
    tally.count(case(1), "add", "host", {}, verdict)
    assert tally.status() == 3 and "1 of the required cases was not judged" in tally.sentence()
    tally.count(case(2), "add", "host", {}, verdict)
    assert tally.status() == 0


def test_what_was_not_run_is_one_line_where_there_is_much_of_it(capsys: pytest.CaptureFixture) -> None:
    for count, with_table, lines in ((3, False, 3), (4, False, 1), (4, True, 4)):
        tally = counted(R)
        for number in range(count):
            tally.not_run(f"gather{number}", "sm_80", "lacks gather4")
        report.show(report.console(), tally, 2.5, with_table=with_table)
        out = capsys.readouterr().out
        assert out.count("\nnot run: ") + out.startswith("not run: ") == lines and ("gather3" in out) == (with_table and count == 4)
        assert report.target_text(tally, 2.5) == "host 1 in 2.5 s; -v for the table"
        assert ("Verdicts" in out) == ("basis, and in how many cases" in out) == with_table
    assert "not run: 4 pairs of a kernel and a target, for a missing feature (4 kernels; -v names them)" in report._fold_not_run(
        tally
    )


def test_the_progress_line_says_of_a_refusal_that_it_was_expected(capsys: pytest.CaptureFixture) -> None:
    for decision, said in ((R, "add on host: refused, as expected\n"), (C, "add on host: refused; 1 failed\n")):
        with ProgressDisplay(report.console()) as showing:
            showing.expect(1)
            showing.on_verdict("add", "host", Verdict(decision=decision, outcome=Outcome.REFUSED))
        assert capsys.readouterr().out.endswith(said)


def test_one_error_in_many_cases_is_not_right_and_is_told_with_its_place() -> None:
    tally = counted(*[R] * 100)
    raised = Verdict(decision=E, outcome=Outcome.ERROR, message="the contract raised KeyError: 'c'", location="mine.py:3")
    tally.count(case(500), "add", "host", {}, raised)
    assert tally.status() == 3 and "1 case ended in an error, which is no fault of a kernel" in tally.sentence()
    assert "the contract raised KeyError: 'c' (mine.py:3)" in tally.sentence()
    shown = report.text_of(report.table(tally), *report.not_run_lines(tally))
    assert "error ┃" in shown and "error (1 case): the contract raised" in shown
    assert "error" not in report.text_of(report.table(counted(R)))


def test_a_required_case_that_is_inconclusive_is_not_right() -> None:
    """However many others are right: it is there because nothing else asks what it asks."""
    tally = counted(*[R] * 100)
    tally.require("add", "host", [case(500)])
    tally.count(case(500), "add", "host", {}, Verdict(decision=U, outcome=Outcome.NOT_MODELLED, message="tt.x"))
    assert tally.status() == 3
    assert "1 of 101 cases of add on host is inconclusive, 1 of them of the required cases" in tally.sentence()
    assert "0/1" in report.text_of(report.table(tally)) and "  the first: add on host: n=500" in report.not_run_lines(tally)[1]
    other = counted(*[R] * 100)
    other.count(case(500), "add", "host", {}, Verdict(decision=U, outcome=Outcome.NOT_MODELLED, message="tt.x"))
    assert other.status() == 3  # a drawn one too: no share of them is small enough


def test_what_one_contract_leaves_open_is_not_outweighed_by_another() -> None:
    tally = counted(*[R] * 1000)
    for number, decision in enumerate([R] * 9 + [U]):
        tally.count(case(number), "sub", "host", {}, Verdict(decision=decision, outcome=Outcome.PASS))
    assert tally.status() == 3 and "1 of 10 cases of sub on host is inconclusive" in tally.sentence()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_the_table_fits_the_screen_and_no_count_in_it_is_cut(width: int) -> None:
    tally = counted(*[R] * 380, *[U] * 3)
    for row in tally.rows.values():
        row.contract, row.target, row.words = "test_tril.py:test_tril", "emulated:sm_100", 1_541_981
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    screen.print(report.table(tally, screen))
    text = screen.file.getvalue()
    assert max(map(len, text.splitlines())) <= width and "…" not in text and "┃┃" not in text and "││" not in text
    assert {"pass", "fail", "380", "inconclusive", "3"} <= set(text.replace("┃", " ").replace("│", " ").split())
    assert ("basis" in text) == (width == 160) and ("1,541,981" in text) == (width >= 100), "the least that matters goes first"


def test_the_table_says_what_verdicts_rest_on_and_what_was_not_run() -> None:
    tally = counted(R, R, C)
    tally.not_run("add", "elsewhere", "elsewhere lacks tcgen05.mma")
    shown = report.text_of(report.table(tally), *report.not_run_lines(tally))
    assert "words 3" in shown and "elsewhere lacks tcgen05.mma" in shown and "not run" in shown


@pytest.mark.parametrize(("decision", "outcome"), [(U, Outcome.NOT_MODELLED), (E, Outcome.ERROR)])
def test_the_five_commonest_reasons_are_told_each_with_its_cases(decision: Decision, outcome: Outcome) -> None:
    tally = Tally()
    for number in range(6):
        for _ in range(number + 1):
            tally.count(case(1), "add", "host", {}, Verdict(decision=decision, outcome=outcome, message=f"reason {number}"))
    told = [line for line in report.not_run_lines(tally) if not line.startswith("  the first: ")]
    assert told == [f"{decision} ({number + 1} cases): reason {number}" for number in (5, 4, 3, 2, 1)]


def test_the_time_line_says_the_pace_each_bucket_and_the_harness_s_share() -> None:
    tally = Tally()
    spent = {"compile": 3.0, "launch": 1.0, "reference": 2.0, "transfer": 0.5, "harness": 0.5, "start": 1.0, "total": 8.0}
    for _ in range(3):
        tally.count(case(1), "add", "cuda:0", {}, Verdict(decision=R, outcome=Outcome.PASS, seconds=spent))
    tally.wall = 1.5
    line = report.time_line(tally)
    assert line.startswith("2.0 cases a second, 1.5 s; time in workers: compile 9.0 s, reference 6.0 s") and "start 3.0 s" in line
    assert line.endswith("the harness's own (transfer + harness + start): 25%") and "total" not in line
    assert tally.to_json()["own_share"] == 0.25
    assert report.time_line(Tally()) == ""


def test_the_wall_runs_from_the_tallys_birth_to_its_last_verdict() -> None:
    tally = Tally()
    tally.start_time -= 10
    tally.count(case(1), "add", "host", {}, judge(case(1), HOST))
    assert 10 <= tally.wall < 20


def test_a_failure_shows_words_clusters_picture_and_its_replay_line() -> None:
    heat = {"cell": [8, 8], "tile": [8, 8], "percent": [[0, 100], [10, 0]]}
    details = {
        "clusters": ["only in the last row of tiles"],
        "heat": heat,
        "first": [{"at": [1, 2], "got": "0x1", "expected": "0x2", "ulp": 1}] * 2,
    }
    verdict = Verdict(
        decision=C, outcome=Outcome.WRONG_WORDS, message="c: 2 of 4 words differ", location="mine.py:3", details=details
    )
    shown = report.text_of(failure_report("add", "host", case(3), verdict, ["5 cases show it"], "bitverdict replay x.json"))
    for part in (
        "FAIL add on host: wrong words",
        "at mine.py:3",
        "last row of tiles",
        "0x2",
        "| █|",
        "|· |",
        "n=3",
        "5 cases show it",
        "replay x.json",
    ):
        assert part in shown


def test_json_lines_and_junit_are_whole_at_any_time(tmp_path: Path) -> None:
    records = Records(tmp_path / "run.jsonl", tmp_path / "run.xml")
    records.begin({"profile": "quick"})
    tally = Tally()
    for fault in ("", "wrong"):
        verdict = judge(case(20, fault=fault), HOST)
        records.on_count(case(20, fault=fault), "add", "host", {}, verdict)
        tally.count(case(20, fault=fault), "add", "host", {}, verdict)
        events = [json.loads(line)["event"] for line in (tmp_path / "run.jsonl").read_text().splitlines()]
        assert events[-1] == "verdict"
        ElementTree.parse(tmp_path / "run.xml")
    records.end(tally)
    suite = ElementTree.parse(tmp_path / "run.xml").getroot()[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("add-host", "2", "1")
    summary = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[-1])
    assert summary["status"] == 1 and summary["rows"][0]["words"] == 40


def test_a_verdict_without_times_takes_no_time_in_the_junit_file(tmp_path: Path) -> None:
    records = Records(None, tmp_path / "run.xml")
    records.on_count(case(1), "add", "host", {}, Verdict(decision=N, outcome=Outcome.NOT_RUN, message="no GPU"))
    records.end(Tally())
    assert ElementTree.parse(tmp_path / "run.xml").getroot()[0][0].get("time") == "0.000"


def test_a_log_gets_the_first_verdict_at_once(capsys: pytest.CaptureFixture) -> None:
    with ProgressDisplay(report.console()) as showing:
        showing.expect(2)
        showing.on_verdict("add", "host", judge(case(3), HOST))
        showing.on_verdict("add", "host", judge(case(3), HOST))
    out = capsys.readouterr().out
    assert "1/2 cases, last add on host: pass" in out and "2/2" not in out
