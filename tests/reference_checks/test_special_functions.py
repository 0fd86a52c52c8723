"""Contract under test: each approximate instruction gives the words that an H100 and an H200 gave, and no other rule near it does.

A drawn 1 % of the digests here, all of them by `python -m bitverdict.harness.lab.hardware_words.function_check`. A mutant is a
rule with one coefficient, constant or special case changed; the same digests must refuse it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bitverdict.harness.lab.hardware_words import function_check
from bitverdict.harness.lab.hardware_words.function_check import (
    DIGESTS,
    SMALL_WORDS,
    check_small_words,
    differing_ranges,
    drawn,
    results,
)
from bitverdict.harness.lab.hardware_words.function_words import OF_16_BITS, PAIR_RANGES, RANGES, operands, ptx, tiny_products
from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions import quadratic, units
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS
from bitverdict.reference.special_functions.quadratic import TANH_FIRST_EXPONENT, TANH_SEGMENTS
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module, once

with np.load(DIGESTS, allow_pickle=False) as _held:
    KEPT = {name: _held[name] for name in _held.files if name != "meta"}
    ABOUT = json.loads(str(_held["meta"]))


def wrong(name: str, share: float = 0.01) -> list[int]:
    """Drawn ranges of a function that differ from the kept digests."""
    numbers = drawn(name, share, data_seed=15)
    return differing_ranges(name, numbers, KEPT[name][numbers].tolist())


@pytest.mark.share(3)
@pytest.mark.parametrize("name", KEPT)
def test_a_drawn_hundredth_of_all_arguments_gives_the_gpu_s_words(name: str) -> None:
    assert wrong(name) == []


def test_every_instruction_is_held_to_words() -> None:
    """And all 2^32 arguments of each have digests, 2^28 pairs of those of two words."""
    with np.load(SMALL_WORDS, allow_pickle=False) as held:
        small = set(held.files)
    known = {ptx(name) for name in KEPT} | {ptx(name) for name in OF_16_BITS if name in small}
    assert {name.removesuffix("x2") for name in INSTRUCTIONS} == known
    assert {len(words) for words in KEPT.values()} == {RANGES, PAIR_RANGES}
    assert ABOUT["arch"] == "sm_90"


def test_16_bit_functions_and_edges_give_the_gpu_s_words() -> None:
    with np.load(SMALL_WORDS, allow_pickle=False) as held:
        found = list(check_small_words({key: held[key] for key in held.files}))
    assert len(found) == 12
    assert all(count == 0 for _, count, _ in found), found


def test_flushing_looks_at_the_result_rounded_without_a_least_exponent() -> None:
    """65,536 products next to 2^-126; rounding to a multiple of 2^-149 first gives other words in 5,764 places."""
    a, b = (words.view(np.float32) for words in tiny_products())  # (65536,) each
    with np.load(SMALL_WORDS, allow_pickle=False) as held:
        kept = {name: held[f"{name}-tiny"] for name in ("mul_rn_ftz_f32", "fma_rn_ftz_f32")}
    assert (fp32.multiply(a, b, flush=True).view(np.uint32) == kept["mul_rn_ftz_f32"]).all()
    assert (fp32.fma(a, b, np.zeros_like(a), flush=True).view(np.uint32) == kept["fma_rn_ftz_f32"]).all()
    assert (fp32.flush_subnormals(a * b).view(np.uint32) != kept["mul_rn_ftz_f32"]).sum() == 5764


def test_packed_forms_are_the_single_ones_on_both_halves() -> None:
    words = np.random.default_rng(6).integers(0, 1 << 32, 5000, dtype=np.uint32)
    for name in OF_16_BITS:
        halves = [INSTRUCTIONS[ptx(name)](half.astype(np.uint16)).astype(np.uint32) for half in (words & 0xFFFF, words >> 16)]
        assert (INSTRUCTIONS[f"{ptx(name)}x2"](words) == (halves[0] | halves[1] << 16)).all()


@contextmanager
def changed_table(table: str, **changes: object) -> Iterator[None]:
    """The unit with a table that has other fields."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, table, replace(getattr(units, table), **changes))
        yield


