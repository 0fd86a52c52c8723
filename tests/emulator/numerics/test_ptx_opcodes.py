"""Each opcode that the executor of PTX knows, on words of all kinds, against its definition in exact arithmetic."""

from __future__ import annotations

import zlib

import ml_dtypes
import numpy as np
import pytest

from bitverdict.harness.emulator.ptx.lanes import Divergence, Program
from bitverdict.harness.emulator.ptx.meanings import meaning
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, UnknownOpcode, bits
from bitverdict.harness.emulator.ptx.steps import DATA
from bitverdict.harness.emulator.ptx.text import Module, parse_body, parse_module
from bitverdict.reference.scalar_arithmetic import fp32
from tests.support import ptx_definitions

DRAWN = 160
_INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
_MODES = ("rn", "rz", "rm", "rp")


def _each(pattern: str, **parts: tuple[str, ...]) -> list[str]:
    found = [pattern]
    for name, values in parts.items():
        found = [text.replace(f"{{{name}}}", value) for text in found for value in values]
    return [text.replace("..", ".") for text in found]


INTEGER = [
    *_each("{o}.{t}", o=("add", "sub", "mul.lo", "mul.hi", "mad.lo", "div", "rem", "min", "max", "sad"), t=_INTEGERS),
    *_each("{o}.{t}", o=("add", "sub", "min", "max"), t=("u16x2", "s16x2")),
    *_each("{o}.wide.{t}", o=("mul", "mad"), t=("u16", "s16", "u32", "s32")),
    *_each("{o}.sat.s32", o=("add", "sub")), *_each("{o}.{t}", o=("neg", "abs"), t=("s16", "s32", "s64")),
    *_each("{o}.{t}", o=("and", "or", "xor", "not", "cnot", "shl"), t=("b16", "b32", "b64")), *_each("shr.{t}", t=_INTEGERS),
    *_each("shf.{d}.{w}.b32", d=("l", "r"), w=("wrap", "clamp")), *_each("{o}.{t}", o=("clz", "popc", "brev"), t=("b32", "b64")),
    *_each("{o}.{t}", o=("bfe", "bfind", "bfind.shiftamt"), t=("u32", "s32", "u64", "s64")), "bfi.b32", "bfi.b64", "prmt.b32",
    "lop3.b32", "mul24.lo.u32", "mul24.lo.s32", *_each("{o}.pred", o=("and", "or", "xor", "not")), "slct.b32.s32",
    *_each("setp.{c}.{t}", c=("eq", "ne", "lt", "le", "gt", "ge"), t=_INTEGERS), *_each("setp.{c}.u32", c=("lo", "ls", "hi", "hs")),
    *_each("selp.{t}", t=("b16", "b32", "b64", "f32", "f64")), *_each("cvt.{a}.{b}", a=_INTEGERS, b=_INTEGERS),
    *_each("cvt.sat.{a}.{b}", a=("u16", "s16", "u32", "s32"), b=_INTEGERS), *_each("cvt.{a}.{b}", a=("s32", "u32"), b=("s8", "u8")),
]  # fmt: skip
FLOAT = [
    *_each("{o}.{m}.{f}.f32", o=("add", "sub", "mul", "fma", "div", "rcp", "sqrt"), m=_MODES, f=("", "ftz")),
    *_each("{o}.{m}.f64", o=("add", "sub", "mul", "fma", "div", "rcp", "sqrt"), m=_MODES),
    *_each("{o}.{f}.{t}", o=("add", "sub", "mul"), f=("", "sat"), t=("f32",)),
    *_each("{o}.rn.{t}", o=("add", "sub", "mul", "fma"), t=("f16", "bf16", "f16x2", "bf16x2", "f32x2")),
    *_each("fma.rn.{f}.{t}", f=("ftz", "sat", "relu"), t=("f16", "f16x2")), "fma.rn.relu.bf16", "fma.rn.relu.bf16x2",
    *_each("{o}.{f}.{t}", o=("neg", "abs"), f=("",), t=("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")),
    *_each("{o}.{f}.f32", o=("neg", "abs"), f=("ftz",)), "copysign.f32", "copysign.f64",
    *_each("{o}.{f}.{t}", o=("min", "max"), f=("", "NaN"), t=("f16", "bf16", "f32", "f16x2", "bf16x2")),
    *_each("{o}.{f}.xorsign.abs.{t}", o=("min", "max"), f=("", "ftz", "NaN"), t=("f16", "f32", "f16x2")),
    *_each("{o}.xorsign.abs.{t}", o=("min", "max"), t=("bf16", "bf16x2")),
    *_each("{o}.f64", o=("min", "max")), *_each("{o}.ftz.{f}.f32", o=("min", "max"), f=("", "NaN")),
    *_each("setp.{c}.{f}.f32", c=("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"),
           f=("", "ftz")),
    *_each("setp.{c}.{t}", c=("eq", "neu", "lt", "geu"), t=("f16", "bf16", "f64")),
    *_each("testp.{p}.{t}", p=("finite", "infinite", "number", "notanumber", "normal", "subnormal"), t=("f32", "f64")),
]  # fmt: skip
CONVERSIONS = [
    *_each("cvt.{m}.{a}.{b}", m=_MODES, a=("f32", "f64"), b=("u8", "s8", *_INTEGERS)),
    *_each("cvt.rn.{a}.{b}", a=("f16",), b=_INTEGERS),
    *_each("cvt.{m}.{f}.{a}.f32", m=("rni", "rzi", "rmi", "rpi"), f=("", "ftz"), a=_INTEGERS),
    *_each("cvt.{m}.{a}.{b}", m=("rni", "rzi", "rmi", "rpi"), a=_INTEGERS, b=("f16", "f64")),
    *_each("cvt.{m}.{f}.f32.f32", m=("rni", "rzi", "rmi", "rpi"), f=("", "ftz", "sat")),
    *_each("cvt.{m}.f64.f64", m=("rni", "rzi", "rmi", "rpi")), *_each("cvt.{m}.{f}.f32.f64", m=_MODES, f=("", "ftz")),
    "cvt.f64.f32", "cvt.ftz.f64.f32", "cvt.sat.f32.f32", "cvt.ftz.sat.f32.f32", "cvt.f32.f16", "cvt.f32.bf16", "cvt.f64.f16",
    *_each("cvt.{m}.{f}.{a}.f32", m=("rn", "rz"), f=("", "relu"), a=("f16", "bf16", "f16x2", "bf16x2")),
    *_each("cvt.{m}.{a}.f64", m=("rn",), a=("f16",)),
]  # fmt: skip


