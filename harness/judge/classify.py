"""What a launch came to: the name of whatever was raised, the layer that raised it, one sentence, and the line it came from.

**Who raised it decides, not its class.** An exception whose innermost frame outside installed packages is the emulator's, the
reference's or the harness's is their own failure: the outcome is `error`, which never counts against the kernel. Two exceptions
are meant for somebody else: an `EmulatedFault` is a verdict on the launch, a `BadArgument` is blamed on the code that called the
emulator.
"""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from bitverdict.harness.judge.compile_errors import refused_by_front_end
from bitverdict.harness.judge.machine_faults import machine_fault
from bitverdict.harness.judge.out_of_memory import out_of_memory
from bitverdict.harness.judge.real_values import RealValues
from bitverdict.harness.model.feature_table import OUTCOMES, resolve_feature
from bitverdict.harness.model.paths import ROOT, is_foreign, relative, source_line
from bitverdict.harness.model.protocols import for_the_launcher
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict

_DEVICE_SAYS = (
    (r"illegal instruction", Outcome.ILLEGAL_INSTRUCTION),
    (r"illegal memory access", Outcome.ILLEGAL_ADDRESS),
    (r"misaligned address", Outcome.MISALIGNED_ADDRESS),
    (r"device-side assert|device assert", Outcome.DEVICE_ASSERT),
    (r"unspecified launch failure|launch failure", Outcome.LAUNCH_FAILURE),
    (r"Triton Error \[CUDA\]: invalid argument", Outcome.LAUNCH_FAILURE),  # of cuLaunchKernelEx: a grid beyond its limits
    (r"out of memory", Outcome.OUT_OF_MEMORY),
    (r"launch timed out|launch timeout", Outcome.TIMEOUT),
)
_DRIVER_REFUSES = "Failed to create tensor map descriptor"  # cuTensorMapEncodeTiled says no more than "invalid argument"
_ROOMS = (
    ("harness/lab/tma_limits/tma_kernels.py", ""),  # kernels and their launchers, though they lie in the harness
    ("harness/emulator", "emulator"),
    ("harness/ptx_machine", "emulator"),
    ("reference", "reference"),
    ("harness", "harness"),
)
"""Place -> whose failure it is; the first that holds a frame's file counts."""
CANDIDATE_GONE = "candidate gone"  # in details of a sealed launch: why the candidate's process is no longer asked
_PROGRAM = "<tile program"  # what the emulator calls the Python code that it generates
_COMPILER_SAYS = re.compile(r"PassManager::run failed|error encountered during parsing|failed to verify|LLVM ERROR|verif")


@dataclass
class LaunchResult:
    """What a launch came to: an outcome that is not a result, or outputs by name."""

    outcome: Outcome | None = None
    layer: str = ""
    message: str = ""
    location: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)  # name -> unsigned words
    dtypes: dict[str, str] = field(default_factory=dict)  # output name -> "torch.float16"
    enclosures: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # output name -> lowest and highest unsigned words
    real_values: dict[str, RealValues] = field(default_factory=dict)  # of each output whose launches computed some
    hangs: tuple[tuple[str, str], ...] = ()  # why some real values are not known: operation, "file:line"
    reads_allocated: bool = False  # an emulated launch took words of what the launcher allocated and did not fill
    elements: int = 0  # that emulated launches computed at most, an operation counted as `device.OPERATION_ELEMENTS` more
    unwritten_reads: tuple[tuple[str, str, str], ...] = ()  # line, allocation, where in it: a launch took uninitialised words
    unwritten: dict[str, Any] = field(default_factory=dict)  # output name -> which elements nobody wrote, where that was followed
    order_hazard: str = ""  # what an emulated launch did whose words hang on an order that no GPU keeps
    broken_promise: str = ""  # what an option of the case promises of an emulated launch's instructions, and it has not
    launches: int = 0  # of Triton kernels
    launch_record: dict[str, Any] = field(default_factory=dict)
    advice: tuple[str, ...] = ()


