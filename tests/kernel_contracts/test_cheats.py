"""Contract under test: no cheat of `tests/faults/cheats/` is believed; each is a whole file, and names whose pattern it follows."""

from __future__ import annotations

import ast

import pytest

from tests.faults.cheats.handed_in import HERE, candidate
from tests.faults.cheats.records import CHEATS, DECIDED, NOT_OURS, SOURCES

FAMILIES = sorted({cheat.family for cheat in CHEATS})


def _defined(family: str) -> set[str]:
    """Names that the file of `family` defines at its top level."""
    found: set[str] = set()
    for each in ast.parse(candidate(family)).body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            found.add(each.name)
        elif isinstance(each, ast.Assign):
            found |= {name.id for name in each.targets if isinstance(name, ast.Name)}
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_of_cheats_is_whole_and_has_no_other_cheat(family: str) -> None:
    """A candidate imports nothing of the tests. Each public function of a file of launchers is a cheat with a record."""
    named = {cheat.name for cheat in CHEATS if cheat.family == family}
    assert "tests.faults" not in candidate(family)
    assert named <= _defined(family)
    tree = ast.parse((HERE / f"{family}.py").read_text())
    launchers = {
        each.name
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
        and [argument.arg for argument in each.args.args] == ["a", "b"]
        and not each.name.startswith("_")
    }
    assert launchers - named <= {"digest"}


def test_cheats_name_their_sources_and_how_they_may_end() -> None:
    assert len({cheat.id for cheat in CHEATS}) == len(CHEATS) >= 40
    used = {source for cheat in CHEATS for source in cheat.sources} | {source for _, sources, _ in NOT_OURS for source in sources}
    assert used == set(SOURCES)
    assert all(cheat.sources and cheat.ends and set(cheat.ends) <= set(DECIDED) for cheat in CHEATS)
