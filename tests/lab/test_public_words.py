"""Contract under test: published words are taken over as they are, by name and digest, or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bitverdict.harness.lab.hardware_words import public_words
from bitverdict.harness.lab.hardware_words.public_words import about, convert_folder, digest, files, main
from bitverdict.harness.model.usage import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rows of e4m3 of an H200, as the source writes them: 1.5 and -2 times 0.25, and 2^-9, the smallest code."""
    place = tmp_path / "model_validation" / "H200" / "E4M3"
    place.mkdir(parents=True)
    for name, text in (
        ("a_H200_E4M3", "3fc00000 c0000000 \n3b000000 00000000 \n"),
        ("b_H200_E4M3", "3e800000 3e800000 \n80000000 3f800000 \n"),
        ("c_H200_fp32", f"{0x3F800000:032b}\n{0x80000000:032b}\n"),
        ("d_H200_fp32", f"{0xBE000000:032b}\n{0:032b}\n"),
        ("d_H200_fp16", f"{0x3F800000:032b}\n{0x33800000:032b}\n"),
    ):
        (place / f"{name}.txt").write_text(text)
    return place


def test_words_are_taken_over_as_they_are(folder: Path) -> None:
    found = convert_folder(folder, "H200", "e4m3")
    assert found["a"].tolist() == [[0x3C, 0xC0], [0x01, 0x00]] and found["b"].tolist() == [[0x28, 0x28], [0x80, 0x38]]
    assert found["c32"].tolist() == [0x3F800000, 0x80000000] and found["d32"].tolist() == [0xBE000000, 0]
    assert found["d16"].tolist() == [0x3C00, 0x0001] and found["row"].tolist() == [0, 1]
    assert {name: str(array.dtype) for name, array in found.items()} == {
        "a": "uint8", "b": "uint8", "c32": "uint32", "d32": "uint32", "d16": "uint16", "row": "uint16"}  # fmt: skip


def test_a_value_that_is_none_of_its_format_is_refused(folder: Path) -> None:
    (folder / "a_H200_E4M3.txt").write_text("3fc10000 c0000000 \n3b000000 00000000 \n")
    with pytest.raises(UsageError, match=r"1\.5078125\) is no value of e4m3"):
        convert_folder(folder, "H200", "e4m3")


def test_other_words_than_those_of_the_commit_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_words, "FORMATS_OF", {"H200": ("e4m3",)})
    checkout = folder.parents[2]
    with pytest.raises(UsageError, match="h200_e4m3 has other words than commit"):
        list(files(checkout))
    monkeypatch.setitem(public_words.DIGESTS, "h200_e4m3", digest(convert_folder(folder, "H200", "e4m3")))
    ((stem, arrays),) = files(checkout)
    assert stem == "h200_e4m3" and json.loads(str(arrays["meta"]))["d32"]["c"].startswith("+0")


def test_a_digest_changes_with_each_word_and_each_shape() -> None:
    words = np.arange(4, dtype=np.uint16)
    assert len({digest({"a": each}) for each in (words, words[::-1], words.reshape(2, 2), words.astype(np.uint32))}) == 4


def test_what_is_no_checkout_is_told_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "cannot be read (No such file or directory); give a checkout of github.com/" in capsys.readouterr().err


def test_c_and_instruction_are_told_for_each_result() -> None:
    both = {"a": np.zeros((1, 16)), "d16": np.zeros(1)}
    assert about("A100", "fp16", both)["d16"]["c"].startswith("c32 rounded") and about("A100", "fp16", both)["d32"]["c"] == "c32"
    assert about("B200", "e5m2", {"a": np.zeros((1, 32))})["d32"] == {"instruction": "mma.sync m16n8k32 f32", "c": "c32"}
