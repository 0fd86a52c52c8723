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
from bitverdict.harness.model.contract import Contract, UndecidedCase, case_from_record
from bitverdict.harness.model.log_lines import case_count
from bitverdict.harness.model.paths import KERNELS, kernels_with_a_contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.report import required_lists
from bitverdict.harness.report.certify import check_known, counts, open_points, target_of
from bitverdict.harness.report.own_sources import place_sources
from bitverdict.harness.report.pack import Pack, clause_of, clauses, expected_of
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.first_launches import make_first_launch
from bitverdict.harness.session.replay import Judges

SHARE, LEAST = 0.1, 8
"""Of the cases on each machine that is here, the share that is judged again where the user names none (`--share`), and how many at
least. Picked, not derived: one false record among n cases is missed with probability 1 - k / n where k are drawn; of a share of 1
none is. Everything else of a pack is computed again whole."""
SHIPPED_PREFIX = "kernels/"  # before the name of a shipped kernel among the sources
RAN = (Decision.PASS, Decision.FAIL)


@dataclass
class Verification:
    """`rejections`: why the pack is rejected; `owned_failures`: its known failures; `not_run`: what was not judged again here."""

    rejections: list[str] = field(default_factory=list)
    owned_failures: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    recomputed_cases: int = 0
    rejudged_cases: int = 0

    @property
    def is_verified(self) -> bool:
        """Whether anything was computed or judged here, and all of it is as the pack says."""
        return not self.rejections and bool(self.recomputed_cases or self.rejudged_cases)

    @property
    def sentence(self) -> str:
        result = (
            "REJECTED"
            if self.rejections
            else "verified"
            if self.is_verified
            else "NOT VERIFIED, nothing of it could be computed here"
        )
        return (
            f"{result}: {self.recomputed_cases} cases with expected words computed again, {self.rejudged_cases} cases judged again"
        )


def unpack(pack: Pack, directory: Path) -> Pack:
    """`pack` with its sources as files in `directory`, and with their addresses there. UsageError where it names other files."""
    about, cases = copy.deepcopy(pack.about), copy.deepcopy(pack.cases)
    own = {name: text for name, text in pack.sources.items() if not name.startswith(SHIPPED_PREFIX)}
    place_sources(about, cases, own, directory)
    return Pack(about, cases, pack.sources, pack.manifest, pack.signature)