def _words(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` words of a type: any bits, small numbers, edges, and floats of near exponents."""
    width = bits(kind)
    if width == 1:
        return rng.integers(0, 2, count).astype(bool)
    dtype = DTYPES[width]
    found = rng.integers(0, 1 << 63, count, dtype=np.uint64) << np.uint64(1) | rng.integers(0, 2, count, dtype=np.uint64)
    found = found >> np.uint64(64 - width)
    single = kind.removesuffix("x2")
    form = ptx_definitions.FORMS.get(single)
    edges = [0, 1, 2, 3, (1 << width) - 1, 1 << width - 1, (1 << width - 1) - 1, 31, 32, 33, 63, 64, 255]
    if form and kind == single:
        precision, top = form[1], 1 << width - 1
        bias = (1 << (width - precision - 1)) - 1
        infinity = (2 * bias + 1) << (precision - 1)
        near = found[: count // 2] & np.uint64((1 << precision - 1) - 1)
        exponent = rng.integers(bias - 2, bias + 34, count // 2).astype(np.uint64) << np.uint64(precision - 1)
        found[: count // 2] = near | exponent | (rng.integers(0, 2, count // 2).astype(np.uint64) << np.uint64(width - 1))
        low = 1 << precision - 1
        edges = [0, 1, low - 1, low, low + 1, infinity, infinity - 1, infinity + 1, infinity | low >> 1, bias << precision - 1]
        edges += [top | each for each in edges]
    elif form:
        return _words(single, count, rng).astype(dtype) | _words(single, count, rng).astype(dtype) << dtype.type(width // 2)
    elif width > 8:
        found[: count // 3] &= np.uint64(127)
    at = rng.permutation(count)[: count // 3]
    found[at] = np.array([edges[i] for i in rng.integers(0, len(edges), len(at))], np.uint64)
    return found.astype(dtype)


def _operands(opcode: str) -> list[np.ndarray]:
    rng = np.random.default_rng(zlib.crc32(opcode.encode()))
    known = meaning(opcode)
    given = [_words(kind, DRAWN, rng) for kind in known.reads]
    if opcode.startswith("lop3"):
        given[3] = given[3][:1] & np.uint32(255)
    elif opcode.startswith(("fma", "add", "sub")) and len(given[-1]) > 8 and known.reads[0] in ("f32", "f64"):
        dtype = given[0].dtype  # sums that nearly vanish, and ties
        view = np.dtype(f"f{dtype.itemsize}")
        with np.errstate(all="ignore"):
            product = given[0].view(view) * given[1].view(view) if len(given) == 3 else given[0].view(view)
        given[-1][::5] = (-product).view(dtype)[::5]
    return given


def differing(opcode: str, compute: object = None) -> list[tuple]:
    """Operands for which `compute` (or the executor) gives another word than the definition: (operands, got, expected)."""
    known = meaning(opcode)
    given = _operands(opcode)
    with np.errstate(all="ignore"):
        got = np.broadcast_to((compute or known.compute)(*given), DRAWN)  # (DRAWN,)
    assert got.dtype == DTYPES[bits(known.writes[0])], got.dtype
    found = []
    for number in range(DRAWN):
        words = [int(each[number % len(each)]) for each in given]
        want = ptx_definitions.expected(opcode, *words)
        if int(got[number]) != want and not _both_nan(known.writes[0], int(got[number]), want):
            found.append(([hex(word) for word in words], hex(int(got[number])), hex(want)))
    return found


def _both_nan(kind: str, got: int, want: int) -> bool:
    """The ISA does not say which NaN of fp64 comes."""
    return kind == "f64" and all(ptx_definitions.nan(ptx_definitions.value(word, "f64")) for word in (got, want))


@pytest.mark.parametrize("opcodes", [INTEGER, FLOAT, CONVERSIONS], ids=["integer", "float", "conversions"])
def test_every_opcode_computes_what_its_definition_says(opcodes):
    found = {opcode: wrong for opcode in opcodes if (wrong := differing(opcode))}  # operands, got, expected
    assert not found, {opcode: (len(wrong), wrong[:3]) for opcode, wrong in list(found.items())[:12]}


def _real(words: np.ndarray) -> np.ndarray:
    return words.view(np.float32)


_TOP = np.uint32(1 << 31)
WRONG = {
    "fma.rn.f32": lambda a, b, c: fp32.add(fp32.multiply(_real(a), _real(b)), _real(c)).view(np.uint32),
    "fma.rn.ftz.f32": lambda a, b, c: fp32.fma(_real(a), _real(b), _real(c)).view(np.uint32),
    "add.rm.f32": lambda a, b: fp32.add(_real(a), _real(b), "rz").view(np.uint32),
    "fma.rn.f16": lambda a, b, c: (a.view(np.float16) * b.view(np.float16) + c.view(np.float16)).view(np.uint16),
    "setp.ltu.f32": lambda a, b: _real(a) < _real(b),
    "max.xorsign.abs.f32": lambda a, b: meaning("max.f32").compute(a & ~_TOP, b & ~_TOP) | a & _TOP,
    "max.f32": lambda a, b: np.maximum(_real(a), _real(b)).view(np.uint32),
    "cvt.rzi.s32.f32": lambda a: _real(a).astype(np.int32).view(np.uint32),
    "cvt.rni.f32.f32": lambda a: np.floor(_real(a) + np.float32(0.5)).view(np.uint32),
    "cvt.rn.f32.u64": lambda a: a.view(np.int64).astype(np.float32).view(np.uint32),
    "shl.b32": lambda a, b: a << (b & np.uint32(31)),
    "shr.s32": lambda a, b: a >> np.minimum(b, np.uint32(31)),
    "shf.l.wrap.b32": lambda a, b, c: b << (c & np.uint32(31)) | a >> (np.uint32(31) - (c & np.uint32(31))),
    "mul.hi.s64": lambda a, b: meaning("mul.hi.u64").compute(a, b),
    "div.s32": lambda a, b: np.floor_divide(a.view(np.int32), np.where(b == 0, 1, b.view(np.int32))).view(np.uint32),
    "bfe.s32": lambda a, b, c: meaning("bfe.u32").compute(a, b, c),
    "clz.b64": lambda a: np.uint32(64) - np.frexp(a.astype(np.float64))[1].astype(np.uint32),
}  # what a careless executor would compute


@pytest.mark.parametrize("opcode", WRONG)
def test_a_careless_meaning_of_an_opcode_is_told_apart(opcode):
    assert differing(opcode, WRONG[opcode])


NARROW = {  # ml_dtypes' type, largest number, NaN (the formats of 4 and 6 bits have none: the largest), bits of a code's place
    "e4m3x2": (ml_dtypes.float8_e4m3fn, 448, 0x7F, 8), "e5m2x2": (ml_dtypes.float8_e5m2, 57344, 0x7F, 8),
    "e2m1x2": (ml_dtypes.float4_e2m1fn, 6, 7, 4), "e2m3x2": (ml_dtypes.float6_e2m3fn, 7.5, 0x1F, 8),
    "e3m2x2": (ml_dtypes.float6_e3m2fn, 28, 0x1F, 8),
}  # fmt: skip


@pytest.mark.parametrize("kind", NARROW)
def test_narrow_pairs_are_those_of_ml_dtypes(kind):
    dtype, largest, nan, place = NARROW[kind]
    words = _words("f32", 4000, np.random.default_rng(5))  # (4000,)
    with np.errstate(all="ignore"):
        codes = np.where(np.isnan(_real(words)), nan, np.clip(_real(words), -largest, largest).astype(dtype).view(np.uint8))
    got = meaning(f"cvt.rn.satfinite.{kind}.f32").compute(words, np.roll(words, 1))
    assert (got == (codes.astype(np.uint32) << place | np.roll(codes, 1))).all()  # the first operand is the upper half
    with np.errstate(all="ignore"):
        halves = _real(words).astype(np.float16).view(np.uint16).astype(np.uint32)  # (4000,)
        again = halves.astype(np.uint16).view(np.float16).astype(np.float32)
        codes = np.where(np.isnan(again), nan, np.clip(again, -largest, largest).astype(dtype).view(np.uint8))
    got = meaning(f"cvt.rn.satfinite.{kind}.f16x2").compute(halves << np.uint32(16) | np.roll(halves, 1))
    assert (got == (codes.astype(np.uint32) << place | np.roll(codes, 1))).all()
    every = np.arange({"e4": 256, "e5": 256}.get(kind[:2], 16 if place == 4 else 64), dtype=np.uint8)
    values = every.view(dtype).astype(np.float32)  # (codes,)
    wide = np.where(np.isnan(values), 0x7FFF, values.astype(np.float16).view(np.uint16)).astype(np.uint32)
    pairs = (every.astype(np.uint32) << place | np.roll(every, 1)).astype(np.uint16 if place == 8 else np.uint8)
    assert (meaning(f"cvt.rn.f16x2.{kind}").compute(pairs) == (wide << 16 | np.roll(wide, 1))).all()


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32_drops_thirteen_bits(mode):
    words = _words("f32", 4000, np.random.default_rng(6)).astype(np.uint64)  # (4000,)
    words = words[np.isfinite(_real(words.astype(np.uint32)))]
    more = {"rna": 0x1000, "rz": 0, "rn": 0xFFF + (words >> np.uint64(13) & np.uint64(1))}[mode]
    wanted = (words + np.uint64(1) * more & np.uint64(0xFFFFE000)).astype(np.uint32)
    assert (meaning(f"cvt.{mode}.tf32.f32").compute(words.astype(np.uint32)) == wanted).all()


def test_dots_of_bytes_have_the_signs_that_are_said():
    a, b, c = (_words("u32", 200, np.random.default_rng(i)) for i in range(3))
    for left in "us":
        for right in "us":
            parts = [each.view(np.int8 if sign == "s" else np.uint8).reshape(-1, 4) for each, sign in ((a, left), (b, right))]
            exact = (parts[0].astype(object) * parts[1].astype(object)).sum(axis=1) + c.astype(object)
            assert meaning(f"dp4a.{left}32.{right}32").compute(a, b, c).tolist() == [each % 2**32 for each in exact]


def test_carries_go_from_word_to_word():
    text = "add.cc.u32 %a, %a, %c; addc.u32 %b, %b, %d; sub.cc.u32 %e, %a, %c; subc.u32 %f, %b, %d; mad.lo.cc.u32 %g, %a, %c, %d;"
    text += "madc.hi.u32 %h, %a, %c, 0;"
    names = [f"%{letter}" for letter in "abcdefgh"]
    function = parse_body(text, dict.fromkeys(names, 32))
    rng = np.random.default_rng(1)
    given = {name: _words("u32", 400, rng) for name in names[:4]}
    frame = Program(Module(), function).frame(given, 400)
    a, b, c, d = (given[name].astype(object) for name in names[:4])
    long, other = a + (b << 32), c + (d << 32)
    total = [(x + y) % 2**64 for x, y in zip(long, other, strict=True)]
    got = {name: words.astype(object) for name, words in frame.registers.items()}
    assert (got["%a"] + (got["%b"] << 32)).tolist() == total
    assert (got["%e"] + (got["%f"] << 32)).tolist() == long.tolist()
    products = [(x % 2**32) * y + z for x, y, z in zip(total, c, d, strict=True)]
    assert (got["%g"] + (got["%h"] << 32)).tolist() == [each % 2**64 for each in products]


LENT = """
.func half(.param .b64 half_place, .param .b32 half_value)
{
    .local .align 4 .b8 own[8];
    .reg .b32 %a; .reg .b64 %place;
    ld.param.b64 %place, [half_place];
    ld.param.b32 %a, [half_value];
    st.local.b32 [own+4], %a;
    shr.u32 %a, %a, 1;
    st.b32 [%place+4], %a;
    ret;
}
.entry kernel(.param .u32 x, .param .u64 out)
{
    .local .align 4 .b8 lent[8];
    .reg .b32 %a; .reg .b64 %local; .reg .b64 %generic; .reg .b64 %out; .reg .pred %p;
    ld.param.b32 %a, [x];
    ld.param.b64 %out, [out];
    mov.b64 %local, lent;
    cvta.local.u64 %generic, %local;
    st.local.b32 [%local+4], %a;
    setp.lt.u32 %p, %a, 100;
    @%p bra DONE;
    st.param.b64 [place], %generic;
    st.param.b32 [value], %a;
    call.uni half, (place, value);
DONE:
    ld.b32 %a, [%generic+4];
    st.global.b32 [%out], %a;
    ret;
}
"""


def test_a_function_writes_local_memory_that_its_caller_lends_it():
    """Only some lanes call; each has the word that was written for it, and no other of its caller's or of the function's own."""
    module = parse_module(LENT)
    x = np.random.default_rng(2).integers(0, 200, 300).astype(np.uint32)
    program = Program(module, module.entry)
    assert (program.run_kernel([x], np.array([DATA << 8], np.uint64)) == np.where(x < 100, x, x >> 1)).all()
    nobody = parse_module(LENT.replace("[place], %generic", "[place], 4096"))
    with pytest.raises(Divergence, match="half: address 4100 is no local variable"):
        Program(nobody, nobody.entry).run_kernel([x], np.array([DATA << 8], np.uint64))


@pytest.mark.parametrize("opcode", ["fma.rn.ftz.sat.weird.f32", "vadd.s32.s32.s32", "tanh.approx.f64", "add.f8", "cvt.rn.f32",
                                    "mul.u32", "max.abs.f32", "max.xorsign.f32"])  # fmt: skip
def test_an_unknown_opcode_or_form_is_refused_by_name(opcode):
    with pytest.raises(UnknownOpcode, match=opcode.replace(".", r"\.")):
        meaning(opcode)


def _scale(value: float, rounding: str, finite: bool) -> int:
    """The code of E8M0 for the magnitude of `value`, by its powers of two alone."""
    if np.isnan(value):
        return 0xFF
    if np.isinf(value):
        return 0xFE if finite else 0xFF
    fraction, exponent = np.frexp(abs(float(value)))  # 0.5 <= fraction < 1
    power = int(exponent) - 1  # of the power of two at or below it
    if abs(float(value)) <= 2.0**-127:
        return 0
    if power < -126:  # a subnormal above 2^-127
        return int(rounding == "rp")
    code = power + 127 + (rounding == "rp" and fraction != 0.5)
    return min(code, 0xFE) if finite else min(code, 0xFF)


@pytest.mark.parametrize("finite", ["", ".satfinite"])
@pytest.mark.parametrize("rounding", ["rz", "rp"])
def test_scales_of_two_numbers_are_the_powers_of_two_beside_them(rounding, finite):
    """Every bf16 word, and of fp32 every exponent with the mantissas beside a power of two."""
    every = np.arange(1 << 16, dtype=np.uint32)
    values = (every << np.uint32(16)).view(np.float32)
    codes = np.array([_scale(value, rounding, bool(finite)) for value in values], np.uint16)
    pairs = every | np.roll(every, 1) << np.uint32(16)
    got = meaning(f"cvt.{rounding}{finite}.ue8m0x2.bf16x2").compute(pairs)
    assert (got == (codes | np.roll(codes, 1) << np.uint16(8))).all()  # the upper half is the upper byte
    mantissas = np.array([0, 1, 2, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFE, 0x7FFFFF], np.uint32)
    words = (np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23) | mantissas).ravel()  # (4096,)
    codes = np.array([_scale(value, rounding, bool(finite)) for value in words.view(np.float32)], np.uint16)
    got = meaning(f"cvt.{rounding}{finite}.ue8m0x2.f32").compute(words, np.roll(words, 1))
    assert (got == (codes << np.uint16(8) | np.roll(codes, 1))).all()  # the first operand is the upper byte


@pytest.mark.parametrize("careless", [
    lambda a: a >> 23 & 0xFF,  # towards zero
    lambda a: (a + 0x7FFFFF) >> 23 & 0xFF,  # infinity, NaN and what is beyond 2^127 run over
    lambda a: np.minimum((a & 0x7FFFFFFF) + 0x7FFFFF >> 23, 0xFE),  # subnormals at or below 2^-127 are 1
])  # fmt: skip
def test_a_careless_scale_is_told_apart(careless):
    words = np.array([0x00000001, 0x00400000, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0xBF800000], np.uint32)
    codes = [_scale(value, "rp", True) for value in words.view(np.float32)]
    assert codes == [0, 0, 128, 254, 254, 255, 127]
    assert [int(each) for each in careless(words.astype(np.int64))] != codes


def test_a_scale_without_its_rounding_is_refused():
    with pytest.raises(UnknownOpcode, match=r"cvt\.satfinite\.ue8m0x2\.f32"):
        meaning("cvt.satfinite.ue8m0x2.f32")
