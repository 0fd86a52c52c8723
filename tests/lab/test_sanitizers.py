"""Contract under test: what a sanitizer prints becomes a verdict by name and line; what was not asked is not run, never a pass."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.judge.classify import outcome_of, told_by_device
from bitverdict.harness.lab.sanitizers import runs
from bitverdict.harness.lab.sanitizers.runs import examine, merge_output
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import Task, task_result_of
from tests.faults import sanitizer_bait
from tests.support.fragile_gpu import FRAGILE
from tests.support.fragile_gpu import case as fragile_case
from tests.support.shares import in_this_run
from tests.workers.test_pool import runs as runs_still

ROOT = Path(__file__).parents[2]
HOPPER = Target("emulated:sm_90", "sm_90")
PASS = Verdict(decision=Decision.PASS, outcome=Outcome.PASS)
WRONG = Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS, message="out: 1 of 64 words differ")
ASSERTED = Verdict(decision=Decision.FAIL, outcome=Outcome.DEVICE_ASSERT, message="device assert")
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
STORE = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at shifted_copy_kernel+0x250 in sanitizer_bait.py:35
=========     by thread (31,0,0) in block (0,0,0)
========= ERROR SUMMARY: 2 errors
"""
RACES = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at kernel+0x80 in ring.py:12
=========     and Read access at kernel+0x120 in ring.py:19 [256 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
ASKED = """========= COMPUTE-SANITIZER
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API call to cuFuncSetAttribute.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: loadBinary [0x4c33] in cuda_utils.so
=========         Host Frame: _init_handles in compiler.py:483
=========
========= ERROR SUMMARY: 1 error
"""
ELSEWHERE = ASKED.replace("loadBinary", "launchKernel").replace("_init_handles in compiler.py", "run in jit.py")
BOTH = ASKED.partition("========= ERROR SUMMARY")[0] + STORE.partition("\n")[2].replace("2 errors", "3 errors")
REFUSED = Verdict(decision=Decision.FAIL, outcome=Outcome.LAUNCHER_ERROR, message="Triton Error [CUDA]: invalid argument")
DIED = Verdict(
    decision=Decision.FAIL, outcome=Outcome.SEGMENTATION_FAULT, message="the process died of SIGSEGV", details={"status": -11}
)
FAULTED = Verdict(decision=Decision.FAIL, outcome=Outcome.LAUNCH_FAILURE, message="launch failure")
CONSAN = (
    f"{ROOT}/kernels/hopper_matmul.py:176: kernel: block: [0,0,0] Assertion `Buffer being accessed has outstanding writes` failed."
)


@pytest.mark.parametrize(
    ("mode", "judged", "said", "outcome", "location"),
    [
        ("memcheck", PASS, CLEAN, "pass", ""),
        ("memcheck", WRONG, CLEAN, "wrong words", ""),
        ("memcheck", PASS, STORE, "illegal address", "sanitizer_bait.py:35"),
        ("memcheck", DIED, STORE, "illegal address", "sanitizer_bait.py:35"),
        (
            "memcheck",
            WRONG,
            STORE.replace("Invalid __global__ write", "Misaligned Shared or Local address; store"),
            "misaligned address",
            "sanitizer_bait.py:35",
        ),
        (
            "memcheck",
            DIED,
            STORE.replace("Invalid __global__ write of size 4 bytes", "Illegal instruction"),
            "illegal instruction",
            "sanitizer_bait.py:35",
        ),
        (
            "memcheck",
            PASS,
            STORE.replace("Invalid __global__ write of size 4 bytes", "Program hit an error of its own"),
            "launch failure",
            "",
        ),
        ("memcheck", PASS, ASKED, "pass", ""),
        ("memcheck", WRONG, ASKED, "wrong words", ""),
        ("memcheck", REFUSED, ASKED.replace("1 error", "2 errors"), "launch failure", ""),
        ("memcheck", REFUSED, ASKED, "launcher error", ""),
        ("memcheck", PASS, ELSEWHERE, "launch failure", ""),
        ("memcheck", PASS, ASKED.replace("cuFuncSetAttribute", "cuLaunchKernelEx"), "launch failure", ""),
        ("memcheck", PASS, ASKED.replace("SUMMARY: 1 error", "SUMMARY: 2 errors"), "launch failure", ""),
        ("memcheck", PASS, BOTH, "illegal address", "sanitizer_bait.py:35"),
        ("racecheck", PASS, RACES, "race", "ring.py:12"),
        (
            "racecheck",
            PASS,
            CLEAN.replace("ERROR SUMMARY: 0 errors", "RACECHECK SUMMARY: 0 hazards displayed (0 errors)"),
            "pass",
            "",
        ),
        ("consan", ASSERTED, CONSAN, "device assert", "kernels/hopper_matmul.py:176"),
        ("consan", DIED, CONSAN, "device assert", "kernels/hopper_matmul.py:176"),
        ("consan", FAULTED, CONSAN, "device assert", "kernels/hopper_matmul.py:176"),
        ("consan", FAULTED, "", "launch failure", ""),
        ("consan", WRONG, CONSAN, "wrong words", ""),
        ("bare", ASSERTED, "", "device assert", ""),
        ("bare", WRONG, STORE, "wrong words", ""),
        ("fpsan", WRONG, "", "pass", ""),
        ("fpsan", ASSERTED, CONSAN, "device assert", "kernels/hopper_matmul.py:176"),
    ],
)
def test_what_is_printed_becomes_a_verdict(mode: str, judged: Verdict, said: str, outcome: str, location: str) -> None:
    found = merge_output(mode, judged, said)
    assert (found.outcome, found.location) == (outcome, location)
    assert found.failed is (outcome != "pass")


def test_what_tritons_loader_asks_is_told_beside_the_verdict() -> None:
    """It sends no case to a worker of its own."""
    assert merge_output("memcheck", PASS, ASKED).details["besides"] == runs.BESIDES
    assert "besides" not in merge_output("memcheck", PASS, CLEAN).details
    assert runs.is_clean_summary(ASKED)
    assert not any(map(runs.is_clean_summary, (ELSEWHERE, BOTH, STORE, "")))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("========= Error: Device not supported. Please refer to the documentation\n", "Device not supported"),
        ("========= Unable to attach to the process\n", "Unable to attach"),
        ("nothing of the kind", "it printed no summary"),
        ("", "it printed no summary"),
        ("========= Failed to initialize the tool\n========= ERROR SUMMARY: 1 error\n", "Failed to initialize"),
    ],
)
def test_a_refusal_of_compute_sanitizer_is_shown_and_is_no_pass(said: str, why: str) -> None:
    found = merge_output("memcheck", PASS, said)
    assert (found.decision, found.outcome) == (Decision.NOT_RUN, Outcome.NOT_RUN)
    assert why in found.message and found.details["said"] == said.splitlines()


