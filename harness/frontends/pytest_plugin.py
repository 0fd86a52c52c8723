"""pytest judges the same contracts by the same judge: options, profiles, nodes, and the line that replays a failure.

A node is (contract, target) and its id, ``contract-target``, is frozen; what varies inside is drawn. The required cases runs first.
`--hypothesis-seed` is the base from which each node derives a seed of its own (Hypothesis would give all nodes the same draws).
Where GPUs are asked for, large products are nodes too (`bitverdict.harness.frontends.pytest_large`), and `-n auto` starts as many
workers as the GPUs' free memory has room for, each on a GPU that it holds a lease on."""

from __future__ import annotations

import atexit
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bitverdict.harness.frontends import pytest_summary
from bitverdict.harness.frontends.pytest_large import LargeNode, lacking, large_nodes, large_row
from bitverdict.harness.judge.machine_faults import MachineFault
from bitverdict.harness.model import architectures
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, show_workers, target, targets
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import reproducers, tables
from bitverdict.harness.session import tally as report
from bitverdict.harness.session.case_source import CaseSource, derived_seed, walk
from bitverdict.harness.session.profiles import PROFILES
from bitverdict.harness.session.replay import rerun
from bitverdict.harness.session.shrink import KernelFailed, VerdictCache, failure_class, shrink
from bitverdict.harness.session.tally import Tally
from bitverdict.harness.workers.gpu_lease import PREFERRED, free_places, lease
from bitverdict.harness.workers.pool import WorkerPool

T = TypeVar("T")
LARGE = "test_large.py"
EMULATED = tuple(f"emulated:{arch}" for arch in architectures.EMULATED)
LONG = {"node", "large_node"}  # arguments of the tests that judge for seconds


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # it decides bits; unset it warns in Triton 3.9
    atexit.register(_hide_teardown)
    import hypothesis

    for name, profile in PROFILES.items():  # names of our own: Hypothesis loads a profile "ci" by itself where CI is set
        hypothesis.settings.register_profile(
            f"harness-{name}", database=None, deadline=None, derandomize=False, max_examples=profile.draws, print_blob=False
        )
    hypothesis.settings.load_profile(f"harness-{config.getoption('--harness-profile')}")
    for name, least in (("--harness-shards", 1), ("--harness-draws", 1), ("--harness-large-seeds", 1), ("--harness-products", 1)):
        value = config.getoption(name)
        if value is not None and value < least:
            raise pytest.UsageError(f"{name} {value}: must be at least {least}")
    if not hasattr(config, "workerinput"):  # once a run, before any worker
        for name in _target_names(config):
            _gpus_asked(name) if _leased_name(name) else _asked(target, name)
    replayed = config.getoption("--replay")
    if replayed is not None and not replayed.is_dir():
        raise pytest.UsageError(f"--replay {replayed}: must be a directory of reproducers, such as .harness/failures")


