"""Copies of a value thread by thread, while a program runs: the array (threads, registers) beside the value in logical order, or
None where all copies of each element are the same.

The value itself has the word of the thread that would store each element: of those that hold it the one whose number has zeros in
all bits that do not matter (`emitRedundantThreadPredicate`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.threads import WARP, bases, slots
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.frontend.shared_stores import SharedStores
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.reference.reduction_order import Elements, Layout
from bitverdict.reference.thread_words import (
    Reduction,
    UnsettledWordError,
    inside_threads,
    reduced_by_threads,
    settle_stores,
    shuffle_words,
    through_memory,
)

Words = np.ndarray | None  # (threads, registers)


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: its shape, and its layout with aliases written out. A scalar has neither."""

    shape: tuple[int, ...] = ()
    layout: str = ""


@cache
def held_elements(place: Place) -> np.ndarray:
    """(threads, registers) the elements, row-major, that each thread holds."""
    return slots(place.shape, place.layout, copies=False) if place.layout else np.zeros((1, 1), np.int64)


@cache
def layout_of(place: Place) -> Layout:
    return Layout.from_bases(*bases(place.shape, place.layout))


@cache
def _keepers(place: Place) -> np.ndarray:
    """The threads whose words are stored."""
    _registers, lanes, warps = bases(place.shape, place.layout)
    bits = lanes + [[0] * len(place.shape)] * (WARP.bit_length() - 1 - len(lanes)) + warps
    copies = sum(1 << i for i, basis in enumerate(bits) if not any(basis))
    return np.flatnonzero(np.arange(len(held_elements(place))) & copies == 0)


def spread(value: object, words: Words, place: Place, dtype: np.dtype) -> np.ndarray:
    """The copies of `value`: `words`, or where they are None as many as its place has."""
    if words is not None:
        return words
    return np.asarray(value, dtype).reshape(-1)[held_elements(place)]


def merge_copies(words: np.ndarray, place: Place) -> Any:
    """The value whose copies are `words`."""
    if not place.layout:
        found = words[0, 0]
        return found.item() if words.dtype.kind in "ib" else np.asarray(found)
    flat, threads = np.empty(int(np.prod(place.shape)), words.dtype), _keepers(place)
    flat[held_elements(place)[threads]] = words[threads]
    return flat.reshape(place.shape)


def settle_copies(words: np.ndarray, place: Place) -> tuple[Any, Words]:
    """The value, and its copies unless they are the same."""
    value = merge_copies(words, place)
    return value, None if same_words(spread(value, None, place, words.dtype), words) else words


def same_words(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether `a` and `b`, of shapes that go together, have the same words."""
    if a.dtype.kind == "f":
        a, b = (np.ascontiguousarray(each).view(f"u{each.itemsize}") for each in (a, b))
    return bool((a == b).all())


@contextmanager
def _refuse_unsettled(op: Operation) -> Iterator[None]:
    """Turn what the rules do not settle into NotModelled."""
    try:
        yield
    except UnsettledWordError as error:
        raise NotModelled(op, str(error)) from error
    except ValueError as error:
        raise NotModelled(op, f"in this form, on words that differ from lane to lane ({error})") from error


def require_agreement(m: Cta, op: Operation, value: object, words: Words, place: Place) -> None:
    """NotModelled where copies of a value are not the same: `op` has no rule for them."""
    if words is not None and not same_words(spread(value, None, place, words.dtype), words):
        raise NotModelled(op, "on a result of a reduction whose words differ from lane to lane")


def move_copies(
    m: Cta, op: Operation, words: np.ndarray, source: Place, target: Place, places: np.ndarray | None
) -> tuple[Any, Words]:
    """What `op` makes of copies without leaving their threads. `places`: the element of the source for each of the target,
    row-major; None where they have the same number."""
    with _refuse_unsettled(op):
        wanted = held_elements(target) if places is None else places[held_elements(target)]
        sides = (np.broadcast_to(each, (len(words), each.shape[1])) for each in (held_elements(source), wanted))
        found = inside_threads(words, *sides)
        return settle_copies(found, target)


def everywhere(m: Cta, op: Operation, words: np.ndarray, target: Place) -> tuple[Any, Words]:
    """A scalar in all elements of a tensor: each thread its own."""
    with _refuse_unsettled(op):
        found = np.broadcast_to(words, held_elements(target).shape)
        return merge_copies(found, target), found


def convert_copies(
    m: Cta, op: Operation, words: np.ndarray, source: Place, target: Place, stores: SharedStores | None
) -> tuple[Any, Words]:
    """A conversion to another layout: through shared memory where there are `stores`, else by shuffles inside each warp."""
    with _refuse_unsettled(op):
        before, after = layout_of(source), layout_of(target)
        if stores is None:
            if (before.lanes, before.warps) == (after.lanes, after.warps):
                return move_copies(m, op, words, source, target, None)
            if before.warps != after.warps:
                raise ValueError("between warps, with no room in shared memory")
            return settle_copies(shuffle_words(words, before, after), target)
        forms = partial(stores.forms, op)
        if not same_words(settle_stores(words, before, forms), words):
            m.notes.add(Note(Advice.LANES_DIFFER, op.location))
        return settle_copies(through_memory(words, before, after, source.shape, forms), target)


def reduce_copies(
    m: Cta,
    op: Operation,
    combine: Callable,
    elements: Elements | None,
    parts: tuple[np.ndarray, ...],
    plan: Reduction,
    target: Place,
    stores: SharedStores,
) -> tuple:
    """A reduction of copies: its results, then the copies of each."""
    with _refuse_unsettled(op):
        found, differ = reduced_by_threads(parts, plan, combine, elements, partial(stores.forms, op))
        if differ:
            m.notes.add(Note(Advice.LANES_DIFFER, op.location))
        pairs = [settle_copies(part, target) for part in found[: len(op.results)]]
        return *(value for value, _ in pairs), *(words for _, words in pairs)
