"""Parameters that are one literal at every call of a kernel: what they decide is decided, and an arm never taken is no code of it.

A parameter counts only where nobody but the kernel's own code calls its function, every call is seen, each passes the same
literal or leaves the parameter to the same default, and the function never sets it. A function that is passed around, or that a
user may call (a public function of the kernel's own file), has no such parameter. The partitions of a ``warp_specialize`` are
called with the tuple beside them.

Only True and False are read, bare or behind `not`. A condition on a number or a text is left undecided, so its arms stay among the
mutants: it can only cost a survivor, never hide one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from bitverdict.harness.mutants.source.places import File, Function, callee_name

UNKNOWN = "?"
LITERALS = ("True", "False")


@dataclass
class LiteralDecisions:
    """What the literals of one function decide. `dead`: statements and expressions that no call enters; `replacements`: texts that
    an expression may be replaced with and nothing changes."""

    dead: set[cst.CSTNode] = field(default_factory=set)
    replacements: dict[cst.CSTNode, str] = field(default_factory=dict)


def decide_literals(files: Sequence[File], functions: Sequence[Function]) -> Mapping[Function, LiteralDecisions]:
    """What is decided in each of `functions` (all that the kernel reaches) by the calls in `files`."""
    calls = _calls(files, set(functions))
    decisions = {}
    for function in functions:
        public = function.file is files[-1] and not function.device and not function.name.startswith("_")
        if public or "." in function.name:
            continue
        if literals := _literals(function, calls[function.name]):
            decisions[function] = _decide(function, literals)
    return decisions


def _calls(files: Sequence[File], functions: set[Function]) -> Mapping[str, list[Sequence[cst.Arg] | None]]:
    """The arguments of each call by the name called; None of a name that is used in another way."""
    calls: dict[str, list[Sequence[cst.Arg] | None]] = defaultdict(list)
    for file in files:
        file.wrapped.module.visit(_Calls(file, functions, calls))
    return calls


class _Calls(cst.CSTVisitor):
    def __init__(self, file: File, functions: set[Function], calls: dict[str, list[Sequence[cst.Arg] | None]]) -> None:
        self.file, self.calls = file, calls
        self.left_out = {each.node for each in file.functions.values() if each not in functions}

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return node not in self.left_out

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def visit_Name(self, node: cst.Name) -> None:
        above = self.file.parents[node]
        if isinstance(above, cst.FunctionDef | cst.Param) or (isinstance(above, cst.Arg) and above.keyword is node):
            return
        used: cst.CSTNode = node
        if isinstance(above, cst.Attribute) and above.attr is node:
            used, above = above, self.file.parents[above]
        if isinstance(above, cst.Call) and above.func is used:
            self.calls[node.value].append(above.args)
        else:
            self.calls[node.value].append(self._partition(above))

    def _partition(self, element: cst.CSTNode) -> Sequence[cst.Arg] | None:
        """The arguments beside a partition's function in ``warp_specialize([(function, (arguments))], ...)``."""
        pair = self.file.parents.get(element)
        if not (isinstance(element, cst.Element) and isinstance(pair, cst.Tuple) and pair.elements[0] is element):
            return None
        inside = (each for each in self.file.ancestors(pair) if isinstance(each, cst.Call))
        beside = pair.elements[1].value if len(pair.elements) == 2 else None
        if callee_name(next(inside, pair)) != "warp_specialize" or not isinstance(beside, cst.Tuple):
            return None
        return [cst.Arg(each.value) for each in beside.elements if isinstance(each, cst.Element)]


def _literals(function: Function, calls: Sequence[Sequence[cst.Arg] | None]) -> dict[str, str]:
    """The parameters of `function` that are one of LITERALS at all `calls`."""
    parameters = function.node.params
    starred = isinstance(parameters.star_arg, cst.Param) or parameters.star_kwarg is not None
    if not calls or starred or any(args is None or any(item.star for item in args) for args in calls):
        return {}
    positional = [item.name.value for item in (*parameters.posonly_params, *parameters.params)]
    literals: dict[str, str] = {}
    for item in (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params):
        name = item.name.value
        passed = {_literal_passed(name, positional, item.default, args or ()) for args in calls}
        if len(passed) == 1 and (text := passed.pop()) in LITERALS and not _is_set(function, name):
            literals[name] = text
    return literals


def _literal_passed(name: str, positional: Sequence[str], default: cst.BaseExpression | None, args: Sequence[cst.Arg]) -> str:
    """The literal that a call passes for `name`; UNKNOWN of all else."""
    value = default
    for place, each in enumerate(args):
        if (each.keyword.value if each.keyword else positional[place] if place < len(positional) else "") == name:
            value = each.value
    return value.value if isinstance(value, cst.Name) and value.value in LITERALS else UNKNOWN


def _is_set(function: Function, name: str) -> bool:
    """Whether `function` may give `name` another value: it stands as a target, or in a function inside that could."""
    walked = _Targets(name)
    function.node.body.visit(walked)
    return walked.met


class _Targets(cst.CSTVisitor):
    def __init__(self, name: str) -> None:
        self.name, self.met = name, False

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(
            node, cst.Lambda | cst.FunctionDef | cst.NamedExpr | cst.Del | cst.Global | cst.Nonlocal | cst.CompFor | cst.Match
        ):
            self.met = self.met or any(each == self.name for each in _names(node))
        if isinstance(node, cst.AssignTarget | cst.AnnAssign | cst.AugAssign | cst.For | cst.AsName):
            target = node.name if isinstance(node, cst.AsName) else node.target
            self.met = self.met or any(each == self.name for each in _names(target))
        return True


def _names(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
    for each in node.children:
        yield from _names(each)


def _decide(function: Function, literals: Mapping[str, str]) -> LiteralDecisions:
    found = LiteralDecisions()
    function.node.body.visit(_Arms(function, literals, found))
    return found


class _Arms(cst.CSTVisitor):
    """Marks the arm that is never taken of each condition that a literal decides."""

    def __init__(self, function: Function, literals: Mapping[str, str], found: LiteralDecisions) -> None:
        self.function, self.literals, self.found = function, literals, found

    def visit_If(self, node: cst.If) -> None:
        if truth := self._truth(node.test):
            self.found.replacements[node.test] = truth
            dead = node.orelse if truth == "True" else node.body
            if dead is not None:
                self.found.dead.add(dead)

    def visit_IfExp(self, node: cst.IfExp) -> None:
        if truth := self._truth(node.test):
            alive, dead = (node.body, node.orelse) if truth == "True" else (node.orelse, node.body)
            self.found.replacements[node] = f"({self.function.file.code(alive)})"
            self.found.replacements[node.test] = truth
            self.found.dead.add(dead)

    def _truth(self, test: cst.BaseExpression) -> str:
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._truth(test.expression)
            return {"True": "False", "False": "True"}.get(inner, "")
        return self.literals.get(test.value, "") if isinstance(test, cst.Name) else ""
