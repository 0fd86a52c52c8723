"""PTX in SSA form: which instruction makes each value that another reads, through branches, copies and pairs that are packed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bitverdict.harness.emulator.frontend.assembly import placed_lines

_STATEMENT = re.compile(r"(?:@!?([%\w@]+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.S)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
_PART = re.compile(r"\{(?=\s*(?:\.reg\b|$))|^\}$|[^;]+;|\}|[$\w]+:")  # a scope begins, an instruction, it ends, a label
_REGISTER = re.compile(r"%[a-z]+\d+\b|[A-Za-z_]\w*@\d+")
_PURE = frozenset(
    "add sub mul mad fma div rem abs neg min max sqrt rsqrt rcp ex2 lg2 sin cos tanh setp selp slct and or xor not shl shr shf bfe "
    "bfi bfind brev clz popc prmt lop3 cvt cvta mov testp copysign sad mul24 mad24 szext bmsk".split()
)
_ARITHMETIC = re.compile(r"(add|sub|mul|fma|div)\.(?:\w+\.)*(?:b?f16(?:x2)?|f32(?:x2)?|f64)")
_UPDATES = ("wgmma.",)  # the first operand is read too
_WRITES_NOTHING = (
    "st.", "bra", "ret", "red.", "bar.", "barrier.", "cp.", "fence", "mbarrier.init", "mbarrier.inval", "trap", "brkpt", "exit",
    "membar", "prefetch", "griddepcontrol", "nanosleep", "stmatrix", "setmaxnreg",
)  # fmt: skip
_REGISTER_MARK = re.compile(r"%(?!\w)")  # a register in `Step.operands`
_COPY = re.compile(r"mov\.[bus](16|32|64)")
LEAVES = ("bra", "ret", "exit")  # kinds of what ends a block

Value = tuple[int, int]  # the instruction (or phi) that makes it, and which of its results it is
_UNDEFINED_VALUE: Value = (-1, 0)


@dataclass
class Step:
    """One instruction: its opcode, its operands with "%" for registers, what it writes and reads, its block, the label that it
    branches to, its line. A guarded instruction reads its guard and what it may leave in place, behind the others."""

    opcode: str
    operands: tuple[str, ...]
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    block: int
    line: int
    pure: bool
    is_guarded: bool
    target: int | None = None
    read_values: list[Value] = field(default_factory=list)  # the values of `reads`

    @property
    def kind(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def arithmetic(self) -> str:
        """Which operation on floats it is; empty for none."""
        return found[1] if (found := _ARITHMETIC.fullmatch(self.opcode)) else ""

    @property
    def copies(self) -> bool:
        return self.pure and len(self.reads) == len(self.writes) == 1 and bool(_COPY.fullmatch(self.opcode))

    def parts(self) -> Iterator[Value | str]:
        """Its operands: values, and constants as they stand there."""
        values = iter(self.read_values)
        for operand in self.operands:
            count = len(_REGISTER_MARK.findall(operand))
            yield from (next(values) for _ in range(count)) if count else (operand,)


@dataclass
class Ssa:
    """Instructions, and behind them the phis: of each the values that the predecessors of its block bring."""

    steps: list[Step]
    phis: list[list[Value]]


def ssa(text: str) -> Ssa:
    """The PTX `text`. ValueError where it is not understood."""
    statements = list(_statements(text))
    labels = {s.split()[-1] for _, s in statements if re.match(r"(?:@!?\S+\s+)?bra[.\s]", s)}
    order = {name: number for number, name in enumerate(s[:-1] for _, s in statements if s.endswith(":") and s[:-1] in labels)}
    if len(order) != len(labels) or sum(s.endswith(":") and s[:-1] in labels for _, s in statements) != len(labels):
        raise ValueError("PTX: a label that is missing, or stands twice")
    steps = list[Step]()
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
        guard, opcode, rest = found.groups()
        operands = [operand.strip() for operand in _OPERAND.findall(rest)]
        kind = opcode.partition(".")[0]
        wrote = 0 if opcode.startswith(_WRITES_NOTHING) else 1
        writes = tuple(name for operand in operands[:wrote] for name in _REGISTER.findall(operand))
        read, target = operands[wrote:], None
        if kind == "bra":
            read, target = [], order[operands[-1]]
        names = [name for operand in read for name in _REGISTER.findall(operand)]
        if guard:
            names += [guard, *writes]
        elif opcode.startswith(_UPDATES):
            names += writes
        pure = (kind in _PURE and not guard) or opcode.startswith("ld.param")
        plain = tuple(_REGISTER.sub("%", operand) for operand in read)
        steps.append(Step(opcode, plain, writes, tuple(names), block, line, pure, bool(guard), target))
        block += kind in LEAVES
    return _in_ssa(steps, _predecessors(steps, begins))


def _predecessors(steps: list[Step], begins: dict[int, int]) -> list[list[int]]:
    """Of each block, those that may run before it; `begins` is the block of each label."""
    ends: dict[int, Step] = {step.block: step for step in steps}
    count = max([*ends, *begins.values()], default=0) + 1
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for block in range(count):
        end = ends.get(block)
        if end is not None and end.target is not None:
            predecessors[begins[end.target]].append(block)
        leaves = end is not None and not end.is_guarded and end.kind in LEAVES
        if not leaves and block + 1 < count and block not in predecessors[block + 1]:
            predecessors[block + 1].append(block)
    return predecessors


def _in_ssa(steps: list[Step], before: list[list[int]]) -> Ssa:
    """Each step with the values that it reads (Braun et al., "Simple and Efficient Construction of Static Single Assignment
    Form")."""
    phis: list[list[Value]] = []
    phi_blocks: list[int] = []
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
        phis.append([])
        phi_blocks.append(block)
        entry_values[block, name] = phi
        incomplete_phis.append((phi, name))
        return phi

    reading: list[tuple[Step, int, str]] = []  # what is read before its block writes it
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
        number = phi[0] - len(steps)
        phis[number] += [at_end(each, name) for each in before[phi_blocks[number]]]
    replacements.update({(step_number, 0): step.read_values[0] for step_number, step in enumerate(steps) if step.copies})

    pairs = {i for i, step in enumerate(steps) if step.kind == "mov" and len(step.reads) == 2}

    def root(value: Value) -> Value:
        while value in replacements or (value[0] in halves and steps[value[0]].read_values[0][0] in pairs):
            value = replacements[value] if value in replacements else steps[steps[value[0]].read_values[0][0]].read_values[value[1]]
        return value

    halves = {i for i, step in enumerate(steps) if step.kind == "mov" and len(step.writes) == 2 and len(step.reads) == 1}

    has_changed = True
    while has_changed:
        has_changed = False
        for step_number, incoming_values in enumerate(phis, len(steps)):
            if (step_number, 0) not in replacements and len(
                others := {root(value) for value in incoming_values} - {(step_number, 0)}
            ) == 1:
                replacements[step_number, 0] = others.pop()
                has_changed = True
    for step in steps:
        step.read_values = [root(value) for value in step.read_values]
    return Ssa(steps, [[root(value) for value in incoming_values] for incoming_values in phis])


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


__all__ = ["LEAVES", "Ssa", "Step", "Value", "ssa"]
