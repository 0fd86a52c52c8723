"""What a sealed run draws depends on a secret: nobody can know its cases before it, and anybody can draw them again after it.

A secret is 64 hexadecimal digits. Its *commitment*, the SHA-256 of these digits as text, is printed and journalled before the first
case, the secret itself after the last. Numbers are the first 8 bytes, big-endian, of an HMAC-SHA256 with the digits as its key:

    base seed of the draws      HMAC(secret, "draws")
    pool of specialisations     HMAC(secret, "pool") mod 2^31
    data seed of a case         HMAC(secret, "data", 0, key of the case) mod 2^31 - 1
    its schedule's seed         HMAC(secret, "schedule", 0, key of the case) mod 2^31 - 1

The key of a case is its record before (`Case.key`), so required cases keep their shapes. Where the operands leave no word that can
be decided, the data seed is the first of HMAC(secret, "data", 0, key, 0, "1"), "2", ... that leaves one.

While a run goes on the secret lies in a file of its own that nobody else of this machine may read, and that no confined process
sees: a run that was cut goes on with it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bitverdict.harness.judge.machine_faults import writing
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.workers.journal import Journal

SEEDS, LARGEST = 1 << 31, (1 << 31) - 1
TURNS = 32
_DIGITS = re.compile(r"[0-9a-f]{64}")
_DRAWN_SCHEDULE = re.compile(r"drawn:-?\d+")


@dataclass(frozen=True)
class Secret:
    """`digits`: 64 hexadecimal ones. Its text never shows them."""

    digits: str

    @classmethod
    def from_text(cls, text: str) -> Secret:
        """The secret that a person gives; UsageError for any other text."""
        if not _DIGITS.fullmatch(text.lower()):
            raise UsageError(
                f"--secret: has {len(text)} characters; it must be the 64 hexadecimal digits that a sealed run revealed"
            )
        return cls(text.lower())

    @classmethod
    def begin(cls, given: str = "") -> Secret:
        """That of a run that begins: the one that a person gives, or a new one."""
        return cls.from_text(given) if given else cls(secrets.token_hex(32))

    @property
    def commitment(self) -> str:
        return hashlib.sha256(self.digits.encode()).hexdigest()

    def number(self, *parts: str) -> int:
        """64 bits of `parts`: known to nobody who does not know the secret."""
        found = hmac.new(self.digits.encode(), "\0".join(parts).encode(), hashlib.sha256)
        return int.from_bytes(found.digest()[:8], "big")

    def drawn(self, case: Case, decides: Callable[[Case], bool] = lambda case: True) -> Case:
        """`case` with seeds of this secret's, its shape as it was: the first ones with which it `decides` something."""
        schedule = _DRAWN_SCHEDULE.sub(f"drawn:{self.number('schedule', case.key) % LARGEST}", case.schedule)
        made = (
            replace(case, data_seed=self.number("data", case.key, *again) % LARGEST, schedule=schedule)
            for again in ((), *((str(turn),) for turn in range(1, TURNS)))
        )
        first = next(made)
        return first if decides(first) else next(filter(decides, made), first)

    def describe(self, *, revealed: bool) -> dict[str, str]:
        """What a file says of it."""
        return {"sha256": self.commitment} | ({"revealed": self.digits} if revealed else {})

    def __repr__(self) -> str:
        return f"Secret(sha256 {self.commitment})"


def commit(secret: Secret, journal: Journal) -> None:
    """Write the commitment into the journal of a run that begins, and keep the secret for a run that goes on."""
    path = _file(journal)
    with writing("secret", path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secret.digits)
    journal.note("committed", sha256=secret.commitment)


def take_up(journal: Journal) -> Secret:
    """The secret of a run that goes on. UsageError where its file is gone or another's: its cases are not known any more."""
    path = _file(journal)
    try:
        return Secret.from_text(path.read_text())
    except (OSError, UsageError):
        raise UsageError(
            f"--resume {journal.path}: the secret of this sealed run is not in {path} any more; run anew without --resume"
        ) from None


def reveal(secret: Secret, journal: Journal) -> None:
    """Write the secret of a run that ended into its journal, and keep it nowhere else."""
    journal.note("revealed", secret=secret.digits)
    _file(journal).unlink(missing_ok=True)


def commitment_line(secret: Secret) -> str:
    """What a run prints first."""
    return f"sealed: secret committed: sha256 {secret.commitment}"


def revelation_lines(secret: Secret, option: str = "--secret") -> str:
    """What a run prints last, with how to check it. `option`: by which it is given to another run."""
    return (
        f"sealed: secret revealed: {secret.digits}\n"
        f"  check: printf %s {secret.digits} | sha256sum\n"
        f"  the same draws again: {option} {secret.digits}"
    )


def withheld(secret: Secret) -> str:
    """What a run that was cut prints instead."""
    return f"sealed: the secret of sha256 {secret.commitment} is not revealed, since run --resume goes on with it"


def _file(journal: Journal) -> Path:
    return state_directory() / "secrets" / f"{journal.path.stem}.hex"
