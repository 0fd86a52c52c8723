"""Contract under test: `bitverdict new kernel` refuses a name that cannot be taken, in one sentence, and writes nothing then.

That what it writes works is held in a clean clone, by `tests/docs/test_guides.py`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bitverdict.harness.frontends.main import main
from bitverdict.harness.lab.commands import new_kernel
from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.model.usage import UsageError

IDENTIFIER = "must be a Python identifier of lower-case letters, digits and _; take one like scaled_sum"
EXISTS = "exists, and nothing is overwritten; take another name"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The folders that a kernel's files are written into, and the compile table."""
    for folder in new_kernel.FILES.values():
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / new_kernel.COMPILE_TABLE).parent.mkdir(parents=True)
    (tmp_path / new_kernel.COMPILE_TABLE).write_text((ROOT / new_kernel.COMPILE_TABLE).read_text())
    return tmp_path


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *((name, IDENTIFIER) for name in ("2x", "Scaled", "class", "", "a-b", "../a", "a\n")),
        ("softmax", f"kernels/softmax.py {EXISTS}"),
        ("clauses", f"kernels/clauses.py {EXISTS}"),
        ("wrapped_offsets", f"tests/faults/kernels/wrapped_offsets.py {EXISTS}"),
    ],
)
def test_a_name_that_cannot_be_taken_is_one_sentence(
    name: str, rule: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(Path, "write_text", lambda *_: pytest.fail("wrote a file"))
    assert main(["new", "kernel", name]) == 2
    assert capsys.readouterr().err == f"error: kernel {name!r}: {rule}\n"


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"written into a checkout of the repository, and .* is none; run it in a clone"):
        new_kernel.write_kernel("scaled_sum", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_and_rows_are_written_with_nothing_left_to_fill_in(checkout: Path) -> None:
    before = (checkout / new_kernel.COMPILE_TABLE).read_text()
    written = new_kernel.write_kernel("scaled_sum", checkout)
    assert written == [
        "kernels/scaled_sum.py",
        "harness/contracts/scaled_sum.py",
        "tests/faults/kernels/scaled_sum.py",
        new_kernel.COMPILE_TABLE,
    ]
    for path in written:
        text = (checkout / path).read_text()
        ast.parse(text)
        assert "scaled_sum" in text and "KERNEL_NAME" not in text and "ClassName" not in text
    after = (checkout / new_kernel.COMPILE_TABLE).read_text()
    assert after.replace(new_kernel.fill_template("rows", "scaled_sum"), "", 1) == before
    with pytest.raises(UsageError, match="nothing is overwritten"):
        new_kernel.write_kernel("scaled_sum", checkout)
