"""From a tile program to the PTX and the machine code that the real compiler makes of it, each instruction under the line of the
tile program that it came from.

`stop_compiler` stops the compiler at the tile program, because that is what is executed. Some things are decided only further down:
LLVM contracts a product and a sum to one fused multiply-add, and so does ptxas. Here the rest of Triton's own `make_llir` and
`make_ptx` is run on the text of a tile program. It takes 15 ms for a small one, up to a second for a matrix product of 128 x 128
with an epilogue, and is asked for only where a decision is open.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

from triton import knobs
from triton._C.libtriton import ir, llvm, nvidia
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import (
    CUDABackend,
    CUDAOptions,
    get_features,
    get_ptx_version_from_options,
    sm_arch_from_capability,
)

from bitverdict.harness.emulator.compiler_process import NotAssembled, in_compiler_process
from bitverdict.harness.emulator.frontend.module_text import read_back
from bitverdict.harness.emulator.frontend.stop_compiler import convert_to_llvm
from bitverdict.harness.emulator.machine_code import cubin_resources
from bitverdict.harness.emulator.releases import add_passes, installed_release

if TYPE_CHECKING:
    from triton.backends.amd.compiler import HIPOptions

_TRIPLE = "nvptx64-nvidia-cuda"
_PLACE = re.compile(r" loc\(#loc\d*\)$")
_PACKED_ARITHMETIC = re.compile(
    r" = (?:f(?:add|sub|mul|neg|div)|call .*@llvm\.fmuladd\.) ?(?:fast |contract )*.*<\d+ x (?:float|half|bfloat|double)>"
)


@dataclass(frozen=True)
class Instruction:
    """One instruction of PTX: opcode, registers or immediates written and read, the line of the tile program's text (from 0; -1
    where the compiler names none), and which of the sums, products and divisions of floats of the text it is (from 0; -1: none)."""

    opcode: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    line: int
    place: int = -1


@cache
def _backend(capability: int, fuses_sums: bool, flushes: bool = True) -> tuple[CUDABackend, Any]:
    backend = CUDABackend(GPUTarget("cuda", capability, 32))
    return backend, backend.parse_options({"enable_fp_fusion": fuses_sums, "enable_reflect_ftz": flushes})


def options_key(capability: int, *, fuses_sums: bool, flushes: bool) -> str:
    """What of the compiler's options its PTX depends on: the bitcode of libdevice and the PTX version of the ptxas with them."""
    options = _backend(capability, fuses_sums, flushes)[1]
    return f"{options.hash()} {get_ptx_version_from_options(options, capability)}"


@lru_cache(maxsize=64)
@in_compiler_process
def ptx(program: str, capability: int, *, fuses_sums: bool, flushes: bool = True) -> str:
    """PTX of the tile program `program` (its text, as `compiling.tile_program` leaves it). NotAssembled where the compiler refuses.

    Line n of the text (from 0) is ``.loc 1 n+1`` there: line 0 is LLVM's word for "none".
    """
    backend, options = _backend(capability, fuses_sums, flushes)
    return backend.make_ptx(_llvm(program, capability, options), {}, options, capability)


@in_compiler_process
def ptx_beside_packing(program: str, capability: int) -> tuple[str, bool]:
    """`ptx` with fusion, and whether LLVM's SLP vectoriser packed sums or products. The vectoriser puts several operations of the
    tile program under the line of one."""
    backend, options = _backend(capability, True)
    whole = _llvm(program, capability, options)
    packs = installed_release().vectorises(capability, program) and bool(_PACKED_ARITHMETIC.search(whole))
    return backend.make_ptx(whole, {}, options, capability), packs


@in_compiler_process
def marked_ptx(program: str, capability: int) -> tuple[str, str, bool]:
    """The tile program `program` in LLVM's dialect, and its PTX with fusion. Each operation of the dialect has a column of its own
    under its line, and the PTX has the same columns; last whether LLVM packed operations, of which one column is left. NotAssembled
    where the compiler refuses."""
    backend, options = _backend(capability, True)
    version = get_ptx_version_from_options(options, capability)
    try:
        dialect = _with_columns(convert_to_llvm(_add_locations(program), capability, version))
        module = read_back(dialect)
        manager = ir.pass_manager(module.context)
        add_passes(manager, installed_release().to_llvm, capability=capability, ptx=version)
        manager.run(module, "assembly")
    except RuntimeError as error:
        raise NotAssembled(f"sm_{capability}: {error}") from error
    code = _optimize_llvm(module, options, capability, installed_release().vectorises(capability, program))
    return dialect, backend.make_ptx(code, {}, options, capability), bool(_PACKED_ARITHMETIC.search(code))


