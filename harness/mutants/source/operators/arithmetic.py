"""Signs, factors, terms, functions and constants."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, integer, operator
from bitverdict.harness.mutants.source.places import Place, callee_name

FUNCTIONS = {
    "exp": "exp2",
    "exp2": "exp",
    "log": "log2",
    "log2": "log",
    "sqrt": "rsqrt",
    "rsqrt": "sqrt",
    "sin": "cos",
    "cos": "sin",
    "floor": "ceil",
    "ceil": "floor",
    "sigmoid": "exp",
    "tanh": "exp",
}
OPERATIONS = {
    cst.Add: "-",
    cst.Subtract: "+",
    cst.Divide: "*",
    cst.LeftShift: ">>",
    cst.RightShift: "<<",
    cst.BitAnd: "|",
    cst.BitOr: "&",
}
UNTOUCHED_KEYWORDS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "warps_per_cta",
    "loop_unroll_factor",
    "disallow_acc_multi_buffer",
)
SHAPE_FUNCTIONS = (
    "arange",
    "reshape",
    "permute",
    "program_id",
    "num_programs",
    "trans",
    "view",
    "stride",
    "size",
    "allocate_shared_memory",
)


@operator("scale dropped", "scale")
def scale_dropped(place: Place) -> Iterator[Change]:
    """A scale is not multiplied in."""
    if isinstance(node := place.node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply | cst.Divide):
        if "scale" in place.code(node.right):
            yield Change(node, place.code(node.left))
        elif "scale" in place.code(node.left) and isinstance(node.operator, cst.Multiply):
            yield Change(node, place.code(node.right))


@operator("sign dropped", "sign", host=True)
def sign_dropped(place: Place) -> Iterator[Change]:
    """A value has the other sign."""
    if isinstance(node := place.node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        yield Change(node, place.code(node.expression))


@operator("another operation", "sign", host=True)
def another_operation(place: Place) -> Iterator[Change]:
    """A sum is a difference, a quotient a product, a shift one to the other side."""
    if isinstance(node := place.node, cst.BinaryOperation) and (other := OPERATIONS.get(type(node.operator))) is not None:
        yield Change(node.operator, f" {other} ")


@operator("term dropped", "index")
def term_dropped(place: Place) -> Iterator[Change]:
    """Of a sum the last term is left out."""
    if isinstance(node := place.node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract):
        yield Change(node, place.code(node.left))


@operator("factor dropped", "scale")
def factor_dropped(place: Place) -> Iterator[Change]:
    """Of a product, or a quotient, one factor is left."""
    if isinstance(node := place.node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Multiply | cst.Divide | cst.FloorDivide):
            yield Change(node, place.code(node.left))
        if isinstance(node.operator, cst.Multiply):
            yield Change(node, place.code(node.right))


@operator("another function", "function")
def another_function(place: Place) -> Iterator[Change]:
    """A function near the right one is computed."""
    if isinstance(node := place.node, cst.Call) and (other := FUNCTIONS.get(callee_name(node))) is not None:
        yield Change(node.func, place.code(node.func).removesuffix(callee_name(node)) + other)


@operator("function dropped", "function")
def function_dropped(place: Place) -> Iterator[Change]:
    """A function's argument stands for its value."""
    if (
        isinstance(node := place.node, cst.Call)
        and (callee_name(node) in FUNCTIONS or callee_name(node) == "abs")
        and len(node.args) == 1
    ):
        yield Change(node, f"({place.code(node.args[0].value)})")


@operator("constant changed", "constant", host=True)
def constant_changed(place: Place) -> Iterator[Change]:
    """A number is another one."""
    node = place.node
    if _stays(place):
        return
    if isinstance(node, cst.Float):
        yield Change(node, "1.0" if float(node.value) == 0 else f"({node.value} * 2)")
    elif (value := integer(node if isinstance(node, cst.Integer) else None)) is not None:
        yield Change(node, str(value + 1))
        if value > 0:
            yield Change(node, str(value - 1))


def _stays(place: Place) -> bool:
    """Whether a number decides how fast a kernel is, or a shape that would not compile."""
    for each in place.file.ancestors(place.node):
        if isinstance(each, cst.Arg) and each.keyword is not None and each.keyword.value in UNTOUCHED_KEYWORDS:
            return True
        if isinstance(each, cst.Call) and (callee_name(each) in SHAPE_FUNCTIONS or callee_name(each).endswith("Layout")):
            return True
        if isinstance(each, cst.BaseStatement):
            return False
    return False