@pytest.mark.parametrize(("text", "outcome"), [(CLEAN, "pass"), (STORE, "illegal address")])
def test_a_summary_behind_a_line_that_nobody_ended_is_read(text: str, outcome: str) -> None:
    assert merge_output("memcheck", PASS, "See https://nanobind.readthedocs.io/en/latest/refleaks.html" + text).outcome == outcome
    first, *rest = text.splitlines(keepends=True)
    assert merge_output("memcheck", PASS, first + "a last line" + "".join(rest)).outcome == outcome


def test_a_worker_that_dies_in_silence_is_told_by_how_it_died() -> None:
    assert merge_output("iisan", DIED, "Traceback") == merge_output("memcheck", DIED, CLEAN) == DIED


def test_a_tool_that_starts_nothing_is_not_run_by_what_it_printed() -> None:
    never = Verdict(decision=Decision.ERROR, outcome=Outcome.ERROR, message="3 processes died", details={"layer": "machine"})
    found = merge_output("memcheck", never, "========= Error: Device not supported. Please refer to the documentation\n")
    assert found.decision is Decision.NOT_RUN and "Device not supported" in found.message and found.details["judge"] == ""


def test_fpsan_s_words_rest_on_nothing() -> None:
    assert merge_output("fpsan", PASS, "").basis == "nothing"


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("CUDA error: unspecified launch failure", Outcome.LAUNCH_FAILURE),
        ("CUDA error: device-side assert triggered", Outcome.DEVICE_ASSERT),
        ("CUDA error: an illegal instruction was encountered", Outcome.ILLEGAL_INSTRUCTION),
        ("CUDA error: misaligned address", Outcome.MISALIGNED_ADDRESS),
        ("CUDA error: an unheard-of failure", None),
    ],
)
def test_a_fault_is_named_by_the_first_line_and_not_by_torch_s_advice(said: str, outcome: Outcome | None) -> None:
    text = f"{said}\nFor debugging consider passing X=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
    assert told_by_device(text) == outcome
    assert outcome_of(RuntimeError(text)).outcome == (outcome or Outcome.LAUNCHER_ERROR)


