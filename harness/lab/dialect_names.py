"""Names that say no thing: pronouns, participles and bare adjectives, as names of functions, classes, modules and variables.

A name says kind and thing (`LaunchResult`, `emulated_twin`, `choose_discriminating_seed`). A name is of the dialect where none of
its words is a noun or a verb in its base form: each is in `WORDS` or in `GLUE`, or it is one word alone that ends as a participle
does. A member of an enumeration is a value of the property that the class names, so an adjective is right there. Of variables and
arguments only those count that live longer than `LINES` lines: from where they are bound to their last use.
Arguments `left` and `right` of one function are the two sides of an operation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from bitverdict.harness.lab.source_figures import Sources

LINES = 5

WORDS = frozenset(
    """
    each every either neither other others another same such all any none both more most many much few some one ones it its
    they them this that these those what which who whom whose nobody everybody somebody nothing everything something here
    there then else

    asked told said given found held kept left made seen taken met known shown judged written called lent owed drawn wanted
    believed gone done come came got went begun chosen thought meant stood lain brought caught sent laid led lost asking
    telling saying giving finding holding keeping leaving making seeing taking meeting knowing showing hanging standing going
    coming executing

    able again alone alike anew afresh apart aside away back beside near far due plain whole right wrong true false good bad
    new old first last next former latter late early earlier later ready sure still once twice ever never now today ahead
    meanwhile together elsewhere somewhere unlike equal odd long short small large big great little deep wide thin thick
    ragged loose strict
    """.split()
)
"""Pronouns; participles of verbs that this project is fond of; adjectives and adverbs. Other participles show by their end."""

GLUE = frozenset(
    "of by in on at to as for from with without off out over under up down not no and or is was be so if a an the".split()
)
NOUNS = frozenset(
    """
    string ring padding rounding smoothing timing encoding binding warning setting tuning thing meaning spelling heading building
    mapping king wing sibling ceiling swizzling tracing sharding pipelining indexing packing unpacking casting training
    listing parsing hashing shrinking sampling sealing batching broadcasting tiling addressing stopping aliasing scaling
    spacing branching blocking drawing reading writing ending embedding finding beginning testing spring bring seed
    speed feed need embed bed red shared exceed proceed turing
    """.split()
)
"""Words that end as participles do and name a thing or an action of the field."""

EXCEPTIONS = frozenset(("emulated", "judged", "required", "drawn", "expected", "out"))
"""Public names (`bitverdict.emulated` and `judged`, methods of `Contract`), two words of the design, and NumPy's `out`."""

PUBLIC = {
    "function": "lacking whole declared written left resized configured left_out recorded failed to ones searchsorted kept_in",
    "field": """sealed others bounded declared recorded unchanged asked called widened changed at got other compared differing
    promised returned same steered given written enclosed left packed""",
    "argument": "sealed recorded explained descending packed gathered chosen",
}
"""Methods of `Contract`, which users override, and of a verdict; fields of `ExpectedOutput` and of what goes through JSON by its
names (cases, verdicts, tasks, findings, replays, instructions); keywords of `judge`, `judged`, `test` and launchers; names of torch
and of the array API, with what `xp` has beyond it. To rename one is a deprecation (docs/public.md)."""

PARTICIPLE = re.compile(r"[a-z]{2,}(?:ed|ing)")
NamedThing = tuple[int, str, str]
"""(line, kind of thing, name)."""


def words_of(name: str) -> list[str]:
    """The words of a name in snake or camel case, in lower case, without numbers."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_dialect(name: str) -> bool:
    """Whether a name says no thing."""
    if name in EXCEPTIONS or name.startswith(("is_", "_is_")) or (name.startswith("__") and name.endswith("__")):
        return False
    words = words_of(name)
    if len(words) == 1 and words[0] not in NOUNS and PARTICIPLE.fullmatch(words[0]):
        return True
    return bool(words) and not any(len(word) == 1 for word in words) and all(word in WORDS or word in GLUE for word in words)


def is_refused(kind: str, name: str) -> bool:
    return is_dialect(name) and name not in PUBLIC.get(kind, "").split()


def named_things(tree: ast.Module) -> Iterator[NamedThing]:
    """Every function and class in a file, its fields and constants, and the arguments and variables of functions that live long."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, "function", node.name
            yield from _long_lived(node)
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, "class", node.name
            if not any("Enum" in ast.unparse(base) for base in node.bases):
                yield from _bound_at_once(node.body, "field")
    yield from _bound_at_once(tree.body, "constant")


def _bound_at_once(body: list[ast.stmt], kind: str) -> Iterator[NamedThing]:
    """Names that statements of a module or a class bind: they live as long as it does."""
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        for target in targets:
            yield from ((node.lineno, kind, node.id) for node in ast.walk(target) if isinstance(node, ast.Name))


def _long_lived(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[NamedThing]:
    """Arguments and variables of `function`, functions inside it left out, that live longer than `LINES` lines."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    bound = {argument.arg: (argument.lineno, "argument") for argument in arguments}
    last_use = {argument.arg: argument.lineno for argument in arguments}
    for node in _own_nodes(function):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store) and node.id not in bound:
                bound[node.id] = node.lineno, "variable"
            last_use[node.id] = max(last_use.get(node.id, 0), node.lineno)
    sides = {"left", "right"} if {"left", "right"} <= bound.keys() else set()
    for name, (line, kind) in bound.items():
        if last_use[name] - line > LINES and name not in sides:
            yield line, kind, name


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """All nodes below `function` in the order of their lines; names of the functions inside it are uses, and bind nothing of it."""
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    inner = {
        each
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    yield from sorted((node for node in nodes if node not in inner and hasattr(node, "lineno")), key=lambda node: node.lineno)


def dialect_names(sources: Sources) -> list[str]:
    """``file:line: kind name`` of each name of the dialect in the product."""
    entries = []
    for path, tree in sources.trees.items():
        stem = PurePosixPath(path).stem
        if stem != "__init__" and is_dialect(stem):
            entries.append(f"{path}:1: module {stem}")
        entries += [f"{path}:{line}: {kind} {name}" for line, kind, name in named_things(tree) if is_refused(kind, name)]
    return entries
