"""What each PTX opcode does that is executed here, looked up by its text."""

from __future__ import annotations

from functools import cache

from bitverdict.harness.emulator.ptx import conversions, floats, integers  # noqa: F401  (fill the table)
from bitverdict.harness.emulator.ptx.opcodes import BUILDERS, Meaning, Opcode, UnknownOpcode


@cache
def meaning(text: str) -> Meaning:
    """What the opcode `text` does. UnknownOpcode, with its name, where nothing is known."""
    for builder in BUILDERS.get(text.partition(".")[0], []):
        taken = Opcode(text)
        found = builder(taken)
        if found is not None and not taken.modifiers:
            return found
    raise UnknownOpcode(f"{text} is a PTX opcode that is not executed here")
