"""Which thread of a program holds each element of a tensor: a fact of its type, asked of the compiler's own linear layouts."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np

from bitverdict.harness.emulator.compiler_process import in_compiler_process
from bitverdict.harness.emulator.mlir_types import Type

WARP = 32  # threads of a warp; AMD's has `threads_of` its layouts
ALL_BITS = -1  # all bits: each thread holds the same


@dataclass(frozen=True, eq=False)
class Owners:
    """`threads`: (elements,) the thread that stores each element, elements in row-major order. `copies`: bits of a thread's number
    that do not change what it holds; a thread that differs in them only loads the element too, and does not store it."""

    threads: np.ndarray
    copies: int
    warp: int = WARP


def threads_of(layout: str) -> int:
    """Threads of a warp, as a `layout` with its aliases written out has them."""
    if "amd_mfma" in layout:
        return 2 * WARP
    if found := re.search(r"threadsPerWarp = \[([\d, ]+)\]", layout):
        return prod(map(int, found[1].split(",")))
    if found := re.search(r"lane = \[((?:\[[\d, ]*\](?:, )?)*)\]", layout):
        return 1 << found[1].count("[")
    return WARP


SCALAR = Owners(np.zeros(1, np.int32), ALL_BITS)  # thread 0 stores it (`emitRedundantThreadPredicate`), each thread loads it


@cache
def owners(kind: Type, layout: str) -> Owners:
    """Who holds a value of the type `kind`, whose layout is `layout` with its aliases written out."""
    if kind.kind != "tensor":
        return SCALAR
    linear = _linear(kind.shape, layout)
    registers, lanes, warps, ctas = linear.reg_bases, linear.lane_bases, linear.warp_bases, linear.block_bases
    threads = np.zeros(kind.shape, np.int32)
    bits = lanes + [[0] * len(kind.shape)] * (WARP.bit_length() - 1 - len(lanes)) + warps + ctas
    copies = sum(1 << i for i, basis in enumerate(bits) if not any(basis))
    places = np.zeros((1, len(kind.shape)), np.int64)  # (held, rank) coordinates that a thread's registers reach from its first
    for basis in registers:
        if any(basis):
            places = np.concatenate([places, places ^ np.array(basis)])
    numbers = np.zeros(1, np.int32)  # (threads,)
    starts = np.zeros((1, len(kind.shape)), np.int64)  # (threads, rank)
    for i, basis in enumerate(bits):
        if any(basis):
            numbers = np.concatenate([numbers, numbers | 1 << i])
            starts = np.concatenate([starts, starts ^ np.array(basis)])
    where = (starts[:, None, :] ^ places[None, :, :]).reshape(-1, len(kind.shape))  # (threads * held, rank)
    threads[tuple(where.T)] = np.repeat(numbers, len(places))
    return Owners(threads.reshape(-1), copies, threads_of(layout))


def bases(shape: tuple[int, ...], layout: str) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """(register, lane, warp) bases of `layout` for a tensor of `shape`. ValueError where several CTAs of a cluster hold it."""
    found = _linear(shape, layout)
    if any(map(any, found.block_bases)):
        raise ValueError("of a tensor that several CTAs hold")
    return found.reg_bases, found.lane_bases, found.warp_bases


class Linear(NamedTuple):
    """A linear layout of the compiler's: the coordinates that each bit of a number moves by."""

    reg_bases: list[list[int]]
    lane_bases: list[list[int]]
    warp_bases: list[list[int]]
    block_bases: list[list[int]]


def _linear(shape: tuple[int, ...], layout: str) -> Linear:
    """The compiler's linear layout that `layout` is for a tensor of `shape`."""
    return Linear(*_layout_bases(shape, layout))


@in_compiler_process
def _layout_bases(shape: tuple[int, ...], layout: str) -> tuple[list, list, list, list]:
    from triton._C.libtriton import amd, gluon_ir, ir, nvidia

    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    amd.load_dialects(context)
    text = f"tt.func public @layout(%a: tensor<{'x'.join(map(str, shape))}xi8, {layout}>) {{ tt.return }}"
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(f'module attributes {{"ttg.threads-per-warp" = {threads_of(layout)} : i32}} {{ {text} }}')
        file.flush()
        module = ir.parse_mlir_module(file.name, context)
    module.context = context  # or it is gone before the module is
    builder = gluon_ir.GluonOpBuilder(context)
    held = builder.get_gluon_layout_from_tensor(module.get_function("layout").args(0))
    found = builder.to_linear_layout(held._to_ir(builder), list(shape))
    return found.reg_bases, found.lane_bases, found.warp_bases, found.block_bases


@cache
def slots(shape: tuple[int, ...], layout: str, *, copies: bool = True) -> np.ndarray:
    """(warps * threads, registers) the element, row-major, that each register of each thread holds. Without `copies` registers that
    hold what another of the thread does are left out."""
    registers, lanes, warps = bases(shape, layout)
    registers = [basis for basis in registers if copies or any(basis)]
    bits = lanes + [[0] * len(shape)] * (WARP.bit_length() - 1 - len(lanes)) + warps
    sides = []
    for side in (bits, registers):
        places = np.zeros((1, len(shape)), np.int64)  # (held, rank)
        for basis in side:
            places = np.concatenate([places, places ^ np.array(basis)])
        sides.append(places)
    where = sides[0][:, None, :] ^ sides[1][None, :, :]  # (threads, registers, rank)
    return np.ravel_multi_index(tuple(np.moveaxis(where, -1, 0)), shape)


@cache
def moved_places(source: tuple[tuple[int, ...], str], target: tuple[tuple[int, ...], str]) -> np.ndarray | None:
    """(elements,) which element of `source`, a shape and a layout, lies where each element of `target` does; both row-major. None
    where registers do not correspond."""
    held, wanted = slots(*source), slots(*target)
    if held.shape != wanted.shape:
        return None
    places = np.zeros(prod(target[0]), np.int64)
    places[wanted.reshape(-1)] = held.reshape(-1)
    return places if (places[wanted] == held).all() else None


def stays_in_warp(before: Owners, after: Owners) -> bool:
    """Whether a conversion between two layouts moves nothing from one warp to another."""
    warp = before.warp
    return bool((before.threads // warp == after.threads // warp).all()) and before.copies // warp == after.copies // warp


__all__ = ["ALL_BITS", "SCALAR", "WARP", "Owners", "bases", "moved_places", "owners", "slots", "stays_in_warp"]
