"""Contract under test: what `bitverdict mutate` is asked, what it keeps of an earlier run, its report and its exit status."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.frontends.cli_mutate import _begin, _kept_results, add_arguments, kernel_of, of_a_test, status, target_of
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import End, GeneratedMutant, JudgedMutant, Kind, MutantResult, read
from bitverdict.harness.mutants.report import report
from bitverdict.harness.mutants.source.generate import generate


def judged(number: int, end: End, why: str = "") -> JudgedMutant:
    mutant = GeneratedMutant(
        id=f"k/{number}", kernel="k", kind=Kind.SOURCE, operator="mask dropped", family="mask", file="k.py", line=9 - number,
        before=f"before {number}", after=f"after {number}", edit={"start": number},
    )  # fmt: skip
    return JudgedMutant(mutant, MutantResult(mutant=mutant.id, end=end, why=why))


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([End.KILL, End.EQUIVALENT, End.INVALID], 0),
        ([End.KILL, End.SURVIVAL], 1),
        ([End.KILL, End.DOUBTFUL], 1),
        ([End.KILL, End.SURVIVAL, End.ERROR], 3),
        ([End.INVALID], 5),
        ([], 5),
    ],
)
def test_the_exit_status_says_whether_all_live_mutants_were_killed(ends: list[End], expected: int) -> None:
    found = [judged(number, end) for number, end in enumerate(ends)]
    assert status(found) == expected
    assert status(found, ended=True) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["softmx"], "did you mean 'softmax'"),
        (["nowhere.py:f"], "there is no file nowhere.py"),
        (["nowhere.py"], "name the function in it: nowhere.py:FUNCTION"),
        ([f"{__file__}:f", "softmx"], "did you mean 'softmax'"),
        (["softmax", "matmul"], "softmax is a kernel itself"),
        (["softmax", "--count", "-1"], "--count -1: must be at least 0"),
    ],
)
def test_what_cannot_be_mutated_is_told_before_anything_is_imported(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        kernel_of(arguments(*words))


def test_a_kernel_is_judged_on_the_first_target_that_has_what_it_requires() -> None:
    assert target_of(Kernel("softmax"), "").name == "emulated:sm_90"
    assert target_of(Kernel("tmem_copy"), "").name == "emulated:sm_100"
    assert target_of(Kernel("softmax"), "emulated:sm_80").name == "emulated:sm_80"


LIKE = """import bitverdict as bv
from {module} import plus

test_plus = bv.test(plus, like="softmax", claims=("bf16",))
test_named = bv.test("{module}.py:plus", like="softmax")
"""
PLUS = """import triton
import triton.language as tl

@triton.jit
def plus_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

def plus(x):
    plus_kernel[(1,)](x, x, x.numel(), BLOCK=64)

def other(x):
    plus_kernel[(2,)](x, x, x.numel(), BLOCK=64)
"""


def test_a_test_made_with_like_has_the_mutants_of_its_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"mutated_{tmp_path.parent.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(PLUS)
    (tmp_path / "test_like.py").write_text(LIKE.format(module=module))
    monkeypatch.setattr(sys, "path", [*sys.path])
    kernel = of_a_test(kernel_of(arguments(f"{tmp_path}/test_like.py:test_plus")))
    assert kernel.like == "softmax" and of_a_test(Kernel("softmax")) == Kernel("softmax")
    found = list(generate(kernel))
    assert {each.id.split("/")[-3] for each in found} == {"plus", "plus_kernel"}
    assert {each.file for each in found} == {f"{module}.py"}
    with pytest.raises(UsageError, match="import it and give the function"):
        of_a_test(kernel_of(arguments(f"{tmp_path}/test_like.py:test_named")))


def test_a_resumed_run_keeps_what_would_be_the_same_mutant_today(tmp_path: Path) -> None:
    path, same, edited = tmp_path / "results.jsonl", judged(0, End.KILL), judged(1, End.KILL)
    _begin(path, [same, edited])
    today = [same.mutant, replace(edited.mutant, edit={"start": 5})]
    assert _kept_results(path, today) == [same]
    _begin(path, [])
    assert list(read(path)) == []


def test_the_report_names_what_a_test_would_miss_with_lines() -> None:
    found = [judged(0, End.SURVIVAL), judged(1, End.SURVIVAL, "no case"), judged(2, End.KILL), judged(3, End.EQUIVALENT, "equal")]
    told = report(
        [*found, judged(4, End.DOUBTFUL), judged(5, End.INVALID), judged(6, End.ERROR, "out")], "k", "sm_90", "your test", 2
    )
    assert told.splitlines()[0] == "k on sm_90: 7 mutants, 4 live, 1 killed: score 25.0 % (0.5 kills a second)"
    missed = told.partition("your test would miss these 2 faults:\n")[2].partition("\n\n")[0]
    assert missed.splitlines() == [
        "  k.py:8: mask dropped", "    - before 1", "    + after 1", "    no case",
        "  k.py:9: mask dropped", "    - before 0", "    + after 0",
    ]  # fmt: skip
    assert "1 doubtful" in told and "1 equivalent" in told and "1 invalid" in told and "1 not judged" in told
    assert "your test misses none of these" in report([judged(0, End.KILL)], "k", "sm_90", "your test", 0)
