"""What the compiler answers: every point to machine code, ptxas included, in a worker that may die of it.

python -m bitverdict.harness.lab.tma_limits.compiled ARCH      points as lines of JSON on stdin, an answer a line on stdout
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence

from bitverdict.harness.lab.tma_limits.contract import CONTRACT, case_of
from bitverdict.harness.lab.tma_limits.points import Point
from bitverdict.harness.model.paths import IMPORTED_FROM
from bitverdict.harness.model.trusted_imports import environment_of_a_child

WORKER = (sys.executable, "-m", "bitverdict.harness.lab.tma_limits.compiled")


def by_compiler(grid: list[Point], arch: str, *, worker: Sequence[str] = WORKER) -> dict[str, dict]:
    """Key of a point -> answer. A worker that dies leaves "compiler abort" at the point it was at; the next one begins after it."""
    from bitverdict.harness.lab.tma_limits.point_key import key

    found: dict[str, dict] = {}
    left = [key(point) for point in grid]
    while left:
        ended = subprocess.run(
            [*worker, arch],
            input="\n".join(left),
            capture_output=True,
            text=True,
            errors="replace",
            cwd=IMPORTED_FROM,
            env=environment_of_a_child(),
        )
        answers = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"outcome"')]
        found |= dict(zip(left, answers, strict=False))
        died, left = left[len(answers) : len(answers) + 1], left[len(answers) + 1 :]
        for at in died:
            said = (ended.stderr.strip().splitlines() or [""])[-1][:300]
            how = signal.Signals(-ended.returncode).name if ended.returncode < 0 else f"status {ended.returncode}"
            found[at] = {"outcome": "compiler abort", "message": f"{how}: {said}", "location": ""}
    return found


def answer(point: Point) -> dict:
    """Compile one point for the target whose driver is active; what the host refuses before that is its refusal."""
    import torch

    from bitverdict.harness.judge.classify import outcome_of
    from bitverdict.harness.judge.guarded_buffers import torch_dtype

    case = case_of(point)
    tensors = {}
    for o in CONTRACT.operands(case):
        strides = o.strides or tuple([1] * o.codes.ndim if o.codes.ndim == 1 else [o.codes.shape[1], 1])
        reach = 1 + sum((n - 1) * s for n, s in zip(o.codes.shape, strides, strict=True))
        flat = torch.zeros(o.offset + reach, dtype=torch_dtype(o.format))  # (reach,)
        tensors[o.name] = flat.as_strided(o.codes.shape, strides, o.offset)  # (*shape,)
    try:
        CONTRACT.launch(case, tensors, None)
    except Exception as error:  # whatever the compiler or the host says is an answer
        seen = outcome_of(error)
        return {"outcome": str(seen.outcome), "message": seen.message, "location": seen.layer}
    return {"outcome": "compiles", "message": "", "location": ""}


def main(words: Sequence[str]) -> None:
    from bitverdict.harness.judge.offline_driver import compiling

    with compiling(words[0]):
        for line in sys.stdin:
            print(json.dumps(answer(Point(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
