"""Which modules a source text imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import resolve_name


def imported_names(source: str, package: str) -> Iterator[str]:
    """The absolute names of modules that `source` imports, wherever in it, and of what may be modules.

    `package`: the dotted name of the package that holds the module; relative imports count from it. Raises SyntaxError where
    `source` is no Python, and ImportError where a relative import leads out of `package`.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else str(node.module)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
