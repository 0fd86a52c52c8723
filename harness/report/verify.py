"""Verify a conformance pack and trust nothing in it.

What the pack says is computed again: its list of cases, each digest of expected words (from `reference`), its counts and its report
by clause. A drawn share is judged again where its machine is here. The draw is not known to who made the pack.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bitverdict.harness.model.addresses import load, resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, Undecided, case_from_record
from bitverdict.harness.model.paths import KERNELS, kernels_with_a_contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.report import required_lists
from bitverdict.harness.report.certify import check_known, counts, open_points, target_of
from bitverdict.harness.report.own_sources import placed
from bitverdict.harness.report.pack import Pack, clause_of, clauses, expected_of
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.first_launches import make_first_launch
from bitverdict.harness.session.replay import Judges

SHARE, LEAST = 0.1, 8
"""Of the cases on each machine that is here, the share that is judged again where the user names none (`--share`), and how many at
least. Picked, not derived: one false record among n cases is missed with probability 1 - k / n where k are drawn; of a share of 1
none is. Everything else of a pack is computed again whole."""
SHIPPED = "kernels/"  # before the name of a shipped kernel among the sources
RAN = (Decision.PASS, Decision.FAIL)


@dataclass
class Verified:
    """`wrong`: why the pack is rejected; `owned`: its known failures; `not_run`: what could not be judged again here."""

    wrong: list[str] = field(default_factory=list)
    owned: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    recomputed: int = 0
    rejudged: int = 0

    @property
    def is_verified(self) -> bool:
        """Whether anything was computed or judged here, and all of it is as the pack says."""
        return not self.wrong and bool(self.recomputed or self.rejudged)

    @property
    def sentence(self) -> str:
        came = (
            "REJECTED" if self.wrong else "verified" if self.is_verified else "NOT VERIFIED, nothing of it could be computed here"
        )
        return f"{came}: {self.recomputed} cases with expected words computed again, {self.rejudged} cases judged again"


def unpacked(pack: Pack, directory: Path) -> Pack:
    """`pack` with its sources as files in `directory`, and with their addresses there. UsageError where it names other files."""
    about, cases = copy.deepcopy(pack.about), copy.deepcopy(pack.cases)
    own = {name: text for name, text in pack.sources.items() if not name.startswith(SHIPPED)}
    placed(about, cases, own, directory)
    return Pack(about, cases, pack.sources, pack.manifest, pack.signature)


def verified(pack: Pack, judges: Judges, here: Mapping[str, Target], seed: int, share: float = SHARE) -> Verified:
    """What comes of `pack`, its sources unpacked. `here`: the machines that are here, by name; `seed` draws the share."""
    found = Verified()
    try:
        _verify(pack, judges, here, random.Random(seed), share, found)
    except (UsageError, KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        found.wrong.append(f"the pack cannot be read as one: {type(error).__name__}: {error}")
    return found


def _verify(pack: Pack, judges: Judges, here: Mapping[str, Target], draw: random.Random, share: float, found: Verified) -> None:
    about = pack.about
    address, launcher = about["contract"], about["launcher"]
    contract = resolve(address)
    machines = {each["name"]: target_of(each) for each in about["targets"]}
    check_known(about["known"])
    _sources(pack, found)
    known: dict[str, list[tuple[Case, dict[str, Any]]]] = {name: [] for name in machines}
    for record in pack.cases:
        case = case_from_record(contract, record["case"])
        if case.contract != address or record["target"] not in machines:
            raise ValueError(f"{record['line']}: is of another kernel or target than the pack")
        known[record["target"]].append((case, record))
    for name, machine in machines.items():
        _list(address, launcher, machine, [case for case, _ in known[name]], about, found)
        for case, record in known[name]:
            _record(case, record, machine, contract, found)
    if about["clauses"] != clauses(pack.cases):
        found.wrong.append("the report by clause is not that of the pack's cases")
    if about["counts"] != counts(pack.cases):
        found.wrong.append("the counts are not those of the pack's cases")
    found.wrong += open_points(pack)
    owned = [(f"{each['case']} on {each['target']}: {each['outcome']}", each) for each in about["known"]]
    found.owned = [f"{said}, of {each['owner']} ({each['issue']})" for said, each in owned]
    for name, machine in machines.items():
        if not found.wrong:  # a first launch is of the pack's own code
            _due(_source(address, launcher, machine), judges, [case for case, _ in known[name]], found)
    if found.wrong:
        return
    for name, machine in machines.items():
        there = here.get(name)
        cases = [(case, record) for case, record in known[name] if record["decision"] != Decision.NOT_RUN]
        if there is None or (there.arch, there.model) != (machine.arch, machine.model):
            what = machine.model or machine.arch
            found.not_run.append(f"{len(cases)} cases on {name}: could not be judged again without {what}")
            continue
        for case, record in draw.sample(cases, min(len(cases), max(LEAST, round(share * len(cases))))):
            _again(judges.judge(case, there), record, found)


def _sources(pack: Pack, found: Verified) -> None:
    """A shipped kernel must be the one of this checkout: it is what is judged again."""
    stem = pack.about["contract"]
    if stem in kernels_with_a_contract() and not pack.about["launcher"]:
        if pack.sources.get(f"kernels/{stem}.py") != (KERNELS / f"{stem}.py").read_text():
            found.wrong.append(f"kernels/{stem}.py is another one in the pack than in this checkout")


def _source(address: str, launcher: str, machine: Target) -> CaseSource:
    """Which cases a contract, or a test in a file, is asked on `machine`."""
    for each in (launcher, address):
        test = getattr(load(each, unwrapped=False), "__bitverdict__", None) if ".py:" in each else None
        if test is not None:
            return test(machine)
    return CaseSource(address, machine, launcher=launcher)


def _key(case: Case) -> str:
    """Of a case, wherever its files lie."""
    return replace(case, search_path=()).key


def _list(address: str, launcher: str, machine: Target, cases: list[Case], about: Mapping[str, Any], found: Verified) -> None:
    """The pack is of the kernel that it names and has each case once; a shipped kernel's list is the frozen one that it names."""
    source = _source(address, launcher, machine)
    if (source.address, source.launcher, source.name) != (address, launcher, about["name"]):
        said = f"the pack says {about['name']}, {launcher or address}"
        found.wrong.append(f"{machine.name}: {source.name} is judged there, and {said}")
    if len({_key(case) for case in cases}) != len(cases):
        found.wrong.append(f"{machine.name}: a case stands twice in the pack")
    version = about["required list"]
    if version not in required_lists.versions():
        found.wrong.append(f"required list {version!r}: there are {', '.join(required_lists.versions()) or 'none'}")
    elif not launcher and address in kernels_with_a_contract() and machine.emulated:
        found.wrong += required_lists.differences(version, required_lists.lists([address], [machine]))


