"""A fault as Python would tell it if the kernel had raised: the last frame is the kernel's line, its locals are the kernel's.

No frame of bitverdict and of Triton is shown, unless `BITVERDICT_FRAMES` is "all"."""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.model.paths import HARNESS


def place_of_fault(fault: EmulatedFault) -> tuple[str, int]:
    """(file, line) of the kernel's operation; ("", 0) where the fault has none."""
    file, _, line = fault.location.rpartition(":")
    return (file, int(line)) if file and line.isdigit() else ("", 0)


def function_at(file: str, line: int) -> tuple[str, int, frozenset[str]]:
    """(name, first line, names of its variables) of the innermost function of `file` that holds `line`."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))  # the cell of a notebook is in no file
    except (SyntaxError, ValueError):
        return "kernel", max(line, 1), frozenset()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    holding = [node for node in functions if node.lineno <= line <= (node.end_lineno or 0)]
    if not holding:
        return "kernel", max(line, 1), frozenset()
    found = max(holding, key=lambda node: node.lineno)
    stored = (node.id for node in ast.walk(found) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return found.name, found.lineno, frozenset([*stored, *(node.arg for node in ast.walk(found.args) if isinstance(node, ast.arg))])


def at_the_kernel(fault: EmulatedFault) -> EmulatedFault:
    """`fault` with a traceback whose last frame is the kernel's line; the caller's entries are linked anew, in place."""
    if fault.is_at_kernel or os.environ.get("BITVERDICT_FRAMES") == "all":
        return fault
    kernel_entry = frame_at(fault, *place_of_fault(fault), fault.tile_values)
    entries: list[TracebackType] = []
    entry = fault.__traceback__
    while entry is not None:
        if not _is_hidden(entry.tb_frame.f_code.co_filename):
            entries.append(entry)
        entry = entry.tb_next
    for upper, lower in zip(entries, [*entries[1:], kernel_entry]):
        upper.tb_next = lower
    fault.__cause__, fault.__suppress_context__, fault.is_at_kernel = None, True, True
    return fault.with_traceback(entries[0] if entries else kernel_entry)


def _is_hidden(file: str) -> bool:
    path = Path(file)
    return file.startswith(("<tile program", "<frozen runpy>")) or path.is_relative_to(HARNESS) or "triton" in path.parts


def frame_at(error: Exception, file: str, line: int, tile_values: Mapping[str, object]) -> TracebackType | None:
    """A frame at that line, as Python would have it if the kernel itself had raised `error`; None where no line is known. Of
    `tile_values`, by their names in the tile program, its locals are those that the source names."""
    if not file:
        return None
    name, first_line, variables = function_at(file, line)
    text = linecache.getline(file, line).rstrip()
    tree = ast.parse("raise _raised_fault")
    for node in ast.walk(tree.body[0]):  # the columns of the whole line: Python marks no part of it then
        vars(node).update(
            lineno=line - first_line + 1,
            end_lineno=line - first_line + 1,
            col_offset=len(text) - len(text.lstrip()),
            end_col_offset=len(text),
        )
    code = compile(tree, file, "exec").replace(co_firstlineno=first_line, co_name=name, co_qualname=name)
    kernel_locals = {}
    for each, value in tile_values.items():  # later ones, of one name, were computed later
        source_name = next((named for named in (each, re.sub(r"_\d+$", "", each)) if named in variables), "")
        if source_name:
            kernel_locals[source_name] = value
    before, context = error.__traceback__, error.__context__
    try:
        exec(code, {"_raised_fault": error.with_traceback(None)}, kernel_locals)
    except type(error) as raised:
        entry = raised.__traceback__
        while entry is not None and entry.tb_next is not None:
            entry = entry.tb_next
        return entry
    finally:
        error.with_traceback(before).__context__ = context  # which would be what is handled now, whose context may be this error
    return None
