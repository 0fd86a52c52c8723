"""Inline assembly on real values: a straight line of instructions on whole floats, each a function of `real_values`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.harness.emulator.numerics import real_constants, real_values
from bitverdict.harness.emulator.numerics.real_functions import FUNCTIONS
from bitverdict.harness.emulator.numerics.real_values import Real

_OPCODES: dict[str, tuple[int, Callable[..., Real]]] = {
    "add": (2, real_values.add), "sub": (2, real_values.subtract), "mul": (2, real_values.multiply), "fma": (3, real_values.fma),
    "mad": (3, real_values.fma), "div": (2, real_values.divide), "min": (2, FUNCTIONS["fmin"]), "max": (2, FUNCTIONS["fmax"]),
    "neg": (1, real_values.negative), "abs": (1, real_values.absolute), "rcp": (1, FUNCTIONS["rcp"]),
    "sqrt": (1, FUNCTIONS["sqrt"]), "rsqrt": (1, FUNCTIONS["rsqrt"]), "sin": (1, FUNCTIONS["sin"]), "cos": (1, FUNCTIONS["cos"]),
    "lg2": (1, FUNCTIONS["log2"]),
    "ex2": (1, FUNCTIONS["exp2"]), "tanh": (1, FUNCTIONS["tanh"]), "mov": (1, lambda a: a),
}  # fmt: skip
_PLAIN_MODIFIERS = {"rn", "rz", "rm", "rp", "ftz", "approx", "full", "NaN"}  # modifiers that only say how it is rounded, or of NaN
_REGISTER = re.compile(r"(\$\d+|%?[A-Za-z_]\w*)$")
_IMMEDIATE = re.compile(r"0[fF][0-9a-fA-F]{8}$")


class RealAssembly:
    """The statement `text` of `operands` floats and `results` of them. ValueError where it is of another form."""

    def __init__(self, text: str, results: int, operands: int) -> None:
        self.results, self.operands, self.steps = results, operands, list[tuple[Callable[..., Real], str, list[str]]]()
        known_registers = {f"${results + i}" for i in range(operands)}
        for statement in filter(None, (part.strip() for part in re.split(r"[;{}\n]", text))):
            if statement.startswith(".reg"):
                continue
            opcode, _, rest = statement.partition(" ")
            kind, *modifiers = opcode.split(".")
            into, *sources = (each.strip() for each in rest.split(","))
            count, run = _OPCODES.get(kind, (-1, None))
            if run is None or count != len(sources) or set(modifiers) - _PLAIN_MODIFIERS not in ({"f32"}, {"f64"}):
                raise ValueError(opcode)
            if not _REGISTER.match(into) or not all(name in known_registers or _IMMEDIATE.match(name) for name in sources):
                raise ValueError(statement)
            self.steps.append((run, into, sources))
            known_registers.add(into)
        if not {f"${i}" for i in range(results)} <= known_registers:
            raise ValueError("a result that nothing writes")

    def __call__(self, *given: Real) -> Any:
        held = {f"${self.results + i}": each for i, each in enumerate(given)}
        for run, into, names in self.steps:
            held[into] = run(*(held[name] if name in held else _immediate(name) for name in names))
        found = tuple(held[f"${i}"] for i in range(self.results))
        return found[0] if len(found) == 1 else found


def _immediate(name: str) -> Real:
    return real_constants.constant(np.array(int(name[2:], 16), np.uint32).view(np.float32), "fp32")


__all__ = ["RealAssembly"]
