"""Kernels whose programs order one another: locks, flags, counters, chains, barriers of the whole grid. All are right as they
stand; `test_order.py` changes one text of each."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def lock(total, locks, BLOCK: tl.constexpr):
    """Each program adds its number + 1 to one row, under a lock."""
    places = total + tl.arange(0, BLOCK)
    while tl.atomic_cas(locks, 0, 1) == 1:
        pass
    tl.store(places, tl.load(places) + tl.program_id(0) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(locks, 0)


@triton.jit
def flag(data, flags, out, BLOCK: tl.constexpr):
    """Program 0 writes a row and raises a flag; the others wait for it and copy the row."""
    places = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(data + places, places + 5)
        tl.debug_barrier()
        tl.atomic_xchg(flags, 1)
    else:
        while tl.atomic_add(flags, 0) == 0:
            pass
        tl.store(out + tl.program_id(0) * BLOCK + places, tl.load(data + places))


@triton.jit
def flag_by_load_and_store(data, flags, out, BLOCK: tl.constexpr):
    """As `flag`, by an atomic load and an atomic store."""
    places = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(data + places, places + 5)
        tl.debug_barrier()
        tl.atomic_store(flags, 1)
    else:
        while tl.atomic_load(flags) == 0:
            pass
        tl.store(out + tl.program_id(0) * BLOCK + places, tl.load(data + places))


@triton.jit
def flag_by_poll(data, flags, out, BLOCK: tl.constexpr):
    """As `flag`, by `tl.atomic_poll`."""
    places = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(data + places, places + 5)
        tl.debug_barrier()
        tl.atomic_store(flags, 1, sem="release")
    else:
        tl.atomic_poll(flags, 1, sem="acquire")
        tl.store(out + tl.program_id(0) * BLOCK + places, tl.load(data + places))


@triton.jit
def flag_by_volatile_load(data, flags, out, BLOCK: tl.constexpr):
    """As `flag`; who waits spins on a volatile load, then acquires."""
    places = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(data + places, places + 5)
        tl.debug_barrier()
        tl.atomic_xchg(flags, 1, sem="release")
    else:
        while tl.load(flags, volatile=True) == 0:
            pass
        tl.atomic_add(flags, 0, sem="acquire")
        tl.store(out + tl.program_id(0) * BLOCK + places, tl.load(data + places))


@triton.jit
def flag_by_fences(data, flags, out, BLOCK: tl.constexpr):
    """As `flag`, by relaxed accesses and fences of the author's own."""
    places = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(data + places, places + 5)
        tl.debug_barrier()
        tl.inline_asm_elementwise("fence.acq_rel.gpu; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)  # before
        tl.atomic_xchg(flags, 1, sem="relaxed")
    else:
        while tl.load(flags, volatile=True) == 0:
            pass
        tl.inline_asm_elementwise("fence.acq_rel.gpu; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)  # behind
        tl.store(out + tl.program_id(0) * BLOCK + places, tl.load(data + places))


@triton.jit
def counter(parts, counters, out, BLOCK: tl.constexpr):
    """Each program writes a part; the last to count adds all parts."""
    places, me, count = tl.arange(0, BLOCK), tl.program_id(0), tl.num_programs(0)
    tl.store(parts + me * BLOCK + places, places + me)
    tl.debug_barrier()
    if tl.atomic_add(counters, 1, sem="acq_rel") == count - 1:
        total = tl.zeros([BLOCK], tl.int32)
        for part in range(count):
            total += tl.load(parts + part * BLOCK + places)
        tl.store(out + places, total)
        tl.store(counters, 0)


@triton.jit
def counter_in_two_steps(parts, counters, out, BLOCK: tl.constexpr):
    """As `counter`, by a release and an acquire apart."""
    places, me, count = tl.arange(0, BLOCK), tl.program_id(0), tl.num_programs(0)
    tl.store(parts + me * BLOCK + places, places + me)
    tl.debug_barrier()
    if tl.atomic_add(counters, 1, sem="release") == count - 1:
        tl.atomic_add(counters, 0, sem="acquire")
        total = tl.zeros([BLOCK], tl.int32)
        for part in range(count):
            total += tl.load(parts + part * BLOCK + places)
        tl.store(out + places, total)


@triton.jit
def chain(sums, flags, out, BLOCK: tl.constexpr):
    """Program n waits for n - 1, adds its number + 1 to what that wrote, and hands it on."""
    places, me = tl.arange(0, BLOCK), tl.program_id(0)
    total = tl.full([BLOCK], 1, tl.int32) + me
    if me > 0:
        while tl.atomic_cas(flags + me - 1, 1, 1) != 1:
            pass
        total += tl.load(sums + (me - 1) * BLOCK + places)
    tl.store(sums + me * BLOCK + places, total)
    tl.debug_barrier()
    tl.atomic_xchg(flags + me, 1)
    if me == tl.num_programs(0) - 1:
        tl.store(out + places, total)


@triton.jit
def backward_chain(sums, flags, out, BLOCK: tl.constexpr):
    """As `chain`, from the last program to the first: each waits for a later one."""
    places, last = tl.arange(0, BLOCK), tl.num_programs(0) - 1
    me = tl.program_id(0)
    total = tl.full([BLOCK], 1, tl.int32) + me
    if me < last:
        while tl.atomic_add(flags + me + 1, 0) != 1:
            pass
        total += tl.load(sums + (me + 1) * BLOCK + places)
    tl.store(sums + me * BLOCK + places, total)
    tl.debug_barrier()
    tl.atomic_xchg(flags + me, 1)
    if me == 0:
        tl.store(out + places, total)


@triton.jit
def chain_by_ticket(sums, flags, out, BLOCK: tl.constexpr):
    """As `chain`, in the order in which programs begin."""
    places, me = tl.arange(0, BLOCK), tl.atomic_add(flags + 63, 1, sem="relaxed")
    total = tl.full([BLOCK], 1, tl.int32) + me
    if me > 0:
        while tl.atomic_add(flags + me - 1, 0, sem="acquire") != 1:
            pass
        total += tl.load(sums + (me - 1) * BLOCK + places)
    tl.store(sums + me * BLOCK + places, total)
    tl.debug_barrier()
    tl.atomic_add(flags + me, 1, sem="release")
    if me == tl.num_programs(0) - 1:
        tl.store(out + places, total)


@triton.jit
def grid_barrier(ring, arrived, out, BLOCK: tl.constexpr):
    """Each program writes its part, waits until all have, and reads its neighbour's."""
    places, me, count = tl.arange(0, BLOCK), tl.program_id(0), tl.num_programs(0)
    tl.store(ring + me * BLOCK + places, places + me)
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire") < count:
        pass
    tl.store(out + me * BLOCK + places, tl.load(ring + (me + 1) % count * BLOCK + places))


@triton.jit
def two_phases(ring, arrived, BLOCK: tl.constexpr):
    """Each program reads its neighbour's part, waits until all have, and only then writes its own."""
    places, me, count = tl.arange(0, BLOCK), tl.program_id(0), tl.num_programs(0)
    seen = tl.load(ring + (me + 1) % count * BLOCK + places)
    tl.atomic_add(arrived, 1)
    while tl.atomic_add(arrived, 0) < count:
        pass
    tl.store(ring + me * BLOCK + places, seen)


@triton.jit
def handed_on(data, flags, out, BLOCK: tl.constexpr):
    """Program 0 releases; program 1 counts on, relaxed; program 2 acquires what 1 left, and so what 0 wrote."""
    places, me = tl.arange(0, BLOCK), tl.program_id(0)
    if me == 0:
        tl.store(data + places, places + 5)
        tl.debug_barrier()
        tl.atomic_xchg(flags, 1, sem="release")
    elif me == 1:
        while tl.atomic_add(flags, 0, sem="relaxed") != 1:
            pass
        tl.atomic_add(flags, 1, sem="relaxed")
    else:
        while tl.atomic_add(flags, 0, sem="acquire") != 2:
            pass
        tl.store(out + places, tl.load(data + places))


@triton.jit
def through_a_third(data, flags, out, BLOCK: tl.constexpr):
    """Program 0 hands to 1, 1 hands to 2, which reads what 0 wrote."""
    places, me = tl.arange(0, BLOCK), tl.program_id(0)
    if me == 0:
        tl.store(data + places, places + 5)
        tl.debug_barrier()
        tl.atomic_xchg(flags, 1, sem="release")
    elif me == 1:
        while tl.atomic_add(flags, 0, sem="acquire") != 1:
            pass
        tl.atomic_xchg(flags + 1, 1, sem="release")
    else:
        while tl.atomic_add(flags + 1, 0, sem="acquire") != 1:
            pass
        tl.store(out + places, tl.load(data + places))


@triton.jit
def histogram(counts, values, BLOCK: tl.constexpr):
    """Relaxed counting: nothing else is shared, so nothing needs an order."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(values + places), 1, sem="relaxed")


@triton.jit
def count_read_back(counters, out, BLOCK: tl.constexpr):
    """Each program counts, and reads the count by an atomic."""
    tl.atomic_add(counters, 1, sem="relaxed")
    tl.store(out + tl.program_id(0), tl.atomic_load(counters, sem="relaxed"))


@triton.jit
def work_queue(queue, out, count, BLOCK: tl.constexpr):
    """Programs draw pieces of work until none is left."""
    piece = tl.atomic_add(queue, 1, sem="relaxed")
    while piece < count:
        places = piece * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + places, places + 1)
        piece = tl.atomic_add(queue, 1, sem="relaxed")


@triton.jit
def one_word(table, BLOCK: tl.constexpr):
    """All programs write the same words."""
    places = tl.arange(0, BLOCK)
    tl.store(table + places, places * 3)


@triton.jit
def turned_around(rows, BLOCK: tl.constexpr):
    """A row is written, and read from its other end."""
    places = rows + tl.program_id(0) * BLOCK
    tl.store(places + tl.arange(0, BLOCK), tl.arange(0, BLOCK))
    tl.debug_barrier()
    seen = tl.load(places + BLOCK - 1 - tl.arange(0, BLOCK))
    tl.debug_barrier()  # all have read
    tl.store(places + tl.arange(0, BLOCK), seen)


@triton.jit
def between_warp_groups(rows, BLOCK: tl.constexpr):
    """Eight warps; what the threads of one warp group write, those of the other read."""
    values = tl.arange(0, BLOCK)
    tl.store(rows + values, values)
    tl.debug_barrier()
    tl.store(rows + BLOCK + values, tl.load(rows + (values ^ 128)))


@triton.jit
def one_for_all(rows, BLOCK: tl.constexpr):
    """One thread writes a word that all threads read."""
    tl.store(rows, 7)
    tl.debug_barrier()
    tl.store(rows + BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK) + tl.load(rows))


@triton.jit
def summed_on_the_way(rows, BLOCK: tl.constexpr):
    """A sum of the row lies between write and read: threads of all warps meet in it."""
    values = tl.arange(0, BLOCK)
    tl.store(rows + values, values)
    total = tl.sum(values * 3)
    tl.store(rows + BLOCK + values, tl.load(rows + BLOCK - 1 - values) + total)


@triton.jit
def own_elements(rows, BLOCK: tl.constexpr):
    """What each thread writes it reads itself: that needs no barrier."""
    places = rows + tl.arange(0, BLOCK)
    tl.store(places, tl.arange(0, BLOCK))
    tl.store(places, tl.load(places) * 2 + 1)
    tl.store(places, tl.load(places) * 2 + 1)
    late = tl.arange(0, BLOCK) >= 100
    tl.store(places, tl.load(places, mask=late) + 5, mask=late)
    tl.store(places, tl.load(places, mask=late) - 5, mask=late)


@triton.jit
def patient(flags, found, most):
    """A spin that gives up after `most` looks."""
    looks, seen = 0, tl.atomic_add(flags, 0)
    while (seen == 0) & (looks < most):
        seen = tl.atomic_add(flags, 0)
        looks += 1
    tl.store(found, seen)
    tl.store(found + 1, looks)


@triton.jit
def by_bytes(words, out, BLOCK: tl.constexpr):
    """Program 0 writes words of four bytes; program 1 reads bytes of its own half."""
    places = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(words + places, places)
    else:
        single = (words + BLOCK).to(tl.pointer_type(tl.int8), bitcast=True)
        tl.store(out + places, tl.load(single + places).to(tl.int32))


@triton.jit
def read_by_all(table, out, BLOCK: tl.constexpr):
    """All programs read a word; the last writes another one."""
    tl.store(out + tl.program_id(0), tl.load(table))
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(table + 1, 5)


@triton.jit
def few_for_many(rows, out, BLOCK: tl.constexpr):
    """Fewer elements than threads: each warp loads them all, but what comes of them is stored by the threads that wrote them."""
    places = tl.arange(0, 32)
    tl.store(rows + places, places)
    seen = tl.load(rows + places) * 2
    tl.store(out + places, seen)


@triton.jit
def few_in_place(rows, out, BLOCK: tl.constexpr):
    """Fewer elements than threads: each warp sums its own copies, and one warp alone stores what comes of its sum."""
    places = tl.arange(0, 32)
    seen = tl.load(rows + places)
    tl.store(rows + places, seen - tl.sum(seen))


@triton.jit
def tally(word, out, BLOCK: tl.constexpr):
    """One thread keeps a tally in memory: no other needs what it reads."""
    tl.store(word, tl.load(word) + 1)
    tl.store(word, tl.load(word) + 1)
    tl.store(out, tl.load(word))


@triton.jit
def either_of(first, second, out, BLOCK: tl.constexpr):
    """A pointer that is one of two arguments."""
    places = tl.arange(0, BLOCK)
    chosen = tl.where(tl.program_id(0) > 0, first, second)
    tl.store(chosen + places, places)
    tl.store(out + tl.program_id(0) * BLOCK + places, places)


@triton.jit
def copied(source, out, BLOCK: tl.constexpr):
    """Nothing that is read is written."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(source + places))
