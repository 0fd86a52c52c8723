"""Contract under test: what the machine does not let the harness do is status 3 and one sentence; no kernel is blamed for it."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from triton import knobs

from bitverdict.harness.frontends import pytest_plugin
from bitverdict.harness.frontends.main import main
from bitverdict.harness.frontends.pytest_nodes import Node, NodeJudge
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.machine_faults import MachineFault, missing_tools, writing
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.harness.session import reproducers
from tests.support.vector_add import HOST, VectorAdd, case

ADD = "tests.support.vector_add"
CHECKOUT = Path(__file__).resolve().parents[2]
TORCH = ["run", "--contract", f"{ADD}:CONTRACT", "--launcher", f"{ADD}:add_by_torch", "--target", "emulated:sm_90", "--jobs", "1"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    (tmp_path / "file").write_text("no directory")
    return tmp_path / "state"


def one_sentence(capsys: pytest.CaptureFixture) -> str:
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("error: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize(("place", "status"), [("file/cache", 3), ("new/cache", 0)])
def test_a_compilers_cache_that_cannot_be_made_is_told_before_a_run(
    place: str, status: int, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / place))
    assert main([*TORCH, "--max-cases", "3"]) == status
    if status:
        said = one_sentence(capsys)
        assert f"compiler's cache {tmp_path / place}: cannot be written (Not a directory); set TRITON_CACHE_DIR" in said
        assert not state.exists()


@pytest.mark.parametrize(("place", "status"), [("file", 3), ("file/below", 3), ("new/below", 0)])
def test_a_state_directory_that_cannot_be_written_is_told_before_a_run(
    place: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / place))
    assert main([*TORCH, "--max-cases", "3"]) == status
    if status:
        said = one_sentence(capsys)
        assert f"journal {tmp_path / place}" in said and "set BITVERDICT_STATE to a directory that can be written" in said


def limited(words: list[str], size: int) -> subprocess.CompletedProcess:
    """The command where no file may grow beyond `size` bytes: what a disk does that fills up in the middle."""
    command = [sys.executable, "-m", "bitverdict", *words]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, preexec_fn=limit)


@pytest.mark.parametrize(("size", "status"), [(6_000, 3), (6_000_000, 0)])
@pytest.mark.share(4)
def test_a_disk_that_fills_up_in_the_middle_stops_the_run(size: int, status: int) -> None:
    done = limited(TORCH, size)
    assert done.returncode == status and done.stderr == "", done.stderr
    last = done.stdout.splitlines()[-1]
    assert "fail" not in last and " pass" in last
    assert ("; stopped: journal " in last and "cannot be written (File too large)" in last) is (status == 3)


def test_a_full_disk_for_the_results_is_told_with_their_option(capsys: pytest.CaptureFixture) -> None:
    assert main([*TORCH, "--max-cases", "3", "--json", "/dev/full"]) == 3
    said = "--json /dev/full: cannot be written (No space left on device); free space there, or name another file"
    assert said in one_sentence(capsys)


def test_a_bug_whose_file_cannot_be_stored_is_shown_all_the_same(state: Path, capsys: pytest.CaptureFixture) -> None:
    state.mkdir()
    (state / "failures").write_text("no directory")
    words = ["run", "--contract", f"{ADD}:WRONG", "--target", "emulated:sm_90", "--jobs", "1", "--max-cases", "4"]
    assert main([*words, "--shrink-seconds", "0"]) == 1
    out = capsys.readouterr().out
    assert "FAIL" in out and "(not stored: reproducer " in out and "stopped: reproducer " in out.splitlines()[-1]


def test_a_node_of_pytest_tells_the_same(node_judge: NodeJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        with writing("journal", tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(node_judge.pool.journal, "begin", full)
    with pytest.raises(pytest.fail.Exception, match=r"^error: journal .*: cannot be written \(No space left on device\); free"):
        node_judge.hold(Node(f"{ADD}:CONTRACT", "emulated:sm_90"), [])


class Raises(VectorAdd):
    """Its launch calls `inserted`."""

    def __init__(self, inserted: Callable[[], object]) -> None:
        super().__init__()
        self.inserted = inserted

    def launch(self, case, tensors, launcher):
        self.inserted()
        return super().launch(case, tensors, launcher)


def raising(error: str, file: str = "kernels/x.py") -> Callable[[], object]:
    names: dict = {"json": json}
    exec(compile(f"def inserted():\n    {error}", str(CHECKOUT / file), "exec"), names)
    return names["inserted"]


class PTXASError(Exception):
    """As Triton's, by name."""


