"""Real values that take in what the operations of one line of the kernel round, and nothing else: what that line adds to an error.

A float's real value follows the words' operations without rounding. Here the operations of a line add to it by how much their word
misses their own exact result on the words that they were given. All lines behind it carry that on exactly, so what a stored real
value differs by is the share of that line in the error of the stored word, to first order in the roundings."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from bitverdict.harness.emulator.frontend.edited_programs import EditedPrograms, Widths
from bitverdict.harness.emulator.frontend.generated_code import compile_code
from bitverdict.harness.emulator.frontend.translate import TranslatedProgram, load_code, translate
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.real_values import Real, TileValue
from bitverdict.harness.model.paths import source_line
from bitverdict.reference.formats import FORMATS, decode

STORE = " (the store, which may round once)"  # behind the line of a conversion to what is stored
MOST_TRANSLATIONS = 8
MOST_LINES = 24  # launched for
MOST_ROWS = 5
LEAST_SHARE = 0.01  # of the error, told
_translations: dict[tuple, TranslatedProgram] = {}  # as they are, for the lines of one program after another
_ASSIGNMENT = re.compile(r"(?P<indent> *)(?P<name>\w+)_real = (?P<exact>.*)")
_NOT_LOCAL = ("load_real(", "argument(", "m.launch", "m.tensor_core")  # what reads memory or arguments
_FORMAT_CODES = {"bf16": "bf16", "f16": "fp16", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}  # of names that hold another the longer first
_PRODUCTS = ("ttng.warp_group_dot", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled")
_MOVES = ("ttg.convert_layout", "tt.reshape", "tt.trans", "tt.expand_dims")


class LocalErrors(EditedPrograms):
    """Launches whose real values take in the roundings of `line`, "FILE:LINE"; of none where it is empty. Once a program was
    launched, `lines` are those that round, and `product_lines` those of products of shared memory, whose rounding is not local."""

    def __init__(self, line: str = "") -> None:
        super().__init__(lambda text: None)
        self.line = line
        self.lines: dict[str, None] = {}
        self.product_lines: dict[str, None] = {}

    def translation_of(
        self, text: str, *, arch: str, is_doubted: bool, widths: Widths, **options: object
    ) -> TranslatedProgram | None:
        """The program `text` with the local errors of the line in its real values."""
        key = (text, arch, is_doubted, *options.items())
        if key not in _translations:
            if len(_translations) >= MOST_TRANSLATIONS:
                _translations.clear()
            _translations[key] = translate(text, arch=arch, widths=widths, **cast(dict[str, Any], options))
        translation = _translations[key]
        stored_names, lines = _stored_values(translation.operations), translation.source.split("\n")
        self.product_lines |= dict.fromkeys(op.location for op in translation.operations if op.name in _PRODUCTS)
        for place, text_line in enumerate(lines):
            op, match = translation.operation_at(place + 1), _ASSIGNMENT.fullmatch(text_line.partition("  #")[0])
            if op is None or match is None or op.name.startswith("scf.") or any(mark in match["exact"] for mark in _NOT_LOCAL):
                continue
            line = op.location + (
                STORE if stored_names.intersection(op.results) and op.name in ("arith.truncf", "tt.fp_to_fp") else ""
            )
            self.lines[line] = None
            if line == self.line:
                lines[place] = f"{match[0]}; {_local_text(match, op)}"
        source = "\n".join(lines)
        constants = translation.constants | {"real_of_words": real_of_words, "with_local_error": with_local_error}
        return load_code(replace(translation, source=source, constants=constants), compile_code(source))


def _local_text(found: re.Match, op: Operation) -> str:
    """The statement that adds to a real value what its operation rounds."""
    name, taken, given = found["name"], " ".join(op.operand_types), " ".join(op.result_types)
    exact = re.sub(r"\b(\w+)_real\b", lambda each: f"real_of_words({each[1]}, {taken!r})", found["exact"])
    return f"{name}_real = with_local_error({name}_real, real_of_words({name}, {given!r}), {exact})"


def _stored_values(operations: list[Operation]) -> set[str]:
    """Names of values that are stored, before and after they are moved for it."""
    found = {operand for op in operations if "store" in op.name for operand in op.operands}
    for op in reversed(operations):
        if op.name in _MOVES and found.intersection(op.results):
            found.update(op.operands)
    return found


def real_of_words(word: TileValue, types: str) -> Real:
    """The numbers that `word` holds; codes are of the one format of their width that `types` of MLIR name."""
    array = np.asarray(word)
    if array.dtype.kind == "f":
        return Real(array.astype(np.float64))
    named = [kind for mlir, kind in _FORMAT_CODES.items() if mlir in types]
    kind = next((FORMATS[each] for each in named if np.dtype(FORMATS[each].storage).itemsize == array.dtype.itemsize), None)
    return Real(array.astype(np.float64) if kind is None else decode(kind, array.view(kind.storage)))


def with_local_error(real: Real, computed: Real, exact: Real) -> Real:
    """`real`, and by how much the words that came are off the exact result on the words that were given."""
    with np.errstate(invalid="ignore"):
        error = computed.value - exact.value
    return Real(real.value + np.where(np.isnan(error), 0.0, error), real.error)  # an overflow makes all that follows infinite


def ranked_shares(probe: LocalErrors, error: float, share_of: Callable[[str], float]) -> list[tuple[str, float]]:
    """The lines that `probe` has seen round and their shares in `error`, the largest first and stores last; those that matter."""
    shares = {line: share_of(line) for line in probe.lines}
    left = error - sum(shares.values())
    shares[" and ".join(probe.product_lines) or "no line that is known"] = left
    stored = {line: share for line, share in shares.items() if line.endswith(STORE)}
    told = sorted((line for line in shares if line not in stored), key=lambda line: -abs(shares[line]))
    least = LEAST_SHARE * max(map(abs, shares.values()))
    return [(line, shares[line]) for line in (*told[:MOST_ROWS], *stored) if abs(shares[line]) >= least]


def line_text(line: str) -> str:
    """The "FILE:LINE" as reports name it, and its source."""
    if " and " in line:
        return " and ".join(line_text(each).partition("  ")[0] for each in line.split(" and "))
    file, _, number = line.removesuffix(STORE).rpartition(":")
    if not number.isdigit():
        return line
    stored = STORE if line.endswith(STORE) else ""
    return f"{source_line(file, number)}{stored}  {linecache.getline(file, int(number)).strip()}"