_ALIAS = re.compile(r'^#(loc\d*) = loc\("tile program":(\d+):1\)', re.M)
_LINE_ALIAS = re.compile(r" loc\(#(loc\d*)\)$")
_MOST_COLUMNS = 65_000  # LLVM has 16 bits


def _with_columns(dialect: str) -> str:
    """LLVM's dialect, each operation under its line with its number there."""
    lines, counts, output_lines = {name: int(line) for name, line in _ALIAS.findall(dialect)}, Counter[int](), []
    for raw in dialect.split("\n"):
        if " = " in raw and (name := _LINE_ALIAS.search(raw)) and (line := lines.get(name[1])) is not None:
            counts[line] += 1
            if counts[line] < _MOST_COLUMNS:
                raw = f'{raw[: name.start()]} loc("tile program":{line}:{counts[line] + 1})'
        output_lines.append(raw)
    return "\n".join(output_lines)


def placed_columns(text: str) -> tuple[str, dict[int, tuple[int, int]]]:
    """PTX with numbers for lines, and the line and column (from 1) of each number, which is one less as `instructions` counts."""
    numbers: dict[tuple[int, int], int] = {}
    output_lines = []
    for raw in text.splitlines():
        if place := _COLUMN.match(raw):
            number = numbers.setdefault((int(place[2]), int(place[3])), len(numbers) + 1)
            raw = f"{place[1]}{number} 1"
        elif label := _LABEL.match(raw):
            output_lines.append(f"\t{LABEL} \t{label[1]};")
        output_lines.append(raw)
    return "\n".join(output_lines) + "\n", {number - 1: mark for mark, number in numbers.items()}


LABEL = "label"
"""The instruction, of no PTX, that `placed_columns` puts where a label stands."""
_LABEL = re.compile(r"\s*([$%]\w+):\s*(?://.*)?$")  # of LLVM's, or of inline assembly that `flatten` has given names of its own
_COLUMN = re.compile(r"(\s*\.loc\s+\d+ )(\d+) (\d+)")


def _add_locations(program: str) -> str:
    """A tile program, each operation under the line of the text that it ends on, from 1."""
    return "\n".join(_PLACE.sub(f' loc("tile program":{n}:1)', line) for n, line in enumerate(program.split("\n"), 1))


def _llvm(program: str, capability: int, options: CUDAOptions | HIPOptions) -> str:
    """Optimised LLVM IR of a tile program's text. NotAssembled where the compiler refuses."""
    version = get_ptx_version_from_options(options, capability)
    try:
        module = read_back(_add_locations(program))
        manager = ir.pass_manager(module.context)
        passes = (*installed_release().conversion, *installed_release().to_llvm)
        add_passes(manager, passes, capability=capability, ptx=version, consan=False)
        manager.run(module, "assembly")
    except RuntimeError as error:
        raise NotAssembled(f"sm_{capability}: {error}") from error
    return _optimize_llvm(module, options, capability, installed_release().vectorises(capability, program))


def _optimize_llvm(module: ir.module, options: CUDAOptions | HIPOptions, capability: int, packs: bool) -> str:
    """LLVM IR of `module`, optimised as `make_llir` does; `packs`: with the SLP vectoriser."""
    llvm.init_targets()
    context = llvm.context()
    llvm_module = llvm.to_module(module, context)
    release = installed_release()
    flags = list(release.llvm_flags)
    if not flags:
        nvidia.set_short_ptr()
    places = (_TRIPLE, sm_arch_from_capability(capability), get_features(options, capability))
    llvm.attach_datalayout(llvm_module, *places, *([flags] if flags else []))
    if options.enable_reflect_ftz:
        nvidia.set_nvvm_reflect_ftz(llvm_module)
    if options.extern_libs and nvidia.has_extern_deps(llvm_module):
        llvm.link_extern_libs(llvm_module, [path for _, path in options.extern_libs])
    keywords = {"flags": flags, "disable_slp_vectorizer": not packs, "expand_masked_div_rem": True}
    llvm.optimize_module(llvm_module, llvm.OPTIMIZE_O3, **{name: keywords[name] for name in release.optimizer_keywords})
    return str(llvm_module)


