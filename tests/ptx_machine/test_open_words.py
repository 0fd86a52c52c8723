"""Contract under test: where the tile program leaves open which product a sum takes in, the words of a launch are those of its PTX;
they stay enclosed where the PTX does not say, or says what lies outside."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.emulator.execution import cta_state
from bitverdict.harness.emulator.numerics.enclosures import keys
from bitverdict.harness.frontends.emulated_session import EmulatedSession
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.ptx_machine import open_words
from bitverdict.harness.ptx_machine.below_the_tile_program import _ATOMIC_SUM
from bitverdict.harness.ptx_machine.open_words import OpenWords
from tests.support import fusion_kernels
from tests.support.ptx_results import SM_80, required_case

ROWS, COLUMNS = 64, 16
SCAN = {"KIND": "products in two orders", "num_warps": 1, "enable_fp_fusion": True}


def scanned(*probes: OpenWords, seconds_limit: float = 0) -> tuple[torch.Tensor, tuple[np.ndarray, np.ndarray] | None]:
    """The words of a scan of products, and their enclosures."""
    x, y = torch.randn(2, 4 * ROWS * COLUMNS, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(ROWS * COLUMNS)
    with emulated("sm_90", options=LaunchOptions(probes=probes, seconds_limit=seconds_limit)) as device:
        fusion_kernels.probe[(1,)](x, y, out, 3, ROWS=ROWS, COLUMNS=COLUMNS, **SCAN)
    return out, device.enclosure(out)


def test_words_that_the_tile_program_leaves_open_are_those_of_the_ptx() -> None:
    words, enclosure = scanned()
    assert enclosure is not None and (enclosure[0] != enclosure[1]).any()
    exact, known = scanned(OpenWords())
    assert known is None
    differs = (exact != words).numpy()
    assert not differs[enclosure[0] == enclosure[1]].any()
    low, got, high = map(keys, (enclosure[0], exact.numpy().view(np.uint32), enclosure[1]))
    assert differs.any() and ((low <= got) & (got <= high)).all()


@pytest.mark.parametrize(
    "rewrite",
    [lambda text: text.replace("mul.f32", "add.f32"), lambda text: text.replace("fma.rn.f32", "fma.rn.unknown")],
    ids=["other words", "unread"],
)
def test_words_stay_enclosed_where_the_ptx_does_not_say(rewrite: object) -> None:
    words, enclosure = scanned()
    kept, still = scanned(OpenWords(rewrite=rewrite))  # type: ignore[arg-type]
    assert torch.equal(kept, words) and enclosure is not None and still is not None
    assert np.array_equal(still[0], enclosure[0]) and np.array_equal(still[1], enclosure[1])


def test_the_judge_settles_open_words(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[str] = []
    monkeypatch.setattr(OpenWords, "settle", lambda self, run: settled.append(run.launch.name))
    assert judge(required_case("softmax"), SM_80).outcome is Outcome.PASS and settled


def test_tests_on_an_emulated_gpu_settle_open_words() -> None:
    session, inputs = (
        EmulatedSession(["sm_90"], 1, ()),
        torch.randn(2, 4 * ROWS * COLUMNS, generator=torch.Generator().manual_seed(0)),
    )
    session.enter()
    try:
        x, y, out = inputs[0].cuda(), inputs[1].cuda(), torch.zeros(ROWS * COLUMNS, device="cuda")
        fusion_kernels.probe[(1,)](x, y, out, 3, ROWS=ROWS, COLUMNS=COLUMNS, **SCAN)
        assert session.device.enclosure(out) is None
    finally:
        session.close()


@pytest.mark.parametrize(("bound", "most"), [("MOST_THREADS", 31), ("MOST_WORDS", 100 * open_words.STEP_WORDS)])
def test_words_of_a_large_launch_stay_enclosed(monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    monkeypatch.setattr(open_words, bound, most)
    assert scanned(OpenWords())[1] is not None


@pytest.mark.parametrize(("seconds", "is_settled"), [(5, False), (1000, True)])
def test_the_limit_of_a_launch_counts_its_ptx(monkeypatch: pytest.MonkeyPatch, seconds: int, is_settled: bool) -> None:
    clock = itertools.count()
    monkeypatch.setattr(cta_state, "process_time", lambda: next(clock) / 100)  # each look at it is 10 ms

    def rewrite(text: str) -> str:
        next(itertools.islice(clock, 500, None))  # the launch itself has ended within its 5 s
        return text

    assert (scanned(OpenWords(rewrite=rewrite), seconds_limit=seconds)[1] is None) is is_settled


def test_words_computed_of_enclosed_ones_stay_enclosed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(2, 4 * ROWS * COLUMNS, generator=torch.Generator().manual_seed(0))
    out, sums = torch.zeros(2, 4 * ROWS * COLUMNS)
    with emulated("sm_90", options=LaunchOptions(probes=(OpenWords(),))) as device:
        for most, given, result in ((31, x, out), (1 << 18, out, sums)):
            monkeypatch.setattr(open_words, "MOST_THREADS", most)
            fusion_kernels.probe[(1,)](given, y, result, 3, ROWS=ROWS, COLUMNS=COLUMNS, **SCAN)
    assert device.enclosure(out) is not None and device.enclosure(sums) is not None


def test_a_sum_that_ptxas_or_the_order_of_threads_decides_is_not_definite() -> None:
    plain = lambda text: re.sub(
        r"fma\.rn\.f32\s+(%r\d+), (%r\d+), (%r\d+), (%r\d+);", r"mul.f32 \1, \2, \3; add.f32 \1, \1, \4;", text
    )
    assert scanned(OpenWords(rewrite=plain))[1] is not None
    for opcode in (
        "atom.global.gpu.acq_rel.add.f32",
        "red.relaxed.gpu.global.add.noftz.f16x2",
        "cp.reduce.async.bulk.add.noftz.bf16",
    ):
        assert _ATOMIC_SUM.match(opcode)
    for opcode in "atom.global.add.u32", "add.rn.f32", "red.global.max.s32", "atom.global.cas.b32":
        assert not _ATOMIC_SUM.match(opcode)
