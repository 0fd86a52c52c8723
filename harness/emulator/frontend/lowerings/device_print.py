"""`tl.device_print`: one line an element, by each thread that holds it, in the words of the compiled program's `vprintf`."""

from __future__ import annotations

import sys
from math import ceil, log10

import numpy as np

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.threads import WARP, slots
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.scalar_ops import widen


@lowers("tt.print")
def say(t: Translator, op: Operation) -> None:
    """Threads of one warp print together, a register at a time. Which warp comes first is nobody's promise: here the lower one."""
    warp = t.program.integer("ttg.threads-per-warp", WARP)
    threads = warp * t.program.integer("ttg.num-warps", 4)
    prefix, signs = op.string("prefix"), op.integers("isSigned") if op.operands else []
    if not op.operands:
        t.emit("{}", t.calls(print_line, prefix, threads))
    for number, (name, kind) in enumerate(zip(op.operands, op.inputs, strict=True)):
        kind = t.require_type(op, kind)
        if kind.kind not in ("tensor", "scalar", "pointer"):
            raise NotModelled(op, f"of {kind.text}")
        order = np.zeros((threads, 1), np.int64)
        if kind.kind == "tensor":
            order = slots(kind.shape, t.program.expand(kind.layout))
        said = f"{prefix}(operand {number}) " if len(op.operands) > 1 else prefix
        t.emit("{}", t.calls(print_values, t.value(name), kind, order, warp, said, bool(signs[number]), op.flag("hex")))


MOST_PRINTED = 16 << 20  # characters of one process: what a GPU's buffer of 1 MiB holds in a few launches
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_printed_length = 0


def print_line(m: Cta, said: str, threads: int) -> None:
    """`said` by each of `threads`."""
    _write(f"pid ({', '.join(map(str, m.program))}){said}\n" * (1 if m.launch.prints_once else threads))


def _write(text: str) -> None:
    """Print `text`, its control characters as escapes: a terminal obeys none. What is too much is left out, and said to be."""
    global _printed_length
    if _printed_length > MOST_PRINTED:
        return
    _printed_length += len(text)
    sys.stdout.write(text.translate(_CONTROL))
    if _printed_length > MOST_PRINTED:
        sys.stdout.write(f"more than {MOST_PRINTED} characters from device_print: what follows is left out\n")


def print_values(
    m: Cta, values: np.ndarray, kind: Type, order: np.ndarray, warp: int, prefix: str, signed: bool, hexadecimal: bool
) -> None:
    """`values` of `kind`, those that the registers of each thread hold: `order` (threads, registers) are their elements; `warp`
    threads print together."""
    texts = [text(value, kind, signed, hexadecimal) for value in np.asarray(values).reshape(-1).tolist()]
    if kind.is_float and not hexadecimal:
        texts = [f"{value:f}" for value in widen(np.asarray(values), kind.format).reshape(-1).tolist()]
    widths = [ceil(log10(size)) for size in kind.shape]
    head = f"pid ({', '.join(map(str, m.program))}) idx ("
    lines = []
    for value, place in zip(texts, np.ndindex(kind.shape), strict=True):
        index = ", ".join(f"{at:{width}}" for at, width in zip(place, widths, strict=True))
        lines.append(f"{head}{index}){prefix}{value}\n")
    warps = order.reshape(-1, warp, order.shape[1]).transpose(0, 2, 1)  # (warps, registers, lanes)
    _write("".join(lines if m.launch.prints_once else [lines[element] for element in warps.reshape(-1).tolist()]))


def text(value: int | float, kind: Type, is_signed: bool, hexadecimal: bool) -> str:
    """A word as `printf` shows it, after its promotion to 32 bits: %i, %u, 0x%0..x, or %p."""
    bits = max(kind.bits, 32)
    word = int(np.array(value, kind.dtype).view(f"u{kind.dtype.itemsize}")) if kind.dtype != np.bool_ else int(value)
    if kind.pointers:
        return f"{word:#x}"
    if is_signed and not kind.is_float and word >> (kind.bits - 1):
        word += (1 << bits) - (1 << kind.bits)
    if hexadecimal:
        return f"0x{word:0{kind.bits // 4}x}"
    return str(word - (1 << bits) if is_signed and word >> (bits - 1) else word)
