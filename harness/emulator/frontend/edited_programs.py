"""Tile programs that are executed with a change, and not compiled again: mutants.

What the compiler decided after the tile program (which sums are fused, how wide accesses are) is read from the right program, line
by line. A change of floating-point arithmetic is the exception: there it is asked anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.access_widths import Access
from bitverdict.harness.emulator.frontend.instruction_sets import check_instructions
from bitverdict.harness.emulator.frontend.program_verifier import verify_program
from bitverdict.harness.emulator.frontend.translate import TranslatedProgram, translated_program
from bitverdict.harness.emulator.mlir_reader import Program, parse_program

Widths = Callable[[Program], dict[int, Access] | None]


@dataclass(frozen=True)
class EditedProgram:
    """The text of a changed program; `original_lines` has for each line of it that of the right one. `floats`: what the compiler
    makes of sums may be something else."""

    text: str
    original_lines: tuple[int, ...]
    floats: bool = False


class EditedPrograms(DeviceProbe):
    """What launches execute in the place of the programs that the compiler made, as `edit` says: None for one that it leaves as it
    is. Each is translated once."""

    def __init__(self, edit: Callable[[str], EditedProgram | None]) -> None:
        self.edit = edit
        self.refused = ""
        """Why a changed program is none that the emulator executes; empty where all are."""
        self.launched = 0
        """Launches of a changed program."""
        self.operations = 0
        """Operations of all launches."""
        self.missed: dict[str, set[int]] = {}
        """Of each program, by its text, the lines of operations that no launch has come to."""
        self.negative: dict[str, set[str]] = {}
        """Of each program its integer arguments that were negative in a launch."""
        self._ready: dict[tuple, TranslatedProgram | None] = {}

    def translation_of(
        self, text: str, *, arch: str, is_doubted: bool, widths: Widths, **options: object
    ) -> TranslatedProgram | None:
        """The change of the program `text` ready to run, None where it has none. EmulatedFault where it is no program."""
        key = (text, arch, is_doubted, *options.items())
        if key not in self._ready:
            changed = self.edit(text)
            try:
                self._ready[key] = None if changed is None else self._translate(changed, text, arch, widths, options)
            except EmulatedFault as fault:
                self.refused = f"{fault.outcome}: {fault.message}"
                raise
        ready = self._ready[key]
        self.launched += ready is not None
        return ready

    def end(self, run: LaunchRun) -> None:
        """Count what ran of its program."""
        translation, runs, arguments = run.translation, run.context.runs, run.arguments
        self.operations += sum(translation.counts(list(runs)).values())
        missed_lines = {
            op.line for operations, times in zip(translation.blocks, runs, strict=True) if not times for op in operations
        }
        ran = {op.line for operations, times in zip(translation.blocks, runs, strict=True) if times for op in operations}
        text = translation.program.text
        known = self.negative.setdefault(text, set())
        names = (name for name, _ in translation.program.entry.blocks[0].arguments)
        known.update(name for name, value in zip(names, arguments, strict=False) if isinstance(value, int) and value < 0)
        self.missed[text] = self.missed.get(text, missed_lines) & missed_lines - ran

    @staticmethod
    def _translate(
        edited_program: EditedProgram, text: str, arch: str, widths: Widths, options: dict[str, Any]
    ) -> TranslatedProgram:
        program = verify_program(edited_program.text, arch)
        if not edited_program.floats:
            program.text = text
            for op in program.operations():
                op.line = edited_program.original_lines[op.line]
        check_instructions(program, arch)
        right = _read(text) if not edited_program.floats else program
        return translated_program(program, arch=arch, accesses=widths(right), **options)


@lru_cache(maxsize=64)
def _read(text: str) -> Program:
    """A right program, which all mutants of it look at."""
    return parse_program(text)


__all__ = ["EditedProgram", "EditedPrograms"]
