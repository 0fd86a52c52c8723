"""Contract under test: `bitverdict translate` prints what the emulated GPU executes for a kernel, a launcher or a script, and says
what it cannot print."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.frontends.main import main

LAUNCHER = """
import torch
from bitverdict.kernels.matmul import matmul


def launcher(a, b, out_dtype=None):
    return matmul(a, b, out_dtype=out_dtype)
"""
SCRIPT = """
import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, values * 2, mask=at < n)


def run(n):
    x = torch.ones(64)
    out = torch.empty(64)
    doubled[(1,)](x, out, n, BLOCK=128)


if __name__ == "__main__":
    for n in SIZES:
        run(n)
"""


def script(folder: Path, sizes: str) -> str:
    path = folder / "doubles.py"
    path.write_text(SCRIPT.replace("SIZES", sizes))
    return str(path)


def test_a_kernel_s_python_is_printed_with_names_and_lines(capsys: pytest.CaptureFixture[str]) -> None:
    status, (out, said) = main(["translate", "blocked_matmul"]), capsys.readouterr()
    assert status == 0, said
    assert out.startswith("# kernel blocked_matmul_kernel on emulated:sm_100\ndef blocked_matmul_kernel(m, a_matrix, ")
    assert "m.tensor_core.mma(" in out and "  # ttng.tc_gen5_mma  blocked_matmul.py:" in out


def test_the_tile_program_is_printed_instead(capsys: pytest.CaptureFixture[str]) -> None:
    status, (out, said) = main(["translate", "blocked_matmul", "--tile-program"]), capsys.readouterr()
    assert status == 0, said
    assert '"ttng.tc_gen5_mma"(' in out and "m.tensor_core" not in out


def test_a_launcher_is_called_with_the_first_required_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(LAUNCHER)
    words = ["translate", "matmul", "--launcher", f"{path}:launcher", "--target", "emulated:sm_80"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("# kernel matmul_kernel on emulated:sm_80")


def test_a_script_is_run_and_each_kernel_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", script(tmp_path, "(60, 61)")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# kernel doubled on emulated:sm_90, launched 2 times\n") and out.count("def doubled(") == 1
    assert "values = m.global_access.load(" in out or "values_" in out


def test_what_was_launched_before_a_fault_is_printed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", script(tmp_path, "(60, 100)"), "--target", "emulated:sm_80"]) == 1
    shown = capsys.readouterr()
    assert "def doubled(" in shown.out and "error: the launches end in stray read: " in shown.err
    assert "doubles.py:10]" in shown.err


@pytest.mark.parametrize("sizes", ["()", "1 / 0"])
def test_a_script_that_launches_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], sizes: str) -> None:
    assert main(["translate", script(tmp_path, sizes)]) == (5 if sizes == "()" else 1)
    shown = capsys.readouterr()
    assert not shown.out and "launches nothing on emulated:sm_90" in shown.err
    assert ("--target emulated:sm_NN" if sizes == "()" else "division by zero") in shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.py"], "absent.py: no such file; give a Python file"),
        (["absent.py", "--launcher", "mine.py:f"], "name the kernel, not absent.py"),
        (["matmull"], "did you mean 'matmul'?"),
        (["matmul", "--target", "emulated:sm_70"], "targets here"),
        (["matmul", "--launcher", "absent.py:f"], "absent.py"),
    ],
)
def test_what_cannot_be_translated_is_a_usage_error(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", *words]) == 2
    shown = capsys.readouterr()
    assert not shown.out and said in shown.err and len(shown.err.splitlines()) == 1


def test_a_launcher_takes_the_mathematics_of_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        LAUNCHER.replace("import matmul", "import matmul as ours").replace("return matmul", "return ours")
        + "\nmatmul = launcher\ndef other(x): ...\n"
    )
    assert main(["translate", f"{path}:matmul", "--target", "sm_80"]) == 0
    assert capsys.readouterr().out.startswith("# kernel matmul_kernel on emulated:sm_80")
    assert main(["translate", f"{path}:other"]) == 2
    assert f"bitverdict translate KERNEL --launcher {path}:other" in capsys.readouterr().err


def test_a_test_is_translated_with_the_modules_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(tmp_path, "()")
    test = "import bitverdict as bv\nimport doubles\n\n\n@bv.judged(reference=lambda xp, x: x * 2)\ndef test_{0}(draw):\n"
    call = "    doubles.doubled[(1,)](x, out, x.numel(), BLOCK=128)\n    return out\n"
    body = f"    x = draw.tensor('fp32', (draw.size(1, 64),))\n    out = x * 0\n{call}"
    path = tmp_path / "test_doubles.py"
    path.write_text(test.format("one") + body)
    for word in (f"{path}::test_one", str(path)):
        assert main(["translate", word, "--target", "sm_90"]) == 0, capsys.readouterr().err
        assert "# kernel doubled on emulated:sm_90" in capsys.readouterr().out
