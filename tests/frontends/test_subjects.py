"""Contract under test: each word of a command line names what one means by it; what names nothing is told with what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.frontends.subjects import (
    Subjects,
    decorated_tests,
    find_subject,
    find_subject_or_launcher,
    find_subjects,
    find_tests_below,
)
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError

TESTS = """
import bitverdict as bv

def launcher(x):
    return x

@bv.judged(reference=lambda xp, x: x)
def test_{name}(draw):
    return launcher(draw.tensor("fp32", (3,)))

class TestRows:
    @bv.judged(reference=lambda xp, x: x)
    def test_method(draw):
        return launcher(draw.tensor("fp32", (3,)))
"""
LAUNCHERS = """
def softmax(x): ...
def mine(x, y, scale=1.0): ...
def rows(x, w): ...
def scaled(x, w, eps=1e-5): ...
def alone(x): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {
        "test_a.py": TESTS.format(name="a"),
        "below/b_test.py": TESTS.format(name="b"),
        "test_plain.py": "def test_plain(): ...\n",
        ".venv/test_c.py": TESTS.format(name="c"),
        "launchers.py": LAUNCHERS,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


A, B = ("test_a.py:test_a", "test_a.py:TestRows.test_method"), ("below/b_test.py:test_b", "below/b_test.py:TestRows.test_method")


@pytest.mark.parametrize(
    ("words", "subjects"),
    [
        (["softmax"], Subjects(("softmax",))),
        (["test_a.py"], Subjects(A)),
        (["test_a.py::test_a"], Subjects(A[:1])),
        (["test_a.py::TestRows::test_method", "softmax"], Subjects((A[1], "softmax"))),
        (["."], Subjects(A + B)),
        (["below"], Subjects(B)),
        (["test_a.py", "test_a.py:test_a"], Subjects(A)),
        (["launchers.py:softmax"], Subjects(("softmax",), "launchers.py:softmax")),
        (["launchers.py::softmax"], Subjects(("softmax",), "launchers.py:softmax")),
    ],
)
def test_a_word_names_what_one_means_by_it(words: list[str], subjects: Subjects, folder: Path) -> None:
    assert find_subjects(words, "run") == subjects


def test_a_launcher_with_the_parameters_of_one_kernel_is_judged_by_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_subjects(["launchers.py:rows"], "run") == Subjects(("rms_norm",), "launchers.py:rows")
    assert "note: launchers.py:rows is judged by rms_norm's mathematics" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["launchers.py"],
            "it has no test of bitverdict. A launcher of it (launchers.py:softmax, launchers.py:mine, launchers.py:rows,",
        ),
        (["launchers.py"], "    from launchers import softmax\n"),
        (["launchers.py:mine"], "no shipped kernel is called mine"),
        (["launchers.py:scaled"], "no shipped kernel is called scaled"),
        (["launchers.py:alone"], "no shipped kernel is called alone; quantize_mxfp, softmax take its parameters"),
        (["launchers.py:mine"], "@bv.judged(reference=lambda xp, x, y: ...)"),
        (["launchers.py:mine"], "    from launchers import mine\n"),
        (["launchers.py:softmax", "matmul"], "launchers.py:softmax is a launcher, which is judged alone"),
        (["nothing.py"], "there is no file nothing.py"),
        ([".venv/nowhere.py::f"], "there is no file .venv/nowhere.py"),
    ],
)
def test_what_names_nothing_is_told_with_what_to_write(words: list[str], said: str, folder: Path) -> None:
    with pytest.raises(UsageError) as refused:
        find_subjects(words, "run")
    assert said in str(refused.value)


def test_a_folder_without_tests_gets_an_example_and_the_selftest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="bitverdict selftest"):
        find_tests_below(tmp_path)


def test_the_file_of_a_sealed_launcher_is_not_imported(folder: Path) -> None:
    (folder / "liar.py").write_text("raise SystemExit('imported')\n")
    assert find_subjects(["liar.py:matmul"], "run", sealed=True) == Subjects(("matmul",), "liar.py:matmul")
    with pytest.raises(UsageError, match="imported"):
        find_subjects(["liar.py:matmul"], "run")


def test_a_command_that_takes_one_names_the_tests_of_a_file(folder: Path) -> None:
    assert find_subject("test_a.py::TestRows::test_method", "order") == A[1]
    with pytest.raises(UsageError, match=r"has 2 tests; name one of test_a\.py:test_a, test_a\.py:TestRows\.test_method"):
        find_subject("test_a.py", "order")
    with pytest.raises(UsageError, match=r"order \.: has 4 tests; name one of test_a\.py:test_a, "):
        find_subject(".", "order")
    assert find_subject_or_launcher("launchers.py:softmax", "", "order") == ("softmax", "launchers.py:softmax")
    assert find_subject_or_launcher("softmax", "launchers.py:mine", "order") == ("softmax", "launchers.py:mine")
    assert decorated_tests("test_a.py") == ["test_a"] and not decorated_tests("launchers.py")


def test_a_target_is_known_by_its_architecture_alone() -> None:
    assert target("sm_90") == target("emulated:sm_90") and target("gfx942").name == "emulated:gfx942"
