"""Where the checkout lies, and how a line of source is named: relative to it, so that the name is the same in another checkout."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


@lru_cache(maxsize=4096)
def source_line(file: str, line: int | str) -> str:
    """``file:line``; the file relative to the checkout if it lies there, else by its name alone."""
    path = Path(file)
    return f"{path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path.name}:{line}"
