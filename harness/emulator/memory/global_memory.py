"""Global memory as the launch's own tensors, reached by real addresses, each access held to what their sizes and strides reach."""

# One file because loads, stores and atomics walk the same regions, and each must see what another left there.
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.async_rules import Proxy
from bitverdict.harness.emulator.device_probe import DeviceProbe, WordAccess, hooks
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES, words_in, zeros
from bitverdict.harness.emulator.memory.global_order import ORDINARY, Access, GlobalOrder, Marks

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.partitions import Agent
    from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
    from bitverdict.harness.emulator.memory.real_shadows import Shadow, ShadowWords
    from bitverdict.harness.emulator.memory.real_updates import RealUpdate
    from bitverdict.harness.emulator.mlir_reader import Operation


WRAPPED_OFFSET = 1 << 30  # elements off, from which an offset of 32 bits has most likely run over
GUARD_BYTES = 1 << 16  # on each side of an operand on the host; a multiple of 512, so that views keep their alignment


@dataclass(eq=False)
class Region:
    """One storage that the launch was given. Bytes `low`..`high` of it are reachable through its tensors' sizes and strides;
    `allowed_bytes` says which of them are, where that is not all."""

    base: int
    raw: np.ndarray  # (bytes,) uint8
    name: str
    low: int
    high: int
    allowed_bytes: np.ndarray | None
    keep: Any
    changes: bool = False  # an operation of the launch may write it
    is_followed: bool = False  # the launch was not given it: only an address that lay in memory leads to it
    is_loaded: bool = False  # the launch has loaded from it, or updated what lay there
    marks: Marks | None = None
    shadow: Shadow | None = None  # the real values of what was computed; None where nothing was
    access_types: set[np.dtype] = field(default_factory=set)  # as what elements the launch loads and stores it, by NumPy's types

    def __post_init__(self) -> None:
        self.end = self.base + self.raw.size

    def words(self, size: int) -> np.ndarray:
        """All of it as unsigned words of `size` bytes."""
        return words_in(self.raw, size)

    def takes(self, places: slice | np.ndarray, size: int) -> ShadowWords | None:
        """The real values of the words of `size` bytes at `places` (their numbers); None where all are exact."""
        return None if self.shadow is None else self.shadow.take(places, size)

    def carry(self, places: slice | np.ndarray, size: int, shadow_words: ShadowWords | None) -> None:
        """The words of `size` bytes at `places` (their numbers) have the real values `shadow_words` now; None: they are exact."""
        if self.shadow is None:
            if shadow_words is None:
                return
            from bitverdict.harness.emulator.memory.real_shadows import Shadow

            self.shadow = Shadow(self.raw.size)
        self.shadow.put(places, size, shadow_words)


@dataclass(eq=False)
class BulkLanding:
    """Where a bulk store in flight will write in one storage; `earlier_events` (places,) are events of others that only equal words
    forgive."""

    region: Region
    offsets: np.ndarray
    inside: np.ndarray | None
    event: int
    access: Access
    earlier_events: np.ndarray


