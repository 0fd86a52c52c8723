"""Contract under test: each kernel is compiled once, ahead of its case and without a GPU; a case waits for its own alone."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from triton import knobs
from triton.runtime.cache import FileCacheManager

from bitverdict.harness.frontends import pytest_compile
from bitverdict.harness.frontends.pytest_nodes import Node
from bitverdict.harness.judge import compile_once, compiled_ahead
from bitverdict.harness.judge.compile_once import CompiledElsewhere, CompiledOnce
from bitverdict.harness.judge.guarded_buffers import Guard, Poison
from bitverdict.harness.judge.launch import own_cache
from bitverdict.harness.judge.offline_driver import capture_compilations
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.workers.compile_ahead import CompileAhead
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.process import WorkerDied

HOPPER, EMULATED = Target("cuda:0", "sm_90", index=0), Target("emulated:sm_90", "sm_90")
ENTRY = "kernel.json"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Triton's cache, empty."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    manager = knobs.cache.manager_class
    yield tmp_path
    knobs.cache.manager_class = manager
    compile_once._release()


def cases(count: int, stem: str = "softmax") -> list[Case]:
    return resolve(stem).required(HOPPER)[:count]


# --- one process at a time


@pytest.fixture
def elsewhere(cache: Path) -> Iterator[int]:
    """The lock of the entry "key", held as another process holds it."""
    (cache / "key").mkdir()
    descriptor = os.open(cache / "key" / compile_once.NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor
    if descriptor in (int(name) for name in os.listdir("/proc/self/fd")):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def entered_by_another(cache: Path) -> None:
    (cache / "key" / "kernel.cubin").write_bytes(b"code")
    FileCacheManager("key").put_group(ENTRY, {"kernel.cubin": str(cache / "key" / "kernel.cubin")})


def test_who_finds_a_kernel_in_work_waits_and_takes_what_was_made(cache: Path, elsewhere: int) -> None:
    def made() -> None:
        entered_by_another(cache)
        fcntl.flock(elsewhere, fcntl.LOCK_UN)

    later = threading.Timer(0.1, made)
    assert FileCacheManager("key").get_group(ENTRY) is None  # Triton's own manager compiles beside the other
    later.start()
    waited = compile_once.wait_seconds
    assert CompiledOnce("key").get_group(ENTRY) == {"kernel.cubin": str(cache / "key" / "kernel.cubin")}
    later.join()
    assert compile_once.wait_seconds - waited >= 0.05, "a judged case tells it as a bucket of its own"


def test_a_compilation_that_never_ends_is_not_waited_for_longer(elsewhere: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_once, "PATIENCE", 0.05)
    assert CompiledOnce("key").get_group(ENTRY) is None


def test_a_process_ahead_does_not_wait_for_another(elsewhere: int) -> None:
    with compile_once.without_waiting(), pytest.raises(CompiledElsewhere):
        CompiledOnce("key").get_group(ENTRY)


@pytest.mark.parametrize("ends", ["with its entry", "with the next kernel"])
def test_a_lock_ends(cache: Path, ends: str) -> None:
    """With its entry; of a kernel that the compiler refused, which has none, with the next that is looked for."""
    manager = CompiledOnce("key")
    assert manager.get_group(ENTRY) is None
    seen = os.open(cache / "key" / compile_once.NAME, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if ends == "with its entry":
        manager.put_group(ENTRY, {})
    else:
        CompiledOnce("another").get_group(ENTRY)
    fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(seen)


def test_a_cache_manager_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs(FileCacheManager):
        pass

    monkeypatch.setattr(knobs.cache, "manager_class", Theirs)
    compile_once.compile_once()
    assert knobs.cache.manager_class is Theirs
    monkeypatch.setattr(knobs.cache, "manager_class", FileCacheManager)
    compile_once.compile_once()
    assert knobs.cache.manager_class is CompiledOnce


# --- a case's kernels, without its GPU


def launched_on_a_gpu(case: Case) -> list[bool]:
    """Of each kernel that `case` launches on an sm_90 whether its machine code was in the cache."""
    import torch

    contract, found = resolve(case.contract), list[bool]()
    operands = {operand.name: operand for operand in contract.operands(case)}
    before, knobs.compilation.listener = knobs.compilation.listener, lambda **told: found.append(told["cache_hit"])
    try:
        with own_cache(case), capture_compilations("sm_90"):
            uploaded = Guard(Poison.of_seed(1)).upload_all(operands.values(), torch.device("cpu"))
            contract.launch(case, uploaded, None)
    finally:
        knobs.compilation.listener = before
    return found


def test_a_case_finds_its_kernels_compiled_and_a_note_says_so() -> None:
    (case,) = cases(1)
    assert not compiled_ahead.is_done(case, "sm_90")
    came = compiled_ahead.compile_case(EMULATED, {"case": case.to_json(), "arch": "sm_90"})
    assert came.decision is Decision.PASS, came.message
    assert launched_on_a_gpu(case) == [True]
    assert compiled_ahead.is_done(case, "sm_90") and not compiled_ahead.is_done(case, "sm_80")


def test_a_case_that_its_launcher_refuses_is_left_to_its_judge() -> None:
    refused = next(case for case in resolve("matmul").required(HOPPER) if case.problem.activation == "gelu")
    came = compiled_ahead.compile_case(EMULATED, {"case": refused.to_json(), "arch": "sm_90"})
    assert came.decision is Decision.NOT_RUN and "activation 'gelu'" in came.message
    assert compiled_ahead.is_done(refused, "sm_90")


# --- the processes


class Process:
    """A worker that compiles nothing: it answers `said` of a case's rows, and dies where that is None."""

    def __init__(self, said: Callable[[dict], str | None], log: list) -> None:
        self.said, self.log, self.ended = said, log, False

    def wait_ready(self) -> float:
        return 0.0

    def send(self, work: Any) -> None:
        self.work = work.given["case"]["problem"]

    def answer(self, timeout: float) -> Verdict:
        self.log.append(self.work)
        message = self.said(self.work)
        if message is None:
            raise WorkerDied
        passed = Decision.NOT_RUN if message else Decision.PASS, Outcome.NOT_RUN if message else Outcome.PASS
        return Verdict(decision=passed[0], outcome=passed[1], message=message, basis=Basis.NO_BASIS)

    def end(self) -> None:
        self.ended = True

    def join(self, seconds: float) -> bool:
        return True


