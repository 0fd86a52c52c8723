"""One elementwise operation as the compiler expands it: a kernel of that operation alone is compiled, and its PTX is executed.

libdevice's functions, and `math.log` and its like, which become libdevice's, are decided by their expansion: `.ftz` where
libdevice was told so, contraction where LLVM found it, tables and slow paths. So the real compiler makes that expansion for the
target, from the same text that the operation has in the tile program, and `harness.emulator.ptx` executes it. The PTX is kept in
the process, and on disk in Triton's own cache.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from triton import knobs
from triton.runtime.cache import get_cache_manager

from bitverdict.harness.emulator.compiler_digest import digest
from bitverdict.harness.emulator.frontend import assembly
from bitverdict.harness.emulator.frontend.float_instructions import origins
from bitverdict.harness.emulator.mlir_types import element_dtype
from bitverdict.harness.emulator.ptx.lanes import Program
from bitverdict.harness.emulator.ptx.text import parse_module

Values = np.ndarray

_MODULE = """module attributes {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.shared = 0 : i32, \
ttg.target = "cuda:{capability}", ttg.tensor_memory_size = 0 : i32, "ttg.threads-per-warp" = 32 : i32}} {{
  tt.func public @operation({parameters}%out: !tt.ptr<{result}>) {{
    {lines}
    tt.store %out, %result : !tt.ptr<{result}>
    tt.return
  }}
}}
"""
RESULT_ADDRESS = np.array([1 << 41], np.uint64)  # where the kernel stores its result


@dataclass(frozen=True)
class Operation:
    """A kernel of scalars: `lines` of MLIR compute %result (of the element type `result`) from %0, %1, ... (of `operands`).

    `flushes`: libdevice's functions take subnormals for zero, as the launch's `enable_reflect_ftz` says.
    """

    lines: str
    operands: tuple[str, ...]
    result: str
    flushes: bool = True

    def module(self, capability: int) -> str:
        """The text of the kernel, as of a tile program."""
        parameters = "".join(f"%{number}: {element}, " for number, element in enumerate(self.operands))
        return _MODULE.format(capability=capability, parameters=parameters, result=self.result, lines=self.lines)


def operation_of(name: str, attributes: dict[str, str], operands: tuple[str, ...], result: str) -> Operation:
    """The kernel of the one operation `name`, on the element types `operands` and `result`."""
    given = ", ".join(f"{key} = {value}" if value else key for key, value in attributes.items())
    names = ", ".join(f"%{number}" for number in range(len(operands)))
    line = f'%result = "{name}"({names}) {f"<{{{given}}}> " if given else ""}: ({", ".join(operands)}) -> {result}'
    return Operation(line, operands, result)


def with_constants(operation: Operation, constants: dict[int, str]) -> Operation:
    """`operation`, some of whose operands are constants: the text of each ("2.0e+00") by the operand's number."""
    lines, remaining_operands = operation.lines, list[str]()
    for number, element in enumerate(operation.operands):
        name = f"%{len(remaining_operands)}."
        if number in constants:
            name = f"%constant{number}"
            lines = f'{name} = "arith.constant"() <{{value = {constants[number]} : {element}}}> : () -> {element}\n    {lines}'
        else:
            remaining_operands.append(element)
        lines = re.sub(rf"%{number}\b(?!\.)", name, lines)
    return replace(operation, lines=re.sub(r"%(\d+)\.", r"%\1", lines), operands=tuple(remaining_operands))


def compiled_ptx(operation: Operation, arch: str, *, fuses: bool) -> str:
    """The PTX of `operation` for `arch`, from Triton's cache where it lies there. NotAssembled where the compiler refuses,
    and where ptxas makes other words of the PTX than it says."""
    capability = int(arch.removeprefix("sm_"))
    key = _key(operation, capability, fuses)
    cache = None if knobs.compilation.always_compile else get_cache_manager(key)
    if cache is not None and (path := cache.get_file("operation.ptx")) is not None:
        with open(path, encoding="utf-8") as file:
            return file.read()
    whole = assembly.ptx(operation.module(capability), capability, fuses_sums=fuses, flushes=operation.flushes)
    text = whole.partition("\n\t.file\t")[0].partition("\n\t.section\t")[0]  # what follows is for debuggers
    if fuses and _leaves_products(text) and _joined_by_ptxas(whole, capability):
        raise assembly.NotAssembled(f"sm_{capability}: ptxas fuses a product and a sum; compile with enable_fp_fusion=False")
    if cache is not None:
        cache.put(text, "operation.ptx", binary=False)
    return text


