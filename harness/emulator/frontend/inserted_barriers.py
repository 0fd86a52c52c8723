"""What a release decides inside its conversion to LLVM (`Release.inserting_passes`), put where it belongs in the tile program.

There `ModuleMembarAnalysis` puts barriers into the tile program, and only then operations are converted, functions first. So the
conversion is run over the program and one function more that has no form in LLVM. It ends at that function, and what it leaves has
the operations of the tile program and the compiler's barriers between them. Nor do these releases print how much shared memory an
operation takes for itself. The release's own allocation tells: for a module of that operation alone, it asks for as much.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from triton._C.libtriton import ir

from bitverdict.harness.emulator.backends import Backend
from bitverdict.harness.emulator.frontend.module_text import generic_text, read_back
from bitverdict.harness.emulator.mlir_reader import OPERATION, Operation, parse_program
from bitverdict.harness.emulator.releases import add_passes, installed_release

_NAME = "bitverdict.unconvertible"
_UNCONVERTIBLE = f'''  "tt.func"() <{{function_type = (tuple<i32>) -> (), sym_name = "{_NAME}", sym_visibility = "private"}}> ({{
  ^bb0(%unconvertible: tuple<i32>):
    "tt.return"() : () -> ()
  }}) : () -> ()
'''
_MODULE = '"builtin.module"() ({\n'
_FUNCTIONS = ("builtin.module", "tt.func", "llvm.func", "llvm.mlir.global")
_CASTS = ("builtin.unrealized_conversion_cast", "llvm.mlir.")  # from the arguments of a function in LLVM to the program's
_CONVERTED_WITH_FUNCTIONS = {"llvm.br": "cf.br", "llvm.cond_br": "cf.cond_br", "llvm.return": "tt.return"}  # by AMD's compiler
_BARRIERS = (
    "ttg.barrier", "ttg.local_barrier", "gpu.barrier", "ttng.cluster_barrier", "ttng.cluster_arrive", "ttng.cluster_wait",
    "ttng.fence_mbarrier_init_release_cluster",
)  # fmt: skip
_OFFSET = "allocation.offset"
_WITHOUT_SCRATCH = ("ttg.local_alloc", "ttng.tmem_alloc", "ttg.warp_specialize", "tt.call")
"""Operations whose offset is that of a buffer of the program, of what partitions are given, or of a function."""


def complete(program: str, backend: Backend, **values: int | str) -> str:
    """The generic text `program` with the barriers that the release inserts later, and `allocation.size` where it is not printed.
    `values`: of the passes' arguments."""
    if not (passes := installed_release().inserting_passes.get(backend.name)):
        return program
    module = read_back(program.replace(_MODULE, _MODULE + _UNCONVERTIBLE, 1))
    manager = ir.pass_manager(module.context)
    add_passes(manager, passes, consan=False, flushes=True, **values)
    try:
        with _silent():
            manager.run(module, "barriers")
    except RuntimeError:  # at the function that has no form there
        text = _insert(program, _without_function(generic_text(module, backend)))
    else:
        raise RuntimeError("the conversion to LLVM takes a tuple: where barriers stand in the tile program cannot be seen any more")
    return _with_sizes(text, backend, values)


def _without_function(text: str) -> str:
    """`text` without the function of `_UNCONVERTIBLE`."""
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if f'sym_name = "{_NAME}"' in line)
    last = next(number for number in range(first, len(lines)) if lines[number].startswith("  })"))
    return "\n".join(lines[:first] + lines[last + 1 :])


