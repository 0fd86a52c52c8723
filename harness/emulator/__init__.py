"""An emulated GPU: any Triton or Gluon kernel, unmodified, on CPU tensors, as its target would run it (docs/emulator.md)."""

from harness.emulator.device import ARCHITECTURES, Device, Launch, emulated
from harness.emulator.faults import BadArgument, EmulatedFault

__all__ = ["ARCHITECTURES", "BadArgument", "Device", "EmulatedFault", "Launch", "emulated"]