def _leaves_products(text: str) -> bool:
    """Whether a product without a rounding modifier reaches such a sum: ptxas may contract the two (PTX ISA 9.7.3)."""
    instructions = list(assembly.instructions(text))
    defined: dict[str, list[assembly.Instruction]] = {}
    for instruction in instructions:
        for name in instruction.writes:
            defined.setdefault(name, []).append(instruction)
    return any(
        OPEN_SUM.match(instruction.opcode) and any(OPEN_PRODUCT.match(each.opcode) for each in origins(instruction.reads, defined))
        for instruction in instructions
    )


OPEN_SUM = re.compile(r"(add|sub)\.(ftz\.)?(sat\.)?(f16|bf16|f32|f64)")
OPEN_PRODUCT = re.compile(r"mul\.(ftz\.)?(f16|bf16|f32|f64)|div\.(full|approx)\.(ftz\.)?f32|(ex2|rcp|rsqrt|sqrt)\.approx\.f32")
"""What is, or ends in, a product: with `.ftz` a function is one instruction of the special-function unit, without it a subnormal
is scaled before, and the result behind."""
_OPEN = re.compile(r"\b(add|sub|mul)\.(?=(?:ftz\.)?(?:sat\.)?(?:f16|bf16|f32|f64)(?:x2)?\b)")


def _joined_by_ptxas(text: str, capability: int) -> bool:
    """Whether the machine code multiplies and adds more often than that of the same PTX with every rounding said."""

    def count_fmas(given: str) -> Counter:
        code = [each for lines in assembly.machine_code(given, capability).values() for each in lines]
        return Counter(found[0] for each in code if (found := re.match(r"[DFH]FMA\w*", each)))

    return count_fmas(text) != count_fmas(_OPEN.sub(r"\1.rn.", text))


@lru_cache(maxsize=512)
def takes_product(operation: Operation, operand_number: int, arch: str) -> bool:
    """Whether the compiler contracts a product, as operand `operand_number` of `operation`, with a sum at the beginning of that."""
    element = operation.operands[operand_number]
    factors = (f"%{operand_number}", f"%{len(operation.operands)}")
    lines = re.sub(rf"%{operand_number}\b", "%product", operation.lines)
    probe = f"%product = arith.mulf {', '.join(factors)} : {element}\n    {lines}"
    text = compiled_ptx(replace(operation, lines=probe, operands=(*operation.operands, element)), arch, fuses=True)
    listed = list(assembly.instructions(text))
    given = {i.writes[0]: i.reads[0] for i in listed if i.opcode.startswith("ld.param")}
    both = {f"[operation_param_{operand_number}]", f"[operation_param_{len(operation.operands)}]"}
    return any(i.opcode.startswith("fma.") and {given.get(each) for each in i.reads[:2]} == both for i in listed)


def _key(operation: Operation, capability: int, fuses_sums: bool) -> str:
    """What the PTX depends on: release and options of the compiler with its libraries, target and text."""
    options = assembly.options_key(capability, fuses_sums=fuses_sums, flushes=operation.flushes)
    parts = (digest(), options, operation.module(capability))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class CompiledOperation:
    """The operation as a function of arrays, which hold values as the emulator does: floats narrower than fp32 as their codes."""

    operation: Operation
    arch: str
    fuses: bool

    @cached_property
    def program(self) -> Program:
        """The PTX, ready to run. NotAssembled, NotPtx or UnknownOpcode where there is no way to it."""
        module = parse_module(compiled_ptx(self.operation, self.arch, fuses=self.fuses))
        return Program(module, module.entry)

    def __call__(self, *values: Values) -> Values:
        arrays = [np.asarray(each, element_dtype(kind)) for each, kind in zip(values, self.operation.operands, strict=True)]
        found = self.program.run_kernel([words_of(each) for each in arrays], RESULT_ADDRESS)  # the operands' broadcast shape
        dtype = element_dtype(self.operation.result)
        return found.astype(bool) if self.operation.result == "i1" else found.view(dtype)


def words_of(values: Values) -> Values:
    """The same bits as unsigned words; a bool as a byte."""
    return values.astype(np.uint8) if values.dtype == bool else values.view(f"u{values.itemsize}")


@lru_cache(maxsize=512)
def compile_operation(operation: Operation, arch: str, fuses_sums: bool) -> CompiledOperation:
    """`operation` as `arch` computes it, on arrays that broadcast. NotAssembled, NotPtx or UnknownOpcode, with what is unknown."""
    found = CompiledOperation(operation, arch, fuses_sums)
    _ = found.program  # refused before anything runs
    return found
