"""Contract under test: a tutorial's matmul in a file of its own, unmodified, is judged; with its K mask removed it fails."""

from __future__ import annotations

import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.frontends.main import main
from bitverdict.harness.judge.compare import compare
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target

CHECKOUT = Path(__file__).resolve().parents[2]
TUTORIAL = CHECKOUT / "docs" / "examples" / "tutorial_matmul.py"
MASK = re.compile(r", mask=offs_k.*, other=0\.0\)")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is not the checkout, where the run's state goes too."""
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.share(4)
def test_the_tutorial_is_right_on_three_machines(outside: Path, capsys: pytest.CaptureFixture) -> None:
    mine = shutil.copy(TUTORIAL, outside / "mine.py")
    targets = [word for arch in ("sm_80", "sm_90", "sm_100") for word in ("--target", f"emulated:{arch}")]
    assert main(["run", "matmul", "--launcher", f"{mine}:matmul", *targets, "--max-cases", "10", "--jobs", "1", "-v"]) == 0
    out = capsys.readouterr().out
    assert "30 cases judged" in out and out.count("│ real values, bound 10") == 3


@pytest.mark.share(4)
def test_without_its_k_mask_it_fails_and_replays_without_its_file(outside: Path, capsys: pytest.CaptureFixture) -> None:
    """The reproducer replays where the file is gone, once its stored text is asked for."""
    broken = outside / "forgotten_mask.py"
    text, removed = MASK.subn(")", TUTORIAL.read_text())
    broken.write_text(text)
    assert removed == 2
    words = ["--launcher", "forgotten_mask.py:matmul", "--target", "emulated:sm_90", "--max-cases", "20", "--jobs", "1"]
    assert main(["run", "matmul", *words]) == 1
    out = capsys.readouterr().out
    first = out[out.index("FAIL") :].splitlines()
    assert (
        first[0].startswith("FAIL forgotten_mask.py:matmul on emulated:sm_90: stray read: a_ptr[")
        and " is read, beyond its " in first[0]
    )
    line = next(number for number, written in enumerate(text.splitlines(), 1) if "a = tl.load(a_ptrs)" in written)
    place = next(words for text in first if (words := text.strip()).startswith("at "))  # the first sentence may take two lines
    assert place in (f"at forgotten_mask.py:{line}", f"at {broken}:{line}")
    stored = sorted((outside / "state" / "failures").glob("*.json"))
    assert stored and json.loads(stored[0].read_text())["sources"]["forgotten_mask.py"] == text
    assert main(["replay", str(stored[0])]) == 1
    broken.unlink()
    capsys.readouterr()
    assert main(["replay", str(stored[0])]) == 2
    assert "--embedded" in capsys.readouterr().err
    assert main(["replay", str(stored[0]), "--embedded"]) == 1
    assert "failed again: the same bug" in capsys.readouterr().out
    shutil.copy(TUTORIAL, broken)
    assert main(["replay", str(stored[0])]) == 0
    assert "passes now" in capsys.readouterr().out


HINTED = {  # b's rows begin at multiples of 16 bytes, and its columns end with a whole group of 8
    "(offs_n % N)": "offs_n",
    "mask=offs_k[:, None] < K - k": "mask=(offs_k[:, None] < K - k) & tl.max_constancy(offs_n < N, 8)[None, :]",
    "    for k in range": "    b_ptrs = tl.multiple_of(b_ptrs, [1, 16])\n    for k in range",
}


@pytest.mark.share(4)
def test_a_promise_holds_where_the_launcher_requires_it_and_not_elsewhere(outside: Path, capsys: pytest.CaptureFixture) -> None:
    text = TUTORIAL.read_text()
    for plain, hinted in HINTED.items():
        assert plain in text
        text = text.replace(plain, hinted)
    (outside / "kept.py").write_text(text + "\n\nmatmul.requires = lambda m, n, k: n % 8 == 0\n")
    words = ["--target", "emulated:sm_90", "--max-cases", "20", "--jobs", "1", "--shrink-seconds", "0"]
    status, out = main(["run", "matmul", "--launcher", "kept.py:matmul", *words]), capsys.readouterr().out
    assert status == 0 and "20 cases judged" in out, out
    (outside / "broken.py").write_text(text)
    assert main(["run", "matmul", "--launcher", "broken.py:matmul", *words]) == 1
    out = capsys.readouterr().out
    assert "FAIL broken.py:matmul on emulated:sm_90: misaligned address" in out
    assert "(cp.async.cg.shared.global)" in out and re.search(r"broken.py:\d+: tl.multiple_of \[1, 16\] is not true", out)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("pass", "c: the launcher returned a NoneType: it must return a tensor"),
        ("return a.float() @ b.float()", "c: dtype torch.float32, expected torch.float16 (fp16)"),
        ("return a[:, :1] @ b[:1, :1]", "c: shape ("),
        ("return (a.float() @ b.float()).bfloat16()", "c: dtype torch.bfloat16, expected torch.float16 (fp16)"),
    ],
)
def test_what_is_not_the_result_asked_for_fails_by_its_type(
    body: str, said: str, outside: Path, capsys: pytest.CaptureFixture
) -> None:
    (outside / "mine.py").write_text(f"def matmul(a, b):\n    {body}\n")
    words = ["--launcher", "mine.py:matmul", "--target", "emulated:sm_90", "--max-cases", "3", "--jobs", "1"]
    assert main(["run", "matmul", *words, "--shrink-seconds", "0"]) == 1
    out = capsys.readouterr().out
    assert "FAIL mine.py:matmul on emulated:sm_90: wrong shape or dtype" in out and said in out


