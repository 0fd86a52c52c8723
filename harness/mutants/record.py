"""The records of this room: a generated mutant, and what came of it. Both go through JSON unchanged, a line each.

A mutant is *live* where it was killed, survived or stays doubtful. The score is the killed share of the live ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from bitverdict.harness.model.case import Case


class Kind(StrEnum):
    """What is edited."""

    SOURCE = "source"
    PROGRAM = "program"


class End(StrEnum):
    """What came of a mutant."""

    KILL = "killed"
    """A case failed."""
    SURVIVAL = "survived"
    """No case failed."""
    EQUIVALENT = "equivalent"
    """It computes what the kernel computes: `MutantResult.why` says how that is known."""
    DOUBTFUL = "doubtful"
    """No case failed, and there is a reason to think that none can; `why` says which."""
    INVALID = "invalid"
    """It does not compile, or its file cannot be imported: nobody would launch it."""
    ERROR = "error"
    """The harness failed, or the machine: it says nothing about the mutant."""


LIVE = (End.KILL, End.SURVIVAL, End.DOUBTFUL)


@dataclass(frozen=True, kw_only=True)
class GeneratedMutant:
    """One edit of one kernel.

    `edit` is what applies it. Of a source mutant: `{"start": 812, "end": 813, "of": "k", "by": "k - 1"}`, in characters of the
    file's text. Of a mutant of the tile program: what `bitverdict.harness.mutants.program` reads.
    """

    id: str
    """Kernel, function, operator and number, as in "softmax/softmax_kernel/mask dropped/2". Edits elsewhere keep it."""
    kernel: str
    """A stem of ``kernels/``, or FILE:FUNCTION of a user's test or launcher."""
    kind: Kind
    operator: str
    family: str
    file: str
    """The edited file of the kernel's source, as reports name it; of a mutant of the program the one that its location names."""
    line: int
    before: str
    """One line that a person reads."""
    after: str
    edit: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict:
        return asdict(self) | {"edit": dict(self.edit)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> GeneratedMutant:
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in record.items() if name in known} | {"kind": Kind(record["kind"])})


@dataclass(frozen=True, kw_only=True)
class MutantResult:
    """What came of the mutant whose `id` is `mutant`.

    `killed_by` is the case that failed (`digest_of`), `outcome` its outcome, and `message` what its verdict said. `clause` is what
    of the contract failed, `regime` that case's. `also_killed_by`: the other cases that fail, where all were asked. `why`: how an
    equivalent one is known to be, why one is doubtful or invalid, or what a survivor's cases left open. `seconds` are of the wall,
    of this mutant alone.
    """

    mutant: str
    end: End
    why: str = ""
    killed_by: str = ""
    target: str = ""
    clause: str = ""
    regime: str = ""
    outcome: str = ""
    message: str = ""
    cases_run: int = 0
    seconds: float = 0.0
    also_killed_by: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        return self.end in LIVE

    def with_killer(self, case: Case) -> MutantResult:
        """This one, with `case` among those that fail."""
        return replace(self, also_killed_by=(*self.also_killed_by, digest_of(case)))

    def to_json(self) -> dict:
        return asdict(self) | {"also_killed_by": list(self.also_killed_by)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> MutantResult:
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in record.items() if name in known}
        return cls(**given | {"end": End(record["end"]), "also_killed_by": tuple(record.get("also_killed_by", ()))})


@dataclass(frozen=True)
class JudgedMutant:
    """A mutant with its result: a line of a results file."""

    mutant: GeneratedMutant
    result: MutantResult


def append(path: Path, judged: JudgedMutant) -> None:
    """Add a line to the results file at `path`, whole and flushed; the file is made where it is missing."""
    line = json.dumps({"mutant": judged.mutant.to_json(), "result": judged.result.to_json()}, separators=(",", ":")) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> Iterator[JudgedMutant]:
    """The lines of the results file at `path`, the last one of each mutant; of a missing file none. A line that was cut short, as
    by a kill, is left out."""
    lines_by_mutant: dict[str, JudgedMutant] = {}
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if "mutant" in record:
            judged = JudgedMutant(GeneratedMutant.from_json(record["mutant"]), MutantResult.from_json(record["result"]))
            lines_by_mutant[judged.mutant.id] = judged
    yield from lines_by_mutant.values()


def digest_of(case: Case) -> str:
    """A case as results name it: ten digits of a digest of its key."""
    return hashlib.sha256(case.key.encode()).hexdigest()[:10]


def score(results: Iterable[MutantResult]) -> tuple[int, int]:
    """(killed, live) of `results`."""
    counted = list(results)
    return sum(each.end is End.KILL for each in counted), sum(each.live for each in counted)


def drawn(mutants: Iterable[GeneratedMutant], seed: int = 0) -> Iterator[GeneratedMutant]:
    """All of `mutants` in the order they are judged in: kinds take turns, and of a kind its operators, each in an order drawn from
    `seed` and its own ids. The first n are a draw of n; more operators than mutants leaves some operators out."""
    kinds: dict[str, dict[str, list[GeneratedMutant]]] = defaultdict(lambda: defaultdict(list))
    for each in mutants:
        kinds[each.kind][each.operator].append(each)
    yield from _in_turn([_in_turn([_shuffle(found, seed) for _, found in sorted(kinds[kind].items())]) for kind in sorted(kinds)])


def _shuffle(mutants: list[GeneratedMutant], seed: int) -> Iterator[GeneratedMutant]:
    ordered = sorted(mutants, key=lambda each: each.id)
    named = ordered[0].kernel.rpartition("/")[2]  # of a user's file the same, wherever it lies
    random.Random(f"{seed} {named} {ordered[0].operator}").shuffle(ordered)
    return iter(ordered)


def _in_turn(sources: list[Iterator[GeneratedMutant]]) -> Iterator[GeneratedMutant]:
    """One of each source, as long as there is one."""
    while sources:
        left = []
        for source in sources:
            if (each := next(source, None)) is not None:
                yield each
                left.append(source)
        sources = left
