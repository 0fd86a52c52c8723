"""Contract under test: a reproducer of others runs none of its own text unasked, and one that is no record is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.frontends.main import main
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.reproducers import Reproducer, check_foreign, read, write

HERE = Path(__file__)


def stored(source: str, *, sealed: bool, text: str = "1 / 0") -> Reproducer:
    case = {"contract": "matmul", "launcher": f"{source}:f", "sealed": sealed}
    return Reproducer(
        case=case, target="emulated:sm_90", verdict={}, signature=("fail", "", ""), versions={}, machine="", sources={source: text}
    )


def test_stored_text_runs_only_where_it_is_asked_for_or_sealed() -> None:
    with pytest.raises(UsageError, match="would run with your rights; read it, then give --embedded"):
        check_foreign(stored("/absent/mine.py", sealed=False), HERE, embedded=False)
    check_foreign(stored("/absent/mine.py", sealed=False), HERE, embedded=True)
    check_foreign(stored("/absent/mine.py", sealed=True), HERE, embedded=False)
    check_foreign(stored(str(HERE), sealed=False), HERE, embedded=False)


def test_a_replay_asks_before_it_runs_stored_text(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ran = tmp_path / "ran"
    foreign = stored(f"{tmp_path}/absent/mine.py", sealed=False, text=f"open({str(ran)!r}, 'w')\n")
    problem = {"m": 3, "n": 5, "k": 7, "dtype": "fp16", "out": "fp16"}
    foreign = replace(foreign, case=foreign.case | {"version": 1, "problem": problem, "regime": "normal", "data_seed": 0})
    assert main(["replay", str(write(foreign, tmp_path))]) == 2
    assert "would run with your rights; read it, then give --embedded" in capsys.readouterr().err
    assert not ran.exists()


def test_a_hundred_thousand_brackets_are_no_reproducer(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="is not JSON"):
        read(tmp_path / "deep.json")
