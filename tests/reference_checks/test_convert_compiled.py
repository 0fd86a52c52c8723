"""Contract under test: the instructions that `conversion` names are those that Triton's compiler emits for the target, in PTX.

A kernel of one cast is compiled offline for each pair and architecture; what Triton refuses must be refused here too.
"""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import numpy as np
import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bitverdict.harness.model.triton_release import converts_through_fp16
from bitverdict.reference.formats import FORMATS, conversion, convert
from tests.support.ptx_threads import DeviceMemory, Threads

THROUGH_FP16 = converts_through_fp16()

TYPES = {
    "fp32": ("fp32", tl.float32),
    "fp16": ("fp16", tl.float16),
    "bf16": ("bf16", tl.bfloat16),
    "e4m3": ("fp8e4nv", tl.float8e4nv),
    "e5m2": ("fp8e5", tl.float8e5),
    "int8": ("i8", tl.int8),
    "uint8": ("u8", tl.uint8),
    "int32": ("i32", tl.int32),
}
FLOATS = ("fp32", "fp16", "bf16", "e4m3", "e5m2")
PAIRS = [(a, b) for a in FLOATS for b in FLOATS if a != b]
PAIRS += [(a, b) for a in ("fp32", "bf16") for b in ("int8", "uint8", "int32")]
PAIRS += [(a, b) for a in ("int8", "uint8", "int32") for b in ("fp32", "bf16")]
PAIRS += [("int32", "fp16"), ("int8", "int32"), ("int32", "int8")]


@triton.jit
def cast(source, destination, TYPE: tl.constexpr):
    offsets = tl.arange(0, 512)
    tl.store(destination + offsets, tl.load(source + offsets).to(TYPE))


def ptx_of(pairs: list[tuple[str, str]], arch: str) -> list[str | None]:
    """The PTX of each cast; None where Triton refuses."""
    target = GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    found: list[str | None] = []
    for source, destination in pairs:
        signature = {"source": "*" + TYPES[source][0], "destination": "*" + TYPES[destination][0], "TYPE": "constexpr"}
        program = ASTSource(cast, signature, {(2,): TYPES[destination][1]})
        try:
            found.append(triton.compile(program, target=target).asm["ptx"])
        except (triton.CompilationError, RuntimeError):
            found.append(None)
    return found


@cache
def programs(arch: str) -> dict[tuple[str, str], str | None]:
    """The PTX of all casts, from a process of its own: Triton 3.6 converts e5m2 as the first architecture of a process does."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return dict(zip(PAIRS, pool.submit(ptx_of, PAIRS, arch).result(), strict=True))


def opcodes_of(text: str | None) -> list[str] | None:
    """Opcodes in order, without address arithmetic."""
    if text is None:
        return None
    return [match.group(1) for match in re.finditer(r"^\s*(?:@\S+\s+)?([a-z][\w.:]+)\s", text, re.MULTILINE)]


def disagreements(pairs: list[tuple[str, str]], arch: str, named_for: str) -> list[tuple]:
    """Where the program compiled for `arch` and the chain named for `named_for` part."""
    wrong: list[tuple] = []
    for source, destination in pairs:
        opcodes = opcodes_of(programs(arch)[source, destination])
        try:
            named = [step.instruction for step in conversion(source, destination, named_for, through_fp16=THROUGH_FP16)]
        except ValueError:
            named = None
        if opcodes is None or named is None:
            if opcodes is not named:
                wrong.append((source, destination, "refused by one only", opcodes is None, named))
            continue
        position = 0
        for instruction in named:
            rest = [place for place in range(position, len(opcodes)) if opcodes[place].startswith(instruction)]
            if not rest:
                wrong.append((source, destination, "not emitted", instruction))
                break
            position = rest[0] + 1
        unnamed = {opcode for opcode in opcodes if re.match(r"cvt\.(rn|rz|rna)", opcode)} - set(named)
        if unnamed:  # a rounding that no step accounts for
            wrong.append((source, destination, "unnamed", unnamed))
    return wrong


@pytest.mark.share(2)
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100"])
def test_the_compiler_emits_the_instructions_that_are_named(arch: str, capfd: pytest.CaptureFixture[str]) -> None:
    wrong = disagreements(PAIRS, arch, named_for=arch)
    capfd.readouterr()  # the compiler prints its refusals
    assert wrong == []


def test_a_chain_named_for_another_architecture_is_caught() -> None:
    assert disagreements([("fp32", "int32"), ("bf16", "int32")], "sm_90", named_for="sm_80")
    assert disagreements([("fp32", "e5m2")], "sm_80", named_for="sm_89")
    assert disagreements([("e4m3", "bf16")], "sm_100", named_for="sm_89")


WORDS = {"fp32": np.uint32, "fp16": np.uint16, "bf16": np.uint16, "e5m2": np.uint8}
WITHOUT_FP8 = [pair for pair in PAIRS if "e5m2" in pair and "e4m3" not in pair]


def codes_of(source: str) -> np.ndarray:
    """Rows of 512 codes: all, and of fp32 its exponents, with ties of e5m2 and of fp16 and their neighbours."""
    if source == "fp32":
        upper = np.arange(0, 1 << 16, 16, dtype=np.uint32) << 16
        lower = np.array([0, 1, 1 << 13, 1 << 19, (1 << 19) + 1, (1 << 19) - 1, (1 << 20) - 1, 3 << 18], np.uint32)
        return (upper[:, None] | lower).reshape(-1, 512)
    codes = np.arange(1 << FORMATS[source].width).astype(WORDS[source])
    return np.resize(codes, (max(codes.size // 512, 1), 512))


def executed(pair: tuple[str, str], arch: str, codes: np.ndarray) -> np.ndarray:
    """What the compiled program makes of `codes` (rows of 512), its PTX executed by its definition."""
    made = np.zeros(codes.shape, WORDS[pair[1]])
    text = programs(arch)[pair]
    for given, row in zip(codes, made, strict=True):
        addresses = [each.__array_interface__["data"][0] for each in (given, row)]
        Threads(text, addresses, DeviceMemory(given, row), 128).run()
    return made


def unlike(pair: tuple[str, str], codes: np.ndarray, through_fp16: bool) -> list[tuple[str, ...]]:
    """(given, made, due) of each code that the program and the conversion make different."""
    found, due = executed(pair, "sm_80", codes), convert(*pair, codes, "sm_80", through_fp16=through_fp16)
    return [tuple(map(hex, map(int, each))) for each in np.stack([codes, found, due], -1)[found != due]]


@pytest.mark.share(4)
@pytest.mark.parametrize("pair", WITHOUT_FP8, ids="-".join)
def test_the_program_gives_the_words_of_the_conversion(pair: tuple[str, str]) -> None:
    assert unlike(pair, codes_of(pair[0]), THROUGH_FP16) == []


@pytest.mark.parametrize("pair", [("fp32", "e5m2"), ("fp16", "e5m2"), ("bf16", "e5m2")], ids="-".join)
def test_the_words_tell_compilers_apart(pair: tuple[str, str]) -> None:
    assert unlike(pair, codes_of(pair[0]), not THROUGH_FP16)
