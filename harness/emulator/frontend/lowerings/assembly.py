"""Inline assembly: what orders memory (fences, barriers of all threads, and a move that gives the statement a result), and what
computes (`inline_assembly`)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.frontend.lowerings.ptx_operations import lower_assembly
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.global_atomics import GlobalAtomics
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.model.architectures import CHIPS

_FENCE = re.compile(r"fence(?:\.(sc|acq_rel|acquire|release))?\.(cta|cluster|gpu|sys)$")
_MEMBAR = re.compile(r"membar\.(cta|gl|sys)$")
_PROXY = re.compile(r"fence\.proxy\.async(?:\.(global|shared(?:::(?:cta|cluster))?))?$")
_BARRIER = re.compile(r"(?:bar\.sync|barrier\.sync|barrier\.cta\.sync) 0$|bar\.warp\.sync -1$|bar\.warp\.sync 0xffffffff$")
_MOVE = re.compile(r"mov\.[bus](?:16|32|64) \$0, (?:\$(\d+)|(-?\d+|0x[0-9a-fA-F]+))$")
_REGISTER = re.compile(r"mov\.[bus](32|64) \$0, %(globaltimer|globaltimer_lo|clock64|clock|smid)$")
_ORDER = (_FENCE, _MEMBAR, _PROXY, _BARRIER)
_LAUNCH_ORDER = re.compile(r"griddepcontrol\.(?:wait|launch_dependents); // dummy \$0")
"""What `gdc_wait` and `gdc_launch_dependents` of older releases write. Nothing is done: launches run one after another."""


@lowers("tt.elementwise_inline_asm", "ttg.inline_asm")
def assembly(t: Translator, op: Operation) -> None:
    """Statements of `_ORDER` order memory; with at most one move beside them, which gives the statement a result. Any others
    compute, and their PTX is executed. A fence of scope cta orders no two programs."""
    text = op.string("asm_string")
    if _LAUNCH_ORDER.fullmatch(text) and not any({*op.results}.intersection(each.operands) for each in t.program.operations()):
        return
    statements = [re.sub(r"\s+", " ", each).strip() for each in re.split(r";|\n|\t", text.strip().strip("{}"))]
    orders = [statement for statement in statements if any(known.match(statement) for known in _ORDER)]
    rest = [statement for statement in statements if statement and statement not in orders]
    moved_value = _moved_value(t, op, rest)
    if moved_value is None and rest:
        asked = _REGISTER.match(rest[0])
        if asked and len(rest) == 1 and not op.operands and t.result(op).text == f"i{asked[1]}" and not orders:
            t.machine(op, _special_register, asked[2], CHIPS[t.arch].multiprocessors.count)
            return
        if orders or op.name == "ttg.inline_asm":
            raise NotModelled(op, f'"{text}": beside fences and barriers only a move of a whole register is')
        lower_assembly(t, op)
        return
    for statement in orders:
        _order_memory(t, op, statement)
    if op.results:
        if moved_value is None:
            raise NotModelled(op, f'"{text}": what it gives')
        kind = t.result(op)
        if isinstance(moved_value, int) and kind.kind == "tensor":
            moved_value = t.apply(_filled_array, kind.shape, kind.dtype, moved_value)
        t.assign(op, moved_value)


def _special_register(m: Cta, op: Operation, name: str, multiprocessors: int) -> int:
    """Clocks count the operations of the program, and themselves; of the multiprocessors the programs take one after another."""
    if name == "smid":
        return m.number % multiprocessors
    m.state.operations += 1
    return m.state.operations


def _order_memory(t: Translator, op: Operation, statement: str) -> None:
    """One statement of `_ORDER`."""
    if fence := _FENCE.match(statement):
        sem = fence[1] or "sc"
        if fence[2] in ("gpu", "sys"):
            t.emit("{}", t.calls(GlobalAtomics.fence, sem != "release", sem != "acquire"))
    elif membar := _MEMBAR.match(statement):
        if membar[1] != "cta":
            t.emit("{}", t.calls(GlobalAtomics.fence, True, True))
    elif proxy := _PROXY.match(statement):
        if proxy[1] in (None, "global"):
            t.emit("{}", t.calls(GlobalAtomics.fence_proxy))
        if proxy[1] != "global":
            t.emit("{}", t.calls(OnChipMemory.fence, op, True))
    else:
        t.meet(warps=statement.startswith("bar.warp"))


def _moved_value(t: Translator, op: Operation, rest: list[str]) -> Any:
    """What the one move in `rest` gives the one result: a value of its type, or a number. None where there is no such move."""
    if len(rest) != 1 or len(op.results) != 1 or not (move := _MOVE.match(rest[0])) or t.result(op).is_float:
        return None
    if not move[1]:
        return int(move[2], 0)
    number = int(move[1]) - 1
    same = number < len(op.operands) and op.operand_types[number] == op.result_types[0]
    return t.value(op.operands[number]) if same else None


def _filled_array(shape: tuple[int, ...], dtype: object, value: int) -> object:
    return np.full(shape, value, dtype)  # type: ignore[call-overload]
