"""Why mutants of shipped kernels survive their required cases, written after each was looked at. The page tells it beside them.

A reason is one of two sorts. *Nothing to see*: what the mutant computes is what the kernel computes, and no general rule of
`bitverdict.harness.mutants.equivalence` shows it. *Not judged*: a difference that no required case is made to show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bitverdict.harness.mutants.record import GeneratedMutant


@dataclass(frozen=True)
class Reason:
    """`mutant`: a pattern that the id has. `text`: one that the line has, as it was or as it is; "" for any."""

    mutant: str
    text: str
    why: str

    def holds(self, mutant: GeneratedMutant) -> bool:
        told = f"{mutant.before}\n{mutant.after}"
        return re.search(self.mutant, mutant.id) is not None and re.search(self.text, told) is not None


NOTHING, NOT_JUDGED = "nothing to see", "not judged"
_TURNS = r"carried value|byte count|predicate|commit dropped|wait (dropped|count)|choice (dropped|inverted)|phase"
REASONS: tuple[Reason, ...] = (
    Reason(
        r"/cast (dropped|to another type)/",
        r"int64",
        f"{NOT_JUDGED}: the offset leaves 32 bits only beyond 2^31 elements of contiguous memory, 4 GiB and more",
    ),
    Reason(r"extension exchanged|cast exchanged", "", f"{NOTHING}: the number is not negative where it is used"),
    Reason(
        r"comparison of NaN",
        "",
        f"{NOTHING}: where one of the two is NaN the result is NaN either way, or neither can be NaN",
    ),
    Reason(
        r"/attention_kernel/accumulator (starts elsewhere|begins with one)",
        r"total|cf\.br",
        f"{NOTHING}: the first block rescales it by the exponential of minus infinity, which is zero",
    ),
    Reason(
        r"other value (changed|dropped)|constant changed",
        r"other=|tt\.load|async_copy_global_to_local|dense<0\.0+e\+00>",
        f"{NOTHING}: what a masked lane holds is not stored, or meets a zero of another operand",
    ),
    Reason(
        r"(branch forced|and for or|condition)",
        r"if (rows|columns|tiles|x\.numel|rows and columns)",
        f"{NOTHING}: a launch of no programs does nothing",
    ),
    Reason(
        r"attention_(dq|dk_dv)_kernel/mask off by one",
        r"depth",
        f"{NOT_JUDGED}: no required case has gradients and heads of a size off a power of two",
    ),
    Reason(
        r"accumulate flag dropped",
        r"-> true|true",
        f"{NOTHING}: the accumulator holds zeros before; if it held none, the emulated GPU would name an uninitialised read",
    ),
    Reason(
        r"trip count off by one|limit dropped",
        r"arith\.cmpi|arith\.minsi|range\(",
        f"{NOTHING}: a block past the last, of which every lane is masked",
    ),
    Reason(r"grid too large", "", f"{NOTHING}: the programs past the last find every lane masked, or no tile"),
    Reason(
        r"/block_of/|/(rms_norm_backward)/minimum for maximum",
        "",
        f"{NOTHING}: a row in a block of another size, whose other lanes are masked",
    ),
    Reason(r"/swizzled/|/shared_layout", "", f"{NOTHING}: how shared memory is swizzled decides bank conflicts, no word"),
    Reason(
        r"arguments swapped",
        r"block_n, block_m|BLOCK_N, BLOCK_M",
        f"{NOTHING}: tiles of another shape, over which the programs walk in any case",
    ),
    Reason(r"/load_registers/|/registers", "", f"{NOT_JUDGED}: an emulated GPU has registers without end"),
    Reason(r"/multiprocessors/", "", f"{NOT_JUDGED}: it shows on the second GPU of a machine"),
    Reason(r"/_launch/branch forced", "descriptors", f"{NOTHING}: descriptors made on the device or by the host, the same product"),
    Reason(r"comparison off by one", r"%y,", f"{NOTHING}: of a zero both branches of the activation make a zero"),
    Reason(
        r"store_target/branch forced",
        "if keep",
        f"{NOTHING}: this kernel writes every row, and never asks to keep what was there",
    ),
    Reason(
        _TURNS,
        r"cf\.br|ttng\.|ttg\.|arith\.select|arith\.cmpi",
        f"{NOT_JUDGED}: what a pipelined loop prepares for later turns, or waits for; in the cases that come here nothing uses it",
    ),
    Reason(
        r"/barrier dropped",
        r"barrier\(\)",
        f"{NOTHING}: the compiler puts a barrier where shared memory is used again, and the atomic that follows is one",
    ),
    Reason(
        r"/(copied|accumulated|offset_layout)/|layout turned",
        "",
        f"{NOTHING}: a layout of registers, which decides time; no sum changes its order by it",
    ),
    Reason(r"tmem_copy_kernel/(choice forced|constant changed|mask off by one)", "PARTS", f"{NOTHING}: a slice of the whole"),
    Reason(
        r"^small_mma/small_mma/(choice|comparison|heuristic)",
        "ompletion|COMMIT",
        f"{NOTHING}: another of the ways to wait that the launcher offers, each of which is right",
    ),
    Reason(r"/problem_of/", r"out is None", f"{NOT_JUDGED}: every case hands in the result, of which it keeps rows"),
    Reason(r"/row_padding/choice forced", r"dim\(\)", f"{NOT_JUDGED}: no case has a table of another rank"),
    Reason(
        r"dropout_kernel/.*(constant changed|mask off by one|operation exchanged)",
        r"1879881855|%x_110|dense<0>|k0_",
        f"{NOTHING}: it shows for one random number of 2^32, or in a key of a round that is not made",
    ),
    Reason(
        r"cross_entropy_kernel/.*constant changed",
        "0xFF800000",
        f"{NOT_JUDGED}: no row has logits that all lie far below zero",
    ),
    Reason(r"matmul/_order/", "", f"{NOTHING}: a part of the autotuner's key alone"),
    Reason(r"matmul/_reach/", "", f"{NOTHING}: offsets become 64-bit numbers a little earlier"),
    Reason(r"matmul/descriptors_of/block", "", f"{NOTHING}: the boxes are set before each launch"),
    Reason(
        r"grouped_matmul.*(axis exchanged|minimum for maximum|constant changed here/0)",
        "",
        f"{NOTHING}: programs walk over all tiles, however many they are; a tile twice has the same words",
    ),
    Reason(r"grouped_matmul/comparison inverted", "bases", f"{NOT_JUDGED}: no case has operands that begin off 16 elements"),
)
AT: tuple[tuple[str, str], ...] = (
    (
        "kernels/tile_scheduler.py",
        f"{NOTHING}: how many turns a program takes and the limit of a turn secure each other; a tile twice has the same words",
    ),
)
"""File -> why mutants at its lines survive."""


def reason_of(mutant: GeneratedMutant) -> str:
    """Why `mutant` survives; empty where nobody has said."""
    told = [why for file, why in AT if mutant.file == file] + [reason.why for reason in REASONS if reason.holds(mutant)]
    return told[0] if told else ""
