"""Which releases of Triton are taken, as its distribution says: another release may lack what our modules import of it."""

from __future__ import annotations

from importlib import metadata

SUPPORTED_RELEASES = ("3.9.",)
REMEDY = "install 'triton>=3.9,<3.10'"


def problem_of_release() -> str:
    """One sentence where the installed Triton is not taken: which is here, which are taken, what to install. Empty where it is."""
    try:
        here = metadata.version("triton")
    except metadata.PackageNotFoundError:  # one that no distribution tells of: its compiler is looked at when it is used
        return ""
    if here.startswith(SUPPORTED_RELEASES):
        return ""
    return f"triton {here} is installed: must be one of {', '.join(f'{release}x' for release in SUPPORTED_RELEASES)}; {REMEDY}"


__all__ = ["REMEDY", "SUPPORTED_RELEASES", "problem_of_release"]
