"""By which a test says that it holds a row of `tests/tutorial_parameters.json`, and with which figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])


def holds(row: str, **figures: Any) -> Callable[[Test], Test]:
    """Marks a test as the holder of the row `row`, whose figures are `figures`. `tutorial_rows.py` reads it from the source: a row
    that names a test without this mark, or with other figures, is not held, and a mark of which no row says so is an error."""
    return lambda test: test
