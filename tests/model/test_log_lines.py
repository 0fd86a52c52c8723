"""Contract under test: no line of a log that others have a say in is a command of GitHub's runner."""

from __future__ import annotations

import io

import pytest

from bitverdict.harness.model.log_lines import Log, no_commands


@pytest.mark.parametrize(
    "text",
    [
        "::error::x",
        "  \t::stop-commands::x",
        "said\n::add-mask::x",
        "said\x85::error::x",
        "said\u2028 ::error::x",
        "a ##[error]x",
        "a\r::x::",
    ],
)
def test_no_line_is_a_command(text: str) -> None:
    file = io.StringIO()
    Log(file).write(text)  # type: ignore[arg-type]
    for line in file.getvalue().splitlines():
        assert not line.strip().startswith("::") and "##[" not in line


def test_other_lines_are_as_they_were() -> None:
    text = "FAIL a.py:f on emulated:sm_90\n  c::d, at [0, 0]\n"
    assert no_commands(text) == text
