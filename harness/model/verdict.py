"""What came of a case, and what the harness makes of it.

An *outcome* is what was observed (`Outcome`): right words, wrong words, a fault by name, a refusal. A *decision* is the outcome
held against what the contract expected: a refusal that is expected is a pass, the same refusal unasked is a failure.
Verdicts are values that go through JSON unchanged; nothing in the harness raises to report one.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

LONGEST = 4000  # characters of one text that a verdict keeps
EXCLUDED_KEY = "excluded"  # in the details of a case that is not run since the launcher takes no operands that lie so
REFUSED_BY = "refused by"  # in the details of a case that is not run since the launcher was refused where a feature is lacking
NAMELESS = "without a name"  # in the details of a refusal of a user's kernel whose sentence the compiler printed and did not raise
CONSTANT_CAUSE = "constant"  # begins the kind of a cause that is a number; the number follows, since two numbers are two causes
PROCESS, ZYGOTE = "process", "zygote"  # in the details of a sealed case: which of its processes ended


class Outcome(StrEnum):
    """What was observed. The value is the word that reports, reproducers and mutants use."""

    PASS = "pass"
    WRONG_WORDS = "wrong words"
    OUTSIDE_BOUND = "outside the bound"
    WRONG_MATHEMATICS = "wrong mathematics"  # without any rounding the kernel would compute something else
    LOST_PRECISION = "lost precision"  # the mathematics is right, the words are outside the bound
    WRONG_SHAPE = "wrong shape or dtype"
    STRAY_WRITE = "stray write"
    STRAY_READ = "stray read"
    INPUT_CHANGED = "input changed"
    ILLEGAL_INSTRUCTION = "illegal instruction"
    ILLEGAL_ADDRESS = "illegal address"
    MISALIGNED_ADDRESS = "misaligned address"
    FALSE_HINT = "false hint"  # the compiler was told what is not so, and other memory would be touched
    DEVICE_ASSERT = "device assert"
    LAUNCH_FAILURE = "launch failure"
    RACE = "race"
    UNINITIALISED_READ = "uninitialised read"
    BARRIER_MISUSE = "barrier misuse"
    DEADLOCK = "deadlock"
    TIMEOUT = "timeout"
    KILLED = "killed"
    SEGMENTATION_FAULT = "segmentation fault"
    COMPILER_ABORT = "compiler abort"
    COMPILER_FAULT = "compiler fault"  # a hazard between operations of the compiler's: the kernel has none of them
    REFUSED = "refused"
    NOT_REFUSED = "not refused"  # it ran where a refusal or a fault is expected
    OUT_OF_RESOURCES = "out of resources"
    OUT_OF_MEMORY = "out of memory"
    BEHAVES_DIFFERENTLY = "behaves differently"  # on a real GPU and on the emulated one of its architecture
    NOT_MODELLED = "not modelled"
    OTHER_INSTRUCTIONS = "other instructions than promised"  # an option of the kernel does not do what it says; the words are right
    COMPUTED_ON_HOST = "computed on the host"  # the words are right, and no kernel of the call has stored them
    LAUNCHER_ERROR = "launcher error"
    STATE_KEPT = "state kept between calls"
    UNCHANGED = "result does not change with the operands"
    MEMORY_RETURNED = "memory returned before"
    WORDS_CHANGED = "words changed after the return"
    NOT_INVARIANT = "other words in an equal call"  # repeated, elsewhere in memory, or of fewer rows
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"
    CANCELLED = "cancelled"
    ERROR = "error"


DEVICE_FAULTS = {
    Outcome.ILLEGAL_INSTRUCTION,
    Outcome.ILLEGAL_ADDRESS,
    Outcome.MISALIGNED_ADDRESS,
    Outcome.DEVICE_ASSERT,
    Outcome.LAUNCH_FAILURE,
    Outcome.TIMEOUT,
}
"""After one of these a CUDA context is dead: its worker is replaced, or every later case would fail because of it."""


class Decision(StrEnum):
    """The outcome held against what was expected."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"
    CANCELLED = "cancelled"
    ERROR = "error"  # the harness, the emulator, the contract or the machine failed: says nothing about the kernel


class Basis(StrEnum):
    """What a verdict rests on: a report names it on every line."""

    WORDS = "words: the plan's, by the tensor core's arithmetic"
    BOUND = "bound: derived from the operands"
    EXACT = "exact: no rounding can occur"
    REAL_VALUES = "real values: the mathematics, to float64's running bound"
    EQUAL_CALL = "equal call: the words of the same rows in another call"
    EXPECTED_REFUSAL = "refusal expected by contract"
    EXPECTED_FAULT = "fault expected by contract"
    OBSERVED_FAULT = "fault observed"
    COMPILER_FAULT = "fault of the compiler"
    NO_BASIS = "nothing"


PROCESSOR = "processor"  # of a verdict's seconds: those of the processor, which other work on the machine does not change
PTX_LAUNCHES = "launches as PTX"  # in the details of a case: how many were executed, how many were not, and words that they stored
BESIDE_BUCKETS = ("total", PROCESSOR)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One case judged on one target.

    `message` is one sentence with the values; `location` is ``file:line`` or empty; `details` is what a person reads next
    (first words that differ, clusters, both ends of a race, the executed IR); `seconds` says where the
    time went (`BESIDE_BUCKETS` are no parts of it).
    """

    decision: Decision
    outcome: Outcome
    message: str = ""
    location: str = ""
    basis: str = Basis.NO_BASIS
    words: int = 0  # output words compared
    bound_used: float | None = None  # largest used share of the error bound, where a bound decided
    details: dict[str, Any] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    seconds: dict[str, Any] = field(default_factory=dict)
    certificate: dict[str, Any] = field(default_factory=dict)  # `harness.model.certificate.Certificate`, where it is asked
    recorded: dict[str, Any] = field(
        default_factory=dict
    )  # what only the run knew: the autotuner's winner, digests, instructions seen

    @property
    def failed(self) -> bool:
        return self.decision is Decision.FAIL

    @property
    def signature(self) -> tuple[str, str, str]:
        """(outcome, message without numbers and addresses, location): equal for two cases that show one bug."""
        return (str(self.outcome), normalise_message(self.message), self.location)

    def to_json(self) -> dict[str, Any]:
        """As JSON, with texts longer than `LONGEST` cut: an exception may have a text of megabytes."""
        return {name: _cut(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Verdict:
        record = dict(record)
        record["decision"] = Decision(record["decision"])
        record["outcome"] = Outcome(record["outcome"])
        record["advice"] = tuple(record.get("advice", ()))
        return cls(**record)


def _cut(value: object) -> Any:
    """`value` with each long text in it cut in the middle; tuples as lists."""
    if isinstance(value, str):
        if len(value) <= LONGEST:
            return value
        half = LONGEST // 2
        return f"{value[:half]} [... {len(value) - 2 * half:,} characters ...] {value[-half:]}"
    if isinstance(value, dict):
        return {name: _cut(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(inner) for inner in value]
    return value


def normalise_message(message: str) -> str:
    """A message with its numbers, addresses and directories taken out, so that it names a bug and not a case."""
    message = message.splitlines()[0] if message else ""
    message = re.sub(r" \(nearest: [^)]*\)", "", message)  # which tensor lies nearest to a wild address is the allocator's choice
    message = re.sub(r"[^\s:()]*/([^/\s:]+\.py)", r"\1", message)  # a file lies elsewhere in another checkout
    message = re.sub(r"0x[0-9a-fA-F]+", "#", message)
    message = re.sub(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "#", message)
    return re.sub(r"\s+", " ", message).strip()
