"""An emulated GPU: any Triton or Gluon kernel, unmodified, on CPU tensors, as its target would run it (docs/emulator.md)."""

from harness.emulator.architectures import ARCHITECTURES
from harness.emulator.cuda_runtime import is_entered, reach
from harness.emulator.device import Device, Launch, emulated
from harness.emulator.faults import BadArgument, EmulatedFault

__all__ = ["ARCHITECTURES", "BadArgument", "Device", "EmulatedFault", "Launch", "emulated", "is_entered", "reach"]
