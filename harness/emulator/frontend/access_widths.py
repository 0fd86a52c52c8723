"""How wide the compiled program's accesses to global memory are.

The compiler decides it where it converts the tile program to LLVM, by what it knows of contiguity and divisibility: from the
program, from how arguments were specialised, and from what the author promised (`tl.multiple_of`, `tl.max_contiguous`,
`tl.max_constancy`). So the compiler itself is asked: the tile program is converted, each access under a location of its own, and
the instructions that it became are read. That takes 5 to 30 ms, once a program, and only where something may be untrue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitverdict.harness.emulator.compiler_process import in_compiler_process
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.stop_compiler import convert_to_llvm
from bitverdict.harness.emulator.mlir_reader import Program

if TYPE_CHECKING:
    from triton._C.libtriton import ir

    from bitverdict.harness.emulator.compiled_kernel import KernelMetadata

MOVES = ("tt.load", "tt.store", "tt.atomic_rmw", "ttg.async_copy_global_to_local")
_ORDINARY = re.compile(r"((?:ld|st|red|atom)\.[\w.:]*?global[\w.:]*)[^\[]*\[ \$\d+ \+ (\d+) \]")
_COPY = re.compile(r"(cp\.async[\w.:]*global[\w.:]*) \[[^\]]*\], \[ \$\d+ \+ (\d+) \], (0x[0-9a-f]+|\d+)")
_TYPE = re.compile(r"(?:\.v(\d+))?\.(?:b|u|s|f|bf)(\d+)(x2)?$")


@dataclass(frozen=True)
class Access:
    """What one operation became: `width` bytes an instruction, under the mask of its first element, and `run` bytes from one
    pointer, that of the first element, in one instruction or at constant offsets. They lie along `axis` of the tensor."""

    instruction: str  # as PTX writes it: "ld.global.v4.b32"
    width: int
    run: int
    axis: int


def accesses(program: Program, capability: int, ptx: int) -> dict[int, Access]:
    """By line of the program's text, each access that moves more than one element from one pointer.

    "not modelled" where the compiler no longer takes the program (an edited one), or makes of a load, store or copy what this
    module cannot read.
    """
    move_operations = [op for op in program.operations() if op.name in MOVES]
    lines = program.text.splitlines()
    for op in move_operations:
        head, _, _ = lines[op.line].rpartition(" loc(")
        lines[op.line] = f'{head} loc("@{op.line}":1:1)'
    try:
        text, axes = _convert_with_axes("\n".join(lines), capability, ptx)
    except RuntimeError as error:
        raise EmulatedFault("not modelled", f"the compiler does not convert this tile program to LLVM: {error}") from error
    found = _instructions(text)
    accesses_by_line: dict[int, Access] = {}
    for op, axis in zip(move_operations, axes, strict=True):
        instruction = found.get(op.line)
        if instruction is None:
            if op.name != "tt.atomic_rmw":  # one element at a time, without PTX of the compiler's own
                raise EmulatedFault("not modelled", f"what {op.name} becomes in LLVM", op.location, {"operation": op.brief})
            continue
        pointer = op.inputs[0]
        if pointer is not None and pointer.kind == "tensor" and max(instruction[1:]) > pointer.itemsize:
            accesses_by_line[op.line] = Access(instruction[0], instruction[1], instruction[2], axis)
    return accesses_by_line


@in_compiler_process
def _convert_with_axes(text: str, capability: int, ptx: int) -> tuple[str, list[int]]:
    """The tile program `text` in LLVM's dialect, and the axes of its accesses (`_axes`)."""
    axes: list[int] = []
    return convert_to_llvm(text, capability, ptx, lambda module: axes.extend(_axes(module))), axes


def ptx_version(metadata: KernelMetadata, capability: int) -> int:
    """The PTX version that a kernel with the options `metadata` is compiled to."""
    from triton.backends.nvidia.compiler import get_ptx_version_from_options

    return get_ptx_version_from_options(metadata, capability)


def _axes(module: ir.module) -> list[int]:
    """The axis along which neighbouring registers of a thread lie, for each operation of `MOVES` in the order of the text."""
    from triton._C.libtriton import gluon_ir

    builder, axes = gluon_ir.GluonOpBuilder(module.context), []

    def look(op: Any) -> None:
        if op.get_name() not in MOVES:
            return
        pointers = op.get_operand(0)
        sizes = re.match(r"tensor<((?:\d+x)+)", str(pointers.get_type()))
        shape = [int(size) for size in sizes[1].split("x")[:-1]] if sizes else []
        if len(shape) < 2:
            axes.append(0)
            return
        layout = builder.get_gluon_layout_from_tensor(pointers)
        registers = builder.to_linear_layout(layout._to_ir(builder), shape).reg_bases
        first = next((basis for basis in registers if any(basis)), [0])  # those of zeros repeat an element
        axes.append(next((axis for axis, step in enumerate(first) if step), 0))

    module.walk(look)
    return axes


def _instructions(text: str) -> dict[int, tuple[str, int, int]]:
    """(instruction, width, run) by the number in a line's location, of the module `text` in LLVM's dialect."""
    places = dict(re.findall(r'^(#loc\d*) = loc\("@(\d+)":1:1\)', text, re.MULTILINE))
    instructions_by_line: dict[int, tuple[str, int, int]] = {}
    for line in text.splitlines():
        if "llvm.inline_asm" not in line or (place := places.get(line.rpartition(" loc(")[2].rstrip(")"))) is None:
            continue
        if copy := _COPY.search(line):
            name, offset, width = copy[1], int(copy[2]), int(copy[3], 0)
        elif ordinary := _ORDINARY.search(line):
            name, offset, width = ordinary[1], int(ordinary[2]), _width(ordinary[1])
        else:
            continue
        _, widest, run = instructions_by_line.get(int(place), ("", 0, 0))
        instructions_by_line[int(place)] = name, max(width, widest), max(offset + width, run)
    return instructions_by_line


def _width(instruction: str) -> int:
    """Bytes that `instruction` moves: elements of its vector times bytes of its type."""
    typed = _TYPE.search(instruction)
    if typed is None:
        raise EmulatedFault("not modelled", f"how many bytes {instruction} moves")
    return int(typed[1] or 1) * int(typed[2]) // 8 * (2 if typed[3] else 1)
