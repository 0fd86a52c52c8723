"""Matrix products: mma.sync and fma chains (`tt.dot`), wgmma (`ttng.warp_group_dot`), tcgen05.mma, and the barriers they signal."""

from __future__ import annotations

from functools import partial

import numpy as np

from bitverdict.harness.emulator.execution.cluster_order import CLUSTER, OWN, reach
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorCore
from bitverdict.harness.emulator.frontend.lowerings.mfma import mfma
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.matrix_products import (
    OPERAND_FORMATS,
    RESULT_FORMATS,
    Dot,
    double_product,
    fma_product,
    instruction,
    k_order,
    layout_number,
    partial_product,
    product,
)
from bitverdict.reference.error_bound import Accumulation, of_instruction, plain_fp32


def _formats(op: Operation, a: Type, b: Type, d: Type) -> tuple[str, str, str]:
    try:
        return OPERAND_FORMATS[a.element], OPERAND_FORMATS[b.element], RESULT_FORMATS[d.element]
    except KeyError as error:
        raise NotModelled(op, f"on {a.element} and {b.element} to {d.element} ({error})") from None


def _note(t: Translator, family: str, formats: tuple[str, str, str], a: Type, b: Type) -> None:
    t.products[(family, *formats, a.shape[-2], b.shape[-1], a.shape[-1])] += 1


@lowers("tt.dot")
def dot(t: Translator, op: Operation) -> None:
    a, b, d = t.operand(op, 0), t.operand(op, 1), t.result(op)
    layout = t.program.expand(d.layout)
    if "amd_mfma" in layout:
        t.call(op, _batch_products(mfma(t, op, _formats(op, a, b, d)), a))
        return
    if "nvidia_mma" not in layout:
        t.call(op, _batch_products(_without_tensor_cores(t, op, a, b, d), a))
        return
    if layout_number(layout, "versionMajor") != 2:
        raise NotModelled(op, f"with the layout {layout[:80]}")
    width = layout_number(t.program.expand(a.layout), "kWidth") or 1
    if {a.element, b.element, d.element} == {"f64"}:
        if width != 1:
            raise NotModelled(op, f"of fp64 where a thread holds {width} neighbouring k")
        _note(t, "mma.sync", ("fp64", "fp64", "fp64"), a, b)
        t.call(op, _batch_products(double_product, a))
        return
    formats = _formats(op, a, b, d)
    order = k_order(a.shape[-1], width, a.bits)
    _note(t, "mma.sync", formats, a, b)
    arch = t.arch

    def run(left: np.ndarray, right: np.ndarray, c: np.ndarray) -> np.ndarray:
        if order is not None:
            left, right = left[:, order], right[order]
        return product(arch, "mma.sync", formats, left, right, c)

    t.call(op, _batch_products(run, a))


def _batch_products(run: Dot, a: Type) -> Dot:
    """`run` for each of a batch of products where operand `a` has three axes: each has a chain of its own."""
    if len(a.shape) == 2:
        return run
    return lambda left, right, c: np.stack([run(*each) for each in zip(left, right, c, strict=True)])


def _without_tensor_cores(t: Translator, op: Operation, a: Type, b: Type, d: Type) -> Dot:
    """A product that the compiler leaves to the ordinary units (FMA.cpp): ascending multiply-adds."""
    elements = {a.element, b.element, d.element}
    if elements != {"f32"} and (elements != {"f64"} or not t.backend.multiplies_in_order):
        raise NotModelled(op, f"on {a.element} without tensor cores")
    chain, name = (fma_product, "fp32") if elements == {"f32"} else (double_product, "fp64")
    _note(t, "fma", (name, name, name), a, b)
    return partial(chain, fuses_sums=t.fuses_sums)


@lowers("ttng.warp_group_dot")
def warp_group_dot(t: Translator, op: Operation) -> None:
    a, b, d = t.operand(op, 0), t.operand(op, 1), t.result(op)
    formats = _formats(op, a, b, d)
    _note(t, "wgmma", formats, a, b)
    arch = t.arch
    most = op.integer("maxNumImpreciseAcc", 0)

    def run(left: np.ndarray, right: np.ndarray, c: np.ndarray) -> np.ndarray:
        if a.bits == 8 and formats[2] == "fp32":
            return partial_product(arch, formats, left, right, c, most)
        return product(arch, "wgmma", formats, left, right, c)

    left, right, before, use = t.operands(op, "a", "b", "c", "use?")
    bound = None if t.enclosing is None else accumulation_of(t, op)
    t.machine(op, TensorCore.wgmma, run, left, right, before, True if use is None else use, op.flag("isAsync"), bound)


_FAMILIES = {"tt.dot": "mma.sync", "ttng.warp_group_dot": "wgmma", "ttng.tc_gen5_mma": "tcgen05"}


def accumulation_of(t: Translator, op: Operation) -> tuple[Accumulation, tuple[str, str]] | None:
    """How the floats of the product `op` are summed, and the formats of its operands; None where no bound of it is known."""
    a, b, d = t.operand(op, 0), t.operand(op, 1), t.operand(op, 2)
    if op.name == "tt.dot" and "nvidia_mma" not in t.program.expand(d.layout):
        plain = (a.element, b.element, d.element) == ("f32", "f32", "f32") and t.backend.multiplies_in_order
        return (plain_fp32(fused_product=t.fuses_sums), ("fp32", "fp32")) if plain else None
    cut = a.bits == 8 and op.integer("maxNumImpreciseAcc", 0) <= a.shape[-1] and op.name == "ttng.warp_group_dot"
    if not d.is_float or d.element == "f64" or cut:
        return None
    formats = _formats(op, a, b, d)
    rule = instruction(t.arch, _FAMILIES[op.name], *formats)
    return of_instruction(rule, a.shape[-1], accumulator=True), formats[:2]


@lowers("ttng.warp_group_dot_wait")
def warp_group_dot_wait(t: Translator, op: Operation) -> None:
    t.emit("{}", t.calls(TensorCore.wgmma_wait, op.integer("pendings")))
    for result, operand in zip(op.results, op.operands, strict=True):
        t.emit("{} = {}", t.value(result), t.calls(TensorCore.settle_value, t.value(operand)))


@lowers("ttng.tc_gen5_mma")
def tensor_core_mma(t: Translator, op: Operation) -> None:
    a, b, d = t.operand(op, 0), t.operand(op, 1), t.operand(op, 2)
    formats = _formats(op, a, b, d)
    _note(t, "tcgen05", formats, a, b)
    arch = t.arch

    def run(left: np.ndarray, right: np.ndarray, c: np.ndarray) -> np.ndarray:
        return product(arch, "tcgen05", formats, left, right, c)

    names = "a", "b", "d", "token?", "use", "enabled", "barriers*", "conditions*"
    left, right, into, _token, use, is_enabled, barriers, conditions = t.operands(op, *names)
    signals = tuple(zip(barriers, conditions, strict=True))
    pair, multicast = "two_ctas" in op.attributes, "multicast" in op.attributes
    count = t.commits(op, op.operands[:2], multicast=multicast)
    over = CLUSTER if multicast else reach(t.ctas, 2) if pair else OWN
    bound = None if t.enclosing is None else accumulation_of(t, op)
    with t.when(is_enabled):
        t.machine(op, TensorCore.mma, run, left, right, into, use, signals, count, over, pair, bound)