def test_a_launcher_without_a_kernel_is_inconclusive_and_told_so(outside: Path, capsys: pytest.CaptureFixture) -> None:
    (outside / "mine.py").write_text("def matmul(a, b):\n    return (a.double() @ b.double()).half()\n")
    words = ["--launcher", "mine.py:matmul", "--target", "emulated:sm_90", "--max-cases", "3", "--jobs", "1"]
    assert main(["run", "matmul", *words]) == 3
    out = capsys.readouterr().out
    assert "3 inconclusive" in out and "inconclusive (3 cases): no Triton kernel was launched: what was judged is no kernel" in out


def test_a_launcher_that_asserts_what_it_takes_is_told_how_to_say_it(outside: Path, capsys: pytest.CaptureFixture) -> None:
    """Once it says so, it is right."""
    text = TUTORIAL.read_text().replace("    K, N = b.shape\n", "    K, N = b.shape\n    assert K % 32 == 0\n")
    (outside / "mine.py").write_text(text)
    words = ["--target", "emulated:sm_90", "--max-cases", "6", "--jobs", "1", "--shrink-seconds", "0"]
    assert main(["run", "matmul", "--launcher", "mine.py:matmul", *words]) == 1
    told = capsys.readouterr().out
    assert "launcher error" in told and "assert K % 32 == 0" in told
    assert "matmul.requires = lambda m, n, k: k % 32 == 0; other sizes are then not tested" in told
    (outside / "less.py").write_text(text + "\n\nmatmul.requires = lambda k: k % 32 == 0\n")
    assert main(["run", "matmul", "--launcher", "less.py:matmul", *words]) == 0


def test_a_launcher_with_other_operands_is_refused_with_status_2(outside: Path, capsys: pytest.CaptureFixture) -> None:
    (outside / "mine.py").write_text("def matmul(a):\n    return a\n")
    assert main(["run", "matmul", "--launcher", "mine.py:matmul"]) == 2
    told = capsys.readouterr().err
    assert "is matmul(a), must be a function (a, b, activation='', *, out_dtype=None): too many positional arguments" in told


