"""``bitverdict demo``: a right kernel, then the same without its mask, each judged on an emulated GPU. Both stay in the state
directory, so that the failing case can be replayed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

_MASK = "mask=at < n"
_TEST = f"""import bitverdict as bv
import torch
import triton
import triton.language as tl


@triton.jit
def row_sums_kernel(x, out, n, stride, BLOCK: tl.constexpr):
    at, program = tl.arange(0, BLOCK), tl.program_id(0).to(tl.int64)  # rows may be further apart than 2^31 elements
    row = tl.load(x + program * stride + at, {_MASK}, other=0.0)
    tl.store(out + program, tl.sum(row, 0))


def row_sums(x):
    m, n = x.shape
    out = torch.empty(m, device=x.device, dtype=x.dtype)
    row_sums_kernel[(m,)](x, out, n, x.stride(0), BLOCK=triton.next_power_of_2(n))
    return out


@bv.judged(reference=lambda xp, x: xp.sum(x, axis=1))
def test_row_sums(draw):
    m, n = draw.size(1, 4), draw.size(1, 200)
    return row_sums(draw.tensor("fp32", (m, n)))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="emulated:sm_90", metavar="TARGET", help="the machine (default emulated:sm_90)")


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 where the right kernel passed and the other one failed, else 3."""
    from bitverdict.harness.frontends import cli_run
    from bitverdict.harness.frontends.main import parser
    from bitverdict.harness.judge.machine_faults import writing
    from bitverdict.harness.model.paths import state_directory

    statuses, before = list[int](), Path.cwd()
    folder = state_directory() / "demo"
    with writing("demo", folder):
        folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    try:
        for name, text in (("test_right.py", _TEST), ("test_without_mask.py", _TEST.replace(f", {_MASK}, other=0.0", ""))):
            lines = [f"{number:4} {line}" for number, line in enumerate(text.splitlines(), 1) if "tl.load" in line]
            command = ["run", name, "--target", arguments.target, "--max-cases", "24"]
            print("\n".join([f"$ bitverdict {' '.join(command)}", f"{name}:", *lines]), flush=True)
            Path(name).write_text(text)
            statuses.append(cli_run.run(parser(command).parse_args(command)))
            print(flush=True)
    finally:
        os.chdir(before)
    return 0 if statuses == [0, 1] else 3
