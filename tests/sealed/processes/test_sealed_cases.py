"""Contract under test: a sealed case is judged by three processes; whatever the candidate's does is a verdict, and the next case is
unaffected."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.model import sealing
from bitverdict.harness.model.addresses import load
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.launcher_limits import check_launcher, claims_far, nearest
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import PROCESS, ZYGOTE, Decision, Outcome, Verdict
from bitverdict.harness.sealed.candidate import judge_side
from bitverdict.harness.sealed.jail.executors import Executors
from bitverdict.harness.sealed.jail.jail import Jail
from bitverdict.harness.sealed.jail.policy import CANDIDATE
from bitverdict.harness.sealed.jail.protections import BUBBLEWRAP, SECCOMP, protections
from bitverdict.harness.sealed.processes import candidate_descriptions, jails
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.start import Start
from tests.support.vector_add import ADDRESS, CONTRACT, Problem

FILE = Path(__file__).resolve().parents[2] / "support" / "sealed_vectors.py"
TARGET = target("emulated:sm_90")


def case(name: str) -> Case:
    return Case(contract=ADDRESS, problem=Problem(n=40), launcher=f"{FILE}:{name}", sealed=True)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(timeout=600, journal=Journal(tmp_path_factory.mktemp("journal") / "run.jsonl")) as pool:
        yield pool


@pytest.fixture
def sealed() -> Iterator[str]:
    yield f"{FILE}:right"
    sealing._sealed_files.clear(), sealing._folders.clear()


def judged(pool: WorkerPool, name: str, timeout: float = 60) -> Verdict:
    for slot in pool.slots.values():
        slot.timeout = timeout
    return pool.judge(case(name), TARGET)


def test_a_right_candidate_passes_and_its_file_is_imported_nowhere_else(pool: WorkerPool) -> None:
    verdict = judged(pool, "right")
    assert (verdict.decision, verdict.words) == (Decision.PASS, 40), verdict


@pytest.mark.parametrize(
    ("name", "outcome", "said"),
    [
        ("dies", Outcome.SEGMENTATION_FAULT, "the candidate's process died of SIGSEGV"),
        ("leaves", Outcome.LAUNCHER_ERROR, "the candidate's process left by exit"),
        ("sends_what_is_no_frame", Outcome.LAUNCHER_ERROR, "is no longer asked"),
        ("is_killed", Outcome.KILLED, "the candidate's process died of SIGKILL"),
        ("closes_its_channel", Outcome.LAUNCHER_ERROR, "the candidate's process"),
        ("fills_the_disk", Outcome.LAUNCHER_ERROR, "No space left on device"),
        ("forks_without_end", Outcome.LAUNCHER_ERROR, "Function not implemented"),
        ("refuses", Outcome.REFUSED, "ValueError: n = 40: not today"),
        ("writes_past_its_end_and_says_nothing", Outcome.STRAY_WRITE, "c_ptr"),
    ],
)
def test_what_a_candidate_does_is_a_failure_by_name(pool: WorkerPool, name: str, outcome: Outcome, said: str) -> None:
    needed = {"fills_the_disk": BUBBLEWRAP, "forks_without_end": SECCOMP}.get(name, "")
    if needed in protections().remedies:
        pytest.skip(f"{needed} is lacking here: {protections().remedies[needed]}")
    verdict = judged(pool, name)
    assert (verdict.decision, verdict.outcome) == (Decision.FAIL, outcome), verdict
    assert said in verdict.message


def test_a_candidate_that_takes_all_memory_has_its_own_limit_and_no_more(pool: WorkerPool) -> None:
    for name in ("takes_memory", "takes_device_memory"):
        verdict = judged(pool, name)
        assert (verdict.decision, verdict.outcome) == (Decision.INCONCLUSIVE, Outcome.OUT_OF_MEMORY), verdict


def test_a_candidate_that_prints_much_is_judged_like_any_other(pool: WorkerPool) -> None:
    assert judged(pool, "prints_much").decision is Decision.PASS
    assert sum(file.stat().st_size for file in pool.journal.path.parent.glob("*.log")) <= 2 * CANDIDATE.log


def test_a_candidate_without_an_end_is_a_timeout_and_the_next_is_judged(pool: WorkerPool) -> None:
    assert judged(pool, "right").decision is Decision.PASS
    verdict = judged(pool, "prints_without_end", timeout=0.7)
    assert verdict.outcome is Outcome.TIMEOUT and "in the candidate's process" in verdict.message
    assert judged(pool, "right").decision is Decision.PASS


def short_of_memory(where: Target) -> None:
    """What a worker prepares where the GPU is full."""
    raise MemoryError("CUDA out of memory")


def test_a_worker_that_could_not_warm_up_has_an_executor_all_the_same(pool: WorkerPool) -> None:
    """Or what stood in its way would be told as a wrong use of the command line, of each of its cases."""
    start = Start(name="short", prepare=f"{__name__}:{short_of_memory.__name__}")
    verdict = pool.judge(case("right"), TARGET, start=start)
    assert (verdict.decision, verdict.words) == (Decision.PASS, 40), verdict
    (standbys,) = (each for name, each in pool.standbys.items() if "short" in name)
    assert standbys.failures == ["MemoryError: CUDA out of memory"]


def test_a_worker_without_an_executor_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_side, "why_none", "JailDied: its zygote ended")
    with pytest.raises(judge_side.NoAnswer) as found:
        judge_side.ask_executor("launch", f"{FILE}:right", {}, {})()
    assert "its zygote ended" in found.value.seen.message and found.value.seen.details[PROCESS] == ZYGOTE, "another one is asked"


def test_a_candidate_says_in_its_own_process_what_it_takes(sealed: str) -> None:
    candidate_descriptions.begin(sealed)
    check_launcher(CONTRACT, sealed)
    assert claims_far(sealed)
    assert nearest(sealed, {"n": 40, "stride": 1}) == {"n": 40, "stride": 1}
    assert nearest(sealed, {"n": 43, "stride": 1}, ("n",)) == {"n": 40, "stride": 1}
    assert nearest(sealed, {"n": 40, "stride": 3}, ("n",)) is None
    with pytest.raises(UsageError, match="it is called in a process of its own alone"):
        load(sealed)(1, 2)
    with pytest.raises(UsageError, match="has no absent; it has"):
        load(sealed.replace(":right", ":absent"))
    with pytest.raises(UsageError, match="is sealed: a process of its own imports it"):
        import tests.support.sealed_vectors  # noqa: F401


def test_answers_of_any_number_come_whole(sealed: str) -> None:
    """A text of a verdict is cut at 4,000 characters. What `requires` says of a thousand cases is longer."""
    candidate_descriptions.begin(sealed)
    said = load(sealed).requires.ask([{"n": number, "stride": 1} for number in range(1000)])
    assert said == [number % 8 == 0 for number in range(1000)]


def test_a_candidate_that_was_imported_here_cannot_be_sealed(sealed: str, tmp_path: Path) -> None:
    (file := tmp_path / "trusted.py").write_text("def f(a, b):\n    return a\n")
    assert load(f"{file}:f")
    with pytest.raises(UsageError, match=r"this process has imported it as .*remove the import, and name"):
        sealing.seal(f"{file}:f")
    assert load(f"{file}:f")


def test_a_sealed_case_goes_through_its_record() -> None:
    record = case("right").to_json()
    assert record["sealed"] is True and "sealed" not in replace(case("right"), sealed=False).to_json()


def killed_zygote(kind: str) -> Jail | Executors:
    """The zygote of that kind for the candidates of `FILE`, of which nothing is left; earlier tests may have left others."""
    zygotes = [each for (name, folders), each in jails._zygotes.items() if name == kind and str(FILE.parent) in folders]
    zygote = zygotes[-1]
    pid = zygote._process.pid
    while Path(f"/proc/{pid}/exe").readlink().name == "bwrap":
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 300
    while zygote.alive():
        assert time.monotonic() < until
        time.sleep(0.01)
    return zygote


def test_where_a_zygote_dies_the_next_case_has_another(pool: WorkerPool) -> None:
    assert judged(pool, "right").decision is Decision.PASS
    dead = killed_zygote("_executors")
    assert judged(pool, "right").decision is Decision.PASS
    assert dead not in jails._zygotes.values()


@pytest.mark.parametrize("kind", ["_jail", "_executors"])
def test_a_case_over_which_a_zygote_dies_is_judged_once_more(pool: WorkerPool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(pool, "right").decision is Decision.PASS
    before = len(pool.journal.path.read_text().splitlines())
    dead, found = killed_zygote("_jail"), iter((True,))  # as if it died a moment later
    monkeypatch.setattr(dead, "alive", lambda: next(found, False))
    assert judged(pool, "right").decision is Decision.PASS
    again = [
        record for line in pool.journal.path.read_text().splitlines()[before:] if "again" in (record := json.loads(line)).values()
    ]
    assert [each["verdict"]["outcome"] for each in again] == ["error"]
    assert again[0]["verdict"]["message"].startswith("the jail ended: ")
