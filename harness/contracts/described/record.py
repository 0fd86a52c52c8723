"""What a body drew, as a record: the problem of a described kernel. It goes through JSON unchanged and holds no data: words of
operands come from the regime and the data seed of the case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

from bitverdict.harness.model.usage import UsageError

PlainValue = int | float | str | bool | None
Value = PlainValue | tuple[int, ...]
KINDS = (
    "size", "choice", "flag", "scalar", "lengths", "tensor", "integers", "numbers", "indices", "offsets", "mask", "scales", "output"
)  # fmt: skip
"""What a body may draw; the names of the methods of `Draw`."""
OPERANDS = ("tensor", "integers", "numbers", "indices", "offsets", "mask", "scales")
"""Those whose words the case's data seed makes."""
LIST_KINDS = ("lengths", "indices")
"""Those whose value may be a list of integers."""
SHAPED_KINDS = (*OPERANDS, "output")
SIZES = "sizes"  # of a report: those without a name


def text_of(value: Value) -> str:
    """A value in a report; of a list with equal neighbours as one: ``0*3,40``."""
    if not isinstance(value, tuple):
        return str(value)
    runs = [(number, len(list(same))) for number, same in groupby(value)]
    return ",".join(f"{number}*{count}" if count > 1 else str(number) for number, count in runs)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One draw. `value` was drawn: a number, a choice, lengths, how a tensor lies, where indices lie
    or the indices themselves. The rest follows from what was asked.

    `asked` is what the body asked for, so that a body that asks otherwise the second time shows. `strides` are in elements, None
    for contiguous rows; `offset` is the elements before the first. `called` is the reference's name for an operand, and the
    body's variable for a number.
    """

    kind: str
    value: Value = None
    name: str = ""
    asked: tuple = ()
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    offset: int = 0
    called: str = field(default="", compare=False)

    def describe(self) -> str:
        """The draw in a report: ``k=8``, ``x=fp16(3,65)``."""
        if self.shape is None:
            return f"{self.name or self.called or self.kind}={text_of(self.value)}"
        lies = f":{text_of(self.value)}" if self.value not in (None, CONTIGUOUS) else ""
        return f"{self.name or self.called or self.kind}={self.dtype}{str(self.shape).replace(' ', '')}{lies}"


CONTIGUOUS = "contiguous"
PADDED_LAYOUT = "padded"
FAR_LAYOUT = "far"
"""A layout: the lines of one axis lie so far apart that those of its second half begin past 2^31 elements and 2^32 bytes, while
their stride fits 32 bits. It is the first axis but the last one with `draw.FAR_LINES` lines."""


def is_far(entries: Iterable[Entry]) -> bool:
    """Whether an operand lies so."""
    return any(entry.kind == "tensor" and entry.value == FAR_LAYOUT for entry in entries)


@dataclass(frozen=True)
class DrawRecord:
    """Every draw of a body, in order."""

    draws: tuple[Entry, ...]

    def describe_parts(self) -> list[str]:
        """What a report says of the draws, sizes and choices first; sizes without a name stand together, in order."""
        sizes = [str(entry.value) for entry in self.draws if entry.kind == "size" and not (entry.name or entry.called)]
        others = [entry for entry in self.draws if entry.kind != "size" or entry.name or entry.called]
        listed = [entry.describe() for entry in sorted(others, key=lambda entry: entry.shape is not None)]
        return [f"{SIZES}={','.join(sizes)}", *listed] if sizes else listed

    def with_names(self, names: Mapping[int, str]) -> DrawRecord:
        """With what the reference calls the operands, by their places."""
        return DrawRecord(tuple(replace(entry, called=names.get(place, entry.called)) for place, entry in enumerate(self.draws)))

    def __getattr__(self, name: str) -> Any:
        """The value of the draw called `name`."""
        for entry in self.__dict__.get("draws", ()):
            if entry.name == name and entry.shape is None:
                return entry.value
        raise AttributeError(f"no draw is called {name}")

    @classmethod
    def from_json(cls, record: Mapping) -> DrawRecord:
        """Inverse of `dataclasses.asdict`; UsageError with field, value and rule on anything else."""
        listed = record.get("draws")
        if not isinstance(listed, list | tuple):
            raise UsageError(f"problem.draws is {listed!r:.100}: must be a list of draws")
        return cls(tuple(_entry(each, f"problem.draws[{place}]") for place, each in enumerate(listed)))


_NAMES = {each.name for each in fields(Entry)}


def _entry(record: object, place: str) -> Entry:
    if not isinstance(record, Mapping) or not set(record) <= _NAMES or record.get("kind") not in KINDS:
        raise UsageError(f"{place} is {record!r:.100}: must be a draw of kind {', '.join(KINDS)}")
    entry = Entry(**{name: _tuples(value) for name, value in record.items()})
    for name, kinds, must in (
        (
            "value",
            PlainValue | tuple if entry.kind in LIST_KINDS else PlainValue,
            "a number, a text, true, false or null; of lengths and indices a list",
        ),
        ("name", str, "a text"),
        ("dtype", str, "a text"),
        ("called", str, "a text"),
        ("asked", tuple, "a list"),
    ):
        if not isinstance(getattr(entry, name), kinds):
            raise UsageError(f"{place}.{name} is {getattr(entry, name)!r:.100}: must be {must}")
    for name in ("shape", "strides"):
        sizes = getattr(entry, name)
        if sizes is not None and not (isinstance(sizes, tuple) and all(type(size) is int and size >= 0 for size in sizes)):
            raise UsageError(f"{place}.{name} is {sizes!r:.100}: must be a list of integers of at least 0")
    if isinstance(entry.value, tuple) and not all(type(number) is int for number in entry.value):
        raise UsageError(f"{place}.value is {entry.value!r:.100}: must be a list of integers, where it is a list")
    if type(entry.offset) is not int or entry.offset < 0:
        raise UsageError(f"{place}.offset is {entry.offset!r:.100}: must be an integer of at least 0")
    return entry


def _tuples(value: object) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
