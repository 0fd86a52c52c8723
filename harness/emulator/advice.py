"""Advice: what is not wrong as compiled, but rests on the compiler, on an order that was taken, or on a promise."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Advice(Enum):
    """Each with its sentence; braces stand for what a note gives."""

    FENCE = "what is written here reaches the async proxy only by a proxy fence that the compiler inserts"
    FENCE_AFTER_READ = "what is read here is refilled through the async proxy behind a proxy fence that the compiler inserts"
    PARITY = "the compiler waits for a parity that is neither 0 nor 1: the machine code takes its lowest bit"
    ATOMIC_SUM = "an atomic sum of floats depends on the order of programs, or of threads: one order was taken"
    RELEASE = "what other threads wrote is released here behind a barrier that the compiler inserts; tl.debug_barrier() says it"
    CLUSTER_BARRIER = "another CTA reaches what is written here behind a relaxed barrier of the cluster that the compiler inserts"
    EQUAL_WORDS = "writes the words that another write puts there, and nothing orders the two: either may stay"
    REDUNDANT_LOAD = (
        "warps that hold a copy load here what one of them stores, and no barrier orders the two: a copy that comes late decides "
        "nothing"
    )
    DUPLICATE_ROWS = "scatters two rows to one place: either may win"
    STRIDE_CUT = "a descriptor's strides must be multiples of 16 bytes: what is over is dropped"
    LANES_DIFFER = (
        "lanes of a warp store different words of one result to one place: which stays is undefined, that of an H100 was taken"
    )
    UNDEFINED_LANES = "{} depends on lanes that {} leaves undefined (a mask without `other`): the compiled program has zero there"
    OPEN_SUM = (
        "the compiled program leaves open whether this sum takes a product in before it is rounded: what follows from it "
        "is enclosed"
    )
    PTXAS_MAY_FUSE = (
        "{} sums of {} take a product that the PTX does not round by name (`mul` without .rn): each was rounded here; ptxas may "
        "fuse them"
    )
    OUTSIDE_VIEW = "{} what the sizes and strides of {} do not reach, in the storage that it is a view of"
    FALSE_HINT = "{}; no access of this launch relies on it"
    FALSE_HINT_HARMLESS = "{}; what an access that relies on it takes from elsewhere reaches no store, address or branch"


class Note(NamedTuple):
    """`advice` at `location` (``file:line``, empty where there is none)."""

    advice: Advice
    location: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = self.advice.value.format(*self.arguments) if self.arguments else self.advice.value
        return f"{self.location}: {said}" if self.location else said


__all__ = ["Advice", "Note"]
