"""Which releases of Triton are taken: from the oldest on, which has what our modules import of it. One without a record is tried.

What each release is like stands in `bitverdict.harness.emulator.releases`, under these names.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import metadata

from packaging.version import InvalidVersion, Version

PROVEN_RELEASES = ("3.6.0", "3.7.0", "3.7.1", "3.8", "3.9")
"""Beginnings of the versions that have a record, from the oldest."""
EXACT_SCALES_SINCE = "3.9"
TREE_SUMS_SINCE = "3.8"
SINGLE_ROUNDING_SINCE = "3.9"
TCGEN05_INT8_SINCE = "3.8"
OLDEST_RELEASE = ".".join(PROVEN_RELEASES[0].split(".")[:2])
DISTRIBUTIONS = ("triton", "triton-windows", "pytorch-triton", "pytorch-triton-rocm")
REMEDY = f"install 'triton>={OLDEST_RELEASE}'"


def numbers_of(version: str) -> tuple[int, ...]:
    """(3, 9, 0) of "3.9.0", "3.9.0+git1234" and "3.9.0.post29"."""
    return Version(version).release[:3]


def installed_version() -> str:
    """What Triton's distribution says, or a fork's. Empty where none tells: its compiler is looked at when it is used."""
    for name in DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return ""


def is_proven(version: str) -> bool:
    """Whether `version` has a record. A release candidate or a build of the days before has none: its release is still to come."""
    parsed_version = Version(version)
    return not parsed_version.is_prerelease and any(
        parsed_version.release[: len(numbers_of(known))] == numbers_of(known) for known in PROVEN_RELEASES
    )


def has_exact_scales(version: str = "") -> bool:
    """Whether `version`, or the Triton that is installed, widens a scale of code 0 to 2^-127: before, it became zero."""
    return numbers_of(version or installed_version() or PROVEN_RELEASES[-1]) >= numbers_of(EXACT_SCALES_SINCE)


def sums_by_tree(version: str = "") -> bool:
    """Whether by `version`, or the Triton that is installed, a thread combines its registers by a balanced tree in `tt.reduce`:
    before, one after another."""
    return numbers_of(version or installed_version() or PROVEN_RELEASES[-1]) >= numbers_of(TREE_SUMS_SINCE)


def converts_through_fp16(version: str = "") -> bool:
    """Whether by `version`, or the Triton that is installed, fp32 becomes fp8 through fp16 where there is no instruction for it."""
    return numbers_of(version or installed_version() or PROVEN_RELEASES[-1]) < numbers_of(SINGLE_ROUNDING_SINCE)


def has_tcgen05_int8(version: str = "") -> bool:
    """Whether `version`, or the Triton that is installed, multiplies int8 by tcgen05 where a GPU has it: before, by mma.sync."""
    return numbers_of(version or installed_version() or PROVEN_RELEASES[-1]) >= numbers_of(TCGEN05_INT8_SINCE)


def described_releases() -> str:
    """What `bitverdict --version` says of Triton."""
    known = ", ".join(name if name.count(".") == 2 else f"{name}.x" for name in PROVEN_RELEASES)
    return f"proven releases of Triton: {known}; newer ones are tried"


def problem_of_release() -> str:
    """One sentence where the installed Triton is not taken: which is here, which are taken, what to install. Empty where it is."""
    version = installed_version()
    try:
        if not version or numbers_of(version) >= numbers_of(OLDEST_RELEASE):
            return ""
    except InvalidVersion:
        return f"triton {version} is installed: its version is no number by PEP 440, so no record is near to it; {REMEDY}"
    return f"triton {version} is installed: must be {OLDEST_RELEASE} or newer; {REMEDY}"


__all__ = [
    "EXACT_SCALES_SINCE",
    "OLDEST_RELEASE",
    "PROVEN_RELEASES",
    "REMEDY",
    "SINGLE_ROUNDING_SINCE",
    "TCGEN05_INT8_SINCE",
    "TREE_SUMS_SINCE",
    "converts_through_fp16",
    "described_releases",
    "has_exact_scales",
    "has_tcgen05_int8",
    "installed_version",
    "is_proven",
    "numbers_of",
    "problem_of_release",
    "sums_by_tree",
]