def test_a_descriptor_that_the_driver_refuses_is_a_refusal() -> None:
    seen = outcome_of(RuntimeError("Triton Error [CUDA]: Failed to create tensor map descriptor: invalid argument"))
    assert (seen.outcome, seen.layer) == (Outcome.REFUSED, "driver")


def test_the_bait_fails_in_a_worker_by_the_line_of_its_store() -> None:
    [_, bait] = sanitizer_bait.CONTRACT.required(HOPPER)
    found = examine(bait, HOPPER, "iisan", timeout=600)
    assert found.outcome is Outcome.ILLEGAL_ADDRESS and found.location.startswith("tests/faults/sanitizer_bait.py:")


def test_cases_of_one_worker_are_told_apart(tmp_path: Path) -> None:
    """A worker that dies takes no other case with it."""
    innocent, bait = sanitizer_bait.CONTRACT.required(HOPPER)
    deadly = tmp_path / "deadly.py"
    deadly.write_text(
        "import os\nfrom tests.faults import sanitizer_bait\n\n\n"
        "class Deadly(sanitizer_bait.BaitContract):\n    def launch(self, *given):\n        os._exit(7)\n\n\n"
        "CONTRACT = Deadly()\nCONTRACT.case_from_json = lambda r: "
        "sanitizer_bait.CONTRACT.case_from_json(r)\n"
    )
    dead = replace(innocent, contract=f"{deadly}:CONTRACT")
    found = runs.examine_together([innocent, bait, dead, innocent], HOPPER, "bare", timeout=600)
    assert [v.outcome for v in found] == [Outcome.PASS, Outcome.ILLEGAL_ADDRESS, Outcome.LAUNCHER_ERROR, Outcome.PASS]
    assert found[2].details["status"] == 7


def test_a_case_that_never_answers_is_a_timeout_and_the_next_is_judged(tmp_path: Path) -> None:
    [innocent, _] = sanitizer_bait.CONTRACT.required(HOPPER)
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time\nfrom tests.faults import sanitizer_bait\n\n\n"
        "class Slow(sanitizer_bait.BaitContract):\n    def launch(self, *given):\n        time.sleep(600)\n\n\n"
        "CONTRACT = Slow()\n"
    )
    found = runs.examine_together([replace(innocent, contract=f"{slow}:CONTRACT"), innocent], HOPPER, "bare", timeout=4)
    assert [v.outcome for v in found] == [Outcome.TIMEOUT, Outcome.PASS]


TOOL = """
import subprocess, sys
print("========= COMPUTE-SANITIZER", flush=True)
words = sys.argv[sys.argv.index("20") + 1 :]
open({asked!r}, "a").write(sys.argv[2] + "\\n")
status = subprocess.run(words).returncode  # a tool is the parent of what it watches
print({printed!r}, flush=True)
sys.exit(status)
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Stands a program in for compute-sanitizer that prints a text at the end; the tools that were started, one a worker."""
    started = tmp_path / "started"
    started.touch()
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def stands_in(printed: str) -> Callable[[], list[str]]:
        program = tmp_path / "compute-sanitizer"
        text = TOOL.format(asked=str(started), printed=printed.partition("\n")[2])
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(0o755)
        return lambda: started.read_text().split()

    return stands_in


@pytest.mark.parametrize(("printed", "cases", "workers"), [(CLEAN, 2, 1), (STORE, 2, 3), ("", 1, 1)])
def test_what_a_tool_finds_among_several_is_looked_for_in_each_alone(
    tool: Callable[[str], Callable[[], list[str]]], printed: str, cases: int, workers: int
) -> None:
    """The worker is a program under the tool, on a target that is not emulated: the tool's end is in what it printed."""
    started = tool(printed)
    found = runs.examine_together([fragile_case(n=n) for n in range(cases)], FRAGILE, "memcheck", timeout=600)
    assert started() == ["memcheck"] * workers
    assert {str(v.outcome) for v in found} == {{CLEAN: "pass", STORE: "illegal address", "": "not run"}[printed]}


