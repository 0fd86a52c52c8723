"""Contract under test: a pool over Ray comes to one verdict a case, whatever Ray says of its tasks, and names what it cannot do.

Ray is a fake with the functions that the pool uses; tests/workers/test_ray_cluster.py has Ray itself."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bitverdict.harness.frontends import fleet
from bitverdict.harness.frontends.main import main
from bitverdict.harness.judge.machine_faults import MachineFault
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.session.resume import past
from bitverdict.harness.workers import ray_head, ray_node, ray_pool
from bitverdict.harness.workers.journal import records
from bitverdict.harness.workers.ray_pool import Cluster, RayPool
from tests.support.vector_add import ADDRESS, HOST, Problem

PASS = Verdict(decision=Decision.PASS, outcome=Outcome.PASS, basis=Basis.EXACT, words=5)
KILLED = Verdict(decision=Decision.FAIL, outcome=Outcome.KILLED, basis=Basis.OBSERVED_FAULT)


class Lost(Exception):
    """Ray's error of a task whose worker ended too often."""


class Raised(Lost):
    """Ray's error of a task that raised."""


class NodeEnded(Lost):
    """Ray's error where this machine's raylet ended."""


class FakeRay:
    """A cluster whose tasks `answers` gives, in turn, by what they are asked; a `None` is never heard of again."""

    exceptions = SimpleNamespace(RayError=Lost, RayTaskError=Raised, LocalRayletDiedError=NodeEnded, GetTimeoutError=TimeoutError)

    def __init__(self, *answers: Any, resources: Mapping[str, float] | None = None) -> None:
        self.answers, self.resources = list(answers), dict(resources or {"CPU": 3.0})
        self.asked: list[dict] = []
        self.placed: list[dict] = []
        self.cancelled: list[Any] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.head = "127.0.0.1:{1}".format(*self.listening.getsockname())

    def init(self, **how: Any) -> None:
        self.how = how

    def shutdown(self) -> None:
        pass

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address=self.head)

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def remote(self, **given: Any) -> Callable[[Callable], Any]:
        def options(**placed: Any) -> Any:
            def submit(*asked: Any) -> Any:
                self.asked += asked
                self.placed.append(placed)
                return [self.answers.pop(0)]

            return SimpleNamespace(remote=submit)

        return lambda function: SimpleNamespace(options=options)

    def wait(self, references: list, timeout: float) -> tuple[list, list]:
        return ([], references) if references[0][0] is None else (references, [])

    def get(self, reference: list, timeout: float = 0.0) -> Any:
        if isinstance(reference[0], Exception):
            raise reference[0]
        return reference[0]

    def cancel(self, reference: Any, force: bool) -> None:
        self.cancelled.append(reference)


def case(n: int = 5) -> Case:
    return Case(contract=ADDRESS, problem=Problem(n=n))


def answer(verdict: Verdict, *again: Verdict) -> dict:
    return {"verdict": verdict.to_json(), "again": [each.to_json() for each in again]}


def pool_of(ray: FakeRay, **more: Any) -> RayPool:
    return RayPool(Cluster("auto", ray), **more)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    yield


def events(pool: RayPool) -> list[str]:
    return [record["event"] for record in records(pool.journal.path)]


def test_each_case_is_a_task_and_the_driver_writes_the_journal() -> None:
    ray = FakeRay(answer(PASS), answer(PASS, KILLED), answer(PASS))
    with pool_of(ray) as pool:
        assert pool.jobs == 3, "a place for each processor of the cluster"
        came = list(pool.judge_all((case(n), HOST) for n in (4, 5, 6)))
    assert {each.key for each, _, _ in came} == {case(n).key for n in (4, 5, 6)} and all(verdict == PASS for _, _, verdict in came)
    assert sorted(events(pool)) == ["again", *["begin"] * 3, *["end"] * 3]
    assert sorted(each["work"]["problem"]["n"] for each in ray.asked) == [4, 5, 6] and ray.placed == [{}] * 3


def test_a_task_that_is_silent_too_long_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_pool, "STARTED_WITHIN", 0.0)
    ray = FakeRay(None, answer(PASS))
    with pool_of(ray, timeout=0.01) as pool:
        assert pool.judge(case(), HOST) == PASS
    assert ray.cancelled == [[None]] and len(ray.asked) == 2 and events(pool) == ["begin", "end"]