def _hide_teardown() -> None:
    """Triton's bindings print a page of "leaked" functions while the interpreter ends, below the report somebody wants to read."""
    if "triton._C.libtriton" in sys.modules:
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def pytest_report_header(config: pytest.Config) -> str:
    profile, names = config.getoption("--harness-profile"), ", ".join(_target_names(config))
    return f"bitverdict: profile {profile}, base seed {base_seed(config)}, targets {names}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "node" in metafunc.fixturenames:
        shards, names = metafunc.config.getoption("--harness-shards"), _target_names(metafunc.config)
        nodes = [Node(stem, name, shard, shards) for stem in kernels_with_a_contract() for name in names for shard in range(shards)]
        metafunc.parametrize("node", nodes, ids=str)
    if "large_node" in metafunc.fixturenames:
        sizes, seeds = (metafunc.config.getoption(name) for name in ("--harness-large", "--harness-large-seeds"))
        gpus = [name for name in _target_names(metafunc.config) if name.startswith("cuda")]
        metafunc.parametrize("large_node", large_nodes(sizes, seeds, gpus), ids=str)
    if "reproducer" in metafunc.fixturenames:
        given = metafunc.config.getoption("--replay")
        kept = sorted(reproducers.REPRODUCERS.glob("*.json")) + (sorted(given.glob("*.json")) if given else [])
        metafunc.parametrize("reproducer", kept, ids=[path.name for path in kept])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Large products are for GPUs: where none is asked for there is nothing to collect."""
    if collection_path.name == LARGE and not any(name.startswith("cuda") for name in _target_names(config)):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a worker, contracts before all else: short tests then fill the end. Alone, the order is that of the files."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: LONG.isdisjoint(getattr(item, "fixturenames", ())))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist worksteal`` in place of xdist's default, ``load``, which gave one worker nearly all contracts in one chunk, in the
    middle of the session, and let it end alone."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """``-n auto``: one worker a core, but no more than the GPUs' free memory has room for, where GPUs are asked for. The workers
    are told which GPUs there are, and which places on them they were counted for."""
    asked = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS", "")
    if asked.isdigit():
        return int(asked)
    cores = len(os.sched_getaffinity(0))
    names = [name for name in _target_names(config) if name.startswith("cuda")]
    if not names:
        return cores
    found = {gpu.index: gpu for name in names for gpu in _gpus_asked(name)}
    show_workers(targets())
    places = free_places(list(found.values()))[:cores]
    os.environ[PREFERRED] = ",".join(map(str, places))
    return max(1, len(places))


def _gpus_asked(name: str) -> list[Target]:
    """`gpus_called` for what the command line asked: none here is a usage error, before and after xdist counts its workers."""
    return _asked(gpus_called, name)


def _asked(find: Callable[[str], T], name: str) -> T:
    try:
        return find(name)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def gpus_called(name: str) -> list[Target]:
    """The GPUs that "cuda" (all), "cuda:sm_NN" (of an architecture) or "cuda:N" means; ValueError when none is here."""
    gpus = [machine for machine in targets() if not machine.emulated]
    place = name.partition(":")[2]
    meant = [gpu for gpu in gpus if not place or place in (gpu.arch, str(gpu.index))]
    if not meant:
        here = ", ".join(f"{gpu.name} ({gpu.arch})" for gpu in gpus) or "none"
        raise UsageError(f"target {name!r}: no such GPU is visible; GPUs here: {here}; see CUDA_VISIBLE_DEVICES and nvidia-smi")
    return meant


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [
        report
        for category in ("passed", "failed", "skipped")
        for report in terminalreporter.getreports(category)
        if report.when == "call" or category == "failed"
    ]
    for line in pytest_summary.lines(reports):
        terminalreporter.write_line(line)
    everything = [report for kept in terminalreporter.stats.values() for report in kept if hasattr(report, "duration")]
    for line in pytest_summary.time_lines(everything):
        terminalreporter.write_line(line)
    lines = [value for report in reports if report.failed for name, value in report.user_properties if name == "replay"]
    for line in dict.fromkeys(lines):
        terminalreporter.write_line(f"replay: {line}", bold=True)


@dataclass(frozen=True)
class Node:
    """One test: a contract on a target."""

    stem: str
    target: str
    shard: int = 0
    shards: int = 1

    def __str__(self) -> str:
        return f"{self.stem}-{self.target}" + (f"-{self.shard + 1}of{self.shards}" if self.shards > 1 else "")


class NodeJudge:
    """The worker pool of this pytest process, and how a node is held to its contract."""

    def __init__(self, config: pytest.Config) -> None:
        self.pool = WorkerPool()
        self.profile = PROFILES[config.getoption("--harness-profile")]
        draws = config.getoption("--harness-draws")
        if draws is not None:
            self.profile = replace(self.profile, draws=draws, node_seconds=None)
        self.products = config.getoption("--harness-products")
        self.seed, self.database = base_seed(config), database(config)
        self._leased: dict[str, Target] = {}

    def machine(self, name: str) -> Target:
        """The target called `name`; "cuda" and "cuda:sm_NN" are the GPU this process holds a lease on, taken at the first call."""
        if not _leased_name(name):
            return target(name)
        if name not in self._leased:
            gpus = gpus_called(name)
            taken = lease(gpus).index
            self._leased[name] = next(gpu for gpu in gpus if gpu.index == taken)
        return self._leased[name]

    def hold_large(self, node: LargeNode, properties: list[tuple[str, object]]) -> None:
        """Judge one large product by chosen elements; what the target lacks a feature for is skipped with its name."""
        __tracebackhide__ = True
        where = self.machine(node.target)
        if missing := lacking(node.case, where):
            self._skip(f"{node.case.contract} large {node.kind}", where, missing, properties)
        row = large_row(self.pool, node.case, where, self.products)
        properties.append(("judged", 1))
        if row["decision"] != "pass":
            p = node.case.problem
            line = f"bitverdict large {shlex.quote(node.case.contract)} --target {where.name} --sizes {p.m}x{p.n}x{p.k}"
            properties.append(("replay", line))
            pytest.fail(f"{node}: {row['decision']}: {row['outcome']}: {row['message']}\n{line}", pytrace=False)
        words = row["words"]
        if words:
            tally = pytest_summary.tally_row(node.case.contract, node.kind, 1, words, node.case.problem.k)
            properties.append(("tally", pytest_summary.tallied([tally])))
        else:
            properties.append(("not_run", f"{node}: {row['outcome']}: {row['message']}: no words"))
        properties += [("cases", 1), ("words", words)]

    def _skip(self, what: str, where: Target, missing: list[str], properties: list[tuple[str, object]]) -> None:
        __tracebackhide__ = True
        reason = f"{where.name} lacks {', '.join(missing)}"
        properties.append(("not_run", f"{what}: {reason}"))
        pytest.skip(reason)

    def hold(self, node: Node, properties: list[tuple[str, object]]) -> None:
        """`_hold`; what the machine does not let it do fails the node in one sentence, which names no kernel."""
        __tracebackhide__ = True
        try:
            self._hold(node, properties)
        except MachineFault as fault:
            pytest.fail(f"error: {fault}", pytrace=False)

    def _hold(self, node: Node, properties: list[tuple[str, object]]) -> None:
        """Judge the node's required cases and draws; raises a `KernelFailed`, with the report as its text, for the first bug.

        What else fails a node is what gives the command line a status other than 0
        (`bitverdict.harness.session.tally.Tally.status`)."""
        __tracebackhide__ = True
        seed = self.seed if node.shards == 1 else derived_seed(self.seed, str(node.shard), str(node.shards))
        source = CaseSource(node.stem, self.machine(node.target), seed)
        if source.lacking:
            self._skip(node.stem, source.target, source.lacking, properties)
        properties.append(("judged", 1))
        rows: list[list] = []
        not_run: Counter[str] = Counter()
        spent: Counter = Counter()  # float seconds by bucket
        tally, errors = Tally(), dict[tuple, tuple[Case, Verdict]]()

        def judged(case: Case) -> Verdict:
            verdict = self.pool.judge(case, source.target)
            spent.update(verdict.seconds)
            classes = source.contract.coverage(case, source.target)
            tally.count(case, node.stem, source.target.name, classes, verdict)
            if verdict.decision is Decision.ERROR:
                errors.setdefault(verdict.signature, (case, verdict))
            if verdict.decision is Decision.NOT_RUN:
                not_run[verdict.message] += 1
            else:
                kind = str(classes.get("dtype", getattr(case.problem, "format", "")))
                k = getattr(case.problem, "k", 0)
                rows.append(pytest_summary.tally_row(node.stem, kind, 1, verdict.words, k))
            return verdict

        memory = VerdictCache(judged)
        required = source.required()[node.shard :: node.shards]
        tally.require(node.stem, source.target.name, required)
        for case in self._saved(source, memory):
            self._fail(source, case, memory(case), memory, properties)
        for case in required:
            if memory(case).failed:
                self._fail(source, case, memory(case), memory, properties)
        failed = self._first_drawn(source, memory, -(-self.profile.draws // node.shards))
        if failed is not None:
            self._fail(source, failed, memory(failed), memory, properties)
        self._settle(source, tally, errors, properties)
        properties += [("not_run", f"{node.stem} on {node.target}: {count} cases: {said}") for said, count in not_run.items()]
        properties.append(("tally", pytest_summary.tallied(rows)))
        properties.append(("seconds", json.dumps({name: round(seconds, 3) for name, seconds in spent.items()})))
        properties.append(("cases", len(memory.known)))
        properties.append(("words", sum(verdict.words for verdict in memory.known.values())))

    def _settle(
        self, source: CaseSource, tally: Tally, errors: dict[tuple, tuple[Case, Verdict]], properties: list[tuple[str, object]]
    ) -> None:
        """Fail or skip the node where the command line would end with a status of its own."""
        __tracebackhide__ = True
        status = tally.status()
        if status == report.NOTHING_RAN:
            pytest.skip("; ".join(tables.not_run_lines(tally)) or "nothing ran")
        if status == report.PASS:
            return
        told = ["; ".join(tally.open()), *tables.not_run_lines(tally)]
        told += [self._stored(source, case, verdict, case, [], properties) for case, verdict in errors.values()]
        pytest.fail("\n".join(told), pytrace=False)

    def _stored(
        self,
        source: CaseSource,
        case: Case,
        verdict: Verdict,
        first: Case,
        notes: list[str],
        properties: list[tuple[str, object]],
    ) -> str:
        """Store the case, which was made of `first`; what a person reads about it, the line that judges it again at its end."""
        from bitverdict.harness.session.failure_report import failure_report

        path = reproducers.write(
            reproducers.reproducer_of(case, source.target.name, verdict, model=source.target.model, first=first)
        )
        line = reproducers.replay_line(path)
        properties.append(("replay", line))
        return tables.text_of(failure_report(source.address, source.target.name, case, verdict, notes, line))

    def _first_drawn(self, source: CaseSource, memory: VerdictCache, draws: int) -> Case | None:
        end = None if self.profile.node_seconds is None else time.monotonic() + self.profile.node_seconds
        found: list[Case] = []

        def visit(case: Case) -> None:
            if (end is None or time.monotonic() < end) and memory(case).failed:
                found[:] = [case]
                raise failure_class(memory(case).signature)

        with suppress(KernelFailed):
            walk(source, draws, visit, database=self.database)
        return found[0] if found else None

    def _saved(self, source: CaseSource, memory: VerdictCache) -> list[Case]:
        """The first case that an earlier run kept in Hypothesis's database and that fails still; others leave it."""
        found: list[Case] = []

        def visit(case: Case) -> None:
            if memory(case).failed:
                found[:] = [case]
                raise failure_class(memory(case).signature)

        if self.database is not None:
            with suppress(KernelFailed):
                walk(source, 1, visit, phases=("reuse",), database=self.database)
        return found

    def _fail(
        self, source: CaseSource, case: Case, verdict: Verdict, memory: VerdictCache, properties: list[tuple[str, object]]
    ) -> None:
        __tracebackhide__ = True
        first, flaky = case, ""
        if verdict.outcome is not Outcome.TIMEOUT:  # each further look would cost the timeout again
            case, verdict = shrink(source, case, verdict, memory, draws=self.profile.draws, seconds=self.profile.shrink_seconds)
            flaky = rerun(case, source.target.name, verdict, self.pool)
        shown = self._stored(source, case, verdict, first, [flaky] if flaky else [], properties)
        raise failure_class(verdict.signature)("\n" + shown)


