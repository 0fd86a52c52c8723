"""Contract under test: a pytest session starts as many workers as fit, hands tests out to them, judges first what failed before,
takes one shard of the tests, and forks the server of its workers where a file imports bitverdict."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import hypothesis
import pytest
from hypothesis.database import InMemoryExampleDatabase

from bitverdict.harness.frontends import pytest_options, pytest_plugin, pytest_shards
from bitverdict.harness.frontends.pytest_nodes import Node, NodeJudge, base_seed, database
from bitverdict.harness.frontends.pytest_plugin import (
    pytest_collection_modifyitems,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)
from bitverdict.harness.lab.large_gemm import operands as large_operands
from bitverdict.harness.lab.pytest_large import large_nodes
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.session.shrink import KernelFailed
from bitverdict.harness.workers import forkserver
from bitverdict.harness.workers.gpu_lease import NEED
from tests.support.vector_add import HOST

CHECKOUT = Path(__file__).resolve().parents[2]


def test_workers_are_as_many_as_free_memory_has_room_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def gpu(index: int, free: int, arch: str = "sm_90") -> Target:
        return Target(f"cuda:{index}", arch, index, "", f"w-{tmp_path.name}-{index}", free * NEED, 8 * NEED)

    def show(gpus: list[Target]) -> None:
        for module in ("frontends.pytest_targets", "model.targets"):
            monkeypatch.setattr(f"bitverdict.harness.{module}.targets", lambda: gpus)

    options = {"--bv-target": ["cuda"]}
    config = SimpleNamespace(getoption=lambda name, default=None: options[name])
    monkeypatch.setattr("bitverdict.harness.frontends.pytest_targets.os.sched_getaffinity", lambda pid: range(12))
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    monkeypatch.delenv("BITVERDICT_GPU_SLOTS", raising=False)
    for name in ("BITVERDICT_GPUS_SEEN", "BITVERDICT_GPU_PLACES"):
        monkeypatch.setenv(name, "")
    for found, slots, workers in (
        ([gpu(0, 3)], None, 3), ([gpu(0, 3), gpu(1, 2)], None, 5), ([gpu(0, 8), gpu(1, 8)], None, 12), ([gpu(0, 0)], None, 1),
        ([gpu(0, 8), gpu(1, 1)], "2", 3),
    ):  # fmt: skip
        show(found)
        if slots:
            monkeypatch.setenv("BITVERDICT_GPU_SLOTS", slots)
        assert pytest_xdist_auto_num_workers(config) == workers  # type: ignore[arg-type]
        assert len([place for place in os.environ["BITVERDICT_GPU_PLACES"].split(",") if place]) in (workers, 0)
    options["--bv-target"] = ["cuda:sm_80"]
    show([gpu(0, 8), gpu(1, 2, "sm_80")])
    assert pytest_xdist_auto_num_workers(config) == 2  # type: ignore[arg-type]


def test_the_number_of_workers_is_given_or_the_cores(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "3")
    assert pytest_xdist_auto_num_workers(pytestconfig) == 3
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS")
    assert pytest_xdist_auto_num_workers(pytestconfig) >= 1
    assert base_seed(pytestconfig) == int(pytestconfig.getoption("--hypothesis-seed") or 0)


def test_workers_begin_with_the_contracts_and_take_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"a": ["tmp_path"], "b": ["node", "harness"], "c": [], "d": ["large_node"]}
    items = [SimpleNamespace(name=name, fixturenames=asked) for name, asked in given.items()]
    for worker, order in (("", "abcd"), ("gw0", "bdac")):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker) if worker else monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
        found = list(items)
        config = SimpleNamespace(getoption=lambda name: ["emulated:sm_90"])
        pytest_collection_modifyitems(config, found)  # type: ignore[arg-type]
        assert "".join(item.name for item in found) == order
    for asked, taken in (("load", "WorkStealingScheduling"), ("loadfile", "NoneType"), ("no", "NoneType")):
        option = {"dist": asked, "tx": ["popen"] * 2}
        config = SimpleNamespace(getoption=option.__getitem__, getvalue=option.__getitem__, option=SimpleNamespace(**option))
        assert type(pytest_xdist_make_scheduler(config, None)).__name__ == taken  # type: ignore[arg-type]


ONLY_DRAWN = """
from tests.support.vector_add import VectorAdd
class OnlyDrawn(VectorAdd):
    def required(self, target):
        return []
