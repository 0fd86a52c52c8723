"""Contract under test: each side of an open choice has its own numbers, and the rows of docs/arithmetic.md tell the sides apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, decode, encode
from bitverdict.reference.tensor_core import BlockOrder, Choices, ConsumerFp8, Instruction, definition, elements, instruction
from bitverdict.reference.tensor_core.lookup import ALL_INSTRUCTIONS
from bitverdict.reference.tensor_core.sides import sides

AMPERE = ("sm_80", "mma.sync", "bf16", "bf16", "fp32")
KNOWN = {f"sm_{chip}" for chip in (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)}
CONSUMER = ("sm_120", "mma.sync", "e4m3", "e5m2", "fp32")


def rules(named: tuple[str, ...], k: int) -> dict[str, Instruction]:
    return {side: instruction(*named, k=k, choices=chosen) for side, chosen in sides(instruction(*named), k).items()}


@pytest.mark.parametrize(("named", "k"), [(AMPERE, 16), (CONSUMER, 32), (CONSUMER, 16)], ids=str)
def test_each_side_has_the_words_of_its_definition(named: tuple[str, ...], k: int) -> None:
    draw = np.random.default_rng(3)
    for rule in rules(named, k).values():
        a, b = (encode(FORMATS[name], draw.normal(size=(8, k)) * 2.0 ** draw.integers(-6, 6, (8, k))) for name in (rule.a, rule.b))
        c = encode(rule.output, draw.normal(size=8))
        for row, got in enumerate(elements(rule, a, b, c)):
            left, right = definition.factors(rule, rule.a, a[row]), definition.factors(rule, rule.b, b[row])
            found = definition.element(rule, left, right, definition.exact_value(float(decode(rule.output, c[row : row + 1])[0])))
            assert np.float32(float(found)).view(np.uint32) == got


def test_the_sides_are_open_for_the_shapes_of_two_blocks_and_fp8_alone() -> None:
    assert set(rules(AMPERE, 16)) == {f"BlockOrder.{side.name}" for side in BlockOrder} and not rules(AMPERE, 8)
    of = {(rule.arch, rule.a, rule.b) for rule in ALL_INSTRUCTIONS if rule.arch in KNOWN and sides(rule, 32) and rule.d == "fp32"}
    halved = {(f"sm_{chip}", each, each) for chip in (75, 80, 86, 87, 89) for each in ("fp16", "bf16", "tf32")}
    fp8 = {(f"sm_{chip}", a, b) for chip in (120, 121) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")}
    assert of == (halved | fp8) - {("sm_75", "bf16", "bf16"), ("sm_75", "tf32", "tf32")}  # sm_75 has no shape of two blocks
    assert not rules(("sm_75", "mma.sync", "fp16", "fp16", "fp32"), 8)


def test_the_taken_side_is_the_first_and_changes_nothing() -> None:
    for named, k in ((AMPERE, 16), (CONSUMER, 32)):
        assert next(iter(rules(named, k).values())) == instruction(*named)


def test_a_side_touches_no_instruction_that_it_is_not_about() -> None:
    chosen = Choices(block_order=BlockOrder.ONE_BLOCK, consumer_fp8=ConsumerFp8.WIDENED)
    for named in (("sm_90", "mma.sync", "fp16", "fp16", "fp32"), ("sm_89", "mma.sync", "e4m3", "e4m3", "fp32")):
        assert replace(instruction(*named, choices=chosen), choices=Choices()) == instruction(*named)
