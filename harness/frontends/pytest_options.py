"""pytest's options, and the switch: all that an installation's entry point loads.

Without ``--bitverdict``, or ``bitverdict = true`` in pytest's configuration, the options are there and the tests that
`bitverdict.judged` and `bitverdict.test` make. Nothing else happens: no fixture, and where there is no such test neither NumPy nor
torch is imported. This checkout's conftest.py loads the plugin itself.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

PLUGIN = "bitverdict.harness.frontends.pytest_plugin"
DEFAULT_ARCHITECTURE = "sm_90"  # what --emulate alone means
_ARCHITECTURE = re.compile(r"(emulated:)?(sm_|gfx)\w+")
_IMPORTS = re.compile(rb"^(import bitverdict|from bitverdict import)\b", re.MULTILINE)
_end_server = pytest.StashKey[Callable[[], None]]()
PROFILES = ("ci", "exhaustive", "quick", "whole")  # their contents: `bitverdict.harness.session.profiles`
SIZES = "4096x2048x128,8192x8192x8192,8176x8144x4128"  # whole; by chosen elements; ragged in every tile, rows still on 16 bytes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("bitverdict", "load bitverdict's plugin", type="bool", default=False)
    group = parser.getgroup("bitverdict")

    def add(name: str, **options: object) -> None:
        """An option --bv-NAME, whose older name is --harness-NAME."""
        group.addoption(name, name.replace("--bv-", "--harness-"), dest=name[2:].replace("-", "_"), **options)

    group.addoption("--bitverdict", action="store_true", help="load bitverdict's plugin: its fixtures, nodes and summary")
    project = _project()
    add("--bv-profile", choices=PROFILES, default=os.environ.get("BITVERDICT_PROFILE") or project.get("profile", "quick"))
    add(
        "--bv-target",
        action="append",
        default=[],
        metavar="T",
        help="emulated:sm_NN, cuda:N; cuda, cuda:FAMILY (ampere, ada, hopper, blackwell) or cuda:sm_NN: a GPU, of that family or "
        "architecture, on which each worker leases a slot",
    )
    add(
        "--bv-shards",
        type=int,
        default=None,
        metavar="N",
        help="split each node in N (default 1; of a GPU under pytest-xdist by its required cases, at most one share a worker)",
    )
    add("--bv-shard", default="", metavar="I/N", help="share I of N of the collected tests, for example 3/16, for a CI matrix")
    add("--bv-k", default=None, metavar="EXPR", help="of each node the cases that the expression keeps, as bitverdict run -k")
    add(
        "--bv-database",
        default=os.environ.get("BITVERDICT_DATABASE", ""),
        metavar="URL",
        help="a Redis server, redis://HOST:PORT/N, on which several machines keep drawn cases that failed (docs/shrinking.md)",
    )
    add("--bv-secret", default="", metavar="HEX", help="of sealed tests: the secret that an earlier session revealed")
    timeout = project.get("timeout")
    add("--bv-timeout", type=float, default=timeout, metavar="SECONDS", help="a case that takes longer is a timeout, as of run")
    add("--bv-draws", type=int, default=None, metavar="N", help="draws of a contract, whatever time they take")
    add(
        "--bv-certificate",
        choices=("contracts", "cases"),
        default="",
        help="which faults passing cases would have exposed, below the results: a line for each contract, or for each case too",
    )
    accepted = "a node passes in spite of cases that end in a fault which the installed Triton's compiler is known for"
    add("--bv-accept-compiler-faults", action="store_true", help=accepted)
    add("--bv-large", default=SIZES, metavar="MxNxK,...", help=f"sizes of the large products (default {SIZES})")
    add("--bv-large-seeds", type=int, default=1, metavar="N", help="seeds of data for each large product")
    add("--bv-products", type=int, default=1 << 30, metavar="N", help="products that one large case's expected words may cost")
    add(
        "--bv-sealed",
        action="store_true",
        help="judge each test of bv.judged and bv.test sealed: a jailed process imports its launcher, which it must name",
    )
    add("--bv-require-jail", action="store_true", help="a sealed test fails where the machine lacks a protection of the jail")
    add("--bv-html", type=Path, default=None, metavar="FILE", help="the report of all nodes as a page")
    group.addoption(
        "--emulate",
        nargs="?",
        const=DEFAULT_ARCHITECTURE,
        action="append",
        default=[],
        metavar="ARCH",
        help=f'run each test on an emulated GPU, which answers for "cuda": {DEFAULT_ARCHITECTURE}, or ARCH; repeatable '
        "(docs/your_tests.md)",
    )
    group.addoption("--emulate-advice", action="store_true", help="with --emulate: print advice, which is counted otherwise")
    group.addoption(
        "--numerics", action="store_true", help="with --emulate: how far the words of each tensor are from those without rounding"
    )
    group.addoption(
        "--emulate-report",
        default="",
        metavar="FILE",
        help="with --emulate: what was found, as JSON, as SARIF in FILE.sarif, as events in FILE.jsonl, as a page in FILE.html",
    )
    group.addoption(
        "--emulate-limit",
        default="",
        metavar="SECONDS",
        help="with --emulate: processor time of a launch, such as 30s, after which its test is skipped as too large",
    )
    group.addoption("--schedules", type=int, default=2, metavar="N", help="with --emulate: run each launch under N (default 2)")
    _let_emulate_stand_alone(parser)
    group.addoption("--replay", type=Path, default=None, metavar="DIR", help="judge the reproducers of DIR too, each as a test")


def _project() -> dict:
    """``[tool.bitverdict]``, of which targets are read where tests are collected."""
    from bitverdict.harness.frontends.project_settings import project_settings
    from bitverdict.harness.model.usage import UsageError

    try:
        return project_settings()
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _let_emulate_stand_alone(parser: pytest.Parser) -> None:
    """Let ``--emulate tests/`` mean a path: argparse would take whatever follows an option that may have a value."""
    arguments = getattr(parser, "optparser", None)
    if arguments is None:  # another pytest: there it needs a place behind the paths, or ``--emulate=sm_90``
        return
    parse = arguments.parse_known_args

    def parse_known_args(args: list[str] | None = None, namespace: object = None, **options: object) -> tuple[object, list[str]]:
        following_words = [*(args or ())][1:] + ["-"]
        words = [
            f"--emulate={DEFAULT_ARCHITECTURE}" if word == "--emulate" and not _ARCHITECTURE.fullmatch(following) else word
            for word, following in zip(args or (), following_words, strict=False)
        ]
        return parse(words if args is not None else None, namespace, **options)

    arguments.parse_known_args = parse_known_args


def pytest_configure(config: pytest.Config) -> None:
    """Where all is sealed, what lies beside a test file stands for no installed module: pytest puts its folder first."""
    if config.getoption("--bv-sealed") or config.getoption("--bv-require-jail"):
        from bitverdict.harness.model import trusted_imports

        trusted_imports.begin(always=True)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Start the workers' server before the first file that imports bitverdict is imported: as a fork of this process, which is to
    import torch and Triton too. Where it has done so, or has threads, the server is a process of its own. A worker of xdist starts
    one at its first test: of all workers at once they would hold up each other."""
    config = collector.config
    if config.option.collectonly or hasattr(config, "workerinput") or not isinstance(collector, pytest.Module):
        return
    if not _IMPORTS.search(collector.path.read_bytes()):  # of a file that is imported, not of one beside it
        return
    from bitverdict.harness.workers.forkserver import end_early, has_server, start_early, start_forked

    if not has_server():
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a user's may be errors, and what is imported here is no file of theirs
            is_free = {"torch", "triton"}.isdisjoint(sys.modules) and threading.active_count() == 1
            start_forked() if is_free else start_early()
        config.stash[_end_server] = end_early
        config.add_cleanup(end_early)


