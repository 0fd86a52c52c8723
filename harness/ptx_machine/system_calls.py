"""What the CUDA driver answers for a kernel: `assert` (`__assertfail`) and `printf` (`vprintf`), as the CUDA C++ Programming Guide
describes them."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.ptx.opcodes import UnknownOpcode
from bitverdict.harness.emulator.ptx.steps import DATA, split_list
from bitverdict.harness.ptx_machine.calls import SYSTEM_CALLS
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads

_CONVERSION = re.compile(r"%([-+ #0]*)(\d*)(\.\d+)?(?:hh|h|ll|l|j|z|t)?([diouxXcsfFeEgGaAp%])")


@instruction("call")
def _call(reader: StatementReader) -> ThreadStep:
    name = next((operand for operand in reader.operands if operand in SYSTEM_CALLS), "")
    if not name:
        raise UnknownOpcode(f"{reader.statement}: a call by address is not executed here")
    lists = [split_list(operand) for operand in reader.operands if operand.startswith("(")]
    parameters = tuple(f"[{parameter}]" for parameter in lists[-1])
    results = tuple(f"[{result}]" for result in lists[0]) if len(lists) > 1 else ()
    run = _fail if name == "__assertfail" else _print

    def execute(active: Active, step: ThreadStep) -> None:
        counts = run(active, step, [active.read(parameter) for parameter in parameters])
        for result in results:
            active.write(result, counts)

    return ThreadStep(reader.statement, parameters, results, lambda: None, execute=execute)


def _fail(active: Active, step: ThreadStep, words: list[np.ndarray]) -> np.ndarray:
    machine, line = active.machine, int(words[2][0])
    condition, file, function = (_text(machine, step, words[place][0]) for place in (0, 1, 3))
    thread = int(active.threads[0]) + machine.memory.first_thread
    raise fault("device assert", f"{function}: assertion `{condition}` failed ({file}:{line})", step, thread=thread)


def _print(active: Active, step: ThreadStep, words: list[np.ndarray]) -> np.ndarray:
    """The threads print one after another, in their order. Returns how many values each printed."""
    machine, counts = active.machine, np.zeros(len(active.threads), np.uint32)
    for place, (thread, form, buffer) in enumerate(zip(active.threads, words[0], words[1], strict=True)):
        values: list[object] = []
        position = int(buffer)

        def take(conversion: re.Match[str], thread: int = int(thread), values: list[object] = values) -> str:
            nonlocal position
            if conversion[4] == "%":
                return "%"
            long = conversion[4] in "sfFeEgGaAp" or re.search(r"ll?|j|z|t", conversion[0][:-1]) is not None
            position = -(-position // (8 if long else 4)) * (8 if long else 4)
            raw = machine.local[thread, position : position + (8 if long else 4)]
            position += raw.size
            values.append(raw)
            return _printed_text(machine, step, conversion, raw)

        sys.stdout.write(_CONVERSION.sub(take, _text(machine, step, form)))
        counts[place] = len(values)
    return counts


def _printed_text(machine: Threads, step: ThreadStep, conversion: re.Match[str], raw: np.ndarray) -> str:
    flags, width, precision, kind = conversion[1], conversion[2], conversion[3] or "", conversion[4]
    number = int(raw.view(f"i{raw.size}" if kind in "di" else f"u{raw.size}")[0])
    if kind in "fFeEgG":
        return f"%{flags}{width}{precision}{kind}" % float(raw.view(np.float64)[0])
    if kind == "s":
        return f"%{flags}{width}{precision}s" % _text(machine, step, np.uint64(number))
    text = {"a": lambda: float(raw.view(np.float64)[0]).hex(), "p": lambda: hex(number), "c": lambda: chr(number & 0xFF)}
    if kind.lower() in text:
        return f"%{flags}{width}s" % text[kind.lower()]()
    return f"%{flags}{width}{precision}{'d' if kind == 'u' else kind}" % number


def _text(machine: Threads, step: ThreadStep, address: np.generic) -> str:
    """The string of the module's constant data that `address` leads to."""
    data = machine.data.tobytes()
    at = int(address) - DATA
    if not 0 <= at < len(data):
        raise fault("not modelled", f"{step.statement.operands[-2]} of a string that is no constant of the module", step)
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")


__all__: list[str] = []
