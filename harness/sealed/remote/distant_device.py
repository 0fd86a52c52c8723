"""The emulated GPU as the candidate's process sees it: it answers as ever, and its launches go to the executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitverdict.harness.emulator.device import Device, Launch, LaunchOptions
from bitverdict.harness.emulator.faults import EmulatedFault, raise_for_the_launcher
from bitverdict.harness.sealed.remote.memory import MOST_PROGRAMS, RemoteMemory
from bitverdict.harness.sealed.remote.wire import UnencodableValueError


class DistantDevice(Device):
    """A `Device` whose memory and whose launches are `memory`'s: it executes nothing and keeps no fault."""

    def __init__(self, memory: RemoteMemory, arch: str, schedule: str, options: LaunchOptions) -> None:
        super().__init__(arch, schedule, options)
        self.memory = memory

    def run(
        self,
        program: bytes,
        metadata: Any,
        grid: tuple[int, int, int],
        names: Sequence[str],
        values: Sequence[object],
        constants: dict[str, int] | None = None,
    ) -> None:
        encoder = self.memory.encoder(_address)
        try:
            encoded_values = [encoder(value) for value in values]
        except UnencodableValueError as error:
            raise_for_the_launcher(error)
        about = {name: value for name, value in metadata._asdict().items() if type(value) in (str, int, float, bool, type(None))}
        known = self.memory.link.programs
        if (number := known.get(program)) is None:
            if len(known) >= MOST_PROGRAMS:
                known.clear()
            number = known[program] = len(known)
            encoder.buffers.append(program)
        program_place = len(encoder.buffers) - 1 if encoder.buffers and encoder.buffers[-1] is program else None
        link = self.memory.link
        ask = (
            link.ask if any(hasattr(value, "block_shape") for value in values) else link.tell
        )  # the driver may refuse a descriptor
        ask(
            "launch", encoder.buffers, program=number, sent=program_place, about=about,
            grid=list(grid), names=list(names), values=encoded_values,
            constants=constants or {},
        )  # fmt: skip
        self.launches.append(Launch(metadata.name, grid, {}, ""))

    def record_finding(self, fault: EmulatedFault) -> EmulatedFault:
        self.memory.link.ask("found", outcome=fault.outcome, message=fault.message, location=fault.location)
        return super().record_finding(fault)

    def reach(self, *tensors: object) -> None:
        encoder = self.memory.encoder()
        said = [encoder(each) for each in tensors]
        self.memory.link.ask("reach", encoder.buffers, tensors=said)


def _address(value: object) -> Any:
    """What else a pointer may be given as: something that tells its address."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    raise UnencodableValueError(f"a {type(value).__name__} cannot be handed to the executor as an argument of a launch")


__all__ = ["DistantDevice"]
