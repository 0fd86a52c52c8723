"""Who imports whom at run time: arrows that run up the rooms of the design, and circles inside the emulator.

The rooms are those that docs/architecture.md will have: a folder that is to become a room of its own counts as one today, so that
the imports which stand in its way are counted before it moves. Imports inside functions count, those under TYPE_CHECKING do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from bitverdict.harness.lab.source_figures import Sources

FLOORS: tuple[tuple[str, ...], ...] = (
    ("the package",),
    ("kernels", "reference"),
    ("model",),
    ("emulator", "contracts"),
    ("judge",),
    ("checks", "workers"),
    ("session",),
    ("sealed",),
    ("mutants", "report"),
    ("frontends",),
    ("lab",),
    ("bitverdict",),
)
"""The rooms, the lowest first. An import of a room on a higher floor is an arrow up."""

ROOMS = {
    "kernels": "kernels",
    "reference": "reference",
    "bitverdict": "bitverdict",
    "bitverdict/__init__.py": "the package",
    "bitverdict/_rooms.py": "the package",
    **{f"harness/{name}": name for name in ("model", "emulator", "contracts", "judge", "workers", "session", "mutants", "report")},
    **{f"harness/{name}": name for name in ("frontends", "lab", "checks", "sealed")},
    "harness/frontends/sealing.py": "sealed",
}
"""Path of a folder or file -> its room in the design; the longest path decides. Python runs `bitverdict/__init__` before any room:
the package lies below them all; what starts a command lies beside it, and above."""


def room_of(path: str) -> str:
    """The room of the file at `path`; empty for a file that lies in none."""
    parts = PurePosixPath(path).parts
    for length in range(len(parts), 0, -1):
        if (room := ROOMS.get("/".join(parts[:length]))) is not None:
            return room
    return ""


def module_files(sources: Sources) -> dict[str, str]:
    """{module: its file} of the product, by the names that everything is imported by."""
    modules = {}
    for path in sources.product:
        parts = PurePosixPath(path).with_suffix("").parts
        parts = parts if parts[0] == "bitverdict" else ("bitverdict", *parts)
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imported_files(path: str, tree: ast.Module, modules: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """(line, file) of each run-time import of the product's own in the file at `path`."""
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    package = ["bitverdict", *PurePosixPath(path).parts[:-1]]
    for node in ast.walk(tree):
        names: list[str] = []
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            start = ".".join(part for part in (base, node.module or "") if part)
            names = [f"{start}.{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in modules:  # what is imported of a module is the module's
                name = name.rpartition(".")[0]
            if name and modules[name] != path:
                yield getattr(node, "lineno", 0), modules[name]


def import_graph(sources: Sources) -> dict[str, list[tuple[int, str]]]:
    """{file: (line, imported file) of each of its imports} of the product."""
    modules = module_files(sources)
    return {path: list(imported_files(path, tree, modules)) for path, tree in sources.trees.items()}


def arrows_up(sources: Sources) -> list[str]:
    """Imports that run from a room to one on a higher floor."""
    floors = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
    arrows = []
    for path, imports in import_graph(sources).items():
        for line, target in imports:
            here, there = room_of(path), room_of(target)
            if here and there and floors[there] > floors[here]:
                arrows.append(f"{path}:{line}: {here} imports {target} of {there}")
    return list(dict.fromkeys(arrows))  # an import of several names of a file is one


def emulator_circles(sources: Sources) -> list[str]:
    """The circles of more than one file inside the emulator, each as the number of its files and their names."""
    graph = {
        path: {target for _, target in imports if target.startswith("harness/emulator/")}
        for path, imports in import_graph(sources).items()
        if path.startswith("harness/emulator/")
    }
    return [f"{len(circle)} files: {', '.join(sorted(circle))}" for circle in circles(graph)]


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one node, the largest first: Kosaraju's two walks."""
    finish_order: list[str] = []
    visited_nodes: set[str] = set()
    for start in graph:
        finish_order += _walk(start, graph, visited_nodes)
    backwards: dict[str, set[str]] = {node: set() for node in graph}
    for node, targets in graph.items():
        for target in targets:
            backwards.setdefault(target, set()).add(node)
    visited_nodes, components = set(), []
    for start in reversed(finish_order):
        if len(component := _walk(start, backwards, visited_nodes)) > 1:
            components.append(set(component))
    return sorted(components, key=len, reverse=True)


def _walk(start: str, graph: Mapping[str, set[str]], visited_nodes: set[str]) -> list[str]:
    """The nodes that `start` reaches and that are not in `visited_nodes`, each after all that it reaches; they are put there."""
    if start in visited_nodes:
        return []
    visited_nodes.add(start)
    order: list[str] = []
    stack = [(start, iter(sorted(graph.get(start, ()))))]
    while stack:
        node, targets = stack[-1]
        next_target = next((target for target in targets if target not in visited_nodes), None)
        if next_target is None:
            order.append(node)
            stack.pop()
        else:
            visited_nodes.add(next_target)
            stack.append((next_target, iter(sorted(graph.get(next_target, ())))))
    return order