CACHE, COMPILER = "site-packages/triton/runtime/cache.py", "site-packages/triton/compiler/compiler.py"
OF_THE_MACHINE = [
    raising(f"raise OSError({errno.ENOSPC}, 'No space left on device', 'x')"),
    raising(f"raise OSError({errno.EMFILE}, 'Too many open files')"),
    raising(f"raise OSError({errno.EROFS}, 'Read-only file system', 'x')"),
    raising("open('/dev/full', 'w').write('x' * 100000)"),
    raising("raise RuntimeError('ptxas fatal: Internal error: writing file: No space left on device')"),
    raising("raise RuntimeError('Failed to find C compiler. Please specify via CC environment variable.')"),
    raising("raise RuntimeError('Cannot find ptxas')", "site-packages/triton/knobs.py"),
    raising(f"raise PermissionError({errno.EACCES}, 'Permission denied', 'x')", CACHE),
    raising(f"raise NotADirectoryError({errno.ENOTDIR}, 'Not a directory', 'x')", CACHE),
    raising("json.loads('{')", COMPILER),
]
OF_THE_LAUNCHER = [
    raising("raise RuntimeError('Cannot find weights')"),
    raising(f"raise PermissionError({errno.EACCES}, 'Permission denied', 'x')"),
    raising("open('/no/such/file')"),
    raising("json.loads('{')"),
    raising("json.loads('{')", "site-packages/other/reader.py"),
    raising(f"raise PermissionError({errno.EACCES}, 'Permission denied', 'x')", "site-packages/other/cache.py"),
]


@pytest.mark.parametrize("inserted", OF_THE_MACHINE)
def test_a_fault_of_the_machine_in_a_launch_is_an_error(inserted: Callable[[], object]) -> None:
    verdict = judge(case(), HOST, Raises(inserted))
    assert (verdict.decision, verdict.outcome) == (Decision.ERROR, Outcome.ERROR)
    assert verdict.message.startswith("the machine failed: ") and verdict.details["layer"] == "machine"


@pytest.mark.parametrize("inserted", OF_THE_LAUNCHER)
def test_a_file_that_the_launcher_cannot_open_is_its_own_fault(inserted: Callable[[], object]) -> None:
    assert judge(case(), HOST, Raises(inserted)).failed


def test_what_ptxas_says_of_a_full_disk_is_no_refusal() -> None:
    def refuses() -> None:
        raise PTXASError("`ptxas` failed with error code 255:\nptxas fatal : Could not write: No space left on device")

    def refused() -> None:
        raise PTXASError("`ptxas` failed with error code 255:\nptxas fatal : syntax error")

    assert judge(case(), HOST, Raises(refuses)).decision is Decision.ERROR
    assert judge(case(), HOST, Raises(refused)).outcome is Outcome.REFUSED


