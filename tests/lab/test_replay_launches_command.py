"""Contract under test: `bitverdict replay-launches` replays what scripts and tests launch, and goes on where it was stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.report.launch_replay.scripts import task_of

SCRIPT = """
import sys, torch, triton, triton.language as tl
@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128)], key=["n"])
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)
def test_twice():
    x = torch.arange(300, device="cuda")
    twice[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, torch.empty_like(x), 300)
if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        test_twice()
    if sys.argv[2:]:
        import time; time.sleep(60)
"""


OPEN_WORDS = """
import torch
from tests.support import fusion_kernels
x, y = torch.randn(2, 4096, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
out, options = torch.zeros(1024, device="cuda"), {"num_warps": 1, "enable_fp_fusion": True}
fusion_kernels.probe[(1,)](x, y, out, 3, ROWS=64, COLUMNS=16, KIND="products in two orders", **options)
"""


def command(folder: Path, *words: str) -> subprocess.CompletedProcess:
    asked = [sys.executable, "-m", "bitverdict", "replay-launches", "--on", "emulated:sm_90", *words]
    return subprocess.run(asked, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300)


def test_the_command_replays_scripts_and_tests_and_goes_on(tmp_path: Path) -> None:
    script, results = tmp_path / "test_script.py", tmp_path / "rows.jsonl"
    script.write_text(SCRIPT)
    asked = [f"{script} 2", f"pytest -q {script}", "--configurations", "first", "1", "--jobs", "2", "--results", str(results)]
    ran = command(tmp_path, *asked)
    assert ran.returncode == 0, ran.stderr
    assert "6 launches of 2 kernels, 3,600 words compared, 1,800 written: 0 differ" in ran.stdout
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert {row["configuration"] for row in rows} == {"first", "1"} and sum(row["event"] == "task" for row in rows) == 4
    grids = {(row["configuration"], row["grid"][0]) for row in rows if row["event"] == "launch"}
    assert grids == {("first", 5), ("1", 3)}
    cut = [row for row in rows if not (row["event"] == "task" and row["task"].startswith("pytest") and row["configuration"] == "1")]
    results.write_text("".join(json.dumps(row) + "\n" for row in cut) + '{"event": "lau')
    again = command(tmp_path, *asked)
    assert again.returncode == 0 and "6 launches" in again.stdout and again.stderr.count("after") == 1, again.stderr


def test_open_words_are_settled_where_they_are_recorded_and_replayed(tmp_path: Path) -> None:
    script, results = tmp_path / "script.py", tmp_path / "rows.jsonl"
    script.write_text(OPEN_WORDS)
    ran = command(tmp_path, str(script), "--results", str(results))
    row = next(row for row in map(json.loads, results.read_text().splitlines()) if row["event"] == "launch")
    assert (row["written"], row["differing"], row["enclosed"]) == (1024, 0, 0), ran.stdout + ran.stderr


def test_a_task_beyond_its_limit_is_named_and_its_launches_count(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = command(tmp_path, f"{script} 1 sleep", "--seconds", "25")
    assert "tasks: 1 time limit" in ran.stdout and "1 launches of 1 kernels" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize("line", ["", "script.txt", "-m", "no_such_file.py", "python"])
def test_what_is_no_task_is_refused_with_its_forms(line: str) -> None:
    with pytest.raises(UsageError, match=r"no file|must be 'FILE\.py"):
        task_of(line)
