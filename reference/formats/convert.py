"""One format to another, as a kernel's conversion does it on a target.

A conversion is the chain of instructions that Triton emits for `x.to(dtype)` on that architecture, read in the PTX it compiles
(`tests/reference_checks/test_convert_compiled.py` reads it again, and executes it), each instruction doing what the PTX ISA says
of `cvt` (section "Data Movement and Conversion Instructions: cvt"). `through_fp16` is how Triton 3.8 and earlier do it: below
sm_90 fp32 becomes fp8 through fp16, which is cut toward zero, so that it is rounded twice; below sm_89 integer operations make
e5m2, with ties away from zero; fp16 and bf16 become each other through fp32.

- `.rn` rounds to nearest even; an overflow is infinite; a NaN becomes the canonical one, 0x7FFF for fp16 and bf16.
- `.satfinite` gives the largest finite value for an overflow and for an infinity, 0x7F for a NaN, in e4m3 and e5m2 alike.
- A float becomes an integer toward zero, held inside the range of the integer *named in the instruction*, NaN to 0. An 8-bit
  integer is made through a 16-bit one and loses the upper byte: 300.0 to int8 is 44.
- bf16 to fp32 moves the bits up (`IMAD.U32 .. 0x10000` in the machine code), so a NaN keeps its payload; so does e5m2 to fp16
  before sm_89.
- e5m2 to bf16 is a rebias by a multiplication with 2^112, which knows neither infinity nor NaN: 0x7C becomes 65536, 0x7E 98304.

The e2m1, e2m3 and e3m2 conversions (sm_100) are PTX's alone: Triton emits none for `x.to(dtype)`. Without hardware words so far,
resting on documents: the NaN of fp16 to fp32 (`HADD2.F32`; taken as 0x7FFFFFFF), and NaN of a float to an integer (PTX ISA: 0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from bitverdict.reference.formats.decode import decode
from bitverdict.reference.formats.encode import encode
from bitverdict.reference.formats.number_formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, FP16, FP32
from bitverdict.reference.formats.record import Format, Overflow, Rounding

_FORMATS = {fmt.name: fmt for fmt in (E2M1, E2M3, E3M2, E4M3, E5M2, FP16, BF16, FP32)}
INTEGERS: dict[str, type[np.integer]] = {
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
}


@dataclass(frozen=True)
class Step:
    """One instruction of a conversion: PTX's name of it, and its rule on codes."""

    source: str
    destination: str
    instruction: str
    rule: Callable[[str, str, np.ndarray], np.ndarray]

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        return self.rule(self.source, self.destination, codes)


def convert(
    source: Format | str, destination: Format | str, codes: np.ndarray, arch: str, *, through_fp16: bool = False
) -> np.ndarray:
    """`codes` of `source` (any shape) as `arch` ("sm_90") converts them to `destination`, same shape.

    Formats by record or name; besides them "int8", "uint8" and "int32", whose codes are arrays of that dtype. Raises ValueError for
    a conversion that the target or the compiler does not have.
    """
    origin, goal = _name(source), _name(destination)
    codes = np.asarray(codes)  # (...)
    expected = INTEGERS[origin] if origin in INTEGERS else _FORMATS[origin].storage
    if codes.dtype != expected:
        raise ValueError(f"codes of {origin} are {np.dtype(expected).name}, got {codes.dtype}")
    if origin == goal:
        return codes.copy()
    if codes.dtype.itemsize <= 2:
        table = _table(origin, goal, arch, through_fp16)
        result: np.ndarray = table[codes.astype(np.intp) & (table.size - 1)]  # (...)
        return result
    return _run(conversion(origin, goal, arch, through_fp16=through_fp16), codes)


def conversion(source: Format | str, destination: Format | str, arch: str, *, through_fp16: bool = False) -> tuple[Step, ...]:
    """The instructions from `source` to `destination` on `arch`, in order; ValueError with the reason where there are none."""
    origin, goal = _name(source), _name(destination)
    if arch.startswith("gfx"):
        return _on_amd(origin, goal, arch)
    sm = _number(arch)
    if "e4m3" in (origin, goal) and sm < 89:
        raise ValueError(f"{arch} has no e4m3 (Triton refuses fp8e4nv there); it exists from sm_89 on")
    steps = _from_integer(origin, goal, sm, through_fp16) if origin in INTEGERS else _from_float(origin, goal, sm, through_fp16)
    if not steps:
        raise ValueError(f"{arch} has no conversion from {origin} to {goal} in Triton or PTX: try two, through fp32")
    return steps


