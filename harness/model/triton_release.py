"""Which releases of Triton are taken: from the oldest on, which has what our modules import of it. One without a record is tried,
and so is another vendor's build: its compiler may differ from the release whose number it has.

What each release is like stands in `bitverdict.harness.emulator.releases`, under these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from packaging.version import InvalidVersion, Version

PROVEN_RELEASES = ("3.6.0", "3.7.0", "3.7.1", "3.8", "3.9")
"""Beginnings of the versions that have a record, from the oldest."""
IISAN_SINCE = "3.7"
EXACT_SCALES_SINCE = "3.9"
TREE_SUMS_SINCE = "3.8"
SINGLE_ROUNDING_SINCE = "3.9"
TCGEN05_INT8_SINCE = "3.8"
STORES_IN_RING_SINCE = "3.9"
REDUX_OF_COPIES_SINCE = "3.9"
OLDEST_RELEASE = ".".join(PROVEN_RELEASES[0].split(".")[:2])
DISTRIBUTION = "triton"
BACKENDS = ("amd", "nvidia")
REMEDY = f"install 'triton>={OLDEST_RELEASE}'"


@dataclass(frozen=True)
class InstalledTriton:
    """`version`: of the distribution that the package `triton` is of, or what the package says itself. `distribution`: that one's
    name, several where several write the package; empty where it is not the package's. `backends`: names of its folders."""

    version: str
    distribution: str = DISTRIBUTION
    backends: tuple[str, ...] = BACKENDS

    @property
    def name(self) -> str:
        """ "triton 3.9.0", "fbtriton 3.7.4+fb", "triton 3.9.0 of no distribution"."""
        return f"{self.distribution} {self.version}" if self.distribution else f"{DISTRIBUTION} {self.version} of no distribution"

    @property
    def is_proven(self) -> bool:
        """Whether it is a release of Triton's own that has a record. A candidate, a build of the days before, one of a commit or a
        vendor (its local part) and one that was mended after (its post number) are none."""
        parsed = Version(self.version)
        is_release = not (parsed.is_prerelease or parsed.is_postrelease or parsed.local)
        has_record = any(parsed.release[: len(numbers_of(known))] == numbers_of(known) for known in PROVEN_RELEASES)
        return self.distribution == DISTRIBUTION and is_release and has_record

    @property
    def problem(self) -> str:
        """One sentence where it is not taken: what is here, which are taken, what to install. Empty where it is."""
        if not self.version:
            return f"triton is not installed; {REMEDY}"
        try:
            is_old = numbers_of(self.version) < numbers_of(OLDEST_RELEASE)
        except InvalidVersion:
            return f"{self.name} is installed: its version is no number by PEP 440, so no record is near to it; {REMEDY}"
        if is_old:
            return f"{self.name} is installed: must be {OLDEST_RELEASE} or newer; {REMEDY}"
        if not {*self.backends}.intersection(BACKENDS):
            here = ", ".join(self.backends) or "none"
            return f"{self.name} is installed: backends {here}; must have {' or '.join(BACKENDS)}, which are emulated; {REMEDY}"
        return ""


def numbers_of(version: str) -> tuple[int, ...]:
    """(3, 9, 0) of "3.9.0", "3.9.0+git1234" and "3.9.0.post29"."""
    return Version(version).release[:3]


@cache
def installed_triton() -> InstalledTriton:
    """What `import triton` would give, which is not imported for it; without a version where nothing is there."""
    spec = find_spec(DISTRIBUTION)
    return read_package(Path(spec.origin).parent) if spec and spec.origin else InstalledTriton("")


def read_package(package: Path) -> InstalledTriton:
    """What the folder `package` says of itself, and pip beside it."""
    said = re.search(r"^__version__ = ['\"](.*)['\"]", (package / "__init__.py").read_text(), re.MULTILINE)
    writers = list(_writers(package.parent))
    version, distribution = said[1] if said else "", " and ".join(name for name, _ in writers)
    its = [other for _, other in writers if other.startswith(version.partition("+")[0])]
    if not its and distribution == DISTRIBUTION:
        distribution = ""
    elif its and "+" not in version:
        version = its[0]
    return InstalledTriton(
        version, distribution, tuple(sorted(each.parent.name for each in package.glob("backends/*/compiler.py")))
    )


def _writers(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and versions of the distributions in `folder` that write a package `triton`."""
    for record in sorted(folder.glob("*.dist-info/RECORD")):
        if b"\ntriton/__init__.py," in b"\n" + record.read_bytes():
            name, _, version = record.parent.stem.rpartition("-")
            yield name.replace("_", "-"), version


def _numbers_here(version: str) -> tuple[int, ...]:
    """Those of `version`, of the Triton that is installed, or of the newest release."""
    return numbers_of(version or installed_triton().version or PROVEN_RELEASES[-1])


def has_iisan(version: str = "") -> bool:
    """Whether `version`, or the Triton that is installed, has iisan: before, its mode is taken and does nothing."""
    return _numbers_here(version) >= numbers_of(IISAN_SINCE)


def has_exact_scales(version: str = "") -> bool:
    """Whether `version`, or the Triton that is installed, widens a scale of code 0 to 2^-127: before, it became zero."""
    return _numbers_here(version) >= numbers_of(EXACT_SCALES_SINCE)


def sums_by_tree(version: str = "") -> bool:
    """Whether by `version`, or the Triton that is installed, a thread combines its registers by a balanced tree in `tt.reduce`:
    before, one after another."""
    return _numbers_here(version) >= numbers_of(TREE_SUMS_SINCE)


def combines_copies(version: str = "") -> bool:
    """Whether by `version`, or the Triton that is installed, `redux.sync` combines all lanes of a warp where some hold copies of
    others' elements: before, only where each has its own."""
    return _numbers_here(version) >= numbers_of(REDUX_OF_COPIES_SINCE)


def converts_through_fp16(version: str = "") -> bool:
    """Whether by `version`, or the Triton that is installed, fp32 becomes fp8 through fp16 where there is no instruction for it."""
    return _numbers_here(version) < numbers_of(SINGLE_ROUNDING_SINCE)


def has_tcgen05_int8(version: str = "") -> bool:
    """Whether `version`, or the Triton that is installed, multiplies int8 by tcgen05 where a GPU has it: before, by mma.sync."""
    return _numbers_here(version) >= numbers_of(TCGEN05_INT8_SINCE)


def stores_in_the_ring(version: str = "") -> bool:
    """Whether by `version`, or the Triton that is installed, a tile that TMA stores without a conversion takes the place of
    tiles of the loop: before, it is stored while they are still held."""
    return _numbers_here(version) >= numbers_of(STORES_IN_RING_SINCE)


def described_releases() -> str:
    """What `bitverdict --version` says of Triton."""
    known = ", ".join(name if name.count(".") == 2 else f"{name}.x" for name in PROVEN_RELEASES)
    return f"proven releases of Triton: {known}; newer ones are tried"
