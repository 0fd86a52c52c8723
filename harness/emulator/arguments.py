"""From what a launch was given to the arguments of its tile program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness.emulator.arithmetic import narrow
from harness.emulator.faults import EmulatedFault
from harness.emulator.memory import GlobalMemory
from harness.emulator.types import Type


def flatten(memory: GlobalMemory, names: Sequence[str], values: Sequence[Any], types: Sequence[Type]) -> list[Any]:
    """One Python value for each argument of the program, tensors made reachable in `memory`. Values whose kind the program does not
    expect, or too few, are refused as "not modelled"."""
    kinds = iter(types)
    found = [_argument(memory, name, value, kinds) for name, value in zip(names, values, strict=True)]
    flat = [part for parts in found for part in parts]
    if next(kinds, None) is not None:
        raise EmulatedFault("not modelled", f"the tile program takes {len(types)} arguments, the launch gave {len(flat)}")
    return flat


def _argument(memory: GlobalMemory, name: str, value: Any, kinds: Iterator[Type]) -> list[Any]:
    if isinstance(value, tuple):
        return [part for i, item in enumerate(value) for part in _argument(memory, f"{name}[{i}]", item, kinds)]
    kind = next(kinds, None)
    if kind is None:
        raise EmulatedFault("not modelled", f"argument {name}: the tile program takes fewer arguments")
    if kind.kind == "pointer":
        if hasattr(value, "data_ptr"):
            if getattr(value, "device", None) is not None and value.device.type != "cpu":
                raise ValueError(f"argument {name} is on {value.device}: the emulated GPU reads CPU tensors; move it with .cpu()")
            return [memory.add(name, getattr(value, "base", value))]
        return [int(value)]
    if kind.kind == "scalar":
        if kind.is_float:
            return [np.asarray(narrow(np.array(float(value)), kind.format))]
        return [int(value)]
    raise EmulatedFault("not modelled", f"argument {name} of type {kind.text}")
