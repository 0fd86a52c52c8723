"""Inline assembly that only orders memory: fences, barriers of all threads, and moves that give the statement a result."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.global_atomics import GlobalAtomics
from bitverdict.harness.emulator.mlir_reader import Operation

_FENCE = re.compile(r"fence(?:\.(sc|acq_rel|acquire|release))?\.(cta|cluster|gpu|sys)$")
_MEMBAR = re.compile(r"membar\.(cta|gl|sys)$")
_PROXY = re.compile(r"fence\.proxy\.async(?:\.(global|shared(?:::(?:cta|cluster))?))?$")
_BARRIER = re.compile(r"(?:bar\.sync|barrier\.sync|barrier\.cta\.sync) 0$|bar\.warp\.sync -1$|bar\.warp\.sync 0xffffffff$")
_MOVE = re.compile(r"mov\.[bus](?:16|32|64) \$0, (?:\$(\d+)|(-?\d+|0x[0-9a-fA-F]+))$")


@lowers("tt.elementwise_inline_asm", "ttg.inline_asm")
def assembly(t: Translator, op: Operation) -> None:
    """Statements are those of `_FENCE` to `_MOVE`; others are refused. A fence of scope cta orders no two programs."""
    text = op.attributes["asm_string"].strip('"')
    statements = [re.sub(r"\s+", " ", each).strip() for each in re.split(r";|\\0A|\\09", text.strip().strip("{}"))]
    given: Any = None
    for said in filter(None, statements):
        if fence := _FENCE.match(said):
            sem = fence[1] or "sc"
            if fence[2] in ("gpu", "sys"):
                t.emit("{}", t.calls(GlobalAtomics.fence, sem != "release", sem != "acquire"))
        elif membar := _MEMBAR.match(said):
            if membar[1] != "cta":
                t.emit("{}", t.calls(GlobalAtomics.fence, True, True))
        elif proxy := _PROXY.match(said):
            if proxy[1] in (None, "global"):
                t.emit("{}", t.calls(GlobalAtomics.fence_proxy))
            if proxy[1] != "global":
                t.emit("{}", t.calls(OnChipMemory.fence, op, True))
        elif barrier := _BARRIER.match(said):
            t.meet(warps=barrier[0].startswith("bar.warp"))
        elif (move := _MOVE.match(said)) and len(op.results) == 1:
            given = t.value(op.operands[int(move[1]) - 1]) if move[1] else int(move[2], 0)
        else:
            raise NotModelled(op, f'"{text}": of inline assembly only fences, barriers and moves of whole registers are')
    if op.results:
        kind = t.result(op)
        moved = given in [t.value(n) for n, text in zip(op.operands, op.operand_types, strict=True) if text == op.result_types[0]]
        if kind.is_float or not (moved or isinstance(given, int)):
            raise NotModelled(op, f'"{text}": what it gives')
        if isinstance(given, int) and kind.kind == "tensor":
            given = t.apply(_filled, kind.shape, kind.dtype, given)
        t.assign(op, given)


def _filled(shape: tuple[int, ...], dtype: object, value: int) -> object:
    return np.full(shape, value, dtype)  # type: ignore[call-overload]
