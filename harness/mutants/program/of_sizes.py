"""Whether an edit of a tile program changes nothing but how sizes are cut: indices, masks, bounds, what a masked load gives.

What the edit takes must come from sizes, program ids, lanes, row numbers and small constants by arithmetic of indices, and what it
gives must go no other way than into such arithmetic, an address, a mask, a flag or a branch. Only then can a small domain of calls
show that a mutant is equivalent: an edit of random numbers or of floats may differ in one word of 2^32.
"""

from __future__ import annotations

import re

from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.mutants.program.canonical import is_pure
from bitverdict.harness.mutants.program.tile_program import Site, TileProgram, is_boolean, is_integer

LARGEST = 4096  # a constant that a small size comes about
OF_INDICES = frozenset(
    f"arith.{name}"
    for name in (
        "addi subi muli divsi divui remsi remui minsi minui maxsi maxui cmpi andi ori extsi extui trunci select constant "
        "index_cast ceildivsi floordivsi"
    ).split()
) | {
    "tt.get_program_id", "tt.get_num_programs", "tt.make_range", "tt.splat", "tt.expand_dims", "tt.broadcast", "tt.trans",
    "tt.addptr", "tt.load", "ttg.convert_layout",
}  # fmt: skip
"""Operations of indices; a load of row numbers or sizes among them."""
MASKS = {"tt.load": ("pointer", "mask?", "other?"), "ttg.async_copy_global_to_local": ("pointer", "view", "mask?", "other?")}
FLAGS = ("predicate", "accumulate flag", "mask", "trip count", "first turn", "branch", "limit")
"""How operators begin that change an operand of an operation with an effect, and no more than whether it happens."""
_NUMBER = re.compile(r"(?:dense<)?(-?\d+)(?:>| :|$)")


def of_sizes(site: Site, operator: str) -> bool:
    """Whether the edit of `operator` at `site` is one of sizes."""
    op, program = site.op, site.program
    if operator.startswith("other value"):
        return _has_size_mask(op, program)
    if op.name == "arith.constant" and not _is_integer_type(op.result_types[0]):
        return bool(site.users) and all(each.name in MASKS and _has_size_mask(each, program, op.results[0]) for each in site.users)
    if not is_pure(op) and not operator.startswith(FLAGS):
        return False
    if any(not _index(kind) for kind in op.result_types) and is_pure(op):
        return False
    taken = [name for name, kind in zip(op.operands, op.operand_types, strict=True) if _is_integer_type(kind)]
    return _comes_of_sizes(taken, program) and _is_small(op) and (not is_pure(op) or _goes_to_sizes(op, program))


def _has_size_mask(op: Operation, program: TileProgram, other_value: str = "") -> bool:
    """Whether what `op` gives outside of its mask is decided by sizes: the mask is. `other`: the value that it must give there, and
    take nowhere else."""
    if op.name not in MASKS:
        return False
    groups = op.operands_by_name(*MASKS[op.name])
    mask, given = groups.get("mask"), groups.get("other")
    if not mask or not given or (other_value and (other_value not in given or list(op.operands).count(other_value) != 1)):
        return False
    return _comes_of_sizes([mask] if isinstance(mask, str) else list(mask), program)


def _comes_of_sizes(names: list[str], program: TileProgram) -> bool:
    """Whether `names` come from sizes, ids, lanes, loaded integers and small constants alone."""
    stack, seen = list(names), set()
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        for op in program.definers.get(name, ()):
            if op.name not in OF_INDICES or not _is_small(op):
                return False
            if op.name != "tt.load":
                stack += [each for each, kind in zip(op.operands, op.operand_types, strict=True) if _is_integer_type(kind)]
            elif not _is_integer_type(op.result_types[0]):
                return False
    return True


def _goes_to_sizes(op: Operation, program: TileProgram) -> bool:
    """Whether the results of `op` go into arithmetic of indices alone, until an address, a mask, a flag or a branch takes them."""
    stack, seen = list(op.results), set()
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        for user in program.users.get(name, ()):
            if not is_pure(user) or user.name == "tt.addptr":
                continue
            chosen = user.name == "arith.select" and user.operands[0] == name
            if not chosen and (user.name not in OF_INDICES or not all(map(_is_integer_type, user.result_types))):
                return False
            if not all(_is_small(each) for operand in user.operands for each in program.definers.get(operand, ())):
                return False
            if all(map(_is_integer_type, user.result_types)):
                stack += user.results
    return True


def _is_small(op: Operation) -> bool:
    """Whether `op` is no constant, or a small one."""
    if op.name != "arith.constant" or not is_integer(op.result_types[0]) or is_boolean(op.result_types[0]):
        return True
    found = _NUMBER.match(op.attributes.get("value", ""))
    return found is not None and abs(int(found[1])) <= LARGEST


def _is_integer_type(kind: str) -> bool:
    return is_integer(kind)


def _index(kind: str) -> bool:
    return is_integer(kind) or "!tt.ptr" in kind
