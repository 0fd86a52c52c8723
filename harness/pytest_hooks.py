"""pytest judges the same contracts by the same judge: options, profiles, nodes, and the line that replays a failure.

A node is (contract, target) and its id, ``contract-target``, is frozen; what varies inside is drawn. The cover list runs first.
`--hypothesis-seed` is the base from which each node derives a seed of its own (Hypothesis would give all nodes the same draws).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness import seed_files
from harness.contract import Case
from harness.docket import PROFILES, Docket, derived_seed, stems, walk
from harness.isolation import Bench
from harness.lease import lease, slots
from harness.replay import rerun
from harness.report import MOST_UNDECIDED
from harness.shrinking import Convicted, Memory, conviction_class, shrink
from harness.targets import EMULATED_ARCHITECTURES, Target, target, targets, visible_device
from harness.verdict import Ruling, Verdict

EMULATED = tuple(f"emulated:{arch}" for arch in EMULATED_ARCHITECTURES)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bitverdict")
    group.addoption("--harness-profile", choices=sorted(PROFILES), default=os.environ.get("HARNESS_PROFILE", "quick"))
    group.addoption(
        "--harness-target",
        action="append",
        default=[],
        metavar="T",
        help="emulated:sm_NN, cuda:N, or cuda: one leased GPU a worker",
    )
    group.addoption(
        "--harness-shards", type=int, default=1, metavar="N", help="split each node in N, for long profiles on many cores"
    )
    group.addoption("--replay", type=Path, default=None, metavar="DIR", help="judge the seed files of DIR too, each as a test")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # it decides bits; unset it warns in Triton 3.9
    import hypothesis

    for name, profile in PROFILES.items():  # names of our own: Hypothesis loads a profile "ci" by itself where CI is set
        hypothesis.settings.register_profile(
            f"harness-{name}", database=None, deadline=None, derandomize=False, max_examples=profile.draws, print_blob=False
        )
    hypothesis.settings.load_profile(f"harness-{config.getoption('--harness-profile')}")
    if config.getoption("--harness-shards") < 1:
        raise pytest.UsageError(f"--harness-shards {config.getoption('--harness-shards')}: must be at least 1")
    replayed = config.getoption("--replay")
    if replayed is not None and not replayed.is_dir():
        raise pytest.UsageError(f"--replay {replayed}: must be a directory of seed files, such as .harness/failures")


def pytest_report_header(config: pytest.Config) -> str:
    profile, names = config.getoption("--harness-profile"), ", ".join(_target_names(config))
    return f"bitverdict: profile {profile}, base seed {base_seed(config)}, targets {names}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "node" in metafunc.fixturenames:
        shards, names = metafunc.config.getoption("--harness-shards"), _target_names(metafunc.config)
        nodes = [Node(stem, name, shard, shards) for stem in stems() for name in names for shard in range(shards)]
        metafunc.parametrize("node", nodes, ids=str)
    if "seed_file" in metafunc.fixturenames:
        given = metafunc.config.getoption("--replay")
        kept = sorted(seed_files.PROMOTED.glob("*.json")) + (sorted(given.glob("*.json")) if given else [])
        metafunc.parametrize("seed_file", kept, ids=[path.name for path in kept])


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """``-n auto``: one worker a core, but no more than the GPUs have slots for, where GPUs are asked for."""
    asked = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS", "")
    if asked.isdigit():
        return int(asked)
    cores = len(os.sched_getaffinity(0))
    if not any(name.startswith("cuda") for name in _target_names(config)):
        return cores
    return max(1, min(cores, slots() * sum(not machine.emulated for machine in targets())))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = [
        value for report in terminalreporter.getreports("failed") for name, value in report.user_properties if name == "replay"
    ]
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


class Court:
    """The bench of this pytest process, and how a node is held to its contract."""

    def __init__(self, config: pytest.Config) -> None:
        self.bench = Bench()
        self.profile = PROFILES[config.getoption("--harness-profile")]
        self.seed = base_seed(config)
        self._leased: Target | None = None

    def machine(self, name: str) -> Target:
        """The target called `name`; "cuda" is the GPU this process holds a lease on, taken at the first call."""
        if name != "cuda":
            return target(name)
        if self._leased is None:
            gpus = [machine for machine in targets() if not machine.emulated]
            if not gpus:
                raise ValueError("target 'cuda': no GPU is visible; see CUDA_VISIBLE_DEVICES and nvidia-smi")
            self._leased = gpus[lease([visible_device(machine.index) for machine in gpus]).index]
        return self._leased

    def hold(self, node: Node, properties: list[tuple[str, object]]) -> None:
        """Judge the node's cover list and draws; raises a `Convicted`, with the report as its text, for the first bug.

        A cover list that is not decided, or more than one drawn case in twenty undecided, fails too.
        """
        __tracebackhide__ = True
        seed = self.seed if node.shards == 1 else derived_seed(self.seed, str(node.shard), str(node.shards))
        docket = Docket(node.stem, self.machine(node.target), seed)
        if docket.lacking:
            pytest.skip(f"{docket.target.name} lacks {', '.join(docket.lacking)}")
        memory = Memory(lambda case: self.bench.judge(case, docket.target))
        for case in docket.required()[node.shard :: node.shards]:
            if memory(case).convicted:
                self._convict(docket, case, memory(case), memory, properties)
        convicted = self._first_drawn(docket, memory, -(-self.profile.draws // node.shards))
        if convicted is not None:
            self._convict(docket, convicted, memory(convicted), memory, properties)
        undecided = Counter(verdict.message for verdict in memory.known.values() if verdict.ruling is Ruling.UNDECIDED)
        if undecided.total() > MOST_UNDECIDED * len(memory.known):
            reasons = "\n".join(f"  {count} x {message}" for message, count in undecided.most_common(8))
            pytest.fail(f"{undecided.total()} of {len(memory.known)} cases decide nothing:\n{reasons}", pytrace=False)
        properties.append(("cases", len(memory.known)))
        properties.append(("words", sum(verdict.words for verdict in memory.known.values())))

    def _first_drawn(self, docket: Docket, memory: Memory, draws: int) -> Case | None:
        end = None if self.profile.node_seconds is None else time.monotonic() + self.profile.node_seconds
        first: list[Case] = []

        def visit(case: Case) -> None:
            if first or (end is not None and time.monotonic() > end):
                return
            if memory(case).convicted:
                first.append(case)

        walk(docket, draws, visit)
        return first[0] if first else None

    def _convict(self, docket: Docket, case: Case, verdict: Verdict, memory: Memory, properties: list[tuple[str, object]]) -> None:
        __tracebackhide__ = True
        from harness import report
        from harness.conviction import conviction

        case, verdict = shrink(docket, case, verdict, memory, draws=self.profile.draws, seconds=self.profile.shrink_seconds)
        flaky = rerun(case, docket.target.name, verdict, self.bench)
        path = seed_files.write(seed_files.seed_of(case, docket.target.name, verdict, model=docket.target.model))
        line = f"python -m harness replay {path}"
        properties.append(("replay", line))
        shown = conviction(docket.address, docket.target.name, case, verdict, [flaky] if flaky else [], line)
        raise conviction_class(verdict.signature)("\n" + report.text_of(shown))


@pytest.fixture(scope="session")
def court(pytestconfig: pytest.Config) -> Any:
    """The court of this process: one child a target, kept for the session."""
    held = Court(pytestconfig)
    yield held
    held.bench.close()


def base_seed(config: pytest.Config) -> int:
    """`--hypothesis-seed`, else 0."""
    given = config.getoption("--hypothesis-seed", default=None)
    return int(given) if given not in (None, "") and str(given).lstrip("-").isdigit() else 0


def _target_names(config: pytest.Config) -> list[str]:
    return list(dict.fromkeys(config.getoption("--harness-target"))) or list(EMULATED)


__all__ = ["Convicted", "Court", "Node", "base_seed", "court"]