@pytest.mark.parametrize(
    ("does", "outcome"),
    [
        (does, outcome)
        for does, outcome in (("fault", "illegal instruction"), ("leave", "launcher error"))
        if in_this_run(f"under a tool {does}", 2, in_ci=2)
    ],
)
def test_a_fault_under_a_tool_is_told_and_the_others_are_judged(
    tool: Callable[[str], Callable[[], list[str]]], does: str, outcome: str
) -> None:
    tool(CLEAN)
    found = runs.examine_together([fragile_case(n=1), fragile_case(does)], FRAGILE, "memcheck", timeout=600)
    assert [str(v.outcome) for v in found] == ["pass", outcome]


def test_a_hang_under_a_tool_is_told_with_its_line_and_leaves_no_process(
    tool: Callable[[str], Callable[[], list[str]]], tmp_path: Path
) -> None:
    """The line: the tool's process is not the one that hangs."""
    tool(CLEAN)
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import os, time\nfrom tests.support import fragile_gpu\n\n\n"
        "class Slow(type(fragile_gpu.CONTRACT)):\n    def launch(self, *given):\n"
        f"        open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n        time.sleep(600)\n\n\nCONTRACT = Slow()\n"
    )
    found = examine(replace(fragile_case(), contract=f"{slow}:CONTRACT"), FRAGILE, "memcheck", timeout=4)
    assert (found.outcome, found.location) == (Outcome.TIMEOUT, "slow.py:8")
    deadline = time.monotonic() + 300
    while runs_still(int((tmp_path / "pid").read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


KILLED = """
import sys
from bitverdict.harness.lab.sanitizers.runs import examine
from dataclasses import replace
from tests.support.fragile_gpu import FRAGILE, case

examine(replace(case(), contract=sys.argv[1]), FRAGILE, "memcheck", timeout=600)
"""


def test_a_run_that_is_killed_leaves_no_tool_and_no_program(tool: Callable[[str], Callable[[], list[str]]], tmp_path: Path) -> None:
    tool(CLEAN)
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import os, time\nfrom tests.support import fragile_gpu\n\n\n"
        "class Slow(type(fragile_gpu.CONTRACT)):\n    def launch(self, *given):\n"
        f"        open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}} {{os.getppid()}} ')\n        time.sleep(600)\n\n\n"
        "CONTRACT = Slow()\n"
    )
    run = subprocess.Popen([sys.executable, "-c", KILLED, f"{slow}:CONTRACT"], cwd=ROOT)
    deadline = time.monotonic() + 300
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith(" "):
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.05)
    run.kill()
    run.wait()
    left = [int(pid) for pid in (tmp_path / "pid").read_text().split()]
    while any(map(runs_still, left)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_each_mode_is_in_the_worker_s_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_INSTRUMENTATION_MODE", "consan")
    told_by = Task(function="tests.support.worker_tasks:variables", contract="")
    with WorkerPool(journal=Journal(tmp_path / "j.jsonl")) as pool:
        for mode in ("bare", "iisan"):
            start = runs.start_of(HOPPER, mode, "", 1)
            found = task_result_of(pool.judge(told_by, HOPPER, start=start))
            assert found["TRITON_INSTRUMENTATION_MODE"] == ("" if mode == "bare" else mode)
        assert task_result_of(pool.judge(told_by, HOPPER))["TRITON_INSTRUMENTATION_MODE"] == "consan"
        assert len({slot.process.pid for slot in pool.slots.values()}) == 3
        assert pool.release(HOPPER, start=runs.start_of(HOPPER, "iisan", "", 1)) == [] and len(pool.slots) == 2


def test_a_kernel_that_lacks_something_is_not_run_with_the_reason() -> None:
    missing = runs.check_features("tma_gather", HOPPER)
    assert missing is not None and missing.decision is Decision.NOT_RUN and "TMA gather4" in missing.message
    assert runs.check_features("hopper_matmul", HOPPER) is None and len(runs.choose_cases("tma_gather", HOPPER, None)) == 1


def test_what_a_target_lacks_is_not_run_and_an_unknown_mode_is_an_error() -> None:
    case = sanitizer_bait.CONTRACT.required(HOPPER)[0]
    for mode in ("consan", "fpsan", "memcheck", "racecheck"):
        assert examine(case, HOPPER, mode).decision is Decision.NOT_RUN
    with pytest.raises(ValueError, match="one of bare, iisan"):
        examine(case, HOPPER, "msan")
