"""Contract under test: an enclosure holds every word that a choice of the compiler's can give, through arithmetic, reductions,
functions, conversions, choices and memory; what would take an address, a mask, a branch or bits from an enclosed value is refused
by name, and a judge decides no such word.

The sum of each kernel is made open here, whatever the compiled program says. The words held against are those of every choice.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.numerics import enclosures
from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory
from bitverdict.harness.emulator.numerics.enclosures import EnclosedRoom, Enclosure, Enclosures, keys, refuse, words_of
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.compare import compare, with_enclosed
from bitverdict.harness.judge.judge import _compare_output
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.verdict import Outcome
from bitverdict.reference.special_functions.sequences import exp as exp_words
from tests.support.enclosed_kernels import (  # noqa: F401
    N,
    accumulated,
    added,
    choices,
    convolved,
    copied,
    counted,
    decided,
    exchanged,
    holds,
    integers,
    launched,
    open_sums,
    operands,
    summed,
    swapped,
)


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
        assert holds(low, high, exp_words(choice.view(np.uint32)).view(np.float32))


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


@pytest.mark.parametrize(
    ("kind", "what"),
    [("bits", "a value"), ("masked", "a mask that depends on a value"), ("address", "an address that depends on a value"),
     ("branch", "a branch that depends on a value")],
)  # fmt: skip
def test_masks_addresses_branches_and_bits_of_enclosed_values_are_refused(kind: str, what: str) -> None:
    with pytest.raises(EmulatedFault, match=rf"not modelled: .*of {what} that is enclosed"), emulated("sm_90"):
        summed[(1,)](*operands(), torch.from_numpy(choices()[0]), KIND=kind, N=N, num_warps=1)


@pytest.mark.parametrize(("kind", "run"), [("equal", np.equal), ("above", np.greater)])
def test_a_choice_by_an_open_comparison_may_be_either_value(kind: str, run: Callable) -> None:
    (x, y, _), threshold = operands(), choices()[0]
    out = torch.from_numpy(threshold.copy())
    with emulated("sm_90") as device:
        summed[(1,)](*operands(), out, KIND=kind, N=N, num_warps=1)
        low, high = map(keys, device.enclosure(out))
    outcomes = [np.where(run(choice, threshold), x.numpy(), y.numpy()) for choice in choices()]
    assert (outcomes[0] != outcomes[1]).sum() >= 4
    assert all(holds(low, high, outcome) for outcome in outcomes)
    assert not holds(low, high, np.maximum(x.numpy(), y.numpy()) + np.float32(1))  # a fault beside is none of the choices
    assert set(low) <= set(keys(np.concatenate([x.numpy(), y.numpy()])))


def test_a_number_of_open_truths_lies_between_their_extremes() -> None:
    out = torch.from_numpy(choices()[0].copy())
    with emulated("sm_90") as device:
        summed[(1,)](*operands(), out, KIND="count", N=N, num_warps=1)
        low, high = (each[0] for each in map(keys, device.enclosure(out)))
    least, most = (float(words_of(end, np.dtype(np.float32))) for end in (low, high))
    counts = [int((choice > choices()[0]).sum()) for choice in choices()]
    assert max(counts) > 0 == min(counts)
    assert all(least <= 3 * count - 7 <= most for count in range(min(counts), max(counts) + 1))
    assert least > 3 * -1 - 7 and most < 3 * N - 7  # some are settled


@pytest.mark.parametrize("kind", ["gathered", "one of all"])
def test_a_load_at_an_open_index_holds_what_lies_at_each_of_its_places(kind: str) -> None:
    x, y, z = operands()
    sums = choices()
    scale = ((np.round(np.abs(sums[0]) * 30) + 2) / sums[0]).astype(np.float32)  # near integers, so that the choice decides
    numbers = [np.trunc(each * scale).astype(np.int64) for each in sums]
    table = np.random.default_rng(11).integers(-(2**31), 2**31, 512).astype(np.int32)

    def ends(words: np.ndarray, kind: str) -> tuple[np.ndarray, ...]:
        out = torch.full((N,), place if kind == "one of all" else 0, dtype=torch.int32)
        with emulated("sm_90") as device:
            integers[(1,)](x, y, z, *map(torch.from_numpy, (scale, words)), out, KIND=kind, N=N, num_warps=1)
            return tuple(each.view(np.int32) for each in device.enclosure(out))

    places = ends(np.zeros(512, np.int32), "plus")
    assert all((places[0] <= each).all() and (each <= places[1]).all() for each in numbers)
    place = int(np.where(numbers[0] < places[1], places[1], 0).argmax())  # of which the word itself is not the last
    there = [table[low : high + 1] for low, high in zip(*places, strict=True)]
    found = np.array([[each.min(), each.max()] for each in there]).T
    found[:, :8] = -7
    if kind == "one of all":
        found = np.stack([np.where(np.arange(N) == 0, end[place], place) for end in found])
    assert (found[0] < found[1]).any()
    np.testing.assert_array_equal(np.stack(ends(table, kind)), found)
    assert place > 7
    z[places[1] > places[1][place]] = -(x * y)[places[1] > places[1][place]]  # exact zeros
    with pytest.raises(EmulatedFault, match=r"not modelled: tt.load: of an address .* outside of what the launch only reads"):
        ends(table[: places[1][place]], kind)  # it ends before the last place of one index
    with pytest.raises(EmulatedFault, match=r"not modelled: tt.load: of an address .* outside of what the launch only reads"):
        ends(table, "its own")


@pytest.mark.parametrize("kind", ["largest", "smallest"])
def test_the_place_of_an_extreme_holds_those_that_any_choice_makes_it(kind: str) -> None:
    generator = torch.Generator().manual_seed(7)
    x, y = (torch.randn(N // 8, 1, generator=generator).expand(-1, 8).reshape(-1).contiguous() for _ in range(2))
    z = torch.randn(N, generator=generator).sign() * 0.1
    out = torch.zeros(N // 8, dtype=torch.int32)
    with emulated("sm_90") as device:
        decided[(1,)](x, y, z, z, out, KIND=kind, N=N, num_warps=1)
        low, high = (each.view(np.int32) for each in device.enclosure(out))
    a, b, c = (each.numpy() for each in (x, y, z))
    sums = np.stack([a * b + c, (a.astype(np.float64) * b + c).astype(np.float32)])  # (2, N)
    seen = set()
    for choice in product((0, 1), repeat=8):
        rows = sums[np.tile(choice, N // 8), np.arange(N)].reshape(-1, 8)
        places = (rows.argmax(1) if kind == "largest" else rows.argmin(1)) * 2 + 1
        assert ((low <= places) & (places <= high)).all()
        seen.add(tuple(places))
    assert len(seen) > 1
    worst = (c.reshape(-1, 8).argmin(1) if kind == "largest" else c.reshape(-1, 8).argmax(1)) * 2 + 1
    assert (low > 1).any() or (high < 15).any()
    assert ((worst < low) | (worst > high)).any()  # an element that no choice makes the extreme


@pytest.mark.parametrize(("kind", "element"), [("masked", "False to True"), ("address", "[0-9]+ to [0-9]+"), ("branch", "0 to 1")])
def test_a_refusal_names_the_line_the_element_and_its_two_ends(kind: str, element: str) -> None:
    said = rf"that is enclosed \(element \[[0-9]+\] may be {element}\), because .* take a product \[.*enclosed_kernels.py:[0-9]+\]"
    with pytest.raises(EmulatedFault, match=said), emulated("sm_90"):
        summed[(1,)](*operands(), torch.from_numpy(choices()[0]), KIND=kind, N=N, num_warps=1)


@pytest.mark.parametrize("step", [1.0, 2.0**-12 + 1])
def test_taps_whose_products_are_exact_leave_their_silu_decided(step: float) -> None:
    """Of small integers in fp16 the sums cancel to zero, and nothing is open; elsewhere each choice lies inside."""
    numbers = np.random.default_rng(2).integers(-3, 4, N + 4)
    x, w = ((numbers[part] * np.float32(step)).astype(np.float32) for part in (slice(4, None), slice(4)))
    half, found = torch.float16 if step == 1 else torch.float32, []
    with emulated("sm_90") as device:
        for taps, fuses in ((4, True), (4, False), (3, False)):
            given, out = (torch.from_numpy(each).to(half) for each in (x, w)), torch.zeros(N)
            convolved[(1,)](*given, out, TAPS=taps, N=N, num_warps=1, enable_fp_fusion=fuses)
            found.append((out.numpy(), device.enclosure(out)))
    (words, ends), (rounded, _), (fewer, _) = found
    assert (ends is None) == (step == 1) and (words == 0).any()
    low, high = (words, words) if ends is None else (each.view(np.float32) for each in ends)
    assert holds(*map(keys, (low, high)), rounded) and not holds(*map(keys, (low, high)), fewer)  # where a tap is missing


def test_what_reads_enclosed_memory_otherwise_than_by_a_load_is_refused() -> None:
    middle = torch.zeros(N)
    with emulated("sm_90"):
        exchanged[(1,)](middle, N=N, num_warps=1)  # exact words: nothing is refused
        summed[(1,)](*operands(), middle, KIND="sum", N=N, num_warps=1)
        exchanged[(1,)](torch.zeros(N), N=N, num_warps=1)  # beside what is enclosed
        swapped[(1,)](torch.zeros(1, dtype=torch.int32))
        halves = middle.view(torch.float16)
        for launch, kind in (
            (lambda: exchanged[(1,)](middle, N=N, num_warps=1), "rmw"),
            (lambda: swapped[(1,)](middle.view(torch.int32)), "cas"),
            (lambda: added[(1,)](halves, N=N, num_warps=1), "rmw"),  # parts of enclosed words
        ):
            with pytest.raises(EmulatedFault, match=rf"not modelled: tt.atomic_{kind}: of a value that is enclosed"):
                launch()


def errors_of_products() -> tuple[torch.Tensor, ...]:
    """Operands whose sum is nothing, or the error of the rounded product, alike for two neighbours; and that error."""
    x, y = (each[::2].repeat_interleave(2) for each in operands()[:2])
    error = x.double() * y - x * y
    return x, y, -x * y, error.float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_an_atomic_sum_of_enclosed_words_holds_the_sums_of_each_choice(dtype: torch.dtype) -> None:
    """What two lanes add to one word, what a later launch adds to it, and the words before; not of a kernel that adds more."""
    total, old, scale = torch.ones(N // 2 + 1, dtype=dtype), torch.zeros(N, dtype=dtype), 2.0**18
    *given, error = errors_of_products()
    with emulated("sm_90") as device:
        accumulated[(1,)](*given, total, old, SCALE=scale, N=N, num_warps=1)
        added[(1,)](total[: N // 4], N=N // 4, num_warps=1)
        low, high = (torch.from_numpy(end.view(f"i{end.itemsize}")).view(dtype) for end in device.enclosure(total))
        old_low, old_high = (torch.from_numpy(end.view(f"i{end.itemsize}")).view(dtype) for end in device.enclosure(old))
    for apart in torch.zeros(N), error:
        first = (apart * scale).to(dtype)[: N - 2 : 2]
        before = torch.ones_like(first) + first
        after = before + first
        after[: N // 4] += 1
        assert ((low[:-2] <= after) & (after <= high[:-2])).all() and (low[:-2] < high[:-2]).sum() > N // 4
        assert not ((low[:-2] <= after + 1) & (after + 1 <= high[:-2])).any()
        assert ((old_low[1 : N - 2 : 2] <= before) & (before <= old_high[1 : N - 2 : 2])).all()
    assert (old_low[: N - 2 : 2] == 1).all() and (old_high[: N - 2 : 2] == 1).all() and low[-2] == high[-2] == 1
    assert low[-1] < high[-1] or dtype is not torch.float32


def test_an_atomic_sum_that_one_choice_lets_overflow_is_refused() -> None:
    total = torch.full((N // 2 + 1,), torch.finfo(torch.float32).max)
    with pytest.raises(EmulatedFault, match=r"not modelled: .*leads to an infinity or a NaN"), emulated("sm_90"):
        accumulated[(1,)](*errors_of_products()[:3], total, torch.zeros(N), SCALE=2.0**127, N=N, num_warps=1)


def test_a_function_of_too_many_words_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclosures, "MOST_WORDS", 2)
    with pytest.raises(EmulatedFault, match=r"not modelled: .*whose enclosure has \d+ words: at most 2 are tried"):
        launched("sine")


def test_a_comparison_that_no_choice_changes_is_decided() -> None:
    apart, _ = choices()
    assert np.abs(apart).min() > 1e-4
    x, y, _ = operands()
    out = torch.zeros(N)
    with emulated("sm_90") as device:
        summed[(1,)](*operands(), out, KIND="compared", N=N, num_warps=1)
        assert device.enclosure(out) is None
    np.testing.assert_array_equal(out.numpy(), np.where(apart > 0, x.numpy(), y.numpy()))


@triton.jit
def padded(x, y, z, out, keep, FLIPPED: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    inf, product = float("inf"), tl.load(x + at) * tl.load(y + at)
    scores = tl.where(at >= keep, -inf, product) if FLIPPED else tl.where(at < keep, product, -inf)
    tl.store(out + at, scores - tl.load(z + at), mask=at < keep)


@pytest.mark.parametrize("flipped", [False, True])
def test_what_a_select_takes_beside_a_product_is_none(flipped: bool) -> None:
    """A softmax pads its scores by -inf: less their own maximum these are NaN whatever is fused, and stored nowhere."""
    x, y, z = operands()
    z[N // 2 :] = -torch.inf
    out = torch.zeros(N)
    with emulated("sm_90") as device:
        padded[(1,)](x, y, z, out, N // 2, FLIPPED=flipped, N=N, num_warps=1)
        low, high = (keys(each)[: N // 2] for each in device.enclosure(out))
    product_, kept = (x.double() * y.double()).numpy()[: N // 2], z.numpy()[: N // 2]
    apart, fused = product_.astype(np.float32) - kept, (product_ - kept).astype(np.float32)
    assert (apart != fused).any() and holds(low, high, apart) and holds(low, high, fused)


@triton.jit
def guarded(x, y, z, w, out, keep, N: tl.constexpr):
    at = tl.arange(0, N)
    open_sum = tl.where(at < keep, tl.load(x + at) * tl.load(y + at), 0.0) - tl.load(z + at)
    divisor = open_sum * tl.load(w + at) + tl.load(w + at)
    tl.store(out + at, 1.0 / tl.where(divisor == 0, 1.0, divisor))


def test_zero_times_an_enclosed_factor_is_exact() -> None:
    """Rows beyond a sequence have the denominator zero, which a select replaces: it is one word for every choice."""
    x, y, z = operands()
    w, out = torch.where(torch.arange(N) % 2 == 0, 64.0, 0.0), torch.zeros(N)
    z = torch.where(w == 0, z, torch.full_like(z, 8.0))  # the divisors that are none lie far from zero
    with emulated("sm_90") as device:
        guarded[(1,)](x, y, z, w, out, N // 2, N=N, num_warps=1)
        low, high = (keys(each) for each in device.enclosure(out))
    assert (out[w == 0] == 1).all() and (low == high)[(w == 0).numpy()].all() and (low != high).any()


def test_memory_keeps_the_last_store_of_an_address() -> None:
    memory, at = EnclosedMemory(), np.array([8, 4])
    memory.store(at, np.array([1, 2]), np.array([0, 0]), np.array([3, 3]), 4)
    memory.store(at[:1], np.array([7]), np.array([5]), np.array([9]), 4)
    found = memory.enclosure_at(np.array([4, 8, 12]), np.array([2, 7, 1]), 4)
    assert found is not None and found.low.tolist() == [0, 5, 1] and found.high.tolist() == [3, 9, 1]
    assert memory.overlaps(np.array([10]), 1) and not memory.overlaps(np.array([12]), 4)
    memory.forget(np.array([12, 2]), 2)
    assert memory
    memory.forget(np.array([6, 8]), 2)  # a part of a word
    assert not memory


def test_memory_of_enclosed_words_agrees_with_a_list_of_them() -> None:
    """Words of 1 to 8 bytes around an end of a page, in turn or not, near or far: stored, overwritten in part, forgotten."""
    random, memory, copied, listed = np.random.default_rng(7), EnclosedMemory(), EnclosedMemory(), dict[int, tuple[int, int]]()
    for turn in range(400):
        size, count = int(random.choice([1, 2, 4, 8])), int(random.integers(1, 40))
        places = int(random.integers(8)) + np.arange(count) if turn % 3 == 0 else random.permutation(512 // size)[:count]
        first, apart = (1 << 14) * 3 - 256 + int(random.choice([0, 0, 1])), 4096 if turn % 7 == 6 else 1
        address = first + size * apart * places
        touched = [at for at, (long, _) in listed.items() if ((at < address + size) & (address < at + long)).any()]
        assert memory.overlaps(address, size) == bool(touched)
        if turn % 5 == 4:
            first, end = sorted(map(int, random.choice(address, 2)))
            memory.forget_range(first, end)
            touched = [at for at in listed if first <= at < end]
        elif turn % 5 == 3:
            memory.forget(address, size)
        else:
            memory.store(address, address + turn, address - 1, address + 1, size)
        listed = {at: word for at, word in listed.items() if at not in touched}
        listed |= {int(at): (size, int(at) + turn) for at in address} if turn % 5 < 3 else {}
        words = memory.words()
        assert dict(zip(words["address"].tolist(), zip(words["size"], words["word"], strict=True), strict=True)) == dict(
            sorted(listed.items())
        )
        assert bool(memory) == bool(listed)
        copied = memory.copy() if turn == 200 else copied
        if turn == 200:
            before = copied.words()
    assert np.array_equal(copied.words(), before)  # what is stored in one is not in the other


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
    seen = LaunchResult(outputs={"out": got}, dtypes={"out": "torch.float32"})
    judgement: Any = SimpleNamespace(launch_result=seen, twin=None)
    assert _compare_output(judgement, expected, seen).outcome is Outcome.WRONG_WORDS
    seen.enclosures = {"out": (got - np.uint32(1), got)}
    assert _compare_output(judgement, expected, seen).outcome is Outcome.INCONCLUSIVE


def test_a_refusal_names_the_open_words_of_memory_on_the_chip() -> None:
    """Memory says what is enclosed in it anew each time it is asked."""

    class Words(EnclosedRoom):
        dtype = np.dtype(np.float32)

        def enclosure(self) -> Enclosure:
            return Enclosure(keys(np.float32([1, 2])), keys(np.float32([1, 3])))

    cta = SimpleNamespace(launch=SimpleNamespace(enclosures=Enclosures()))
    op = SimpleNamespace(name="ttng.tmem_copy", location="kernel.py:1", brief="", text="")
    with pytest.raises(NotModelled, match=r"element \[1\] may be 2.0 to 3.0"):
        refuse(cta, op, "a value that is enclosed", np.float32([4, 5]), Words())