def outcome_of(error: BaseException) -> LaunchResult:
    """The name of what a launcher raised, the layer that raised it, one sentence, and the line of ours it came from."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text, where = str(error), location_of(error)
    if "EmulatedFault" in names:
        return _emulated_fault_result(error, where)
    if named := OUTCOMES.keys() & names:
        result: LaunchResult = resolve_feature(OUTCOMES[named.pop()])(error)
        return result
    if "CandidateGone" in names:
        said = f"the candidate's process gave no answer: {_one_line(text)}"
        details = {CANDIDATE_GONE: _one_line(text), "died": error.died}  # type: ignore[attr-defined]
        return LaunchResult(Outcome.LAUNCHER_ERROR, "launcher", said, details=details)
    if message := machine_fault(error):
        return LaunchResult(Outcome.ERROR, "machine", _one_line(message), "", place_of(error)[1])
    details = {"raised": type(error).__name__, "text": _relevant(text), "traceback": traceback.format_exception(error)[-6:]}
    if "OutOfResources" in names:
        return LaunchResult(Outcome.OUT_OF_RESOURCES, "capacity", _one_line(text), where, details)
    if "PTXASError" in names:
        return LaunchResult(Outcome.REFUSED, "ptxas", _one_line(_relevant(text)), where, details)
    if "CompilationError" in names or "UnsupportedLanguageConstruct" in names:
        compile_refusal = refused_by_front_end(error)
        if compile_refusal.calls:
            details["called at"] = [source_line(*line) for line in compile_refusal.calls]
        line = source_line(*compile_refusal.line) if compile_refusal.line else where
        if lacking := _lacking_name(compile_refusal.message):
            return LaunchResult(Outcome.NOT_RUN, "front end", lacking, line, details)
        return LaunchResult(Outcome.REFUSED, "front end", _one_line(compile_refusal.message), line, details)
    if isinstance(error, AttributeError | ImportError) and (lacking := _lacking_name(text)):
        return LaunchResult(Outcome.NOT_RUN, "front end", lacking, where, details)
    if message := out_of_memory(error):
        return LaunchResult(Outcome.OUT_OF_MEMORY, "hardware", message, where, details)
    if _DRIVER_REFUSES in text:
        return LaunchResult(Outcome.REFUSED, "driver", _one_line(text), where, details)
    if "AcceleratorError" in names or "CUDA" in text:
        outcome = told_by_device(text)
        if outcome is not None:
            return LaunchResult(outcome, "hardware", str(outcome), where, details)
    if isinstance(error, RuntimeError) and _COMPILER_SAYS.search(text):
        return LaunchResult(Outcome.REFUSED, "verifier", _one_line(_relevant(text)), where, details)
    if room := raised_by(error):
        return LaunchResult(Outcome.ERROR, room, _error_sentence(room, error), *place_of(error))
    if isinstance(error, ValueError) and _of_triton_back_end(error):
        return LaunchResult(Outcome.REFUSED, "front end", _one_line(text), where, details)
    if isinstance(error, ValueError | TypeError) and not isinstance(error, UnicodeError):
        refusal = isinstance(error, ValueError)
        return LaunchResult(
            Outcome.REFUSED if refusal else Outcome.LAUNCHER_ERROR,
            "launcher",
            _one_line(f"{type(error).__name__}: {text}"),
            where,
            details,
        )
    return LaunchResult(Outcome.LAUNCHER_ERROR, "launcher", _one_line(f"{type(error).__name__}: {text}"), where, details)


def _lacking_name(message: str) -> str:
    from bitverdict.harness.emulator.releases import (
        lacking_name,
    )  # takes the compiler in, which whoever only reads verdicts needs not

    return lacking_name(message)


def _emulated_fault_result(fault: Any, where: str) -> LaunchResult:
    """What an emulated GPU raised. A hazard that the compiler made is none of the kernel's: its name goes into the details."""
    outcome, said, details = Outcome(str(fault.outcome)), str(fault.message), dict(fault.details or {})
    if "made by" in details:
        said = f"{outcome} made by {details['made by']}; workaround: {details['workaround']}; {said}"
        outcome, details = Outcome.COMPILER_FAULT, details | {"hazard": str(outcome)}
    return LaunchResult(outcome, "emulator", _one_line(said), relative(str(fault.location or where)), details)


def told_by_device(text: str) -> Outcome | None:
    """The fault that a message of CUDA or torch names in its first line; further down torch speaks of device-side assertions, for
    any."""
    first = _one_line(text)
    return next((outcome for pattern, outcome in _DEVICE_SAYS if re.search(pattern, first, re.IGNORECASE)), None)


def location_of(error: BaseException) -> str:
    """``file:line`` of the innermost frame outside installed packages and the harness, relative to the checkout if in it."""
    best = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if room_of(frame.filename) == "":
            best = source_line(frame.filename, frame.lineno or 0)
    return best