class GlobalMemory:
    """The storages behind a launch's tensor arguments. Each access is held to the extent of those tensors and told to `probes`."""

    def __init__(self, whole_storages: bool = False, probes: Iterable[DeviceProbe] = (), views_bind: bool = True) -> None:
        self.whole_storages, self.views_bind = whole_storages, views_bind
        self.load_hooks, self.combination_hooks, self.store_hooks = (
            hooks(probes, name) for name in ("on_load", "on_combination", "on_store")
        )
        self.regions: list[Region] = []
        self.addresses: list[tuple[str, int]] = []  # by name, that the launch was given in place of tensors
        self.following: frozenset[int] = frozenset()  # operations (by id) whose addresses may have lain in memory
        self.order: GlobalOrder

    def add(self, name: str, tensor: Any) -> int:
        """Make `tensor` (torch, CPU) reachable; returns the address of its first element."""
        import torch

        storage = tensor.untyped_storage()
        first_address = address = tensor.data_ptr()
        if tensor.numel() == 0 or storage.nbytes() == 0:
            return first_address
        base = storage.data_ptr()
        if self.whole_storages:
            tensor, address = torch.empty(0, dtype=torch.uint8).set_(storage), base  # (bytes,)
        size = tensor.element_size()
        start = address - base
        shape, strides = tuple(tensor.shape), tuple(s * size for s in tensor.stride())
        high = start + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + size
        region = next((r for r in self.regions if r.base == base), None)
        fresh = region is None
        if region is None:
            raw = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
            region = Region(base, raw, name, start, high, None, tensor)
            self.regions.append(region)
            self.regions.sort(key=lambda r: r.base)
        dense = torch.ops.aten.is_non_overlapping_and_dense(tensor)
        if fresh and dense:
            return first_address
        if region.allowed_bytes is None:
            region.allowed_bytes = zeros(region.raw.size, np.uint8)
            if not fresh:
                region.allowed_bytes[region.low : region.high] = 1
        region.low, region.high = min(region.low, start), max(region.high, high)
        if dense:
            region.allowed_bytes[start:high] = 1
        else:
            np.ndarray(shape, np.dtype((np.void, size)), region.allowed_bytes, start, strides)[...] = np.ones(size, np.uint8).view(
                f"V{size}"
            )[0]
        return first_address

    def follow(self, facts: ProgramFacts, allocations: Callable[[], Iterator[Any]]) -> None:
        """Let addresses lead into all of each of `allocations` (torch, CPU, uint8) too: those that lay in memory, and those that
        the launch was given in place of tensors."""
        if not facts.following_operations and not self.addresses:
            return
        known = {region.base for region in self.regions}
        for number, tensor in enumerate(allocations()):
            base, end = tensor.data_ptr(), tensor.data_ptr() + tensor.numel()
            name = next((name for name, address in self.addresses if base <= address < end), "")
            if base not in known and (name or facts.following_operations):
                self.add(name or f"tensor {number} of the device", tensor)
                next(region for region in self.regions if region.base == base).is_followed = not name

    def _locate(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, *, write: bool, agent: Agent
    ) -> Iterator[tuple[Region, np.ndarray, np.ndarray | None]]:
        """(region, byte offsets, mask) for each storage touched; a failure for an address no tensor of the launch reaches."""
        if mask is not None and not mask.all():
            if not mask.any():
                return
            addresses = np.where(mask, addresses, addresses.ravel()[int(mask.ravel().argmax())])
        else:
            mask = None
        low, high = int(addresses.min()), int(addresses.max()) + size
        region = next((r for r in self.regions if r.base <= low < r.end), None)
        verb = "write" if write else "read"
        if region is None and (owner := self._owner(op, low, high)) is not None:
            raise _stray(op, owner, addresses, mask, size, write=write, agent=agent)
        if region is None or (region.is_followed and id(op) not in self.following):
            raise EmulatedFault(
                "illegal address",
                f"{verb} of {size} bytes at {low:#x}, which is inside no tensor of the launch ({self._nearest(low)})",
                op.location,
                {"operation": op.brief, "program": str(agent.place)} | self._distance(low, size, verb),
            )
        if high > region.end:
            inside = addresses < region.end
            if mask is not None:
                inside &= mask
            across = inside & (addresses + size > region.end)  # a row of a bulk copy may begin in a tensor and end past it
            if across.any():
                first_place = int(addresses.ravel()[int(across.ravel().argmax())])
                raise EmulatedFault(
                    "illegal address",
                    f"{verb} of {size} bytes at {first_place:#x}, which end outside their tensor ({self._nearest(region.end)})",
                    op.location,
                    {"operation": op.brief, "program": str(agent.place)},
                )
            yield from self._locate(op, addresses, inside, size, write=write, agent=agent)
            yield from self._locate(op, addresses, ~inside if mask is None else ~inside & mask, size, write=write, agent=agent)
            return
        if size > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (size - 1):
            raise EmulatedFault(
                "misaligned address",
                f"{verb} of {size} bytes at an address that is no multiple of {size}",
                op.location,
                {"operation": op.brief, "program": str(agent.place)},
            )
        offsets = addresses - region.base
        if (
            low - region.base < region.low
            or high - region.base > region.high
            or (region.allowed_bytes is not None and not region.allowed_bytes.take(offsets).all())
        ):
            if self.views_bind:
                raise _stray(op, region, addresses, mask, size, write=write, agent=agent)
            self.order.notes.add(Note(Advice.OUTSIDE_VIEW, op.location, (f"{verb}s", region.name)))
        yield region, offsets, mask

    def _owner(self, op: Operation, low: int, high: int) -> Region | None:
        """The storage that the accesses of `op` to `low`..`high`, which lie outside every one, were meant for: the only one
        that its pointer leads to, no further away than where a judge would see them."""
        given = [getattr(self._arguments[number], "base", self._arguments[number]) for number in self._facts.arguments_behind(op)]
        owners = [region for region in self.regions if any(region.base <= address < region.end for address in given)]
        is_near = len(owners) == 1 and owners[0].base - GUARD_BYTES <= low and high <= owners[0].end + GUARD_BYTES
        return owners[0] if is_near else None

    def _run(self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int) -> tuple[Region, slice, int] | None:
        """(storage, bytes, elements) of an access to neighbouring elements, the first ones of the tile, all of which its tensors
        reach. None for any other, and for one that something is wrong with: `_locate` does the one and says the other."""
        flat = addresses.reshape(-1)  # (elements,)
        count = flat.size
        if mask is not None:
            count = int(np.count_nonzero(mask))
            if count < flat.size:
                if mask.shape != addresses.shape or not count or not mask.reshape(-1)[:count].all():
                    return None
                flat = flat[:count]
        low = int(flat[0])
        if int(flat[-1]) - low != (count - 1) * size or low & (size - 1):
            return None
        if count > 2 and not (flat[1:] - flat[:-1] == size).all():
            return None
        for region in self.regions:
            if region.base <= low < region.end:
                break
        else:
            return None
        if region.is_followed and id(op) not in self.following:
            return None
        first_byte = low - region.base
        end = first_byte + count * size
        if (
            first_byte < region.low
            or end > region.high
            or (region.allowed_bytes is not None and not region.allowed_bytes[first_byte:end:size].all())
        ):
            return None
        return region, slice(first_byte, end), count

    def holds(self, addresses: np.ndarray, size: int) -> bool:
        """Whether elements of `size` bytes at `addresses` (flat) all lie in storages of the launch."""
        inside = np.zeros(addresses.shape, np.bool_)
        for region in self.regions:
            inside |= (addresses >= region.base) & (addresses + size <= region.end)
        return bool(inside.all())

    def is_fixed(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Which elements of `size` bytes at `addresses` lie where tensors reach that the launch writes nothing into."""
        fixed_lanes = np.zeros(addresses.shape, np.bool_)
        for region in self.regions:
            offsets = addresses - region.base
            there = (offsets >= region.low) & (offsets + size <= region.high) & (not region.changes and not region.is_followed)
            fixed_lanes |= (
                there if region.allowed_bytes is None else there & (region.allowed_bytes.take(np.where(there, offsets, 0)) != 0)
            )
        return fixed_lanes

    def describe_address(self, address: int) -> str:
        """Where `address` is, as a person reads it."""
        region = next((r for r in self.regions if r.base <= address < r.end), None)
        return "outside every tensor" if region is None else f"byte {address - region.base - region.low} of {region.name}"

    def begin(self, programs: int, facts: ProgramFacts, arguments: Sequence[Any]) -> None:
        """A launch of `programs` programs begins: which storages it may write follows from its `arguments`."""
        self.following, self._facts, self._arguments = facts.following_operations, facts, arguments
        self.order = GlobalOrder(programs, facts, self.regions)
        for region in self.regions:
            region.changes = facts.writes_any
        for number in facts.written:
            address = getattr(arguments[number], "base", arguments[number])
            for region in self.regions:
                region.changes |= region.base <= address < region.end

    def _nearest(self, address: int) -> str:
        if not self.regions:
            return "it has none"
        region = min(self.regions, key=lambda r: max(r.base - address, address - r.end))
        return f"nearest: {region.name}, {address - region.base - region.low} bytes from its start"

    def _distance(self, address: int, size: int, verb: str) -> dict[str, str]:
        """Details of an access outside of all tensors: how many elements off the nearest, and what makes it so far."""
        if not self.regions:
            return {}
        region = min(self.regions, key=lambda each: max(each.base - address, address - each.end))
        element = (address - region.base - region.low) // size
        beyond = element - (region.high - region.low) // size
        where = f"{-element:,} elements before" if element < 0 else f"{beyond:,} elements beyond"
        summary = {"summary": f"{verb} {where} {region.name}"}
        if abs(element) < WRAPPED_OFFSET:
            return summary
        return summary | {"remedy": "an offset of 32 bits runs over: compute it in 64, for example tl.program_id(0).to(tl.int64)"}

    def load(
        self,
        op: Operation,
        addresses: np.ndarray,
        mask: np.ndarray | None,
        fill_value: np.ndarray | None,
        dtype: np.dtype,
        agent: Agent,
        kind: int | None = ORDINARY,
    ) -> np.ndarray:
        """What lies at `addresses` (int64, any shape), `other` where `mask` is False. None for zero: the compiled program clears
        the registers before it loads under a mask (`mov.u32 %r, 0x0`, on sm_80, sm_90 and sm_100). A race unless `agent` knows who
        wrote it; `kind` None asks nothing about order."""
        fill_value = np.zeros((), dtype) if fill_value is None else fill_value
        size = dtype.itemsize
        if (run := self._run(op, addresses, mask, size)) is not None:
            region, where, count = run
            region.is_loaded = True
            region.access_types.add(dtype)
            if region.changes and kind is not None:
                self.order.read(op, agent, region, where, None, size, kind)
            for tell in self.load_hooks:
                tell(WordAccess(op, region, places_of(where, None, size), size, agent))
            there = region.raw[where].view(dtype)
            if count == addresses.size:
                return there.reshape(addresses.shape).copy()
            filled = np.empty(addresses.shape, dtype)
            filled[...] = fill_value
            filled.reshape(-1)[:count] = there
            return filled
        result: np.ndarray | None = None
        for region, offsets, inside in self._locate(op, addresses, mask, size, write=False, agent=agent):
            region.is_loaded = True
            region.access_types.add(dtype)
            if region.changes and kind is not None:
                self.order.read(op, agent, region, offsets, inside, size, kind)
            for tell in self.load_hooks:
                tell(WordAccess(op, region, places_of(offsets, inside, size), size, agent))
            found = region.raw[: region.raw.size // size * size].view(dtype).take(offsets // size if size > 1 else offsets)
            if result is None:
                if inside is None:
                    return found
                result = np.broadcast_to(fill_value, addresses.shape).astype(dtype)
            np.copyto(result, found, where=True if inside is None else inside)
        if result is None:
            result = np.array(np.broadcast_to(fill_value, addresses.shape), dtype)
        return result

    def look(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, agent: Agent, kind: int, proxy: Proxy
    ) -> None:
        """Fail what a load from `addresses` through `proxy` would fail with."""
        for region, offsets, inside in self._locate(op, addresses, mask, size, write=False, agent=agent):
            if region.changes:
                self.order.read(op, agent, region, offsets, inside, size, kind, proxy)

    def shadow_words(self, addresses: np.ndarray, mask: np.ndarray | None, size: int) -> ShadowWords | None:
        """The real values of the words of `size` bytes at `addresses`, in their shape, which a load has found in order; exact where
        `mask` is False. None where all are exact."""
        merged_words: ShadowWords | None = None
        for region in self.regions:
            if not region.shadow:
                continue
            inside = (addresses >= region.base) & (addresses < region.end)
            if mask is not None:
                inside &= mask
            if not inside.any():
                continue
            whole = inside.all()
            offsets = addresses - region.base if whole else np.where(inside, addresses - region.base, 0)
            here = region.shadow.take(offsets // size if size > 1 else offsets, size)
            if here is not None:
                here = here if whole else here.where(inside)
                merged_words = here if merged_words is None else merged_words.merge_with(here)
        return merged_words

    def store(
        self,
        op: Operation,
        addresses: np.ndarray,
        values: np.ndarray,
        mask: np.ndarray | None,
        agent: Agent,
        shadow_words: ShadowWords | None = None,
    ) -> None:
        """`values` to `addresses`; `shadow_words`, of their shape, are their real values. A race: two lanes of one store, or two
        programs, leave different values at one address."""
        size = values.dtype.itemsize
        words = values.view(UNSIGNED_TYPES[size])
        if words.shape == addresses.shape and (run := self._run(op, addresses, mask, size)) is not None:
            region, where, count = run
            region.access_types.add(values.dtype)
            given = words.reshape(-1)[:count]
            self.order.write(op, agent, region, where, None, given)
            region.raw[where].view(given.dtype)[:] = given
            whole = slice(where.start // size, where.stop // size)
            for tell in self.store_hooks:
                tell(WordAccess(op, region, whole, size, agent))
            region.carry(whole, size, None if shadow_words is None else shadow_words.reshape(-1)[:count])
            return
        for region, offsets, inside in self._locate(op, addresses, mask, size, write=True, agent=agent):
            region.access_types.add(values.dtype)
            self.order.write(op, agent, region, offsets, inside, words)
            places = offsets // size if size > 1 else offsets
            self._put(op, region, places, words, inside, agent, shadow_words)

    def _put(
        self,
        op: Operation,
        region: Region,
        places: np.ndarray,
        words: np.ndarray,
        inside: np.ndarray | None,
        agent: Agent,
        shadow_words: ShadowWords | None,
    ) -> None:
        memory = region.words(words.dtype.itemsize)
        if inside is not None:
            places, words, shadow_words = places[inside], words[inside], None if shadow_words is None else shadow_words[inside]
        memory[places] = words
        for tell in self.store_hooks:
            tell(WordAccess(op, region, places.reshape(-1), words.dtype.itemsize, agent))
        region.carry(places, words.dtype.itemsize, shadow_words)
        if (memory.take(places) != words).any():
            raise EmulatedFault(
                "race",
                f"lanes of one store write different values to one address of {region.name}",
                op.location,
                {"operation": op.brief, "program": str(agent.place), "other operation": op.brief, "other location": op.location},
            )

    def issue(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, agent: Agent, proxy: Proxy
    ) -> list[BulkLanding]:
        """A bulk store to `addresses` is issued: where it will land. Nobody may touch that before a wait for its writes."""
        return [
            BulkLanding(region, offsets, inside, *self.order.bulk_write(op, agent, region, offsets, inside, size, proxy))
            for region, offsets, inside in self._locate(op, addresses, mask, size, write=True, agent=agent)
        ]

    def land(
        self,
        op: Operation,
        landings: list[BulkLanding],
        values: np.ndarray,
        rows: Sequence[Any],
        agent: Agent,
        shadow_words: ShadowWords | None,
    ) -> None:
        """The bulk store has come: `values` (of the shape of its addresses) with the real values `shadow_words`, one of `rows`
        (indices of the first axis) after another. Where another program wrote other words it is a race."""
        size = values.dtype.itemsize
        words = values.view(UNSIGNED_TYPES[size])
        for one_landing in landings:
            one_landing.region.access_types.add(values.dtype)
            self.order.bulk_lands(one_landing.event, one_landing.access, one_landing.earlier_events, words.reshape(-1))
            places = one_landing.offsets // size if size > 1 else one_landing.offsets
            for row in rows:
                inside, real = (
                    None if one_landing.inside is None else one_landing.inside[row],
                    None if shadow_words is None else shadow_words[row],
                )
                self._put(op, one_landing.region, places[row], words[row], inside, agent, real)

    def issue_update(
        self, op: Operation, addresses: np.ndarray, mask: np.ndarray | None, size: int, agent: Agent
    ) -> list[BulkLanding]:
        """As `issue`, of atomic updates by the async proxy."""
        landings = [
            BulkLanding(region, offsets, inside, *self.order.bulk_update(op, agent, region, offsets, inside, size))
            for region, offsets, inside in self._locate(op, addresses, mask, size, write=True, agent=agent)
        ]
        for tell in (*self.load_hooks, *self.store_hooks):
            for each in landings:
                tell(WordAccess(op, each.region, places_of(each.offsets, each.inside, size), size, agent))
        return landings

    def land_update(
        self,
        landings: list[BulkLanding],
        values: np.ndarray,
        update: Callable[[np.ndarray, np.ndarray], np.ndarray],
        reals: RealUpdate | None = None,
    ) -> None:
        """The bulk update has come: `update` of (the words there, `values`, of the shape of its addresses) goes there. `reals`
        says what becomes of the real values."""
        size, flat_values = values.dtype.itemsize, values.reshape(-1)
        for one_landing in landings:
            self.order.update_lands(one_landing.event, one_landing.access)
            one_landing.region.is_loaded = True
            one_landing.region.access_types.add(values.dtype)
            memory = one_landing.region.raw[: one_landing.region.raw.size // size * size].view(values.dtype)
            places = (one_landing.offsets // size if size > 1 else one_landing.offsets).reshape(-1)
            lanes = np.arange(places.size) if one_landing.inside is None else np.flatnonzero(one_landing.inside)
            for turn in in_turns(places, lanes):
                old_words = memory.take(places[turn])
                memory[places[turn]] = update(old_words, flat_values[turn])
                if reals is not None:
                    one_landing.region.carry(
                        places[turn],
                        size,
                        reals.combine(one_landing.region.takes(places[turn], size), turn, old_words, flat_values[turn]),
                    )

    def atomic(
        self,
        op: Operation,
        addresses: np.ndarray,
        mask: np.ndarray | None,
        dtype: np.dtype,
        agent: Agent,
        *,
        sem: int,
        scope: int,
        update: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        values: np.ndarray | None = None,
        expected: np.ndarray | None = None,
        reals: RealUpdate | None = None,
    ) -> tuple[np.ndarray, bool]:
        """An atomic at each of `addresses`, in the order of the elements: `update` of (the words there, its `values`) goes there,
        `values` themselves where there is no `update`, only where the words are `expected`, and nothing where there are no
        `values`. (The words before, 0 outside the mask, as compiled; whether any word is another now.) `reals` says what becomes
        of the real values, and is told those before."""
        size, has_changed = dtype.itemsize, False
        old_values = np.zeros(addresses.shape, dtype)
        before = old_values.reshape(-1)
        for region, offsets, inside in self._locate(op, addresses, mask, size, write=values is not None, agent=agent):
            region.is_loaded = True
            region.access_types.add(dtype)
            access = self.order.before_atomic(op, agent, region, offsets, inside, size, sem, scope)
            memory = region.raw[: region.raw.size // size * size].view(dtype)
            places = (offsets // size if size > 1 else offsets).reshape(-1)
            lanes = np.arange(places.size) if inside is None else np.flatnonzero(inside)
            if values is None:
                before[lanes] = memory.take(places[lanes])
                for tell in self.load_hooks:
                    tell(WordAccess(op, region, places[lanes], size, agent))
                if reals is not None:
                    reals.read(region.takes(places[lanes], size), lanes)
                continue
            if op.name != "tt.atomic_store":
                for tell in self.load_hooks:
                    tell(WordAccess(op, region, places[lanes], size, agent))
            flat_values, wrote = values.reshape(-1), np.zeros(places.size, np.bool_)
            for turn in in_turns(places, lanes):
                old_words = memory.take(places[turn])
                new_words = flat_values[turn] if update is None else update(old_words, flat_values[turn])
                old_bits = old_words.view(UNSIGNED_TYPES[size])
                wrote[turn] = expected is None or old_bits == expected.reshape(-1)[turn].view(UNSIGNED_TYPES[size])
                before[turn] = old_words
                memory[places[turn]] = np.where(wrote[turn], new_words, old_words)
                for tell in self.combination_hooks:
                    tell(WordAccess(op, region, places[turn], size, agent), old_words, flat_values[turn])
                if reals is not None:
                    decided = None if expected is None else wrote[turn]
                    region.carry(
                        places[turn],
                        size,
                        reals.combine(region.takes(places[turn], size), turn, old_words, flat_values[turn], decided),
                    )
                has_changed = has_changed or bool((wrote[turn] & (old_bits != new_words.view(UNSIGNED_TYPES[size]))).any())
            for tell in self.store_hooks:
                tell(WordAccess(op, region, places[lanes], size, agent, wrote[lanes]))
            self.order.after_atomic(access, wrote, sem, updates=op.name != "tt.atomic_store")
        return old_values, has_changed


def places_of(offsets: np.ndarray | slice, inside: np.ndarray | None, size: int) -> np.ndarray | slice:
    """The numbers of the words of `size` bytes at the byte `offsets`, in one row where these are no slice: those `inside`."""
    if isinstance(offsets, slice):
        return slice(offsets.start // size, offsets.stop // size)
    places = (offsets // size if size > 1 else offsets).reshape(-1)
    return places if inside is None else places[inside.reshape(-1)]


def in_turns(places: np.ndarray, lanes: np.ndarray) -> Iterator[np.ndarray]:
    """`lanes` in groups that may act at once: each place once in a group, and in the order of the lanes."""
    chosen = places[lanes]
    order = np.argsort(chosen, kind="stable")
    ordered = chosen[order]
    fresh = np.concatenate([np.ones(1, np.bool_), ordered[1:] != ordered[:-1]])[: order.size]
    if fresh.all():
        yield lanes
        return
    at = np.arange(order.size)
    turn = np.empty(order.size, np.int64)
    turn[order] = at - np.maximum.accumulate(np.where(fresh, at, 0))  # how many lanes before it go to the same place
    grouped = np.argsort(turn, kind="stable")
    yield from np.split(lanes[grouped], np.cumsum(np.bincount(turn))[:-1])


def _stray(
    op: Operation, region: Region, addresses: np.ndarray, mask: np.ndarray | None, size: int, *, write: bool, agent: Agent
) -> EmulatedFault:
    """What to raise for an access to `region` which its tensors do not reach."""
    offsets, verb = addresses - region.base, "write" if write else "read"
    bad_lanes = (offsets < region.low) | (offsets + size > region.high)
    if region.allowed_bytes is not None:
        bad_lanes |= region.allowed_bytes.take(offsets, mode="clip") == 0
    if mask is not None:
        bad_lanes &= mask
    where = np.argwhere(bad_lanes)[0]
    first_place = int(offsets[tuple(where)])
    element, count = (first_place - region.low) // size, (region.high - region.low) // size
    beyond = f"beyond its {count} element{'s' * (count != 1)}" if not 0 <= element < count else "which its strides skip"
    return EmulatedFault(
        f"stray {verb}",
        f"{verb} at byte {first_place - region.low} of {region.name}, which its sizes and strides do "
        f"not reach (it spans {region.high - region.low} bytes); {int(bad_lanes.sum())} of the tile's elements, first at "
        f"{where.tolist()}, in program {agent.place}",
        op.location,
        {
            "operation": op.brief,
            "program": str(agent.place),
            "argument": region.name,
            "offset": first_place - region.low,
            "summary": f"{region.name}[{element}] is {'written' if write else 'read'}, {beyond}",
        },
    )
