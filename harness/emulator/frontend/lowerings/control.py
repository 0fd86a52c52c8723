"""Control flow, calls, assertions, and what is no operation at all on the way down."""

from __future__ import annotations

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.frontend.hints import assume
from bitverdict.harness.emulator.frontend.translator import FunctionPlace, NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


@lowers("tt.return")
def finish(t: Translator, op: Operation) -> None:
    t.emit("return {}" if op.operands else "return", t.handed_out(op.operands))


@lowers("tt.call")
def call(t: Translator, op: Operation) -> None:
    callee = op.attributes["callee"].lstrip("@").strip('"')
    if callee not in t.program.functions:
        raise NotModelled(op, f"callee {callee}")
    function, calls = t.program.functions[callee], t.place_of_function.calls
    base = t.place(op) if "allocation.offset" in op.attributes else 0  # to all that the callee says of shared memory it is added
    if t.facts.allocates_scratch(function) and op.line not in calls:
        calls = *calls, op.line
    called = t.code("yield from {}", t.starts(t.name_of(function, FunctionPlace(base, calls)), op.operands, called=True))
    if op.results:
        t.emit("{} = {}", t.result_targets(op), called)
    else:
        t.emit("{}", called)


@lowers("ttg.barrier", "ttg.local_barrier", "gpu.barrier", "tt.debug_barrier")
def barrier(t: Translator, op: Operation) -> None:
    """bar.sync of all threads of the partition, the author's or the compiler's. In shared memory order among threads is membar's
    duty, and no agent of its own; in global memory it is the author's."""
    t.meet()


@lowers("llvm.intr.assume")
def assumption(t: Translator, op: Operation) -> None:
    (condition,) = t.operands(op, "condition")
    t.machine(op, assume, condition)


@lowers("cf.assert", "tt.assert")
def check(t: Translator, op: Operation) -> None:
    (condition,) = t.operands(op, "condition")
    t.machine(op, Cta.check, condition)


@lowers("ttg.grid_dependency_wait", "tt.grid_dependency_wait", "ttng.grid_dependency_wait", "tt.grid_dependency_launch_dependents")
def launch_order(t: Translator, op: Operation) -> None:
    """griddepcontrol: launches run one after another here, so what an earlier one wrote is there, and a later one waits."""


@lowers("ttg.remark")
def remark(t: Translator, op: Operation) -> None:
    """What the compiler says while it compiles."""
