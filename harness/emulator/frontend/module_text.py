"""Modules of the compiler and their text: read from it, and printed in MLIR's generic form."""

from __future__ import annotations

import tempfile
from typing import Any

import triton
from triton._C.libtriton import amd, ir, nvidia

from bitverdict.harness.emulator.backends import BACKENDS, NVIDIA, Backend


def read_back(program: str) -> Any:
    """The module whose text, as `tile_program` leaves it, is `program`. RuntimeError where the compiler does not take it."""
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    amd.load_dialects(context)
    for backend in BACKENDS.values():
        program = program.replace(f'{backend.unverified_attribute} = "tile program", ', "")
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(program)
        file.flush()
        module = ir.parse_mlir_module(file.name, context)
    module.context = context  # or it is gone before the module is
    return module


def generic_text(module: ir.module, backend: Backend = NVIDIA) -> str:
    """The module in MLIR's generic assembly, locations included. The bindings print the short forms, except of a module that does
    not verify: so it is made not to, by an attribute that belongs on functions only, at the end, when nothing else will look at
    it."""
    module.set_attr(backend.unverified_attribute, ir.builder(module.context).get_string_attr("tile program"))
    text = module.str()
    if '"builtin.module"(' not in text:
        raise RuntimeError(f"triton {triton.__version__} does not print the generic form of a module any more")
    return text


__all__ = ["generic_text", "read_back"]
