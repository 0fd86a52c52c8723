"""Contract under test: a launch with a recorder tells which program stored which word, and what the chip did, in order."""

from __future__ import annotations

import json

import torch

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.emulator.cuda_tensors import inside
from bitverdict.harness.emulator.recorder import Recorder
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.report.collect import failure, merge_runs
from bitverdict.harness.report.examine import examine, tile_map
from bitverdict.harness.report.source import listing
from bitverdict.harness.report.timeline import timeline
from bitverdict.kernels import hopper_matmul
from tests.support import emulated_launches, vector_add
from tests.support.told_run import told


def test_a_failing_case_is_told_by_program_and_error() -> None:
    contract = resolve(vector_add.ADDRESS)
    problem = vector_add.Problem(n=130)
    case = Case(contract=vector_add.ADDRESS, problem=problem, launcher="tests.support.told_run:adds_a_twice")
    found = json.loads(json.dumps(examine(case, target("emulated:sm_90"), contract)))
    (output,) = found["outputs"]
    assert output["wrong"] > 0 and found["writers"][output["first_writer"] - 1] == [0, [0, 0, 0]]
    assert {writer for row in output["map"]["cells"] for _, _, writer, *_ in row} == {1, 2, 3}  # 130 elements, 64 a program
    assert sum(map(sum, output["errors"]["counts"])) + output["errors"]["zero"][0] == 130
    assert "vector_add.py:" in found["stored_at"]


def test_the_recorder_sees_a_ring_of_stages_and_changes_no_word() -> None:
    recorder = Recorder()
    with emulated("sm_90", "eager"):
        expected, _ = emulated_launches.hopper(hopper_matmul)
    with emulated("sm_90", "eager", options=LaunchOptions(probes=(recorder,))):
        got, _ = emulated_launches.hopper(hopper_matmul)
    assert torch.equal(got, expected)
    assert (recorder.writers_of(inside(got)) > 0).all()
    told_events = recorder.to_json(recorder.last_program)
    kinds = [each["kind"] for each in told_events["events"]]
    assert {"issued", "landed", "known", "barrier", "phase", "passes"} <= set(kinds)
    flights = {each["flight"] for each in told_events["events"] if each["kind"] == "issued"}
    for flight in flights:
        own = [each["kind"] for each in told_events["events"] if each["flight"] == flight]
        assert own[0] == "issued" and own.index("landed") < own.index("known") if "known" in own else True
    assert "stage 1 of line" in timeline(told_events)


def test_a_map_divides_the_tiles_and_counts_each_word_once() -> None:
    wrong = torch.zeros(100, 70, dtype=torch.bool)
    wrong[64:80, 32:] = True
    found = tile_map(wrong.numpy(), wrong.numpy().astype("int32"), (32, 32), None)
    assert found["cell"] == [4, 2]
    assert sum(count for row in found["cells"] for count, *_ in row) == 7000
    assert sum(bad for row in found["cells"] for _, bad, *_ in row) == 16 * 38


def test_the_source_is_read_around_the_marked_line() -> None:
    contract = resolve("tests.support.vector_add:WRONG")
    case = contract.required(target("emulated:sm_90"))[0]
    (file,) = listing({f"{vector_add.__file__}:30": "race: here"}, case)
    assert [line["number"] for line in file["lines"] if line["said"]] == [30]
    assert listing({"nowhere.py:3": "x", "": "y"}, case) == []


def test_a_case_that_is_not_launched_again_says_why() -> None:
    contract = resolve("tests.support.vector_add:WRONG")
    case = contract.required(target("emulated:sm_90"))[0]
    verdict = Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS, message="c: wrong")
    said = failure("add", target("emulated:sm_90"), case, verdict, [], "bitverdict replay x", None)
    assert "more failures" in said["not_examined"] and said["pictures"] == []


def test_pages_of_several_nodes_are_one_page() -> None:
    both = merge_runs([told(), {**told(), "status": 3}])
    assert len(both["rows"]) == 6 and len(both["failures"]) == 2 and both["status"] == 3
    assert merge_runs([])["status"] == 0
