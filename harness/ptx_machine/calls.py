"""Calls of device functions: the body of the function that is called stands in the place of each call (PTX ISA 7.1).

A parameter is a register of the name that the caller gave it, in brackets. What calls itself, and what is called by its address,
is refused by name.
"""

from __future__ import annotations

import re

from bitverdict.harness.emulator.ptx.opcodes import UnknownOpcode
from bitverdict.harness.emulator.ptx.steps import split_list
from bitverdict.harness.emulator.ptx.text import Function, Module, Statement

SYSTEM_CALLS = ("vprintf", "__assertfail")  # of the CUDA driver, and without a body
_NAME = re.compile(r"[%\w$]+(?:@\w+)?")


def insert_calls(module: Module, function: Function) -> None:
    """Replace the calls in `function` by what they call. UnknownOpcode for a call that has no body here."""
    count = 0

    def expand(blocks: list[tuple[str, list[Statement]]], callers: tuple[str, ...]) -> list[tuple[str, list[Statement]]]:
        nonlocal count
        expansion: list[tuple[str, list[Statement]]] = []
        for label, statements in blocks:
            expansion.append((label, []))
            line = ""
            for statement in statements:
                line = f" (line {statement.opcode.rpartition('.')[2]} of the PTX)" if statement.opcode.startswith("loc.") else line
                if not statement.opcode.startswith("call") or any(name in SYSTEM_CALLS for name in statement.operands):
                    expansion[-1][1].append(statement)
                    continue
                callee = _called_function(module, statement, callers, line)
                count += 1
                end = f"$after@{count}"
                expansion += expand(_body(function, callee, statement, count, end), (*callers, callee.name))
                expansion.append((end, []))
        return expansion

    if any(statement.opcode.startswith("call") for _, statements in function.blocks for statement in statements):
        function.blocks = expand(function.blocks, (function.name,))


def _called_function(module: Module, statement: Statement, callers: tuple[str, ...], line: str) -> Function:
    name = next((operand for operand in statement.operands if not operand.startswith("(")), "")
    callee = module.functions.get(name)
    if statement.guard or callee is None or not callee.blocks:
        raise UnknownOpcode(f"{statement}: this call is not executed here: {name} has no body in this module{line}")
    if name in callers:
        raise UnknownOpcode(f"{statement}: {name} calls itself, which is not executed here{line}")
    return callee


def _body(function: Function, callee: Function, statement: Statement, number: int, end: str) -> list[tuple[str, list[Statement]]]:
    """The blocks of `callee` with names of their own in `function`, parameters as in the call; each return goes to `end`."""
    arguments = [split_list(operand) for operand in statement.operands if operand.startswith("(")]
    results = arguments.pop(0) if callee.returns else []
    names = dict(zip([*callee.returns, *callee.parameters], [*results, *(arguments[0] if arguments else [])], strict=True))
    for register, width in callee.registers.items():
        names[register] = f"{register.partition('@')[0]}@{number}{register.partition('@')[2]}c"
        function.registers[names[register]] = width
    for variable, address in callee.locals.items():
        names[variable] = f"{variable}@{number}"
        function.locals[names[variable]] = address
    function.local_end = max(function.local_end, callee.local_end)
    names |= {label: f"{label}@{number}" for label, _ in callee.blocks if label}

    def rename_operands(text: str) -> str:
        return _NAME.sub(lambda found: names.get(found[0], found[0]), text)

    blocks = []
    for label, statements in callee.blocks:
        block = []
        for each in statements:
            is_return = each.opcode.partition(".")[0] == "ret"
            opcode, operands = ("bra", (end,)) if is_return else (each.opcode, tuple(map(rename_operands, each.operands)))
            block.append(Statement(opcode, operands, rename_operands(each.guard), each.is_negated))
        blocks.append((names.get(label, label), block))
    return blocks


__all__ = ["SYSTEM_CALLS", "insert_calls"]
