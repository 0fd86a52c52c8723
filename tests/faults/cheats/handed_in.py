"""Each cheat as a model hands it in: one file, with the kernels that it needs in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
FUTURE = "from __future__ import annotations\n"
_SHARED = re.compile(r"^ *from tests\.faults\.cheats\.matmuls import [^\n]*\n", re.MULTILINE)


@cache
def candidate(family: str) -> str:
    """The text of the file with the cheats of `family`: the shared kernels stand in the place of the line that imports them."""
    text, kernels = (HERE / f"{family}.py").read_text(), (HERE / "matmuls.py").read_text()
    if family == "matmuls":
        return text
    head, _, rest = text.partition(FUTURE)
    shared = kernels.partition(FUTURE)[2]
    return head + FUTURE + shared + "\n\n" + _SHARED.sub("", rest)


def write_candidate(family: str, name: str, directory: Path) -> str:
    """Write the file of one cheat into `directory`, alone; its address."""
    file = directory / f"{family}_{name}.py"
    file.write_text(candidate(family))
    return f"{file}:{name}"