CONTRACT = OnlyDrawn(fault="wrong")
"""


def test_a_session_on_gpus_asks_for_them_once_and_starts_servers_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 15 workers each would ask the driver by a process of its own, and start its server when it has collected."""
    told: list[object] = []
    for name in ("check_targets", "check_database"):
        monkeypatch.setattr(pytest_plugin, name, lambda config: None)
    monkeypatch.setattr(pytest_plugin, "targets", lambda: [HOST])
    monkeypatch.setattr(pytest_plugin, "show_workers", told.append)
    monkeypatch.setattr(pytest_plugin, "start_early", lambda: told.append("server"))
    monkeypatch.setattr(pytest_plugin, "share_server", told.append)
    monkeypatch.setattr(pytest_plugin, "server_to_share", lambda: {"address": "there"})
    monkeypatch.setattr(pytest_plugin, "_start_judging", lambda config: told.append("worker"))
    given = {"--bv-profile": "quick", "--bv-target": ["cuda"]}
    config = SimpleNamespace(getoption=lambda name, default=None: given.get(name, default))
    here, elsewhere = (
        SimpleNamespace(config=config, workerinput={}, gateway=SimpleNamespace(spec=SimpleNamespace(popen=popen)))
        for popen in (True, False)
    )
    for node in (here, elsewhere):
        pytest_plugin.pytest_configure_node(node)
    server = {"address": "there"}
    for told_by_xdist, expected in (
        ({}, [[HOST]]),
        ({"workerinput": elsewhere.workerinput}, [[HOST], "server", "worker"]),
        ({"workerinput": here.workerinput}, [[HOST], "server", "worker", server, "worker"]),
    ):
        plugins = SimpleNamespace(register=lambda plugin, name: None)
        pytest_plugin.pytest_configure(SimpleNamespace(**vars(config), pluginmanager=plugins, **told_by_xdist))  # type: ignore[arg-type]
        assert told == expected


CONTROLLER = """
import sys
import bitverdict.harness.frontends.pytest_plugin
print(sorted({"torch", "triton", "hypothesis"} & sys.modules.keys()))
"""


def test_a_process_that_judges_nothing_imports_no_torch() -> None:
    """pytest-xdist's controller took 4.7 s to start its workers, while 15 of 16 cores had nothing to do."""
    done = subprocess.run([sys.executable, "-c", CONTROLLER], capture_output=True, text=True, cwd=CHECKOUT, check=True)
    assert done.stdout == "[]\n"