TABLES = {
    "RCP": "rcp_approx_ftz_f32", "RSQRT": "rsqrt_approx_ftz_f32", "SQRT": "sqrt_approx_ftz_f32", "EX2": "ex2_approx_ftz_f32",
    "LG2": "lg2_approx_ftz_f32", "SINE": "sin_approx_ftz_f32", "TANH": "tanh_approx_f32",
}  # fmt: skip
STEP_OF_C0 = {"TANH": 8}
"""How far c0 is moved. tanh's is counted in units of 2^-39, of which its words fix it to within 8."""


def argument(table: str, row: int, share: float) -> float:
    """An argument that uses a row, this share of its way from the first to the last."""
    if table == "SINE":
        return (row + share) / 64 * np.pi / 2
    if table == "TANH":
        for exponent, segments in enumerate(TANH_SEGMENTS, TANH_FIRST_EXPONENT):
            if row < segments:
                return 2.0**exponent * (1 + (row + share) / segments)
            row -= segments
    if table in ("RSQRT", "SQRT"):
        return (0.5 if row < 64 else 1.0) * (1 + (row % 64 + share) / 64)
    return 1 + (row + share) / len(getattr(units, table).rows)


def notices(table: str, row: int) -> bool:
    """Whether a kept digest of arguments that use a row is another one."""
    first, last = (int(np.float32(argument(table, row, share)).view(np.uint32)) >> 16 for share in (0.02, 0.98))
    name = TABLES[table]
    return any(differing_ranges(name, [number], [int(KEPT[name][number])]) for number in range(first, last + 1))


