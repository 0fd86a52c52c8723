"""What the compiler answers: every point to machine code, ptxas included, in a worker that may die of it.

python -m bitverdict.harness.lab.tma_limits.compiler_answers ARCH      points as lines of JSON on stdin, an answer a line on stdout
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

WORKER = (sys.executable, "-m", "bitverdict.harness.lab.tma_limits.compiler_answers")


def by_compiler(grid: list[Point], arch: str, *, worker: Sequence[str] = WORKER) -> dict[str, dict]:
    """Key of a point -> answer. A worker that dies leaves "compiler abort" at the point it was at; the next one begins after it."""
    from bitverdict.harness.lab.tma_limits.points import key

    answers_by_key: dict[str, dict] = {}
    keys_left = [key(point) for point in grid]
    while keys_left:
        process = subprocess.run(
            [*worker, arch],
            input="\n".join(keys_left),
            capture_output=True,
            text=True,
            errors="replace",
            cwd=IMPORTED_FROM,
            env=environment_of_a_child(),
        )
        answers = [json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"outcome"')]
        answers_by_key |= dict(zip(keys_left, answers, strict=False))
        died, keys_left = keys_left[len(answers) : len(answers) + 1], keys_left[len(answers) + 1 :]
        for at in died:
            said = (process.stderr.strip().splitlines() or [""])[-1][:300]
            how = signal.Signals(-process.returncode).name if process.returncode < 0 else f"status {process.returncode}"
            answers_by_key[at] = {"outcome": "compiler abort", "message": f"{how}: {said}", "location": ""}
    return answers_by_key


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
    from bitverdict.harness.judge.offline_driver import capture_compilations

    with capture_compilations(words[0]):
        for line in sys.stdin:
            print(json.dumps(answer(Point(**json.loads(line)))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
