"""Cluster launch control: a program that runs takes over one that has not begun (PTX ISA, clusterlaunchcontrol)."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.async_rules import TRY_CANCEL
from bitverdict.harness.emulator.execution.cluster_order import CLUSTER
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.translator import Translator, lowers
from bitverdict.harness.emulator.memory.onchip import View
from bitverdict.harness.emulator.mlir_reader import Operation

RESPONSE = 16  # bytes
NO_PROGRAM = -1  # in the place of a program's number, where none was cancelled


@lowers("ttng.clc_try_cancel")
def try_cancel(t: Translator, op: Operation) -> None:
    response, barrier = t.operands(op, "response", "barrier")
    t.machine(op, ask, response, barrier)


def ask(m: Cta, op: Operation, response: View, barrier: View) -> None:
    """A request to cancel a program that has not begun. The answer comes through the async proxy, and its bytes are counted."""
    if m.refused_cancel is not None:
        raise EmulatedFault(
            "illegal instruction",
            f"{op.name} after the program has seen that a request failed: undefined; stop asking then",
            op.location,
            {"operation": op.brief, "other operation": m.refused_cancel.brief, "other location": m.refused_cancel.location},
        )
    m.mbarriers.barrier_at(op, barrier)
    flight = m.onchip.begin(op, TRY_CANCEL, writes=(response,), barriers=(barrier.offset,))

    def land() -> None:
        found = m.launch.cancel()
        response.put(np.array([NO_PROGRAM if found is None else found, 0], np.int64).reshape(response.shape))
        m.mbarriers.receive(op, barrier, RESPONSE, flight)

    m.flights.issue(flight, land)
    if m.launch.ctas > 1:  # one CTA asks for all of them
        m.state.cluster.hold(op, response, writes=True, needs=CLUSTER)


@lowers("ttng.clc_load_result")
def load_result(t: Translator, op: Operation) -> None:
    (response,) = t.operands(op, "response")
    t.machine(op, OnChipMemory.read, response)


@lowers("ttng.clc_is_canceled")
def is_cancelled(t: Translator, op: Operation) -> None:
    (response,) = t.operands(op, "response")
    t.machine(op, has_cancelled, response)


def has_cancelled(m: Cta, op: Operation, response: np.ndarray) -> int:
    """Whether a program was cancelled: the one that asked is to do its work."""
    if response.flat[0] == NO_PROGRAM:
        m.refused_cancel = op
    return int(response.flat[0] != NO_PROGRAM)


@lowers("ttng.clc_get_program_id")
def program_id(t: Translator, op: Operation) -> None:
    (response,) = t.operands(op, "response")
    t.machine(op, coordinate, response, op.integer("dim"))


def coordinate(m: Cta, op: Operation, response: np.ndarray, axis: int) -> int:
    """The cancelled program's number along `axis`; poison where none was."""
    number, (x, y, _) = int(response.flat[0]), m.grid
    return NO_PROGRAM if number == NO_PROGRAM else (number % x, number // x % y, number // (x * y))[axis]
