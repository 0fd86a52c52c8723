"""Waits, barriers, phases, bytes that are expected, fences and commits."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, argument, integer, is_statement, operator
from bitverdict.harness.mutants.source.places import Place, callee_name


def _text(place: Place) -> str:
    return place.code(place.node.func) if isinstance(place.node, cst.Call) else ""


def _waits(place: Place) -> bool:
    return bool(re.search(r"(^|[._])wait(_group)?$|_wait$", _text(place)))


def _of_a_barrier(place: Place) -> bool:
    return _text(place).rpartition(".")[0].endswith("mbarrier")


@operator("wait dropped", "wait")
def wait_dropped(place: Place) -> Iterator[Change]:
    """What was issued may not have landed."""
    node = place.node
    if not isinstance(node, cst.Call) or not _waits(place):
        return
    if is_statement(place):
        yield Change(place.file.parents[node], "pass")
        return
    deps = argument(node, None, "deps")
    if deps is not None and isinstance(deps.value, cst.List | cst.Tuple) and deps.value.elements:
        kept = [place.code(each.value) for each in deps.value.elements]
        yield Change(node, kept[0] if len(kept) == 1 else f"({', '.join(kept)})")


@operator("wait count changed", "wait")
def wait_count(place: Place) -> Iterator[Change]:
    """One more operation may be in flight after a wait."""
    if isinstance(node := place.node, cst.Call) and _waits(place) and not _of_a_barrier(place):
        count = argument(node, 0, "num_outstanding", "N", "pendings")
        if count is not None:
            yield Change(count.value, f"{place.code(count.value)} + 1")


@operator("phase flipped", "phase")
def phase_flipped(place: Place) -> Iterator[Change]:
    """A wait is for the other phase of its barrier."""
    if isinstance(node := place.node, cst.Call) and _of_a_barrier(place) and callee_name(node) == "wait":
        if (phase := argument(node, 1, "phase")) is not None:
            yield Change(phase.value, f"(({place.code(phase.value)}) ^ 1)")


@operator("phase kept", "phase")
def phase_kept(place: Place) -> Iterator[Change]:
    """A phase is not flipped where it is to be."""
    node = place.node
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitXor):
        yield Change(node, place.code(node.left))
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.BitXorAssign):
        yield Change(node, "pass")


@operator("byte count changed", "bytes")
def byte_count(place: Place) -> Iterator[Change]:
    """A barrier expects other bytes than those that come."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ("expect", "expect_tx"):
        if (count := argument(node, 1, "bytes_per_cta", "bytes", "size")) is not None:
            yield Change(count.value, f"({place.code(count.value)}) + 16")
            yield Change(count.value, f"({place.code(count.value)}) - 16")


@operator("arrivals changed", "bytes")
def arrivals(place: Place) -> Iterator[Change]:
    """A barrier awaits one arrival more, or an arrival counts for two."""
    if isinstance(node := place.node, cst.Call) and _of_a_barrier(place) and callee_name(node) in ("init", "arrive"):
        if (count := argument(node, 1, "count")) is not None:
            yield Change(count.value, f"({place.code(count.value)}) + 1")


DROP_PATTERNS = {
    "expect dropped": ("bytes", r"expect(_tx)?$", "A barrier does not learn how many bytes to wait for."),
    "arrive dropped": ("wait", r"mbarrier\.arrive$", "The waiting partition gets no arrival."),
    "fence dropped": ("fence", r"fence\w*$", "Writes are not ordered before what another unit reads."),
    "commit dropped": ("commit", r"commit(_group)?$", "What was issued belongs to no group that is waited for."),
    "barrier dropped": ("wait", r"(^|\.)(barrier|debug_barrier|thread_barrier|sync)$|cluster\.\w+$", "Threads do not meet."),
    "initialisation dropped": ("wait", r"mbarrier\.init$", "A barrier is used as it was found."),
}


def _enter(name: str, family: str, pattern: str, says: str) -> None:
    def drop_call(place: Place) -> Iterator[Change]:
        if isinstance(place.node, cst.Call) and is_statement(place) and re.search(pattern, _text(place)):
            yield Change(place.file.parents[place.node], "pass")

    drop_call.__doc__ = says
    operator(name, family)(drop_call)


for _name, (_family, _pattern, _says) in DROP_PATTERNS.items():
    _enter(_name, _family, _pattern, _says)


@operator("barrier index changed", "wait")
def barrier_index(place: Place) -> Iterator[Change]:
    """Another stage's buffer or barrier is taken."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) == "index" and len(node.args) == 1:
        given = node.args[0].value
        if (value := integer(given)) is not None:
            yield Change(given, str(1 - value if value < 2 else value - 1))
        else:
            yield Change(given, f"(({place.code(given)}) ^ 1)")


@operator("semantics relaxed", "atomic")
def semantics_relaxed(place: Place) -> Iterator[Change]:
    """An atomic orders nothing."""
    if isinstance(node := place.node, cst.Call) and (sem := argument(node, None, "sem")) is not None:
        if "relaxed" not in place.code(sem.value):
            yield Change(sem.value, '"relaxed"')
    elif isinstance(node, cst.Call) and callee_name(node).startswith("atomic_"):
        yield Change(node, f'{place.code(node.func)}({", ".join([*map(place.code, node.args), ""])}sem="relaxed")')


@operator("another atomic", "atomic")
def another_atomic(place: Place) -> Iterator[Change]:
    """An atomic does something else to memory."""
    swapped = {"atomic_add": "atomic_max", "atomic_max": "atomic_min", "atomic_min": "atomic_max", "atomic_xchg": "atomic_add"}
    if isinstance(node := place.node, cst.Call) and (other := swapped.get(callee_name(node))) is not None:
        yield Change(node.func, place.code(node.func).removesuffix(callee_name(node)) + other)


@operator("atomic to store", "atomic")
def atomic_to_store(place: Place) -> Iterator[Change]:
    """Two programs that update one word lose an update."""
    if (
        isinstance(node := place.node, cst.Call)
        and callee_name(node) in ("atomic_add", "atomic_max", "atomic_min")
        and is_statement(place)
    ):
        kept = [each for each in node.args if each.keyword is None or each.keyword.value == "mask"]
        told = ", ".join(place.code(each).rstrip().rstrip(",") for each in kept)
        yield Change(node, f"{place.code(node.func).removesuffix(callee_name(node))}store({told})")