def test_a_launcher_of_another_kernel_gets_a_bound_and_its_tile(outside: Path, capsys: pytest.CaptureFixture) -> None:
    own = "from bitverdict.kernels.ampere_gemm import ampere_gemm\n\n\ndef gemm(a, bt, d, block_m, block_n):\n"
    (outside / "mine.py").write_text(own + "    return ampere_gemm(a, bt, d, block_m=block_m, block_n=block_n, block_k=32)\n")
    words = ["--launcher", "mine.py:gemm", "--target", "emulated:sm_80", "--max-cases", "6", "--jobs", "1"]
    status, told = main(["run", "ampere_gemm", *words, "-v"]), capsys.readouterr().out
    assert status == 0 and "│ real values, bound 6" in told, told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def matmul(a, b)\n    return a\n", "SyntaxError: expected ':' (line 1)"),
        ("\nimport no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module' (line 2)"),
        ("x = 1\nx.y\n", "AttributeError: 'int' object has no attribute 'y' (line 2)"),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0 (line 2)"),  # its own status would read as: all right
    ],
)
def test_a_file_that_cannot_be_imported_is_told_in_one_line_with_status_2(
    text: str, said: str, outside: Path, capsys: pytest.CaptureFixture
) -> None:
    (outside / "mine.py").write_text(text)
    assert main(["run", "matmul", "--launcher", "mine.py:matmul"]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and "fix the file" in told


def test_a_module_that_cannot_be_imported_is_told_in_a_line_with_status_2(
    outside: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(outside))
    (outside / "broken_module.py").write_text("def matmul(a, b)\n    return a\n")
    assert main(["run", "matmul", "--launcher", "broken_module:matmul"]) == 2
    told = capsys.readouterr().err
    assert "SyntaxError: expected ':' (line 1); fix the module" in told and told.count("\n") == 1


STRIDE = "offs_k[None, :] * stride_ak\n"


@pytest.mark.parametrize(("claims", "status"), [((), 0), (("strides",), 1)])
@pytest.mark.share(4)
def test_a_stride_taken_as_one_fails_with_a_launcher_that_claims_strides(
    claims: tuple, status: int, outside: Path, capsys: pytest.CaptureFixture
) -> None:
    text = TUTORIAL.read_text()
    assert text.count(STRIDE) == 1
    (outside / "mine.py").write_text(text.replace(STRIDE, "offs_k[None, :]\n") + f"\n\nmatmul.claims = {claims}\n")
    words = ["--launcher", "mine.py:matmul", "--target", "emulated:sm_90", "--max-cases", "12", "--jobs", "1"]
    assert main(["run", "matmul", *words, "--shrink-seconds", "3"]) == status
    assert "order=column" in capsys.readouterr().out or not status


@pytest.mark.share(4)
def test_a_launcher_that_claims_strides_and_types_is_given_them(outside: Path, capsys: pytest.CaptureFixture) -> None:
    text = TUTORIAL.read_text()
    assert text.count("acc.to(tl.float16)") == 1
    general = text.replace("acc.to(tl.float16)", "acc.to(c_ptr.dtype.element_ty)")
    words = ["--launcher", "mine.py:matmul", "--target", "emulated:sm_90", "--max-cases", "16", "--jobs", "1"]
    (outside / "mine.py").write_text(general + '\n\nmatmul.claims = ("strides", "bf16", "fp32")\n')
    assert main(["run", "matmul", *words, "-v", "--accept-compiler-faults"]) == 0  # Triton 3.6's in tf32
    told = capsys.readouterr().out
    assert all(f"│ {dtype}" in told for dtype in ("bf16", "fp16", "fp32"))
    (outside / "other.py").write_text(general + '\n\nmatmul.claims = ("fp4",)\n')
    assert main(["run", "matmul", "--launcher", "other.py:matmul"]) == 2
    assert "claims 'fp4'; it must be of strides, bf16, fp32, e4m3" in capsys.readouterr().err


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("stem", "arch"),
    [("ampere_gemm", "sm_80"), ("hopper_matmul", "sm_90"), ("blocked_matmul", "sm_100"), ("blocked_matmul_pipelined", "sm_100")],
)
def test_the_words_of_a_kernels_plan_lie_within_a_launchers_bound(stem: str, arch: str) -> None:
    contract, where, shares, seen = resolve(stem), target(f"emulated:{arch}"), [], 0
    for required in contract.required(where):
        asked = contract.for_launcher(required, f"bitverdict.kernels.{stem}:{stem}")
        if asked is None or not contract.expected_outcome(asked, where).result:
            continue
        operands = {operand.name: operand for operand in contract.operands(asked)}
        due, own = contract.expected(asked, where, operands, {})[0], replace(asked, launcher="")
        words = contract.expected(own, where, operands, {})[0].words
        assert words is not None
        found = compare(due, words.view(f"u{words.dtype.itemsize}"))
        assert found.outcome in ("pass", "inconclusive"), (asked.key, found.message)
        shares.append(found.bound_used or 0.0)
        a = operands["a"].codes.copy()
        a[:, -1] = 0  # the last k dropped
        words = contract.expected(own, where, operands | {"a": replace(operands["a"], codes=a)}, {})[0].words
        seen += compare(due, words.view(f"u{words.dtype.itemsize}")).outcome == "outside the bound"
    assert max(shares) > 0.05, "a bound that nothing comes near fails no kernel"
    assert seen > 0.6 * len(shares), f"a dropped k is seen in {seen} of {len(shares)} cases"


@pytest.mark.share(4)
def test_readmes_picture_is_what_its_command_prints(outside: Path, capsys: pytest.CaptureFixture) -> None:
    """Text by text, but for the digits of the reproducer, which say where the file lies."""
    picture = (CHECKOUT / "docs" / "first_failure.svg").read_text()
    texts = [html.unescape(text).replace("\xa0", " ").strip() for text in re.findall(r"<text[^>]*>([^<]+)", picture)]
    shown = texts[next(place for place, text in enumerate(texts) if text.startswith("$ bitverdict")) :]
    (outside / "forgotten_mask.py").write_text(MASK.sub(")", TUTORIAL.read_text()))
    assert main(shown[0].split()[2:]) == 1
    printed = capsys.readouterr().out
    assert len(shown) > 10 and [text for text in shown[1:] if re.sub(r"(replay) [0-9a-f]{8}$", r"\1 ", text) not in printed] == []
