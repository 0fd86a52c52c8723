"""Contract under test: a reproducer of others runs none of its own text unasked, and one that is no record is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.reproducers import Reproducer, check_foreign, read

HERE = Path(__file__)


def stored(source: str, *, sealed: bool) -> Reproducer:
    case = {"contract": "matmul", "launcher": f"{source}:f", "sealed": sealed}
    return Reproducer(
        case=case,
        target="emulated:sm_90",
        verdict={},
        signature=("fail", "", ""),
        versions={},
        machine="",
        sources={source: "1 / 0"},
    )


def test_stored_text_runs_only_where_it_is_asked_for_or_sealed() -> None:
    with pytest.raises(UsageError, match="would run with your rights; read it, then give --embedded"):
        check_foreign(stored("/absent/mine.py", sealed=False), HERE, embedded=False)
    check_foreign(stored("/absent/mine.py", sealed=False), HERE, embedded=True)
    check_foreign(stored("/absent/mine.py", sealed=True), HERE, embedded=False)
    check_foreign(stored(str(HERE), sealed=False), HERE, embedded=False)


def test_a_hundred_thousand_brackets_are_no_reproducer(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="is not JSON"):
        read(tmp_path / "deep.json")
