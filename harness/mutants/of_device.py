"""Whether the edit of a source mutant stands in what is compiled alone: then each of its launches is one of the right kernel's.

A ``constexpr_function`` is executed by the compiler, and may be called by a launcher too. It is device code where nothing of the
host names it, nor a ``constexpr_function`` that names it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bitverdict.harness.model.paths import display_path
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import GeneratedMutant

DEVICE = ("triton", "gluon")
_CONSTEXPR, _COMPILE_DECORATORS = "constexpr_function", ("jit", "constexpr_function")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def of_device_alone(kernel: Kernel, mutant: GeneratedMutant) -> bool:
    """Whether `mutant`, of `kernel`, edits nothing that the host executes at a launch."""
    if mutant.edit["device"] in DEVICE:
        return True
    if mutant.edit["device"] != "constexpr":
        return False
    trees = {
        display_path(path): ast.parse(path.read_text())
        for path in (Path(str(node.__file__)).resolve() for node in kernel.modules())
    }
    first, last = mutant.edit["function"]
    edited = [node for node in _functions(trees[mutant.file]) if first <= node.lineno and (node.end_lineno or 0) <= last]
    if not edited or any(_compile_decorator(node) != _CONSTEXPR for node in edited):
        return False
    return not_of_the_host(list(trees.values()), {node.name for node in edited})


def not_of_the_host(trees: list[ast.Module], names: set[str]) -> bool:
    """Whether no code of the host in `trees` names one of the functions `names`, or a ``constexpr_function`` that comes to one."""
    functions = [each for tree in trees for each in _functions(tree)]
    reached_names = set(names)
    while (
        more := {each.name for each in functions if _compile_decorator(each) == _CONSTEXPR and _names_in(each.body) & reached_names}
        - reached_names
    ):
        reached_names |= more
    return all(_names_in(_of_host(tree)).isdisjoint(reached_names) for tree in trees)


def _functions(tree: ast.AST) -> Iterator[Function]:
    return (each for each in ast.walk(tree) if isinstance(each, Function))


def _compile_decorator(function: Function) -> str:
    """Which of `_COMPILE_DECORATORS` decorates `function`; empty for none."""
    for decorator in function.decorator_list:
        told = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = told.attr if isinstance(told, ast.Attribute) else told.id if isinstance(told, ast.Name) else ""
        if name in _COMPILE_DECORATORS:
            return name
    return ""


def _of_host(node: ast.AST) -> list[ast.AST]:
    """The nodes of `node` outside of what is compiled; decorators and defaults of compiled functions are the host's."""
    nodes: list[ast.AST] = []
    stack = list(ast.iter_child_nodes(node))
    while stack:
        item = stack.pop()
        if isinstance(item, ast.Import | ast.ImportFrom):
            continue
        if isinstance(item, Function) and _compile_decorator(item):
            nodes += [*item.decorator_list, item.args]
            continue
        if not list(ast.iter_child_nodes(item)) or isinstance(item, ast.Name | ast.Attribute | ast.Constant):
            nodes.append(item)
        stack += ast.iter_child_nodes(item)
    return nodes


def _names_in(nodes: list[ast.AST] | list[ast.stmt]) -> set[str]:
    """Names, attributes and texts in `nodes`."""
    walked = [each for node in nodes for each in ast.walk(node)]
    return (
        {each.id for each in walked if isinstance(each, ast.Name)}
        | {each.attr for each in walked if isinstance(each, ast.Attribute)}
        | {each.value for each in walked if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    )


__all__ = ["DEVICE", "not_of_the_host", "of_device_alone"]
