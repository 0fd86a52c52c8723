"""Contract under test: a committed table is what the fit makes of the words, and a file of tables reads back as it was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bitverdict.harness.lab.hardware_words import function_fit
from bitverdict.harness.lab.hardware_words.function_fit import BINADE, FITS, RecordedWords, binade, hyperbolic_tangent, main, module
from bitverdict.harness.lab.hardware_words.function_words import pack, ptx
from bitverdict.harness.lab.hardware_words.quadratic_fit import NO_BOUND, Bounds, DoesNotFit
from bitverdict.reference.special_functions import coefficients
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS
from tests.support.shares import of_a_campaign


class Recorded:
    """Answers as Kept does, with the reference's words; `changed` names an argument whose word is one unit off, `every`
    how far apart those are that are asked."""

    gpu = "the reference"

    def __init__(self, changed: int = -1, every: int = 1) -> None:
        self.changed, self.every = changed, every

    def words(self, function: str, first: int, count: int = BINADE) -> np.ndarray:
        arguments = np.arange(0, count, self.every, dtype=np.uint32) + np.uint32(first)
        return INSTRUCTIONS[ptx(function)](arguments) ^ (arguments == self.changed).astype(np.uint32)


@of_a_campaign
@pytest.mark.share(4)
def test_the_fit_of_tanh_is_the_committed_table() -> None:
    assert hyperbolic_tangent(Recorded()) == coefficients.TANH  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["RCP", "RSQRT", "SQRT", "EX2", "LG2", "SINE"])
def test_a_committed_table_keeps_the_bounds_of_the_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one argument in 4099: the fit of all takes half a minute."""
    found: list[Bounds] = []
    monkeypatch.setattr(function_fit, "binade", lambda exponent: binade(exponent)[::4099])
    monkeypatch.setattr(function_fit, "fit", lambda form, bounds: found.append(bounds))
    FITS[name](Recorded(every=4099))  # type: ignore[arg-type]
    (bounds,) = found
    known = np.nonzero((bounds.lower > -NO_BOUND) & (bounds.upper < NO_BOUND))  # (rows,), (X,)
    sums = getattr(coefficients, name).sums(*known)
    assert len(sums) > 1900 and set(known[0]) == set(range(len(bounds.lower)))
    assert ((bounds.lower[known] <= sums) & (sums <= bounds.upper[known])).all()


def test_a_word_that_no_row_gives_is_refused() -> None:
    with pytest.raises(DoesNotFit, match="tanh, exponent -8: a word changes inside a step of 64 arguments"):
        hyperbolic_tangent(Recorded(changed=0x3B812345))  # type: ignore[arg-type]


def test_a_file_of_tables_reads_back() -> None:
    held = {name: getattr(coefficients, name) for name in FITS}
    found: dict[str, object] = {}
    text = module(held, "NVIDIA H100 80GB HBM3")
    exec(compile(text, "coefficients.py", "exec"), found)
    assert {name: found[name] for name in FITS} == held
    assert text == Path(coefficients.__file__).read_text()


def test_kept_words_are_found_across_files_and_pieces(tmp_path: Path) -> None:
    words = np.arange(3 << 20, dtype=np.uint32)  # a piece of 2^21 and one of 2^20
    np.savez(tmp_path / "x_own_functions_words_0.npz", **{"rcp_approx_ftz_f32-00000000": pack(words[: 1 << 21])})
    np.savez(tmp_path / "x_own_functions_words_1.npz", **{"rcp_approx_ftz_f32-00200000": pack(words[1 << 21 :])})
    assert (RecordedWords(tmp_path).words("rcp_approx_ftz_f32", 0, 3 << 20) == words).all()
    with pytest.raises(KeyError, match="rcp_approx_ftz_f32-00400000 was not kept"):
        RecordedWords(tmp_path).words("rcp_approx_ftz_f32", 1 << 22, 1 << 20)


def test_a_folder_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="record them first"):
        main([str(tmp_path)])