def _insert(program: str, converted_text: str) -> str:
    """`program` with the barriers that `converted_text` has more, each in front of the operation that it stands before there, with
    the place of that. RuntimeError where the operations are not the same."""
    lines = program.split("\n")
    before = [op for op in parse_program(program).operations() if op.name not in _FUNCTIONS]
    barriers: dict[int, list[str]] = {}  # line -> those in front of it
    position = 0
    for line in converted_text.split("\n"):
        if (operation := OPERATION.match(line)) is None or operation[2] in _FUNCTIONS or operation[2].startswith(_CASTS):
            continue
        if position < len(before) and _CONVERTED_WITH_FUNCTIONS.get(operation[2], operation[2]) == before[position].name:
            position += 1
        elif operation[2] in _BARRIERS and position < len(before):
            op = before[position]
            place = lines[op.last_line].rpartition(" loc(")[2]
            barriers.setdefault(op.line, []).append(f"{line.rpartition(' loc(')[0]} loc({place}")
        else:
            raise RuntimeError(f"the conversion to LLVM has {operation[2]} where the tile program has other operations")
    if position < len(before):
        raise RuntimeError(f"the conversion to LLVM has lost {before[position].name}")
    return "\n".join(line for number, own in enumerate(lines) for line in (*barriers.get(number, ()), own))


def _with_sizes(text: str, backend: Backend, values: dict[str, int | str]) -> str:
    """`text` with the size of each operation's own shared memory behind its offset."""
    lines, program = text.split("\n"), parse_program(text)
    aliases = "".join(f"{line}\n" for line in lines if line.startswith("#"))
    attributes = next(line for line in reversed(lines) if line.startswith("}) {"))
    (allocation,) = (each for each in installed_release().tile_program_passes[backend.name] if "add_allocate_shared_memory" in each)

    @lru_cache
    def size(operation: str) -> int:
        module = read_back(f"{aliases}{_MODULE}{operation}{attributes}\n")
        manager = ir.pass_manager(module.context)
        add_passes(manager, (allocation,), **values)
        manager.run(module, "scratch")
        return module.get_int_attr("ttg.shared") or 0

    for op in program.operations():
        if _OFFSET in op.attributes and op.name not in _WITHOUT_SCRATCH and "allocation.size" not in op.attributes:
            line = lines[op.last_line]
            offset = re.search(rf"{re.escape(_OFFSET)} = \d+ : i32", line)
            if offset is not None:
                told = f"{offset[0]}, allocation.size = {size(_function_of(op, lines))} : i32"
                lines[op.last_line] = line.replace(offset[0], told)
    return "\n".join(lines)


def _function_of(op: Operation, lines: list[str]) -> str:
    """A function of nothing but `op`, whose operands are its arguments, and what its regions take from outside; it returns the
    results, since an atomic takes shared memory for one that is used alone."""
    body = "\n".join(lines[op.line : op.last_line + 1])
    names = [f"%operand{number}" for number in range(len(op.operands))]
    body = body.replace(f'"{op.name}"({", ".join(op.operands)})', f'"{op.name}"({", ".join(names)})', 1)
    types = dict(zip(names, op.operand_types, strict=True)) | _outer_values(op)
    arguments = ", ".join(f"{name}: {kind}" for name, kind in types.items())
    results, kinds = (", ".join(each) for each in (op.results, op.result_types))
    function_type = f"({', '.join(types.values())}) -> ({kinds})"
    return (
        f'"tt.func"() <{{function_type = {function_type}, sym_name = "alone", sym_visibility = "public"}}> '
        f'({{\n^bb0({arguments}):\n{body}\n"tt.return"({results}) : ({kinds}) -> ()\n}}) : () -> ()\n'
    )


def _outer_values(op: Operation) -> dict[str, str]:
    """The values that the regions of `op` take from outside it, such as a constant, and their types."""
    own, types, blocks = set[str](), dict[str, str](), [block for region in op.regions for block in region]
    while blocks:
        block = blocks.pop()
        own.update(argument for argument, _ in block.arguments)
        for inner in block.operations:
            own.update(inner.results)
            types.update(zip(inner.operands, inner.operand_types, strict=True))
            blocks += [each for region in inner.regions for each in region]
    return {name: kind for name, kind in types.items() if name not in own}


@contextmanager
def _silent() -> Iterator[None]:
    """While entered, nothing reaches the standard error: MLIR says there what it does not convert."""
    sys.stderr.flush()
    before, null_device = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        for each in (before, null_device):
            os.close(each)


__all__ = ["complete"]