def _due(source: CaseSource, judges: Judges, cases: list[Case], found: Verified) -> None:
    """The pack has the required cases and no others: also those that a user's launcher is asked for what its first launch shows."""
    where = source.target.name
    due = {_key(case): case for case in make_first_launch(source, judges).source.required()}
    keys = {_key(case) for case in cases}
    if missing := [case for key, case in due.items() if key not in keys]:
        found.wrong.append(f"{where}: {len(missing)} required cases are not in the pack, the first {describe(missing[0])}")
    if more := [case for case in cases if _key(case) not in due]:
        found.wrong.append(f"{where}: {len(more)} cases are no required ones, the first {describe(more[0])}")


def _record(case: Case, record: Mapping[str, Any], machine: Target, contract: Contract, found: Verified) -> None:
    """What the record of one case says, beside what `reference` gives now."""
    where = f"{describe(case)} on {machine.name}"
    if record["line"] != describe(case) or record["clause"] != clause_of(case, machine, contract):
        found.wrong.append(f"{where}: the pack calls it something else")
    if record["decision"] not in list(Decision) or not isinstance(record["words"], int):
        raise ValueError(f"{where}: decision {record['decision']!r}")
    if record["decision"] not in RAN:
        return
    if (record["decision"] == Decision.PASS) != (record["outcome"] == Decision.PASS) and contract.expected_outcome(
        case, machine
    ).result:
        found.wrong.append(f"{where}: decision {record['decision']} and outcome {record['outcome']}")
    try:
        expected = expected_of(case, machine, contract, record["recorded"])
    except Undecided:
        expected = {}
    found.recomputed += bool(expected)
    if expected != record["expected"]:
        found.wrong.append(f"{where}: the expected words are others than in the pack")
    if record["decision"] != Decision.PASS or not expected:
        return
    for name, each in expected.items():
        if case.calls == 1 and each["unique"] and record["got"].get(name) != each["words"]:
            found.wrong.append(f"{where}: it passes in the pack, with words of {name} that are not the expected ones")
    if case.calls == 1 and record["words"] <= 0 and any(each["size"] for each in expected.values()):
        found.wrong.append(f"{where}: it passes in the pack without a word that was compared")


def _again(verdict: Verdict, record: Mapping[str, Any], found: Verified) -> None:
    """`verdict` of today beside the pack's."""
    found.rejudged += 1
    where = f"{record['line']} on {record['target']}"
    if (str(verdict.decision), str(verdict.outcome)) != (record["decision"], record["outcome"]):
        found.wrong.append(f"{where}: {record['decision']} in the pack, {verdict.decision} here: {verdict.message}")
    elif verdict.words != record["words"]:
        found.wrong.append(f"{where}: {record['words']} words compared in the pack, {verdict.words} here")
    elif dict(verdict.recorded.get("digests", {})) != record["got"] and record["target"].startswith("emulated:"):
        found.wrong.append(f"{where}: other words came here than in the pack")