def verify_pack(pack: Pack, judges: Judges, here: Mapping[str, Target], seed: int, share: float = SHARE) -> Verification:
    """What comes of `pack`, its sources unpacked. `here`: the machines that are here, by name; `seed` draws the share."""
    found = Verification()
    try:
        _verify(pack, judges, here, random.Random(seed), share, found)
    except (UsageError, KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        found.rejections.append(f"the pack cannot be read as one: {type(error).__name__}: {error}")
    return found


def _verify(
    pack: Pack, judges: Judges, local_targets: Mapping[str, Target], draw: random.Random, share: float, verification: Verification
) -> None:
    about = pack.about
    address, launcher = about["contract"], about["launcher"]
    contract = resolve(address)
    machines = {item["name"]: target_of(item) for item in about["targets"]}
    check_known(about["known"])
    _sources(pack, verification)
    cases_by_machine: dict[str, list[tuple[Case, dict[str, Any]]]] = {name: [] for name in machines}
    for record in pack.cases:
        case = case_from_record(contract, record["case"])
        if case.contract != address or record["target"] not in machines:
            raise ValueError(f"{record['line']}: is of another kernel or target than the pack")
        cases_by_machine[record["target"]].append((case, record))
    for name, machine in machines.items():
        _list(address, launcher, machine, [case for case, _ in cases_by_machine[name]], about, verification)
        for case, record in cases_by_machine[name]:
            _record(case, record, machine, contract, verification)
    if about["clauses"] != clauses(pack.cases):
        verification.rejections.append("the report by clause is not that of the pack's cases")
    if about["counts"] != counts(pack.cases):
        verification.rejections.append("the counts are not those of the pack's cases")
    verification.rejections += open_points(pack)
    owned = [(f"{item['case']} on {item['target']}: {item['outcome']}", item) for item in about["known"]]
    verification.owned_failures = [f"{said}, of {item['owner']} ({item['issue']})" for said, item in owned]
    for name, machine in machines.items():
        if not verification.rejections:  # a first launch is of the pack's own code
            _check_required_cases(
                _source(address, launcher, machine), judges, [case for case, _ in cases_by_machine[name]], verification
            )
    if verification.rejections:
        return
    for name, machine in machines.items():
        local_target = local_targets.get(name)
        cases = [(case, record) for case, record in cases_by_machine[name] if record["decision"] != Decision.NOT_RUN]
        if local_target is None or (local_target.arch, local_target.model) != (machine.arch, machine.model):
            what = machine.model or machine.arch
            verification.not_run.append(f"{case_count(len(cases))} on {name}: could not be judged again without {what}")
            continue
        for case, record in draw.sample(cases, min(len(cases), max(LEAST, round(share * len(cases))))):
            _compare_verdicts(judges.judge(case, local_target), record, verification)


def _sources(pack: Pack, found: Verification) -> None:
    """A shipped kernel must be the one of this checkout: it is what is judged again."""
    stem = pack.about["contract"]
    if stem in kernels_with_a_contract() and not pack.about["launcher"]:
        if pack.sources.get(f"kernels/{stem}.py") != (KERNELS / f"{stem}.py").read_text():
            found.rejections.append(f"kernels/{stem}.py is another one in the pack than in this checkout")


def _source(address: str, launcher: str, machine: Target) -> CaseSource:
    """Which cases a contract, or a test in a file, is asked on `machine`."""
    for each in (launcher, address):
        test = getattr(load(each, unwrap=False), "__bitverdict__", None) if ".py:" in each else None
        if test is not None:
            return test(machine)
    return CaseSource(address, machine, launcher=launcher)


def _key(case: Case) -> str:
    """Of a case, wherever its files lie."""
    return replace(case, search_path=()).key


def _list(
    address: str, launcher: str, machine: Target, cases: list[Case], about: Mapping[str, object], verification: Verification
) -> None:
    """The pack is of the kernel that it names and has each case once; a shipped kernel's list is the frozen one that it names."""
    source = _source(address, launcher, machine)
    if (source.address, source.launcher, source.name) != (address, launcher, about["name"]):
        said = f"the pack says {about['name']}, {launcher or address}"
        verification.rejections.append(f"{machine.name}: {source.name} is judged there, and {said}")
    if len({_key(case) for case in cases}) != len(cases):
        verification.rejections.append(f"{machine.name}: a case stands twice in the pack")
    version = about["required list"]
    if version not in required_lists.versions():
        verification.rejections.append(f"required list {version!r}: there are {', '.join(required_lists.versions()) or 'none'}")
    elif not launcher and address in kernels_with_a_contract() and machine.emulated:
        verification.rejections += required_lists.differences(version, required_lists.lists([address], [machine]))


def _check_required_cases(source: CaseSource, judges: Judges, cases: list[Case], verification: Verification) -> None:
    """The pack has the required cases and no others: also those that a user's launcher is asked for what its first launch shows."""
    where = source.target.name
    required = {_key(case): case for case in make_first_launch(source, judges).source.required()}
    keys = {_key(case) for case in cases}
    if missing := [case for key, case in required.items() if key not in keys]:
        verification.rejections.append(
            f"{where}: {len(missing)} required cases are not in the pack, the first {describe(missing[0])}"
        )
    if more := [case for case in cases if _key(case) not in required]:
        verification.rejections.append(f"{where}: {len(more)} cases are no required ones, the first {describe(more[0])}")


def _record(case: Case, record: Mapping[str, Any], machine: Target, contract: Contract, verification: Verification) -> None:
    """What the record of one case says, beside what `reference` gives now."""
    where = f"{describe(case)} on {machine.name}"
    if record["line"] != describe(case) or record["clause"] != clause_of(case, machine, contract):
        verification.rejections.append(f"{where}: the pack calls it something else")
    if record["decision"] not in list(Decision) or not isinstance(record["words"], int):
        raise ValueError(f"{where}: decision {record['decision']!r}")
    if record["decision"] not in RAN:
        return
    if (record["decision"] == Decision.PASS) != (record["outcome"] == Decision.PASS) and contract.expected_outcome(
        case, machine
    ).result:
        verification.rejections.append(f"{where}: decision {record['decision']} and outcome {record['outcome']}")
    try:
        expected = expected_of(case, machine, contract, record["recorded"])
    except UndecidedCase:
        expected = {}
    verification.recomputed_cases += bool(expected)
    if expected != record["expected"]:
        verification.rejections.append(f"{where}: the expected words are others than in the pack")
    if record["decision"] != Decision.PASS or not expected:
        return
    for name, each in expected.items():
        if case.calls == 1 and each["unique"] and record["got"].get(name) != each["words"]:
            verification.rejections.append(f"{where}: it passes in the pack, with words of {name} that are not the expected ones")
    if case.calls == 1 and record["words"] <= 0 and any(each["size"] for each in expected.values()):
        verification.rejections.append(f"{where}: it passes in the pack without a word that was compared")


def _compare_verdicts(verdict: Verdict, record: Mapping[str, Any], verification: Verification) -> None:
    """`verdict` of today beside the pack's."""
    verification.rejudged_cases += 1
    where = f"{record['line']} on {record['target']}"
    if (str(verdict.decision), str(verdict.outcome)) != (record["decision"], record["outcome"]):
        verification.rejections.append(f"{where}: {record['decision']} in the pack, {verdict.decision} here: {verdict.message}")
    elif verdict.words != record["words"]:
        verification.rejections.append(f"{where}: {record['words']} words compared in the pack, {verdict.words} here")
    elif dict(verdict.recorded.get("digests", {})) != record["got"] and record["target"].startswith("emulated:"):
        verification.rejections.append(f"{where}: other words came here than in the pack")
