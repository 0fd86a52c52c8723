"""Values a second of each approximate instruction of `bitverdict.reference.special_functions`, on one core, for ordinary arguments.

Run: `python -m benchmarks.special_functions [values]`. Exit status 1 when a goal is missed: 50 million values a second of each
instruction but `rsqrt.approx.f64`, which is three fused multiply-adds of fp64. The rate is that of the fastest of several runs, in
processor time.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from bitverdict.reference.special_functions.instructions import INSTRUCTIONS, Instruction

VALUES = 1 << 22
RUNS = 7
GOAL = 50  # million values a second
NO_GOAL = ("rsqrt.approx.f64",)


def ordinary(instruction: Instruction, values: int) -> list[np.ndarray]:
    """Operand words: normal numbers around 1, positive where the function is of positive numbers alone."""
    rng = np.random.default_rng(0)
    real = rng.standard_normal((instruction.operands, values)) * 4
    if instruction.name.startswith(("rsqrt", "sqrt", "lg2")):
        real = np.abs(real)
    if instruction.dtype is np.uint64:
        return list(real.view(np.uint64))
    if "16" not in instruction.name:
        return list(real.astype(np.float32).view(np.uint32))
    halves = (real.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)  # bf16; as fp16 they are ordinary too
    return list(halves) if instruction.dtype is np.uint16 else list(halves.astype(np.uint32) * np.uint32(0x10001))


def rate(instruction: Instruction, values: int) -> float:
    """Million values a second."""
    operands = ordinary(instruction, values)
    instruction(*(operand[:64] for operand in operands))
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        instruction(*operands)
        seconds.append(time.process_time() - start)
    return values / min(seconds) / 1e6


def main(values: int) -> int:
    """Print the table; 0 when every goal is met."""
    print(f"{values:,} values, one core, million values a second (goal {GOAL})")
    missed = 0
    for name, instruction in INSTRUCTIONS.items():
        found = rate(instruction, values)
        below = found < GOAL and name not in NO_GOAL
        missed += below
        print(f"  {name:24}{found:8.0f}{'  below the goal' if below else ''}{'  no goal' if name in NO_GOAL else ''}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else VALUES))
