"""Contract under test: an enclosure holds every word that a choice of the compiler's can give, through arithmetic, reductions,
functions and memory; what would choose by an enclosed value is refused by name, and a judge decides no such word.

The sum of each kernel is made open here, whatever the compiled program says. The words held against are those of every choice.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator import device as emulated_device
from bitverdict.harness.emulator.frontend.contraction import Contraction, Fate
from bitverdict.harness.emulator.numerics import enclosures
from bitverdict.harness.emulator.numerics.enclosures import EnclosedMemory, keys, words_of
from bitverdict.harness.judge.classify import Seen
from bitverdict.harness.judge.compare import compare, with_enclosed
from bitverdict.harness.judge.judge import _compared
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.verdict import Outcome
from bitverdict.reference.special_functions.sequences import exp as exp_words

N = 64


@triton.jit
def summed(x, y, z, out, KIND: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b, c = tl.load(x + at), tl.load(y + at), tl.load(z + at)
    s = a * b + tl.where(a > 100, b * b, c)
    if KIND == "sum":
        tl.store(out + at, s)
    elif KIND == "scaled":
        tl.store(out + at, (tl.maximum(-s, 0.25) - c) * c)
    elif KIND == "rows":
        tl.store(out + tl.arange(0, 8), tl.sum(tl.reshape(s, [8, N // 8]), 1))
    elif KIND == "exp":
        tl.store(out + at, tl.exp(s))
    elif KIND == "compared":
        tl.store(out + at, tl.where(s > 0.0, a, b))
    elif KIND == "equal":
        tl.store(out + at, tl.where(s == a, a, b))
    elif KIND == "bits":
        tl.store(out + at, s.to(tl.int32, bitcast=True).to(tl.float32))


@triton.jit
def copied(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) * 2.0)


@triton.jit
def added(x, N: tl.constexpr):
    tl.atomic_add(x + tl.arange(0, N), 1.0)


@pytest.fixture(autouse=True)
def open_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contraction, "fate", lambda self, line: Fate())
    monkeypatch.setattr(emulated_device, "_translations", {})
    monkeypatch.setenv("HARNESS_TRANSLATIONS", "off")


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x, y, z = (torch.randn(N, generator=generator) for _ in range(3))
    return x, y, z


def choices() -> tuple[np.ndarray, np.ndarray]:
    """The sum with the product rounded, and with it as it is."""
    x, y, z = (each.numpy() for each in operands())
    return x * y + z, (x.astype(np.float64) * y + z).astype(np.float32)


def launched(kind: str, count: int = N) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """The result, and the keys of the ends of its words."""
    out = torch.zeros(count)
    with emulated("sm_90") as device:
        summed[(1,)](*operands(), out, KIND=kind, N=N, num_warps=1)
        low, high = device.enclosure(out)
    return out, keys(low), keys(high)


def holds(low: np.ndarray, high: np.ndarray, words: np.ndarray) -> bool:
    return bool(((low <= keys(words)) & (keys(words) <= high)).all())


def test_keys_are_in_the_order_of_the_values_and_lead_back() -> None:
    values = np.array([-np.inf, -2.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, np.inf], np.float32)
    assert (np.diff(keys(values)) > 0).all() and keys(values)[4] - keys(values)[3] == 1
    np.testing.assert_array_equal(words_of(keys(values), np.dtype(np.float32)).view(np.uint32), values.view(np.uint32))


def test_a_sum_and_what_is_computed_of_it_hold_both_choices() -> None:
    apart, fused = choices()
    assert (apart != fused).sum() >= 8
    z = operands()[2].numpy()
    for kind, run in (("sum", lambda s: s), ("scaled", lambda s: (np.maximum(-s, np.float32(0.25)) - z) * z)):
        _, low, high = launched(kind)
        assert holds(low, high, run(apart)) and holds(low, high, run(fused)), kind
        assert (high - low).max() < 1 << 12, kind


def test_a_reduction_of_enclosed_words_holds_the_sums_of_each_choice() -> None:
    out, low, high = launched("rows", 8)
    for choice in choices():
        exact = choice.astype(np.float64).reshape(8, -1).sum(1)
        ends = (words_of(each, np.dtype(np.float32)).astype(np.float64) for each in (low, high))
        lowest, highest = (end + sign * 1e-6 for end, sign in zip(ends, (-1, 1), strict=True))
        assert ((lowest <= exact) & (exact <= highest)).all()
    assert holds(low, high, out.numpy())


def test_a_function_is_computed_at_each_word_of_an_enclosure() -> None:
    _, low, high = launched("exp")
    for choice in choices():
        assert holds(low, high, exp_words(choice))


def test_a_later_launch_reads_the_enclosure_until_the_word_is_written() -> None:
    apart, fused = choices()
    middle, out = torch.zeros(N), torch.zeros(N)
    with emulated("sm_90") as device:
        summed[(1,)](*operands(), middle, KIND="sum", N=N, num_warps=1)
        copied[(1,)](middle, out, N=N, num_warps=1)
        low, high = map(keys, device.enclosure(out))
        assert holds(low, high, 2 * apart) and holds(low, high, 2 * fused) and (low < high).any()
        middle.fill_(3.0)
        copied[(1,)](middle, out, N=N, num_warps=1)
        assert device.enclosure(out) is None and device.enclosure(middle) is None


@pytest.mark.parametrize("kind", ["equal", "bits"])
def test_what_chooses_by_an_enclosed_value_is_refused(kind: str) -> None:
    with pytest.raises(EmulatedFault, match=r"not modelled: .*of a value that is enclosed"):
        launched(kind)


def test_what_reads_enclosed_memory_otherwise_than_by_a_load_is_refused() -> None:
    middle = torch.zeros(N)
    with emulated("sm_90"):
        added[(1,)](middle, N=N, num_warps=1)  # exact words: nothing is refused
        summed[(1,)](*operands(), middle, KIND="sum", N=N, num_warps=1)
        with pytest.raises(EmulatedFault, match=r"not modelled: tt.atomic_rmw: of a value that is enclosed"):
            added[(1,)](middle, N=N, num_warps=1)


def test_a_function_of_too_many_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclosures, "MOST_WORDS", 2)
    with pytest.raises(EmulatedFault, match=r"not modelled: .*whose enclosure has \d+ words: at most 2 are tried"):
        launched("exp")


def test_a_comparison_that_no_choice_changes_is_decided() -> None:
    apart, _ = choices()
    assert np.abs(apart).min() > 1e-4
    x, y, _ = operands()
    out = torch.zeros(N)
    with emulated("sm_90") as device:
        summed[(1,)](*operands(), out, KIND="compared", N=N, num_warps=1)
        assert device.enclosure(out) is None
    np.testing.assert_array_equal(out.numpy(), np.where(apart > 0, x.numpy(), y.numpy()))


def test_memory_keeps_the_last_store_of_an_address() -> None:
    memory, at = EnclosedMemory(), np.array([8, 4])
    memory.store(at, np.array([1, 2]), np.array([0, 0]), np.array([3, 3]), 4)
    memory.store(at[:1], np.array([7]), np.array([5]), np.array([9]), 4)
    found = memory.at(np.array([4, 8, 12]), np.array([2, 7, 1]), 4)
    assert found is not None and found.low.tolist() == [0, 5, 1] and found.high.tolist() == [3, 9, 1]
    assert memory.overlaps(np.array([10]), 1) and not memory.overlaps(np.array([12]), 4)
    memory.forget(np.array([4, 8]))
    assert not memory


def test_a_word_that_a_choice_can_give_is_not_decided_and_any_other_fails() -> None:
    words = np.array([1.0, 2.0, -3.0], np.float32)
    expected = ExpectedOutput(name="out", shape=(3,), format="fp32", words=words.view(np.uint32))
    got = words.view(np.uint32) + np.array([1, 0, 1], np.uint32)
    low, high = got - np.array([1, 0, 0], np.uint32), got + np.array([1, 0, 1], np.uint32)
    assert compare(expected, got).outcome is Outcome.WRONG_WORDS
    found = compare(with_enclosed(expected, low, high), got)
    assert found.outcome is Outcome.WRONG_WORDS and found.inconclusive == 1 and found.details["wrong"] == 1
    up = np.array([1, 1, -1]).astype(np.uint32)  # of a negative word the next above has the lower bits
    assert compare(with_enclosed(expected, got - up, got + up), got).inconclusive == 3


def test_a_judge_takes_the_enclosures_of_a_launch_into_account() -> None:
    words = np.array([1.0, 2.0], np.float32).view(np.uint32)
    expected, got = ExpectedOutput(name="out", shape=(2,), format="fp32", words=words), words + np.uint32(1)
    seen = Seen(outputs={"out": got}, dtypes={"out": "torch.float32"})
    assert _compared(expected, seen).outcome is Outcome.WRONG_WORDS
    seen.enclosed = {"out": (got - np.uint32(1), got)}
    assert _compared(expected, seen).outcome is Outcome.INCONCLUSIVE
