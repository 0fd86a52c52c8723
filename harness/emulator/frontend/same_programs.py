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
_UNDEFINED: Value = (-1, 0)


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
    taken: list[Value] = field(default_factory=list)  # the values of `reads`

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
        both = [_ssa(one), _ssa(other)]
    except ValueError:
        return None
    classes = _classes(both)
    if classes is None:
        return None
    numbered = [[*zip(each.steps, found, strict=False)] for each, found in zip(both, classes, strict=True)]
    effects = [[number for step, number in pairs if not step.pure] for pairs in numbered]
    if effects[0] != effects[1]:
        return None
    there: dict[int, set[int]] = {}
    for step, number in numbered[0]:
        if step.arithmetic:
            there.setdefault(number, set()).add(step.line)
    lines: dict[tuple[str, int], set[int]] = {}
    for step, number in numbered[1]:
        if step.arithmetic:
            lines.setdefault((step.writes[0], step.line), set()).update(there.get(number, ()))
    return lines


def _classes(both: list[_Ssa]) -> list[list[int]] | None:
    """The class of each instruction and phi of both programs: equal numbers where they compute the same. None where it does not
    settle."""
    found = [[0] * (len(each.steps) + len(each.phis)) for each in both]
    count, begin = 1, 0
    for _ in range(_ROUNDS):
        numbers: dict[tuple, int] = {}
        begin += count  # a number of one round is none of another
        for each, now in zip(both, found, strict=True):
            for at, step in enumerate(each.steps):
                taken = [(now[maker] if maker >= 0 else -1, result) for maker, result in step.taken]
                if step.commutes:
                    taken[:2] = sorted(taken[:2])
                now[at] = numbers.setdefault((step.shape, step.block, now[at], *taken), begin + len(numbers))
            for at, (block, brought) in enumerate(each.phis, len(each.steps)):
                taken = [(now[maker] if maker >= 0 else -1, result) for maker, result in brought]
                now[at] = numbers.setdefault(("phi", block, now[at], *taken), begin + len(numbers))
        if len(numbers) == count:
            return found
        count = len(numbers)
    return None


def _ssa(text: str) -> _Ssa:
    listed = list(_statements(text))
    labels = {s.split()[-1] for _, s in listed if re.match(r"(?:@!?\S+\s+)?bra[.\s]", s)}
    order = {name: number for number, name in enumerate(s[:-1] for _, s in listed if s.endswith(":") and s[:-1] in labels)}
    if len(order) != len(labels) or sum(s.endswith(":") and s[:-1] in labels for _, s in listed) != len(labels):
        raise ValueError("PTX: a label that is missing, or stands twice")
    steps = list[_Step]()
    begins = dict[int, int]()  # label -> block
    block = 0
    for line, statement in listed:
        if statement.endswith(":"):
            if statement[:-1] in order:
                block += 1
                begins[order[statement[:-1]]] = block
            continue
        found = _STATEMENT.match(statement)
        if found is None:
            raise ValueError(f"PTX: {statement}")
        negated, guard, opcode, rest = found.groups()
        operands = [each.strip() for each in _OPERAND.findall(rest)]
        kind = opcode.partition(".")[0]
        wrote = 0 if opcode.startswith(_WRITES_NOTHING) else 1
        writes = tuple(name for each in operands[:wrote] for name in _REGISTER.findall(each))
        read, target = operands[wrote:], None
        if kind == "bra":
            read, target = [], order[operands[-1]]
        shape = (negated or "", "guarded" if guard else "", opcode, str(target), *(_REGISTER.sub("%", each) for each in read))
        names = [name for each in read for name in _REGISTER.findall(each)]
        if guard:
            names += [guard, *writes]
        elif opcode.startswith(_UPDATES):
            names += writes
        commutes = kind in _COMMUTE and all(_REGISTER.fullmatch(each) for each in read[:2])
        pure = (kind in _PURE and not guard) or opcode.startswith("ld.param")
        steps.append(_Step((*shape, str(len(writes))), writes, tuple(names), block, line, pure, commutes, target))
        block += kind in ("bra", "ret", "exit")
    return _in_ssa(steps, _predecessors(steps, begins))