FP8_BY_INTEGERS = ("gfx90a", "gfx942")
"""AMD's chips without instructions for OCP's fp8: Triton writes integer operations, whose words tests/emulator/test_amd_fp8.py
reads in LLVM IR. fp16 to e4m3 is not among them: there Triton 3.9.0 makes a NaN of numbers between 464 and 480. What gfx950's
`v_cvt_scalef32_pk_fp8_f32` does past the largest number hangs on a mode, of which no public model tells."""


def _on_amd(source: str, destination: str, arch: str) -> tuple[Step, ...]:
    """The steps on ``gfxNNN`` (AMD's CDNA3 ISA, "VOP1 instructions"; LLVM rounds to bf16 once where there is no instruction). Which
    NaN comes out is open: a payload is kept there."""
    match source, destination:
        case "fp32", "fp16":
            return (Step(source, destination, "v_cvt_f16_f32", round_infinite),)
        case "fp32", "bf16":
            return (Step(source, destination, "v_cvt_pk_bf16_f32", round_infinite),)
        case "fp16", "fp32":
            return (Step(source, destination, "v_cvt_f32_f16", round_infinite),)
        case "bf16", "fp32":
            return (Step(source, destination, "v_lshlrev_b32", moved_up),)
        case ("fp16", "bf16") | ("bf16", "fp16"):
            return _on_amd(source, "fp32", arch) + _on_amd("fp32", destination, arch)
        case (("fp32" | "bf16"), "e4m3") | (("fp32" | "fp16" | "bf16"), "e5m2") if arch in FP8_BY_INTEGERS:
            return (Step(source, destination, "integer operations", saturated_by_integers),)
        case "e4m3", ("fp32" | "fp16") if arch in FP8_BY_INTEGERS:
            return (Step(source, destination, "integer operations", round_infinite),)
        case "e4m3", "bf16" if arch in FP8_BY_INTEGERS:
            return (Step(source, destination, "integer operations", rescale_e4m3),)
    raise ValueError(f"{arch}: what Triton 3.9 makes of a conversion from {source} to {destination} is not known here: try fp32")


def _from_float(source: str, destination: str, sm: int, through_fp16: bool) -> tuple[Step, ...]:
    fp8_instructions, bf16_instructions = sm >= 89, sm >= 90
    if destination in INTEGERS:
        return _to_integer(source, destination, bf16_instructions)
    match source, destination:
        case "fp32", "fp16" | "bf16":
            return (Step(source, destination, f"cvt.rn.{_ptx(destination)}.f32", round_infinite),)
        case "fp16", "fp32":
            return (Step(source, destination, "cvt.f32.f16", round_infinite),)
        case "bf16", "fp32":
            return (Step(source, destination, "cvt.f32.bf16", moved_up),)
        case ("fp16", "bf16") | ("bf16", "fp16"):
            if bf16_instructions and not through_fp16:
                return (Step(source, destination, f"cvt.rn.{_ptx(destination)}.{_ptx(source)}", round_infinite),)
            return _chain((source, "fp32", destination), sm, through_fp16)
        case "fp32", ("e4m3" | "e5m2") if not bf16_instructions and through_fp16:
            return (Step(source, "fp16", "cvt.rz.f16.f32", cut_to_fp16), *_from_float("fp16", destination, sm, through_fp16))
        case "fp16", "e5m2" if not fp8_instructions and through_fp16:
            return (Step(source, destination, "add.u32", rounded_by_integers),)
        case "bf16", "e5m2" if not fp8_instructions and through_fp16:
            return (Step(source, destination, "sub.u32", rebiased_by_integers),)
        case "fp32" | "fp16", ("e4m3" | "e5m2"):
            if fp8_instructions:
                packed = "f16x2" if source == "fp16" else "f32"
                return (Step(source, destination, f"cvt.rn.satfinite.{destination}x2.{packed}", round_saturating),)
            # Rounded to odd at 8 bits, cut to fp16, then rounded on the fp16 word: right once.
            first, rule = ("cvt.rz.f16x2.f32", round_saturating) if source == "fp32" else ("min.f16x2", saturated_keeping_nan_sign)
            return (Step(source, destination, first, rule),)
        case "bf16", ("e4m3" | "e5m2"):
            if sm >= 100 and not through_fp16:
                return (Step(source, destination, f"cvt.rn.satfinite.{destination}x2.bf16x2", round_saturating),)
            if fp8_instructions and through_fp16:
                return (*_from_float(source, "fp32", sm, through_fp16), *_from_float("fp32", destination, sm, False))
            return _chain((source, "fp32" if fp8_instructions else "fp16", destination), sm, through_fp16)
        case "e5m2", "bf16":
            return (Step(source, destination, "mul.rn.bf16x2" if bf16_instructions else "mul.f32", rebias_e5m2),)
        case "e4m3", "bf16":
            if sm >= 100 and not through_fp16:
                return (Step(source, destination, "cvt.rn.bf16x2.e4m3x2", round_infinite),)
            if bf16_instructions:
                return (*_from_float(source, "fp16", sm, through_fp16), Step("fp16", "bf16", "cvt.bf16.f16", round_infinite))
            return _chain((source, "fp16", "fp32", destination), sm, through_fp16)
        case (("e4m3" | "e5m2"), "fp16"):
            if fp8_instructions:
                return (Step(source, destination, f"cvt.rn.f16x2.{source}x2", round_infinite),)
            return (Step(source, destination, "prmt.b32", moved_up),)
        case (("e4m3" | "e5m2"), "fp32"):
            return _chain((source, "fp16", "fp32"), sm, through_fp16)
        case "fp32", ("e2m1" | "e2m3" | "e3m2") if sm >= 100:
            return (Step(source, destination, f"cvt.rn.satfinite.{destination}x2.f32", round_saturating),)
        case (("e2m1" | "e2m3" | "e3m2"), "fp16") if sm >= 100:
            return (Step(source, destination, f"cvt.rn.f16x2.{source}x2", round_infinite),)
    return ()


