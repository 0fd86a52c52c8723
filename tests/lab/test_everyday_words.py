"""Contract under test: fifteen everyday kernels run on every emulated target, and a word that differs is a failing status."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import everyday_words
from benchmarks.everyday_words import EVERYDAY, TARGETS, main

LEAST = ("--words", "1", "--jobs", "0")


def test_there_are_fifteen() -> None:
    assert len(EVERYDAY) == 15 and sum(each.exact for each in EVERYDAY.values()) == 6


@pytest.mark.share(4)
def test_attention_and_a_sum_of_vectors_run_on_every_target(capsys: pytest.CaptureFixture) -> None:
    assert main([*LEAST, "attention", "vector add"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("attention", "vector"))]
    assert len(lines) == 2 * len(TARGETS)
    for line in lines:
        assert ("ran; largest difference from float64" if line.startswith("attention") else " 0 words differ") in line


def test_a_word_of_the_device_that_differs_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    asked = [*LEAST, "--device", "emulated:sm_90", "vector add"]
    assert main(asked) == 0
    launches = []

    def wrong(*operands):
        (out,) = EVERYDAY["vector add"].launch(*operands)
        launches.append(out)
        return [-out if len(launches) == 2 else out]

    monkeypatch.setattr(everyday_words, "EVERYDAY", {"vector add": replace(EVERYDAY["vector add"], launch=wrong)})
    assert main(asked) == 1 and "1 words differ result 0[0]: 0x" in capsys.readouterr().out


def test_a_wrong_word_fails_without_a_device_as_does_a_failing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    right = EVERYDAY["vector add"]
    monkeypatch.setitem(EVERYDAY, "vector add", replace(right, launch=lambda x, y: [x * 3 + y]))
    assert main([*LEAST, "vector add"]) == 1
    monkeypatch.setitem(EVERYDAY, "vector add", replace(right, launch=lambda x, y: 1 / 0))
    assert main([*LEAST, "vector add"]) == 1
