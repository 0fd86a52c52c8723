"""Packages that not everybody needs: each comes with an extra of the distribution, and its absence is one sentence."""

from __future__ import annotations

import importlib.util

from bitverdict.harness.model.usage import UsageError

EXTRA_OF = {"libcst": "mutate", "landlockpy": "sealed", "pyseccomp": "sealed", "jinja2": "report"}
EXTRA_OF |= {name: name for name in ("mcp", "ray", "redis")}
"""Package -> the extra that it comes with."""


def pip_line(extra: str) -> str:
    """What installs the packages of `extra`: bitverdict is on no index, where its name may be a stranger's."""
    return f"pip install '.[{extra}]' in a checkout of bitverdict"


def require_extra(package: str, purpose: str) -> None:
    """UsageError, with the line that installs it, where `package` is not installed and `purpose` needs it."""
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"{purpose}: needs the package {package}, which is not installed; {pip_line(EXTRA_OF[package])}")
