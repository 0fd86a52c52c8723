"""What is smaller than a case: a total order, and the way down it, field by field, while the same bug shows.

Fields are those of the records themselves, nested ones too, so this works for every kernel whose `Problem` and `Config` are
dataclasses. The values a field that is no number may take are those the contract's required cases have, the default first; a number
goes no lower than there. So two runs that begin at different cases of one bug walk one order, and nearly always end at one reduced
case.

The order: plainest choices (schedule, regime, element types, flags), then sizes of the problem and of the launch nearer to 0, then
row numbers that are written out, then gaps and offsets (fields whose default is 0), then the data seed. A field that was made
smaller may need others to stay legal: rows of another length need another gap to end on 16 bytes, so gaps follow by themselves.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, IndexList
from bitverdict.harness.model.targets import Target
from bitverdict.harness.session import smaller_lists

Field = tuple[str, ...]  # the names that lead to a value: ("problem", "a", "pad")
SMALL_VALUES = 17  # values below it are tried one by one: a residue modulo 16 decides much
UNITS = (4, 8, 16)  # elements that a row may have to be a multiple of
MOST_REPAIRS = 1000  # combinations of gaps asked for one candidate; asking costs 10 to 50 microseconds


class Reducer:
    """The way down from a case of `contract` on `target`. `shows` says whether a candidate shows the same bug; where it answers
    None there is no time left, and the descent ends with what it has. Candidates are legal as the case is that was begun with: they
    expect a result as it does, or the same fault or refusal."""

    def __init__(self, contract: Contract, target: Target, shows: Callable[[Case], bool | None]) -> None:
        self.contract, self.target, self.shows = contract, target, shows
        self.listed = contract.required(target)
        self.choices: dict[tuple[Field, bool], list[Any]] = {}
        self.floors: dict[Field, int] = {}
        self.owing: dict[Case, bool] = {}
        self.repaired: dict[Case, Case | None] = {}
        self.begun: Case | None = None
        self.aim = ""  # what is said of the case that was begun with: of a legal one nothing
        self.rules: set[str] | None = None
        self.ended = False

    def least(self, case: Case) -> Case:
        """The case that no move makes smaller, or the smallest met when time ran out."""
        before, self.begun, self.aim = None, case, self._broken(case)
        case = self._write_out_indices(case)
        while case != before and not self.ended:
            before = case
            for field in fields_of(case):
                case = self._lower_field(case, field)
            case = self._with_simpler_draws(self._with_smaller_lists(case))
            if case == before:  # nothing simple is left: look closer
                for field in fields_of(case):
                    case = self._search_number(case, field)
                for pair in itertools.permutations(fields_of(case), 2):
                    case = self._exchange_fields(case, *pair)
        return case

    def _lower_field(self, case: Case, field: Field) -> Case:
        """One field as small as powers of two and bisection between them find it."""
        value = value_at(case, field)
        if not is_number(value):
            return self._first_candidate(
                case, [made for less in self.lesser(case, field) for made in self._moves(case, field, less)]
            )
        below, steps = self.floor(case, field) - 1, self.lesser(case, field)
        for step in steps:
            if (candidate := self._any_candidate(self._moves(case, field, step))) is not None:
                case = candidate
                break
            below = step
        value = value_at(case, field)
        if field[-1] == "data_seed" or value < 0:
            return case
        while value - below > 1 and not self.ended:
            middle = (below + value) // 2
            if (candidate := self._any_candidate(self._moves(case, field, middle))) is not None:
                case, value = candidate, middle
            else:
                below = middle
        return case

    def _search_number(self, case: Case, field: Field) -> Case:
        """One number tried at every small value, and a little and much below itself, where bisection saw no slope."""
        value = value_at(case, field)
        if not is_number(value) or field[-1] == "data_seed":
            return case
        near = {value - step * times for step in (1, 2, 4, 8, 16, 32, 64) for times in (1, 2, 3)} | set(range(SMALL_VALUES))
        near = {less for less in near if self.floor(case, field) <= less < abs(value)}
        return self._first_candidate(case, [made for less in sorted(near) for made in self._moves(case, field, less)])

    def _moves(self, case: Case, field: Field, value: object) -> list[Case]:
        """`case` with `value` at `field`. Lists of row numbers follow their length; where a table got another number of rows, they
        are tried as they are, and then with their distance from its end."""
        moved = with_value(case, field, value)
        if not case.indices:
            return [moved]
        moved = smaller_lists.resize_lists(self.contract, moved)
        along = smaller_lists.carry_numbers(self.contract, moved, case)
        return [moved] if along == moved else [moved, along]

    def _write_out_indices(self, case: Case) -> Case:
        """`case` with its row numbers written out, where it draws them from its seed and still shows the bug then. What stands
        behind its regime says nothing any more."""
        if case.indices or not (indices := self.contract.indices(case)):
            return case
        written = dataclasses.replace(case, indices=indices)
        return self._first_candidate(case, [dataclasses.replace(written, regime=case.regime.partition("/")[0]), written])

    def _with_smaller_lists(self, case: Case) -> Case:
        """`case` with fewer row numbers, and those that are left as simple as they can be."""
        if not case.indices:
            return case
        for pieces in (2, 4, 8, 16, smaller_lists.PIECES):
            for how in smaller_lists.shorter(self.contract, case, pieces=pieces):
                case = self._apply_change(case, how)
        for pieces in (1, 2, 4, 8, 16, smaller_lists.PIECES):
            for how in smaller_lists.plainer(self.contract, case, pieces=pieces):
                case = self._apply_change(case, how)
        for of, place in smaller_lists.numbers_that_matter(self.contract, case):
            case = self._with_simpler_number(case, of, place)
        return case

    def _with_simpler_draws(self, case: Case) -> Case:
        """`case` with each draw as simple as the contract can make it, where its problem is a record of draws."""
        simpler = True
        while simpler and not self.ended:
            found = next(
                (legal for made in self.contract.simpler(case) if (legal := self._legal_and_shown(made)) is not None), case
            )
            simpler, case = found != case, found
        return case

    def _apply_change(self, case: Case, how: Callable[[Case], Case | None]) -> Case:
        made = None if self.ended else how(case)
        return case if made is None else self._first_candidate(case, [made])

    def _with_simpler_number(self, case: Case, index_list: IndexList, place: int) -> Case:
        """One row number as near to 0 as powers of two, the table's ends and bisection between them find it."""
        below = 0
        for number in smaller_lists.simpler_numbers(case, index_list, place):
            candidate = self._legal_and_shown(smaller_lists.with_number(case, index_list, place, number))
            if candidate is not None:
                case = candidate
                break
            below = abs(number)
        number = dict(case.indices)[index_list.name][place]
        sign = -1 if number < 0 else 1
        while abs(number) - below > 1 and not self.ended:
            middle = (below + abs(number)) // 2
            candidate = self._legal_and_shown(smaller_lists.with_number(case, index_list, place, sign * middle))
            if candidate is not None:
                case, number = candidate, sign * middle
            else:
                below = middle
        return case

    def _exchange_fields(self, case: Case, field: Field, other_field: Field) -> Case:
        """One field made smaller that cannot be alone: another one gives way. Both are sizes, or legality ties them together."""
        slack = slack_of(case)
        if self.ended or "data_seed" in (field[-1], other_field[-1]) or other_field in slack:
            return case
        current_value, before = value_at(case, other_field), value_at(case, field)
        sizes = field[0] == other_field[0] == "problem" and is_number(before) and is_number(current_value) and field not in slack
        for less in self.lesser(case, field):
            moved_case = self._moves(case, field, less)[-1]
            if self.legal(moved_case) is None:
                other_cases = (
                    [*self.lesser(case, other_field), 2 * current_value, 4 * current_value]
                    if is_number(current_value)
                    else self._choices(case, other_field)
                )
            elif sizes and less in (self.floor(case, field), max(before // 2, 1)):
                other_cases = [
                    current_value + before - less,
                    -(-current_value * before // max(less, 1)),
                ]  # of the same sum, of the same product
            else:
                continue  # it was tried by itself
            ways = [way for step in other_cases if step != current_value for way in self._moves(moved_case, other_field, step)]
            found = self._first_candidate(case, [way for way in ways if self.rank(way) < self.rank(case)])
            if found is not case:
                return found
        return case

    def _first_candidate(self, case: Case, candidates: list[Case]) -> Case:
        for candidate in candidates:
            if (found := self._legal_and_shown(candidate)) is not None:
                return found
        return case

    def _any_candidate(self, candidates: list[Case]) -> Case | None:
        return next((found for made in candidates if (found := self._legal_and_shown(made)) is not None), None)

    def _legal_and_shown(self, candidate: Case) -> Case | None:
        legal = None if self.ended else self.legal(candidate)
        if legal is None:
            return None
        shown = self.shows(legal)
        self.ended = self.ended or shown is None
        return legal if shown else None

    def legal(self, case: Case) -> Case | None:
        """`case`, with the smallest gaps and offsets under which it is legal; None where there are none."""
        if case not in self.owing:
            self.owing[case] = self._expects(case)
        if self.owing[case]:
            return case
        if case not in self.repaired:
            self.repaired[case] = self._repair_case(case)
        return self.repaired[case]

    def _repair_case(self, case: Case) -> Case | None:
        slack = slack_of(case)
        if self._broken(case) not in self._gap_rules(case):
            return None
        sizes = {value_at(case, field) for field in fields_of(case) if field[0] == "problem" and is_number(value_at(case, field))}
        needed = {0} | {-size % unit for size in sizes - {0} for unit in UNITS}
        offered = [sorted({value_at(case, field)} | (needed if "pad" in field[-1] else {0}), key=abs) for field in slack]
        ways = sorted(itertools.islice(itertools.product(*offered), MOST_REPAIRS), key=lambda way: (sum(map(abs, way)), way))
        for way in ways if slack else ():
            repaired = case
            for field, value in zip(slack, way, strict=True):
                repaired = with_value(repaired, field, value)
            if self._expects(repaired):
                return repaired
        return None

    def _broken(self, case: Case) -> str:
        """What is said of an illegal case: the first rule it breaks; empty for a legal one."""
        try:
            expected_outcome = self.contract.expected_outcome(case, self.target)
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            return type(error).__name__
        return "" if expected_outcome.result else f"{expected_outcome.outcome} {expected_outcome.message}"

    def _gap_rules(self, case: Case) -> set[str]:
        """The rules that a gap or an offset one element longer can break."""
        if self.rules is None:
            legal = self.begun or case
            longer = [with_value(legal, field, value_at(legal, field) + 1) for field in slack_of(legal)]
            self.rules = {self._broken(one) for one in longer} - {self.aim}
        return self.rules

    def _expects(self, case: Case) -> bool:
        return self._broken(case) == self.aim

    def lesser(self, case: Case, field: Field) -> list[Any]:
        """The values of one field below its own, the least first."""
        value = value_at(case, field)
        if is_number(value):
            return [step for step in sorted({*ladder(value), value // 2}) if self.floor(case, field) <= step < abs(value)]
        known = self._choices(case, field)
        return known[: known.index(value)] if value in known else known

    def floor(self, case: Case, field: Field) -> int:
        """The least that a number may become. Of the configuration, what the required cases have: nothing says what a tile of one
        row does. Of the problem, 1; 0 where the required cases have it. Clauses say the rest."""
        if field not in self.floors:
            values = [0] if field[-1] == "data_seed" else default_at(case, field)
            for listed in self.listed:
                try:
                    values.append(value_at(listed, field))
                except AttributeError:  # a case without a configuration
                    continue
            least = min([abs(value) for value in values if is_number(value)], default=0)
            self.floors[field] = min(least, 1) if field[0] == "problem" else least
        return min(self.floors[field], abs(value_at(case, field)))

    def rank(self, case: Case) -> tuple:
        """Where `case` stands in the order; equal for equal cases only, where the fields have known values."""
        fields, slack = fields_of(case), slack_of(case)

        def place(field: Field) -> tuple:
            value = value_at(case, field)
            if is_number(value):
                return abs(value), value < 0
            known = self._choices(case, field)
            return (known.index(value) if value in known else len(known)), str(value)

        numbers = [field for field in fields if is_number(value_at(case, field)) and field[-1] != "data_seed"]
        choices = [field for field in fields if not is_number(value_at(case, field))]
        later = [field for field in numbers if field in slack]
        sizes = [field for field in numbers if field not in slack]
        lists = tuple(smaller_lists.simplicity(number) for _, numbers in case.indices for number in numbers)
        first, second, *last = (tuple(map(place, group)) for group in (choices, sizes, later, [("data_seed",)]))
        return first, second, (not case.indices, lists), *last

    def _choices(self, case: Case, field: Field) -> list[Any]:
        """What a field that is no number may be: its default, then what the required cases have, in its order."""
        plain_regime = field == ("regime",) and bool(case.indices) and "/" not in case.regime  # row numbers have no kind there
        if (field, plain_regime) not in self.choices:
            choices = dict.fromkeys(default_at(case, field))
            for listed in self.listed:
                try:
                    choices[value_at(listed, field)] = None
                except AttributeError:  # a case without a configuration
                    continue
            plain = [str(value) if isinstance(value, str) else value for value in choices]  # a worker need not know an enum's class
            plain = list(dict.fromkeys(value.partition("/")[0] for value in plain)) if plain_regime else plain
            self.choices[field, plain_regime] = [value for value in plain if type(value) is not int]
        return self.choices[field, plain_regime]


def fields_of(case: Case) -> list[Field]:
    """Every field that can be made smaller: of the case, then of the problem, then of the configuration, nested records flat."""
    found: list[Field] = [("schedule",), ("regime",)]
    for part in ("problem", "config"):
        found += _leaves(getattr(case, part), (part,))
    return [*found, ("tuning",), ("calls",), ("data_seed",)]


def _leaves(record: object, prefix: Field) -> Iterator[Field]:
    if not dataclasses.is_dataclass(record):
        return
    for each in dataclasses.fields(record):
        value, here = getattr(record, each.name), (*prefix, each.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, here)
        elif value is None or isinstance(value, bool | int | str):
            yield here


def slack_of(case: Case) -> list[Field]:
    """Gaps and offsets: numbers of the problem whose default is 0."""
    return [
        field
        for field in fields_of(case)
        if field[0] == "problem" and is_number(value_at(case, field)) and default_at(case, field) == [0]
    ]


def value_at(case: Case, field: Field) -> Any:
    value: Any = case
    for name in field:
        value = getattr(value, name)
    return value


def with_value(record: Any, field: Field, value: object) -> Any:
    """`record` with the value at `field` replaced."""
    name, *rest = field
    inner = with_value(getattr(record, name), tuple(rest), value) if rest else value
    return dataclasses.replace(record, **{name: inner})


def default_at(case: Case, field: Field) -> list[Any]:
    """The default of a field, alone in a list; an empty list where it has none."""
    owner: Any = case
    for name in field[:-1]:
        owner = getattr(owner, name)
    default = next(each.default for each in dataclasses.fields(owner) if each.name == field[-1])
    return [] if default is dataclasses.MISSING else [default]


def is_number(value: object) -> bool:
    return type(value) is int


def ladder(value: int) -> list[int]:
    """0 and the powers of two below `value` in size, ascending."""
    return ([0] if value else []) + [1 << power for power in range(abs(value).bit_length()) if 1 << power < abs(value)]
