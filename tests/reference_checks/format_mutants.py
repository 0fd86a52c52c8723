"""A module of the reference with one text replaced, so that a check can be shown to fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType

_numbers = count()


@contextmanager
def mutant(module: ModuleType, replace: str, by: str) -> Iterator[ModuleType]:
    """`module` executed anew with `replace`, which its source holds exactly once, replaced."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    assert source.count(replace) == 1, f"{replace!r} occurs {source.count(replace)} times in {module.__name__}"
    changed = ModuleType(f"{module.__name__}_mutant{next(_numbers)}")
    sys.modules[changed.__name__] = changed  # dataclasses look their module up
    try:
        exec(compile(source.replace(replace, by), module.__file__, "exec"), changed.__dict__)
        yield changed
    finally:
        del sys.modules[changed.__name__]
