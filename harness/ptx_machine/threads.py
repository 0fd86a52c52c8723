"""The threads of a batch of CTAs, in step: each register is a row of words; a branch splits the threads, a join unites them.

The block that comes first in reverse postorder runs first, for the threads that wait there, so threads meet again where their
paths do. A thread that waits at a barrier is parked until those it waits for have come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bitverdict.harness.emulator.ptx.lanes import Frame
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, Words
from bitverdict.harness.emulator.ptx.steps import Block, Step
from bitverdict.harness.ptx_machine import (  # noqa: F401 -- system_calls and others register their instructions
    access,
    bulk_copies,
    clusters,
    mbarriers,
    synchronisation,
    system_calls,
    tensor_memory,
    tensor_products,
    warp_instructions,
    warpgroups,
)
from bitverdict.harness.ptx_machine.bulk_copies import BulkGroupRead
from bitverdict.harness.ptx_machine.mbarriers import Mbarrier
from bitverdict.harness.ptx_machine.memory import GlobalSpace
from bitverdict.harness.ptx_machine.poll_loops import Polls, changes_state
from bitverdict.harness.ptx_machine.program import PARAMETERS, KernelProgram, ThreadStep, fault
from bitverdict.harness.ptx_machine.shared_space import SharedSpace
from bitverdict.harness.ptx_machine.strong_accesses import ReleasedWords, orders_by_words
from bitverdict.harness.ptx_machine.tensor_maps import TensorMap, TensorMapFields
from bitverdict.harness.ptx_machine.thread_order import WARP, Order

LANES = 1 << 13  # worked on at once where a grid is larger: the registers of a kernel stay in the caches
STEP_LIMIT = 50_000_000  # instructions of one batch
PATIENCE = 4096  # repeated blocks while other threads wait for their turn, after which these go on: a loop may wait for them


class _Registers(dict):
    """A register that nobody wrote reads as 0: a compiler leaves what it does not need unwritten. KeyError for one that was
    dropped: nobody reads it."""

    def __init__(self, widths: Mapping[str, int], short_lived: Collection[str]) -> None:
        super().__init__()
        self.widths, self.short_lived = widths, short_lived

    def __missing__(self, name: str) -> Words:
        if name in self.short_lived:
            raise KeyError(name)
        return np.zeros(1, DTYPES[self.widths[name]])


@dataclass(frozen=True)
class LaunchShape:
    """What a launch says beside its arguments."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0  # for `.extern .shared`
    constants: tuple[tuple[str, object], ...] = ()  # variables of the module that the host wrote: name and buffer
    tick: int = 1  # by which a clock goes on when it is read
    takes_other_words: bool = False  # lanes of a warp may store other words to one place: what an H100 keeps stays
    either_row: bool = False  # rows of scatters to one row may differ: either stays
    shuffles_order: bool = False  # shfl.sync tells the lanes that meet there what each has done, as bar.warp.sync does
    cluster: tuple[int, int, int] = (1, 1, 1)  # CTAs, which divide the grid along each axis
    count_steps: Callable[[int, int], None] = lambda steps, threads: None  # told before each block; may raise

    @property
    def ctas(self) -> int:
        return math.prod(self.grid)

    @property
    def cluster_ctas(self) -> int:
        return math.prod(self.cluster)

    @property
    def threads(self) -> int:
        """Of a CTA, whole warps."""
        return -(-math.prod(self.block) // WARP) * WARP


@dataclass(eq=False)
class Copy:
    """An asynchronous copy to shared memory that has not landed: what each of `threads` will write, as the group `groups`."""

    step: ThreadStep
    threads: np.ndarray
    groups: np.ndarray
    offsets: np.ndarray
    words: np.ndarray  # (threads, bytes) uint8
    number: int


class Threads(Frame):
    """CTAs `first_cta` up to `first_cta + count` of a launch. `fault`s are raised where they are found."""

    def __init__(
        self,
        program: KernelProgram,
        shape: LaunchShape,
        first_cta: int,
        count: int,
        memory: GlobalSpace,
        arguments: Sequence[Words | TensorMap],
    ) -> None:
        lanes = count * shape.threads
        super().__init__(program, lanes)  # type: ignore[arg-type]  # has the function and the blocks of one
        self.kernel, self.shape, self.memory, self.arch = program, shape, memory, program.arch
        self.registers = _Registers(program.function.registers, program.short_lived)
        self.order = Order(
            count, shape.threads, memory.last_epoch, cluster_ctas=shape.cluster_ctas, has_proxies=program.has_async_proxy
        )
        self.released_words = ReleasedWords(self.order) if orders_by_words(program) else None
        memory.begin_batch(self.order, first_cta * shape.threads)
        dynamic = max(program.shared.values(), default=0) if program.has_dynamic_shared else program.shared_bytes
        self.shared = SharedSpace.empty(count, dynamic + shape.shared_bytes, self.order, min(program.unit, 4))
        self.shared.observe = memory.observe
        self.shared.reach = self._reach_peers
        self.cluster_phases = clusters.ClusterPhases(lanes, count, self.order.warps)
        self.all = np.arange(lanes)
        self.live = np.ones(lanes, bool)
        self.cta = self.all // shape.threads
        self.parked: dict[Any, np.ndarray] = {}  # barrier -> (lanes,) the block at which each goes on, -1: is not there
        self.parking: list[tuple[Any, np.ndarray]] = []  # by the step that ends the block: barriers, and who waits there
        self.warp_meeting = synchronisation.WarpMeeting(np.zeros(lanes, np.uint32))
        self.copies: list[Copy] = []
        self.copy_numbers = 0
        self.committed, self.bulk_committed = np.zeros((2, lanes), np.int32)
        self.barrier_arrivals: dict[tuple[int, int], list[tuple[int, mbarriers.Knowledge]]] = {}  # by CTA and number: bar.arrive
        self.mbarriers: dict[tuple[int, int], Mbarrier] = {}  # by CTA and byte of its shared memory
        self.tensor_maps: dict[int, TensorMap] = {}  # by address
        self.map_fields: dict[tuple[int, int], TensorMapFields] = {}
        self.bulk_reads: list[BulkGroupRead] = []
        self.products = warpgroups.Products(lanes)
        has_tensors = any(name.startswith("tcgen05") for name in program.opcodes)
        self.tensor = tensor_memory.TensorSpace.empty(count, self.order) if has_tensors else None
        self._steps = self.clock = self.changes = 0  # of anything but registers
        self.has_later_ctas = first_cta + count < shape.ctas
        self._fill_special(first_cta, count)
        ranks = self.shared.ranks(self.cta if shape.cluster_ctas > 1 else np.zeros(1, np.int64))
        self.registers |= {name: (offset + ranks).astype(np.uint32) for name, offset in program.shared.items()}
        end = sum(-(-parameter.size // 256) * 256 for parameter in program.parameters)
        self.parameters = np.full(end + 1, -1, np.int16)  # by byte behind PARAMETERS; -1: of no parameter
        for parameter, words in zip(program.parameters, arguments, strict=True):
            start = program.function.locals[parameter.name]
            if isinstance(words, TensorMap):
                self.tensor_maps[start] = words
                if parameter.kind == "b8":
                    continue
                words = np.array([start], np.uint64)  # a pointer to it
            self.parameters[start - PARAMETERS :][: parameter.size] = words.view(np.uint8)
            if parameter.kind == "b8":
                self.registers |= program.fields(parameter.name, words.tobytes())
            else:
                self.registers[f"[{parameter.name}]"] = words
        self.data = program.data(shape.constants)

    def set_register(self, name: str, words: Words, lanes: np.ndarray) -> None:
        """Write `words` into the register of `lanes`, which wait."""
        self._merge(name, words, lanes)

    def _reach_peers(self, step: ThreadStep, threads: np.ndarray, ctas: np.ndarray, is_async: bool) -> None:
        clusters.reach_peers(self, step, threads, ctas, is_async=is_async)

    def new_flight(self, step: ThreadStep) -> int:
        """The number of an operation that uses shared memory on its own time."""
        number = self.new_number()
        self.shared.steps[number] = step
        return number

    def new_number(self) -> int:
        """Of an operation that goes on its own time."""
        self.copy_numbers += 1
        return self.copy_numbers

    def _fill_special(self, first_cta: int, count: int) -> None:
        shape, registers = self.shape, self.registers
        thread = np.tile(np.arange(shape.threads), count)
        cluster, rank = divmod(first_cta + self.cta, shape.cluster_ctas)  # CTAs of a cluster follow one another
        clusters_of_grid = tuple(size // ctas for size, ctas in zip(shape.grid, shape.cluster, strict=True))
        for name, total, number, sizes in (
            ("tid", "ntid", thread, shape.block),
            ("clusterid", "nclusterid", cluster, clusters_of_grid),
            ("cluster_ctaid", "cluster_nctaid", rank, shape.cluster),
        ):
            for axis, size in zip("xyz", sizes, strict=True):
                registers[f"%{name}.{axis}"] = (number % size if axis != "z" else number).astype(np.uint32)
                number = number // size
                registers[f"%{total}.{axis}"] = np.array([size], np.uint32)
        for axis, size, ctas in zip("xyz", shape.grid, shape.cluster, strict=True):
            registers[f"%ctaid.{axis}"] = registers[f"%clusterid.{axis}"] * np.uint32(ctas) + registers[f"%cluster_ctaid.{axis}"]
            registers[f"%nctaid.{axis}"] = np.array([size], np.uint32)
        lane = (thread % WARP).astype(np.uint32)
        bit = np.uint32(1)
        registers |= {
            "%laneid": lane,
            "%warpid": (thread // WARP).astype(np.uint32),
            "%nwarpid": np.array([shape.threads // WARP], np.uint32),
            "%lanemask_eq": bit << lane,
            "%lanemask_lt": (bit << lane) - bit,
            "%lanemask_le": ((bit << lane) - bit) | bit << lane,
            "%lanemask_ge": ~((bit << lane) - bit),
            "%lanemask_gt": ~(((bit << lane) - bit) | bit << lane),
            "%dynamic_smem_size": np.array([shape.shared_bytes], np.uint32),
            "%cluster_ctarank": rank.astype(np.uint32),
            "%cluster_nctarank": np.array([shape.cluster_ctas], np.uint32),
            "%is_explicit_cluster": np.array([bool(self.kernel.cluster)]),
        }
        self.live &= thread < math.prod(shape.block)

    # -- blocks ---------------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """To the end of all threads."""
        blocks, order = self.kernel.blocks, self.kernel.order
        lanes_by_block: dict[int, list[np.ndarray]] = {0: [np.flatnonzero(self.live)]}
        runs, earlier_blocks, polls = 0, set[int](), Polls(self)
        while lanes_by_block or self.parked or polls.asides:
            if not lanes_by_block and not self._release_barriers(lanes_by_block):
                if not polls.asides:
                    self._deadlock()
                polls.resume(lanes_by_block)
            number = min(polls.choose(lanes_by_block), key=order.__getitem__)
            runs = runs + (number in earlier_blocks) if len(lanes_by_block) > 1 else 0
            earlier_blocks = earlier_blocks | {number} if len(lanes_by_block) > 1 else set()
            if runs > PATIENCE:
                number = max(self._blocks_of_other_warps(lanes_by_block, number), key=order.__getitem__)
                runs, earlier_blocks = 0, set()
            parts = lanes_by_block.pop(number)
            lanes = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
            if number in polls.loop_heads and polls.puts_aside(number, lanes):
                continue
            everyone = len(lanes) == self.lanes
            block = blocks[number]
            self.shape.count_steps(len(block.steps), len(lanes))
            self.parking = []
            branching, others = self._block(block, None if everyone else lanes)
            if self.parking:
                others = self._park(block, lanes)
            for target, target_lanes in ((block.target, branching), (block.next_block, others)):
                target_lanes = lanes if target_lanes is None else target_lanes
                if not len(target_lanes):
                    continue
                if target >= 0:
                    lanes_by_block.setdefault(target, []).append(target_lanes)
                else:
                    self.live[target_lanes] = False
                    if self.shape.cluster_ctas > 1:
                        clusters.leave(self, target_lanes)
                    if self.parked:
                        self._release_barriers(lanes_by_block)
            if self.parking or (self.parked and block.steps and getattr(block.steps[-1], "ends_block", False)):
                self._release_barriers(lanes_by_block)  # also of those who wait for what these have seen: they go on together
            polls.ran(number, lanes_by_block)
        bulk_copies.refuse_unfinished(self)
        tensor_memory.refuse_unfinished(self)

    def _blocks_of_other_warps(self, lanes_by_block: dict[int, list[np.ndarray]], number: int) -> list[int]:
        """Blocks at which other warps wait than at `number`, whose threads may loop; where there are none, any."""
        loops = np.unique(np.concatenate(lanes_by_block[number]) // WARP)
        other_warps = [each for each, parts in lanes_by_block.items() if not np.isin(np.concatenate(parts) // WARP, loops).any()]
        return other_warps or list(lanes_by_block)

    def _park(self, block: Block, lanes: np.ndarray) -> np.ndarray:
        """Lanes that do not wait where the block has ended."""
        for barrier, waiting_lanes in self.parking:
            resume = self.parked.setdefault(barrier, np.full(self.lanes, -1, np.int32))
            resume[waiting_lanes] = block.next_block
            lanes = np.setdiff1d(lanes, waiting_lanes, assume_unique=True)
        return lanes

    def _release_barriers(self, lanes_by_block: dict[int, list[np.ndarray]]) -> bool:
        """Let go on who no longer waits at a barrier; whether any did."""
        has_released = False
        for barrier in list(self.parked):
            resume = self.parked[barrier]
            ready_lanes = synchronisation.complete(self, barrier, resume >= 0)
            if not len(ready_lanes):
                continue
            has_released = True
            synchronisation.release(self, barrier, ready_lanes)
            for target in np.unique(resume[ready_lanes]):
                lanes_by_block.setdefault(int(target), []).append(ready_lanes[resume[ready_lanes] == target])
            resume[ready_lanes] = -1
            if (resume < 0).all():
                del self.parked[barrier]
        return has_released

    def _deadlock(self) -> None:
        barrier, resume = next(iter(self.parked.items()))
        thread = int(np.flatnonzero(resume >= 0)[0])
        raise fault("deadlock", f"thread {thread} waits at {barrier}, and no thread can go on", barrier.step, thread=thread)

    def _step(self, step: Step, registers: dict[str, Words], lanes: np.ndarray | None) -> None:
        if self.kernel.fragments:
            self.products.note(self, step, lanes)
        if not isinstance(step, ThreadStep):
            super()._step(step, registers, lanes)
            return
        self._steps += 1
        if self._steps > STEP_LIMIT:
            raise fault("timeout", f"more than {STEP_LIMIT} instructions", step)
        active = Active(self, registers, self.all if lanes is None else lanes)
        if step.guard:
            held = registers[step.guard]
            held = ~held if step.is_negated else held
            if not held.all():
                active.positions = np.flatnonzero(np.broadcast_to(held, len(active.lanes)))
                if not len(active.positions):
                    return
        step.execute(active, step)
        self.changes += changes_state(step.statement.opcode)


@dataclass(eq=False)
class Active:
    """The threads that execute a step: `lanes` run the block, `positions` among them those whose guard holds (None: all)."""

    machine: Threads
    registers: dict[str, Words]
    lanes: np.ndarray
    positions: np.ndarray | None = None
    _threads: np.ndarray | None = field(default=None, repr=False)

    @property
    def threads(self) -> np.ndarray:
        if self._threads is None:
            self._threads = self.lanes if self.positions is None else self.lanes[self.positions]
        return self._threads

    def read(self, source: str | Words) -> Words:
        """The words of a register, or the constant words `source`, one a thread."""
        words = self.registers[source] if source.__class__ is str else source
        if len(words) == 1:
            return np.broadcast_to(words, len(self.threads))
        return words if self.positions is None else words[self.positions]

    def write(self, name: str, words: Words) -> None:
        """One word a thread into the register `name`."""
        if name == "_":
            return
        if self.positions is None:
            self.registers[name] = words
            return
        earlier = self.registers[name] if name in self.registers or name in self.machine.registers else np.zeros(1, words.dtype)
        merged = np.empty(len(self.lanes), words.dtype)
        merged[:] = earlier
        merged[self.positions] = words
        self.registers[name] = merged

    def whole_warps(self, step: ThreadStep) -> np.ndarray:
        """The positions of `threads` by warp and lane, [warps, 32]. A fault where a warp is not together."""
        threads = self.threads
        if (
            len(threads) % WARP
            or (threads.reshape(-1, WARP) != threads[::WARP, None] + np.arange(WARP)).any()
            or (threads[::WARP] % WARP).any()
        ):
            raise fault("not modelled", f"{step.statement.opcode} where not all threads of a warp are together", step)
        return np.arange(len(threads)).reshape(-1, WARP)


def run_kernel(
    program: KernelProgram,
    shape: LaunchShape,
    arguments: Sequence[Words | TensorMap],
    memory: GlobalSpace,
    *,
    together: bool = False,
) -> None:
    """Execute a launch on `memory`. `arguments`: words [1] of each parameter's width. `together`: all CTAs at once, because some
    wait for others. An EmulatedFault for what is wrong with it."""
    cluster = shape.cluster_ctas
    per_batch = shape.ctas if together else max(1, LANES // (cluster * shape.threads)) * cluster
    with np.errstate(all="ignore"):
        for first_cta in range(0, shape.ctas, per_batch):
            threads = Threads(program, shape, first_cta, min(per_batch, shape.ctas - first_cta), memory, arguments)
            threads.run()
            memory.last_epoch = int(threads.order.epoch.max())


__all__ = ["Active", "Copy", "LaunchShape", "Threads", "run_kernel"]
