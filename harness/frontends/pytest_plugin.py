"""pytest's hooks: profiles, nodes, workers, and the lines below the results; each node is held by
`bitverdict.harness.frontends.pytest_nodes`.

`--hypothesis-seed` is the base from which each node derives a seed of its own (Hypothesis would give all nodes the same draws).
Where GPUs are asked for, large products are nodes too (the laboratory's `pytest_large`), and `-n auto` starts as many
workers as the GPUs' free memory has room for, each on a GPU that it holds a lease on."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bitverdict.harness.frontends import pytest_shards, pytest_summary
from bitverdict.harness.frontends.pytest_shards import all_nodes
from bitverdict.harness.frontends.pytest_targets import base_seed, check_targets, gpu_names, target_names, workers
from bitverdict.harness.judge.machine_faults import missing_tools
from bitverdict.harness.model.extras import require_extra
from bitverdict.harness.model.feature_table import LARGE_PRODUCTS, resolve_feature
from bitverdict.harness.model.paths import REPRODUCERS
from bitverdict.harness.model.targets import show_workers, targets
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.case_filter import Expression
from bitverdict.harness.session.profiles import PROFILES
from bitverdict.harness.workers.forkserver import server_to_share, share_server, start_early

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter
    from xdist.workermanage import WorkerController

    from bitverdict.harness.frontends.pytest_nodes import NodeJudge

LARGE_TESTS_FILE = "test_large.py"
SHARED_SERVER = "bitverdict_server"  # the key of pytest-xdist's `workerinput`
_STARTED_JUDGE = pytest.StashKey[tuple["NodeJudge", threading.Thread]]()
LONG_FIXTURES = {"node", "large_node"}  # arguments of the tests that judge for seconds


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # it decides bits; unset it warns in Triton 3.9
    atexit.register(_hide_teardown)
    if not config.getoption("numprocesses", None):  # pytest-xdist's controller judges nothing
        from bitverdict.harness.frontends.pytest_compile import CompileAheadPlugin

        config.pluginmanager.register(CompileAheadPlugin(config), "bitverdict-compile-ahead")
    import hypothesis

    for name, profile in PROFILES.items():  # names of our own: Hypothesis loads a profile "ci" by itself where CI is set
        hypothesis.settings.register_profile(
            f"harness-{name}", database=None, deadline=None, derandomize=False, max_examples=max(profile.draws, 1), print_blob=False
        )
    hypothesis.settings.load_profile(f"harness-{config.getoption('--bv-profile')}")
    for name, least in (("--bv-shards", 1), ("--bv-draws", 1), ("--bv-large-seeds", 1), ("--bv-products", 1)):
        value = config.getoption(name)
        if value is not None and value < least:
            raise pytest.UsageError(f"{name} {value}: must be at least {least}")
    if not hasattr(config, "workerinput"):  # once a run, before any worker
        check_targets(config)
        check_database(config)
        if config.getoption("--bv-html") is not None:
            _check_html()
        if gpu_names(config):  # or each worker starts a process of its own that asks the driver
            show_workers(targets())
    elif gpu_names(config):
        found = config.workerinput.get(SHARED_SERVER)
        share_server(found) if found else start_early()
        _start_judging(config)
    if (expression := config.getoption("--bv-k")) is not None:
        try:
            Expression(expression)
        except UsageError as error:
            raise pytest.UsageError(f"--bv-{str(error)[1:]}") from None
    replayed = config.getoption("--replay")
    if replayed is not None and not replayed.is_dir():
        raise pytest.UsageError(f"--replay {replayed}: must be a directory of reproducers, such as .bitverdict/failures")


def _start_judging(config: pytest.Config) -> None:
    """Have the worker make its CUDA context, 1 to 4 s of 16 at once on an H200, while tests are imported and collected."""
    from bitverdict.harness.frontends.pytest_nodes import NodeJudge

    def close() -> None:
        if _STARTED_JUDGE in config.stash:  # no test took it
            config.stash[_STARTED_JUDGE][0].close()

    judge = NodeJudge(config)
    start = threading.Thread(target=judge.prepare, args=(gpu_names(config),), daemon=True)
    config.stash[_STARTED_JUDGE] = judge, start
    config.add_cleanup(close)
    start.start()


def check_database(config: pytest.Config) -> None:
    """pytest.UsageError for a shared database that cannot be had."""
    if url := config.getoption("--bv-database"):
        from bitverdict.harness.frontends.shared_database import shared

        try:
            shared(url)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None


def _hide_teardown() -> None:
    """Triton's bindings print a page of "leaked" functions while the interpreter ends, below the report somebody wants to read."""
    if "triton._C.libtriton" in sys.modules:
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def pytest_report_header(config: pytest.Config) -> list[str]:
    profile, names = config.getoption("--bv-profile"), target_names(config)
    head = f"bitverdict: profile {profile}, base seed {base_seed(config)}, targets {', '.join(names)}"
    missing = missing_tools() if any(name.startswith("emulated:sm_") for name in names) else ""
    return [head, missing] if missing else [head]


