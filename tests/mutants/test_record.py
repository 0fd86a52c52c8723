"""Contract under test: the records of mutants come back from JSON as they went, and a results file loses no whole line."""

from __future__ import annotations

import json
from pathlib import Path

from bitverdict.harness.mutants.record import End, GeneratedMutant, JudgedMutant, Kind, MutantResult, append, read, score

MUTANT = GeneratedMutant(
    id="k/f/mask dropped/0", kernel="k", kind=Kind.SOURCE, operator="mask dropped", family="mask", file="k.py", line=3,
    before="load(p, mask=m)", after="load(p)", edit={"start": 1, "end": 2, "of": "m", "by": ""},
)  # fmt: skip
RESULT = MutantResult(mutant=MUTANT.id, end=End.KILL, killed_by="b", outcome="stray read", cases_run=2, also_killed_by=("a",))


def test_a_mutant_and_its_result_go_through_json_unchanged() -> None:
    again = GeneratedMutant.from_json(json.loads(json.dumps(MUTANT.to_json())))
    assert (again, again.edit) == (MUTANT, MUTANT.edit)
    assert MutantResult.from_json(json.loads(json.dumps(RESULT.to_json()))) == RESULT


def test_a_results_file_gives_the_last_line_of_each_mutant_and_no_half_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    assert list(read(path)) == []
    append(path, JudgedMutant(MUTANT, MutantResult(mutant=MUTANT.id, end=End.ERROR)))
    append(path, JudgedMutant(MUTANT, RESULT))
    with path.open("a") as file:
        file.write('{"mutant": {"id"')
    assert [judged.result for judged in read(path)] == [RESULT]


def test_the_score_counts_live_mutants_alone() -> None:
    ends = [End.KILL, End.KILL, End.SURVIVAL, End.DOUBTFUL, End.EQUIVALENT, End.INVALID, End.ERROR]
    assert score(MutantResult(mutant=str(place), end=end) for place, end in enumerate(ends)) == (2, 4)
