"""Contract under test: what a run leaves to other commits is told, and the commits together leave nothing out."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from bitverdict.harness.frontends.pytest_nodes import Node
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import ROOT, kernels_with_a_contract
from bitverdict.harness.model.targets import target
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.rotation import ALWAYS, Rotation, compiled_as, facts_of
from tests.kernel_contracts import test_contracts
from tests.support import shares
from tests.support.gates import is_fast


@pytest.mark.every_gate
def test_what_this_run_leaves_to_other_commits_is_told(record_property) -> None:
    """Not a check of its own: the line below the results, of what the modules collected here left out."""
    if shares.left_out:
        told = f"{len(shares.left_out)} of the shares of other commits (BITVERDICT_SHARE): {shares.left_out_names()}"
        record_property("not_run", told)


def test_turns_together_judge_every_required_case() -> None:
    source = CaseSource("rms_norm", target("emulated:sm_90"))
    every = {case.key for case in source.required()}
    turns = [{case.key for case in CaseSource(source.address, source.target, rotation=Rotation(n, 3)).required()} for n in range(3)]
    assert set.union(*turns) == every and all(part < every for part in turns)


def test_every_turn_has_each_type_and_regime_and_tells_the_rest() -> None:
    whole = CaseSource("rms_norm", target("emulated:sm_90"))
    classes = {(name, each[name]) for name, each in _classes(whole) if name in ALWAYS}
    for number in range(3):
        part = CaseSource(whole.address, whole.target, rotation=Rotation(number, 3))
        assert {(name, each[name]) for name, each in _classes(part) if name in ALWAYS} == classes
        left = len(whole.required()) - len(part.required())
        assert part.rotation_note().startswith(f"{left} of {len(whole.required())} required cases")
    assert not whole.rotation_note()


def test_cases_that_compile_alike_take_one_turn_together() -> None:
    """But for those that a turn has for a class that its own cases lack."""
    source = CaseSource("ampere_gemm", target("emulated:sm_80"))
    every = source.required()
    facts = facts_of(source.contract, source.target)
    for turn in (Rotation(number, 3) for number in range(3)):
        own, others = ({compiled_as(case) for case in every if turn.takes(case) is taken} for taken in (True, False))
        assert own and others and not own & others
        met = frozenset().union(*(facts(case) for case in every if turn.takes(case)))
        lent = [case for case in turn.keep_cases(every, facts) if not turn.takes(case)]
        assert all(facts(case) - met for case in lent), "each brings a class"


def test_what_compiles_a_required_case_takes_its_turn(monkeypatch) -> None:
    monkeypatch.setenv("BITVERDICT_PROFILE", "ci")
    monkeypatch.setenv("BITVERDICT_SHARE", "1")
    monkeypatch.setattr(shares, "left_out", set())
    cases = CaseSource("ampere_gemm", target("emulated:sm_80")).required()
    kept = [case for place, case in enumerate(cases) if shares.in_this_turn(f"row {place}", case)]
    assert kept == list(filter(Rotation(1, shares.REQUIRED).takes, cases)) and len(shares.left_out) == len(cases) - len(kept) > 0


def _classes(source: CaseSource) -> list[tuple[str, dict]]:
    told = [source.contract.coverage(case, source.target) for case in source.required()]
    return [(name, each) for each in told for name in each]


@pytest.mark.parametrize(("profile", "share", "turn"), [("ci", "7", Rotation(7, 5)), ("ci", "", None), ("exhaustive", "7", None)])
def test_required_cases_take_turns_for_a_commit_of_ci_alone(profile, share, turn, monkeypatch) -> None:
    monkeypatch.setenv("BITVERDICT_PROFILE", profile)
    monkeypatch.setenv("BITVERDICT_SHARE", share)
    assert shares.turn() == turn


@pytest.mark.parametrize("of", [1, 2, 3, 5])
def test_each_turn_has_an_entry_of_every_kind_and_all_have_all(of, monkeypatch) -> None:
    monkeypatch.setenv("BITVERDICT_PROFILE", "ci")
    ids = ["test[right-a]", "test[right-b]", *(f"test[fault-{number}]" for number in range(11)), "test[other]"]
    turns = []
    for number in range(7, 7 + of):
        monkeypatch.setenv("BITVERDICT_SHARE", str(number))
        turns.append(shares.entries_of_turn(ids, of, "right", "fault"))
        faults = sum("fault" in name for name in turns[-1])
        assert any("right" in name for name in turns[-1]) and 11 // of <= faults <= 11 // of + 1 and "test[other]" in turns[-1]
    assert set.union(*turns) == set(ids)
    monkeypatch.setenv("BITVERDICT_PROFILE", "exhaustive")
    assert shares.entries_of_turn(ids, of, "right", "fault") == set(ids)


def test_a_marked_test_without_entries_has_one_turn(monkeypatch) -> None:
    monkeypatch.setenv("BITVERDICT_PROFILE", "ci")
    names = [f"test_long_{number}" for number in range(20)]
    judged = []
    for number in range(4):
        monkeypatch.setenv("BITVERDICT_SHARE", str(number))
        judged += [name for name in names for taken in shares.entries_of_turn([name], 4) if taken == name]
    assert sorted(judged) == sorted(names) and shares.entries_of_turn(["test_e[1]"], 4), (
        "entries of a parameter have one each commit"
    )


@pytest.mark.share(2)
@pytest.mark.parametrize("entry", range(4))
def test_marked_entries_of_other_commits_are_left_out_by_name(entry, request) -> None:
    own = {item.name.removeprefix("test_") for item in request.session.items if item.originalname == request.node.originalname}
    left = {name for name in shares.left_out if name.partition("[")[0] == request.node.originalname.removeprefix("test_")}
    assert not own & left and (len(own) <= 2 if shares.turn() else not left)


def test_the_laboratorys_files_take_turns_and_the_fast_gates_do_not(monkeypatch) -> None:
    files = sorted((ROOT / "tests" / "lab").glob("test_*.py"))
    items = [SimpleNamespace(path=path, name=path.name, get_closest_marker=lambda name: None) for path in files]
    judged = [item for turn in range(shares.LABORATORY) for item in _judged(items, turn, monkeypatch)]
    fast = {path for path in files if is_fast(path)}
    assert fast and len(fast) < len(files)
    assert Counter(item.path for item in judged) == {path: shares.LABORATORY if path in fast else 1 for path in files}
    monkeypatch.setenv("BITVERDICT_PROFILE", "exhaustive")
    assert not shares.leave_to_other_commits(items)


ENTRY_FILES = {"rest": "session/test_session.py", "fast": "judge/test_compare.py", "own": "emulator/ordering/test_hazards.py"}


@pytest.mark.parametrize(("count", "of"), [(3, 2), (4, 3), (11, 3), (12, 6)])
@pytest.mark.parametrize("file", ENTRY_FILES)
def test_many_entries_of_a_test_take_turns_and_a_right_one_is_in_each(file: str, count: int, of: int, monkeypatch) -> None:
    path = ROOT / "tests" / ENTRY_FILES[file]
    names = ["test_it[right]", *(f"test_it[{number}]" for number in range(count - 1))]
    items = [SimpleNamespace(path=path, nodeid=name, name=name, get_closest_marker=lambda name: None) for name in names]
    turns = [{item.name for item in _judged(items, turn, monkeypatch)} for turn in range(of)]
    assert set.union(*turns) == set(names) and all("test_it[right]" in turn for turn in turns)
    assert (max(map(len, turns)) < len(names)) is (file == "rest")


def test_what_takes_turns_within_others_meets_all_of_them(monkeypatch) -> None:
    """A node is judged in one commit of two or three, a mutant's test in one of up to four."""
    monkeypatch.setenv("BITVERDICT_PROFILE", "ci")
    for outer in (2, 3, 4):
        for inner in (shares.REQUIRED, shares.MUTANTS["ci"], shares.LABORATORY):
            assert {turn % inner for turn in range(0, outer * inner, outer)} == set(range(inner))


