"""Whether two PTX programs are the same but for the order of their instructions, registers and lines.

LLVM's passes that move or pack instructions lose the lines of the tile program. Compiled without such a pass, a program may come
out with the same instructions and all their lines. Then what is read from the one holds for the other. That they are the same is
proved here: block by block, what has an effect (memory, barriers, tensor cores, branches) stands in the same order and takes the
same values. Two values are the same where the same instruction of the same block makes them of the same values, or where branches
bring the same values to the same block (registers are put into SSA form); those of loops are taken for the same until something
tells them apart (the coarsest bisimulation, by refinement of a partition).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bitverdict.harness.emulator.frontend.assembly import placed_lines

_STATEMENT = re.compile(r"(?:@(!?)([%\w@]+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.S)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
_PART = re.compile(r"\{(?=\s*(?:\.reg\b|$))|^\}$|[^;]+;|\}|[$\w]+:")  # a scope begins, an instruction, it ends, a label
_REGISTER = re.compile(r"%[a-z]+\d+\b|[A-Za-z_]\w*@\d+")
_PURE = frozenset(
    "add sub mul mad fma div rem abs neg min max sqrt rsqrt rcp ex2 lg2 sin cos tanh setp selp slct and or xor not shl shr shf bfe "
    "bfi bfind brev clz popc prmt lop3 cvt cvta mov testp copysign sad mul24 mad24 szext bmsk".split()
)
_COMMUTE = frozenset("add mul fma mad and or xor min max".split())  # the first two operands
_ARITHMETIC = ("add.", "sub.", "mul.", "fma.", "div.")
_UPDATES = ("wgmma.",)  # the first operand is read too
_WRITES_NOTHING = (
    "st.", "bra", "ret", "red.", "bar.", "barrier.", "cp.", "fence", "mbarrier.init", "mbarrier.inval", "trap", "brkpt", "exit",
    "membar", "prefetch", "griddepcontrol", "nanosleep", "stmatrix", "setmaxnreg",
)  # fmt: skip
_COPY = re.compile(r"mov\.[bus](16|32|64)")
_ROUNDS = 60


Value = tuple[int, int]  # the instruction (or phi) that makes it, and which of its results it is
_UNDEFINED_VALUE: Value = (-1, 0)


@dataclass
class _Step:
    """One instruction: its opcode, guard and operands without the registers (`shape`), what it writes and reads, its block, the
    label that it branches to, its line. A guarded instruction reads what it may leave in place."""

    shape: tuple[str, ...]
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    block: int
    line: int
    pure: bool
    commutes: bool
    target: int | None = None
    read_values: list[Value] = field(default_factory=list)  # the values of `reads`

    @property
    def arithmetic(self) -> bool:
        return self.shape[2].startswith(_ARITHMETIC)

    @property
    def copies(self) -> bool:
        return self.pure and len(self.reads) == len(self.writes) == 1 and bool(_COPY.fullmatch(self.shape[2]))


@dataclass
class _Ssa:
    """Instructions, and behind them the phis: the block of each, and the values that its predecessors bring."""

    steps: list[_Step]
    phis: list[tuple[int, list[Value]]]


def same_lines(one: str, other: str) -> dict[tuple[str, int], set[int]] | None:
    """Of each sum and product of floats in `other`, by the register that it writes and its line there: the lines under which `one`
    computes the same. Both are PTX texts. None where they are not shown to be the same program."""
    try:
        programs = [_ssa(one), _ssa(other)]
    except ValueError:
        return None
    classes = _classes(programs)
    if classes is None:
        return None
    numbered_steps = [[*zip(each.steps, found, strict=False)] for each, found in zip(programs, classes, strict=True)]
    effects = [[number for step, number in pairs if not step.pure] for pairs in numbered_steps]
    if effects[0] != effects[1]:
        return None
    lines_by_class: dict[int, set[int]] = {}
    for step, number in numbered_steps[0]:
        if step.arithmetic:
            lines_by_class.setdefault(number, set()).add(step.line)
    lines: dict[tuple[str, int], set[int]] = {}
    for step, number in numbered_steps[1]:
        if step.arithmetic:
            lines.setdefault((step.writes[0], step.line), set()).update(lines_by_class.get(number, ()))
    return lines


def _classes(programs: list[_Ssa]) -> list[list[int]] | None:
    """The class of each instruction and phi of both programs: equal numbers where they compute the same. None where it does not
    settle."""
    class_numbers = [[0] * (len(program.steps) + len(program.phis)) for program in programs]
    count, begin = 1, 0
    for _ in range(_ROUNDS):
        numbers: dict[tuple, int] = {}
        begin += count  # a number of one round is none of another
        for program, current_classes in zip(programs, class_numbers, strict=True):
            for step_number, step in enumerate(program.steps):
                read_classes = [(current_classes[maker] if maker >= 0 else -1, result) for maker, result in step.read_values]
                if step.commutes:
                    read_classes[:2] = sorted(read_classes[:2])
                current_classes[step_number] = numbers.setdefault(
                    (step.shape, step.block, current_classes[step_number], *read_classes), begin + len(numbers)
                )
            for step_number, (block, brought) in enumerate(program.phis, len(program.steps)):
                read_classes = [(current_classes[maker] if maker >= 0 else -1, result) for maker, result in brought]
                current_classes[step_number] = numbers.setdefault(
                    ("phi", block, current_classes[step_number], *read_classes), begin + len(numbers)
                )
        if len(numbers) == count:
            return class_numbers
        count = len(numbers)
    return None


def _ssa(text: str) -> _Ssa:
    statements = list(_statements(text))
    labels = {s.split()[-1] for _, s in statements if re.match(r"(?:@!?\S+\s+)?bra[.\s]", s)}
    order = {name: number for number, name in enumerate(s[:-1] for _, s in statements if s.endswith(":") and s[:-1] in labels)}
    if len(order) != len(labels) or sum(s.endswith(":") and s[:-1] in labels for _, s in statements) != len(labels):
        raise ValueError("PTX: a label that is missing, or stands twice")
    steps = list[_Step]()
    begins = dict[int, int]()  # label -> block
    block = 0
    for line, statement in statements:
        if statement.endswith(":"):
            if statement[:-1] in order:
                block += 1
                begins[order[statement[:-1]]] = block
            continue
        found = _STATEMENT.match(statement)
        if found is None:
            raise ValueError(f"PTX: {statement}")
        negation, guard, opcode, rest = found.groups()
        operands = [operand.strip() for operand in _OPERAND.findall(rest)]
        kind = opcode.partition(".")[0]
        wrote = 0 if opcode.startswith(_WRITES_NOTHING) else 1
        writes = tuple(name for operand in operands[:wrote] for name in _REGISTER.findall(operand))
        read, target = operands[wrote:], None
        if kind == "bra":
            read, target = [], order[operands[-1]]
        shape = (
            negation or "",
            "guarded" if guard else "",
            opcode,
            str(target),
            *(_REGISTER.sub("%", operand) for operand in read),
        )
        names = [name for operand in read for name in _REGISTER.findall(operand)]
        if guard:
            names += [guard, *writes]
        elif opcode.startswith(_UPDATES):
            names += writes
        commutes = kind in _COMMUTE and all(_REGISTER.fullmatch(operand) for operand in read[:2])
        pure = (kind in _PURE and not guard) or opcode.startswith("ld.param")
        steps.append(_Step((*shape, str(len(writes))), writes, tuple(names), block, line, pure, commutes, target))
        block += kind in ("bra", "ret", "exit")
    return _in_ssa(steps, _predecessors(steps, begins))


def _predecessors(steps: list[_Step], begins: dict[int, int]) -> list[list[int]]:
    """Of each block, those that may run before it; `begins` is the block of each label."""
    ends: dict[int, _Step] = {step.block: step for step in steps}
    count = max([*ends, *begins.values()], default=0) + 1
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for block in range(count):
        end = ends.get(block)
        if end is not None and end.target is not None:
            predecessors[begins[end.target]].append(block)
        leaves = end is not None and end.shape[1] == "" and end.shape[2].partition(".")[0] in ("bra", "ret", "exit")
        if not leaves and block + 1 < count and block not in predecessors[block + 1]:
            predecessors[block + 1].append(block)
    return predecessors


def _in_ssa(steps: list[_Step], before: list[list[int]]) -> _Ssa:
    """Each step with the values that it reads (Braun et al., "Simple and Efficient Construction of Static Single Assignment
    Form")."""
    phis: list[tuple[int, list[Value]]] = []
    replacements: dict[Value, Value] = {}  # a phi that only one value is brought to -> that value
    entry_values: dict[tuple[int, str], Value] = {}
    exit_values: list[dict[str, Value]] = [{} for _ in before]  # what a block writes last

    def at_end(block: int, name: str) -> Value:
        """What `name` holds when `block` ends, or a phi whose values are not known yet."""
        blocks = list[int]()
        while (
            name not in exit_values[block] and (block, name) not in entry_values and len(before[block]) == 1 and block not in blocks
        ):
            blocks.append(block)
            (block,) = before[block]
        value = exit_values[block].get(name) or at_begin(block, name)
        for each in blocks:
            entry_values[each, name] = value
        return value

    incomplete_phis: list[tuple[Value, str]] = []

    def at_begin(block: int, name: str) -> Value:
        if (block, name) in entry_values:
            return entry_values[block, name]
        if not before[block]:
            return _UNDEFINED_VALUE
        if len(before[block]) == 1 and before[block][0] != block:
            return at_end(before[block][0], name)
        phi = (len(steps) + len(phis), 0)
        phis.append((block, []))
        entry_values[block, name] = phi
        incomplete_phis.append((phi, name))
        return phi

    reading: list[tuple[_Step, int, str]] = []  # what is read before its block writes it
    local: dict[str, Value] = {}
    for step_number, step in enumerate(steps):
        if step_number and steps[step_number - 1].block != step.block:
            local = {}
        step.read_values = [local.get(name, _UNDEFINED_VALUE) for name in step.reads]
        reading += [(step, place, name) for place, name in enumerate(step.reads) if name not in local]
        local.update({name: (step_number, i) for i, name in enumerate(step.writes)})
        exit_values[step.block] = local
    for step, place, name in reading:
        step.read_values[place] = at_begin(step.block, name)
    while incomplete_phis:
        phi, name = incomplete_phis.pop()
        block, incoming_values = phis[phi[0] - len(steps)]
        incoming_values += [at_end(each, name) for each in before[block]]
    replacements.update({(step_number, 0): step.read_values[0] for step_number, step in enumerate(steps) if step.copies})

    def root(value: Value) -> Value:
        while value in replacements:
            value = replacements[value]
        return value

    has_changed = True
    while has_changed:
        has_changed = False
        for step_number, (_, incoming_values) in enumerate(phis, len(steps)):
            if (step_number, 0) not in replacements and len(
                others := {root(value) for value in incoming_values} - {(step_number, 0)}
            ) == 1:
                replacements[step_number, 0] = others.pop()
                has_changed = True
    for step in steps:
        step.read_values = [root(value) for value in step.read_values]
    return _Ssa(steps, [(block, [root(value) for value in incoming_values]) for block, incoming_values in phis])


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each instruction and label of the bodies in `text`, with its line of the tile program (from 0; -1 for none). Registers of an
    inner scope get its number: "p@3"."""
    scopes, numbers = list[tuple[int, set[str]]](), 0
    for line, raw in placed_lines(text):
        plain = raw.partition("//")[0].strip()
        if plain.startswith(".section"):  # what follows is for debuggers
            return
        if scopes and _PART.sub("", plain).strip():
            raise ValueError(f"PTX over several lines: {plain}")
        for part in _PART.findall(plain):
            statement = part.strip()
            if statement == "{":
                numbers += 1
                scopes.append((numbers, set()))
            elif statement == "}":
                if scopes:
                    scopes.pop()
            elif statement.startswith(".reg"):
                if len(scopes) > 1:
                    scopes[-1][1].update(re.findall(r"[A-Za-z_]\w*", re.sub(r"\.\w+", "", statement)))
            elif statement.endswith(":"):
                yield line, statement
            elif not statement.startswith(".") and scopes:
                yield line, _scope_names(statement.rstrip(";").strip(), scopes[1:])


def _scope_names(statement: str, scopes: list[tuple[int, set[str]]]) -> str:
    for number, names in reversed(scopes):
        for name in names:
            statement = re.sub(rf"(?<![\w.%$]){name}\b(?!@)", f"{name}@{number}", statement)
    return statement


__all__ = ["same_lines"]
