"""Which mutants compute what the kernel computes: no case could fail them.

Two tile programs are equal where their canonical forms are (`program.canonical`). That holds for the numbers that are looked at:
grids of up to 65,536 programs an axis, integer arguments from 0 to 2^20. What a masked load gives outside of its mask is left out
where nothing of it can be stored or decide a branch. Where the forms differ, the machine code may still be the same
(`same_machine_code`). What is not shown here stays what the cases made of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.edited_programs import EditedProgram
from bitverdict.harness.emulator.frontend.program_verifier import verify_program
from bitverdict.harness.emulator.frontend.translator import Translator
from bitverdict.harness.emulator.memory.undefined_lanes import UndefinedLanes
from bitverdict.harness.emulator.mlir_reader import parse_program
from bitverdict.harness.mutants.program.canonical import Canonical, free_of_layouts
from bitverdict.harness.mutants.program.copy_groups import COMMIT, without_a_commit
from bitverdict.harness.mutants.program.lines import line_of
from bitverdict.harness.mutants.program.small_domain import same_on_small_domain
from bitverdict.harness.mutants.program.tile_program import TileProgram, tile_program
from bitverdict.harness.mutants.same_machine_code import same_machine_code

SAME_FORM = "equal tile programs in canonical form"
UNUSED_OTHER = "what a masked load gives outside of its mask is never stored and decides no branch"
LAYOUT = "equal tile programs but for layouts on which no operation of it depends"
MACHINE = "the compiler makes the same machine code of both"
BARRIERS = "equal tile programs but for barriers, which the compiler put wherever shared memory is used again"
COMMITS = "equal tile programs but for a commit whose copies the next one takes along, before every wait that tells them apart"
UNUSED_BARRIER_MEMORY = "the memory of a barrier that is not invalidated is not used again"


def equal_programs(right_text: str, mutant: str, arch: str, negative: Collection[str] = (), *, machine: bool = False) -> str:
    """Why the tile programs `right` and `mutant` (texts) for the target `arch` compute the same; empty where that is not shown.
    `negative`: integer arguments that launches make negative. `machine`: their machine code is compared too, seconds for each."""
    negative_names = tuple(sorted(negative))
    if right_text == mutant or _form(right_text, negative_names) == _form(mutant, negative_names):
        return SAME_FORM
    for plain, changed in _drop_other_values(right_text, mutant):
        if _form(plain, negative_names) == _form(changed, negative_names) and not _undefined_reach(plain, arch):
            return UNUSED_OTHER
    if _form(right_text, negative_names, without_layouts=True) == _form(mutant, negative_names, without_layouts=True):
        return LAYOUT
    if "ttng.inval_barrier" in right_text and _form(_without_lines(right_text, _INVALIDATION), negative_names) == _form(
        _without_lines(mutant, _INVALIDATION), negative_names
    ):
        return UNUSED_BARRIER_MEMORY
    if right_text.count(COMMIT) == mutant.count(COMMIT) + 1 and any(
        _form(each, negative_names) == _form(mutant, negative_names) for each in without_a_commit(right_text)
    ):
        return COMMITS
    return MACHINE if machine and same_machine_code(right_text, mutant, arch) else ""


SMALL_NUMBERS = "equal indices, masks and branches for every combination of small numbers"


def equal_edits(
    edits: Iterable[tuple[str, EditedProgram]], arch: str, negative: Collection[str] = (), *, machine: bool = False
) -> str:
    """Why each edit of a tile program (its text) computes what the program does; empty where that is not shown of all.
    `SMALL_NUMBERS`: arguments, program ids and what loops carry are numbers about zero, about the constants of the program and
    about products of two. A larger number may still tell them apart, so it is a reason to doubt, and no proof."""
    reason = ""
    for right, edit in edits:
        reason = equal_programs(right, edit.text, arch, negative, machine=machine)
        if (
            not reason
            and not edit.floats
            and same_on_small_domain(tile_program(right), TileProgram(edit.text), edit.original_lines)
        ):
            reason = SMALL_NUMBERS
        if not reason:
            return ""
    return reason


def prove_all_equal(pairs: Iterable[tuple[str, str]], arch: str, negative: Collection[str] = ()) -> str:
    """`equal_programs` of all `pairs`, of which there is one at least, their machine code compared. Each program is as the compiler
    left it, after it put its barriers in."""
    reason = ""
    for right, mutant in pairs:
        reason = equal_programs(right, mutant, arch, negative) or _equal_but_for_barriers(right, mutant, tuple(sorted(negative)))
        if not reason and not (reason := equal_programs(right, mutant, arch, negative, machine=True)):
            return ""
    return reason


def _equal_but_for_barriers(right_text: str, mutant: str, negative: tuple[str, ...]) -> str:
    """`BARRIERS` where that holds of two programs as the compiler left them. No thread of theirs reads what another one wrote, but
    through shared memory, and nothing that runs beside the threads, such as a TMA copy or wgmma, ends later than its operation:
    copies by cp.async do, and the compiler puts a barrier behind each wait for them."""
    if _BARRIER not in right_text + mutant:
        return ""
    bare = [_without_lines(text, _BARRIER) for text in (right_text, mutant)]
    if _form(bare[0], negative) != _form(bare[1], negative):
        return ""
    program = parse_program(bare[0])
    beside = any(op.name.startswith("ttng.") for op in program.operations())
    return BARRIERS if free_of_layouts(program) and not beside else ""


@lru_cache(maxsize=512)
def _form(text: str, negative: tuple[str, ...], *, without_layouts: bool = False) -> str:
    """The canonical form of `text`; of one that has none, itself."""
    try:
        return Canonical(parse_program(text), negative=negative, without_layouts=without_layouts).form
    except (KeyError, ValueError, IndexError):
        return text


def _drop_other_values(right: str, mutant: str) -> Iterator[tuple[str, str]]:
    """Both programs in which no masked load says what it gives outside of its mask; then those in which one of them does not."""
    lines = [text.split("\n") for text in (right, mutant)]
    bare = [[_bare(line) for line in text] for text in lines]
    places = [[line_number for line_number, line in enumerate(text) if _bare(line) != line] for text in lines]
    if any(places):
        yield "\n".join(bare[0]), "\n".join(bare[1])
    if len(places[0]) != len(places[1]) or len(places[0]) < 2:
        return
    for pair in zip(*places, strict=True):
        one, other = (
            [*text[:line_number], _bare(text[line_number]), *text[line_number + 1 :]]
            for text, line_number in zip(lines, pair, strict=True)
        )
        yield "\n".join(one), "\n".join(other)


def _bare(text: str) -> str:
    for name, sizes, place in (("tt.load", "1, 1, 1", 2), ("ttg.async_copy_global_to_local", "1, 1, 1, 1", 3)):
        if f'"{name}"(' in text and f"operandSegmentSizes = array<i32: {sizes}>" in text:
            line = line_of(text).without_operands(place)
            return line.with_values(operandSegmentSizes=f"array<i32: {sizes[:-1]}0>").text
    return text


_BARRIER, _INVALIDATION = '"ttg.barrier"(', '"ttng.inval_barrier"('


def _without_lines(text: str, operation: str) -> str:
    return "\n".join(line for line in text.split("\n") if operation not in line)


def _undefined_reach(text: str, arch: str) -> bool:
    """Whether lanes that loads of `text` leave undefined may reach memory or a branch, as far as the text tells."""
    try:
        program = verify_program(text, arch)
    except EmulatedFault:
        return True
    for function in program.functions.values():
        translator = Translator(program, arch=arch, fuses=True)
        translator.begin()
        translator.scan(function.blocks)
        if UndefinedLanes(translator, function.blocks, program):
            return True
    return False
