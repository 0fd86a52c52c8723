"""Contract under test: a user's file neither ends nor forks the run, Ctrl-C is quiet, and in the background it is ignored."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from tests.support.interrupts import answering
from tests.support.vector_add import HOST, case

CHECKOUT = Path(__file__).resolve().parents[2]
ADD = "tests.support.vector_add"
LOADS = """
import os, sys
from bitverdict.harness.model.supervision import supervise

def command():
    from bitverdict.harness.model.addresses import load
    load(sys.argv[1])
    print("loaded", flush=True)
    return 0

os._exit(supervise(command))
"""


def loaded(line: str, directory: Path) -> tuple[int, str, str]:
    """Status, output and errors of a supervised command that imports a file of the user's with `line` on its top."""
    (directory / "mine.py").write_text(f"import os, sys\n{line}\nNAME = 3\n")
    command = [sys.executable, "-c", LOADS, f"{directory / 'mine.py'}:NAME"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stdout, done.stderr


def harness(*words: str, state: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "bitverdict", *words]
    environment = os.environ | {"BITVERDICT_STATE": str(state)}
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def judged(words: list[str], state: Path) -> tuple[int, str, str]:
    run = harness("run", "--target", "emulated:sm_90", "--max-cases", "3", "--jobs", "1", *words, state=state)
    out, error = run.communicate(timeout=600)
    return run.returncode, out, error


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("os._exit(0)", "left with exit status 0"),
        ("os._exit(9)", "left with exit status 9"),
        ("os.kill(os.getpid(), 11)", "ended by SIGSEGV"),
        ("if os.fork(): os._exit(0)", "left with exit status 0"),
    ],
)
def test_a_file_that_ends_its_process_is_a_usage_error_by_name(line: str, how: str, tmp_path: Path) -> None:
    status, out, error = loaded(line, tmp_path)
    assert (status, out) == (2, "")
    assert re.fullmatch(rf"error: address '.*mine.py:NAME': importing mine.py: the process {how}; fix the file\n", error)


@pytest.mark.parametrize("line", ["", "os.fork()", "if not os.fork(): sys.exit(0)", "if not os.fork(): 1 / 0"])
def test_a_file_that_forks_its_process_goes_on_once(line: str, tmp_path: Path) -> None:
    assert loaded(line, tmp_path) == (0, "loaded\n", "")


@pytest.mark.parametrize("line", ["sys.exit(0)", "1 / 0", "x ="])
def test_a_file_that_raises_is_told_with_its_line_by_the_command(line: str, tmp_path: Path) -> None:
    status, _, error = loaded(line, tmp_path)
    assert status != 0 and "cannot be imported" in error and "line 2" in error


ENDS = """
import os, sys
from bitverdict.harness.model.supervision import supervise
os._exit(supervise(lambda: {ends}))
"""


