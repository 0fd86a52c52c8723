"""Atomics and volatile loads of global memory: what they do, what they order, and where a program that spins on one waits.

Scalar atomics are made by one thread, tensors' by the thread that holds the element. Triton 3.9 puts a barrier of all threads of
the partition before an atomic that releases, after one that acquires, and where a scalar's result goes to all threads
(`insertAtomicOrderingBarriers`, `finalizeAtomicResults`; held to its PTX in tests/emulator/ordering/test_rendezvous.py). So
a release publishes what all its threads wrote. Older releases have the last of the three alone (`Release.meets_at_atomics`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.execution.cta_state import CtaState
from bitverdict.harness.emulator.execution.partitions import GLOBAL, Poll, Thread, Turn, Wait
from bitverdict.harness.emulator.memory.global_order import ACQUIRES, CTA, RELEASES
from bitverdict.harness.emulator.memory.onchip import View
from bitverdict.harness.emulator.memory.real_updates import update_of

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation

RELAXED_SEMANTICS, SYSTEM = 1, 3  # MemSemantic, MemSyncScope: a volatile load is ld.relaxed.sys (PTX ISA 9.7.9.8, ld.volatile)


class GlobalAtomics:
    """The unit of a CTA that makes atomics, and volatile loads."""

    def __init__(self, cta: CtaState) -> None:
        self.cta, self.memory = cta, cta.launch.memory

    def atomic(
        self,
        op: Operation,
        pointer: Any,
        mask: Any,
        dtype: np.dtype,
        single: bool,
        sem: int,
        scope: int,
        meets: tuple[bool, bool],
        polls: bool,
        *,
        update: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
        value: Any = None,
        expected: Any = None,
    ) -> Thread:
        """tt.atomic_rmw, _cas, _load, _store: what was there. `meets`: whether there is a barrier before it, and behind it."""
        addresses = np.atleast_1d(np.asarray(pointer, np.int64))
        sent_reals = None if value is None else self.cta.launch.take_reals(op, addresses.shape)
        if self.cta.together and self.cta.schedule.interrupts():
            yield Turn.PAUSES
        inside, values, expected_values = (
            _spread(given, kind, addresses.shape) for given, kind in ((mask, np.bool_), (value, dtype), (expected, dtype))
        )
        order, agent = self.memory.order, self.cta.agent
        while True:
            releases_writes = meets[0] and agent.wrote
            if meets[0]:
                order.meet(agent)
            if sem in RELEASES and op.name == "tt.atomic_store" and scope != CTA:  # compiled to a fence and a relaxed store
                order.fence(agent, acquires=False, releases=True)
            reals = None if self.cta.launch.real_access is None else update_of(op, _element(op), addresses.size, sent_reals)
            old_values, has_changed = self.memory.atomic(
                op, addresses, inside, dtype, agent, sem=sem, scope=scope, update=update, values=values, expected=expected_values,
                reals=reals,
            )  # fmt: skip
            if sem in ACQUIRES and op.name == "tt.atomic_load" and scope != CTA:  # compiled to a relaxed load and a fence
                order.fence(agent, acquires=True, releases=False)
            if meets[1]:
                order.meet(agent)
            if releases_writes and has_changed and op.name != "tt.atomic_cas":  # which takes a lock rather than gives it back
                self.cta.notes.add(Note(Advice.RELEASE, op.location))
            self.cta.acts += has_changed
            if not polls or has_changed or not (yield from self._waits(op, addresses, inside, old_values, sys._getframe(1))):
                break
        if self.cta.launch.real_access is not None and reals is not None:
            self.cta.launch.real_access.read_words = reals.found
        if not single:
            return old_values
        return old_values[0] if dtype.kind in "fu" else int(old_values[0])

    def volatile(self, op: Operation, pointer: Any, mask: Any, fill_value: Any, dtype: np.dtype, single: bool) -> Any:
        """tt.load that is volatile: a relaxed load, which orders nothing by itself."""
        held = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        addresses = np.atleast_1d(np.asarray(pointer, np.int64))
        inside = _spread(mask, np.bool_, addresses.shape)
        loaded_values, _ = self.memory.atomic(op, addresses, inside, held, self.cta.agent, sem=RELAXED_SEMANTICS, scope=SYSTEM)
        if inside is not None and fill_value is not None:
            loaded_values = np.where(inside, loaded_values, np.asarray(fill_value, held))
        if dtype == np.bool_:
            loaded_values = loaded_values != 0
        if not single:
            return loaded_values
        return loaded_values[0] if dtype.kind in "fu" else int(loaded_values[0])

    def poll(
        self, op: Operation, load: Callable[..., Any], pointer: Any, mask: Any, fill_value: Any, dtype: np.dtype, single: bool
    ) -> Thread:
        """A load in a loop, by `load`: where the loop only looks for what another writes, it waits for that."""
        addresses = np.atleast_1d(np.asarray(pointer, np.int64))
        inside = _spread(mask, np.bool_, addresses.shape)
        while True:
            found = load(op, pointer, mask, fill_value, dtype, single)
            if not (yield from self._waits(op, addresses, inside, np.atleast_1d(np.asarray(found, dtype)), sys._getframe(1))):
                return found

    def await_words(self, op: Operation, pointer: Any, expected: Any, dtype: np.dtype, sem: int, scope: int) -> Thread:
        """tt.atomic_poll: each word is read until it is as `expected`, then all threads meet."""
        addresses = np.atleast_1d(np.asarray(pointer, np.int64))
        wanted = _spread(expected, dtype, addresses.shape)
        while True:
            found, _ = self.memory.atomic(op, addresses, None, dtype, self.cta.agent, sem=sem, scope=scope)
            if (found == wanted).all():
                break
            yield self._watch(op, addresses, None, found)
        if sem in ACQUIRES and scope != CTA:
            self.memory.order.fence(self.cta.agent, acquires=True, releases=False)
        self.memory.order.meet(self.cta.agent)
        return np.ones(addresses.shape, np.bool_) if np.ndim(pointer) else True

    def fence(self, acquires: bool, releases: bool) -> None:
        """A fence that the author wrote, of scope gpu or sys, by each thread."""
        self.memory.order.fence(self.cta.agent, acquires=acquires, releases=releases)

    def fence_proxy(self) -> None:
        """fence.proxy.async for global memory, which no operation of Triton's is."""
        self.memory.order.fence_proxy(self.cta.agent)

    # -- loops that wait ----------------------------------------------------------------------------------------------
    def _waits(
        self, op: Operation, addresses: np.ndarray, inside: np.ndarray | None, loaded_values: np.ndarray, loop: FrameType
    ) -> Thread:
        """Whether `op` must look again: it found the same words as the last time, and nothing else in the `loop` has moved on, so
        that only another program can end it. Then it has waited for them to change."""
        agent = self.cta.agent
        last = agent.polls.get(id(op))
        now = agent.polls[id(op)] = Poll(addresses, loaded_values, self.cta.acts)
        if last is None or not (_same_array(last.addresses, addresses) and _same_array(last.words_found, loaded_values)):
            return False
        now.state = {name: value for name, value in loop.f_locals.items() if name != "m"}
        if last.acts != self.cta.acts or last.state is None or not _same_state(last.state, now.state):
            yield Turn.SPINS
            return False
        yield self._watch(op, addresses, inside, loaded_values)
        return True

    def _watch(self, op: Operation, addresses: np.ndarray, inside: np.ndarray | None, found: np.ndarray) -> Wait:
        dtype = np.dtype(np.uint8) if found.dtype == np.bool_ else found.dtype
        zero, agent = np.zeros((), dtype), self.cta.agent
        inside = np.ones(addresses.shape, np.bool_) if inside is None else inside
        words = np.where(inside, found, zero).astype(dtype)

        def passes() -> bool:
            return not _same_array(self.memory.load(op, addresses, inside, zero, dtype, agent, None), words)

        first = int(np.argmax(inside))
        place, word = self.memory.describe_address(int(addresses.reshape(-1)[first])), words.reshape(-1)[first]
        more = f" and {int(inside.sum()) - 1} more" if inside.sum() > 1 else ""
        return Wait(op, passes, lambda: f"another word than {word} in {place}{more}", GLOBAL)


def _element(op: Operation) -> str:
    """The type of the words that the atomic `op` is on."""
    kinds = [kind for kind in (*op.outputs, *op.inputs[1:]) if kind is not None]
    return kinds[0].element


def _spread(given: Any, dtype: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """`given` as an array of `shape`, None for None."""
    if given is None:
        return None
    found = np.atleast_1d(np.asarray(given, dtype))
    return found if found.shape == shape else np.broadcast_to(found, shape)


def _same_array(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _same_state(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two sets of local values are equal, bit for bit."""
    if one.keys() != other.keys():
        return False
    for name, value in one.items():
        current_value = other[name]
        if value is current_value:
            continue
        if type(value) is not type(current_value):
            return False
        if isinstance(value, np.ndarray | np.generic):
            if not _same_array(np.asarray(value), np.asarray(current_value)):
                return False
        elif isinstance(value, View):
            if value.space is not current_value.space or value.identity != current_value.identity:
                return False
        elif callable(value) or value != current_value:
            return False
    return True