def pytest_collection_finish(session: pytest.Session) -> None:
    """End a server that no test needs."""
    if not any(hasattr(getattr(item, "obj", None), "__bitverdict__") for item in session.items):
        session.config.stash.get(_end_server, lambda: None)()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the asked shard, by their places in the order of their ids: the same in each worker, on each machine."""
    if not (shard_option := config.getoption("--bv-shard")):
        return
    from bitverdict.harness.model.usage import UsageError
    from bitverdict.harness.session.shard import Shard

    try:
        kept = set(Shard.parse_shard(shard_option, "--bv-shard").share(sorted(item.nodeid for item in items)))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if hasattr(metafunc.function, "__bitverdict__"):
        from bitverdict.harness.frontends.pytest_judged import parametrize

        parametrize(metafunc)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    source = getattr(pyfuncitem.obj, "__bitverdict__", None)
    if source is None:
        return None
    from bitverdict.harness.frontends.pytest_judged import hold

    __tracebackhide__ = True
    hold(pyfuncitem, source)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On a narrow screen the short summary has room for the outcome, but not for "Failed: " before it."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and hasattr(getattr(item, "obj", None), "__bitverdict__"):
        crash.message = crash.message.removeprefix("Failed: ")
    return report


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Which faults passing cases would have exposed, on request. What sealed tests were protected by and left out, and what they
    drew by: it was committed to in their journal, and is told once all are over."""
    reports = [report for kept in terminalreporter.stats.values() for report in kept if hasattr(report, "user_properties")]
    if (path := terminalreporter.config.getoption("--bv-html")) is not None:
        from bitverdict.harness.frontends.pytest_summary import write_html

        write_html(path, reports)
    properties = [each for report in reports for each in report.user_properties]
    for line in dict.fromkeys(value for name, value in properties if name in ("sealed", "left out")):
        terminalreporter.write_line(line)
    if any(name == "exposed faults" for name, _ in properties):
        from bitverdict.harness.frontends import pytest_summary

        for line in pytest_summary.certificate_lines(reports):
            terminalreporter.write_line(line)
    secrets = [value for name, value in properties if name == "secret"]
    for digits in dict.fromkeys(secrets):
        from bitverdict.harness.sealed.secret_draws import Secret, commitment_line, revelation_lines

        for line in (commitment_line(Secret(digits)), *revelation_lines(Secret(digits), "--bv-secret").splitlines()):
            terminalreporter.write_line(line)


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Before xdist counts its workers, which the plugin has a say in, and before a conftest.py asks whether there is a GPU."""
    for option in dict.fromkeys(word.partition("=")[0] for word in args if word.startswith("--harness-")):
        print(f"note: {option} is read as {option.replace('harness', 'bv', 1)}, its newer name", file=sys.stderr)
    # pytest would parse each module of this package anew, to rewrite its asserts: seconds, where it cannot store what it made
    getattr(early_config.pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("bitverdict")
    if targets := early_config.known_args_namespace.emulate:
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset it warns in Triton 3.9 and flips in 3.10: it decides bits
        _check_release()
        from bitverdict.harness.frontends.pytest_emulate import load

        given = early_config.known_args_namespace
        load(early_config, targets, given.schedules, numerics=given.numerics, limit=given.emulate_limit)
    if early_config.known_args_namespace.bitverdict or early_config.getini("bitverdict"):
        _check_release()
        early_config.pluginmanager.import_plugin(PLUGIN)


def _check_release() -> None:
    """pytest.UsageError for a Triton that is not taken, before what only one that is taken has is imported; a note where it is only
    tried."""
    from bitverdict.harness.model.triton_release import installed_triton

    if problem := installed_triton().problem:
        raise pytest.UsageError(problem)
    if not installed_triton().is_proven and "PYTEST_XDIST_WORKER" not in os.environ:
        from bitverdict.harness.emulator.releases import notice

        print(f"note: {notice()}", file=sys.stderr)
