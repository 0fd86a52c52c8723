"""A digest of the code that decides a verdict: a commit's name does not say what lies on the disk."""

from __future__ import annotations

import hashlib
from functools import cache

from bitverdict.harness.model.paths import ROOT


@cache
def code_digest() -> str:
    """A digest of every Python file of the rooms that decide a verdict."""
    text = hashlib.sha256()
    for room in ("harness", "kernels", "reference"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return text.hexdigest()[:16]