@pytest.mark.parametrize(
    ("ends", "status", "error"),
    [
        ("0", 0, ""),
        ("3", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(2)", 2, ""),
        ("sys.exit('words')", 1, ""),
        ("print('x') or 0", 3, "error: standard output cannot be written (No space left on device); free space there\n"),
    ],
)
def test_the_exit_status_is_that_of_the_command(ends: str, status: int, error: str) -> None:
    """With a standard output that takes nothing: only who prints is told of it."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", ENDS.format(ends=ends)]
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(command, cwd=CHECKOUT, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=buffered)
    assert (done.returncode, done.stderr) == (status, error)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nothing_takes_is_one_sentence_and_status_3(unbuffered: str, tmp_path: Path) -> None:
    """Unbuffered, the first print raises; otherwise the last flush does."""
    environ = os.environ | {"BITVERDICT_STATE": str(tmp_path), "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "bitverdict", "targets"]
        done = subprocess.run(command, cwd=CHECKOUT, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environ)
    assert done.returncode == 3 and "No space left on device" in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.share(4)
def test_words_that_the_command_line_does_not_know_are_status_2(tmp_path: Path) -> None:
    run = harness("rnu", state=tmp_path)
    out, error = run.communicate(timeout=600)
    assert (run.returncode, out) == (2, "") and error.startswith("usage: ") and error.endswith("(did you mean 'run'?)\n")


@pytest.mark.share(4)
def test_a_reader_that_goes_away_ends_the_output_and_not_the_status(tmp_path: Path) -> None:
    run = harness("targets", state=tmp_path)
    assert run.stdout is not None
    run.stdout.close()
    assert run.wait(600) in (0, 3)
    assert run.stderr is not None and run.stderr.read() == ""


@pytest.mark.share(4)
def test_a_launcher_that_ends_its_process_ends_the_run_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\nos._exit(0)\ndef add(a, b): ...\n")
    status, out, error = judged(["--contract", f"{ADD}:CONTRACT", "--launcher", f"{tmp_path / 'mine.py'}:add"], tmp_path / "state")
    assert (status, out) == (2, "") and "importing mine.py: the process left with exit status 0; fix the file" in error


@pytest.mark.share(4)
def test_the_process_that_was_started_imports_no_file_of_the_users(tmp_path: Path) -> None:
    """Nor does a fork of the file's show in the report."""
    mine = tmp_path / "mine.py"
    note = f"print(os.getpid(), file=open({str(tmp_path / 'importers')!r}, 'a'))"
    mine.write_text(f"import os\n{note}\nos.fork()\nfrom {ADD} import VectorAdd\nCONTRACT = VectorAdd()\n")
    mine.write_text(mine.read_text() + "CONTRACT.address = __file__ + ':CONTRACT'\n")
    words = ["--contract", f"{mine}:CONTRACT", "--target", "emulated:sm_90", "--max-cases", "3", "--jobs", "1"]
    run = harness("run", *words, state=tmp_path / "state")
    out, error = run.communicate(timeout=600)
    assert (
        (run.returncode, error) == (0, "") and out.count("3 cases judged") == out.count("-v for the table") == 1 and "3 pass" in out
    )
    importers = (tmp_path / "importers").read_text().split()
    assert len(importers) >= 2 and str(run.pid) not in importers


FORKS = """import os
from tests.support.vector_add import add_by_torch


def alone(a, b):
    return add_by_torch(a, b)


def forked(a, b):
    c = add_by_torch(a, b)
    if not os.fork():
        c[:] = 0
    return c


def forked_and_raised(a, b):
    if not os.fork():
        raise ValueError("of the fork")
    return add_by_torch(a, b)


def left_to_its_fork(a, b):
    if os.fork():
        os._exit(0)
    return add_by_torch(a, b)
"""


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("alone", Outcome.PASS),
        ("forked", Outcome.PASS),
        ("forked_and_raised", Outcome.PASS),
        ("left_to_its_fork", Outcome.LAUNCHER_ERROR),
    ],
)
def test_only_the_process_that_was_asked_answers(name: str, outcome: Outcome, tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(FORKS)
    with WorkerPool(journal=Journal(tmp_path / "j.jsonl")) as pool:
        for n in (20, 30, 40):  # an answer too many would be taken for that to the next case
            verdict = pool.judge(case(n, launcher=f"{tmp_path / 'forks.py'}:{name}"), HOST)
            assert verdict.outcome is outcome, verdict
            assert verdict.words == (n if outcome is Outcome.PASS else 0)
            assert pool.judge(case(n, fault="wrong"), HOST).decision is Decision.FAIL


@pytest.mark.share(4)
def test_a_run_whose_process_is_killed_says_how_to_go_on(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run = harness("run", "--contract", f"{ADD}:HANGS", "--target", "emulated:sm_90", "--jobs", "1", state=state)
    deadline = time.monotonic() + 300
    while not any("begin" in path.read_text() for path in state.glob("journal/*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    (own,) = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    os.kill(int(own), signal.SIGKILL)
    _, error = run.communicate(timeout=600)
    assert run.returncode == 3
    assert "error: the process of the run ended by SIGKILL before its end; `run --resume` goes on with what it judged\n" in error


def below(run: int, part: str, text: str) -> bool:
    """Whether the file `part` of /proc/PID of a process below `run`, or of its own, has the text."""
    processes = [run]
    for process in processes:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{process}/task").iterdir():  # any thread of the run may start it
                processes += map(int, (thread / "children").read_text().split())
            if text in Path(f"/proc/{process}/{part}").read_text():
                return True
    return False


@pytest.mark.parametrize(
    ("part", "text"), [("maps", "libtorch_cpu"), ("comm", "bv-workers")], ids=["torch's library", "the server of the workers"]
)
@pytest.mark.share(4)
def test_ctrl_c_while_modules_are_imported_is_quiet(part: str, text: str, tmp_path: Path) -> None:
    """To the whole group, as a terminal sends it: by then the run imports its modules, or the server of its workers does."""
    with answering():
        run = subprocess.Popen(
            [sys.executable, "-m", "bitverdict", "run", "small_mma", "--target", "emulated:sm_100", "--jobs", "1"],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"BITVERDICT_STATE": str(tmp_path)},
        )
    while not below(run.pid, part, text):
        assert run.poll() is None
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)
    begun = time.monotonic()
    assert run.wait(600) == 3 and time.monotonic() - begun < 60
    out, error = run.communicate(timeout=600)
    if not out:
        assert error in ("cancelled before anything was judged\n", "cancelled\n")  # the second: the command had begun, and no case
    else:  # a slow look at the processes lets the run judge some cases first: it tells of them
        assert "cancelled" in out + error and "Traceback" not in out + error


TWICE = """
import atexit, os, signal, sys
from bitverdict.harness.model.supervision import supervise
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
os._exit(supervise(lambda: 3))
"""


@pytest.mark.share(4)
def test_ctrl_c_during_the_last_steps_adds_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


@pytest.mark.share(4)
def test_in_the_background_a_run_is_not_cancelled_by_sigint(tmp_path: Path) -> None:
    """Where SIGINT is ignored from the start. That it cancels elsewhere: test_command_line."""
    with answering(signal.SIG_IGN):
        words = ["--contract", f"{ADD}:CONTRACT", "--target", "emulated:sm_90", "--max-cases", "12", "--jobs", "1"]
        run = harness("run", *words, state=tmp_path)
    while run.poll() is None:
        if any("begin" in path.read_text() for path in tmp_path.glob("journal/*.jsonl")):
            run.send_signal(signal.SIGINT)
            break
        time.sleep(0.01)
    out, error = run.communicate(timeout=600)
    assert (run.returncode, error) == (0, "") and "cancelled" not in out
