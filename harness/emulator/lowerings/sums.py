"""Sums of floats, and which product each takes in: `a * b + c` may become one fused multiply-add.

Where no product can reach a sum it is an addition, and rounds once. Where one can, the compiled program says what became of it
(`contraction`). What differs from place to place in it is refused: a loop that was unrolled contracts its first step otherwise
than the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from harness.emulator.arithmetic import binary, fma, narrow_fma, negative
from harness.emulator.contraction import Fate, NotAssembled
from harness.emulator.program import Operation
from harness.emulator.translate import LOWERINGS, NotModelled, Translator, lowers

_SHAPES = ("tt.broadcast", "tt.splat", "tt.expand_dims", "tt.reshape", "tt.trans")
_THROUGH = (
    *_SHAPES, "ttg.convert_layout", "arith.negf", "arith.select", "arith.extf", "arith.truncf", "tt.fp_to_fp", "arith.bitcast",
    "tt.bitcast", "tt.join", "tt.split", "tt.cat", "tt.gather", "tt.unsplat", "math.absf",
)  # fmt: skip
_NO_PRODUCT = (
    "arith.constant", "arith.addf", "arith.subf", "arith.divf", "arith.sitofp", "arith.uitofp", "arith.maximumf",
    "arith.minimumf", "arith.maxnumf", "arith.minnumf", "math.fma", "math.floor", "math.ceil", "tt.load", "tt.descriptor_load",
    "tt.dot", "tt.clampf", "tt.precise_divf", "tt.precise_sqrt", "tt.atomic_rmw", "tt.atomic_cas", "tt.call",
    "tt.elementwise_inline_asm", "ttg.local_load", "ttng.tmem_load", "ttng.warp_group_dot", "ttng.warp_group_dot_wait",
    "ub.poison",
)  # fmt: skip
_NUMPY = {"arith.addf": np.add, "arith.subf": np.subtract}


@dataclass(frozen=True)
class _Product:
    """A multiplication that a sum takes straight, seen through `moves` (the last first), its sign changed when `negative`."""

    op: Operation
    moves: tuple[Operation, ...]
    negative: bool


@lowers("arith.addf", "arith.subf")
def total(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    products = [_product(t, name) for name in op.operands] if t.fused else []
    reached = [_may_be_product(t, name) for name in op.operands] if t.fused else [False]
    if not any(reached):
        t.call(op, binary(_NUMPY[op.name], kind.format))
        return
    which = _contracted(t, op, products, reached)
    if which is None:
        t.call(op, binary(_NUMPY[op.name], kind.format))
        return
    product = products[which]
    assert product is not None
    if kind.format is None:
        raise NotModelled(op, "a fused multiply-add of fp64")
    left, right = (_moved(t, product, name) for name in product.op.operands)
    other = t.value(op.operands[1 - which])
    minus = t.constant(negative(kind.format))
    if product.negative ^ (op.name == "arith.subf" and which == 1):
        left = f"{minus}({left})"
    if op.name == "arith.subf" and which == 0:
        other = f"{minus}({other})"
    run = fma if kind.format == "fp32" else narrow_fma(kind.format)
    t.emit(f"{t.target(op)}{t.constant(run)}({left}, {right}, {other})")


def _contracted(t: Translator, op: Operation, products: list[_Product | None], reached: list[bool]) -> int | None:
    """The operand whose product the compiled program fuses into the sum `op`; None where it adds."""
    try:
        fate = t.contraction.fate(op.line)
        if not fate.fused and not fate.plain:
            raise NotModelled(op, "a sum of which the compiled program keeps nothing that could be read")
        if fate.fused and fate.plain:
            raise _unclear(op, "fuses it in one place and not in another")
        if fate.formats != {t.result(op).element}:
            raise _unclear(op, f"computes it in {', '.join(sorted(fate.formats))}")
        if not fate.fused:
            if t.contraction.joined_by_ptxas(op.line, fate):
                raise _unclear(op, "leaves it to ptxas, which fuses it in some steps of the loop that it unrolls")
            return None
    except NotAssembled as error:
        raise NotModelled(op, f"a sum that takes a product, in a program that the compiler does not take: {error}") from error
    return _fused_operand(op, products, reached, fate)


def _fused_operand(op: Operation, products: list[_Product | None], reached: list[bool], fate: Fate) -> int:
    first, second = products
    if first is not None and first == second:  # p + p
        return 0
    candidates = [i for i, product in enumerate(products) if product is not None]
    if sum(reached) == 1 and candidates:
        return candidates[0]
    for which in candidates:  # the other one is what is added, in every instruction of the sum
        other = products[1 - which]
        own = products[which].op.line  # type: ignore[union-attr]
        lines = fate.addends
        if other is not None and other.op.line != own and all(other.op.line in added and not added & {own, -1} for added in lines):
            return which
        if other is None and all(not added & {own, -1} for added in lines):
            return which
    raise _unclear(op, "fuses a product into it that reaches it through a branch, a loop or a select")


def _unclear(op: Operation, what: str) -> NotModelled:
    return NotModelled(op, f"a sum that takes a product, where the compiler {what}; compile with enable_fp_fusion=False")


def _moved(t: Translator, product: _Product, name: str) -> str:
    """The local variable that holds factor `name` of `product`, moved as the product is on its way to the sum."""
    at, element = name, t.types[name]
    for move in reversed(product.moves):
        if move.name in _SHAPES:
            fresh = f"{name}~{t.number()}"
            LOWERINGS[move.name](t, replace(move, operands=[at], results=[fresh]))
            at = fresh
    assert element is not None
    return t.value(at)


def _product(t: Translator, name: str) -> _Product | None:
    """The multiplication whose result `name` is, seen through moves and changes of sign."""
    moves: list[Operation] = []
    negative_ = False
    op = t.defined.get(name)
    while op is not None and (op.name in (*_SHAPES, "ttg.convert_layout", "arith.negf")):
        negative_ ^= op.name == "arith.negf"
        moves.append(op)
        op = t.defined.get(op.operands[0])
    return _Product(op, tuple(moves), negative_) if op is not None and op.name == "arith.mulf" else None


def _may_be_product(t: Translator, name: str) -> bool:
    """Whether what `name` holds may be a product where the compiler sees it: through whatever it sees through."""
    seen, waiting = set[str](), [name]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        op = t.defined.get(at)
        if op is None:
            waiting += t.incoming.get(at, [])
        elif op.name in _THROUGH:
            waiting += op.operands[1:] if op.name == "arith.select" else op.operands
        elif op.name not in _NO_PRODUCT and not _folds_without_product(op):
            return True
    return False


def _folds_without_product(op: Operation) -> bool:
    """A reduction or scan that multiplies nothing gives no product."""
    return op.name in ("tt.reduce", "tt.scan") and all(
        inner.name != "arith.mulf" for region in op.regions for block in region for inner in block.operations
    )
