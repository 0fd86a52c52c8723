"""Failures of the corpus and of upstream's tests that were read to their cause, and whose fault each is."""

from __future__ import annotations

from dataclasses import dataclass

OURS, THEIRS, OF_THE_TEST = "ours", "theirs", "the test's"


@dataclass(frozen=True)
class Examined:
    """Of the entry of a package, or of a test function of a file: whose fault, and the evidence."""

    package: str
    entry: str
    whose: str
    why: str

    def holds(self, package: str, entry: str) -> bool:
        return self.package == package and entry in (self.entry, f"{self.entry}, backward")


EXAMINED = (
    Examined("flag_gems", "argmin", THEIRS,
             "`argmin_kernel_opt_k1` loads its tiles with `mask=True`, whatever M and N are. 29 x 65 in tiles of 4 rows reads "
             "3 rows beyond the tensor. The `argmax` of the package masks them, and is right."),
)  # fmt: skip
TESTS: tuple[Examined, ...] = ()
