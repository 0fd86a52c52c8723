"""Contract under test: what users reported of published kernels fails by default, and the mended kernel passes.

`tests/contracts/test_asked_by_default.py` has the other reports: strides, 32-bit offsets, scale tails, unwritten pages, tuning in
place.

Of 25 reports five have no kernel here. TritonBench 12 is 24 files of its own, whose kinds of fault the others have. In four the
kernel is right and the machine code wrong; `tests/emulator/frontend/test_compiler_faults.py` has triton 9871 and 10590 and fla 945:

- fla 640 (its pull request 826): a product of a transposed register operand on Hopper, of Triton 3.4 to 3.7.0; 3.9 has it mended.
- triton 9871, fla 945 and triton 10590: words that change from run to run on sm_100 and sm_103, of Triton 3.6 and 3.7.0: no proxy
  fence stands between the store of a tile and tcgen05.mma.
- triton 11153: LLVM's jump threading brings part of a warp to a shuffle or `ldmatrix`. By PTX's own words all threads meet there;
  where a warp comes together again is decided behind it, by ptxas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.contracts.described.contract import DescribedContract, Description
from bitverdict.harness.contracts.described.draw import Draw
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.profiles import Profile
from bitverdict.harness.session.session import Session
from tests.support import reported_kernels as kernels
from tests.support.fake_runs import FakePool

SM_90 = target("emulated:sm_90")
WORDS = frozenset({Outcome.WRONG_MATHEMATICS, Outcome.WRONG_WORDS, Outcome.LOST_PRECISION, Outcome.OUTSIDE_BOUND})
FAR = frozenset({Outcome.ILLEGAL_ADDRESS, Outcome.STRAY_READ})


@dataclass(frozen=True)
class Report:
    drawn: Callable[[Draw], tuple]
    reference: Callable[..., Any]
    wrong: Callable[..., Any]
    right: Callable[..., Any]
    outcomes: frozenset[Outcome]


def one(draw: Draw) -> tuple:
    return (draw.tensor("fp32", draw.size(1, 100)),)


def two(draw: Draw) -> tuple:
    n = draw.size(1, 100)
    return draw.tensor("fp32", n), draw.tensor("fp32", n)


def shorter(draw: Draw) -> tuple:
    n = draw.size(2, 100)
    return draw.tensor("fp32", n), draw.tensor("fp32", n // 2)


def rows(draw: Draw) -> tuple:
    return (draw.tensor("fp32", (draw.size(1, 5), draw.size(1, 100)), strides="contiguous"),)


def window(draw: Draw) -> tuple:
    return draw.tensor("fp32", draw.size(1, 60)), draw.size(1, 9, name="window")


def parts(draw: Draw) -> tuple:
    lengths = draw.lengths(draw.size(1, 5), 0, 40, total=100, name="lengths")
    x = draw.tensor("fp32", (sum(lengths), draw.size(1, 9)), strides="contiguous")
    return x, draw.offsets(lengths, name="offsets")


def windowed(xp: Any, x: Any, window: int) -> Any:
    return xp.stack([xp.sum(x[max(place - window + 1, 0) : place + 1]) for place in range(x.shape[0])])


def of_parts(xp: Any, x: Any, offsets: Any, lengths: tuple[int, ...], mean: bool = False) -> Any:
    ends = [sum(lengths[: part + 1]) for part in range(len(lengths))]
    sums = [xp.sum(x[end - length : end, :], axis=0) for end, length in zip(ends, lengths, strict=True)]
    return xp.stack([total / max(length, 1) if mean else total for total, length in zip(sums, lengths, strict=True)])


def means_of_parts(xp: Any, x: Any, offsets: Any, lengths: tuple[int, ...]) -> Any:
    return of_parts(xp, x, offsets, lengths, mean=True)


def whole_rows(draw: Draw) -> tuple:
    return (draw.tensor("fp32", (draw.size(1, 20), draw.size(1, 40))),)


def heads(draw: Draw) -> tuple:
    return (draw.tensor("fp32", (draw.size(1, 4), draw.size(1, 5), draw.size(1, 3), draw.size(1, 20))),)


def table(draw: Draw) -> tuple:
    x = draw.tensor("fp32", (draw.size(4, 20), draw.size(1, 40)))
    return x, draw.indices(draw.size(1, 9), x.shape[0])


def parts_anywhere(draw: Draw) -> tuple:
    total = draw.size(4, 40)
    return draw.tensor("fp32", (total, draw.size(1, 9))), draw.offsets(draw.size(1, 5), total, name="starts")


def tiles(draw: Draw) -> tuple:
    p, m = draw.tensor("fp32", 32), draw.size(1, 32, name="m")
    return p, draw.tensor("fp32", (32, draw.size(1, 9)), strides="contiguous"), m


def first_of_parts(xp: Any, x: Any, starts: Any) -> Any:
    return xp.where((starts[:-1] < starts[1:])[:, None], xp.take(x, xp.clip(starts[:-1], 0, x.shape[0] - 1), axis=0), 0)


def sums_by_four(xp: Any, x: Any) -> Any:
    return xp.stack([xp.sum(x[start : start + 4, :], axis=0) for start in range(0, x.shape[0], 4)])


def over_tiles(xp: Any, p: Any, g: Any, m: int) -> Any:
    weights = xp.exp(p[:m] - xp.max(p[:m]))
    return xp.sum(weights[:, None] * g[:m, :], axis=0)


def normalised(xp: Any, x: Any) -> Any:
    centred = x - xp.mean(x, axis=1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=1, keepdims=True) + 1e-5)


def twins(kernel: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return partial(kernel, right=False), kernel


REPORTS = {
    "Liger-Kernel 1373, a select of two ways where three are": Report(
        two, lambda xp, p, q: xp.where(p > q, 0.5, xp.where(p < q, -0.5, 0.0)), *twins(kernels.tvd_gradient), WORDS
    ),
    "vllm-ascend 16275, both arms of tl.where": Report(
        one, lambda xp, x: xp.concat([x[:1] * 0, x[:-1]]), *twins(kernels.shifted), frozenset({Outcome.STRAY_READ})
    ),
    "triton 9838, padding in a variance": Report(rows, normalised, *twins(kernels.layer_norm), WORDS),
    "triton 10336, the length of another operand": Report(
        shorter,
        lambda xp, x, b: xp.concat([x[: b.shape[0]] + b, x[b.shape[0] :]]),
        *twins(kernels.with_bias),
        frozenset({Outcome.STRAY_READ}),
    ),
    "helion 655, a load before its store": Report(one, lambda xp, x: 2 * x + 1, *twins(kernels.by_scratch), WORDS),
    "sglang 32087, the oldest key of a window": Report(window, windowed, *twins(kernels.windowed), WORDS),
    "fla 836, rows of the next sequence": Report(
        parts, of_parts, partial(kernels.rows_of_parts, masked=False), kernels.rows_of_parts, WORDS
    ),
    "Liger-Kernel 1483, rows of a block in 32 bits": Report(
        whole_rows, lambda xp, x: x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-6), *twins(kernels.blocked_rms_norm), FAR
    ),
    "fla 1080 and trl 7266, a row of a batch in 32 bits": Report(
        heads, lambda xp, x: xp.sum(x * x, axis=3), *twins(kernels.squares_of_heads), FAR
    ),
    "mamba 988, a chunk's first row in 32 bits": Report(whole_rows, sums_by_four, *twins(kernels.sums_of_chunks), FAR),
    "triton 10489, strides of rows named elsewhere": Report(
        table, lambda xp, x, rows: xp.take(x, rows, axis=0), *twins(kernels.rows_from_elsewhere), FAR
    ),
    "sglang 20389, a start that is read from 32 bits": Report(parts_anywhere, first_of_parts, *twins(kernels.first_rows), FAR),
    "FastVideo 1094, NaN in padding": Report(tiles, over_tiles, *twins(kernels.gradient_of_tiles), WORDS),
    "an empty bag divided by 0": Report(
        parts, means_of_parts, partial(kernels.rows_of_parts, mean=1), partial(kernels.rows_of_parts, mean=2), WORDS
    ),
}


def judged(report: Report, kernel: Callable[..., Any]) -> list[tuple[Case, Verdict]]:
    """The required cases of `kernel`, each with its verdict; as far as the first that fails."""
    described = Description(body=lambda draw: kernel(*report.drawn(draw)), reference=report.reference)
    contract = DescribedContract(described, lambda: ("somewhere.py:NAME", ("/folder",)))
    verdicts: list[tuple[Case, Verdict]] = []
    for case in contract.required(SM_90):
        verdicts.append((case, judge(case, SM_90, contract)))
        if verdicts[-1][1].failed:
            break
    return verdicts


@pytest.mark.share(3)
@pytest.mark.parametrize("name", REPORTS)
def test_what_was_reported_fails_and_the_mended_kernel_passes(name: str) -> None:
    report = REPORTS[name]
    assert judged(report, report.wrong)[-1][1].outcome in report.outcomes, judged(report, report.wrong)[-1]
    verdicts = judged(report, report.right)
    assert all(verdict.decision is Decision.PASS or "exposes no fault" in verdict.message for _, verdict in verdicts), verdicts


@pytest.mark.parametrize("right", [True, False])
def test_programs_that_all_write_the_whole_are_an_advice(right: bool) -> None:
    """TritonBench's pull request 10: every word is right."""
    report = Report(one, lambda xp, x: 2 * x, *twins(kernels.doubled_by_loops), frozenset())
    verdicts = judged(report, report.right if right else report.wrong)
    assert all(verdict.decision is Decision.PASS for _, verdict in verdicts)
    told = {line for _, verdict in verdicts for line in verdict.advice}
    assert bool(told) != right and all("writes the words that another write puts there" in line for line in told)


@pytest.mark.parametrize(("name", "fails"), [("blocks_of_64", True), ("any_block", False)])
def test_each_configuration_writes_the_whole(name: str, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """triton 9230: the tuner's trials of one configuration fill what another leaves."""
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    session = Session(FakePool(), Profile("plain", draws=0, seconds=None, node_seconds=None, shrink_seconds=0))
    bug = session.first_failure(CaseSource(f"tests.support.default_tests:test_{name}", SM_90))
    assert (bug.verdict.outcome if bug is not None else None) == (Outcome.WRONG_MATHEMATICS if fails else None)
