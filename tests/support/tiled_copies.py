"""out = table, tile by tile through TMA, in two forms: one program with a ring of buffers, and three partitions that hand tiles on.

    out[i, j] = table[i, j]        table, out: (tiles * 64, 64) fp16

What comes in by TMA leaves through registers and a second tile, so that both proxies touch shared memory. It is the kernel of the
tiled copies among the hazards that sanitizers and the emulated GPU are asked about (`hazards_for_sanitizers`): it runs on sm_90.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitverdict.harness.contracts.base.single_config import empty
from bitverdict.harness.model.case import CASE_VERSION, Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis
from bitverdict.kernels.features import Feature

ROWS, COLUMNS = 64, 64


@dataclass(frozen=True, kw_only=True)
class Problem:
    """`tiles` of 64 rows; `form`: "ring" or "partitions"; `programs` share the tiles in whole runs."""

    tiles: int = 7
    form: str = "ring"
    programs: int = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    stages: int = 3


@gluon.constexpr_function
def by_rows(num_warps):
    return gl.BlockedLayout([1, 2], [1, 32], [num_warps, 1], [1, 0])


@gluon.jit
def start(table, row, arrived, tile):
    """Starts the load of the tile at `row`; `arrived` completes when it is in."""
    mbarrier.expect(arrived, table.nbytes_per_cta)
    tma.async_load(table, [row, 0], arrived, tile)


@gluon.jit
def ring_kernel(table, out, tiles, STAGES: gl.constexpr):
    HEIGHT: gl.constexpr = table.block_shape[0]
    first_row = gl.program_id(0) * tiles * HEIGHT
    ring = gl.allocate_shared_memory(table.dtype, [STAGES] + table.block_shape, table.layout)  # (STAGES, ROWS, COLUMNS)
    out_tile = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)  # (ROWS, COLUMNS)
    arrived = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for early in gl.static_range(STAGES):
        mbarrier.init(arrived.index(early), count=1)
    for early in gl.static_range(STAGES):
        if early < tiles:
            start(table, first_row + early * HEIGHT, arrived.index(early), ring.index(early))
    for step in range(tiles):
        stage = step % STAGES
        mbarrier.wait(arrived.index(stage), step // STAGES & 1)
        values = ring.index(stage).load(by_rows(gl.num_warps()))  # (ROWS, COLUMNS)
        if step + STAGES < tiles:
            gl.barrier()
            start(table, first_row + (step + STAGES) * HEIGHT, arrived.index(stage), ring.index(stage))
        tma.store_wait(pendings=0)  # the store before has read its source
        out_tile.store(values)
        fence_async_shared()
        tma.async_store(out, [first_row + step * HEIGHT, 0], out_tile)
    for last in gl.static_range(STAGES):
        mbarrier.invalidate(arrived.index(last))
    tma.store_wait(pendings=0)  # before the program's memory goes


@gluon.jit
def bring(table, ring, full, free, tiles, STAGES: gl.constexpr):
    for step in range(tiles):
        stage = step % STAGES
        mbarrier.wait(free.index(stage), step // STAGES & 1 ^ 1)
        start(table, step * table.block_shape[0], full.index(stage), ring.index(stage))


@gluon.jit
def hand_on(ring, out_tile, full, free, filled, sent, tiles, STAGES: gl.constexpr):
    for step in range(tiles):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        values = ring.index(stage).load(by_rows(gl.num_warps()))  # (ROWS, COLUMNS)
        fence_async_shared()  # TMA may write what was read, once the arrival says so
        mbarrier.arrive(free.index(stage), count=1)
        mbarrier.wait(sent, step & 1 ^ 1)
        out_tile.store(values)
        fence_async_shared()  # before the arrival: it is this partition that knows of the store
        mbarrier.arrive(filled, count=1)


@gluon.jit
def send(out, out_tile, filled, sent, tiles):
    for step in range(tiles):
        mbarrier.wait(filled, step & 1)
        tma.async_store(out, [step * out.block_shape[0], 0], out_tile)
        tma.store_wait(pendings=0)
        mbarrier.arrive(sent, count=1)


@gluon.jit
def partitions_kernel(table, out, tiles, STAGES: gl.constexpr):
    ring = gl.allocate_shared_memory(table.dtype, [STAGES] + table.block_shape, table.layout)  # (STAGES, ROWS, COLUMNS)
    out_tile = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)  # (ROWS, COLUMNS)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    filled = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    sent = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(free.index(stage), count=1)
    mbarrier.init(filled, count=1)
    mbarrier.init(sent, count=1)
    gl.warp_specialize(
        [
            (hand_on, (ring, out_tile, full, free, filled, sent, tiles, STAGES)),
            (bring, (table, ring, full, free, tiles, STAGES)),
            (send, (out, out_tile, filled, sent, tiles)),
        ],
        [1, 1],
        [24, 24],
    )


def copied(table: Any, out: Any, problem: Problem, config: Config) -> Any:
    """`table` into `out`, both (tiles * 64, 64) fp16 on one device."""
    box = [ROWS, COLUMNS]
    layout = gl.NVMMASharedLayout.get_default_for(box, gl.float16)
    source, target = (TensorDescriptor.from_tensor(tensor, box, layout) for tensor in (table, out))
    kernel = ring_kernel if problem.form == "ring" else partitions_kernel
    kernel[(problem.programs,)](source, target, problem.tiles // problem.programs, config.stages, num_warps=4)
    return out


class TiledCopies(Contract):
    stem, requires = "tiled_copies", frozenset({Feature.TMA, Feature.MBARRIER})
    address = f"{__file__}:CONTRACT"

    def required(self, target: Target) -> list[Case]:
        return [self.case(form=form) for form in ("ring", "partitions")]

    def case(self, *, stages: int = 3, **problem: Any) -> Case:
        return Case(contract=self.address, problem=Problem(**problem), config=Config(stages=stages))

    def operands(self, case: Case) -> list[Operand]:
        """fp16 words that are all numbers, in a period that is no multiple of a tile."""
        words = (np.arange(case.problem.tiles * ROWS * COLUMNS) * 7 % 28669 + 0x400).astype(np.uint16)
        return [Operand(name="table", format="fp16", codes=words.reshape(-1, COLUMNS), strides=(COLUMNS, 1))]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        table = tensors["table"]
        return {"out": copied(table, empty(table, tuple(table.shape)), case.problem, case.config)}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        words = operands["table"].codes
        return [ExpectedOutput(name="out", format="fp16", shape=words.shape, words=words, tile=(ROWS, COLUMNS), basis=Basis.EXACT)]

    def case_from_json(self, record: Mapping) -> Case:
        """Inverse of `Case.to_json`; ValueError for another version or other fields."""
        if record.get("version") != CASE_VERSION:
            raise ValueError(f"case of version {record.get('version')!r}: this checkout reads version {CASE_VERSION}")
        try:
            return Case(
                contract=record.get("contract", self.address),
                problem=Problem(**record["problem"]),
                config=Config(**record["config"]),
                schedule=record.get("schedule", "eager"),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"case of tiled_copies: {error}: it must have the fields of Problem and Config") from error


CONTRACT = TiledCopies()
