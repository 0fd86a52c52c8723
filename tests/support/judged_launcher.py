"""A launcher of the tutorial's matmul with lines of one's own in it, judged in this process."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Verdict
from bitverdict.kernels.matmul import Problem
from tests.faults.mutants import replaced_once

CHECKOUT = Path(__file__).resolve().parents[2]
TUTORIAL = (CHECKOUT / "docs" / "examples" / "tutorial_matmul.py").read_text()
RESULT = "    c = torch.empty((M, N), device=a.device, dtype=a.dtype)\n"
LAUNCH = "    matmul_kernel[grid]"
END = "    return c\n"


def launcher(*, before: str = "", result: str = RESULT, handle: str = "", after: str = "", module: str = "") -> str:
    """The tutorial's file with `module` at its top level, `before` at the launcher's begin, `result` where it allocates, the
    compiled kernel in the name `handle`, and `after` at its end."""
    text = TUTORIAL
    for line, written in (
        (RESULT, _indented(before) + (_indented(result) if result != RESULT else result)),
        (LAUNCH, f"    {handle} = matmul_kernel[grid]" if handle else LAUNCH),
        (END, _indented(after) + END),
        ("def matmul(a, b):\n", f"{module}\n\n\ndef matmul(a, b):\n"),
    ):
        text = replaced_once(text, line, written, "tutorial_matmul")
    return text


def judged(text: str, directory: Path, *, arch: str = "sm_90", stem: str = "matmul", name: str = "matmul", **case: Any) -> Verdict:
    """The verdict on the launcher `name` of a file with `text`, by default on a matmul of 70 x 40 x 50."""
    file = directory / f"launcher_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
    file.write_text(text)
    asked = Case(contract=stem, problem=Problem(m=70, n=40, k=50), data_seed=1)
    return judge(replace(asked, launcher=f"{file}:{name}", **case), target(f"emulated:{arch}"), resolve(stem))


def _indented(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.strip("\n").splitlines())
