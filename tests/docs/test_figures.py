"""Contract under test: a figure on any page has an entry, and an old one or one without a command is told."""

from __future__ import annotations

import json

import pytest

from benchmarks import figures

REGISTER = json.loads(figures.REGISTER.read_text())
ENTRY = {
    "page": "page.md",
    "text": "3.5 times",
    "command": "bitverdict run",
    "commit": "HEAD",
    "machine": "here",
    "date": "2026-11-24",
}


def test_each_figure_of_each_page_has_an_entry() -> None:
    assert {"README.md", "docs/arithmetic.md", "docs/benchmarks.md"} <= set(figures.pages())
    assert not list(figures.unregistered(REGISTER, figures.pages()))


def test_one_entry_for_a_whole_page_is_of_printed_pages() -> None:
    page, whole = (
        {"docs/benchmarks.md": "It takes 7 s."},
        {"figures": [ENTRY | {"page": "docs/benchmarks.md", "text": figures.EVERY}]},
    )
    assert not list(figures.unregistered(whole, page))
    hand = {"figures": [ENTRY | {"page": "docs/sealed.md", "text": figures.EVERY}]}
    assert list(figures.unregistered(hand, {"docs/sealed.md": "It takes 7 s."})) == [
        "docs/sealed.md: '*' is of pages that a command prints; give each figure an entry"
    ]


@pytest.mark.parametrize(
    ("text", "measured"),
    [
        ("It took 7 s.", ["7 s"]),
        ("It took 5 to 7 s, at 2.5 GB/s.", ["7 s", "2.5 GB/s"]),
        ("It takes at most 60 s (default 20 s).", []),
        ("Each of 16 cases; up to 3 times; no fewer than 10 cases.", []),
        ("A second and a half (`ci`: 40 s) with `--seconds 560 s`.", []),
        ('It says "F in 256 words".', []),
        ("## In 7 s\n\n    8 s\n", []),
        ("2^20 words, and half a minute.", ["half a minute"]),
    ],
)
def test_what_a_rule_sets_or_a_page_quotes_is_not_measured(text: str, measured: list[str]) -> None:
    assert figures.figures(text) == measured


def test_each_command_of_the_register_is_there() -> None:
    assert not [entry for entry in REGISTER["figures"] if figures.missing_script(entry["command"])]


def test_each_commit_of_the_register_is_behind_this_one() -> None:
    assert not figures.unknown_commits(REGISTER)


@pytest.mark.parametrize(
    ("commit", "shallow", "said"),
    [
        ("d704d647", "false", []),
        ("d704647d", "false", ["page.md: '3.5 times': HEAD has no commit d704647d behind it"]),
        ("d704647d", "true", []),
        ("d704647d", "", []),
    ],
    ids=["right", "two digits swapped", "shallow clone", "no git"],
)
def test_a_commit_that_no_history_has_is_told(commit: str, shallow: str, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    history = "8c26addf00000000\nd704d64700000000\n" if shallow else ""
    monkeypatch.setattr(figures, "_git", lambda word, *_: history if word == "rev-list" else shallow)
    assert figures.unknown_commits({"figures": [ENTRY | {"commit": commit}]}) == said


@pytest.mark.parametrize(
    ("page", "entry", "said"),
    [
        ("It takes 3.5 times as long.", {}, []),
        ("It takes 3.5 times as long, 7 s.", {}, ["page.md: '7 s' has no entry in docs/figures.json"]),
        ("It takes long.", {}, ["page.md: '3.5 times' of docs/figures.json is not on the page"]),
        ("It takes 3.5 times as long.", {"machine": ""}, ["page.md: '3.5 times': has no machine"]),
        ("| 7 s |\n\n```\n8 s\n```\nIt takes 3.5 times as long in sm_90 and 7 steps.", {}, []),
    ],
    ids=["right", "no entry", "no figure", "no machine", "tables and blocks"],
)
def test_a_figure_without_an_entry_is_told_and_an_entry_without_a_figure(page: str, entry: dict, said: list[str]) -> None:
    assert list(figures.unregistered({"figures": [ENTRY | entry]}, {"page.md": page})) == said


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, ""),
        ({"command": "python -m benchmarks.no_such"}, "benchmarks/no_such.py of `python -m benchmarks.no_such` is gone"),
        ({"command": "bitverdict frontier"}, "bitverdict frontier of `bitverdict frontier` is gone"),
        ({"commit": "no_such_commit"}, "there is no commit no_such_commit"),
        ({"commit": "HEAD~3"}, "3 commits ago"),
        ({"command": figures.NONE}, "no command measures it"),
    ],
    ids=["right", "script", "command", "commit", "old", "by hand"],
)
def test_an_old_figure_and_a_command_that_is_gone_are_told(entry: dict, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "OLD", 2)
    monkeypatch.setattr(figures, "_commits_since", lambda commit: {"HEAD": 0, "HEAD~3": 3}.get(commit))
    told = list(figures.old({"figures": [ENTRY | entry]}))
    assert len(told) == bool(said) and all(said in each for each in told)
