"""Contract under test: an expression of -k holds for the cases that its words name, and what it cannot mean is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.case_filter import Expression, words_of


@dataclass(frozen=True)
class View:
    pad: int = 0


@dataclass(frozen=True)
class Problem:
    m: int = 17
    k: int = 33
    dtype: str = "fp16"
    left: str = "tensor memory"
    transposed: bool = True
    masked: bool = False
    a: View = field(default_factory=lambda: View(3))


CASE = Case(contract="matmul", problem=Problem(), regime="normal/unchecked", schedule="drawn:5 on 2")
WORDS = words_of(CASE, ("hopper_matmul", "mine.py:f", "emulated:sm_90", "sm_90"), ["wrong words"])


@pytest.mark.parametrize(
    "text",
    [
        "fp16", "FP16", "not bf16", "m=17", "m==17", "m>16 and m<18", "k>=33", "k<=33", "k!=34", "pad=3", "normal", "unchecked",
        "transposed", "not masked", "matmul", "hopper", "sm_90", "emulated:sm_90", "'wrong words'", "wrong", "drawn",
        "bf16 or fp16", "not (bf16 or int8)", "fp16 and not m=16 or int8", "left='tensor memory'", "dtype=fp16", "dtype!=bf16",
        "data_seed=0", "calls=1", "not not fp16", "masked=false",
    ],
)  # fmt: skip
def test_what_is_so_of_a_case_holds(text: str) -> None:
    assert Expression(text)(WORDS)
    assert not Expression(f"not ({text})")(WORDS)


@pytest.mark.parametrize(
    "text", ["p16", "m=16", "m>17", "race", "q=1", "q!=1", "norm", "dtype=fp1", "sm_100", "k!=33", "fp16 and m=1"]
)
def test_what_is_not_so_does_not_hold(text: str) -> None:
    assert not Expression(text)(WORDS)


def test_draws_of_a_body_have_words_and_those_with_a_name_compare() -> None:
    class Drawn:
        def describe_parts(self) -> list[str]:
            return ["sizes=4,65", "k=8", "choice=bf16", "x=bf16(4,65) padded strides=(81, 1)"]

    words = words_of(Case(contract="mine.py:test", problem=Drawn()), ("mine.py:test",), [])
    assert all(Expression(text)(words) for text in ("k>7", "k=8", "bf16", "padded", "65", "not fp16", "choice=bf16"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "-k '': must have a word"),
        ("fp16 and", "where a word must be, it ends"),
        ("and fp16", "where a word must be, comes 'and'"),
        ("(fp16", "a bracket is not closed"),
        ("fp16)", "')' is one too many"),
        ("fp16 bf16", "'bf16' is one too many"),
        ("m>", "where a value behind m> must be, it ends"),
        ("dtype>fp16", "dtype>fp16: 'fp16' is no number"),
        ("m=!", "'!' cannot be read"),
    ],
)
def test_an_expression_that_cannot_be_read_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        Expression(text)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fp61", "no case has the word 'fp61' (did you mean 'fp16'?)"),
        ("mm=3", "no case has a field mm (did you mean 'm'?); the fields are calls"),
        ("fp16 and m=1", ""),
    ],
)
def test_a_word_that_no_case_has_gets_the_nearest(text: str, said: str) -> None:
    assert Expression(text).unknown([WORDS]).startswith(said) and bool(Expression(text).unknown([WORDS])) == bool(said)