def _predecessors(steps: list[_Step], begins: dict[int, int]) -> list[list[int]]:
    """Of each block, those that may run before it; `begins` is the block of each label."""
    ends: dict[int, _Step] = {step.block: step for step in steps}
    count = max([*ends, *begins.values()], default=0) + 1
    found: list[list[int]] = [[] for _ in range(count)]
    for block in range(count):
        end = ends.get(block)
        if end is not None and end.target is not None:
            found[begins[end.target]].append(block)
        leaves = end is not None and end.shape[1] == "" and end.shape[2].partition(".")[0] in ("bra", "ret", "exit")
        if not leaves and block + 1 < count and block not in found[block + 1]:
            found[block + 1].append(block)
    return found


def _in_ssa(steps: list[_Step], before: list[list[int]]) -> _Ssa:
    """Each step with the values that it reads (Braun et al., "Simple and Efficient Construction of Static Single Assignment
    Form")."""
    phis: list[tuple[int, list[Value]]] = []
    same: dict[Value, Value] = {}  # a phi that only one value is brought to -> that value
    entering: dict[tuple[int, str], Value] = {}
    leaving: list[dict[str, Value]] = [{} for _ in before]  # what a block writes last

    def at_end(block: int, name: str) -> Value:
        """What `name` holds when `block` ends, or a phi whose values are not known yet."""
        passed = list[int]()
        while name not in leaving[block] and (block, name) not in entering and len(before[block]) == 1 and block not in passed:
            passed.append(block)
            (block,) = before[block]
        value = leaving[block].get(name) or at_begin(block, name)
        for each in passed:
            entering[each, name] = value
        return value

    waiting: list[tuple[Value, str]] = []

    def at_begin(block: int, name: str) -> Value:
        if (block, name) in entering:
            return entering[block, name]
        if not before[block]:
            return _UNDEFINED
        if len(before[block]) == 1 and before[block][0] != block:
            return at_end(before[block][0], name)
        phi = (len(steps) + len(phis), 0)
        phis.append((block, []))
        entering[block, name] = phi
        waiting.append((phi, name))
        return phi

    reading: list[tuple[_Step, int, str]] = []  # what is read before its block writes it
    local: dict[str, Value] = {}
    for at, step in enumerate(steps):
        if at and steps[at - 1].block != step.block:
            local = {}
        step.taken = [local.get(name, _UNDEFINED) for name in step.reads]
        reading += [(step, place, name) for place, name in enumerate(step.reads) if name not in local]
        local.update({name: (at, i) for i, name in enumerate(step.writes)})
        leaving[step.block] = local
    for step, place, name in reading:
        step.taken[place] = at_begin(step.block, name)
    while waiting:
        phi, name = waiting.pop()
        block, brought = phis[phi[0] - len(steps)]
        brought += [at_end(each, name) for each in before[block]]
    same.update({(at, 0): step.taken[0] for at, step in enumerate(steps) if step.copies})

    def root(value: Value) -> Value:
        while value in same:
            value = same[value]
        return value

    changed = True
    while changed:
        changed = False
        for at, (_, brought) in enumerate(phis, len(steps)):
            if (at, 0) not in same and len(others := {root(value) for value in brought} - {(at, 0)}) == 1:
                same[at, 0] = others.pop()
                changed = True
    for step in steps:
        step.taken = [root(value) for value in step.taken]
    return _Ssa(steps, [(block, [root(value) for value in brought]) for block, brought in phis])


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
                yield line, _scoped(statement.rstrip(";").strip(), scopes[1:])


def _scoped(statement: str, scopes: list[tuple[int, set[str]]]) -> str:
    for number, names in reversed(scopes):
        for name in names:
            statement = re.sub(rf"(?<![\w.%$]){name}\b(?!@)", f"{name}@{number}", statement)
    return statement


__all__ = ["same_lines"]