def _to_integer(source: str, destination: str, bf16_instructions: bool) -> tuple[Step, ...]:
    if source not in ("fp32", "fp16", "bf16") or destination not in ("int8", "uint8", "int32"):
        return ()
    if source == "bf16" and not bf16_instructions:
        return (Step("bf16", "fp32", "cvt.f32.bf16", moved_up), *_to_integer("fp32", destination, bf16_instructions))
    wide = {"int8": "int16", "uint8": "uint16"}.get(destination, destination)
    first = Step(source, wide, f"cvt.rzi.{_ptx(wide)}.{_ptx(source)}", truncated_into_range)
    return (first,) if wide == destination else (first, Step(wide, destination, "st.global", low_bits))


def _from_integer(source: str, destination: str, sm: int, through_fp16: bool) -> tuple[Step, ...]:
    match source, destination:
        case (("int8" | "uint8" | "int32"), ("fp32" | "fp16" | "bf16")):
            if destination == "bf16" and sm < 90 and source != "int8":
                # two roundings
                return _from_integer(source, "fp32", sm, through_fp16) + _from_float("fp32", "bf16", sm, through_fp16)
            if destination == "bf16" and source == "int8":
                return (Step(source, destination, "cvt.rn.f32.s8" if sm < 90 else "sub.bf16x2", rounded_integer),)  # exact
            register = {"int8": "s16", "uint8": "u16", "int32": "s32"}[source]
            return (Step(source, destination, f"cvt.rn.{_ptx(destination)}.{register}", rounded_integer),)
        case (("int8" | "uint8"), "int32"):
            return (Step(source, destination, "cvt.s32.s8" if source == "int8" else "cvt.u32.u16", low_bits),)
        case (("int32" | "uint8" | "int8"), ("int8" | "uint8")):
            return (Step(source, destination, "cvt.u16.u32" if source == "int32" else "st.global", low_bits),)
    return ()


def _chain(names: tuple[str, ...], sm: int, through_fp16: bool) -> tuple[Step, ...]:
    return tuple(step for pair in pairwise(names) for step in _from_float(*pair, sm, through_fp16))


# The rules: from codes to codes.


