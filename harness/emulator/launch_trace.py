"""`bv.trace`: a launch on the emulated GPU that is entered, with the values of its tiles after each line of the kernel."""

from __future__ import annotations

import html
import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from bitverdict.harness.emulator.cuda_runtime import entered_device, is_entered
from bitverdict.harness.emulator.faults import BadArgument
from bitverdict.harness.emulator.frontend.edited_programs import EditedPrograms, Widths
from bitverdict.harness.emulator.frontend.generated_code import compile_code
from bitverdict.harness.emulator.frontend.local_errors import real_of_words
from bitverdict.harness.emulator.frontend.translate import TranslatedProgram, load_code, translate

MOST_BYTES = 1 << 28  # of tiles that a trace keeps
MOST_VALUES = 8  # values of a tile in a table
_ASSIGNMENT = re.compile(r" *(?P<name>\w+) = .*")
_HELPERS = ("_real", "_lanes", "_undefined", "_bytes", "_spread")  # what stands beside a value in the generated code
_FLOAT = re.compile(r"(^|[x<])b?f\d")  # in a type of MLIR


@dataclass(frozen=True)
class Tile:
    """The value of a variable after a line of the kernel, in one program."""

    program: int
    line: int
    file: str
    name: str
    value: np.ndarray


@dataclass(eq=False)
class Trace:
    """What one launch computed. `tiles` are in the order in which they came."""

    tiles: list[Tile] = field(default_factory=list)
    kept_bytes: int = 0

    def tile(self, name: str, program: int = 0, line: int = 0) -> np.ndarray:
        """The last value of the kernel's variable `name` in a program, counted over the grid; or its last one of `line`."""
        tiles = [tile for tile in self.tiles if tile.name == name and tile.program == program and line in (0, tile.line)]
        if not tiles:
            known = ", ".join(dict.fromkeys(f"{tile.name} (line {tile.line})" for tile in self.tiles if tile.program == program))
            raise BadArgument(
                f"trace of {name!r} in program {program}: no such value; there are {known or 'none, of no such program'}"
            )
        widest = max(tile.value.size for tile in tiles)  # the compiler names its own helpers, such as a condition, after variables
        return [tile for tile in tiles if tile.value.size == widest][-1].value

    def keep(self, program: int, location: str, name: str, value: object, types: str) -> None:
        """Called by the traced program: `name` holds `value` now."""
        if not isinstance(
            value, np.ndarray | np.generic | int | float
        ):  # an enclosure of what a choice of the compiler leaves open
            return
        is_float = _FLOAT.search(types) is not None
        array = np.array(real_of_words(cast(Any, value), types).value if is_float else value)
        self.kept_bytes += array.nbytes
        if self.kept_bytes <= MOST_BYTES and array.dtype.kind in "biuf":
            file, _, line = location.rpartition(":")
            self.tiles.append(Tile(program, int(line) if line.isdigit() else 0, file, name, array))

    def _repr_html_(self) -> str:
        """The tiles of the first program, a row a value: line, source, shape, first values."""
        rows = []
        for tile in (kept for kept in self.tiles if kept.program == 0):
            text = " ".join(f"{number:.6g}" for number in tile.value.reshape(-1)[:MOST_VALUES].tolist())
            cells = (
                tile.line,
                linecache.getline(tile.file, tile.line).strip(),
                tile.name,
                list(tile.value.shape),
                text + (" ..." if tile.value.size > MOST_VALUES else ""),
            )
            rows.append("".join(f"<td><code>{html.escape(str(cell))}</code></td>" for cell in cells))
        head = "".join(f"<th>{title}</th>" for title in ("line", "source", "variable", "shape", "values in program 0"))
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


class _TracedPrograms(EditedPrograms):
    """Programs that hand each value to a trace once it is there."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(lambda text: None)
        self.trace = trace

    def translation_of(
        self, text: str, *, arch: str, is_doubted: bool, widths: Widths, **options: object
    ) -> TranslatedProgram | None:
        """The program `text`, each assignment of an operation's result followed by a call of `Trace.keep`."""
        translation = translate(text, arch=arch, widths=widths, **cast(dict[str, Any], options))
        lines = translation.source.split("\n")
        for place, text_line in enumerate(lines):
            op, match = translation.operation_at(place + 1), _ASSIGNMENT.fullmatch(text_line.partition("  #")[0])
            if op is None or match is None or len(op.results) != 1 or "!tt" in op.result_types[0] or op.name.startswith("scf."):
                continue
            if not match["name"].endswith(_HELPERS):
                source_name = re.sub(r"_\d+$", "", match["name"])
                kept = f"(m.number, {op.location!r}, {source_name!r}, {match['name']}, {op.result_types[0]!r})"
                lines[place] = f"{match[0]}; keep_value{kept}"
        source = "\n".join(lines)
        constants = translation.constants | {"keep_value": self.trace.keep}
        return load_code(replace(translation, source=source, constants=constants), compile_code(source))


def trace(kernel: Callable[..., object], *arguments: object, **options: object) -> Trace:
    """Launch `kernel[grid]` on the emulated GPU that is entered, and return what each of its programs computed, line by line.

        with bv.emulated("sm_90"):
            trace = bv.trace(kernel[grid], x, y, n, BLOCK=64)
        trace.tile("a", program=1)  # the variable `a` of the kernel in program 1, as a NumPy array; line=11: after that line

    In a notebook it is shown as a table. ValueError outside of `emulated`, and for a variable or a program that is not there.
    """
    if not is_entered():
        raise BadArgument("trace: no emulated GPU is entered; write it inside of `with bv.emulated('sm_90'):`")
    device, launch_trace = entered_device(), Trace()
    before = device.options
    device.options = replace(before, edited_programs=_TracedPrograms(launch_trace), batches=False)
    try:
        kernel(*arguments, **options)
    finally:
        device.options = before
    return launch_trace