def compile_all(
    said: Callable[[dict], str | None], work: list[tuple[Case, Target]], tmp_path: Path
) -> tuple[CompileAhead, list, list]:
    log: list[dict] = []
    made: list[Process] = []

    def make(arch: str) -> Any:
        made.append(Process(said, log))
        return made[-1]

    ahead = CompileAhead(1, tmp_path, make)
    ahead.expect(work)
    assert ahead.wait(300)
    ahead.end()
    return ahead, log, made


def test_cases_are_compiled_in_their_order_and_one_in_work_comes_again(tmp_path: Path) -> None:
    asked = cases(3)
    problems = [vars(case.problem) for case in asked]
    busy = [problems[0]]

    def said(problem: dict) -> str:
        if problem not in busy:
            return ""
        busy.remove(problem)
        return compiled_ahead.BUSY

    ahead, log, made = compile_all(said, [*((case, HOPPER) for case in asked), (asked[1], HOPPER)], tmp_path)
    assert log == [*problems, problems[0]] and ahead.done == 3
    assert [process.ended for process in made] == [True]


def test_a_process_that_sees_no_gpu_compiles_for_one(tmp_path: Path) -> None:
    (case,) = cases(1)
    ahead = CompileAhead(1, tmp_path)
    assert ahead.expect([(case, HOPPER)]) == 1 and ahead.wait(100)
    ahead.end()
    assert ahead.done == 1 and launched_on_a_gpu(case) == [True]
    assert ahead.expect([(case, HOPPER)]) == 0


def test_a_compiler_that_aborts_costs_its_case_and_no_other(tmp_path: Path) -> None:
    asked = cases(3)
    second = vars(asked[1].problem)
    ahead, log, made = compile_all(lambda each: None if each == second else "", [(case, HOPPER) for case in asked], tmp_path)
    assert len(log) == 3 and ahead.done == 2
    assert [process.ended for process in made] == [True, True]


def test_nothing_is_compiled_for_emulated_gpus_and_launchers_of_users(tmp_path: Path) -> None:
    (case,) = cases(1)
    others = [(case, EMULATED), (replace(case, launcher="their.py:softmax"), HOPPER), (replace(case, sealed=True), HOPPER)]
    _, log, made = compile_all(lambda problem: "", others, tmp_path)
    assert not log and not made


@pytest.mark.parametrize(("jobs", "processes"), [(3, 1), (1, 3), (4, None), (9, None)])
def test_only_cores_that_no_worker_takes_compile_ahead(jobs: int, processes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four. Processes beside as many workers as there are cores made a cold run slower."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(CompileAhead, "expect", lambda self, work: len(list(work)))
    with WorkerPool(jobs=jobs) as pool:
        work = [(case, HOPPER) for case in cases(2)]
        assert pool.compile_ahead([*work, (work[0][0], EMULATED)]) == (2 if processes else 0)
        assert (pool.ahead.jobs if pool.ahead else None) == processes


def test_nodes_of_gpus_are_compiled_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest_compile, "gpus_called", lambda name: [HOPPER])
    work = list(pytest_compile.cases([Node("softmax", "cuda"), Node("tma_gather", "cuda"), Node("rope", "cuda")]))
    assert [case.contract for case, _ in work[:4]] == ["softmax", "rope", "softmax", "rope"]  # no TMA gather on sm_90
