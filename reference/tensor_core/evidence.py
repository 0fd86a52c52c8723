"""What the numbers of an instruction rest on. Reports and docs/arithmetic.md print it from this record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

CONSTANTS = ("n", "F from below", "F from above", "output bits", "rounding", "place of c", "chain", "floor", "specials")
"""What words may settle: the length n of a block, from below; its fraction bits F; bits and rounding of the result; where c
enters; how blocks follow each other, which is n from above too; what E is held up at; NaN and infinities. One is open where no word
tells it from its next value."""

ALL_CONSTANTS = frozenset(CONSTANTS)
NAMES = {"MS": "MMA-Sim", "SF": "sf-tensor"}  # sources that are models
GPUS = {
    "a100": "A100", "ada": "Ada", "l40s": "L40S", "h100": "H100", "h200": "H200", "b200": "B200", "h200_own": "an H200 of our own",
}  # fmt: skip
MODEL_COUNTS = {1: "one model", 2: "two models"}


class EvidenceKind(Enum):
    """The strongest that there is."""

    HARDWARE = "hardware words"
    ANALOGY = "analogy"
    MODEL_ONLY = "model only"
    SPECIFICATION = "specification"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One instruction's evidence. ValueError for a claim without what it needs.

    `rows`: stems of files of hardware words, in `tests/hardware_words/` or where `TENSOR_CORE_WORDS` says. `open`: the constants
    that no word of them settles. `read_from`: where those were read instead, by analogy; empty where a model gave them.
    """

    kind: EvidenceKind
    sources: tuple[str, ...]  # keys of reference/SOURCES.md
    rows: tuple[str, ...] = ()
    open: frozenset[str] = frozenset()
    read_from: str = ""  # an architecture, with the operands where it is the instruction's own
    words: int = 0  # how many hardware words there are, where they are few
    note: str = ""  # for a reader, at the end

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("evidence names no source: name a key of reference/SOURCES.md")
        if unknown := self.open - ALL_CONSTANTS:
            raise ValueError(f"open constants {sorted(unknown)}: there are {', '.join(CONSTANTS)}")
        if self.kind is EvidenceKind.HARDWARE and not self.rows:
            raise ValueError("evidence claims hardware words and names no file of them: name `rows`, or claim less")
        if self.kind is EvidenceKind.ANALOGY and not self.read_from:
            raise ValueError("evidence claims an analogy and does not say with what: name it in `read_from`")
        if self.kind is not EvidenceKind.SPECIFICATION and not self.rows and self.open != ALL_CONSTANTS:
            raise ValueError("evidence without words settles a constant: without `rows`, every constant is open")

    @property
    def basis(self) -> str:
        """In the words of a report: "hardware", "two models"."""
        match self.kind:
            case EvidenceKind.HARDWARE:
                return "hardware, chain by a model" if "chain" in self.open and not self.read_from else "hardware"
            case EvidenceKind.MODEL_ONLY:
                return MODEL_COUNTS[len(self.models)]
        return str(self.kind.value)

    @property
    def models(self) -> list[str]:
        return [NAMES[key] for key in self.sources if key in NAMES]

    @property
    def gpus(self) -> str:
        """The GPUs that the words are of."""
        found = (GPUS[row.partition("_")[0] + ("_own" if "_own_" in row else "")] for row in self.rows)
        return ", ".join(dict.fromkeys(found))

    @property
    def open_constants(self) -> str:
        """The open constants in a fixed order, one name where both sides are open, and what stands for them."""
        sides = {"F from below", "F from above"}
        both = sides <= self.open
        names = [name for name in CONSTANTS if name in self.open and not (both and name in sides)]
        names = ["F"] * both + names
        by = f" (as on {self.read_from})" if self.read_from else f" (from {', '.join(self.models)})" if self.models else ""
        return f"{', '.join(names)}{by}" if self.open else ""

    def __str__(self) -> str:
        words = f"{self.words or ''} hardware words ({self.gpus})".lstrip()
        models = (
            f"{' and '.join(self.models)} agree"
            if len(self.models) > 1
            else f"model only ({self.models[0]})"
            if self.models
            else ""
        )
        match self.kind:
            case EvidenceKind.HARDWARE:
                sentence = words + (f"; no word settles {self.open_constants}" if self.open else "")
            case EvidenceKind.ANALOGY:
                sentence = f"by analogy with {self.read_from}"
            case EvidenceKind.MODEL_ONLY if self.rows:
                settled = ["decoding", *(name for name in CONSTANTS if name not in self.open)]
                sentence = f"{models}; {words} settle {', '.join(settled)}"
            case EvidenceKind.MODEL_ONLY:
                sentence = f"{models}; no hardware words"
            case _:
                return f"{self.note} ({', '.join(self.sources)})"
        return f"{sentence}; {self.note}" if self.note else sentence


def hardware(*rows: str, open: Iterable[str] = (), read_from: str = "", note: str = "", sources: tuple[str, ...] = ()) -> Evidence:
    """Words of `rows`: files of [TB], and of our own."""
    found = ("TB",) * any("_own_" not in row for row in rows) + ("H200",) * any("_own_" in row for row in rows)
    return Evidence(
        kind=EvidenceKind.HARDWARE, sources=found + sources, rows=rows, open=frozenset(open), read_from=read_from, note=note
    )


def analogy(read_from: str, note: str, *sources: str) -> Evidence:
    return Evidence(kind=EvidenceKind.ANALOGY, sources=sources, open=ALL_CONSTANTS, read_from=read_from, note=note)


def model_only(*sources: str, note: str = "") -> Evidence:
    return Evidence(kind=EvidenceKind.MODEL_ONLY, sources=sources, open=ALL_CONSTANTS, note=note)
