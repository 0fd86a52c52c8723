"""Where a process is that gives no verdict: the line of the kernel, of the launcher, or of whatever it waits in.

The parent sends signals, the worker prints to its log. One signal has a handler in Python, which knows the emulator's operations.
It runs only between two instructions of the interpreter. The other is `faulthandler`'s, which prints the traceback in any case. A
loop is at another line at each look: several looks are taken, and the first line of the innermost function is told.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from bitverdict.harness.judge.classify import room_of
from bitverdict.harness.model.paths import source_line

_LAUNCH = "LAUNCHED AT "
_is_installed = False
LOOKS, LOOK_INTERVAL = 10, 0.02  # how often the process is looked at, seconds between two looks
LOOK, DUMP = signal.SIGUSR2, signal.SIGUSR1
_MARK = "HANG "
_ASKS, _WAITS = "until_done", "sealed/remote/channel.py"  # of an executor that waits for the candidate's process
_FRAME = re.compile(r'\s*File "(.+)", line (\d+) in (\S+)')


def install() -> None:
    """In a worker, once its standard error is its log."""
    global _is_installed
    _is_installed = True
    signal.signal(LOOK, _look)
    faulthandler.register(DUMP, file=2, all_threads=False)


def note_launch() -> None:
    """Note in the log which line launches a kernel on hardware: where the launch does not end, the process waits elsewhere."""
    frame = sys._getframe(1) if _is_installed else None
    while frame is not None:
        if room_of(frame.f_code.co_filename) == "":
            os.write(2, f"{_LAUNCH}{source_line(frame.f_code.co_filename, frame.f_lineno)}\n".encode())
            return
        frame = frame.f_back


def where(process: int, read_log: Callable[[], list[str]]) -> dict[str, str]:
    """Where `process` hangs: "location", "function", "operation" and "stack", as far as known. `read_log` reads its log."""
    at_launch = [line.removeprefix(_LAUNCH) for line in read_log() if line.startswith(_LAUNCH)]
    for number in [DUMP, *[LOOK] * LOOKS]:  # a call into C that the first signal ends is in the traceback
        try:
            os.kill(process, number)
        except OSError:  # it is gone meanwhile
            break
        time.sleep(LOOK_INTERVAL)
    return parse_log(read_log(), at_launch[-1] if at_launch else "")


def parse_log(lines: Sequence[str], launched_at: str = "") -> dict[str, str]:
    """What `lines`, the end of a worker's log, say; `launched_at` is the line of its last launch on hardware."""
    looks = [json.loads(line[len(_MARK) :]) for line in lines if line.startswith(_MARK)]
    frames = [match for line in lines if (match := _FRAME.match(line))]
    ours = next((place for place, frame in enumerate(frames) if room_of(frame[1]) not in ("", None)), len(frames))
    stack = "\n".join(f"{source_line(frame[1], frame[2])} in {frame[3]}" for frame in frames[: max(ours, 3)][:8])
    if in_kernel := [look for look in looks if look["operation"]]:
        first = min(in_kernel, key=lambda look: look["line"])
        place = source_line(first["file"], first["line"])
        return {"location": place, "function": first["function"], "operation": first["operation"]}
    if not frames:
        return {}
    if _WAITS in frames[0][1] and any(frame[3] == _ASKS for frame in frames):
        return {"location": "", "function": "the candidate's process"}
    named = next((frame for frame in frames if room_of(frame[1]) == ""), None)
    if named is None:  # the launch has returned, and the process waits for the GPU
        return {"location": launched_at, "function": frames[0][3], "stack": stack}
    lines_of_loop = [look["line"] for look in looks if (look["file"], look["function"]) == (named[1], named[3])]
    return {"location": source_line(named[1], min([int(named[2]), *lines_of_loop])), "function": named[3], "stack": stack}


def is_report(line: str) -> bool:
    """Whether a line of a worker's log is an answer to `where`, and nothing that the kernel or its launcher printed."""
    return line.startswith((_MARK, _LAUNCH, "Stack (most recent", "Current thread 0x", "Thread 0x")) or bool(_FRAME.match(line))


def _look(number: int, frame: FrameType | None) -> None:
    """Print the innermost place on the kernel's side: an operation of an emulated kernel, or a line of Python."""
    current_frame = frame
    while current_frame is not None:
        name = current_frame.f_code.co_filename
        ready: Any = current_frame.f_globals.get("__translated__")  # in the emulator's generated code (`translate.TRANSLATED`)
        operation = ready.operation_at(current_frame.f_lineno) if ready is not None else None
        if operation is not None and operation.location:
            file, _, line = operation.location.rpartition(":")
            return _print(file, int(line) if line.isdigit() else 0, f"kernel {ready.program.entry.name}", operation.name)
        if room_of(name) == "":
            return _print(name, current_frame.f_lineno, current_frame.f_code.co_name, "")
        current_frame = current_frame.f_back
    return None


def _print(file: str, line: int, function: str, operation: str) -> None:
    record = json.dumps({"file": file, "line": line, "function": function, "operation": operation})
    os.write(2, f"{_MARK}{record}\n".encode())