def test_a_case_that_ray_gives_up_is_an_error_and_judged_again_later() -> None:
    with pool_of(FakeRay(Lost("worker crashed"))) as pool:
        verdict = pool.judge(case(), HOST)
    assert verdict.decision is Decision.ERROR and "worker crashed" in verdict.message
    assert past(list(records(pool.journal.path))).verdicts == {}, "no verdict that --resume would count"


def test_the_end_of_this_machines_node_ends_the_run_not_each_case() -> None:
    with pool_of(FakeRay(NodeEnded("raylet died"))) as pool, pytest.raises(MachineFault, match=r"raylet died.*--resume"):
        pool.judge(case(), HOST)
    assert events(pool) == ["begin"], "the case has no end, so --resume judges it"


def test_the_end_of_the_head_ends_the_run_before_ray_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_head, "LOOK_INTERVAL", 0.01)
    monkeypatch.setenv(ray_head.LIMIT, "0.4")
    ray = FakeRay(None, answer(PASS))
    with pool_of(ray) as pool:
        ray.listening.close()
        with pytest.raises(MachineFault, match=rf"head of the Ray cluster, {ray.head}, .*set RAY_ADDRESS.*run --resume --on ray"):
            pool.judge(case(), HOST)
    assert events(pool) == ["begin"] and len(ray.asked) == 1, "the case has no end, so --resume judges it"


def test_a_head_that_comes_back_in_time_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_head, "LOOK_INTERVAL", 0.0)
    ray = FakeRay()
    head = ray_head.Head(ray.head)
    ray.listening.close()
    head.check()
    with socket.create_server(("127.0.0.1", int(ray.head.rpartition(":")[2]))):
        monkeypatch.setattr(head, "patience", 0.01)
        head.check()
    with pytest.raises(MachineFault):
        until_it_raises(head.check)


def until_it_raises(check: Callable[[], None]) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        check()


def test_a_case_that_ray_gives_up_for_want_of_a_head_ends_the_run() -> None:
    ray = FakeRay(Lost("GCS is gone"))
    with pool_of(ray) as pool:
        ray.listening.close()
        with pytest.raises(MachineFault, match="head of the Ray cluster"):
            pool.judge(case(), HOST)
    assert events(pool) == ["begin"]


@pytest.mark.parametrize("said", [{"refused": "node b: code is 1"}, Raised("No module named 'bitverdict'")])
def test_a_node_that_cannot_judge_ends_the_run_and_is_named(said: Any) -> None:
    with pool_of(FakeRay(said)) as pool, pytest.raises(UsageError, match=r"node b: code is 1|No module named 'bitverdict'"):
        pool.judge(case(), HOST)


def test_gpus_are_asked_for_by_rays_model_of_them() -> None:
    row = {"name": "cuda:0", "arch": "sm_90", "index": 0, "model": "H100"}
    there = {"CPU": 2.0, "GPU": 2.0, "accelerator_type:H100": 1.0, "accelerator_type:H200": 1.0}
    ray = FakeRay(row, row | {"model": "H200"}, answer(PASS), resources=there)
    cluster = Cluster("auto", ray)
    (found,) = fleet.machines(cluster, ["cuda:1"])
    assert (found.name, found.model, found.index) == ("cuda:1", "H200", 0), "a node's worker sees one GPU, the first"
    with RayPool(cluster) as pool:
        pool.judge(case(), found)
    assert ray.placed[-1] == {"num_gpus": 1, "resources": {"accelerator_type:H200": 0.001}}


def test_a_family_means_each_model_of_it_in_the_cluster() -> None:
    rows = [{"name": "cuda:0", "arch": arch, "index": 0, "model": arch} for arch in ("sm_90", "sm_80", "sm_90")]
    there = {"CPU": 2.0, "GPU": 3.0} | {f"accelerator_type:{number}": 1.0 for number in range(3)}
    found = fleet.machines(Cluster("auto", FakeRay(*rows, resources=there)), ["cuda:hopper", "cuda:0"])
    assert [machine.name for machine in found] == ["cuda:0", "cuda:2"]


