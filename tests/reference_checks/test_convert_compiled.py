"""Contract under test: the instructions that `conversion` names are those that Triton's compiler emits for the target, in PTX.

A kernel of one cast is compiled offline for each pair and architecture; what Triton refuses must be refused here too.
"""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bitverdict.reference.formats import conversion

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


def compiled(source: str, destination: str, arch: str) -> list[str] | None:
    """Opcodes of the PTX in order, without address arithmetic; None where Triton refuses."""
    signature = {"source": "*" + TYPES[source][0], "destination": "*" + TYPES[destination][0], "TYPE": "constexpr"}
    program = ASTSource(cast, signature, {(2,): TYPES[destination][1]})
    try:
        kernel = triton.compile(program, target=GPUTarget("cuda", int(arch.removeprefix("sm_")), 32))
    except (triton.CompilationError, RuntimeError):
        return None
    return [match.group(1) for match in re.finditer(r"^\s*(?:@\S+\s+)?([a-z][\w.:]+)\s", kernel.asm["ptx"], re.MULTILINE)]


def disagreements(pairs: list[tuple[str, str]], arch: str, named_for: str) -> list[tuple]:
    """Where the program compiled for `arch` and the chain named for `named_for` part."""
    wrong: list[tuple] = []
    for source, destination in pairs:
        opcodes = compiled(source, destination, arch)
        try:
            named = [step.instruction for step in conversion(source, destination, named_for)]
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
    assert disagreements([("fp16", "bf16")], "sm_90", named_for="sm_80")
    assert disagreements([("fp32", "e5m2")], "sm_80", named_for="sm_89")
    assert disagreements([("e4m3", "bf16")], "sm_100", named_for="sm_90")
