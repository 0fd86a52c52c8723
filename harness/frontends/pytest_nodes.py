"""One pytest node: a contract on a target, or one large product; held by the session that the command line runs too.

A node's id, ``contract-target``, is frozen; what varies inside is generated. Where the command line would end with a status of its
own (`bitverdict.harness.session.tally.Tally.status`) the node fails, or is skipped where nothing ran.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.frontends import pytest_summary
from bitverdict.harness.frontends.pytest_targets import base_seed
from bitverdict.harness.frontends.sealing import protection, source_of
from bitverdict.harness.judge.machine_faults import MachineFault
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.feature_table import LARGE_PRODUCTS
from bitverdict.harness.model.log_lines import case_count, no_commands
from bitverdict.harness.model.targets import Target, gpus_called, is_leased, target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import EXCLUDED_KEY, PROCESSOR, Decision, Verdict
from bitverdict.harness.sealed import secret_draws
from bitverdict.harness.sealed.secret_draws import Secret
from bitverdict.harness.session import reproducers, tables, tally
from bitverdict.harness.session.case_source import CaseSource, derived_seed
from bitverdict.harness.session.discrimination import lines_of
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.profiles import PROFILES
from bitverdict.harness.session.rotation import Rotation
from bitverdict.harness.session.selection import Selection
from bitverdict.harness.session.session import Session
from bitverdict.harness.session.shrink import KernelFailed, failure_class
from bitverdict.harness.workers.gpu_lease import lease
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.slot import RunCancelled
from bitverdict.harness.workers.standby import CALM

Properties = list[tuple[str, object]]
"""What pytest keeps of a node, and `pytest_summary` reads."""


@dataclass(frozen=True)
class Node:
    """One test: a contract on a target."""

    stem: str
    target: str
    shard: int = 0
    shards: int = 1

    def __str__(self) -> str:
        return f"{self.stem}-{self.target}" + (f"-{self.shard + 1}of{self.shards}" if self.shards > 1 else "")


class NodeReporter(Observer):
    """Writes into a node's properties what its session tells."""

    def __init__(self, node: Node, properties: Properties) -> None:
        self.node, self.properties = node, properties
        self.rows: list[list] = []
        self.not_run: Counter[str] = Counter()
        self.excluded: dict[str, None] = {}
        self.spent: Counter = Counter()  # float seconds by bucket
        self.cases = self.words = 0
        self.certificates: list[str] = []

    def on_count(self, case: Case, name: str, target: str, classes: dict[str, str | int], verdict: Verdict) -> None:
        self.spent.update({name: spent for name, spent in verdict.seconds.items() if name != PROCESSOR})
        self.certificates += lines_of(case, name, target, verdict)
        self.cases += 1
        self.words += verdict.words
        if verdict.decision is Decision.NOT_RUN:
            if EXCLUDED_KEY in verdict.details:
                self.excluded[verdict.message] = None
            else:
                self.not_run[verdict.message] += 1
            return
        kind = str(classes.get("dtype", getattr(case.problem, "format", "")))
        self.rows.append(pytest_summary.tally_row(self.node.stem, kind, 1, verdict.words, getattr(case.problem, "k", 0)))

    def on_reproducer(self, path: Path, address: str, target: str) -> None:
        self.properties.append(("replay", reproducers.replay_line(path)))

    def note_pass(self) -> None:
        """What is told of a node that passed."""
        where = f"{self.node.stem} on {self.node.target}"
        self.properties += [("not_run", f"{where}: {case_count(count)}: {message}") for message, count in self.not_run.items()]
        self.properties.append(("tally", pytest_summary.tally_text(self.rows)))
        self.properties.append(("seconds", json.dumps({name: round(seconds, 3) for name, seconds in self.spent.items()})))
        self.properties += [("cases", self.cases), ("words", self.words)]


