"""Contract under test: docs/sanitizers.md says which verdicts of sanitizers were kept, and each difference from the emulated GPU
with its reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.lab.sanitizers import page, runs
from bitverdict.harness.lab.sanitizers.known_differences import KnownDifference, emulated_name
from bitverdict.harness.lab.sanitizers.runs import cases_of, name_of, read
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from tests.faults import sanitizer_bait
from tests.lab.test_sanitizers import ASKED, ASSERTED, ELSEWHERE, HOPPER, PASS, WRONG

ROOT = Path(__file__).parents[2]


HELD = ROOT / "tests" / "hardware_words" / "sanitizers_h200.json"


def rows(path: Path, *verdicts: tuple[str, str, Verdict]) -> list[Path]:
    """`path` as sanitize --json writes it, for the bait: (target, mode, verdict)."""
    case = sanitizer_bait.CONTRACT.required(HOPPER)[1]
    path.write_text(
        json.dumps(
            [
                {"contract": case.contract, "case": case.to_json(), "mode": mode, "target": target, "verdict": verdict.to_json()}
                for target, mode, verdict in verdicts
            ]
        )
    )
    return [path]


def test_the_cases_of_a_file_are_judged_again_where_the_contract_moved(tmp_path: Path) -> None:
    [path] = rows(tmp_path / "rows.json", ("cuda:0", "bare", WRONG), ("cuda:0", "iisan", WRONG))
    again = cases_of(read(path), sanitizer_bait.ADDRESS)
    assert again == [sanitizer_bait.CONTRACT.required(HOPPER)[1]]
    assert name_of("a/b/kernel.py:CONTRACT") == "kernel.py:CONTRACT" and name_of("matmul") == "matmul"


def test_a_file_from_before_the_loaders_question_is_read_as_of_now(tmp_path: Path) -> None:
    """From before it was known."""
    lines = ASKED.splitlines()
    old = Verdict(decision=Decision.FAIL, outcome=Outcome.LAUNCH_FAILURE, message=lines[1].removeprefix("========= "))
    cut = lines[4:]  # of a long backtrace the file has the end
    verdicts = [
        replace(old, details={"said": said, "judge": judge})
        for said, judge in ((lines, "pass"), (cut, "pass"), (cut, "wrong words"), (ELSEWHERE.splitlines(), "pass"))
    ]
    [path] = rows(tmp_path / "rows.json", *(("cuda:0", "memcheck", verdict) for verdict in verdicts))
    assert [row["verdict"]["outcome"] for row in read(path)] == ["pass", "pass", "launch failure", "launch failure"]


@pytest.mark.parametrize("text", ["{", "{}", '[{"case": 1}]', None])
def test_a_file_without_verdicts_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "rows.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match="sanitize --json"):
        read(path)
    with pytest.raises(ValueError, match=r"sanitizers\.page --keep"):
        page.read(path)


def test_the_page_is_what_was_kept_and_nothing_in_it_lacks_a_reason() -> None:
    held = page.read(HELD)
    text = page.page(held)
    assert (ROOT / "docs" / "sanitizers.md").read_text() == text, "write it anew: bitverdict lab pages sanitizers.md"
    assert page.NO_EXPLANATION not in text
    assert not any(place in text + HELD.read_text() for place in ("/work", "/tmp", "/root", "/opt"))
    asked = {(row[0], row[1]) for row in held["rows"]}
    assert asked >= {(case, mode) for case in range(len(held["cases"])) for mode in (*runs.MODES, *page.EMULATED_MODES)}


def test_the_summary_counts_what_the_rows_say() -> None:
    """A false alarm, which the clean kernel gets too, names nothing."""
    held = page.read(HELD)
    counted = page.summary(held)
    hazards, _, _, clean = counted["all"]
    assert hazards >= 44 and clean >= 8 and counted["emulated"] == [hazards, 0, hazards, 0]
    assert max(cells[2] for cells in counted.values()) == hazards
    assert counted["any of these"][2] >= counted["consan"][2] >= 32 and counted["bare"][3] == 0
    alarms = page.alarms(held)
    assert {mode for _, mode in alarms} == {"racecheck"}
    number = next(n for n, mode in sorted(alarms) if mode == "racecheck" and page.is_hazard(held["cases"][n]))
    moved = [[*row[:5], "elsewhere.py:3", row[6]] if tuple(row[:2]) == (number, "racecheck") else row for row in held["rows"]]
    again = held | {"rows": moved}  # mutated: the same words about another line are a finding
    assert (number, "racecheck") not in page.alarms(again)
    assert page.summary(again)["racecheck"][2] == counted["racecheck"][2] + 1
    of_the_judge = [[*row[:6], row[6] and page.is_hazard(held["cases"][row[0]])] for row in held["rows"]]
    assert not page.alarms(held | {"rows": of_the_judge})  # what the clean kernel gets from the judge is no alarm
    silent = [row for row in held["rows"] if row[1] != "consan"]
    assert page.summary(held | {"rows": silent})["consan"] == [0, 0, 0, 0]


def test_a_reason_fits_by_its_words_and_an_assertion_means_what_it_says() -> None:
    one = KnownDifference(modes=("consan",), gpu_outcomes=("device assert",), message="Deadlock", alarm=True, why="so")
    assert one.fits("consan", "device assert", [], "a case", "Deadlock detected", True)
    assert not one.fits("consan", "device assert", [], "a case", "another", True)
    assert not one.fits("consan", "device assert", [], "a case", "Deadlock detected")
    assert emulated_name("device assert", "Buffer being accessed has outstanding writes. Operand: A") == "race"
    assert emulated_name("device assert", "async_load innermost coordinate must be aligned") == "device assert"


def test_a_new_difference_is_shown_without_a_reason(tmp_path: Path) -> None:
    """An old misnomer is put right."""
    misnamed = replace(ASSERTED, details={"text": "CUDA error: unspecified launch failure\nand so on"})
    files = rows(
        tmp_path / "rows.json",
        ("cuda:0", "bare", misnamed),
        ("cuda:0", "iisan", PASS),
        ("emulated:sm_90", "bare", PASS),
        ("emulated:sm_90", "iisan", PASS),
    )
    held = page.condense(files, {"machine": "a test"})
    assert page.differences(held) == {page.NO_EXPLANATION: ["0, bare: launch failure; emulated: pass"]}
    assert page.NO_EXPLANATION in page.page(held)


def test_what_was_kept_is_kept_again_beside_new_verdicts(tmp_path: Path) -> None:
    """Without what they replace."""
    [path] = rows(tmp_path / "rows.json", ("cuda:0", "bare", WRONG))
    held = page.condense([HELD, path], {"machine": "another"}, ["hopper_matmul"])
    before = page.read(HELD)
    assert held["origin"] == before["origin"] | {"machine": "another"}
    left = [case for case in before["cases"] if "hopper_matmul" not in case["contract"]]
    assert held["cases"][: len(left)] == left and len(held["rows"]) < len(before["rows"])
    assert {row[0] for row in held["rows"]} == set(range(len(held["cases"])))


def test_the_command_keeps_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = rows(tmp_path / "rows.json", ("cuda:0", "bare", WRONG), ("emulated:sm_90", "bare", WRONG))
    held = tmp_path / "held.json"
    assert page.main(["--keep", str(held), "--origin", "machine=a test", str(files[0])]) == 0
    assert page.main([str(held)]) == 0
    assert "machine a test" in capsys.readouterr().out
    assert page.main([str(files[0])]) == 2
