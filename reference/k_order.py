"""In which order the K elements of a warp-level matrix instruction are taken, when registers hold more of them than it reads at
once.

A thread of `mma.sync` reads 32 bits of consecutive K elements of each operand half. A compiler may load more consecutive
elements a thread than that (`k_width` > 32 / bits): one load then feeds k_width * bits / 32 instructions, the first of which
takes the low 32 bits of every thread, the next the following ones. The sum is the same set of products, in other blocks, so its
bits differ.

Source: Triton 3.9, lowering of `tt.dot` on a version 2 MMA layout; read off the PTX of an e4m3 product that is widened to fp16
(k_width 4): of each 32 elements the first instruction gets those with k modulo 4 in {0, 1}, the second those in {2, 3}. It is
the grouping that ptxas gives fp8 `mma.sync` on sm_90. Of 16 elements alone, the fewest that Triton takes, one instruction gets
the former as its first half and the latter as its second."""

from __future__ import annotations

import numpy as np


def instruction_order(k: int, bits: int, k_width: int) -> np.ndarray:
    """(k,) positions in the order the instructions take them, for elements of `bits` bits; the identity where k_width * bits <= 32.

    `k` must be a whole number of groups of 8 * k_width elements (one load of a row by a quad of threads, for both halves), or half
    a group, of which a thread has one load, whose registers feed both halves in turn: ValueError otherwise."""
    per_register = max(32 // bits, 1)  # consecutive elements of a thread in one instruction
    if k_width <= per_register:
        return np.arange(k)
    group = 4 * k_width if k == 4 * k_width else 8 * k_width
    if k % group or k_width % per_register:
        takes = f"k must be {4 * k_width} or a multiple of {8 * k_width}, and k_width a multiple of {per_register}"
        raise ValueError(f"k={k}, k_width={k_width}: {takes}; pad k with zeros")
    places = np.arange(k).reshape(
        k // group, group // k_width, k_width // per_register, per_register
    )  # (groups, thread and half, register, element)
    return places.transpose(0, 2, 1, 3).reshape(k)  # (k,)


def mfma_order(k: int, groups: int, width: int, base: int) -> np.ndarray:
    """(k,) positions in the order in which the MFMA instructions of a product take them: `groups` groups of lanes hold `width`
    neighbours each, of which one instruction takes `base`; where it takes more, `base` / `width` repetitions of them.

    ValueError where k is no multiple of groups times the larger, or the larger none of the smaller. Source: Triton 3.9, MFMA.cpp of
    its AMD backend; for the second case, LLVM IR of a chained product on gfx950."""
    most, least = max(width, base), min(width, base)
    if k % (groups * most) or most % least:
        rule = f"k must be a multiple of {groups * most} and {most} of {least}"
        raise ValueError(f"k={k}, {groups} groups of {width}, {base} in an instruction: {rule}; pad k with zeros")
    if base > width:  # (instructions, repetitions, groups, elements)
        return np.arange(k).reshape(-1, base // width, groups, width).transpose(0, 2, 1, 3).reshape(k)
    places = np.arange(k).reshape(-1, groups, width // base, base)  # (repetitions, groups, instructions, elements)
    return places.transpose(0, 2, 1, 3).reshape(k)  # (k,)
