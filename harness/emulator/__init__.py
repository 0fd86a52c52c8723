"""An emulated GPU: any Triton or Gluon kernel, unmodified, on CPU tensors, as its target would run it (docs/emulator.md)."""

from bitverdict.harness.emulator.cuda_runtime import is_entered, reach
from bitverdict.harness.emulator.device import Device, Launch, LaunchOptions
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.emulator.memory.provenance import Origin
from bitverdict.harness.emulator.memory.unwritten_words import AllocatedStorage
from bitverdict.harness.emulator.triton_driver import emulated

__all__ = [
    "AllocatedStorage",
    "BadArgument",
    "Device",
    "EmulatedFault",
    "Launch",
    "LaunchOptions",
    "Origin",
    "emulated",
    "is_entered",
    "reach",
]