READ_ONLY = """
import errno, os, sys

def refuse(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir"):
        path, writes = arguments[0], arguments[-1] == -1  # below no directory that is open
    else:
        return
    if writes and isinstance(path, (str, bytes)) and os.path.abspath(os.fsdecode(path)).startswith({checkout!r} + os.sep):
        raise OSError(errno.EROFS, "Read-only file system", path)

sys.addaudithook(refuse)
"""


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.share(4)
def test_a_read_only_checkout_serves_where_the_state_lies_elsewhere(elsewhere: bool, tmp_path: Path) -> None:
    """Every process of the run is refused each write below the checkout, as a read-only mount would."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(READ_ONLY.format(checkout=str(CHECKOUT)))
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "PYTHONPYCACHEPREFIX": ""}
    if not elsewhere:
        del environment["BITVERDICT_STATE"]
    words = ["run", "--contract", f"{ADD}:CONTRACT", "--target", "emulated:sm_90", "--jobs", "1", "--max-cases", "5"]
    command = [sys.executable, "-m", "bitverdict", *words]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, env=environment)
    if elsewhere:
        assert (done.returncode, done.stderr) == (0, "") and "5 pass" in done.stdout
    else:
        assert done.returncode == 3 and "cannot be written (Read-only file system); free space there, or" in done.stderr


def test_what_the_harness_raises_itself_is_status_3_with_its_traceback(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Also a ValueError: only what is meant for the person who asked is a usage error."""

    def raises(error: Exception) -> Callable:
        def checked(*_: object) -> None:
            raise error

        return checked

    for error, status in ((ValueError("of ours"), 3), (KeyError("of ours"), 3), (UsageError("of yours; mend it"), 2)):
        monkeypatch.setattr("bitverdict.harness.frontends.cli_run.check_arguments", raises(error))
        assert main(["run"]) == status
        said = one_sentence(capsys)
        if status == 2:
            assert said == "error: of yours; mend it\n"
            continue
        assert "which is no fault of a kernel; its traceback is in " in said and type(error).__name__ in said
        path = Path(said.rpartition(" in ")[2].strip())
        assert path.parent == state / "errors" and "def " not in said and "Traceback" in path.read_text()
        path.unlink()


def test_a_half_written_record_is_written_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is nearly full takes a part of what it is given, and says so by a count alone."""
    from bitverdict.harness.workers.journal import Journal, records

    write = os.write
    monkeypatch.setattr("bitverdict.harness.workers.journal.os.write", lambda descriptor, data: write(descriptor, data[:7]))
    journal = Journal(tmp_path / "j.jsonl")
    journal.note("asked", words="enough of them")
    monkeypatch.undo()
    assert [record["words"] for record in records(journal.path)] == ["enough of them"]


def test_a_reproducer_on_a_full_disk_leaves_no_part_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    seed = reproducers.reproducer_of(case(), "host", judge(case(fault="wrong"), HOST))
    monkeypatch.setattr("bitverdict.harness.session.reproducers.os.replace", full)
    with pytest.raises(MachineFault, match=r"cannot be written \(No space left on device\)"):
        reproducers.write(seed, tmp_path / "failures")
    assert not list((tmp_path / "failures").iterdir())


@pytest.mark.share(4)
def test_a_tool_of_triton_s_that_is_missing_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Before the first case, and not of each."""
    assert missing_tools() == ""
    for name in ("nvdisasm", "cuobjdump"):
        monkeypatch.setattr(vars(type(knobs.nvidia))[name], "default_path", str(tmp_path / name))
    said = missing_tools()
    assert said.startswith("Triton's nvdisasm and cuobjdump cannot be found: ")
    assert said.endswith("set TRITON_NVDISASM_PATH, TRITON_CUOBJDUMP_PATH")
    assert main([*TORCH, "--max-cases", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count(said) == 1 and out.index(said) < out.index("cases judged")
    values = {"--bv-profile": "quick", "--seed": 1}
    monkeypatch.setattr(pytest_plugin, "base_seed", lambda config: 1)
    for names, lines in ((["emulated:sm_90"], [said]), (["emulated:gfx942"], []), ([], [])):
        monkeypatch.setattr(pytest_plugin, "target_names", lambda config, names=names: names)
        head, *more = pytest_plugin.pytest_report_header(SimpleNamespace(getoption=values.__getitem__))
        assert head.startswith("bitverdict: profile quick") and more == lines
    monkeypatch.setenv("TRITON_NVDISASM_PATH", sys.executable)
    assert missing_tools().startswith("Triton's cuobjdump cannot be found: ")
