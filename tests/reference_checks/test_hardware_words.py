"""Contract under test: the model gives every word that a real tensor core wrote, bit for bit, NaN words included.

The words are inputs: public ones named by TENSOR_CORE_WORDS and our own. Where CI or TENSOR_CORE_WORDS is set they must be there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bitverdict.reference.tensor_core import product
from tests.reference_checks.tensor_core_words import Words, files, read, required

PUBLIC_WORDS = (105_061, 210_000, 210_061)
"""42 columns of 2,500 words and 61 of tcgen05; 42 of 5,000, as `public_words` converts the whole source; and with those 61."""
FILES = files()
NO_WORDS = "no hardware words at hand: name their directory in TENSOR_CORE_WORDS"


def public_words() -> list[Words]:
    return [words for path in FILES if "_own_" not in path.name for words in read(path)]


def test_the_public_words_are_all_here() -> None:
    count = sum(words.d.size for words in public_words())
    if not count and not required():
        pytest.skip(NO_WORDS)
    assert count in PUBLIC_WORDS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_word_is_reproduced(path: Path) -> None:
    for words in read(path):
        got = words.predicted()  # (R,)
        wrong = np.nonzero(got != words.d)[0]  # (wrong,)
        first = wrong[:1]
        assert not wrong.size, (
            f"{words.label} ({words.rule.name}): {wrong.size} of {got.size} words differ, the first in row {first}: "
            f"predicted {got[first]}, hardware wrote {words.d[first]}"
        )


OF_EACH_CHIP = [path for path in FILES if path.stem in ("h100_fp16", "ada_e4m3", "b200_e5m2", "a100_tf32")]


@pytest.mark.parametrize(
    "path", OF_EACH_CHIP or [pytest.param(Path(), marks=pytest.mark.skip(NO_WORDS))], ids=lambda path: path.stem
)
def test_a_product_holds_the_same_words_on_its_diagonal(path: Path) -> None:
    """`product` takes other paths than `elements`: tiles, proofs, matrix products."""
    for words in read(path):
        some = slice(0, 200)
        tile = product(words.rule, words.a[some], words.b[some].T, np.tile(words.c[some], (200, 1)))  # (200, 200)
        assert (np.diagonal(tile) == words.d[some]).all()


def test_a_wrong_word_is_seen() -> None:
    words = next(words for path in FILES for words in read(path) if words.d.size > 100)
    words.d[7] ^= 1
    assert words.mismatches() == 1


def test_missing_words_fail_where_they_are_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BITVERDICT_WITHOUT_WORDS", raising=False)
    monkeypatch.setenv("TENSOR_CORE_WORDS", str(tmp_path))
    assert required()
    assert not [path for path in files() if "_own_" not in path.name]


def test_missing_words_are_no_failure_where_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    for said, needed in (("1", False), ("0", True), ("", True)):
        monkeypatch.setenv("BITVERDICT_WITHOUT_WORDS", said)
        assert required() is needed