class NodeJudge:
    """The worker pool of this pytest process, and how a node is held to its contract."""

    def __init__(self, config: pytest.Config) -> None:
        self.profile = PROFILES[config.getoption("--bv-profile")]
        calm = CALM if "PYTEST_XDIST_WORKER" not in os.environ else 0  # one for each of its workers would be as many contexts again
        self.pool = WorkerPool(timeout=config.getoption("--bv-timeout") or self.profile.case_seconds, calm=calm)
        draws = config.getoption("--bv-draws")
        if draws is not None:
            self.profile = replace(self.profile, draws=draws, node_seconds=None)
        self.products = config.getoption("--bv-products")
        self.seed, self.database = base_seed(config), database(config)
        self.certificate: str = config.getoption("--bv-certificate")
        self.expression: str | None = config.getoption("--bv-k")
        self.secret: Secret | None = None  # of the sealed tests of this process, once there is one
        self._given_secret: str = config.getoption("--bv-secret")
        self.sealed, self.require_jail = config.getoption("--bv-sealed"), config.getoption("--bv-require-jail")
        self.html = config.getoption("--bv-html") is not None
        self.accepts_known_faults: bool = config.getoption("--bv-accept-compiler-faults")
        self._leased: dict[str, Target] = {}
        self._waited = 0.0  # seconds for a lease, which the next node tells

    def machine(self, name: str) -> Target:
        """The target called `name`; "cuda" and "cuda:sm_NN" are the GPU this process holds a lease on, taken at the first call."""
        if not is_leased(name):
            return target(name)
        if name not in self._leased:
            gpus, begun = gpus_called(name), time.monotonic()
            taken = lease(gpus).index
            self._waited += time.monotonic() - begun
            self._leased[name] = next(gpu for gpu in gpus if gpu.index == taken)
        return self._leased[name]

    def prepare(self, names: Iterable[str]) -> None:
        """Have a worker wait on each GPU of `names`; what keeps it from that is told by the first node."""
        with contextlib.suppress(MachineFault, UsageError, TimeoutError, OSError, RunCancelled):
            self.pool.prepare([self.machine(name) for name in names])

    def close(self) -> None:
        if self.secret is not None:
            secret_draws.reveal(self.secret, self.pool.journal)
        self.pool.close()

    def _secret(self) -> Secret:
        """What the sealed tests of this process draw by: committed to in its journal before the first of their cases."""
        if self.secret is None:
            self.secret = Secret.begin(self._given_secret)
            secret_draws.commit(self.secret, self.pool.journal)
        return self.secret

    def hold(self, node: Node, properties: Properties, rotation: Rotation | None = None) -> None:
        """Judge the node's cases until one fails: raises a `KernelFailed` with the report as its text. An emulated target is asked
        the required cases of `rotation`, and the node tells how many it leaves out.

        What the machine does not let it do fails the node in one sentence, which names no kernel.
        """
        __tracebackhide__ = True
        seed = self.seed if node.shards == 1 else derived_seed(self.seed, str(node.shard), str(node.shards))
        try:
            machine = self.machine(node.target)
            source = CaseSource(node.stem, machine, seed, rotation=rotation if machine.emulated else None)
            self._hold(node, source, properties)
        except (MachineFault, UsageError) as fault:
            pytest.fail(no_commands(f"error: {fault}"), pytrace=False)

    def hold_test(self, source: Callable[[Target], CaseSource], target: str, properties: Properties) -> None:
        """Judge a test of the public functions on the target called so: a failure has the report as its text, and no traceback.

        This frame is not hidden: without any, pytest says that all are."""
        fault_text = ""
        try:
            found = replace(source_of(source, self.machine(target), sealed=self.sealed), seed=self.seed)
            if found.is_sealed:
                properties.append(("sealed", protection([found], required=self.require_jail)))
            self._hold(Node(found.name, target), found, properties)
        except (MachineFault, UsageError) as fault:
            fault_text = f"error: {fault}"
        except KernelFailed as failed:
            fault_text = str(failed)
        if fault_text:  # here, or what was raised would be shown before it
            pytest.fail(no_commands(fault_text), pytrace=False)

    def _hold(self, node: Node, source: CaseSource, properties: Properties) -> None:
        __tracebackhide__ = True
        if source.unserved_reason:
            _skip(node.stem, source.unserved_reason, properties)
        source = replace(source, certificate=bool(self.certificate))
        if self.expression is not None:
            try:
                (source,) = Selection(expression=self.expression).select_cases([source])
            except UsageError as none:
                _skip(node.stem, str(none), properties)
        if source.is_sealed:
            source = replace(source, secret=self._secret())
            properties.append(("secret", self._secret().digits))
        properties.append(("judged", 1))
        reporter = NodeReporter(node, properties)
        if self._waited:
            reporter.spent.update({"lease": self._waited})
            self._waited = 0.0
        session = Session(self.pool, self.profile, observers=(reporter,))
        session.tally.accepts_known_faults = self.accepts_known_faults
        failed_bug = session.first_failure(source, share=node.shard, shares=node.shards, database=self.database)
        status = session.tally.status()
        properties.append(("drawn", session.tally.drawn))
        if session.tally.draw_shortfall:
            properties.append(("few drawn", f"{node.stem} on {node.target}: {session.tally.draw_shortfall}"))
        for sentence in (*source.contract.left_out(source.target), *reporter.excluded):
            properties.append(("not tested", f"{node.stem}: {sentence}"))
        if accepted := session.tally.accepted_sentence():
            properties.append(("not_run", f"{node.stem} on {node.target}: {accepted}"))
        if self.certificate:
            properties.append(("exposed faults", json.dumps(session.tally.discrimination.to_json())))
        if self.certificate == "cases":
            properties.append(("certificates", json.dumps(reporter.certificates)))
        if status in (tally.PASS, tally.NOTHING_RAN):
            self._tell_page(session, properties)
        if left_out := session.tally.completeness.sentence():
            properties.append(("left out", f"{node.target}: {left_out}"))
        if status == tally.PASS:
            reporter.note_pass()
            if left := source.rotation_note():
                properties.append(("not_run", f"{node.stem} on {node.target}: {left}"))
            return
        if status == tally.NOTHING_RAN:
            pytest.skip("; ".join(tables.not_run_lines(session.tally)) or "nothing ran")
        session.reduce()
        session.store()
        self._tell_page(session, properties)
        bugs = sorted(
            session.bugs.values(), key=lambda bug: bug is not failed_bug
        )  # what failed before what is no fault of the kernel
        reports = [tables.text_of(bug.report()) for bug in bugs]
        if failed_bug is not None:
            reports[0] = f"{failed_bug.headline()}\n{reports[0].partition(chr(10))[2]}"  # pytest's own line names test and target
            raise failure_class(failed_bug.verdict.signature)(no_commands("\n".join(reports)))
        said = ["; ".join(session.tally.open()), *session.tally.inconclusive, *tables.not_run_lines(session.tally)]
        pytest.fail(no_commands("\n".join(said + reports)), pytrace=False)

    def _tell_page(self, session: Session, properties: Properties) -> None:
        """Keep what a page tells of the node, where a page is asked for."""
        if self.html:
            from bitverdict.harness.report.collect import of_run

            told = of_run(session.tally, session.bugs.values(), self.pool)
            properties.append((pytest_summary.HTML, json.dumps(told, default=str)))

    def hold_large(self, node: Any, properties: Properties) -> None:
        """Judge one large product, a `LargeNode` of the laboratory, by chosen elements; what the target lacks a feature for is
        skipped with its name."""
        __tracebackhide__ = True
        where = self.machine(node.target)
        large = import_module(LARGE_PRODUCTS)
        if missing := large.missing_features(node.case, where):
            _skip(f"{node.case.contract} large {node.kind}", f"{where.name} lacks {', '.join(missing)}", properties)
        row = large.large_row(self.pool, node.case, where, self.products)
        properties.append(("judged", 1))
        if row["decision"] == Decision.NOT_RUN:
            _skip(f"{node.case.contract} large {node.kind}", row["message"], properties)
        if row["decision"] != Decision.PASS:
            p = node.case.problem
            line = f"bitverdict lab large {shlex.quote(node.case.contract)} --target {where.name} --sizes {p.m}x{p.n}x{p.k}"
            properties.append(("replay", line))
            pytest.fail(f"{node}: {row['decision']}: {row['outcome']}: {row['message']}\n{line}", pytrace=False)
        words = row["words"]
        if words:
            counted = pytest_summary.tally_row(node.case.contract, node.kind, 1, words, node.case.problem.k)
            properties.append(("tally", pytest_summary.tally_text([counted])))
        else:
            properties.append(("not_run", f"{node}: {row['outcome']}: {row['message']}: no words"))
        properties += [("cases", 1), ("words", words)]


def _skip(what: str, reason: str, properties: Properties) -> None:
    __tracebackhide__ = True
    properties.append(("not_run", f"{what}: {reason}"))
    pytest.skip(reason)


def database(config: pytest.Config) -> Any:
    """Where generated cases that failed are kept for the next run: the server of `--bv-database`, else the database of
    `--hypothesis-profile`, else Hypothesis's own directory. None in CI without either, and where `--hypothesis-seed` asks for these
    draws and no others."""
    import hypothesis

    if config.getoption("--hypothesis-seed", default=None) not in (None, ""):
        return None
    if url := config.getoption("--bv-database"):
        from bitverdict.harness.frontends.shared_database import shared

        return shared(url)
    profile = config.getoption("--hypothesis-profile", default=None) or ("" if os.environ.get("CI") else "default")
    return hypothesis.settings.get_profile(profile).database if profile else None