@pytest.mark.parametrize("table", TABLES)
def test_one_unit_in_one_coefficient_is_noticed(table: str) -> None:
    held = getattr(units, table)
    for row in (0, len(held.rows) // 2, len(held.rows) - 1):
        assert not notices(table, row)
        for column in range(3):
            rows = [list(numbers) for numbers in held.rows]
            rows[row][column] += STEP_OF_C0.get(table, 1) if column == 0 else 1
            with changed_table(table, rows=tuple(map(tuple, rows))):
                assert notices(table, row), (row, column)


@pytest.mark.parametrize("table", TABLES)
def test_another_bias_is_noticed(table: str) -> None:
    """By as much as one unit of c0 has room for."""
    held = getattr(units, table)
    with changed_table(table, bias=held.bias + max(8, 1 << held.constant_shift)):
        assert notices(table, len(held.rows) // 2)


@pytest.mark.parametrize("dropped", [18, 20])
@pytest.mark.parametrize("table", TABLES)
def test_another_squarer_is_noticed(table: str, dropped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    every = np.arange(1 << quadratic.SQUARED_BITS, dtype=np.int64)
    other = quadratic.truncated_square(every, dropped)
    scaled = (other << 1 if dropped == 20 else other >> 1).astype(np.float64)
    monkeypatch.setattr(quadratic, "squares", lambda: scaled)
    assert any(notices(table, row) for row in range(len(getattr(units, table).rows)))


REBUILT = Mutant(
    kernel="reference/special_functions/instructions.py",
    name="same words",
    edits=once("BLOCK = 1 << 13", "BLOCK = 1 << 14"),
    expected=(),
)
"""No fault: the module is executed anew, and takes up the changed unit."""


@pytest.mark.parametrize("mutant", corpus.SPECIAL_CASES, ids=lambda mutant: mutant.name)
def test_another_special_case_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    function = mutant.name
    with mutant_module(mutant) as changed:
        for name, value in vars(changed).items():
            if callable(value) and getattr(value, "__module__", "") == changed.__name__:
                monkeypatch.setattr(units, name, value)
        with mutant_module(REBUILT) as rebuilt:
            monkeypatch.setitem(INSTRUCTIONS, ptx(function), rebuilt.INSTRUCTIONS[ptx(function)])
            assert wrong(function, 0.0)


@pytest.mark.parametrize("mutant", corpus.SEQUENCES, ids=lambda mutant: mutant.name)
def test_another_sequence_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    function = mutant.name
    with mutant_module(mutant) as changed:
        monkeypatch.setitem(INSTRUCTIONS, ptx(function), changed.INSTRUCTIONS[ptx(function)])
        assert wrong(function, 0.0)


@pytest.mark.parametrize("mutant", corpus.DIVISIONS, ids=lambda mutant: mutant.name)
def test_another_step_of_a_division_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    function = mutant.name
    with mutant_module(mutant) as changed:
        monkeypatch.setitem(INSTRUCTIONS, ptx(function), changed.INSTRUCTIONS[ptx(function)])
        with np.load(SMALL_WORDS, allow_pickle=False) as held:
            ((_, count, _),) = check_small_words({f"{function}-edges": held[f"{function}-edges"]})
    assert count


def test_operands_of_another_type_or_number_are_refused() -> None:
    word = np.zeros(3, np.uint32)
    with pytest.raises(ValueError, match=r"ex2\.approx\.f32 takes 1 operand\(s\) of uint32 words; got uint32, uint32"):
        INSTRUCTIONS["ex2.approx.f32"](word, word)
    with pytest.raises(ValueError, match="uint64 words; got uint32"):
        INSTRUCTIONS["rsqrt.approx.f64"](word)


def test_words_of_any_shape_broadcast() -> None:
    divide = INSTRUCTIONS["div.full.f32"]
    a, b = np.float32([[1, 4], [3, 8]]).view(np.uint32), np.float32([2, 4]).view(np.uint32)
    assert divide(a, b).view(np.float32).tolist() == [[0.5, 1.0], [1.5, 2.0]]
    assert divide(a[:0], b).shape == (0, 2)


def test_the_command_counts_what_differs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Inline:
        """ProcessPoolExecutor in this process, so that the mutant below is used."""

        def __init__(self, workers: int | None) -> None: ...
        def __enter__(self) -> Inline:
            return self

        def __exit__(self, *_: object) -> None: ...

        def submit(self, function, *given):
            self.found = function(*given)
            return type("Done", (), {"result": lambda _, found=self.found: found})()

    monkeypatch.setattr(function_check, "ProcessPoolExecutor", Inline)
    wanted = ["--share", "0", "--function", "rcp_approx_ftz_f32"]
    assert function_check.main(wanted) == 0
    assert "rcp.approx.ftz.f32       0 of 66 ranges differ" in capsys.readouterr().out
    with changed_table("RCP", bias=units.RCP.bias + (1 << 14)):
        assert function_check.main(wanted) == 1
    assert "rcp.approx.ftz.f32       0 of" not in capsys.readouterr().out


def test_a_range_of_results_is_digested_in_order() -> None:
    """By hand: rcp of the words of range 0x3F80 begins with 1.0, 1 - 2^-23."""
    found = results("rcp_approx_ftz_f32", operands("rcp_approx_ftz_f32", 0x3F80)[0])
    assert [hex(word) for word in found[:2]] == ["0x3f800000", "0x3f7ffffe"]
    assert zlib.crc32(found.astype("<u4").tobytes()) == KEPT["rcp_approx_ftz_f32"][0x3F80]


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_words_that_an_axis_repeats_give_those_of_each(name: str) -> None:
    """What is the same along an axis is computed once: of rows, of all of an array, and beside an operand that differs."""
    instruction = INSTRUCTIONS[name]
    words = np.random.default_rng(3).integers(0, np.iinfo(instruction.dtype).max, (70, 300), instruction.dtype, endpoint=True)
    views = words, words.T.copy().T, np.broadcast_to(words[:, :1], words.shape), np.broadcast_to(words[:1, :1], words.shape)
    for given in product(views, repeat=instruction.operands):
        assert np.array_equal(instruction(*given), instruction(*map(np.ascontiguousarray, given)))
