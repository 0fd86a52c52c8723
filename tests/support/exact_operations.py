"""The operations whose result is exact or rounded once, and the PTX that each becomes: one row an operation and type.

A kernel of a type has one line for each row of it: loads of its own, the operation, a store. So the instructions of a row are those
under its line in the PTX, those apart that only widen (`WIDENING`). `ptx` is what the Triton that is installed makes on sm_90 and
sm_100, `before` on sm_80 where that differs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bitverdict.harness.emulator.releases import installed_release

RELEASE = installed_release()
FLOATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"}
INTEGERS = {f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}" for sign in "iu" for bits in (8, 16, 32, 64)}
TYPES = FLOATS | INTEGERS
WIDENING = ("cvt.s16.s8", "cvt.u32.u16", "cvt.u32.u64", "cvt.u64.u32", "and.b16", "and.b32")
TO_ODD = ("cvt.f64.f32", "abs.f64", "setp.gt.f64", "selp.b32", "add.s32", "setp.ne.b32", "selp.b32", "setp.equ.f64", "selp.b32")
"""What makes of a float64 that was rounded to fp32 one that was rounded to odd."""
NO_ARITHMETIC = ("st.", "ld.", "mov.", "bra")


@dataclass(frozen=True)
class Row:
    """`expression` on x, y and z of type `given`, stored as `made`."""

    expression: str
    given: str
    made: str
    ptx: tuple[str, ...]
    before: tuple[str, ...] | None = None

    def opcodes(self, arch: str) -> tuple[str, ...]:
        return self.before if arch == "sm_80" and self.before is not None else self.ptx

    def __str__(self) -> str:
        return f"{self.expression} on {self.given}"


def floats() -> list[Row]:
    rows = []
    for t in ("f32", "f16", "bf16", "f64"):
        fma = ("fma.rn.bf16",) if t == "bf16" else None
        bits = {"f32": "b32", "f64": "b64"}.get(t, "b16")
        rows += [
            Row("x + y", t, t, (f"add.{t}",), fma),
            Row("x - y", t, t, (f"sub.{t}",), fma),
            Row("x * y", t, t, (f"mul.{t}",), fma),
            Row("-x", t, t, (f"sub.{t}",), fma) if RELEASE.negates_by_subtraction else Row("-x", t, t, (f"xor.{bits}",)),
            Row("tl.abs(x)", t, t, (f"and.{bits}",)),
        ]
    rows += [
        Row("tl.fma(x, y, z)", "f64", "f64", ("fma.rn.f64",)),
        Row("tl.maximum(x, y)", "f64", "f64", ("max.f64",)),
        Row("tl.minimum(x, y)", "f64", "f64", ("min.f64",)),
        Row("tl.clamp(x, y, z)", "f64", "f64", ("max.f64", "min.f64")),
        Row("x / y", "f64", "f64", ("div.rn.f64",)),
        Row("tl.sqrt(x)", "f64", "f64", ("sqrt.rn.f64",)),
        Row("tl.floor(x)", "f64", "f64", ("cvt.rmi.f64.f64",)),
        Row("tl.ceil(x)", "f64", "f64", ("cvt.rpi.f64.f64",)),
        Row("x < y", "f64", "i8", ("setp.lt.f64", "selp.b16")),
        Row("x != y", "f64", "i8", ("setp.neu.f64", "selp.b16")),
    ]
    for t in ("f32", "f16", "bf16"):
        kept = ", propagate_nan=tl.PropagateNan.ALL"
        rows += [
            Row("tl.fma(x, y, z)", t, t, (f"fma.rn.{t}",)),
            Row("tl.maximum(x, y)", t, t, (f"max.{t}",)),
            Row("tl.minimum(x, y)", t, t, (f"min.{t}",)),
            Row(f"tl.maximum(x, y{kept})", t, t, (f"max.NaN.{t}",)),
            Row(f"tl.minimum(x, y{kept})", t, t, (f"min.NaN.{t}",)),
            Row("tl.clamp(x, y, z)", t, t, (f"max.{t}", f"min.{t}")),
            Row(f"tl.clamp(x, y, z{kept})", t, t, (f"max.NaN.{t}", f"min.NaN.{t}")),
        ]
        widened = ("cvt.f32.bf16", "cvt.f32.bf16") if t == "bf16" else ()
        for sign, name in {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "neu"}.items():
            compared = (*widened, f"setp.{name}.f32", "selp.b16") if widened else None
            rows.append(Row(f"x {sign} y", t, "i8", (f"setp.{name}.{t}", "selp.b16"), compared))
    rows += [
        Row("tl.div_rn(x, y)", "f32", "f32", ("div.rn.f32",)),
        Row("tl.sqrt_rn(x)", "f32", "f32", ("sqrt.rn.f32",)),
        Row("tl.floor(x)", "f32", "f32", ("cvt.rmi.ftz.f32.f32",)),
        Row("tl.ceil(x)", "f32", "f32", ("cvt.rpi.ftz.f32.f32",)),
        Row("tl.where(x > y, x, z)", "f32", "f32", ("setp.gt.f32", "selp.b32")),
    ]
    return rows


def conversions() -> list[Row]:
    """Between integers and floats, and with fp64. A float becomes 8 bits through 16; below sm_90 a bf16 goes through fp32 on either
    way, and fp64 through fp32 rounded to odd."""
    rows = [
        Row("x.to(tl.float32)", "f64", "f32", ("cvt.rn.f32.f64",)),
        Row("x.to(tl.float16)", "f64", "f16", ("cvt.rn.f16.f64",)),
        Row("x.to(tl.bfloat16)", "f64", "bf16", ("cvt.rn.bf16.f64",), ("abs.f64", "cvt.rn.f32.f64", *TO_ODD, "cvt.rn.bf16.f32")),
        Row("x.to(tl.float16, fp_downcast_rounding='rtz')", "f32", "f16", ("cvt.rz.f16.f32",)),
        Row("x.to(tl.bfloat16, fp_downcast_rounding='rtz')", "f32", "bf16", ("cvt.rz.bf16.f32",)),
        Row("x.to(tl.float64)", "f32", "f64", ("cvt.f64.f32",)),
        Row("x.to(tl.float64)", "f16", "f64", ("cvt.f64.f16",)),
        Row("x.to(tl.float64)", "bf16", "f64", ("cvt.f64.bf16",), ("cvt.f32.bf16", "cvt.f64.f32")),
    ]
    for integer, name in INTEGERS.items():
        bits, sign = int(integer[1:]), "s" if integer[0] == "i" else "u"
        wide = max(bits, 16)
        for t in ("f32", "f16", "bf16"):
            through = (f"cvt.rn.f32.{sign}{wide}", "cvt.rn.bf16.f32") if t == "bf16" else None
            rows.append(Row(f"x.to(tl.{FLOATS[t]})", integer, t, (f"cvt.rn.{t}.{sign}{wide}",), through))
            through = ("cvt.f32.bf16", f"cvt.rzi.{sign}{wide}.f32") if t == "bf16" else None
            rows.append(Row(f"x.to(tl.{name})", t, integer, (f"cvt.rzi.{sign}{wide}.{t}",), through))
        rows.append(Row("x.to(tl.float64)", integer, "f64", (f"cvt.rn.f64.{sign}{wide}",)))
        rows.append(Row(f"x.to(tl.{name})", "f64", integer, (f"cvt.rzi.{sign}{wide}.f64",)))
    return rows


def integers() -> list[Row]:
    rows = []
    for t in INTEGERS:
        bits, sign = int(t[1:]), "s" if t[0] == "i" else "u"
        wide = max(bits, 16)
        rows += [
            Row("x + y", t, t, (f"add.s{wide}",)),
            Row("x - y", t, t, (f"sub.s{wide}",)),
            Row("x * y", t, t, (f"mul.lo.s{wide}",)),
            Row("x & y", t, t, (f"and.b{wide}",)),
            Row("x | y", t, t, (f"or.b{wide}",)),
            Row("x ^ y", t, t, (f"xor.b{wide}",)),
            Row("x << y", t, t, (f"shl.b{wide}",)),
            Row("x >> y", t, t, (f"shr.{sign}{wide}",)),
            Row("-x", t, t, (f"neg.s{wide}",)),
            Row("~x", t, t, (f"not.b{wide}",)),
            Row("tl.minimum(x, y)", t, t, (f"min.{sign}{wide}",)),
            Row("tl.maximum(x, y)", t, t, (f"max.{sign}{wide}",)),
            Row("x < y", t, "i8", (f"setp.lt.{sign}{wide}", "selp.b16")),
            Row("x == y", t, "i8", (f"setp.eq.b{wide}", "selp.b16")),
        ]
        if t in ("u32", "u64"):
            rows.append(Row("tl.umulhi(x, y)", t, t, (f"mul.hi.{t}",)))
        if sign == "s":
            rows.append(
                Row(
                    "tl.abs(x)",
                    t,
                    t,
                    (f"abs.s{wide}",) if bits == 8 or RELEASE.has_integer_abs else (f"neg.s{wide}", f"max.s{wide}"),
                )
            )
        for expression, name in {"x // (y | 1)": "div", "x % (y | 1)": "rem"}.items():  # 64 bits: 32 where they suffice
            split = ("or.b64", "and.b64", "setp.ne.b64", f"{name}.{sign}64", f"{name}.u32")
            rows.append(Row(expression, t, t, (f"or.b{wide}", *(split if bits == 64 else (f"{name}.{sign}{wide}",)))))
    return rows


TABLE = [*floats(), *conversions(), *integers()]


def rows_of(given: str) -> list[Row]:
    return [row for row in TABLE if row.given == given]


def source(rows: list[Row]) -> str:
    """The kernel of `rows`, which are of one type. Row i stores its results as row i of the output of its type."""
    outputs = sorted({row.made for row in rows})
    lines = [
        "import triton",
        "import triton.language as tl",
        "",
        "",
        "@triton.jit",
        f"def kernel(px, py, pz, {', '.join(f'out_{t}' for t in outputs)}, BLOCK: tl.constexpr):",
        "    at = tl.arange(0, BLOCK)",
        "    px, py, pz = px + at, py + at, pz + at",
    ]
    for i, row in enumerate(rows):
        lines.append(f"    to_{i} = out_{row.made} + {i} * BLOCK + at")
        lines += [f"    {name}_{i} = tl.load(p{name})" for name in "xyz" if re.search(rf"\b{name}\b", row.expression)]
        lines += [f"    tl.store(to_{i}, {_numbered(row.expression, i)})"]
    return "\n".join(lines) + "\n"


def line_of(rows: list[Row], row: Row) -> int:
    """The line of the kernel's file where `row` is computed, from 1."""
    return next(n for n, line in enumerate(source(rows).splitlines(), 1) if f"tl.store(to_{rows.index(row)}," in line)


def opcodes(listed: list[str], row: Row, arch: str) -> tuple[str, ...]:
    """Of the opcodes `listed` under the line of `row`, those that say how it computes."""
    kept = [opcode for opcode in listed if not opcode.startswith(NO_ARITHMETIC)]
    return tuple(opcode for opcode in kept if opcode not in WIDENING or opcode in row.opcodes(arch))


def _numbered(expression: str, number: int) -> str:
    return re.sub(r"\b([xyz])\b", rf"\1_{number}", expression)