def test_a_worker_begins_with_large_products_or_a_long_contract() -> None:
    """Of 16 workers 4 keep the GPU busy from the beginning, each with neighbours, which share operands. All have as many tests."""

    class Item(SimpleNamespace):
        __hash__ = object.__hash__  # type: ignore[assignment]

    def test(**params: object) -> Any:
        return Item(callspec=SimpleNamespace(params=params))

    stems = ("add", "block_scaled_matmul", "matmul", *"abcde")
    nodes = [test(node=Node(stem, "cuda:0", shard, 16)) for shard in range(16) for stem in stems]
    large, others = [test(large_node=place) for place in range(40)], [Item() for _ in range(32)]
    order: list[Any] = pytest_shards.dealt([*others, *nodes, *large], 16)
    assert len(order) == 200 and set(map(id, order)) == set(map(id, [*others, *nodes, *large]))
    ends = [0, *accumulate((200 + place) // 16 for place in range(16))]  # as pytest-xdist counts
    stretches = [order[begin:end] for begin, end in pairwise(ends)]
    judged = [[each.callspec.params for each in stretch if hasattr(each, "callspec")] for stretch in stretches]
    assert [[params.get("large_node") for params in stretch[:10]] for stretch in judged[:4]] == [
        list(range(first, first + 10)) for first in (0, 10, 20, 30)
    ]
    assert [stretch[0]["node"].stem for stretch in judged[4:]] == ["block_scaled_matmul"] * 12
    assert [stretch[1]["node"].stem for stretch in judged[4:]] == ["block_scaled_matmul"] * 4 + ["matmul"] * 8
    assert pytest_shards.dealt([*others, *nodes, *large], 1)[:40] == large == pytest_shards.dealt(large, 3)


def test_cases_of_one_type_and_size_follow_each_other_and_draw_once() -> None:
    """Most of them multiply the same in another configuration: a draw of 8192 x 8192 is 1 to 2 s of a core."""
    nodes = [node for node in large_nodes("64x32x48,128x128x64", 1, ["cuda:0"]) if node.kind in ("fp16", "bf16")]
    kinds = [(node.kind, large_operands.size_of(node.case.problem)) for node in nodes]
    assert [key for key, _ in groupby(kinds)] == sorted(set(kinds), reverse=True) and len(kinds) > 2 * len(set(kinds))
    names = ("matmul-fp16-0-128", "matmul-fp16-1-128")
    first, second = (large_operands.operands(node.case) for node in nodes if str(node).startswith(names))
    assert first["a"].codes is second["a"].codes and first["b"].codes is second["b"].codes


def test_a_drawn_case_that_failed_is_judged_first_in_the_next_run(
    node_judge: NodeJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test, kept = tmp_path / "only_drawn.py", InMemoryExampleDatabase()
    judged: list[Case] = []
    under_test.write_text(ONLY_DRAWN)
    inner = node_judge.pool.judge
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    monkeypatch.setattr(node_judge, "database", kept)
    monkeypatch.setattr(node_judge.pool, "judge", lambda case, where: judged.append(case) or inner(case, where))
    monkeypatch.setattr(node_judge, "profile", replace(node_judge.profile, shrink_seconds=0, node_seconds=None))
    node = Node(f"{under_test}:CONTRACT", "emulated:sm_90")
    failed: list[Case] = []
    for base in (0, 1):
        monkeypatch.setattr(node_judge, "seed", base)
        with pytest.raises(KernelFailed):
            node_judge.hold(node, [])
        assert judged[0] == failed[-1] if failed else judged[0] != judged[-1]
        failed.append(judged[-1])  # which is not reduced
        judged.clear()
    assert kept.data


def test_the_database_is_hypothesis_own_a_profiles_or_none(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = InMemoryExampleDatabase()
    hypothesis.settings.register_profile("shared-database", database=mine)
    given = {"--hypothesis-seed": None, "--hypothesis-profile": None}

    class Config:
        def getoption(self, name: str, default: object = None) -> object:
            return given.get(name, default)

    monkeypatch.delenv("CI", raising=False)
    assert "DirectoryBased" in repr(database(Config())) or "examples" in repr(database(Config()))
    given["--hypothesis-profile"] = "shared-database"
    assert database(Config()) is mine
    given["--hypothesis-seed"] = "7"
    assert database(Config()) is None
    given.update({"--hypothesis-seed": None, "--hypothesis-profile": None})
    monkeypatch.setenv("CI", "1")
    assert database(Config()) is None


def test_a_shard_of_the_collected_tests_is_the_same_everywhere() -> None:
    """Whatever the order in which a worker has them."""

    def kept(asked: str, names: list[str]) -> set[str]:
        told: list = []
        hook = SimpleNamespace(pytest_deselected=lambda items: told.extend(items))
        items = [SimpleNamespace(nodeid=name) for name in names]
        config = SimpleNamespace(getoption=lambda name: asked, hook=hook)
        pytest_options.pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
        assert len(told) + len(items) == len(names)
        return {item.nodeid for item in items}

    names = [f"test_a.py::test_{number}" for number in range(8)]
    parts = [kept(f"{number}/3", names) for number in (1, 2, 3)]
    assert parts == [kept(f"{number}/3", names[::-1]) for number in (1, 2, 3)]
    assert set.union(*parts) == kept("", names) == set(names) and sum(map(len, parts)) == len(names)
    with pytest.raises(pytest.UsageError, match="--bv-shard 4/3: must be NUMBER/OF"):
        kept("4/3", names)


@pytest.mark.parametrize(
    ("text", "more", "is_ours", "expected"),
    [
        ("import bitverdict as bv", {}, True, ["start"]),
        ("from bitverdict import judged", {}, False, ["start", "end"]),
        ("from bitverdict.harness import model", {}, True, []),
        ("import bitverdict", {"collectonly": True}, True, []),
        ("import bitverdict", {"workerinput": {}}, True, []),
    ],
)
def test_a_server_is_started_for_tests_of_ours_alone(
    text: str, more: dict, is_ours: bool, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(forkserver, "has_server", lambda: False)
    for name in ("start_early", "start_forked", "end_early"):
        monkeypatch.setattr(forkserver, name, partial(told.append, name.partition("_")[0]))
    (tmp_path / "test_mine.py").write_text(f"{text}\n")
    config = SimpleNamespace(
        option=SimpleNamespace(collectonly="collectonly" in more), stash={}, add_cleanup=lambda end: None, **more
    )
    pytest_options.pytest_collectstart(Mock(pytest.Module, path=tmp_path / "test_mine.py", config=config))
    pytest_options.pytest_collectstart(Mock(pytest.Dir, config=config))
    item = SimpleNamespace(obj=SimpleNamespace(__bitverdict__=None) if is_ours else None)
    pytest_options.pytest_collection_finish(SimpleNamespace(items=[item], config=config))  # type: ignore[arg-type]
    assert told == expected


MINE = """
import os, pathlib
import bitverdict as bv
import beside
print("in a worker or not")
parent = os.getppid()
with open("seen", "a") as file:
    print(parent, pathlib.Path(f"/proc/{parent}/comm").read_text().strip(), beside.value, file=file)

@bv.judged(reference=lambda xp, x: x)
def test_mine(draw):
    assert draw
    return draw.tensor("fp32", (3,))
"""


def test_a_worker_is_forked_from_pytest_and_has_nothing_of_it(tmp_path: Path) -> None:
    """A user's module that conftest.py has changed is imported anew, warnings are no errors, what is printed goes to the log."""
    for name, text in {"beside": "value = 1", "conftest": "import beside\nbeside.value = 2", "test_mine": MINE}.items():
        (tmp_path / f"{name}.py").write_text(text)
    plugin = ["-p", "bitverdict.harness.frontends.pytest_options"]
    words = [sys.executable, "-m", "pytest", *plugin, "-q", "-W", "error", "--bv-target", "sm_90"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | {
        "PYTHONPATH": str(Path(__file__).resolve().parents[2])
    }
    told = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert "1 failed" in told and "no Triton kernel was launched" in told, told
    (_, of_pytest), *of_workers = (line.split(maxsplit=1) for line in (tmp_path / "seen").read_text().splitlines())
    assert of_pytest.endswith(" 2") and of_workers and {said for _, said in of_workers} == {"bv-workers 1"}
    command_lines = [path for server, _ in of_workers if (path := Path(f"/proc/{server}/cmdline")).exists()]
    assert not any(path.read_bytes() for path in command_lines), "the server is left behind"