def round_infinite(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """Nearest even; overflow infinite; NaN canonical. Widening is the case that never rounds."""
    return encode(_FORMATS[destination], _values(source, codes))


def round_saturating(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """Nearest even; overflow and infinity to the largest finite value; NaN canonical, or the largest where there is none."""
    return encode(_FORMATS[destination], _values(source, codes), overflow=Overflow.SATURATE)


def saturated_keeping_nan_sign(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """As a conversion that saturates, the sign carried over by itself, for a NaN too: the fp16 to e5m2 that Triton writes out
    before sm_89."""
    sign = (codes >> (_FORMATS[source].width - _FORMATS[destination].width)) & _FORMATS[destination].sign_bit  # (...)
    return round_saturating(source, destination, codes) | sign.astype(_FORMATS[destination].storage)


def cut_to_fp16(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """Toward zero: nothing but an infinity becomes one; NaN canonical."""
    return encode(_FORMATS[destination], _values(source, codes), rounding=Rounding.TOWARD_ZERO)


def rounded_by_integers(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """fp16's upper byte after half of its last bit was added: ties away from zero, past the range to infinity, and a NaN by its
    bits: the canonical one becomes -0."""
    result: np.ndarray = (((codes & 0xFFFE).astype(np.uint32) + 0x80) >> 8).astype(np.uint8)
    return result


def rebiased_by_integers(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """bf16's exponent and mantissa as an integer, held between the least and the largest of e5m2, rounded with ties away."""
    magnitude = np.clip(codes & 0x7FFF, 0x3800, 0x57E0).astype(np.uint32)  # (...)
    result: np.ndarray = (((magnitude + 0x10 - 0x3800) << 3) >> 8 & 0xFF | (codes >> 8) & 0x80).astype(np.uint8)
    return result


def saturated_by_integers(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """As `saturated_keeping_nan_sign`; a NaN is 0x7E in e5m2."""
    found = saturated_keeping_nan_sign(source, destination, codes)
    return found if destination == "e4m3" else found - ((found & 0x7F) == 0x7F)


def moved_up(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """The bits, higher up in a longer word: exact, and a NaN keeps its sign and payload."""
    storage = _FORMATS[destination].storage
    result: np.ndarray = codes.astype(storage) << storage(_FORMATS[destination].width - _FORMATS[source].width)
    return result


def rebias_e5m2(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """e5m2 read with bf16's bias and multiplied by 2^112: the largest exponent comes out as an ordinary one."""
    magnitude = (codes & 0x7F).astype(np.uint16) << 5  # (...) an e5m2 exponent in bf16's place, 112 too low
    sign = (codes & 0x80).astype(np.uint16) << 8  # (...)
    result: np.ndarray = encode(_FORMATS[destination], decode(_FORMATS[destination], magnitude) * 2.0**112) | sign
    return result


def rescale_e4m3(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """e4m3 read with a longer exponent's bias and multiplied by a power of two: what is a NaN comes out as 480."""
    magnitude = codes & 0x7F  # (...)
    values = np.where(magnitude == 0x7F, 480.0, decode(_FORMATS[source], np.minimum(magnitude, 0x7E)))  # (...)
    result: np.ndarray = encode(_FORMATS[destination], values) | (codes & 0x80).astype(np.uint16) << 8
    return result


def truncated_into_range(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """Toward zero, then the nearest end of the integer's range; NaN becomes 0."""
    values = np.nan_to_num(np.trunc(decode(_FORMATS[source], codes)), nan=0.0, posinf=np.inf, neginf=-np.inf)  # (...)
    ends = np.iinfo(INTEGERS[destination])
    result: np.ndarray = np.clip(values, ends.min, ends.max).astype(INTEGERS[destination])
    return result


def rounded_integer(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """An integer to the nearest float, ties to even; past the range to infinity."""
    return encode(_FORMATS[destination], codes)


def low_bits(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """The low bits of an integer, or its extension by its own sign."""
    return codes.astype(INTEGERS[destination])


def _values(source: str, codes: np.ndarray) -> np.ndarray:
    return codes.view(np.float32) if source == "fp32" else decode(_FORMATS[source], codes)  # (...) float32 takes the fast paths


def _run(steps: tuple[Step, ...], codes: np.ndarray) -> np.ndarray:
    for step in steps:
        codes = step(codes)
    return codes


@cache
def _table(source: str, destination: str, arch: str, through_fp16: bool) -> np.ndarray:
    """What each code of a source of at most 16 bits becomes, by its bits; read-only."""
    if source in INTEGERS:
        codes = np.arange(1 << (8 * np.dtype(INTEGERS[source]).itemsize)).astype(INTEGERS[source])  # (codes,)
    else:
        codes = np.arange(1 << _FORMATS[source].width).astype(_FORMATS[source].storage)  # (codes,)
    table = _run(conversion(source, destination, arch, through_fp16=through_fp16), codes)  # (codes,)
    table.flags.writeable = False
    return table


def _name(fmt: Format | str) -> str:
    name = fmt.name if isinstance(fmt, Format) else fmt
    if name not in _FORMATS and name not in INTEGERS:
        hint = "cvt.rna.tf32 is encode with NEAREST_AWAY, the tensor core's own cut TOWARD_ZERO; " if name == "tf32" else ""
        raise ValueError(f"no conversion instruction is known for {name!r}: {hint}there are {', '.join((*_FORMATS, *INTEGERS))}")
    return name


def _number(arch: str) -> int:
    digits = arch.removeprefix("sm_").rstrip("af")
    if not arch.startswith("sm_") or not digits.isdigit() or int(digits) < 80:
        raise ValueError(f"{arch!r} is no architecture known here: give sm_80 or later, as in 'sm_90'")
    return int(digits)


def _ptx(name: str) -> str:
    """PTX's name of a type."""
    return {"fp32": "f32", "fp16": "f16", "bf16": "bf16", "int16": "s16", "uint16": "u16", "int32": "s32"}[name]
