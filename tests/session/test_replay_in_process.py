"""Contract under test: ``replay --in-process`` launches where a debugger is, with the journal written and the way there said."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.replay import InThisProcess, debugger_lines, replay
from bitverdict.harness.workers.journal import Journal
from tests.faults.crashes.faulting_kernels import case as faulting
from tests.support.interrupts import unfinished_records
from tests.support.vector_add import HOST, case

CHECKOUT = Path(__file__).resolve().parents[2]


def stored(directory: Path, kind: str) -> Path:
    found = Verdict(decision=Decision.FAIL, outcome=Outcome(kind), basis=Basis.OBSERVED_FAULT)
    return reproducers.write(reproducers.reproducer_of(faulting(kind, faulty=True), "emulated:sm_90", found), directory)


def test_the_launch_is_in_this_process_after_the_journal_and_the_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    here = InThisProcess("bitverdict replay --in-process F", order.append, Journal(tmp_path / "j.jsonl"))

    def judged(given: object, where: object) -> Verdict:
        order.append(f"launched in {os.getpid()} with {len(unfinished_records(here.journal.path))} case out")
        return Verdict(decision=Decision.PASS, outcome=Outcome.PASS)

    monkeypatch.setattr("bitverdict.harness.judge.judge.judge", judged)
    assert here.judge(case(), HOST).decision is Decision.PASS
    assert f"in this process, {os.getpid()}" in order[0]
    assert order[-1] == f"launched in {os.getpid()} with 1 case out"
    assert unfinished_records(here.journal.path) == []


def test_a_fault_is_a_verdict_where_the_process_lives(tmp_path: Path) -> None:
    here = InThisProcess("", lambda line: None, Journal(tmp_path / "j.jsonl"))
    replayed = replay(stored(tmp_path, "misaligned address"), here)
    assert replayed.verdict.outcome is Outcome.MISALIGNED_ADDRESS


@pytest.mark.share(4)
def test_a_fault_that_kills_the_process_leaves_its_case_in_the_journal(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from bitverdict.harness.workers.journal import Journal; from "
        "bitverdict.harness.session.replay "
        "import InThisProcess; "
        "from tests.support.vector_add import HOST, case; "
        "InThisProcess('c', journal=Journal(Path(sys.argv[1]))).judge(case(fault='segfault'), HOST)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "j.jsonl")], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGSEGV and "gdb -p" in done.stdout
    assert [record["case"]["problem"]["fault"] for record in unfinished_records(tmp_path / "j.jsonl")] == ["segfault"]


@pytest.mark.share(4)
def test_the_command_says_how_to_attach_and_judges(tmp_path: Path) -> None:
    path = stored(tmp_path, "illegal instruction")
    command = [sys.executable, "-m", "bitverdict", "replay", "--in-process", str(path)]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, env=os.environ | {"BITVERDICT_STATE": str(tmp_path)}
    )
    assert done.returncode == 1, done.stderr
    assert "judged in this process" in done.stdout and "failed again" in done.stdout
    (journal,) = (tmp_path / "journal").glob("*.jsonl")
    assert [json.loads(line)["event"] for line in journal.read_text().splitlines()] == ["begin", "end"]


def test_a_gpu_is_come_to_by_its_own_tools() -> None:
    said = debugger_lines(7, "bitverdict replay --in-process F", emulated=False)
    assert said[0].endswith("cuda-gdb -p 7") and any("compute-sanitizer --tool memcheck bitverdict" in line for line in said)


@pytest.mark.share(4)
@pytest.mark.parametrize(("faulty", "debugger"), [(True, ""), (False, ""), (True, "IPython.core.debugger:Pdb")])
def test_a_debugger_opens_at_the_kernels_line_where_a_launch_faults(faulty: bool, debugger: str, tmp_path: Path) -> None:
    if debugger:
        pytest.importorskip("IPython", reason="IPython is not installed")
    words = ["--pdbcls", debugger] if debugger else []
    found = Verdict(decision=Decision.FAIL, outcome=Outcome.MISALIGNED_ADDRESS, basis=Basis.OBSERVED_FAULT)
    told = reproducers.reproducer_of(faulting("misaligned address", faulty=faulty), "emulated:sm_90", found)
    done = subprocess.run(
        [sys.executable, "-m", "bitverdict", "replay", "--pdb", *words, str(reproducers.write(told, tmp_path))],
        cwd=CHECKOUT,
        input="p sorted(locals())\nq\n" + "y\n" * bool(debugger),
        capture_output=True,
        text=True,
        env=os.environ | {"BITVERDICT_STATE": str(tmp_path)},
    )
    shown = re.sub(r"\x1b\[[\d;]*m", "", done.stdout)
    at_the_kernel = re.search(r"> \S+/faulting_kernels\.py\(\d+\)", shown) is not None
    assert at_the_kernel is faulty and (("ipdb>" if debugger else "(Pdb)") in shown) is faulty, done.stdout + done.stderr
    assert ("no fault ended the launch" in done.stdout) is not faulty