@pytest.fixture(scope="session")
def node_judge(pytestconfig: pytest.Config) -> Any:
    """The harness of this process: one worker a target, kept for the session."""
    held = NodeJudge(pytestconfig)
    yield held
    held.pool.close()


def base_seed(config: pytest.Config) -> int:
    """`--hypothesis-seed`, else 0."""
    given = config.getoption("--hypothesis-seed", default=None)
    return int(given) if given not in (None, "") and str(given).lstrip("-").isdigit() else 0


def database(config: pytest.Config) -> Any:
    """Where drawn cases that failed are kept for the next run: the database of `--hypothesis-profile`, else Hypothesis's own
    directory. None in CI without such a profile, and where `--hypothesis-seed` asks for these draws and no others."""
    import hypothesis

    if config.getoption("--hypothesis-seed", default=None) not in (None, ""):
        return None
    profile = config.getoption("--hypothesis-profile", default=None) or ("" if os.environ.get("CI") else "default")
    return hypothesis.settings.get_profile(profile).database if profile else None


def _leased_name(name: str) -> bool:
    """Whether a worker leases one of the GPUs that `name` means, as against cuda:N, which is that one."""
    return name == "cuda" or name.startswith("cuda:sm_")


def _target_names(config: pytest.Config) -> list[str]:
    return list(dict.fromkeys(config.getoption("--harness-target"))) or list(EMULATED)


__all__ = ["KernelFailed", "Node", "NodeJudge", "base_seed", "node_judge"]
