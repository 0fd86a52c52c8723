"""Text of others in a log that a CI service reads: none of its lines is a command.

GitHub's runner trims blanks, and executes each line of a log that then begins with ``::``, or that has ``##[`` in it.
"""

from __future__ import annotations

import re
from typing import TextIO

_SEPARATORS = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""Characters that some readers end a line by, beside a line feed."""
_COMMAND = re.compile(r"^(\s*)(?=::)", re.MULTILINE)


def no_commands(text: str) -> str:
    """`text` with a mark before each line that would be a command, and other line ends as their codes."""
    text = _SEPARATORS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return _COMMAND.sub(r"\1| ", text.replace("##[", "# #["))


def count_text(count: int, thing: str, things: str = "") -> str:
    """ "1 word", "2,000 words", and `things` where an s does not make several."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def case_count(count: int) -> str:
    """ "1 case", "2 cases"."""
    return count_text(count, "case")


class Log:
    """A file that is written without commands; all else is the file's own."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(no_commands(text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)
