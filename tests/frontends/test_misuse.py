"""Contract under test: a misuse of the public functions is a usage error before anything is launched, with what to write."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import bitverdict as bv
from bitverdict.harness.contracts.described.contract import DescribedContract, Description
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError


def twice(xp, x):
    return x * 2


def draws(body: Callable) -> Callable[[], object]:
    """What asks a test of `body` for its cases."""
    return lambda: bv.judged(reference=twice)(body).__contract__.required(target("emulated:sm_90"))  # type: ignore[attr-defined]


def right(*arguments: object, **options: object) -> Callable[[], object]:
    return lambda: bv.assert_right(*arguments, **{"reference": twice} | options)  # type: ignore[arg-type]


def refers(reference: Callable, *shapes: tuple[int, ...]) -> Callable[[], object]:
    """What asks a test for its cases whose body draws operands of `shapes`."""

    def body(draw):
        return launched(*[draw.tensor("fp16", shape) for shape in shapes or ((2, 3),)])

    contract = DescribedContract(Description(body=body, reference=reference), lambda: ("test_misuse.py:body", ()))
    return lambda: contract.required(target("emulated:sm_90"))


def launched(x: torch.Tensor, *_: object) -> None:
    x.sum()  # where the draws end
    pytest.fail("launched before the reference was traced")


MISUSES: dict[str, tuple[Callable[[], object], str]] = {
    "bare judged": (lambda: bv.judged(twice), "write @bv.judged(reference=lambda xp, x: ...) above def twice(draw)"),
    "no reference": (lambda: bv.judged(), "write @bv.judged(reference=lambda xp, x: ...) above def test_kernel(draw)"),
    "reference by name": (lambda: bv.judged(reference="softmax"), "must be a function of xp and the operands"),  # type: ignore[arg-type]
    "body without draw": (draws(lambda: 1), "must be a function of one argument, draw"),
    "body of two": (draws(lambda draw, x: 1), "must be a function of one argument, draw"),
    "choice of lists": (draws(lambda draw: draw.choice([[1, 2]])), "must be given numbers, texts, truths or None"),
    "choice of nothing": (draws(lambda draw: draw.choice([])), "at least one"),
    "choice of arguments": (draws(lambda draw: draw.choice(1, 2)), "draw.choice() takes 2 positional arguments"),
    "size backwards": (draws(lambda draw: draw.size(9, 1)), "low must be at least 0 and at most high"),
    "size of one": (draws(lambda draw: draw.size(9)), "missing 1 required positional argument: 'high'"),
    "size of floats": (draws(lambda draw: draw.size(1, 9 / 2)), "must be integers; divide by //"),
    "dtype and shape swapped": (draws(lambda draw: draw.tensor((2, 3), "fp16")), "dtype (2, 3): unknown; use one of fp32, fp16"),
    "shape as arguments": (draws(lambda draw: draw.tensor("fp16", 2, 3)), "draw.tensor() takes 3 positional arguments"),
    "no dtype": (draws(lambda draw: draw.tensor((2, 3))), "missing 1 required positional argument: 'shape'"),
    "unknown dtype": (draws(lambda draw: draw.tensor("half", 3)), "dtype 'half': unknown; use one of fp32, fp16"),
    "shape below 0": (draws(lambda draw: draw.tensor("fp16", (-1,))), "must be integers of at least 0"),
    "shape of floats": (draws(lambda draw: draw.tensor("fp16", (4 / 2,))), "must be integers of at least 0"),
    "unknown draw": (draws(lambda draw: draw.integer(1, 2)), "draw has no integer (did you mean 'integers'?)"),
    "unknown values": (draws(lambda draw: draw.tensor("fp16", 3, values="gauss")), "must be a regime (normal"),
    "unknown strides": (draws(lambda draw: draw.tensor("fp16", 3, strides="padded")), "must be None, 'contiguous', 'rows'"),
    "one name twice": (draws(lambda draw: [draw.size(1, 2, name="m") for _ in "ab"]), "give each its own"),
    "tensor for tuple": (right(twice, torch.ones(3)), "write bv.assert_right(f, (x,), ...)"),
    "operands first": (right((torch.ones(3),), twice), "write bv.assert_right(f, (x,), ...)"),
    "no file": (right("nowhere.py:f", ()), "there is no file nowhere.py beside"),
    "accumulation": (lambda: bv.judged(reference=twice, accumulation="float32"), "must be one of fp32, fp16"),
    "returns": (lambda: bv.judged(reference=twice, returns="half"), "use one of fp32, fp16"),
    "reference without xp": (refers(lambda x: x * 2), "write lambda xp, x: ..."),
    "reference without operands": (refers(lambda xp: xp.ones((3,))), "write lambda xp, x: ..."),
    "reference of three": (refers(lambda xp, x, w: x * w), "nothing is drawn for w"),
    "no function of xp": (
        refers(lambda xp, x: xp.softmax(x)),
        "xp has no softmax (array API standard): write e = xp.exp(x - xp.max(",
    ),
    "near a function of xp": (refers(lambda xp, x: xp.maxmum(x, x)), "near are maximum"),
    "method of torch": (refers(lambda xp, x: x.exp()), "the standard has functions: xp.sum(x, axis=1), not x.sum(1)"),
    "function of torch": (refers(lambda xp, x: torch.softmax(x, 1)), "the reference raises TypeError: softmax()"),
    "operands in another order": (refers(lambda xp, b, a: a @ b, (2, 3), (3, 5)), "(test_misuse.py:"),
    "branch on an element": (refers(lambda xp, x: x if x[0, 0] > 0 else -x), "use where"),
    "no array returned": (refers(lambda xp, x: None), "a reference returns arrays of xp"),
    "assert_right, no function of xp": (
        right(twice, (torch.ones(3),), reference=lambda xp, x: xp.relu(x)),
        "write xp.maximum(x, 0)",
    ),
    "of a launch, no xp": (right(twice, (torch.ones(3),), reference=lambda x: x), "it is called with xp and the operands"),
    "choice of a text": (draws(lambda draw: draw.choice("fp16")), "a tuple of at least one"),
    "scalar of texts": (draws(lambda draw: draw.scalar("1", 2)), "draw.scalar('1', 2): must be numbers"),
    "around as text": (draws(lambda draw: draw.size(1, 10, around="64")), "must be integers; divide by //"),  # type: ignore[arg-type]
    "no multiple between": (draws(lambda draw: draw.size(1, 10, multiple_of=64)), "with a multiple of multiple_of between them"),
    "values backwards": (draws(lambda draw: draw.tensor("fp16", 3, values=(2, 1))), "or (low, high), low at most high"),
    "values as texts": (draws(lambda draw: draw.tensor("fp16", 3, values=("a", "b"))), "or (low, high), low at most high"),
    "offset as text": (draws(lambda draw: draw.tensor("fp16", 3, offset="x")), "must be an integer, the elements before the first"),
    "integers of fp16": (draws(lambda draw: draw.integers(3, 0, 5, dtype="fp16")), "must be one of int8, int16"),
    "more distinct than there are": (draws(lambda draw: draw.indices(4, 2, distinct=True)), "at least the number of indices"),
    "probability of a flag": (draws(lambda draw: draw.flag(0.5)), "draw.flag() takes 1 positional argument"),
    "output of shape and dtype": (draws(lambda draw: draw.output((3,), "fp16")), "dtype (3,): unknown; use one of fp32, fp16"),
    "strides of another shape": (
        draws(lambda draw: draw.tensor("fp16", 3, strides=draw.tensor("fp16", 4))),
        "or a tensor that draw gave before, of the same shape",
    ),
    "dim": (refers(lambda xp, x: xp.sum(x, dim=1)), "unexpected keyword argument 'dim' (test_misuse.py:"),
    "keepdim": (refers(lambda xp, x: xp.max(x, axis=1, keepdim=True)), "; write keepdims="),
    "function of NumPy": (refers(lambda xp, x: np.exp(x)), "numpy.exp: use the function of xp"),
    "function of math": (refers(lambda xp, x: math.sqrt(x)), "use where"),
    "assignment to an element": (refers(lambda xp, x: x.__setitem__(0, 1)), "a reference changes no array; use where or concat"),
    "operand of another kind": (right(twice, ("abc",)), "must be a tensor, an array of NumPy or a number"),
    "unknown like": (lambda: bv.test(twice, like="sofmax"), "did you mean 'softmax'?"),
    "no launcher": (lambda: bv.test(3, like="softmax"), "must be a function that launches a kernel"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_misuse_is_told_before_the_first_launch(misuse: str) -> None:
    call, told = MISUSES[misuse]
    with pytest.raises(UsageError) as error:
        call()
    assert told in str(error.value) and len(str(error.value).splitlines()) == 1
