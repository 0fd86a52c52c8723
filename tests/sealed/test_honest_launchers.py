"""Contract under test: an honest launcher gives the same words from a process of its own. Some are drawn here, over a channel
without a jail; `benchmarks/sealed_honest.py` judges all of them, jailed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.model.addresses import load, resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.session.case_source import CaseSource
from tests.support.forked_candidate import forked_candidate
from tests.support.honest_launchers import described
from tests.support.honest_launchers.listed import listed

IDIOMS = {name: test for name, test in vars(described).items() if hasattr(test, "__contract__")}
DRAWN = random.Random(1122).sample(sorted(IDIOMS), 3)
ASKED = [*((name, "sm_90") for name in DRAWN), (DRAWN[0], "gfx942")]


@pytest.mark.parametrize(("name", "arch"), ASKED)
def test_an_honest_launcher_gives_the_same_words_from_its_own_process(
    monkeypatch: pytest.MonkeyPatch, name: str, arch: str
) -> None:
    where = target(f"emulated:{arch}")
    address = IDIOMS[name].__contract__.description.launcher
    monkeypatch.syspath_prepend(Path(address.rpartition(":")[0]).parent)
    contract = resolve(f"{described.__file__}:{name}")
    case = replace(CaseSource(f"{described.__file__}:{name}", where).required()[0], calls=1)
    operands = {operand.name: operand for operand in contract.operands(case)}
    with forked_candidate() as candidate:
        there = launch(case, where, contract, candidate.launcher(address), operands, Clock())
    here = launch(case, where, contract, load(address), operands, Clock())
    assert here.outcome is None and there.outcome is None, there
    assert there.launch_record["digests"] == here.launch_record["digests"]
    assert there.launches == here.launches > 0
    assert there.launch_record["launches"] == here.launch_record["launches"]


def test_more_than_a_hundred_honest_launchers_are_listed(tmp_path: Path) -> None:
    groups = Counter(each.group for each in listed(tmp_path))
    assert groups.total() > 100 and len(groups) == 5
