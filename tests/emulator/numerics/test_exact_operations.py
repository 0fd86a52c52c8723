"""Contract under test: each operation that is exact or rounded once computes on the emulated GPU what its PTX does: the same
instruction as the table says, the same rounding, subnormals kept or flushed alike, the same NaN, on each architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bitverdict.harness.emulator import emulated
from bitverdict.harness.emulator.frontend.assembly import instructions
from tests.support.drawn_sums import load
from tests.support.exact_operations import FLOATS, TABLE, TO_ODD, TYPES, Row, line_of, opcodes, rows_of, source
from tests.support.ptx_numbers import FORMS
from tests.support.ptx_threads import DeviceMemory, Threads

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
LANES, WARPS = 128, 4
NAMES = {"f32": "fp32", "f16": "fp16", "f64": "fp64"}
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def edges(t: str) -> list[int]:
    """Words of type `t` where rules part."""
    if t not in FLOATS:
        bits = int(t[1:])
        numbers = [0, 1, 2, 3, 7, bits - 1, bits, bits + 1, 100, 127]
        ties = [(0x181 << k) | low for k in range(bits - 9) for low in (0, 1)] if bits > 9 else []  # of bf16, and a hair above
        whole = [1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << bits) - 1, (1 << bits) - 2, (1 << bits) // 3]
        return [word % (1 << bits) for word in (*numbers, *whole, *ties)]
    bits, precision, _ = FORMS[t]
    one = ((1 << (bits - precision - 1)) - 1) << (precision - 1)
    infinity = ((1 << (bits - precision)) - 1) << (precision - 1)
    least = 1 << (precision - 1)
    half = least // 2
    found = [0, 1, 2, least - 1, least, least + 1, least + half, one, one + 1, one - 1, one + half, one + least + half]
    found += [infinity - 1, infinity, infinity + 1, one + 7 * least, one + 15 * least + 1]
    return [*found, *(word | 1 << (bits - 1) for word in found)]


@cache
def operands(t: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and z as words: edges with edges, and drawn ones of neighbouring magnitude."""
    generator = np.random.default_rng(len(t) + 7)
    bits = FORMS[t][0] if t in FLOATS else int(t[1:])
    special, count = np.array(edges(t), np.uint64), LANES // 2
    drawn = (
        generator.integers(0, 1 << bits, (3, LANES), dtype=np.uint64, endpoint=False)
        if bits < 64
        else (generator.integers(0, (1 << 64) - 1, (3, LANES), dtype=np.uint64, endpoint=True))
    )
    if t in FLOATS:
        _, precision, _ = FORMS[t]
        drawn = (drawn & np.uint64((1 << (precision - 1)) - 1)) | (drawn & np.uint64(1 << (bits - 1)))
        middle = (1 << (bits - precision - 1)) - 1
        drawn |= (middle + generator.integers(-3, 4, (3, LANES))).astype(np.uint64) << np.uint64(precision - 1)
    first = np.resize(special, count)
    pairs = [first, generator.permutation(np.resize(special, count)), generator.permutation(np.resize(special, count))]
    found = np.concatenate([np.stack(pairs), drawn[:, count:]], 1)  # (3, LANES)
    found[1, ::8] = found[0, ::8]
    return tuple(each.astype(WORDS[bits // 8]) for each in found)


@dataclass(frozen=True)
class Compiled:
    """The kernel of the rows of one type: what the emulated GPU made of it, and the PTX."""

    rows: list[Row]
    got: dict[str, np.ndarray]  # type -> words (rows, LANES)
    ptx: str
    arrays: list[np.ndarray]

    def by_ptx(self, text: str) -> dict[str, np.ndarray]:
        """What `text`, PTX of the kernel, leaves in the outputs."""
        results = {t: np.zeros_like(words) for t, words in self.got.items()}
        arrays = [*self.arrays, *results.values()]
        Threads(text, [a.__array_interface__["data"][0] for a in arrays], DeviceMemory(*arrays), LANES).run()
        return results


def plain(words: np.ndarray, t: str) -> np.ndarray:
    """`words` of type `t` with every NaN of fp64 the same: PTX leaves open which word that is (ISA 9.7.4)."""
    return np.where(np.isnan(words.view(np.float64)), np.uint64(0x7FF8000000000000), words) if t == "f64" else words


def tensor(words: np.ndarray, t: str) -> torch.Tensor:
    return torch.from_numpy(words.view(f"i{words.itemsize}")).view(getattr(torch, TYPES[t]))


@cache
def compiled(t: str, arch: str, folder: Path) -> Compiled:
    rows = rows_of(t)
    kernel = load(source(rows), folder, f"exact_{t}")
    outputs = sorted({row.made for row in rows})
    signature = {f"p{name}": f"*{NAMES.get(t, t)}" for name in "xyz"} | {f"out_{o}": f"*{NAMES.get(o, o)}" for o in outputs}
    program = ASTSource(kernel, signature | {"BLOCK": "constexpr"}, {(3 + len(outputs),): LANES})
    target = GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    text = triton.compile(program, target=target, options={"num_warps": WARPS, "enable_fp_fusion": True}).asm["ptx"]
    got = {o: np.zeros((len(rows), LANES), WORDS[_bytes(o)]) for o in outputs}
    with emulated(arch):
        given = [tensor(words, t) for words in operands(t)]
        made = [tensor(words, o) for o, words in got.items()]
        kernel[(1,)](*given, *made, BLOCK=LANES, num_warps=WARPS, enable_fp_fusion=True)
    return Compiled(rows, got, text, list(operands(t)))


def _bytes(t: str) -> int:
    return (FORMS[t][0] if t in FLOATS else int(t[1:])) // 8


def listed(ptx: str) -> dict[int, list[str]]:
    """Opcodes by line of the kernel's file, from 1."""
    found: dict[int, list[str]] = {}
    for each in instructions(ptx):
        found.setdefault(each.line + 1, []).append(each.opcode)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exact")


def unlike(rows: list[Row], kernel: Compiled, arch: str) -> list[str]:
    """Rows of the table that the PTX does not bear out."""
    by_line = listed(kernel.ptx)
    wrong = []
    for row, own in zip(rows, kernel.rows, strict=True):
        found = opcodes(by_line.get(line_of(kernel.rows, own), []), row, arch)
        if found != row.opcodes(arch):
            wrong.append(f"{arch}: {row}: {found}, not {row.opcodes(arch)}")
    return wrong


@pytest.mark.share(3)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("t", TYPES)
def test_each_operation_is_the_instruction_of_the_table(t, arch, folder):
    assert unlike(rows_of(t), compiled(t, arch, folder), arch) == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("t", TYPES)
def test_each_operation_has_the_words_of_its_instruction(t, arch, folder):
    kernel = compiled(t, arch, folder)
    expected = kernel.by_ptx(kernel.ptx)
    wrong = []
    for i, row in enumerate(kernel.rows):
        got, due = plain(kernel.got[row.made][i], row.made), plain(expected[row.made][i], row.made)
        if (differs := got != due).any():
            at = int(differs.argmax())
            given = [hex(int(words[at])) for words in kernel.arrays]
            wrong.append(f"{arch}: {row}: of {given} {int(got[at]):#x}, by PTX {int(due[at]):#x}, {int(differs.sum())} lanes")
    assert wrong == []


def mutants(opcode: str, given: str) -> list[str]:
    """Opcodes that `opcode` must be told from where its operands are of type `given`: another rounding, another treatment of
    subnormals or NaN, another sign, another operation. What cannot differ is left out: an integer that fits is not rounded."""
    parts = opcode.split(".")
    kind, form = parts[0], parts[-1]
    found = []
    if form in FORMS and kind in ("add", "sub", "mul", "fma", "div", "sqrt"):
        plain = [part for part in parts if part not in ("rn", "ftz")]
        found += [".".join([kind, "rz", *plain[1:]]), ".".join([kind, "rn", "ftz", *plain[1:]])]
    if kind in ("min", "max") and form in FORMS:
        kept = [part for part in parts[1:] if part != "NaN"]
        found += [".".join([kind, "ftz", *parts[1:]]), ".".join([kind, *kept] if "NaN" in parts else [kind, "NaN", *kept])]
        found += [opcode.replace(kind, "min" if kind == "max" else "max", 1)]
    if kind == "cvt" and "ftz" in parts:
        found.append(opcode.replace(".ftz", ""))
    if kind == "cvt" and {"rmi", "rpi"} & set(parts):
        found.append(opcode.replace("rmi", "r?i").replace("rpi", "rmi").replace("r?i", "rpi"))
    if kind == "cvt" and "rn" in parts and form not in FORMS and int(given[1:]) > FORMS[parts[-2]][1]:
        found.append(opcode.replace(".rn", ".rz"))
    if kind == "cvt" and "rzi" in parts:
        found.append(opcode.replace("rzi", "rni"))
    if kind == "setp":
        others = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "equ" if form in FORMS else "ne", "neu": "ne"}
        found.append(opcode.replace(parts[1], others[parts[1]], 1))
    if form[0] in "su" and form not in FORMS and given != "u8" and kind in ("div", "rem", "shr", "min", "max", "setp"):
        found.append(opcode[: -len(form)] + ("u" if form[0] == "s" else "s") + form[1:])
    if form not in FORMS and kind in ("add", "sub", "and", "or", "xor"):
        found.append({"add": "sub", "sub": "add", "and": "or", "or": "and", "xor": "or"}[kind] + opcode[len(kind) :])
    if kind in ("shl", "not", "neg", "mul") and form not in FORMS:
        swapped = {"shl": f"shr.u{form[1:]}", "not": f"neg.s{form[1:]}", "neg": f"not.b{form[1:]}", "mul": f"add.{form}"}
        found.append(swapped[kind])
    return found


def mutated(ptx: str, line: int, others: set[int], opcode: str, other: str) -> str:
    """The PTX with the first `opcode` under `line` of the kernel's file made `other`, and without floats under `others`."""
    kept, now, done = [], 0, False
    for text in ptx.splitlines():
        if place := re.match(r"\s*\.loc\s+\d+ (\d+) ", text):
            now = int(place[1])
        elif now == line and not done and re.match(rf"\s*(@\S+\s+)?{re.escape(opcode)}\s", text):
            text, done = text.replace(opcode, other, 1), True
        elif now in others and re.match(r"\s*[a-z]\S*\.b?f(16|32|64)\s", text):
            continue
        kept.append(text)
    assert done, f"no {opcode} under line {line}"
    return "\n".join(kept)


BITS_APART = ("selp.b16", "selp.b32", "or.b64", "and.b64", "setp.ne.b64", *TO_ODD)  # beside the instruction that a row is about


@pytest.mark.share(3)
@pytest.mark.parametrize("t", TYPES)
def test_the_operands_tell_each_instruction_from_its_neighbours(t, folder):
    """Another rounding, another treatment of subnormals or NaN, another sign: each mutant of the PTX leaves other words."""
    alike = []
    for i, row in enumerate(rows_of(t)):
        arch = ARCHITECTURES[i % 3]
        kernel = compiled(t, arch, folder)
        line = line_of(kernel.rows, row)
        others = {line_of(kernel.rows, each) for each in kernel.rows} - {line} if t in FLOATS else set[int]()
        for opcode in dict.fromkeys(row.opcodes(arch)):
            for other in mutants(opcode, row.given) if opcode not in BITS_APART else []:
                if row.expression == "-x" and ".rz" in other:
                    continue  # 0 - x is exact
                text = mutated(kernel.ptx, line, others, opcode, other)
                changed = plain(kernel.by_ptx(text)[row.made][i], row.made)
                if (changed == plain(kernel.got[row.made][i], row.made)).all():
                    alike.append(f"{arch}: {row}: {opcode} and {other}")
    assert alike == []


@pytest.mark.parametrize("row", [f"{row}" for row in TABLE if row.given in ("f32", "i32", "u64")])
def test_a_wrong_row_of_the_table_is_seen(row, folder):
    of = next(each for each in TABLE if f"{each}" == row)
    rows = rows_of(of.given)
    for other in [*mutants(of.ptx[0], of.given)[:2], "add.rm.f32"]:
        changed = [replace(each, ptx=(other, *of.ptx[1:])) if each is of else each for each in rows]
        assert len(unlike(changed, compiled(of.given, "sm_90", folder), "sm_90")) == 1