_FILE = re.compile(r"(\s*\.loc\s+\d+ )")
FLOATS = re.compile(r"\s*(?:@!?%\w+\s+)?(?:add|sub|mul|fma|div)\.(?:\w+\.)*(?:f32|f32x2|f16|f16x2|bf16|bf16x2|f64)\s")
_STATEMENT = re.compile(r"(?:@!?%\w+\s+)?([a-z][\w.:]*)\s+(.*);$")
_LOCATION = re.compile(r"\.loc\s+\d+ (\d+) ")
_FUNCTION = re.compile(r"\s*(?:\.(?:visible|extern|weak) )*\.(?:entry|func)\b")
_REGISTER = re.compile(r"%(?:r|rd|rs|p|f|fd)\d+\b")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
_OPCODES_WITHOUT_RESULT = (
    "st.", "bra", "ret", "red.", "bar", "cp.", "fence", "mbarrier", "wgmma", "tcgen05", "trap", "brkpt", "exit",
)  # fmt: skip


def placed_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of PTX, each with the line of the tile program that it is of. Inside inline assembly LLVM counts on, one a line:
    the first place there is that of the operation."""
    line, inside = -1, 0
    for raw in text.splitlines():
        if found := _LOCATION.match(raw.strip()):
            line = line if inside > 1 else int(found[1]) - 1
            inside += inside > 0
        elif raw.strip() in ("// begin inline asm", "// end inline asm"):
            inside = int(raw.strip() == "// begin inline asm")
        else:
            yield line, raw


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of PTX in order. Registers of a second function, which has names of its own, have its number."""
    places, function_count = count(), 0
    for line, raw in placed_lines(text):
        function_count += bool(_FUNCTION.match(raw))
        place = next(places) if FLOATS.match(raw) else -1
        if statement := _STATEMENT.match(raw.partition("//")[0].strip()):
            named = _REGISTER.sub(rf"\g<0>_{function_count}", statement[2]) if function_count > 1 else statement[2]
            operands = [o.strip() for o in _OPERAND.findall(named)]
            wrote = 0 if statement[1].startswith(_OPCODES_WITHOUT_RESULT) else 1
            yield Instruction(statement[1], _names(operands[:wrote]), _names(operands[wrote:]), line, place)


def _names(operands: list[str]) -> tuple[str, ...]:
    return tuple(name.strip() for operand in operands for name in operand.strip("{}").split(","))


def cubin(text: str, capability: int, *, fuses_sums: bool) -> bytes:
    """The cubin that ptxas makes of the PTX `text`, sums of products contracted if `fuses_sums`. NotAssembled where it refuses."""
    backend, options = _backend(capability, fuses_sums)
    try:
        return bytes(backend.make_cubin(text, {}, options, capability))
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        raise NotAssembled(f"sm_{capability}: {error}") from error


@lru_cache(maxsize=64)
@in_compiler_process
def registers(program: str, capability: int, *, fuses_sums: bool) -> int:
    """Registers of one thread of the tile program `program`, by its machine code. NotAssembled where the compiler refuses."""
    binary = cubin(ptx(program, capability, fuses_sums=fuses_sums), capability, fuses_sums=fuses_sums)
    try:
        return cubin_resources(binary)[0]
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        raise NotAssembled(f"sm_{capability}: {error}") from error


FIRST_PLACE = 1_000_000
"""The line of the first float instruction in `number_floats`: no tile program has so many lines."""


def number_floats(text: str) -> str:
    """The PTX `text` with a line of its own for each sum, product and division of floats: FIRST_PLACE and `Instruction.place`.
    LLVM gives several one line, or none, which ptxas takes for a part of the line before."""
    output_lines, file, places = [], "", count(FIRST_PLACE)
    for raw in text.splitlines():
        if found := _FILE.match(raw):
            file = found[1]
        if not FLOATS.match(raw):
            output_lines.append(raw)
            continue
        place = next(places)
        output_lines += [f"{file}{place + 1} 1", raw, f"{file}{FIRST_PLACE - 1} 1"] if file else [raw]
    return "\n".join(output_lines) + "\n"


@in_compiler_process
def machine_code(text: str, capability: int) -> dict[int, list[str]]:
    """Instructions of the machine code that ptxas makes of the PTX `text` with fusion on, by line of the tile program: "FFMA R5,
    R0, R5, R7". NotAssembled where ptxas or nvdisasm fails."""
    backend, options = _backend(capability, True)
    try:
        binary = backend.make_cubin(text, {}, options, capability)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(binary)
            file.flush()
            command = [knobs.nvidia.nvdisasm.path, "-g", "-c", file.name]
            listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        raise NotAssembled(f"sm_{capability}: {error}") from error
    instructions_by_line: dict[int, list[str]] = {}
    line = -1
    for raw in listing.splitlines():
        if place := re.search(r'//## File ".*?", line (\d+)', raw):
            line = int(place[1]) - 1
        elif instruction := re.search(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\d\s+)?([A-Z][^;]*?)\s*;", raw):
            instructions_by_line.setdefault(line, []).append(instruction[1])
    return instructions_by_line