def test_a_gpu_that_the_cluster_lacks_is_named_with_those_it_has() -> None:
    with pytest.raises(UsageError, match=r"cuda:3.*GPUs there: none"):
        fleet.machines(Cluster("auto", FakeRay()), ["cuda:3"])
    with pytest.raises(UsageError, match=r"cuda:sm_90.*GPUs there: none"):
        fleet.machines(Cluster("auto", FakeRay()), [], "sm_90")


@pytest.mark.parametrize("address", ["", "local", "ray://host:10001"])
def test_an_address_that_names_no_cluster_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=f"RAY_ADDRESS={address!r}.*ray start --head"):
        Cluster(address, FakeRay())


@pytest.mark.parametrize("address", ["127.0.0.1:1", "here", "127.0.0.1:70000"])
def test_an_address_where_nothing_listens_is_told_at_once(address: str) -> None:
    with pytest.raises(UsageError, match=rf"RAY_ADDRESS='{address}' must be the HOST:PORT of a running cluster.*ray start --head"):
        Cluster(address, FakeRay())


def test_the_command_line_says_what_a_fleet_cannot_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["run", "matmul", "--on", "ray"]) == 2 and "pip install '.[ray]'" in capsys.readouterr().err
    assert main(["mutate", "matmul", "--on", "ray"]) == 2 and "pip install '.[ray]'" in capsys.readouterr().err
    words = ["run", "matmul", "--on", "ray", "--launcher", f"{__file__}:case", "--sealed"]
    assert main(words) == 2 and "--on ray --sealed: " in capsys.readouterr().err


def test_a_case_of_a_users_file_is_the_same_with_ray_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray puts a folder of its own into sys.path, which is part of such a case: here and on Ray they would be two cases."""
    there = tmp_path / "ray" / "_private"
    there.mkdir(parents=True)
    (tmp_path / "ray" / "__init__.py").write_text(f"import sys; sys.path.insert(0, {str(there)!r})")
    for name in ("__init__.py", "worker.py"):
        (there / name).write_text("")
    for name in ("ray", "ray._private", "ray._private.worker"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.path)
    assert Path(ray_pool.import_ray().__file__).is_relative_to(tmp_path) and sys.path == before
    for name in ("ray", "ray._private", "ray._private.worker"):
        monkeypatch.delitem(sys.modules, name)


def asked(**more: Any) -> dict:
    given = {"work": case().to_json(), "target": vars(HOST), "timeout": 5.0, "directory": str(Path.cwd()), "knobs": {}}
    return given | {"deciding": ray_node.deciding_versions(), "files": {}} | more


def test_a_node_with_other_code_or_other_files_refuses(tmp_path: Path) -> None:
    other = ray_node.deciding_versions() | {"code": "0"}
    assert "code is" in ray_node.judged(asked(deciding=other))["refused"]
    file = tmp_path / "launcher.py"
    file.write_text("a")
    files = ray_node.digests((str(file),))
    file.write_text("b")
    assert str(file) in ray_node.judged(asked(files=files))["refused"]
    assert "missing; share it" in ray_node.judged(asked(files=files, directory=str(tmp_path / "gone")))["refused"]


def test_a_node_judges_with_the_runs_knobs_as_any_worker_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITVERDICT_POOL_SEED", "7")
    monkeypatch.setattr(ray_node, "_slots", {})
    seen: list[dict] = []

    class Slot:
        def __init__(self, target: Target, *, timeout: float, directory: Path) -> None:
            assert directory.is_dir()

        def judge(self, work: Any, on_rerun: Callable[[Verdict], None]) -> Verdict:
            seen.append(work.to_json())
            on_rerun(KILLED)
            return PASS

    monkeypatch.setattr(ray_node, "WorkerSlot", Slot)
    told = ray_node.judged(asked(knobs={"BITVERDICT_POOL_SEED": None}))
    assert Verdict.from_json(told["verdict"]) == PASS and [each["outcome"] for each in told["again"]] == ["killed"]
    assert seen == [case().to_json()] and "BITVERDICT_POOL_SEED" not in ray_node.os.environ
