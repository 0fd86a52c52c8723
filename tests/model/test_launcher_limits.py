"""Contract under test: a launcher is asked what it says it takes: the sizes nearest to the case's that it requires, or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitverdict.harness.model.addresses import load, resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.launcher_limits import check_launcher, nearest, read_claims
from bitverdict.harness.model.targets import target
from bitverdict.harness.session.case_source import CaseSource

SIZES = {"m": 33, "n": 7, "k": 50, "dtype": "fp16"}


def written(tmp_path: Path, attributes: str) -> str:
    (tmp_path / "mine.py").write_text(f"def f(*given, **named):\n    return None\n\n\n{attributes}\n")
    return f"{tmp_path / 'mine.py'}:f"


@pytest.mark.parametrize(
    ("requires", "moved"),
    [
        ("lambda m: True", {}),
        ("lambda k: k % 32 == 0", {"k": 64}),  # nearer than 32
        ("lambda m, k: m % 16 == 0 and k % 64 == 0", {"m": 32, "k": 64}),
        ("lambda m, n, k: m == n == k", {"m": 32, "n": 32, "k": 32}),
        ("lambda m, n: m * n <= 40", {"n": 1}),
        ("lambda dtype: dtype == 'fp16'", {}),
    ],
)
def test_sizes_move_as_little_as_the_predicate_asks(requires: str, moved: dict, tmp_path: Path) -> None:
    assert nearest(written(tmp_path, f"f.requires = {requires}"), SIZES, "mnk") == SIZES | moved


@pytest.mark.parametrize("unit", [2**power for power in range(9)])
@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_a_size_moves_to_the_nearest_multiple_below_or_above(unit: int, beside: int, tmp_path: Path) -> None:
    launcher = written(tmp_path, f"f.requires = lambda k: k % {unit} == 0")
    step = beside if unit > 2 else 0  # of a unit of 2 both neighbours are as near
    assert nearest(launcher, SIZES | {"k": 3 * unit + step}, "mnk") == SIZES | {"k": 3 * unit}


def test_what_no_near_size_meets_is_not_asked(tmp_path: Path) -> None:
    launcher = written(tmp_path, "f.requires = lambda dtype: dtype == 'bf16'")
    assert nearest(launcher, SIZES, "mnk") is None


def test_a_predicate_is_asked_of_the_same_sizes_once(tmp_path: Path) -> None:
    launcher = written(tmp_path, "asked = []\nf.requires = lambda m, k: asked.append((m, k)) or (m == 7 and k == 9)")
    assert nearest(launcher, SIZES, "mnk") is None
    asked = load(launcher).requires.__globals__["asked"]
    count = len(asked)
    assert nearest(launcher, SIZES | {"n": 5}, "mnk") is None and len(asked) == count > 100


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ("f.requires = lambda q: True", "requires takes 'q'; it may take m, n, k, dtype; fix the attribute"),
        ("f.requires = 5", "requires is 5; it must be a function of m, n, k, dtype; fix the attribute"),
        ("f.requires = lambda m: m / 0", r"requires\(m=33\) raises ZeroDivisionError: division by zero; fix it"),
    ],
)
def test_a_predicate_that_cannot_be_asked_is_told_with_its_remedy(attributes: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        nearest(written(tmp_path, attributes), SIZES, "mnk")


def test_claims_are_of_the_contracts_words_or_its_default(tmp_path: Path) -> None:
    launcher = written(tmp_path, "f.claims = 'bf16'")
    assert read_claims(launcher, ("fp16", "bf16"), ("fp16",)) == ("bf16",)
    with pytest.raises(ValueError, match="claims 'bf16'; it must be of fp16; fix the attribute"):
        read_claims(launcher, ("fp16",))


def test_claims_that_are_no_words_are_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="claims is 5; it must be words of fp16, bf16; fix the attribute"):
        read_claims(written(tmp_path, "f.claims = 5"), ("fp16", "bf16"))


@pytest.mark.parametrize(
    ("stem", "arch", "requires", "holds"),
    [
        ("matmul", "sm_90", "lambda k: k % 32 == 0", lambda p: p.k % 32 == 0),
        ("block_scaled_matmul", "sm_100", "lambda format, k: format == 'mxfp8' and k % 64 == 0",
         lambda p: p.format == "mxfp8" and p.k % 64 == 0),
        ("ampere_gemm", "sm_80", "lambda dtype, block_m: dtype == 'bf16' and block_m == 64", lambda p: p.dtype == "bf16"),
        ("tma_gather", "sm_100", "lambda column_offset: column_offset >= 0", lambda p: p.column_offset >= 0),
    ],
)  # fmt: skip
def test_every_case_that_a_launcher_is_asked_meets_what_it_requires(
    stem: str, arch: str, requires: str, holds, tmp_path: Path
) -> None:
    machine = target(f"emulated:{arch}")
    source = CaseSource(stem, machine, launcher=written(tmp_path, f"f.requires = {requires}"))
    asked = source.required()
    assert len(asked) >= 4 and all(holds(case.problem) for case in asked)
    assert all(source.prepare(case) == case for case in asked)  # so that shrinking stays among them
    free = CaseSource(stem, machine, launcher=written(tmp_path.joinpath("free").mkdir() or tmp_path / "free", "")).required()
    assert not all(holds(case.problem) for case in free)


CALLED = {
    "matmul": ("def f(a): ...", "def f(a, b, *, activation, out_dtype): ..."),
    "ampere_gemm": ("def f(a, bt, d, tile): ...", "def f(a, bt, d, block_m, *, num_warps): ..."),
    "tma_gather": ("def f(table, rows): ...", "def f(table, rows, column, x, y): ..."),
    "block_scaled_matmul": ("def f(a, b): ...", "def f(*operands, **rest): ..."),
}


@pytest.mark.parametrize("stem", CALLED)
def test_a_launcher_that_cannot_be_called_is_refused_before_it_is_judged(stem: str, tmp_path: Path) -> None:
    wrong, right = CALLED[stem]
    contract = resolve(stem)
    for number, text in enumerate((wrong, right)):
        (tmp_path / f"mine{number}.py").write_text(text + "\n")
    check_launcher(contract, f"{tmp_path / 'mine1.py'}:f")
    with pytest.raises(ValueError, match=r"mine0.py:f: is f\(.*, must be a function \(.*argument"):
        check_launcher(contract, f"{tmp_path / 'mine0.py'}:f")


def test_a_kernel_given_for_its_launcher_is_told_from_it() -> None:
    with pytest.raises(ValueError, match=r"matmul_kernel: is a Triton kernel, must be a function .* that launches it"):
        check_launcher(resolve("matmul"), "docs/examples/tutorial_matmul.py:matmul_kernel")


def test_a_launcher_is_given_what_it_cannot_do_without(tmp_path: Path) -> None:
    """`activation` has no default here: it is given, though it says nothing beyond the contract's."""
    import torch

    (tmp_path / "mine.py").write_text("def f(a, b, activation):\n    return (a.float() @ b.float()).half()\n")
    contract = resolve("matmul")
    case = replace(contract.required(target("emulated:sm_90"))[0], launcher="", config=None)
    asked = contract.for_launcher(case, f"{tmp_path / 'mine.py'}:f")
    assert isinstance(asked, Case) and asked.launcher
    from bitverdict.harness.model.addresses import load

    tensors = {"a": torch.ones(2, 3, dtype=torch.float16), "b": torch.ones(3, 4, dtype=torch.float16)}
    assert contract.launch(asked, tensors, load(asked.launcher))["c"].shape == (2, 4)
