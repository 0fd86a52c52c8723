"""Contract under test: somebody else's tests and scripts run unchanged on an emulated GPU, and fail where a launch of theirs does,
at the kernel's line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import triton
from markupsafe import escape

from bitverdict.harness.frontends.cli_exec import replay_launch
from bitverdict.harness.frontends.emulated_session import EmulationTally
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.report.launch_replay.launch_file import StoredLaunch
from tests.support import suite_kernels
from tests.support.shared_folders import shared_folder

pytestmark = pytest.mark.compiles
CHECKOUT = Path(__file__).resolve().parents[2]
KERNELS = Path(suite_kernels.__file__)
FAULTS = ("stray_read", "stray_write", "race", "misaligned_address", "deadlock", "tickets", "uninitialised_read")
OUTCOMES = {name: name.replace("_", " ") for name in FAULTS} | {"tickets": "stray write"}
SUITE = """
import functools
import gc
import json

import pytest
import triton
import torch

from tests.support import suite_kernels

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def x():
    return torch.arange(100, device="cuda", dtype=torch.float32)


def launch(kernel, x):
    y = torch.zeros(100, device="cuda")
    kernel[(2,)](x, y, 100, BLOCK=64)
    return y


@gpu
@pytest.mark.parametrize("kernel", KERNELS)
def test_faulty(kernel, x):
    launch(getattr(suite_kernels, kernel), x)


@gpu
def test_right(x):
    torch.testing.assert_close(launch(suite_kernels.doubled, x), 2 * x)


@gpu
def test_garbage(x):
    launch(suite_kernels.doubled, x)
    assert gc.get_freeze_count() > 100_000  # what was imported


@gpu
def test_padding(x):
    padded = torch.cat([x, x])
    suite_kernels.stray_write[(2,)](padded[:100], padded[:100], 100, BLOCK=64)
    torch.testing.assert_close(padded[:100], 2 * x)


@gpu
def test_autocast(x):
    rows = x.reshape(10, 10)
    with torch.autocast("cuda", dtype=torch.float16):
        assert (rows @ rows).dtype is torch.float16 and torch.softmax(rows @ rows, 1).dtype is torch.float32
    assert (rows @ rows).dtype is torch.float32 and torch.get_autocast_dtype("cpu") is torch.bfloat16


@gpu
def test_empty_memory():
    assert torch.empty(1000, device="cuda").isnan().all()


@gpu
@pytest.mark.parametrize("allocate", [torch.zeros, torch.empty])
def test_sum(x, allocate):
    total = allocate(100, device="cuda")
    suite_kernels.added[(2,)](x, total, 100, BLOCK=64)
    torch.testing.assert_close(total, x)


@gpu
def test_fault_is_caught(x):
    with pytest.raises(Exception):
        launch(suite_kernels.stray_read, x)


@gpu
def test_refused(x):
    launch(suite_kernels.nothing_to_say, x)


@gpu
def test_unanswered():
    torch.cuda.MemPool()


@gpu
def test_own_failure(x):
    assert x.sum() == 0


test_of_a_package = functools.partial(json.loads, "{")


