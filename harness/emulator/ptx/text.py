"""PTX as written: functions, their basic blocks and instructions, registers, local memory, constant data.

PTX ISA, chapters 4 and 5. Each register of an inner scope (`{ .reg .b32 t; ... }`) gets a name of its own. Directives for the
debugger and hints (`.loc`, `.pragma`, `.reqntid`) are passed over.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

_WIDTH = {"b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32,
          "b32": 32, "u32": 32, "s32": 32, "f32": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64, "pred": 1}  # fmt: skip


class NotPtx(ValueError):
    """A text that is not PTX as this module knows it; the message has the statement."""


@dataclass(frozen=True)
class Statement:
    """One instruction: `operands` as written, in order, vectors in braces and addresses in brackets; `guard` a predicate or ""."""

    opcode: str
    operands: tuple[str, ...]
    guard: str = ""
    is_negated: bool = False

    def __str__(self) -> str:
        guard = f"@{'!' if self.is_negated else ''}{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}"


@dataclass
class Function:
    """A `.func` or `.entry`: parameters by name, register widths, local variables (name -> address) and statements by label.

    Variables of no two functions have an address in common, so that one function can be given the address of another's.
    """

    name: str
    parameters: list[str] = field(default_factory=list)
    returns: list[str] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)  # bits; 1 for a predicate
    locals: dict[str, int] = field(default_factory=dict)
    local_start: int = 0
    local_end: int = 0
    blocks: list[tuple[str, list[Statement]]] = field(default_factory=list)
    branch_targets: dict[str, list[str]] = field(default_factory=dict)  # labels of a `.branchtargets`, by its own label
    kernel: bool = False  # an `.entry`
    is_inline: bool = False  # statements on their own: inline assembly


@dataclass
class Module:
    """Functions by name, and the bytes of constant data with the offset of each variable."""

    functions: dict[str, Function] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    offsets: dict[str, int] = field(default_factory=dict)

    @property
    def entry(self) -> Function:
        """The first kernel. StopIteration without one."""
        return next(f for f in self.functions.values() if f.kernel)


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_HEADER = re.compile(r"(?:\.visible\s+|\.weak\s+|\.extern\s+)*\.(entry|func)\s*(\([^)]*\))?\s*([\w$]+)\s*(?:\(([^)]*)\))?", re.S)
_DATA = re.compile(
    r"(?:\.(?:visible|weak|common)\s+)*\.(?:global|const)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?\s*(?:=\s*(.*))?$",
    re.S,
)


def parse_module(text: str) -> Module:
    """The functions and constant data of a PTX module. NotPtx for a statement that cannot be read."""
    module, local_end = Module(), 0
    rest = _without_debugging(_COMMENT.sub(" ", text))
    position = 0
    while next_character := re.compile(r"\S").search(rest, position):
        position = next_character.start()
        if header := _HEADER.match(rest, position):
            function = Function(header[3], _names(header[4]), _names(header[2]), kernel=header[1] == "entry")
            function.local_start = function.local_end = -(-local_end // 8) * 8
            position = _body(rest, header.end(), function)
            local_end = function.local_end
            if function.blocks or function.name not in module.functions:
                module.functions[function.name] = function
            continue
        if rest.startswith((".version", ".target", ".address_size"), position):
            position = rest.index("\n", position)
            continue
        end = rest.index(";", position)
        _data(module, rest[position:end].strip())
        position = end + 1
    return module


def parse_body(text: str, registers: dict[str, int]) -> Function:
    """Statements on their own, as in inline assembly, on registers that are declared outside."""
    function = Function("assembly", registers=dict(registers), is_inline=True)
    _statements(_COMMENT.sub(" ", text) + ";", function)
    if len(function.blocks) == 1:
        _name_each_value(function)
    return function


_REGISTER = re.compile(r"%?[A-Za-z_$][\w$]*(?:@\d+)?")


def _name_each_value(function: Function) -> None:
    """A name of its own for each value but the last of a register that straight statements write several times; but of one that a
    guard may leave as it was."""
    (_, statements), registers = function.blocks[0], function.registers
    targets = [
        _REGISTER.findall(statement.operands[0]) if statement.operands and statement.operands[0][0] != "[" else []
        for statement in statements
    ]
    write_counts = Counter(name for names in targets for name in names)
    guarded_names = {name for statement, names in zip(statements, targets, strict=True) if statement.guard for name in names}
    current: dict[str, str] = {}

    def rename(operand: str) -> str:
        return _REGISTER.sub(lambda found: current.get(found[0], found[0]), operand)

    for place, (statement, names) in enumerate(zip(statements, targets, strict=True)):
        sources, guard = [*map(rename, statement.operands[1:])], rename(statement.guard)
        for name in names:
            write_counts[name] -= 1
            if name in registers and name not in guarded_names:
                current[name] = name.replace("@", f"_{write_counts[name]}@") if "@" in name else f"{name}_{write_counts[name]}"
                current[name] = name if not write_counts[name] else current[name]
                registers[current[name]] = registers[name]
        statements[place] = Statement(
            statement.opcode, (*map(rename, statement.operands[:1]), *sources), guard, statement.is_negated
        )


def _without_debugging(text: str) -> str:
    names = "loc|file|reqntid|maxntid|minnctapersm|maxnreg|pragma|maxclusterrank|explicitcluster|reqnctapercluster"
    text = re.sub(rf"^\s*\.({names})\b[^\n]*", "", text, flags=re.M)
    return re.sub(r"\.section\b[^{]*\{[^}]*\}", "", text, flags=re.S)


def _names(parameters: str | None) -> list[str]:
    names = []
    for part in re.split(r",", (parameters or "").strip("() \n\t")):
        if part.strip():
            names.append(re.sub(r"\[\d*\]$", "", part.split()[-1]))
    return names


def _data(module: Module, text: str) -> None:
    declaration = _DATA.match(text)
    if not declaration:
        raise NotPtx(f"{text[:120]!r} is no variable or function of PTX that is known here")
    align, kind, name, count, values = declaration.groups()
    size = _WIDTH[kind] // 8
    while len(module.data) % max(int(align or size), 4):
        module.data.append(0)
    module.offsets[name] = len(module.data)
    numbers = [int(value, 0) for value in re.findall(r"-?(?:0x[0-9A-Fa-f]+|\d+)", values or "")]
    numbers += [0] * (int(count or 1) - len(numbers))
    for value in numbers:
        module.data += (value % (1 << 8 * size)).to_bytes(size, "little")


def _body(text: str, position: int, function: Function) -> int:
    """Read what follows a header; the position after it."""
    start = re.compile(r"[{;]").search(text, position)
    if start is None or start[0] == ";":
        return len(text) if start is None else start.end()
    depth, end = 1, start.end()
    while depth:
        brace = re.compile(r"[{}]").search(text, end)
        if brace is None:
            raise NotPtx(f"the body of {function.name} does not end")
        depth += 1 if brace[0] == "{" else -1
        end = brace.end()
    _statements(text[start.end() : end - 1], function)
    return end


_LABEL = re.compile(r"([\w$]+)\s*:(?!:)")
_STATEMENT = re.compile(r"(?:@(!?)([%\w$]+)\s+)?([a-z][\w.:]*(?:\s+\.[\w.:]+)*)\s*(.*)$", re.S)
_OPERAND = re.compile(r"\([^)]*\)|\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")


def _statements(text: str, function: Function) -> None:
    scopes: list[dict[str, str]] = [{}]
    numbers = 0
    function.blocks.append(("", []))
    position = 0
    while next_character := re.compile(r"\S").search(text, position):
        position = next_character.start()
        if text[position] == ";":
            position += 1
        elif text[position] == "{":
            position += 1
            scopes.append({label: f"{label}@{numbers}" for label in _labels_of_scope(text, position)})
        elif text[position] == "}":
            scopes.pop()
            position += 1
        elif label := _LABEL.match(text, position):
            function.blocks.append((scopes[-1].get(label[1], label[1]), []))
            position = label.end()
        else:
            end = text.find(";", position)
            end = len(text) if end < 0 else end
            numbers += 1
            _statement(text[position:end].strip(), function, scopes, numbers)
            position = end + 1


def _labels_of_scope(text: str, position: int) -> list[str]:
    """Those of the scope that begins at `position`, but of none inside of it: another scope may have labels of the same names."""
    labels, depth = [], 0
    for found in re.compile(r"[{}]|([\w$]+)\s*:(?!:)").finditer(text, position):
        if found[0] == "}" and not depth:
            break
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        labels += [found[1]] if found[1] and not depth else []
    return labels


def _statement(text: str, function: Function, scopes: list[dict[str, str]], number: int) -> None:
    if text.startswith("."):
        _directive(text, function, scopes, number)
        return
    instruction = _STATEMENT.match(text)
    if not instruction:
        raise NotPtx(f"{text!r} is no instruction of PTX")
    is_negated, guard, opcode, rest = instruction.groups()
    operands = tuple(_in_scope(operand.strip(), scopes) for operand in _OPERAND.findall(rest))
    statement = Statement("".join(opcode.split()), operands, _in_scope(guard or "", scopes), bool(is_negated))
    if opcode.startswith("brx"):
        _indexed_branch(statement, function)
        return
    function.blocks[-1][1].append(statement)
    if opcode.startswith(("bra", "ret", "exit", "trap")):
        function.blocks.append(("", []))


def _indexed_branch(statement: Statement, function: Function) -> None:
    """brx.idx (PTX ISA 9.7.12.3) as a comparison and a branch for each label but the last, and one to that. An index beyond the
    labels, which is undefined, goes there too."""
    index, name = statement.operands
    if statement.guard or name not in function.branch_targets:
        raise NotPtx(f"{str(statement)!r}: a guard, or labels that stand behind it, are not known here")
    *labels, last_label = function.branch_targets[name]
    function.registers["%p@brx"] = 1
    for number, label in enumerate(labels):
        function.blocks[-1][1].append(Statement("setp.eq.u32", ("%p@brx", index, str(number))))
        function.blocks[-1][1].append(Statement("bra", (label,), "%p@brx"))
        function.blocks.append(("", []))
    function.blocks[-1][1].append(Statement("bra", (last_label,)))
    function.blocks.append(("", []))


def _in_scope(operand: str, scopes: list[dict[str, str]]) -> str:
    """The operand with each register of an inner scope under its own name."""
    if not any(scopes):
        return operand

    def own(found: re.Match[str]) -> str:
        return next((scope[found[0]] for scope in reversed(scopes) if found[0] in scope), found[0])

    return re.sub(r"%?[A-Za-z_$][\w$]*", own, operand)


def _directive(text: str, function: Function, scopes: list[dict[str, str]], number: int) -> None:
    kind, _, rest = text.partition(" ")
    if kind == ".reg":
        width, _, names = rest.strip().partition(" ")
        bits = _WIDTH.get(width.lstrip("."))
        if bits is None:
            raise NotPtx(f"{text!r} declares registers of an unknown type")
        for name in (each.strip() for each in names.split(",")):
            many = re.match(r"([\w$%]+)<(\d+)>", name)
            for each in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                own = each
                if (len(scopes) > 1 and not many) or not each.startswith("%"):  # readers know a register by its sign
                    own = scopes[-1][each] = f"%{each.lstrip('%')}@{number}"
                function.registers[own] = bits
    elif kind == ".local":
        declaration = re.match(r"(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?", rest.strip())
        if not declaration:
            raise NotPtx(f"{text!r} is no local variable")
        align = max(int(declaration[1] or 4), 4)
        function.local_end = -(-function.local_end // align) * align
        function.locals[declaration[3]] = function.local_end
        function.local_end += _WIDTH[declaration[2]] // 8 * int(declaration[4] or 1)
    elif kind.startswith(".branchtargets"):
        function.branch_targets[function.blocks[-1][0]] = re.findall(r"[\w$]+", text)[1:]
    elif kind != ".param":  # of a call: known by what is stored there
        raise NotPtx(f"{text!r} is a directive that is not known here")
