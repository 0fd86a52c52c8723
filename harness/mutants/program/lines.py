"""One line of a tile program: an operation in MLIR's generic assembly, taken apart and put together again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bitverdict.harness.emulator.mlir_reader import OPERATION
from bitverdict.harness.emulator.mlir_types import closing_position, split_top


@dataclass(frozen=True)
class Line:
    """An operation without regions, or the first line of one that has some: `types` is empty then, and `end` opens the region."""

    indent: str
    results: str
    name: str
    operands: tuple[str, ...]
    successors: str
    properties: dict[str, str] | None
    attributes: dict[str, str] | None
    types: tuple[str, ...]
    outputs: str
    end: str
    """The location, in its parentheses."""

    @property
    def text(self) -> str:
        results = f"{self.results} = " if self.results else ""
        head = f'{self.indent}{results}"{self.name}"({", ".join(self.operands)}){self.successors}'
        properties = "" if self.properties is None else f" <{_braces(self.properties)}>"
        if not self.outputs:
            return f"{head}{properties}{self.end}"
        attributes = "" if self.attributes is None else f" {_braces(self.attributes)}"
        return f"{head}{properties}{attributes} : ({', '.join(self.types)}) -> {self.outputs}{self.end}"

    def with_operands(self, operands: tuple[str, ...], types: tuple[str, ...] | None = None) -> Line:
        """With other operands, and their types where they are others."""
        return replace(self, operands=operands, types=self.types if types is None else types)

    def with_operand(self, place: int, value: str) -> Line:
        """With `value` for the operand at `place`, of the same type."""
        return self.with_operands((*self.operands[:place], value, *self.operands[place + 1 :]))

    def without_operands(self, *places: int) -> Line:
        """Without the operands at `places`; the groups of the others stay, so their sizes must be set too."""
        kept = [i for i in range(len(self.operands)) if i not in places]
        return self.with_operands(tuple(self.operands[i] for i in kept), tuple(self.types[i] for i in kept))

    def with_values(self, **values: str) -> Line:
        """With other values of attributes that it has. KeyError for one that it has not."""
        properties, attributes = dict(self.properties or {}), dict(self.attributes or {})
        for name, value in values.items():
            (properties if name in properties else attributes)[name] = value
            if name not in (self.properties or {}) and name not in (self.attributes or {}):
                raise KeyError(name)
        return replace(
            self,
            properties=properties if self.properties is not None else None,
            attributes=attributes if self.attributes is not None else None,
        )

    def with_name(self, name: str) -> Line:
        return replace(self, name=name)


def _braces(given: dict[str, str]) -> str:
    return "{" + ", ".join(f"{name} = {value}" if value else name for name, value in given.items()) + "}"


def line_of(text: str) -> Line:
    """`text` taken apart. ValueError where it is no operation."""
    found = OPERATION.match(text)
    if found is None:
        raise ValueError(f"no operation: {text.strip()[:120]}")
    results, name, operands, successors = found.groups()
    indent = text[: len(text) - len(text.lstrip())]
    rest = text[found.end() :]
    properties = attributes = None
    if rest.startswith(" <{"):
        end = closing_position(rest, 1)
        properties = _read(rest[3 : end - 2])
        rest = rest[end:]
    head = (indent, results or "", name, tuple(split_top(operands)), "" if successors is None else f"[{successors}]", properties)
    if not rest.startswith((" {", " : ")):
        return Line(*head, None, (), "", rest)
    if rest.startswith(" {"):
        end = closing_position(rest, 1)
        attributes = _read(rest[2 : end - 1])
        rest = rest[end:]
    typed, _, place = rest[3:].rpartition(" loc(")
    end = closing_position(typed, 0)
    return Line(*head, attributes, tuple(split_top(typed[1 : end - 1])), typed[end:].removeprefix(" -> "), f" loc({place}")


def _read(text: str) -> dict[str, str]:
    parts = (part.partition(" = ") for part in split_top(text))
    return {name: value for name, _, value in parts}
