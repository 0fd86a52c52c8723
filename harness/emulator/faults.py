"""What an emulated GPU has to say: the exception its launches raise, and the one for what it is asked by mistake.

Any other exception whose innermost frame is the emulator's is the emulator's own failure (`bitverdict.harness.judge.classify`),
never a verdict on the kernel."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation


class BadArgument(ValueError):
    """The caller asked for what cannot be: an unknown architecture or schedule, a tensor that is not on the emulated GPU."""


class EmulatedFault(Exception):
    """A launch that the emulated GPU fails, or declines to judge.

    `outcome` is the word of `bitverdict.harness.model.verdict.Outcome` ("race", "stray write", "not modelled", ...), `location` is
    ``file:line`` of the operation at fault, `details` what a person reads next: both ends of a race, the executed IR, the state of
    barriers, the schedule. `tile_values`, by names of the tile program, are not pickled."""

    is_at_kernel = False  # its traceback ends at the kernel's line (`kernel_traceback`)
    tile_values: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, outcome: str, message: str, location: str = "", details: dict | None = None) -> None:
        summary = f"{details['summary']}: " if details and "summary" in details else ""
        super().__init__(f"{outcome}: {summary}{message}" + (f" [{location}]" if location else ""))
        self.outcome, self.message, self.location, self.details = outcome, message, location, details or {}

    def __reduce__(self) -> tuple:
        return type(self), (self.outcome, self.message, self.location, self.details)


def unanswered_call_fault(call: str) -> EmulatedFault:
    """The fault for a call that only a real GPU can answer; it names the call."""
    return EmulatedFault("error", f"{call}: the emulated GPU does not answer this call; judge this launcher on a real GPU")


class TooLarge(EmulatedFault):
    """A launch that takes more than an emulated GPU gives it."""

    def __init__(self, why: str) -> None:
        super().__init__("not modelled", f"too large: {why}")

    def __reduce__(self) -> tuple:
        return EmulatedFault, (self.outcome, self.message, self.location, self.details)


_TORCH_ON_HOST = "can't allocate memory"  # torch's allocator on the host raises a plain RuntimeError


def host_memory_is_short(error: BaseException) -> bool:
    """Whether `error` says that the host has no more memory for this process: whose allocation failed tells nothing."""
    told = isinstance(error, RuntimeError) and _TORCH_ON_HOST in str(error)
    return told or isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def raise_for_the_launcher(error: Exception) -> NoReturn:
    """Raise what a real GPU's runtime would raise here: it is the launcher's, though it comes from us."""
    raise error


class OnChipFault(EmulatedFault):
    """A fault whose place is on the chip: shared or tensor memory, an mbarrier, or registers that an operation in flight writes."""


class NotModelled(EmulatedFault):
    """An operation, or a form of it, that the emulator does not know: nothing of the launch has run."""

    def __init__(self, op: Operation, why: str = "") -> None:
        said = f"{op.name}{': ' + why if why else ' is no operation the emulator knows'}"
        super().__init__("not modelled", said, op.location, {"operation": op.brief, "text": op.text})
        self.why = why

    def __reduce__(self) -> tuple:
        return EmulatedFault, (self.outcome, self.message, self.location, self.details)