def raised_by(error: BaseException) -> str:
    """ "emulator", "reference" or "harness" where the failure is theirs, else "": the launcher's, the kernel's or a contract
    file's.

    The innermost frame outside installed packages decides. A `BadArgument` is its caller's: the emulator's frames do not count. Nor
    do ours around pytest's call of a test, which a package may bring.
    """
    meant_for_caller = any(kind.__name__ == "BadArgument" for kind in type(error).__mro__)
    for code, _ in reversed(list(_frames(error))):
        if code.co_name.endswith(for_the_launcher.__name__):
            return ""
        if "/_pytest/" in Path(code.co_filename).as_posix():
            return ""
        room = room_of(code.co_filename)
        if room is None or (room == "emulator" and meant_for_caller):
            continue
        return room
    return ""


def _of_triton_back_end(error: BaseException) -> bool:
    """Whether Triton raised it for an option of a launch, num_ctas for one, that the architecture does not have."""
    file = next((code.co_filename for code, _ in reversed(list(_frames(error)))), "")
    return is_foreign(Path(file)) and "/triton/backends/" in Path(file).as_posix()


def failure(error: BaseException, otherwise: str = "contract") -> Verdict:
    """The verdict where the harness, or the contract it was given, raised `error` around a launch: `error`, traceback and all."""
    location, details = place_of(error)
    return Verdict(
        decision=Decision.ERROR,
        outcome=Outcome.ERROR,
        message=_error_sentence(raised_by(error) or otherwise, error),
        location=location,
        basis=Basis.NO_BASIS,
        details=details,
    )


def _error_sentence(room: str, error: BaseException) -> str:
    if isinstance(error, UsageError):  # of the case, which names what cannot be
        return _one_line(str(error))
    return _one_line(f"the {room} raised {type(error).__name__}: {error}")


def place_of(error: BaseException) -> tuple[str, dict[str, Any]]:
    """``file:line`` of the innermost frame outside installed packages, and the details that are stored with an `error`."""
    here = [(code.co_filename, line) for code, line in _frames(error) if room_of(code.co_filename) is not None]
    file, line = next((place for place in reversed(here) if not place[0].startswith("<")), ("", 0))
    return source_line(file, line) if file else "", {"raised": type(error).__name__, "traceback": _traceback(error)}


def _frames(error: BaseException) -> Iterator[tuple[Any, int]]:
    """(code, line) of each frame that `error` passed, outermost first."""
    return ((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))


@lru_cache(maxsize=4096)
def room_of(filename: str) -> str | None:
    """Whose file it is: "emulator", "reference", "harness", "" for any other; None for an installed package or generated code."""
    path = Path(filename)
    if filename.startswith(_PROGRAM):
        return "emulator"
    if filename.startswith("<") or is_foreign(path):
        return None
    return next((room for place, room in _ROOMS if path.is_relative_to(ROOT / place)), "")


def _traceback(error: BaseException) -> list[str]:
    """The whole traceback, chained exceptions included."""
    return traceback.format_exception(error)


def _one_line(text: str) -> str:
    return text.strip().splitlines()[0][:400] if text.strip() else ""


def _relevant(text: str) -> str:
    """The lines of a long report of the compiler that say what is wrong."""
    lines = [
        line
        for line in text.splitlines()
        if re.search(r"error|fatal|not supported|failed|unsupported|must|expected", line, re.IGNORECASE)
    ]
    return "\n".join(line[:300] for line in (lines or text.splitlines())[:12])


_DEATHS = {
    signal.SIGSEGV: Outcome.SEGMENTATION_FAULT,
    signal.SIGBUS: Outcome.SEGMENTATION_FAULT,
    signal.SIGABRT: Outcome.COMPILER_ABORT,
    signal.SIGKILL: Outcome.KILLED,
    signal.SIGTERM: Outcome.KILLED,
}


def of_status(status: int | None, process: str = "the process") -> tuple[Outcome, str]:
    """The outcome and one sentence for the exit `status` of `process`: -N for signal N."""
    if status is not None and status < 0:
        died = signal.Signals(-status)
        return _DEATHS.get(died, Outcome.KILLED), f"{process} died of {died.name}"
    return Outcome.LAUNCHER_ERROR, f"{process} left by exit"
