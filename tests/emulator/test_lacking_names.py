"""Contract under test: a test is skipped for what a newer release of Triton brought, by the record's name, and for nothing else."""

from __future__ import annotations

import pytest
import triton

from bitverdict.harness.emulator import releases
from bitverdict.harness.emulator.releases import RELEASES
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from tests.support import lacking_names


@pytest.mark.parametrize(
    ("numbers", "text", "sentence"),
    [
        ((3, 6, 0), "E  cannot import name 'clc' from 'triton.experimental.gluon.language.nvidia.blackwell' (x)",
         "triton {} lacks blackwell.clc, which 3.8.x brought"),
        ((3, 8), "cannot import name 'clc' from 'triton.experimental.gluon.language.nvidia.blackwell' (x)", ""),
        ((3, 6, 0), "cannot import name 'clk' from 'triton.experimental.gluon.language.nvidia.blackwell' (x)", ""),
        ((3, 8), "module 'triton.experimental.gluon.language' has no attribute 'thread_barrier'", ""),
        ((3, 7, 1), "assert <Decision.NOT_RUN> is <PASS>: triton 3.7.1 lacks tma.async_load, which 3.8.x brought",
         "triton 3.7.1 lacks tma.async_load, which 3.8.x brought"),
        ((3, 9), "assert NOT_RUN is PASS: triton 3.9.0 lacks tma.x, which 3.10.x brought", ""),
    ],
)  # fmt: skip
def test_a_test_is_skipped_for_what_a_newer_release_brought_alone(
    numbers: tuple[int, ...], text: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = next(each for each in RELEASES if each.numbers == numbers)
    for module in (releases, lacking_names):
        monkeypatch.setattr(module, "installed_release", lambda: record)
    assert lacking_names.sentence_of(text) == sentence.format(triton.__version__)
    try:
        try:
            raise ImportError(text)
        except ImportError as error:
            raise RuntimeError("compilation failed") from error
    except RuntimeError as error:
        assert lacking_names.sentence_of_error(error) == sentence.format(triton.__version__)


SENTENCE = "triton 3.6.0 lacks tma.async_load, which 3.8.x brought"
LACKING = Verdict(decision=Decision.NOT_RUN, outcome=Outcome.NOT_RUN, message=SENTENCE)
REUSED = next(hazard for hazard in RELEASES[0].hazards if hazard.operation == "ttng.init_barrier")
WRONG = Verdict(decision=Decision.FAIL, outcome=Outcome.WRONG_WORDS, message="element 3")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([LACKING], SENTENCE),
        ({"softmax": LACKING, "rope": Verdict(decision=Decision.PASS, outcome=Outcome.PASS)}, SENTENCE),
        ([LACKING, WRONG], ""),
        ([WRONG], ""),
        (f"NOT RUN  softmax: {SENTENCE}\n", SENTENCE),
        (
            {"message": f"misuse made by the compiler of Triton 3.6.0; workaround: {REUSED.workaround}; bytes 0..7"},
            f"triton {triton.__version__} makes a hazard of {REUSED.operation} and {REUSED.other_operation}",
        ),
        (f"without {REUSED.workaround}; bytes", ""),
    ],
)
def test_a_failed_test_is_skipped_for_the_case_that_its_statement_names(
    found: object, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lacking_names, "installed_release", lambda: RELEASES[0])
    with pytest.raises(AssertionError) as raised:
        assert bool(found) is None
    assert lacking_names.sentence_of_failure(raised.value) == sentence
    with pytest.raises(AssertionError) as raised:  # about none of the case's
        assert bool(WRONG) is None
    assert not lacking_names.sentence_of_failure(raised.value)
