"""Contract under test: what `benchmarks/campaign.py` makes of a line of defaults, of a results file, and of Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.campaign import REQUIRED_PATH, Option, append, parse, records, refuse, run_script

DEFAULTS: dict[str, Any] = {
    "k": "", "cases": 6, "rate": 0.5, "out": Path, "dry_run": False, "judge": True, "target": [], "sizes": (64, 128), "not_": "",
    "arch": Option("sm_90", choices=["sm_80", "sm_90"]),
}  # fmt: skip


def options(line: str) -> dict[str, Any]:
    return vars(parse("", "do=hold|time", "names*", argv=line.split(), **DEFAULTS))


def test_an_option_has_the_type_of_its_default() -> None:
    assert options("hold") == {
        "do": "hold", "names": [], "k": "", "cases": 6, "rate": 0.5, "out": None, "dry_run": False, "judge": True, "target": [],
        "sizes": [64, 128], "not_": "", "arch": "sm_90",
    }  # fmt: skip
    line = "--cases 7 --rate 1 --out o --dry-run --no-judge --target a --target b -k t --not u --arch sm_80 time x y --sizes 1 2"
    assert options(line) == {
        "do": "time", "names": ["x", "y"], "k": "t", "cases": 7, "rate": 1.0, "out": Path("o"), "dry_run": True, "judge": False,
        "target": ["a", "b"], "sizes": [1, 2], "not_": "u", "arch": "sm_80",
    }  # fmt: skip


def test_zero_jobs_are_one_a_core() -> None:
    assert parse("", argv=[], jobs=0).jobs >= 1 and parse("", argv=["--jobs", "99"], jobs=0).jobs == 99
    assert parse("", argv=["--jobs", "0"], jobs=2).jobs == 0


@pytest.mark.parametrize("line", ["", "holds", "hold --cases x", "hold --arch sm_1"])
def test_what_is_no_option_ends_with_status_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        options(line)
    assert end.value.code == 2 and "error: " in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        parse("", argv=[], out=REQUIRED_PATH)
    assert end.value.code == 2


def test_a_record_that_was_cut_off_is_taken_away(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    assert records(None) == records(file) == []
    append(None, {"n": 0})
    append(file, {"n": 1})
    whole = file.read_text()
    file.write_text(whole + '{"n": 2')
    assert records(file) == [{"n": 1}] and file.read_text() == whole
    file.write_text(whole.rstrip())
    assert records(file) == [{"n": 1}]
    append(file, {"n": 3})
    assert records(file) == [{"n": 1}, {"n": 3}]


def test_a_script_ends_with_the_status_of_its_main(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    for main, status in ((lambda: None, 0), (lambda: 1, 1), (lambda: refuse("no such kernel"), 2), (interrupted, 130)):
        with pytest.raises(SystemExit) as end:
            run_script(main)
        assert end.value.code == status
    assert "error: no such kernel" in capsys.readouterr().err
