"""Contract under test: a parameter that is one literal at each call decides; every other parameter decides nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.mutants.source.generate import of_function
from bitverdict.harness.mutants.source.literals import LiteralDecisions, decide_literals
from bitverdict.harness.mutants.source.places import File, reachable_functions

KERNEL = """
@gluon.jit
def kernel(x, B: gl.constexpr):
    gl.warp_specialize([(partition, (x, {partition}))], [1], [24])


@gluon.jit
def partition(x, TURNED: gl.constexpr):
    if TURNED:
        y = x.load(10)
    else:
        y = x.load(20)


def _target(out, *, keep=False):
    {first}
    made = out[70] if keep else out[80]
    {more}
    return made


def launcher(out, {parameter}):
    kernel[(1,)](out, 3)
    return _target(out{call})
"""


def lines_of(
    function: str, first: str = "pass", more: str = "pass", parameter: str = "n", call: str = "", partition: str = "False"
) -> str:
    """What the mutants of `function` look like after their edits, as one text."""
    text = KERNEL.format(first=first, more=more, parameter=parameter, call=call, partition=partition)
    file = File(Path("k.py"), "k.py", text)
    functions = reachable_functions([file])
    settled = decide_literals([file], functions)
    (of,) = [each for each in functions if each.name == function]
    return "\n".join(each.after for each in of_function("k", of, settled.get(of, LiteralDecisions())))


@pytest.mark.parametrize("call", ["", ", keep=False"])
def test_the_arm_that_no_call_takes_is_no_code(call: str) -> None:
    made = lines_of("_target", call=call)
    assert "made = (out[70])" in made, "forced the other way it is a mutant"
    assert "made = (out[80])" not in made, "forced the way it goes it is none"
    assert "out[71] if keep" not in made and "else out[81]" in made
    made = lines_of("_target", call=", keep=True", more="_target(out, keep=True)")
    assert "made = (out[80])" in made and "made = (out[70])" not in made


@pytest.mark.parametrize(
    "near",
    [
        {"parameter": "keep", "call": ", keep=keep"},
        {"call": ", keep=1"},
        {"more": "_target(out, keep=True)"},
        {"more": "other = _target"},
        {"more": "_target(*out)"},
        {"first": "keep = out > 3"},
        {"first": "for keep in out: pass"},
        {"first": "match out:\n        case [keep]: pass"},
        {"first": "f = lambda keep: keep"},
    ],
    ids=str,
)
def test_a_parameter_that_may_be_anything_decides_nothing(near: dict[str, str]) -> None:
    made = lines_of("_target", **near)
    assert "made = (out[70])" in made and "made = (out[80])" in made


def test_a_partition_takes_the_tuple_beside_it() -> None:
    taken = {each: lines_of("partition", partition=each) for each in ("True", "False", "B")}
    assert ("load(20)" in taken["True"], "if False:" in taken["True"], "if True:" in taken["True"]) == (False, True, False)
    assert ("if False:" in taken["False"], "if True:" in taken["False"]) == (False, True)
    assert ("if False:" in taken["B"], "if True:" in taken["B"]) == (True, True)


def test_a_name_is_of_the_file_that_it_is_imported_from() -> None:
    text = "def made(out):\n    return out + {}\n"
    files = [File(Path(f"{name}.py"), f"{name}.py", text.format(number)) for name, number in (("one", 1), ("two", 2))]
    last = "from kernels.two import made\n\n@triton.jit\ndef kernel(x): pass\n\ndef launcher(out):\n    kernel[(1,)](made(out))\n"
    assert [each.file.report_name for each in reachable_functions([*files, File(Path("k.py"), "k.py", last)])] == [
        "two.py",
        "k.py",
        "k.py",
    ]
    last = last.replace("from kernels.two import made", "import one, two")
    assert [each.file.report_name for each in reachable_functions([*files, File(Path("k.py"), "k.py", last)])] == [
        "one.py",
        "two.py",
        "k.py",
        "k.py",
    ]
