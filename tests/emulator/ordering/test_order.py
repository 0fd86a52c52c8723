"""Contract under test: programs that order one another are right under every schedule; a twin that differs by one text fails by
name, with both its lines and why the two are not ordered."""

# One file because each program stands beside its twins, which differ from it by one text and must fail.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitverdict.harness.emulator import Device, EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
from bitverdict.harness.emulator.memory import global_order
from bitverdict.harness.emulator.memory.global_order import GlobalOrder
from bitverdict.harness.emulator.mlir_reader import parse_program
from bitverdict.harness.emulator.releases import installed_release
from tests.support.emulated_launches import SCHEDULES, load
from tests.support.structure_kernels import lowered_to

HERE = Path(__file__).resolve().parents[2] / "support"
SOURCES = (HERE / "ordered_kernels.py", HERE / "ordered_gluon_kernels.py")
BLOCK, PROGRAMS = 256, 6
RELEASES_NOTHING, ACQUIRES_NOTHING = "releases nothing", "and acquires nothing"


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


def numbers(count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.int32)


def lock(kernel) -> bool:
    total = zeros(BLOCK)
    kernel[(PROGRAMS,)](total, zeros(1), BLOCK)
    return bool((total == PROGRAMS * (PROGRAMS + 1) // 2).all())


def flag(kernel) -> bool:
    out = zeros(PROGRAMS, BLOCK)
    kernel[(PROGRAMS,)](zeros(BLOCK), zeros(1), out, BLOCK)
    return bool((out[1:] == numbers(BLOCK) + 5).all())


def counter(kernel) -> bool:
    out = zeros(BLOCK)
    kernel[(PROGRAMS,)](zeros(PROGRAMS, BLOCK), zeros(1), out, BLOCK)
    return torch.equal(out, numbers(BLOCK) * PROGRAMS + PROGRAMS * (PROGRAMS - 1) // 2)


def chain(kernel) -> bool:
    out = zeros(BLOCK)
    kernel[(PROGRAMS,)](zeros(PROGRAMS, BLOCK), zeros(64), out, BLOCK)
    return bool((out == PROGRAMS * (PROGRAMS + 1) // 2).all())


def grid_barrier(kernel) -> bool:
    out = zeros(PROGRAMS, BLOCK)
    kernel[(PROGRAMS,)](zeros(PROGRAMS, BLOCK), zeros(1), out, BLOCK)
    return all(torch.equal(out[me], numbers(BLOCK) + (me + 1) % PROGRAMS) for me in range(PROGRAMS))


def two_phases(kernel) -> bool:
    ring = numbers(PROGRAMS * BLOCK).reshape(PROGRAMS, BLOCK)
    before = ring.clone()
    kernel[(PROGRAMS,)](ring, zeros(1), BLOCK)
    return torch.equal(ring, before.roll(-1, 0))


def three(kernel) -> bool:
    out = zeros(BLOCK)
    kernel[(3,)](zeros(BLOCK), zeros(2), out, BLOCK)
    return torch.equal(out, numbers(BLOCK) + 5)


def histogram(kernel) -> bool:
    counts, values = zeros(7), numbers(PROGRAMS * BLOCK) * 5 % 7
    kernel[(PROGRAMS,)](counts, values, BLOCK)
    return torch.equal(counts.long(), torch.bincount(values, minlength=7))


def count_read_back(kernel) -> bool:
    out = zeros(PROGRAMS)
    kernel[(PROGRAMS,)](zeros(1), out, BLOCK)
    return bool(((1 <= out) & (out <= PROGRAMS)).all())


def work_queue(kernel) -> bool:
    out = zeros(9 * BLOCK)
    kernel[(PROGRAMS,)](zeros(1), out, 9, BLOCK)
    return torch.equal(out, numbers(9 * BLOCK) + 1)


def one_word(kernel) -> bool:
    table = zeros(BLOCK)
    kernel[(PROGRAMS,)](table, BLOCK)
    return torch.equal(table, numbers(BLOCK) * 3)


def turned_around(kernel) -> bool:
    rows = zeros(PROGRAMS, BLOCK)
    kernel[(PROGRAMS,)](rows, BLOCK)
    return bool((rows == numbers(BLOCK).flip(0)).all())


def two_rows(expected: Callable[[torch.Tensor], torch.Tensor], warps: int = 4) -> Callable:
    def run(kernel) -> bool:
        rows = zeros(2, BLOCK)
        kernel[(1,)](rows, BLOCK, num_warps=warps)
        return torch.equal(rows[1], expected(numbers(BLOCK)))

    return run


def two_tensors(programs: int, size: int) -> Callable:
    """Right when it ends: what such a kernel writes is not the matter."""

    def run(kernel) -> bool:
        kernel[(programs,)](zeros(size), zeros(size), BLOCK)
        return True

    return run


def few_in_place(kernel) -> bool:
    rows = numbers(32)
    kernel[(1,)](rows, zeros(BLOCK), BLOCK)
    return torch.equal(rows, numbers(32) - 31 * 16)


def own_elements(kernel) -> bool:
    rows = zeros(BLOCK)
    kernel[(1,)](rows, BLOCK)
    return torch.equal(rows, numbers(BLOCK) * 4 + 3)


def bulk(programs: int) -> Callable:
    def run(kernel) -> bool:
        rows, out = torch.zeros(64, 64, dtype=torch.float16), torch.zeros(64, 64, dtype=torch.float16)
        source = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).half()
        tiles = TensorDescriptor.from_tensor(rows, [64, 64], gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16))
        kernel[(programs,)](rows, tiles, source, out, zeros(8), num_warps=4)
        return torch.equal(out, source)

    return run


KERNELS: dict[str, Callable] = {
    "lock": lock,
    "flag": flag,
    "flag_by_load_and_store": flag,
    "flag_by_poll": flag,
    "flag_by_volatile_load": flag,
    "flag_by_fences": flag,
    "counter": counter,
    "counter_in_two_steps": counter,
    "chain": chain,
    "backward_chain": chain,
    "chain_by_ticket": chain,
    "grid_barrier": grid_barrier,
    "two_phases": two_phases,
    "handed_on": three,
    "through_a_third": three,
    "histogram": histogram,
    "count_read_back": count_read_back,
    "work_queue": work_queue,
    "one_word": one_word,
    "turned_around": turned_around,
    "between_warp_groups": two_rows(lambda n: n ^ 128, warps=8),
    "one_for_all": two_rows(lambda n: n + 7),
    "summed_on_the_way": two_rows(lambda n: n.flip(0) + 3 * int(n.sum())),
    "own_elements": own_elements,
    "by_bytes": two_tensors(2, 2 * BLOCK),
    "read_by_all": two_tensors(PROGRAMS, BLOCK),
    "few_for_many": two_tensors(1, BLOCK),
    "few_in_place": few_in_place,
    "tally": two_tensors(1, 64),
    "stored_then_loaded": bulk(1),
    "stored_twice": bulk(1),
    "written_then_fetched": bulk(1),
    "in_its_own_layout": bulk(1),
    "all_in_one_word": bulk(1),
    "written_over_by_bulk": bulk(1),
    "replaced_in_place": bulk(1),
    "handed_to_tma": bulk(2),
    "fenced_then_handed": bulk(2),
    "stored_then_released": bulk(2),
    "between_partitions": bulk(1),
    "read_after_partitions": bulk(1),
    "counted_by_partitions": bulk(1),
}


@dataclass(frozen=True)
class Twin:
    """`replace` in the kernel (or what it calls) becomes `by`. `lines` are texts of the two lines that collide, in either role, of
    the one that waits for a deadlock. `says` is part of the message. `always`: under every schedule, else under one at least (in
    the others what was read happens to be ordered)."""

    kernel: str
    replace: str
    by: str
    lines: tuple[str, ...]
    says: str = ""
    outcome: str = "race"
    always: bool = True


ADDS = "tl.store(places, tl.load(places) + tl.program_id(0) + 1)"
WRITES, COPIES = "tl.store(data + places, places + 5)", "tl.store(out + tl.program_id(0) * BLOCK + places, tl.load(data + places))"
PART, PARTS = "tl.store(parts + me * BLOCK + places, places + me)", "total += tl.load(parts + part * BLOCK + places)"
SUMS, NEXT = "tl.store(sums + me * BLOCK + places, total)", "total += tl.load(sums + (me - 1) * BLOCK + places)"
RING, NEIGHBOUR = "tl.store(ring + me * BLOCK + places, places + me)", "tl.load(ring + (me + 1) % count * BLOCK + places)"
FENCE = 'tl.inline_asm_elementwise("fence.acq_rel.gpu; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)'
LOADED = "gl.load(rows + places_of())"
FETCH, PUT = "tma.async_load(tiles, [0, 0], arrived, tile)", "gl.store(rows + places_of(), gl.load(source + places_of())"
PROXY_FENCE, RELEASE = 'gl.inline_asm("fence.proxy.async;")', 'gl.atomic_xchg(flags, 1, sem="release")'
BULK = "tma.async_store(tiles, [0, 0], tile)"

# fmt: off
TWINS = (
    # a lock
    Twin("lock", "tl.atomic_cas(locks, 0, 1)", 'tl.atomic_cas(locks, 0, 1, sem="relaxed")', (ADDS, ADDS), ACQUIRES_NOTHING),
    Twin("lock", "tl.atomic_cas(locks, 0, 1)", 'tl.atomic_cas(locks, 0, 1, sem="release")', (ADDS, ADDS), ACQUIRES_NOTHING),
    Twin("lock", "tl.atomic_xchg(locks, 0)", 'tl.atomic_xchg(locks, 0, sem="relaxed")', (ADDS, ADDS), RELEASES_NOTHING),
    Twin("lock", "tl.atomic_xchg(locks, 0)", 'tl.atomic_xchg(locks, 0, sem="acquire")', (ADDS, ADDS), RELEASES_NOTHING),
    Twin("lock", "tl.atomic_xchg(locks, 0)", "tl.store(locks, 0)", ("tl.atomic_cas(locks", "tl.store(locks, 0)")),
    Twin("lock", "tl.atomic_xchg(locks, 0)", 'tl.atomic_xchg(locks, 0, scope="cta")',
         ("tl.atomic_cas(locks", "tl.atomic_xchg(locks"), "scope cta"),
    Twin("lock", "tl.atomic_xchg(locks, 0)", "pass", ("tl.atomic_cas(locks",), "another word than 1 in byte 0", "deadlock"),
    Twin("lock", "    while tl.atomic_cas(locks, 0, 1) == 1:\n        pass\n", "", (ADDS, ADDS)),
    Twin("lock", f"    {ADDS}\n    tl.debug_barrier()\n    tl.atomic_xchg(locks, 0)\n",
         f"    tl.atomic_xchg(locks, 0)\n    {ADDS}\n", (ADDS, ADDS), "before this"),
    Twin("lock", "tl.atomic_cas(locks, 0, 1) == 1:\n        pass\n", "tl.load(locks, volatile=True) == 1:\n        pass\n"
         "    tl.store(locks, 1)\n", ("tl.load(locks, volatile=True)", "tl.store(locks, 1)")),
    # a flag
    Twin("flag", f"        {WRITES}\n        tl.debug_barrier()\n        tl.atomic_xchg(flags, 1)\n",
         f"        tl.atomic_xchg(flags, 1)\n        {WRITES}\n", (WRITES, COPIES), "before this"),
    Twin("flag", "tl.atomic_xchg(flags, 1)", 'tl.atomic_xchg(flags, 1, sem="relaxed")', (WRITES, COPIES), RELEASES_NOTHING),
    Twin("flag", "tl.atomic_xchg(flags, 1)", "tl.store(flags, 1)", ("tl.store(flags, 1)", "tl.atomic_add(flags, 0)")),
    Twin("flag", "tl.atomic_xchg(flags, 1)", "pass", ("tl.atomic_add(flags, 0)",), "another word than 0", "deadlock"),
    Twin("flag", "tl.atomic_add(flags, 0)", 'tl.atomic_add(flags, 0, sem="relaxed")', (WRITES, COPIES), ACQUIRES_NOTHING),
    Twin("flag", "tl.atomic_add(flags, 0)", "tl.load(flags, volatile=True)", (WRITES, COPIES), "volatile load"),
    Twin("flag", "tl.atomic_add(flags, 0)", "tl.load(flags)", (WRITES, COPIES)),
    Twin("flag", "tl.atomic_add(flags, 0)", 'tl.atomic_add(flags, 0, scope="cta")', ("tl.atomic_",), "scope cta"),
    Twin("flag", "        while tl.atomic_add(flags, 0) == 0:\n            pass\n", "", (WRITES, COPIES)),
    Twin("flag_by_load_and_store", "tl.atomic_store(flags, 1)", 'tl.atomic_store(flags, 1, sem="relaxed")', (WRITES, COPIES),
         RELEASES_NOTHING),
    Twin("flag_by_load_and_store", "tl.atomic_load(flags)", 'tl.atomic_load(flags, sem="relaxed")', (WRITES, COPIES),
         ACQUIRES_NOTHING),
    Twin("flag_by_poll", 'sem="release"', 'sem="relaxed"', (WRITES, COPIES), RELEASES_NOTHING),
    Twin("flag_by_poll", 'sem="acquire"', 'sem="relaxed"', (WRITES, COPIES), ACQUIRES_NOTHING),
    Twin("flag_by_poll", "tl.atomic_poll(flags, 1,", "tl.atomic_poll(flags, 2,", ("tl.atomic_poll",), "another word", "deadlock"),
    Twin("flag_by_volatile_load", '        tl.atomic_add(flags, 0, sem="acquire")\n', "", (WRITES, COPIES), "volatile load"),
    Twin("flag_by_fences", f"{FENCE}  # before", "pass", (WRITES, COPIES), RELEASES_NOTHING),
    Twin("flag_by_fences", f"{FENCE}  # behind", "pass", (WRITES, COPIES), "volatile load"),
    Twin("flag_by_fences", f"{FENCE}  # before", FENCE.replace("gpu", "cta"), (WRITES, COPIES), RELEASES_NOTHING),
    Twin("flag_by_fences", f"{FENCE}  # before", FENCE.replace("acq_rel", "acquire"), (WRITES, COPIES), RELEASES_NOTHING),
    Twin("flag_by_fences", "        tl.debug_barrier()\n", "", (WRITES, COPIES)),  # each thread fences what it wrote itself
    # a counter: the last program reduces
    Twin("counter", 'sem="acq_rel"', 'sem="relaxed"', (PART, PARTS), RELEASES_NOTHING),
    Twin("counter", 'sem="acq_rel"', 'sem="release"', (PART, PARTS), ACQUIRES_NOTHING),
    Twin("counter", 'sem="acq_rel"', 'sem="acquire"', (PART, PARTS), RELEASES_NOTHING),
    Twin("counter", f'    {PART}\n    tl.debug_barrier()\n    if tl.atomic_add(counters, 1, sem="acq_rel") == count - 1:\n',
         f'    seen = tl.atomic_add(counters, 1, sem="acq_rel")\n    {PART}\n    if seen == count - 1:\n', (PART, PARTS),
         "before this"),
    Twin("counter", "== count - 1", "== count - 2", (PART, PARTS)),
    Twin("counter", "    tl.debug_barrier()\n    if tl.atomic_add(counters, 1, sem=\"acq_rel\")",
         "    if tl.atomic_add(counters, 1, sem=\"relaxed\")", (PART, PARTS)),
    Twin("counter_in_two_steps", '        tl.atomic_add(counters, 0, sem="acquire")\n', "", (PART, PARTS), ACQUIRES_NOTHING),
    # chains
    Twin("chain", "tl.atomic_cas(flags + me - 1, 1, 1) != 1", "tl.atomic_cas(flags + me - 1, 1, 1) == 2", (SUMS, NEXT),
         always=False),
    Twin("chain", "tl.atomic_xchg(flags + me, 1)", 'tl.atomic_xchg(flags + me, 1, sem="relaxed")', (SUMS, NEXT), RELEASES_NOTHING),
    Twin("chain", "tl.atomic_xchg(flags + me, 1)", "tl.atomic_xchg(flags + me + 1, 1)", ("tl.atomic_cas",), "", "deadlock"),
    Twin("chain", f"    {SUMS}\n    tl.debug_barrier()\n    tl.atomic_xchg(flags + me, 1)\n",
         f"    tl.atomic_xchg(flags + me, 1)\n    {SUMS}\n", (SUMS, NEXT), "before this"),
    Twin("backward_chain", "tl.atomic_add(flags + me + 1, 0) != 1", 'tl.atomic_add(flags + me + 1, 0, sem="relaxed") != 1',
         (SUMS, "total += tl.load(sums + (me + 1)"), ACQUIRES_NOTHING),
    Twin("chain_by_ticket", 'tl.atomic_add(flags + me, 1, sem="release")', 'tl.atomic_add(flags + me, 1, sem="acquire")',
         (SUMS, NEXT), RELEASES_NOTHING),
    Twin("handed_on", 'tl.atomic_add(flags, 1, sem="relaxed")', 'tl.atomic_store(flags, 2, sem="relaxed")',
         (WRITES, "tl.store(out + places, tl.load(data"), always=False),  # a store ends what the release began; an update goes on
    Twin("handed_on", 'tl.atomic_xchg(flags, 1, sem="release")', 'tl.atomic_xchg(flags, 1, sem="relaxed")',
         (WRITES, "tl.store(out + places, tl.load(data"), RELEASES_NOTHING),
    Twin("through_a_third", 'tl.atomic_add(flags, 0, sem="acquire")', 'tl.atomic_add(flags, 0, sem="relaxed")',
         (WRITES, "tl.store(out + places, tl.load(data")),
    Twin("through_a_third", 'tl.atomic_xchg(flags + 1, 1, sem="release")', 'tl.atomic_xchg(flags + 1, 1, sem="acquire")',
         (WRITES, "tl.store(out + places, tl.load(data")),
    # barriers of the whole grid
    Twin("grid_barrier", 'tl.atomic_add(arrived, 1, sem="release")', 'tl.atomic_add(arrived, 1, sem="relaxed")', (RING, NEIGHBOUR),
         RELEASES_NOTHING),
    Twin("grid_barrier", 'sem="acquire") < count', 'sem="relaxed") < count', (RING, NEIGHBOUR), ACQUIRES_NOTHING),
    Twin("grid_barrier", 'sem="acquire") < count', 'sem="acquire") < count - 1', (RING, NEIGHBOUR), always=False),
    Twin("grid_barrier", 'sem="acquire") < count', 'sem="acquire") <= count', ("tl.atomic_add(arrived, 0",), "another word than 6",
         "deadlock"),
    Twin("two_phases", "    while tl.atomic_add(arrived, 0) < count:\n        pass\n", "",
         (NEIGHBOUR, "tl.store(ring + me * BLOCK + places, seen)")),
    # atomics and ordinary accesses
    Twin("histogram", 'sem="relaxed"', 'sem="relaxed", scope="cta"', ("tl.atomic_add(counts",), "scope cta"),
    Twin("histogram", 'tl.atomic_add(counts + tl.load(values + places), 1, sem="relaxed")',
         "tl.store(counts + tl.load(values + places), tl.program_id(0))", ("tl.store(counts",), "different values"),
    Twin("count_read_back", 'tl.atomic_load(counters, sem="relaxed")', "tl.load(counters)",
         ("tl.atomic_add(counters", "tl.load(counters)")),
    Twin("work_queue", '    piece = tl.atomic_add(queue, 1, sem="relaxed")\n    while', "    piece = tl.load(queue)\n    while",
         ("piece = tl.load(queue)", "piece = tl.atomic_add(queue")),
    Twin("one_word", "places * 3", "places * 3 + tl.program_id(0)", ("tl.store(table",), "different values"),
    Twin("one_word", "places * 3)", "tl.load(table + places))", ("tl.store(table",), "reads byte 0 of table"),  # equal words
    Twin("by_bytes", "words + BLOCK", "words + BLOCK // 2", ("tl.store(words", "tl.load(single")),
    Twin("by_bytes", "(words + BLOCK)", "(words + 1)", ("tl.store(words", "tl.load(single")),
    Twin("read_by_all", "table + 1, 5", "table, 5", ("tl.load(table)", "tl.store(table")),
    # threads of one program
    Twin("turned_around", "    tl.debug_barrier()\n    seen", "    seen",
         ("tl.store(places + tl.arange(0, BLOCK), tl.arange", "seen ="), "another thread of it wrote"),
    Twin("turned_around", "    tl.debug_barrier()  # all have read\n", "", ("seen =", "BLOCK), seen)"),
         "another thread of it read"),
    Twin("one_for_all", "    tl.debug_barrier()\n", "", ("tl.store(rows, 7)", "tl.load(rows))"), "another thread of it wrote"),
    Twin("between_warp_groups", "    tl.debug_barrier()\n", "", ("tl.store(rows + values", "(values ^ 128)"),
         "another thread of it wrote"),
    Twin("all_in_one_word", "    gl.barrier()\n", "", ("gl.store(word", "gl.load(word)"), "another thread of it wrote"),
    Twin("summed_on_the_way", "tl.sum(values * 3)", "1", ("tl.store(rows + values", "tl.load(rows + BLOCK"), "no barrier"),
    Twin("own_elements", "* 2 + 1)\n    tl.store(places, tl.load(places)", "* 2 + 1)\n    tl.store(places, tl.load(places + 1)",
         ("tl.store(places, tl.load(places) * 2 + 1)", "tl.load(places + 1)"), "no barrier"),
    Twin("few_for_many", "tl.store(out + places, seen)", "tl.store(out + tl.arange(0, BLOCK), tl.sum(seen) + tl.arange(0, BLOCK))",
         ("tl.store(rows + places", "seen ="), "no barrier"),
    Twin("few_in_place", "seen - tl.sum(seen))",
         "seen)\n    tl.store(out + tl.arange(0, BLOCK), tl.sum(seen) + tl.arange(0, BLOCK))",
         ("tl.store(rows + places", "seen ="), "another thread of it read"),
    Twin("few_in_place", "seen - tl.sum(seen)", "seen - tl.load(out + tl.sum(seen) % BLOCK)",
         ("tl.store(rows + places", "seen ="), "another thread of it read"),
    Twin("few_in_place", "    tl.store(", "    if tl.sum(seen) > 0:\n        tl.store(",
         ("tl.store(rows + places", "seen ="), "another thread of it read"),
    Twin("tally", "tl.store(out, tl.load(word))", "tl.store(out + tl.arange(0, 64), tl.load(word) + tl.arange(0, 64))",
         ("tl.store(word", "tl.store(out"), "no barrier"),
    Twin("in_its_own_layout", "own = places_of()", "own = places_of(2)", (PUT, "gl.load(rows + own)"),
         "another thread of it wrote"),
    # bulk stores, proxies, partitions
    Twin("stored_then_loaded", "read_only=False", "read_only=True", (BULK, LOADED), "no wait for its writes"),
    Twin("stored_twice", "tma.store_wait(pendings=0, read_only=False)\n    tile.store(",
         "tma.store_wait(pendings=0)\n    tile.store(", (BULK, BULK), "no wait for its writes"),
    Twin("stored_twice", "read_only=False)  # and", "read_only=True)  # and", (BULK, LOADED), "no wait for its writes"),
    Twin("written_then_fetched", '    gl.inline_asm("fence.proxy.async;")\n', "", (PUT, FETCH), "no proxy fence"),
    Twin("written_then_fetched", 'gl.inline_asm("fence.proxy.async;")', 'gl.inline_asm("fence.proxy.async.shared::cta;")',
         (PUT, FETCH), "no proxy fence"),
    Twin("written_then_fetched", '    gl.inline_asm("fence.proxy.async;")\n    gl.barrier()\n',
         '    gl.barrier()\n    fence_async_shared()\n', (PUT, FETCH), "no proxy fence"),
    Twin("written_over_by_bulk", '    gl.inline_asm("fence.proxy.async.global;")\n', "", (PUT, BULK), "no proxy fence"),
    Twin("replaced_in_place", "read_only=False", "read_only=True", (BULK, LOADED), "no wait for its writes"),
    Twin("handed_to_tma", '        gl.inline_asm("fence.proxy.async;")\n', "", (PUT, FETCH), "no proxy fence"),
    Twin("handed_to_tma", 'sem="acquire"', 'sem="relaxed"', (PUT, FETCH), "nothing orders them"),
    Twin("handed_to_tma", 'gl.barrier()\n        gl.atomic_xchg(flags, 1, sem="release")',
         'gl.atomic_xchg(flags, 1, sem="relaxed")', (PUT, FETCH), RELEASES_NOTHING),
    Twin("fenced_then_handed", f"        {PROXY_FENCE}\n        gl.barrier()\n        {RELEASE}\n",
         f"        {RELEASE}\n        {PROXY_FENCE}\n", (PUT, FETCH), "no proxy fence"),
    Twin("stored_then_released", "read_only=False", "read_only=True", (BULK, LOADED), "no wait of program 0 covers"),
    Twin("read_after_partitions", "(adding_partition, (flags, 0)), (copying", "(copying_partition, (out, rows)), (copying",
         ("gl.store(rows + places_of(), gl.load(source + places_of()))",) * 2, "another partition"),
    Twin("between_partitions", "    mbarrier.wait(written, 0)\n", "", (PUT, LOADED), "another partition"),
    Twin("between_partitions", f"    {PUT})\n    mbarrier.arrive(written, count=1)\n",
         f"    mbarrier.arrive(written, count=1)\n    {PUT})\n", (PUT, LOADED), "another partition"),
    Twin("counted_by_partitions", 'gl.atomic_add(counts + places, 1, sem="relaxed")', "gl.store(counts + places, gl.num_warps() + "
         "gl.load(counts + places))", ("gl.store(counts",), "another partition"),
)
# fmt: on


def source_of(kernel: str) -> Path:
    (found,) = (path for path in SOURCES if f"def {kernel}(" in path.read_text())
    return found


def edited(twin: Twin, folder: Path) -> ModuleType:
    """The kernels' module with the one text replaced: in the kernel, or in what comes before it."""
    head, found, body = source_of(twin.kernel).read_text().partition(f"def {twin.kernel}(")
    mine = body.partition("\n\n\n")[0] + "\n"
    if twin.replace in mine:
        assert mine.count(twin.replace) == 1
        body = body.replace(twin.replace, twin.by, 1)
    else:
        assert head.count(twin.replace) == 1
        head = head.replace(twin.replace, twin.by)
    path = folder / "twin.py"
    path.write_text(head + found + body)
    return load(path)


def launched(module: ModuleType, kernel: str, schedule: str, arch: str = "sm_90") -> tuple[bool, Device]:
    with emulated(arch, schedule) as device:
        return KERNELS[kernel](getattr(module, kernel)), device


@pytest.mark.share(2)
@pytest.mark.parametrize("kernel", KERNELS)
def test_programs_that_order_one_another_are_right(kernel):
    module = load(source_of(kernel))
    for schedule in SCHEDULES:
        right, device = launched(module, kernel, schedule)
        assert right and not device.findings, schedule


@pytest.mark.parametrize("kernel", ["lock", "counter", "chain", "turned_around", "flag_by_fences"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_they_are_right_on_the_other_architectures(kernel, arch):
    assert launched(load(source_of(kernel)), kernel, "drawn:5", arch)[0]


@pytest.mark.share(3)
@pytest.mark.parametrize("twin", TWINS, ids=lambda t: f"{t.kernel}-{TWINS.index(t)}")
def test_a_twin_fails_by_name_with_both_its_lines(twin, tmp_path):
    module = edited(twin, tmp_path)
    lines = (tmp_path / "twin.py").read_text().splitlines()
    found = 0
    for schedule in SCHEDULES:
        try:
            launched(module, twin.kernel, schedule)
        except EmulatedFault as fault:
            found += 1
            assert fault.outcome == twin.outcome, (schedule, str(fault))
            assert found > 1 or twin.says in fault.message, fault.message
            places = [fault.location, fault.details.get("other location", "")][: 1 if twin.outcome == "deadlock" else 2]
            told = [lines[int(place.rpartition(":")[2]) - 1] for place in places]
            assert all(any(text in line for line in told) for text in twin.lines), (schedule, told)
            assert all(any(text in line for text in twin.lines) for line in told), (schedule, told)
        else:
            assert not twin.always, schedule
    assert found


@pytest.mark.parametrize("schedule", ["eager", "latest"])
@pytest.mark.parametrize("warps", [1, 2])
def test_a_warp_has_read_for_all_its_threads_before_one_of_them_writes(warps, schedule):
    """Another warp may read only then, and take the other way."""
    x = torch.full((1,), 100, dtype=torch.int32)
    with emulated("sm_90", schedule):
        if warps == 1:
            lowered_to[(1,)](x, num_warps=1)
            assert x.item() == 42
        else:
            with pytest.raises(EmulatedFault, match=r"race: .* writes byte 0 of x, which another thread of it read"):
                lowered_to[(1,)](x, num_warps=2)


def test_copies_of_other_warps_that_decide_nothing_are_an_advice():
    """What each element's own thread stores of what it loaded itself is none."""
    module = load(SOURCES[0])
    _, device = launched(module, "few_in_place", "eager")
    line = 1 + SOURCES[0].read_text().splitlines().index("    seen = tl.load(rows + places)")
    (advice,) = [said for said in device.advice if "decides nothing" in said]
    assert f"ordered_kernels.py:{line}: " in advice
    assert not launched(module, "few_for_many", "eager")[1].advice


def test_there_are_many_pairs_of_right_and_wrong():
    assert len(TWINS) >= 80 and {twin.kernel for twin in TWINS} == set(KERNELS)


@pytest.mark.parametrize(("synchronises", "agents", "fences", "epochs"), [
    (False, 1, False, 0), (False, 1, True, 0), (False, 2, False, 2), (True, 1, False, 1), (True, 1, True, 2), (True, 4, True, 8),
])  # fmt: skip
def test_programs_that_tell_each_other_nothing_keep_no_clocks(synchronises, agents, fences, epochs):
    """Each clock has an epoch of each program: too much to keep for a large grid where nobody ever asks."""
    facts = SimpleNamespace(synchronises=synchronises, agents=agents, fences_proxy=fences)
    assert GlobalOrder(1 << 20, facts, []).clock_length == epochs << 20


def noted(kernel, programs: int, *given, schedule: str = "eager") -> tuple[set[str], set[str]]:
    """(names of the tensors whose loads were remembered, of those whose stores were) in one launch."""
    reads, writes = set(), set()
    read, write = GlobalOrder.read, GlobalOrder.write

    def on_read(self, op, agent, region, *rest):
        reads.add(region.name)
        read(self, op, agent, region, *rest)

    def on_write(self, op, agent, region, *rest):
        writes.add(region.name)
        write(self, op, agent, region, *rest)

    with pytest.MonkeyPatch.context() as patch, emulated("sm_90", schedule):
        patch.setattr(GlobalOrder, "read", on_read)
        patch.setattr(GlobalOrder, "write", on_write)
        kernel[(programs,)](*given, BLOCK)
    return reads, writes


def test_loads_of_what_no_program_writes_are_not_remembered():
    module = load(SOURCES[0])
    assert noted(module.copied, 2, zeros(2 * BLOCK), zeros(2 * BLOCK)) == (set(), {"out"})
    assert noted(module.two_phases, 2, zeros(2 * BLOCK), zeros(1)) == ({"ring"}, {"ring"})


def test_a_pointer_that_may_be_one_of_two_writes_both():
    module = load(SOURCES[0])
    with emulated("sm_90", options=LaunchOptions(dry=True)) as device:
        module.either_of[(2,)](zeros(BLOCK), zeros(BLOCK), zeros(2 * BLOCK), BLOCK)
    facts = ProgramFacts(parse_program(device.launches[-1].program))
    assert facts.written == {0, 1, 2} and not facts.writes_any and not facts.synchronises and not facts.polling_operations


def test_two_names_of_one_memory_are_one():
    module, memory = load(SOURCES[0]), zeros(2 * BLOCK)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"race.*program 1 reads byte 1024"):
        module.copied[(2,)](memory, memory[BLOCK:], BLOCK)


def test_equal_words_of_two_programs_are_an_advice_that_names_the_line():
    _, device = launched(load(SOURCES[0]), "one_word", "eager")
    (said,) = device.advice
    assert "equal" not in said and "nothing orders the two" in said and "ordered_kernels.py" in said


def test_a_release_that_rests_on_the_compilers_barrier_is_an_advice(tmp_path):
    """Where it inserts one: else it is a race."""
    twin = Twin("chain", "    tl.debug_barrier()\n", "", ())
    if not installed_release().meets_at_atomics:
        with pytest.raises(EmulatedFault, match="nothing orders them"):
            launched(edited(twin, tmp_path), "chain", "eager")
        return
    right, device = launched(edited(twin, tmp_path), "chain", "eager")
    assert right and any("behind a barrier that the compiler inserts" in said for said in device.advice)
    assert not launched(load(SOURCES[0]), "chain", "eager")[1].advice


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_messages_that_no_word_carries_are_forgotten(monkeypatch, schedule):
    """With room for three messages all that follows is as with room for all."""
    kept = []
    monkeypatch.setattr(global_order, "MESSAGE_BYTES", 3 * 4 * 40)
    compact = GlobalOrder.compact
    monkeypatch.setattr(GlobalOrder, "compact", lambda self: (compact(self), kept.append(len(self.messages)))[0])
    module, total, out = load(SOURCES[0]), zeros(BLOCK), zeros(BLOCK)
    with emulated("sm_90", schedule):
        module.lock[(40,)](total, zeros(1), BLOCK)
        module.counter[(40,)](zeros(40, BLOCK), zeros(1), out, BLOCK)
    assert (total == 820).all() and kept and max(kept) <= 2
    assert torch.equal(out, numbers(BLOCK) * 40 + 780)


def test_what_is_in_flight_lands_before_nobody_can_move():
    """A bulk store that another program waits to see, by a load that nothing orders: found as that, not as a deadlock."""
    module = load(SOURCES[1])
    rows, flags = torch.zeros(64, 64, dtype=torch.float16), zeros(8)
    tiles = TensorDescriptor.from_tensor(rows, [64, 64], gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16))
    with emulated("sm_90", "latest"), pytest.raises(EmulatedFault) as raised:
        module.watched[(2,)](rows, tiles, rows + 1, torch.zeros_like(rows), flags, num_warps=4)
    assert raised.value.outcome == "race"
