"""Floats: arithmetic, functions, comparisons, conversions, products and their accumulators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from bitverdict.harness.mutants.program.edits import MUTANT_VALUE, Edit, Offer, in_place, replaced_by, with_constant
from bitverdict.harness.mutants.program.lines import Line
from bitverdict.harness.mutants.program.operators.table import changes, offer
from bitverdict.harness.mutants.program.tile_program import Site, is_float, is_tensor

_EXCHANGES = {
    "arith.addf": "arith.subf", "arith.subf": "arith.addf", "arith.mulf": "arith.addf", "arith.divf": "arith.mulf",
    "arith.maxnumf": "arith.minnumf", "arith.minnumf": "arith.maxnumf", "arith.maximumf": "arith.minimumf",
    "arith.minimumf": "arith.maximumf", "math.exp": "math.exp2", "math.exp2": "math.exp", "math.log": "math.log2",
    "math.log2": "math.log", "math.sqrt": "math.rsqrt", "math.rsqrt": "math.sqrt", "math.sin": "math.cos", "math.cos": "math.sin",
    "math.floor": "math.ceil", "math.ceil": "math.floor",
}  # fmt: skip
_EITHER_OPERAND = ("arith.addf", "arith.mulf", "arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf")
_FIRST_OPERAND = ("arith.subf", "arith.divf")
_FUNCTIONS = (
    "arith.negf", "math.absf", "math.exp", "math.exp2", "math.log", "math.log2", "math.sqrt", "math.rsqrt", "math.erf", "math.sin",
    "math.cos", "math.floor", "math.ceil",
)  # fmt: skip


def _family(site: Site) -> str:
    return "reduction" if site.around in ("tt.reduce", "tt.scan") else "arithmetic"


@changes(*_EXCHANGES)
def exchange_operation(site: Site) -> Iterator[Offer]:
    """Another operation on the same operands."""
    line = site.line.with_name(_EXCHANGES[site.op.name])
    yield offer(site, "operation exchanged", _family(site), in_place(site, line), floats=True)


@changes(*_EITHER_OPERAND, *_FIRST_OPERAND)
def keep_one_operand(site: Site) -> Iterator[Offer]:
    """One operand in the place of the result."""
    for place in (0, 1) if site.op.name in _EITHER_OPERAND else (0,):
        value = site.op.operands[place]
        if place == 0 or value != site.op.operands[0]:
            edit = replaced_by(site, {site.op.results[0]: value})
            yield offer(site, "operand dropped", _family(site), edit, f"operand {place}", f"{value} alone", floats=True)


@changes("arith.subf", "arith.divf")
def swap_operands(site: Site) -> Iterator[Offer]:
    """Operands in the other order."""
    first, second = site.op.operands
    yield offer(site, "operands exchanged", _family(site), in_place(site, site.line.with_operands((second, first))), floats=True)


@changes(*_FUNCTIONS)
def function_dropped(site: Site) -> Iterator[Offer]:
    """The operand in the place of the result."""
    value = site.op.operands[0]
    edit = replaced_by(site, {site.op.results[0]: value})
    yield offer(site, "function dropped", _family(site), edit, "", f"{value} alone", floats=True)


@changes("math.fma")
def addend(site: Site) -> Iterator[Offer]:
    """A product without its sum, or a sum without its product."""
    first, second, third = site.op.operands
    kinds = site.line.types[:2]
    for name, values in (("arith.mulf", (first, second)), ("arith.addf", (first, third))):
        line = site.line.with_name(name).with_operands(values, kinds)
        yield offer(site, "operand dropped", _family(site), in_place(site, line), name, floats=True)


_STRICTNESS_SWAPS = {2: 3, 3: 2, 4: 5, 5: 4, 9: 10, 10: 9, 11: 12, 12: 11}
"""Predicates of arith.cmpf: false, oeq, ogt, oge, olt, ole, one, ord, ueq, ugt, uge, ult, ule, une, uno, true."""
_ORDERED_AND_NOT = {1: 8, 2: 9, 3: 10, 4: 11, 5: 12, 6: 13, 8: 1, 9: 2, 10: 3, 11: 4, 12: 5, 13: 6}


@changes("arith.cmpf")
def comparison(site: Site) -> Iterator[Offer]:
    """Equality taken in or left out, the opposite, and another answer for NaN."""
    predicate = site.op.integer("predicate")
    opposite = {7: 14, 14: 7}.get(predicate, 14 - predicate)
    ways = (
        ("comparison off by one", _STRICTNESS_SWAPS.get(predicate)),
        ("comparison inverted", opposite),
        ("comparison of NaN", _ORDERED_AND_NOT.get(predicate)),
    )
    for name, other in ways:
        if other is not None:
            yield offer(site, name, "predicate", in_place(site, site.line.with_values(predicate=f"{other} : i64")))


_NUMBER = re.compile(r"(dense<)?(-?\d\.\d+e[+-]\d+|0x[0-9A-F]+)(?:>| :)")


@changes("arith.constant")
def constant_changed(site: Site) -> Iterator[Offer]:
    """Twice the constant; one in the place of zero, zero in the place of an infinity."""
    value = site.op.attributes["value"]
    if not site.users or not is_float(site.op.result_types[0]) or not (found := _NUMBER.match(value)):
        return
    number = 0.0 if found[2].startswith("0x") else float(found[2])
    changed = "0.000000e+00" if found[2].startswith("0x") else f"{2 * number or 1.0:e}"
    line = site.line.with_values(value=value.replace(found[2], changed, 1))
    yield offer(site, "constant changed", "constant", in_place(site, line), floats=True)


# -- conversions --------------------------------------------------------------------------------------------------------
_INTEGERS = {
    "arith.sitofp": "arith.uitofp", "arith.uitofp": "arith.sitofp", "arith.fptosi": "arith.fptoui", "arith.fptoui": "arith.fptosi",
}  # fmt: skip


@changes(*_INTEGERS)
def signedness(site: Site) -> Iterator[Offer]:
    """Signed for unsigned, unsigned for signed."""
    yield offer(site, "cast exchanged", "cast", in_place(site, site.line.with_name(_INTEGERS[site.op.name])))


def _element(kind: str) -> str:
    return kind.partition(",")[0].rstrip(">").rpartition("x")[2].removeprefix("tensor<")


def _with_element(kind: str, element: str) -> str:
    """The type `kind` with other elements."""
    if not is_tensor(kind):
        return element
    head, comma, rest = kind.partition(",")
    return f"{head.rpartition('x')[0]}x{element}{comma}{rest}" if comma else f"{head.rpartition('x')[0]}x{element}>"


def _conversion_line(site: Site, result: str, operation: str, value: str, source: str, target: str) -> Line:
    return Line(site.line.indent, result, operation, (value,), "", None, None, (source,), target, site.line.end)


@changes("arith.truncf", "tt.fp_to_fp")
def narrow_cast(site: Site) -> Iterator[Offer]:
    """Toward zero for to nearest; by way of a format of fewer digits."""
    source, target = site.op.operand_types[0], site.op.result_types[0]
    if _element(source) != "f32" or not is_tensor(source):
        return
    if _element(target) != "f8E4M3FN":
        line = replace(site.line.with_name("tt.fp_to_fp"), properties={"rounding": "0 : i32"})
        yield offer(site, "rounded toward zero", "cast", in_place(site, line), floats=True)
    by = "bf16" if _element(target) != "bf16" else "f16"
    narrow = _conversion_line(site, MUTANT_VALUE, "arith.truncf", site.op.operands[0], source, _with_element(source, by))
    wide = _conversion_line(site, f"{MUTANT_VALUE}_1", "arith.extf", MUTANT_VALUE, narrow.outputs, source)
    edit = in_place(site, narrow, wide, site.line.with_operand(0, wide.results))
    yield offer(site, f"cast by way of {by}", "cast", edit, floats=True)


@changes("tt.dot", "ttng.tmem_load", "arith.extf", "math.exp", "math.exp2")
def kept_narrow(site: Site) -> Iterator[Offer]:
    """A result kept in fewer digits than it has."""
    kind = site.op.result_types[0]
    if len(site.op.results) != 1 or not is_tensor(kind) or _element(kind) != "f32" or site.op.name == "arith.extf":
        return
    result = site.op.results[0]
    own = replace(site.line, results=f"{MUTANT_VALUE}_of")
    narrow = _conversion_line(site, MUTANT_VALUE, "arith.truncf", f"{MUTANT_VALUE}_of", kind, _with_element(kind, "bf16"))
    wide = _conversion_line(site, result, "arith.extf", MUTANT_VALUE, narrow.outputs, kind)
    edit = Edit({site.op.line: (own.text, narrow.text, wide.text)})
    yield offer(site, "result kept in bf16", "cast", edit, "", f"{result} = bf16({site.op.name} ...)", floats=True)


# -- products -----------------------------------------------------------------------------------------------------------
@changes("tt.dot", "ttng.warp_group_dot")
def accumulator(site: Site) -> Iterator[Offer]:
    """A product that begins anew; one in another precision of its inputs."""
    kind = site.op.operand_types[2]
    told = site.constant(site.op.operands[2])
    zero = "0" if not is_float(kind) else "0.000000e+00"
    if told is None or not re.match(r"dense<0(\.0+e\+00)?>", told):
        yield offer(site, "accumulator begun anew", "accumulator", with_constant(site, 2, zero))
    precision = site.op.integer("inputPrecision")
    of = _element(site.op.operand_types[0].replace("!ttg.memdesc<", "tensor<"))
    if of == "f32" and "amd_mfma" in site.program.program.expand(site.op.result_types[0]):  # NVIDIA's have tf32 alone
        line = site.line.with_values(inputPrecision=f"{2 if precision == 0 else 0} : i32")
        yield offer(site, "precision of a product", "cast", in_place(site, line), floats=True)
