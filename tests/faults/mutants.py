"""A mutant: a kernel's source with one text replaced, written aside and reached through a contract address.

Not a copy of a kernel: when the kernel changes so that the text no longer occurs exactly once, making a mutant says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bitverdict.harness.model.addresses import load
from bitverdict.harness.model.contract import Contract

CHECKOUT = Path(__file__).resolve().parents[2]
_TRAILER = """

import sys as _sys

import bitverdict.harness.contracts.{stem} as _contracts

CONTRACT = _contracts.contract(_sys.modules[__name__])
"""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`replace` becomes `by` in ``kernels/<kernel>.py``; the harness must fail it as one of `fails_as`
    (`bitverdict.harness.model.verdict.Outcome` values). `on` names the targets it is looked for on, where it shows on some only;
    `shows_in` classes of the contract's coverage it shows in, where few cases fall in them: it saves time, not a failure."""

    name: str
    kernel: str
    replace: str
    by: str
    fails_as: tuple[str, ...]
    on: tuple[str, ...] = ()
    shows_in: tuple[tuple[str, str], ...] = ()


def mutant_source(fault: Fault) -> str:
    """The faulty source, the contract's address appended. ValueError where the text does not occur exactly once."""
    source = (CHECKOUT / "kernels" / f"{fault.kernel}.py").read_text()
    if (count := source.count(fault.replace)) != 1:
        raise ValueError(
            f"fault {fault.name!r}: its text occurs {count} times in kernels/{fault.kernel}.py: it must occur once; make it longer"
        )
    return source.replace(fault.replace, fault.by) + _TRAILER.format(stem=fault.kernel)


def write_mutant(fault: Fault, directory: Path) -> str:
    """Write the faulty kernel into `directory`; returns the address of its contract."""
    path = directory / f"{fault.kernel}_{fault.name.replace(' ', '_')}.py"
    path.write_text(mutant_source(fault))
    return f"{path}:CONTRACT"


def mutant_contract(fault: Fault, directory: Path) -> Contract:
    """The contract of the faulty kernel, loaded in this process."""
    found = load(write_mutant(fault, directory))
    assert isinstance(found, Contract)
    return found
