"""An emulated GPU: any Triton or Gluon kernel, unmodified, on CPU tensors, as its target would run it (docs/emulator.md)."""

from bitverdict.harness.emulator.cuda_runtime import is_entered, reach
from bitverdict.harness.emulator.device import Device, Launch, emulated
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault

__all__ = ["BadArgument", "Device", "EmulatedFault", "Launch", "emulated", "is_entered", "reach"]
