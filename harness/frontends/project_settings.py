"""``[tool.bitverdict]`` of the nearest pyproject.toml: what runs and pytest take where the command line says nothing.

It imports no torch and no NumPy: pytest's options have their defaults from it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from bitverdict.harness.model.usage import UsageError, did_you_mean

KINDS = {
    "targets": 'a list of texts, as targets = ["sm_90"]',
    "profile": 'a text, as profile = "ci"',
    "timeout": "seconds, as timeout = 60",
}
"""What each key must be."""


def project_settings() -> dict[str, Any]:
    """The table of the current folder, or of the nearest above it that has one. UsageError for a wrong one."""
    return _settings_of(Path.cwd())


@cache
def _settings_of(folder: Path) -> dict[str, Any]:
    for path in (above / "pyproject.toml" for above in (folder, *folder.parents)):
        if path.is_file():
            try:
                table = tomllib.loads(path.read_text()).get("tool", {}).get("bitverdict")
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError):
                continue  # whoever needs that file says what is wrong with it
            if table is not None:
                return checked_table(table, path)
    return {}


def checked_table(table: dict[str, object], path: Path) -> dict[str, object]:
    """The table at `path`, if each of its keys is known and of its kind."""
    for key, value in table.items():
        where = f"{path}, [tool.bitverdict] {key}"
        if key not in KINDS:
            raise UsageError(f"{where}: must be one of {', '.join(KINDS)}{did_you_mean(key, KINDS)}")
        texts: list = value if isinstance(value, list) else []
        kinds = {"targets": isinstance(value, list), "profile": isinstance(value, str), "timeout": type(value) in (int, float)}
        if not kinds[key] or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{where}: is {value!r}: must be {KINDS[key]}")
    return table
