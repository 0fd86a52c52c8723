"""Asynchronous copies: cp.async by groups, TMA through descriptors, tcgen05.cp into tensor memory."""

from __future__ import annotations

from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


def _tokens(t: Translator, op: Operation) -> None:
    """Tokens order operations for the compiler; what orders them for the machine it keeps itself."""
    for token in op.results:
        t.emit(f"{t.value(token)} = None")


@lowers("ttg.async_copy_global_to_local")
def copy(t: Translator, op: Operation) -> None:
    """Elements whose mask is False become zero: the instruction is issued with a source size of 0, whatever `other` says."""
    pointer, view, mask, _other = op.segments()[:4]
    masked = t.value(mask[0]) if mask else "None"
    t.check_vectors(op, t.value(pointer[0]), masked)
    undefined = t.undefined is not None and op.location in t.undefined.memory
    t.emit(f"m.copy({t.constant(op)}, {t.value(pointer[0])}, {t.value(view[0])}, {masked}, {undefined})")
    _tokens(t, op)


@lowers("ttg.async_commit_group")
def commit(t: Translator, op: Operation) -> None:
    t.emit("m.commit_copies()")
    _tokens(t, op)


@lowers("ttg.async_wait")
def wait(t: Translator, op: Operation) -> None:
    t.emit(f"m.wait_copies({op.integer('num')})")
    _tokens(t, op)


@lowers("ttng.async_tma_copy_global_to_local")
def bulk_load(t: Translator, op: Operation) -> None:
    descriptor, starts, offsets, barrier, target, when = op.segments()[:6]
    if offsets or op.flag("multicast"):
        raise NotModelled(op, "im2col or multicast")
    where = "".join(f"{t.value(s)}, " for s in starts)
    t.emit(
        f"m.bulk_load({t.constant(op)}, {t.value(descriptor[0])}, ({where}), {t.value(barrier[0])}, {t.value(target[0])}, "
        f"{t.value(when[0])})"
    )
    _tokens(t, op)


@lowers("ttng.async_tma_gather")
def bulk_gather(t: Translator, op: Operation) -> None:
    t.emit(f"m.bulk_gather({t.constant(op)}, {t.values(op.operands[:6])})")


@lowers("ttng.async_tma_copy_local_to_global")
def bulk_store(t: Translator, op: Operation) -> None:
    descriptor, *starts, source = (t.value(n) for n in op.operands if t.kind_of(n) != "token")
    t.emit(f"m.bulk_store({t.constant(op)}, {descriptor}, ({''.join(s + ', ' for s in starts)}), {source})")
    _tokens(t, op)


@lowers("ttng.async_tma_scatter")
def bulk_scatter(t: Translator, op: Operation) -> None:
    t.emit(f"m.bulk_scatter({t.constant(op)}, {t.values(op.operands[:4])})")
    _tokens(t, op)


@lowers("ttng.async_tma_store_wait")
def bulk_store_wait(t: Translator, op: Operation) -> None:
    t.emit(f"m.bulk_store_wait({op.integer('pendings')}, read={'read_only' in op.attributes})")


@lowers("ttng.tmem_copy")
def tensor_core_copy(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.operand(op, 1)
    if source.shape != target.shape:
        raise NotModelled(op, "between shapes")
    barrier = t.value(op.operands[2]) if len(op.operands) > 2 else "None"
    t.emit(f"m.tensor_core_copy({t.constant(op)}, {t.values(op.operands[:2])}, {barrier})")