@gpu
def test_weight_gradient_of_layer_norm():
    torch.manual_seed(0)
    x, gradient = (torch.randn(64, 32, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight = torch.ones(32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.layer_norm(x, (32,), weight).backward(gradient)
    rows = x.cpu().double()
    normal = (rows - rows.mean(1, keepdim=True)) / torch.sqrt(rows.var(1, unbiased=False, keepdim=True) + 1e-5)
    exact = (normal * gradient.cpu().double()).sum(0)
    assert ((weight.grad.cpu().double() - exact).abs() <= 2.0**-8 * exact.abs()).all()
"""

SLOW_SUITE = """
import torch
import triton
import triton.language as tl


@triton.jit
def counted(x):
    for _ in range(40):  # reads what it has written, so programs do not run as one batch
        tl.store(x + tl.program_id(0), tl.load(x + tl.program_id(0)) + 1)


def test_large():
    counted[(8192,)](torch.zeros(8192, device="cuda"))


def test_small():
    x = torch.zeros(4, device="cuda")
    counted[(4,)](x)
    assert x.sum() == 160
"""


def environment(state: Path | None = None) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(CHECKOUT), "PYTHONSAFEPATH": "1"} | ({"BITVERDICT_STATE": str(state)} if state else {})


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    """What pytest prints of the suite on two emulated GPUs under two workers of xdist, and the report of it."""
    folder = shared_folder(tmp_path_factory, "emulated_suite", _run_suite)
    return (folder / "printed.txt").read_text(), json.loads((folder / "report.json").read_text())


def _run_suite(folder: Path) -> None:
    (folder / "test_theirs.py").write_text(SUITE.replace("KERNELS", repr(FAULTS), 1))
    command = (
        "-q -rA -n 2 -p no:cacheprovider --emulate --emulate sm_80 --emulate-report report.json --emulate-advice test_theirs.py"
    )
    plugin = ["-p", "bitverdict.harness.frontends.pytest_options"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *command.split()],
        cwd=folder,
        env=environment(folder / "state"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "leaked" not in done.stderr, (
        done.stdout + done.stderr
    )  # which Triton's bindings say of what is frozen
    (folder / "printed.txt").write_text(done.stdout)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_each_class_of_fault_fails_its_test_at_the_line(suite: tuple[str, dict], name: str, arch: str) -> None:
    """`tickets` is right under the first schedule: the second one finds it."""
    printed, report = suite
    (fault,) = (each for each in report["faults"] if each["where"] == f"test_theirs.py::test_faulty[{arch}-{name}]")
    assert (fault["outcome"], fault["target"], fault["kernel"]) == (OUTCOMES[name], arch, name)
    assert Path(fault["file"]) == KERNELS and f"FAILED test_theirs.py::test_faulty[{arch}-{name}]" in printed
    lines = KERNELS.read_text().split("\n")
    assert lines[fault["line"] - 1].strip() and f"def {name}" in "\n".join(lines[max(fault["line"] - 9, 0) : fault["line"]])
    assert f"{KERNELS.name}:{fault['line']}: " in printed


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_leaves_a_file_that_replays_to_it(suite: tuple[str, dict], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the test: the tile program, the arguments, and the tensors as they lay before the launch."""
    fault = next(each for each in suite[1]["faults"] if each["where"] == f"test_theirs.py::test_faulty[sm_90-{name}]")
    path = Path(fault["details"]["replay"].removeprefix("bitverdict replay "))
    stored = StoredLaunch(path)
    assert stored.record["fault"][0] == OUTCOMES[name] and not (name == "tickets" and fault["details"]["schedule"] == "eager")
    assert replay_launch(path) == 1
    printed = capsys.readouterr().out
    message = fault["message"].partition("0x")[0]  # an address is another one
    assert f"Fault: {OUTCOMES[name]}: " in printed and message in printed and f"{KERNELS}:{fault['line']}]" in printed
    shapes = [value["view"][0] for value in stored.record["values"] if isinstance(value, dict)]
    assert shapes == [[100], [100]] and stored.storages[0].view("f4").tolist() == list(range(100))


def test_the_page_marks_the_line_of_each_fault(suite: tuple[str, dict], tmp_path: Path) -> None:
    """One failure a line, of however many launches and targets; a report without faults says so."""
    tally = EmulationTally()
    tally.add({name: value for name, value in suite[1].items() if name != "targets"})
    tally.write(tmp_path / "report.html", ["sm_90", "sm_80"], 2)
    text = (tmp_path / "report.html").read_text()
    places = {(each["kernel"], each["outcome"], each["line"]) for each in tally.faults}
    assert text.count('<details class="failure"') == len(places) < len(tally.faults) and f">{len(places)} faults<" in text
    for kernel, outcome, line in places:
        assert f'at-fault"><td class="number">{line}</td>' in text and f"{outcome}</span> <strong>{kernel}</strong> <span" in text
    assert all(escape(sentence) in text for sentence in tally.reasons_not_judged) and 'id="verdicts"' not in text
    EmulationTally(launches=3).write(tmp_path / "quiet.html", ["sm_90"], 2)
    quiet = (tmp_path / "quiet.html").read_text()
    assert ">no fault<" in quiet and "3 launches" in quiet and 'id="failures"' not in quiet


def test_padding_around_a_view_is_an_advice(suite: tuple[str, dict]) -> None:
    """Where a test hands on a view of a larger storage; outside of every storage it is the fault `stray_write`."""
    printed, report = suite
    (line,) = (
        place for place, text in enumerate(KERNELS.read_text().split("\n"), 1) if "mask=places < n))" in text and "2 *" in text
    )
    for arch in ("sm_80", "sm_90"):
        assert f"PASSED test_theirs.py::test_padding[{arch}]" in printed
    said = f"{KERNELS}:{line}: writes what the sizes and strides of x do not reach, in the storage that it is a view of"
    assert report["advice"][said] == 2 and "advice: " in printed


def test_right_tests_pass_and_own_failures_fail(suite: tuple[str, dict]) -> None:
    printed, report = suite
    for arch in ("sm_80", "sm_90"):
        assert f"PASSED test_theirs.py::test_right[{arch}]" in printed
        assert f"PASSED test_theirs.py::test_garbage[{arch}]" in printed
        assert f"PASSED test_theirs.py::test_autocast[{arch}]" in printed
        assert f"PASSED test_theirs.py::test_weight_gradient_of_layer_norm[{arch}]" in printed
        assert f"FAILED test_theirs.py::test_own_failure[{arch}]" in printed
        assert f"FAILED test_theirs.py::test_of_a_package[{arch}]" in printed
    assert report["operators"] and "were computed in fp32 and rounded once" in printed


def test_passes_that_launched_nothing_are_counted(suite: tuple[str, dict]) -> None:
    """Of autocast, of empty memory and of the weight gradient, on both targets; the tests of launches are none of them."""
    printed, report = suite
    assert report["passed_without_launch"] == 6 and "\n6 tests passed without a launch" in printed


def test_memory_that_nobody_wrote_holds_no_zeros(suite: tuple[str, dict]) -> None:
    for arch in ("sm_80", "sm_90"):
        assert f"PASSED test_theirs.py::test_empty_memory[{arch}]" in suite[0]
        assert f"PASSED test_theirs.py::test_sum[{arch}-zeros]" in suite[0]
        assert f"FAILED test_theirs.py::test_sum[{arch}-empty]" in suite[0]


def test_a_fault_that_the_test_catches_fails_it(suite: tuple[str, dict]) -> None:
    assert "FAILED test_theirs.py::test_fault_is_caught[sm_90]" in suite[0]


def test_what_cannot_be_answered_is_skipped_and_listed(suite: tuple[str, dict]) -> None:
    printed, report = suite
    assert len(report["reasons_not_judged"]) == 2 and set(report["reasons_not_judged"].values()) == {2}
    refused, unanswered = sorted(report["reasons_not_judged"])
    assert "torch.cuda.MemPool" in unanswered
    assert "not modelled" in refused and "nanosleep" in refused
    for sentence in (refused, unanswered):
        assert f"not judged: {sentence} (2 times)" in printed


def test_no_frame_of_the_harness_is_shown(suite: tuple[str, dict]) -> None:
    printed, _ = suite
    assert "harness/emulator/" not in printed and "triton/runtime" not in printed


SCRIPT = """
import sys
import zipfile

import torch
from tests.support import suite_kernels
x, y = torch.arange(100.0, device="cuda"), torch.zeros(100, device="cuda")
assert torch.cuda.is_available() and __name__ == "__main__"
suite_kernels.doubled[(2,)](x, y, 100, BLOCK=64)
print(sys.argv[1:], torch.cuda.get_device_name(), y.sum().item())
if "fault" in sys.argv:
    suite_kernels.race[(2,)](x, y, 100, BLOCK=64)
sys.exit(int(sys.argv[-1]))
"""


@pytest.mark.parametrize(("words", "status"), [(["right", "0"], 0), (["right", "7"], 7), (["fault", "0"], 1)])
@pytest.mark.share(4)
def test_a_script_runs_with_its_arguments_and_its_own_status(tmp_path: Path, words: list[str], status: int) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "bitverdict", "exec", "--target", "sm_90", "--report", "report.sarif", "script.py", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout == f"{words} NVIDIA H100 80GB HBM3 9900.0\n"
    results = json.loads((tmp_path / "report.sarif").read_text())["runs"][0]["results"]
    assert [each["ruleId"] for each in results] == ["race"] * (words[0] == "fault")
    if words[0] == "fault":
        last_frame = [line for line in done.stderr.split("\n") if line.startswith("  File ")][-1]
        assert str(KERNELS) in last_frame and last_frame.endswith("in race") and "harness" not in last_frame
    else:
        assert "0 faults" in done.stderr


@pytest.mark.parametrize(("text", "frames"), [("import gone", 1), ("def f(:", 1), ("def f():\n    raise ValueError\nf()", 2)])
@pytest.mark.share(2)
def test_what_a_script_raises_is_told_as_by_python(tmp_path: Path, text: str, frames: int) -> None:
    (tmp_path / "script.py").write_text(text)
    command = [sys.executable, "-m", "bitverdict", "exec", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 1 and "not judged" not in done.stderr, done.stderr
    assert re.findall(r'File "(.*?)"', done.stderr) == ["script.py"] * frames


@pytest.mark.share(4)
def test_exec_records_one_launch_of_each_specialisation(tmp_path: Path) -> None:
    """They replay: in their own process, from the bytes before the launch, without the script."""
    (tmp_path / "script.py").write_text(SCRIPT.replace("print(", "suite_kernels.doubled[(2,)](x, y, 100, BLOCK=64)\nprint("))
    command = [sys.executable, "-m", "bitverdict"]
    exec_command = [*command, "exec", "--record", "kept", "--where", "doubled", "script.py", "fault", "0"]
    done = subprocess.run(exec_command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    (kept,) = (path for path in (tmp_path / "kept").iterdir() if path.name.startswith("doubled"))
    assert f"recorded kept/{kept.name}" in done.stderr and [path.name[:4] for path in kept.parent.iterdir() if path != kept] == [
        "race"
    ]
    assert StoredLaunch(kept).storages[1].view("f4").tolist() == [0.0] * 100
    done = subprocess.run([*command, "replay", str(kept)], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "runs without a fault on emulated sm_90\n"), done.stderr
    with zipfile.ZipFile(kept) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    parts["launch.json"] = json.dumps(json.loads(parts["launch.json"]) | {"triton": "3.5.1"}).encode()
    with zipfile.ZipFile(kept, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    done = subprocess.run([*command, "replay", str(kept)], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.stdout.startswith(f"note: triton was 3.5.1, is {triton.__version__}\nruns without a fault"), done.stderr


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip"])
def test_a_file_that_is_no_launch_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.launch").write_bytes(content)
    with pytest.raises(UsageError, match=r"bad\.launch: cannot be read .*give a \.launch file"):
        replay_launch(tmp_path / "bad.launch")


@pytest.mark.share(4)
def test_a_module_runs_as_python_runs_it(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("import sys, torch\nprint(sys.argv[1:], torch.zeros(2, device='cuda').device)\n")
    command = [sys.executable, "-m", "bitverdict", "exec", "-m", "theirs", "--flag", "2"]
    done = subprocess.run(command, cwd=tmp_path, env=environment() | {"PYTHONPATH": f"{CHECKOUT}:{tmp_path}"}, capture_output=True,
                          text=True)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "['--flag', '2'] cuda:0\n"), done.stderr


@pytest.mark.share(4)
def test_a_launch_beyond_the_limit_ends_as_too_large_and_the_tests_go_on(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(SLOW_SUITE)
    plugin = ["-p", "bitverdict.harness.frontends.pytest_options", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *plugin, "--emulate", "--emulate-limit", "0.5s"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path / "state"), capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert re.search(r"too large: [\d,]+ of 8,192 programs had begun after 0.5 s of processor time", done.stdout)


@pytest.mark.parametrize(("words", "said"), [
    (["exec", "--limit", "0", "a.py"], "above 0; write 30s"), (["exec", "--limit", "soon", "a.py"], "above 0; write 30s"),
    (["exec"], "names no program"), (["exec", "gone.py"], "there is no file gone.py"),
    (["exec", "--where", "add", "a.py"], "give --record DIR too"),
    (["exec", "-m", "gone"], "exec -m gone: no module is called so here"),
    (["exec", "--target", "sm_1", "a.py"], "sm_1"), (["exec", "--schedules", "0", "a.py"], "must be 1 or more"),
])  # fmt: skip
def test_what_cannot_be_run_is_one_sentence(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "a.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "bitverdict", *words], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