def _check_html() -> None:
    try:
        require_extra("jinja2", "--bv-html")
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "node" in metafunc.fixturenames:
        metafunc.parametrize("node", all_nodes(metafunc.config), ids=str)
    if "large_node" in metafunc.fixturenames:
        sizes, seeds = (metafunc.config.getoption(name) for name in ("--bv-large", "--bv-large-seeds"))
        large_nodes = resolve_feature(f"{LARGE_PRODUCTS}:large_nodes")
        metafunc.parametrize("large_node", large_nodes(sizes, seeds, gpu_names(metafunc.config)), ids=str)
    if "reproducer" in metafunc.fixturenames:
        given = metafunc.config.getoption("--replay")
        kept = sorted(REPRODUCERS.glob("*.json")) + (sorted(given.glob("*.json")) if given else [])
        metafunc.parametrize("reproducer", kept, ids=[path.name for path in kept])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Large products are for GPUs: where none is asked for there is nothing to collect."""
    if collection_path.name == LARGE_TESTS_FILE and not gpu_names(config):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, contracts before all else: short tests then fill the end. On GPUs each worker begins with long ones. Alone, the
    order is that of the files."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: LONG_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())))
        if gpu_names(config):
            items[:] = pytest_shards.dealt(items, int(getattr(config, "workerinput", {}).get("workercount", 1)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """On GPUs one server forks the workers for all of pytest-xdist's, and imports while they do: sixteen servers on 16 cores had
    the first case wait 4 s for torch and Triton. A worker of pytest-xdist on another machine has a server of its own."""
    if gpu_names(node.config) and node.gateway.spec.popen:
        node.workerinput[SHARED_SERVER] = server_to_share()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:
    """``--dist worksteal`` in place of xdist's default, ``load``, which gave one worker nearly all contracts in one chunk, in the
    middle of the session, and let it end alone."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """``-n auto``: one worker a core, but no more than the GPUs' free memory has room for, where GPUs are asked for."""
    asked = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS", "")
    return int(asked) if asked.isdigit() else workers(config)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    reports = [
        report
        for category in ("passed", "failed", "skipped")
        for report in terminalreporter.getreports(category)
        if report.when == "call" or category == "failed"
    ]
    for line in pytest_summary.lines(reports):
        terminalreporter.write_line(line)
    everything = [report for kept in terminalreporter.stats.values() for report in kept if hasattr(report, "duration")]
    least = 0.0 if gpu_names(terminalreporter.config) and terminalreporter.verbosity > 0 else pytest_summary.LONG_SESSION
    for line in pytest_summary.time_lines(everything, least=least):
        terminalreporter.write_line(line)
    lines = [value for report in reports if report.failed for name, value in report.user_properties if name == "replay"]
    for line in dict.fromkeys(lines):
        terminalreporter.write_line(f"replay: {line}", bold=True)


@pytest.fixture(scope="session")
def node_judge(pytestconfig: pytest.Config) -> Iterator[NodeJudge]:
    """The harness of this process: one worker a target, kept for the session."""
    from bitverdict.harness.frontends.pytest_nodes import NodeJudge

    judge, start = pytestconfig.stash.get(_STARTED_JUDGE, (None, None))
    if judge is None or start is None:
        judge = NodeJudge(pytestconfig)
    else:
        del pytestconfig.stash[_STARTED_JUDGE]
        start.join()
    yield judge
    judge.close()