def test_each_commit_judges_every_kernel_and_three_judge_every_node(monkeypatch) -> None:
    nodes = [Node(stem, f"emulated:{arch}") for stem in kernels_with_a_contract() for arch in ("sm_80", "sm_90", "sm_100")]
    mark = next(mark for mark in test_contracts.test_a_kernel_keeps_its_contract.pytestmark if mark.name == "share")
    items = [
        SimpleNamespace(
            nodeid=f"t[{node}]",
            name=f"t[{node}]",
            callspec=SimpleNamespace(params={"node": node}),
            get_closest_marker=lambda _: mark,
        )
        for node in nodes
    ]
    turns = [_judged(items, turn, monkeypatch) for turn in range(3)]
    assert {item.name for turn in turns for item in turn} == {item.name for item in items}
    for turn in turns:
        judged = [item.callspec.params["node"] for item in turn]
        runs = {node.stem for node in judged if not resolve(node.stem).lacking(target(node.target))}
        assert runs == set(kernels_with_a_contract()) and len(judged) < len(items)


def _judged(items: list, turn: int, monkeypatch: pytest.MonkeyPatch) -> list:
    monkeypatch.setenv("BITVERDICT_PROFILE", "ci")
    monkeypatch.setenv("BITVERDICT_SHARE", str(turn))
    monkeypatch.setattr(shares, "left_out", set())
    left = shares.leave_to_other_commits(items)
    return [item for item in items if item not in left]


def test_what_is_left_out_is_kept_by_name(monkeypatch) -> None:
    monkeypatch.setenv("BITVERDICT_PROFILE", "ci")
    monkeypatch.setattr(shares, "left_out", set())
    names = [f"share {number}" for number in range(12)]
    kept = [name for name in names if shares.in_this_run(name, 1, in_ci=4)]
    assert shares.left_out == set(names) - set(kept) and kept != names
    monkeypatch.setenv("BITVERDICT_PROFILE", "exhaustive")
    assert all(shares.in_this_run(name, 1, in_ci=4) for name in names)
