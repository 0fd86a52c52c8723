"""Why a sanitizer on a GPU said one thing of a case and the emulated GPU another: the reasons of docs/sanitizers.md, each checked
against what was printed, the compiler's program or its machine code.

    Explained(modes=..., said=..., there=..., case=..., message=..., why=...)

The first of `EXPLANATIONS` that fits is the reason; a difference that none fits is shown as not explained, and a test fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RACE, MISUSE, DEADLOCK, UNKNOWN = "race", "barrier misuse", "deadlock", "uninitialised read"
_CONSAN_NAMES = {  # what its message holds -> what the emulated GPU calls that
    "outstanding writes": RACE,
    "outstanding reads": RACE,
    "pending access": RACE,
    "missing fence_async_shared": RACE,
    "Deadlock detected": DEADLOCK,
    "Barrier used before initialization": MISUSE,
    "Barrier re-initialized": MISUSE,
    "reused before barrier invalidation": MISUSE,
    "Barrier arrive underflow": MISUSE,
}


def emulated_name(outcome: str, message: str) -> str:
    """An outcome in the emulated GPU's words: of a device assertion of consan's, what its message names."""
    if outcome != "device assert":
        return outcome
    return next((name for text, name in _CONSAN_NAMES.items() if text in message), outcome)


@dataclass(frozen=True, kw_only=True)
class KnownDifference:
    """Why a GPU said one thing and the emulated GPU another. Empty fits anything; `case` is a text in the case's title, `message`
    one in what was said; `alarm`: the kernel as it is gets the same."""

    modes: tuple[str, ...] = ()
    gpu_outcomes: tuple[str, ...] = ()
    emulated_outcomes: tuple[str, ...] = ()
    case: tuple[str, ...] = ("",)
    message: str = ""
    alarm: bool = False
    why: str

    def fits(self, mode: str, said: str, there: Sequence[str], case: str, message: str = "", alarm: bool = False) -> bool:
        given = ((self.modes, (mode,)), (self.gpu_outcomes, (said,)), (self.emulated_outcomes, there))
        return (
            all(not wanted or set(wanted) & set(got) for wanted, got in given)
            and any(text in case for text in self.case)
            and self.message in message
            and self.alarm is alarm
        )


_OTHER_MODES = ("bare", "iisan", "memcheck", "racecheck")
_ENDS = ("launch failure", "timeout")
_STORED_TWICE = ("two programs store",)
_WORDS = "The words that came are compared with what is expected in every mode but fpsan"
EXPLANATIONS = (
    # what is said of the kernel as it is
    KnownDifference(modes=("racecheck",), gpu_outcomes=("race",), alarm=True,
        why="a false alarm on the compiler's own hand-off in `warp_specialize`: the store (+0x8e0) "
        "and the load (+0x9c0) are of the byte that tells a warp which partition it runs, and a "
        "`BAR.SYNC 1` of all warps lies between them (read in the machine code of the form without its fence, at "
        "+0x8d0). Every kernel with partitions gets it, whatever else is wrong with it"),
    # fpsan
    KnownDifference(modes=("fpsan",), gpu_outcomes=("pass",),
        why="fpsan computes other words, which are not compared: it shows a fault of the device and nothing else"),
    KnownDifference(gpu_outcomes=("timeout",), emulated_outcomes=(DEADLOCK,),
        why="one finding, two words: the launch does not return, and the watchdog ends it; the emulated GPU says who "
        "waits for what"),
    KnownDifference(modes=("fpsan",), gpu_outcomes=_ENDS,
        why="fpsan exchanges the arithmetic and leaves copies and barriers as they are: the launch ends as it does bare"),
    # consan
    KnownDifference(modes=("consan",), gpu_outcomes=("device assert",), emulated_outcomes=(MISUSE,), message="Deadlock detected",
        why="more bytes arrive than the barrier was told of, and its count never comes to zero: the emulated GPU stops at "
        "the bytes, consan at the wait, which never ends"),
    KnownDifference(modes=("consan",), gpu_outcomes=("device assert",), emulated_outcomes=(RACE, MISUSE, DEADLOCK, UNKNOWN),
        why="one finding, two words: consan traps with an assertion, whose message is its name (below)"),
    KnownDifference(modes=("consan",), gpu_outcomes=("pass",), emulated_outcomes=(RACE,), case=("program ends under its store",),
        why="consan looks at a store in flight when something else touches its tile; nothing does once the program has "
        "ended, and its pass instruments accesses and barriers, not the end (ConcurrencySanitizer.cpp)"),
    KnownDifference(modes=("consan",), emulated_outcomes=(RACE,), case=_STORED_TWICE,
        why="consan follows one program's shared memory and barriers; two programs that store to one place are not its "
        f"subject. {_WORDS}"),
    KnownDifference(modes=("consan",), emulated_outcomes=(UNKNOWN,),
        why=f"consan asks who is still reading or writing, not whether anybody ever wrote. {_WORDS}"),
    KnownDifference(modes=("consan",), emulated_outcomes=("stray read", "stray write", "illegal address"),
        why=f"consan does not look at global memory. {_WORDS}"),
    # global memory
    KnownDifference(gpu_outcomes=("wrong words",), emulated_outcomes=("illegal address",), case=("sanitizer bait",),
        why="the store lands 12 MiB behind its tensor, in memory that torch's allocator has mapped: the GPU faults "
        "nowhere, and the harness sees a word that was never written"),
    KnownDifference(gpu_outcomes=("pass",), emulated_outcomes=("stray read",),
        why="what is read past the end lies in the band that the harness lays behind every tensor, within its allocation, "
        "where memcheck sees nothing wrong, and is masked out of the result. The emulated GPU knows every tensor's end"),
    KnownDifference(modes=_OTHER_MODES, gpu_outcomes=("wrong words",), emulated_outcomes=(RACE,), case=_STORED_TWICE,
        why="racecheck follows shared memory only, memcheck asks whether an address is mapped: that two programs store to "
        "one place shows in the words, and so does what was never stored"),
    # shared memory
    KnownDifference(modes=_OTHER_MODES, gpu_outcomes=("wrong words",), emulated_outcomes=(UNKNOWN,),
        why="iisan asks about coordinates, memcheck about addresses, racecheck about order: none whether shared memory "
        "was ever written. The words show it"),
    KnownDifference(modes=("memcheck",), gpu_outcomes=("launch failure",), emulated_outcomes=(MISUSE, RACE),
        message="Unknown Error",
        why="the device faults on the mbarrier, as it does bare; memcheck sees that and calls it an unknown error"),
    KnownDifference(modes=_OTHER_MODES, gpu_outcomes=("launch failure",), emulated_outcomes=(RACE, MISUSE, UNKNOWN),
        why="the mbarriers are out of step (an arrival that the phase does not take, bytes for one that is gone or never "
        "was), and the device faults: a fault has no name and no line. iisan, memcheck and racecheck do not follow mbarriers"),
    KnownDifference(modes=_OTHER_MODES, gpu_outcomes=("timeout",), emulated_outcomes=(RACE, MISUSE, UNKNOWN),
        why="what the fault comes to: an mbarrier is out of step, and a later wait never ends. The emulated GPU stops at "
        "the first wrong step; iisan, memcheck and racecheck do not follow mbarriers"),
    KnownDifference(modes=("bare", "iisan"), gpu_outcomes=("wrong words",), emulated_outcomes=(RACE,), case=("ampere gemm",),
        why="cp.async that is not waited for shows in the words; iisan asks about coordinates only. racecheck names it as "
        "the emulated GPU does"),
    KnownDifference(modes=("bare", "iisan"), gpu_outcomes=("wrong words",), emulated_outcomes=(RACE,),
        why="the order that is missing shows in the words; iisan asks about coordinates only"),
    KnownDifference(modes=_OTHER_MODES, gpu_outcomes=("pass",), emulated_outcomes=(RACE,), case=("program ends under its store",),
        why="nothing took the program's shared memory before the store had read it: the launches have fewer programs than "
        "the GPU has multiprocessors. Nothing guarantees the order, and none of the four looks at it"),
    KnownDifference(modes=_OTHER_MODES, gpu_outcomes=("pass",), emulated_outcomes=(MISUSE,),
        why="PTX forbids it (a store over a live mbarrier; mbarrier.init where one lives; any use after mbarrier.inval), "
        "and this GPU did what was meant. iisan, memcheck and racecheck do not follow mbarriers"),
    KnownDifference(modes=("racecheck",), gpu_outcomes=("pass",), emulated_outcomes=(RACE,),
        why="racecheck follows loads, stores and cp.async; what TMA writes and what TMA and wgmma read it does not see, "
        "and under it what is not waited for had come"),
    KnownDifference(modes=("memcheck",), gpu_outcomes=("pass",), emulated_outcomes=(RACE, UNKNOWN),
        why="memcheck asks about addresses, not about order, and under it what is not waited for had come: the words are right"),
    KnownDifference(modes=("bare", "iisan"), gpu_outcomes=("pass",), emulated_outcomes=(RACE,),
        why="nothing guarantees the order, and in this launch it came out well: the emulated GPU fails what may happen"),
)  # fmt: skip
