"""``-k EXPR``: which cases a run judges, by words of them: ``fp16 and not normal``, ``m>64 or k=33``, ``sm_90 and race``.

    expression   words, comparisons, `and`, `or`, `not`, brackets
    word         a value of a field, or a part of one; a field that is true; a part of the kernel's name; the target or its
                 architecture; the outcome that is expected, or the one of the last run
    comparison   field = != < <= > >= value

Words are compared without regard to case. Quotes hold one with spaces: "wrong words".
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.usage import UsageError, did_you_mean
from bitverdict.harness.session.case_line import CASE_FIELDS

_TOKEN = re.compile(r"""\s*(?:(?P<mark>[()]|[<>!=]=|[<>=])|"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<word>[^\s()<>!="']+))""")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_JOINS = ("and", "or", "not")


@dataclass(frozen=True)
class Words:
    """What an expression may say of one case: `fields` by name, `words` of their values, `names` that a word may be a part of."""

    fields: Mapping[str, Any]
    words: frozenset[str]
    names: tuple[str, ...]

    def has(self, word: str) -> bool:
        return word in self.words or any(word in name for name in self.names)


def words_of(case: Case, names: Iterable[str], outcomes: Iterable[str]) -> Words:
    """The words of `case`: `names` are those of its kernel and target, `outcomes` those expected of it and seen."""
    fields = dict(_fields(case.problem)) | dict(_fields(case.config))
    fields |= {name: getattr(case, name) for name in CASE_FIELDS}
    values = [*outcomes]
    for name, value in fields.items():
        if isinstance(value, bool) or value is None:
            values += [name] if value else []
        else:
            values.append(str(value))
    words = {word.lower() for word in values}
    parts = {part for word in words for part in re.split(r"[^\w.-]+", word) if part}
    return Words(fields, frozenset(words | parts), tuple(name.lower() for name in names))


def _fields(record: object) -> Iterator[tuple[str, Any]]:
    """The fields of a record, of records inside it too by their own names; of a record of draws what it tells."""
    if hasattr(record, "describe_parts"):
        for draw in record.describe_parts():
            name, _, value = draw.partition("=")
            yield name, value if (number := _number(value)) is None else number
        return
    for each in dataclasses.fields(record) if dataclasses.is_dataclass(record) else ():
        value = getattr(record, each.name)
        if dataclasses.is_dataclass(value):
            yield from _fields(value)
        else:
            yield each.name, value


class Expression:
    """An expression of ``-k``. UsageError for one that cannot be read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[str] = []  # that it asks for
        self.compared: list[str] = []  # fields that it compares
        self._tokens, self._place = list(_tokens(text)), 0
        if not self._tokens:
            raise UsageError("-k '': must have a word, such as fp16 or 'm>64 and not normal'")
        self._holds = self._parse_or()
        if self._place < len(self._tokens):
            raise self._usage_error(f"{self._tokens[self._place][0]!r} is one too many")

    def __call__(self, words: Words) -> bool:
        """Whether it holds for a case with these words."""
        return self._holds(words)

    def unknown(self, seen: Iterable[Words]) -> str:
        """Why it can hold for none of the cases `seen`: a field or a word that none of them has; empty where there is no such."""
        case_words = list(seen)
        fields = {name for words in case_words for name in words.fields}
        for name in self.compared:
            if name not in fields:
                known = sorted(fields)
                return f"no case has a field {name}{did_you_mean(name, known, 0.6)}; the fields are {', '.join(known)}"
        for word in self.words:
            if not any(words.has(word) for words in case_words):
                near = did_you_mean(word, sorted({each for words in case_words for each in (*words.words, *words.names)}), 0.6)
                return f"no case has the word {word!r}{near}; words are values of a case's fields, kernels, targets, outcomes"
        return ""

    def _usage_error(self, why: str) -> UsageError:
        return UsageError(f"-k {self.text!r}: {why}; join words and comparisons by and, or, not: fp16 and not (m=17 or normal)")

    def _take_mark(self, *marks: str) -> str:
        """The next token where it is one of `marks`, which is then passed; else ""."""
        if self._place < len(self._tokens) and self._tokens[self._place] in [(mark, True) for mark in marks]:
            self._place += 1
            return self._tokens[self._place - 1][0]
        return ""

    def _parse_or(self) -> Callable[[Words], bool]:
        parts = [self._parse_and()]
        while self._take_mark("or"):
            parts.append(self._parse_and())
        return parts[0] if len(parts) == 1 else lambda words: any(part(words) for part in parts)

    def _parse_and(self) -> Callable[[Words], bool]:
        parts = [self._parse_term()]
        while self._take_mark("and"):
            parts.append(self._parse_term())
        return parts[0] if len(parts) == 1 else lambda words: all(part(words) for part in parts)

    def _parse_term(self) -> Callable[[Words], bool]:
        if self._take_mark("not"):
            inner = self._parse_term()
            return lambda words: not inner(words)
        if self._take_mark("("):
            inner = self._parse_or()
            if not self._take_mark(")"):
                raise self._usage_error("a bracket is not closed")
            return inner
        word = self._word("a word")
        mark = self._take_mark(*_COMPARE)
        if not mark:
            self.words.append(word.lower())
            return lambda words: words.has(word.lower())
        self.compared.append(word)
        return self._comparison(word, mark, self._word(f"a value behind {word}{mark}"))

    def _word(self, what: str) -> str:
        if self._place == len(self._tokens) or self._tokens[self._place][1]:
            found = f"comes {self._tokens[self._place][0]!r}" if self._place < len(self._tokens) else "it ends"
            raise self._usage_error(f"where {what} must be, {found}")
        self._place += 1
        return self._tokens[self._place - 1][0]

    def _comparison(self, name: str, mark: str, value: str) -> Callable[[Words], bool]:
        number, compare = _number(value), _COMPARE[mark]
        if number is None and mark[0] in "<>":
            raise self._usage_error(f"{name}{mark}{value}: {value!r} is no number")

        def holds(words: Words) -> bool:
            if name not in words.fields:
                return False
            has = words.fields[name]
            if number is not None and isinstance(has, int | float):
                return compare(has, number)
            return mark[0] not in "<>" and compare(str(has).lower(), value.lower())

        return holds


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """(text, whether it is a mark) of each token."""
    place, text = 0, text.strip()
    while place < len(text):
        token_match = _TOKEN.match(text, place)
        if token_match is None:
            raise UsageError(f"-k {text!r}: {text[place:].split()[0]!r} cannot be read; join words and comparisons by and, or, not")
        place = token_match.end()
        quoted = token_match["double"] if token_match["double"] is not None else token_match["single"]
        if quoted is not None:
            yield quoted, False
        else:
            word = token_match["mark"] or token_match["word"]
            yield word, bool(token_match["mark"]) or word in _JOINS


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
