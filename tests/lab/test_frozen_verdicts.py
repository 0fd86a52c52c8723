"""Contract under test: two files of frozen verdicts differ where one word or one message does, and are the same bytes where none
does; a file that was cut off is gone on with by the same sources alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.lab import frozen_verdicts
from bitverdict.harness.lab.frozen_verdicts import (
    differences,
    digests_of,
    judge_units,
    main,
    read_records,
    required_units,
    without_places,
    write_records,
)
from bitverdict.harness.model.paths import ROOT, state_directory
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict

STEM = "softmax"
UNITS = list(required_units([STEM]))[:5]


class PlantedPool:
    """Judges nothing: each case fails with a message and words of its own. `most`: cases before the run is killed."""

    def __init__(self, most: int = 1000) -> None:
        self.most, self.judged = most, 0

    def judge(self, case: Any, where: Any, *, place: int) -> Verdict:
        if self.judged == self.most:
            raise KeyboardInterrupt
        self.judged += 1
        return Verdict(
            decision=Decision.FAIL,
            outcome=Outcome.STRAY_READ,
            basis=Basis.OBSERVED_FAULT,
            message=f"read of {case.problem.columns} words",
            recorded={"digests": {"y": case.key[-8:]}, "launches": [{"kernel": "k", "program": "of this checkout"}]},
            seconds={"total": float(self.judged)},
        )

    def spread(self, units: Iterable, do: Callable) -> Iterator:
        for unit in units:
            yield do(unit, 0)


def frozen(folder: Path, pool: PlantedPool) -> list[dict]:
    return judge_units(UNITS, pool, folder / "part", folder)  # type: ignore[arg-type]


@pytest.fixture
def records(tmp_path: Path) -> list[dict]:
    return frozen(tmp_path, PlantedPool())


def test_equal_verdicts_are_equal_bytes(tmp_path: Path, records: list[dict]) -> None:
    write_records(tmp_path / "one.gz", records)
    (tmp_path / "part").unlink()
    write_records(tmp_path / "two.gz", frozen(tmp_path, PlantedPool()))
    one, two = ((tmp_path / name).read_bytes() for name in ("one.gz", "two.gz"))
    assert one == two and one[4:8] == bytes(4), "gzip's header has no time"
    assert differences(tmp_path / "one.gz", read_records(tmp_path / "two.gz")) == []
    assert "of this checkout" not in json.dumps(records) and "seconds" not in records[0]


PLANTED = {
    "message": "read of 2 words",
    "digests": {"y": "another"},
    "basis": str(Basis.NO_BASIS),
    "decision": "pass",
    "details": {"first": ["y[0, 0]"]},
}


@pytest.mark.parametrize("field", PLANTED)
@pytest.mark.parametrize("suffix", ["gz", "json"])
def test_one_planted_difference_is_printed_and_ends_with_1(
    field: str, suffix: str, tmp_path: Path, records: list[dict], capsys: pytest.CaptureFixture
) -> None:
    old, now = tmp_path / f"old.{suffix}", tmp_path / "now.gz"
    write_records(tmp_path / "now.gz", records)
    assert main([str(now), "--digests", str(tmp_path / "old.json")]) == 0
    write_records(tmp_path / "old.gz", records)
    assert main([str(now), "--compare", str(old)]) == 0
    changed = copy.deepcopy(records)
    changed[2][field] = PLANTED[field]
    write_records(now, changed)
    capsys.readouterr()
    assert main([str(now), "--compare", str(old)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{STEM} on {records[2]['target']}: {field if suffix == 'gz' else '(records, digest)'} was ")
    assert lines[1:] == ["5 records, 1 differences"]


def test_cases_that_came_and_went_are_differences(tmp_path: Path, records: list[dict]) -> None:
    write_records(tmp_path / "old.gz", records[:4])
    lines = differences(tmp_path / "old.gz", records[1:])
    assert [line.partition(": {")[0].rpartition(": ")[2] for line in sorted(lines)] == ["judged no more", "not judged before"]


def test_kernels_that_were_not_judged_now_are_not_compared(tmp_path: Path, records: list[dict]) -> None:
    other = [record | {"name": "rope"} for record in records]
    write_records(tmp_path / "old.gz", [*records, *other])
    (tmp_path / "old.json").write_text(json.dumps({"digests": digests_of([*records, *other])}))
    assert differences(tmp_path / "old.gz", records) == differences(tmp_path / "old.json", records) == []


def test_a_run_that_was_cut_off_goes_on_and_gives_the_same_records(tmp_path: Path, records: list[dict]) -> None:
    (tmp_path / "part").unlink()
    with pytest.raises(KeyboardInterrupt):
        frozen(tmp_path, PlantedPool(most=3))
    with (tmp_path / "part").open("a") as part:
        part.write('["a line that the kill tore')
    pool = PlantedPool()
    assert frozen(tmp_path, pool) == records and pool.judged == 2


def test_other_sources_judge_all_anew(tmp_path: Path, records: list[dict], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_verdicts, "sources_digest", lambda: "of another commit")
    pool = PlantedPool()
    assert frozen(tmp_path, pool) == records and pool.judged == len(UNITS)


def test_what_differs_in_each_run_is_taken_out_and_words_are_not() -> None:
    folder = Path("frozen-1a2b")
    said = (
        f"{state_directory()}/replayed/0a1b/x.py:3 read at 0x7f5109cda100 (nearest: x, -8 bytes), {folder}/softmax.py:2 {folder} "
    )
    assert without_places(said, folder) == "x.py:3 read at ADDRESS, softmax.py:2  "
    far = f"File {ROOT}/kernels/softmax.py, line 3: read 23,671,630,609,504 elements before c, 4,294,967,296 elements of y"
    assert without_places(far, folder) == "File kernels/softmax.py, line 3: read FAR elements before c, 4,294,967,296 elements of y"
    assert without_places("0x7ff8000000000000 for 0x3c00", folder) == "0x7ff8000000000000 for 0x3c00"


def test_usage_errors_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    there = tmp_path / "there.gz"
    there.write_bytes(b"no file of ours")
    assert main([str(there)]) == 2 and "is there already; name another file" in capsys.readouterr().err
    assert main([str(there), "--compare", str(there)]) == 2 and "cannot be read" in capsys.readouterr().err
    assert main([str(tmp_path / "new.gz"), "softmacks"]) == 2 and "softmacks: no kernel with a contract" in capsys.readouterr().err


def test_each_fault_is_a_unit_whose_cases_are_made_late(tmp_path: Path) -> None:
    from bitverdict.harness.lab.frozen_faults import fault_units

    units = list(fault_units(tmp_path, [STEM]))
    assert len(units) >= 8 and len({unit.key for unit in units}) == len(units) and not list(tmp_path.iterdir())
    case, where = next(iter(units[0].cases()))
    assert case.contract.startswith(str(tmp_path)) and where.emulated
