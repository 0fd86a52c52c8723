"""Contract under test: docs/mutation_score.md is whole, its counts add up, and each survivor has a reason."""

from __future__ import annotations

import re

import pytest

from bitverdict.harness.lab.pages.mutation_score import HEAD, LIVE, SHARE
from bitverdict.harness.lab.pages.printed_pages import DOCS
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.report.required_lists import frozen_kernels

PAGE = (DOCS / "mutation_score.md").read_text()


def rows(section: str) -> list[list[str]]:
    """The cells of each row of the tables of `section`, heads left out."""
    text = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (found,) = (part for part in text if part.startswith(f"{section}\n"))
    lines = [line for line in found.splitlines() if line.startswith("| ")]
    heads = {number for number, line in enumerate(lines[1:]) if re.fullmatch(r"[| :-]+", line)}
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for number, line in enumerate(lines)
        if number not in heads and number - 1 not in heads
    ]


def numbers(row: list[str]) -> list[int]:
    """generated, invalid, equivalent, error, live, killed, survived, doubtful"""
    return [int(cell.replace(",", "")) for cell in row[1:-1]]


@pytest.mark.parametrize("section", ["Score", "By kernel", "By operator"])
def test_the_counts_of_each_table_add_up(section: str) -> None:
    *parts, (name, *_) = rows(section)
    whole = numbers(rows(section)[-1])
    assert name == "all" and [sum(column) for column in zip(*map(numbers, parts), strict=True)] == whole
    for generated, invalid, equivalent, error, live, killed, survived, doubtful in map(numbers, rows(section)):
        assert generated == invalid + equivalent + error + live and live == killed + survived + doubtful


def test_every_kernel_has_live_mutants_and_the_goal_is_told_as_it_is() -> None:
    kernels = rows("By kernel")[:-1]
    names = [re.search(r"`(\w+)`", row[0])[1] for row in kernels]
    assert names == sorted(names) and set(frozen_kernels()) <= set(names) <= set(kernels_with_a_contract())
    assert all(numbers(row)[4] for row in kernels)
    live, killed = numbers(rows("Score")[-1])[4:6]
    met = live >= LIVE and 100 * killed >= SHARE * live
    assert f"{SHARE} % of them killed: {'met' if met else 'missed'} ({live:,}, " in PAGE


def test_each_survivor_is_named_with_its_line_and_a_reason_is_told() -> None:
    named = [row for section in ("Survivors", "Doubtful") for row in rows(section) if len(row) == 6]
    counts = {row[0]: int(row[1]) for row in rows("Survivors") if len(row) == 2}
    assert len(named) == sum(numbers(rows("Score")[-1])[6:8]) == sum(counts.values())
    for mutant, place, *_, reason in named:
        assert re.fullmatch(r"`\S+:\d+`", place) and reason, mutant


def test_the_matrix_of_kills_adds_up_to_the_killed_ones() -> None:
    *clauses, whole = [[int(cell or 0) for cell in row[1:]] for row in rows("Kills by clause and regime")]
    assert whole[-1] == numbers(rows("Score")[-1])[5] == sum(whole[:-1])
    assert [sum(column) for column in zip(*clauses, strict=True)] == whole


def test_the_page_says_when_and_at_which_commit_it_was_run() -> None:
    assert PAGE.startswith(HEAD)
    runs = PAGE.partition("| run on |")[2].partition("## Score")[0].splitlines()[2:]
    assert runs[0] and all(re.match(r"\| \d{4}-\d\d-\d\d \| [0-9a-f]{7,} \| \d+ cores \|", line) for line in runs if line)
