"""Contract under test: the public functions judge any kernel of a user's repository, and fail each wrong twin by its name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unittest
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import bitverdict as bv
from bitverdict.harness.contracts.described import required
from bitverdict.harness.contracts.described.decisions import Sizes
from bitverdict.harness.frontends import called_test, one_launch
from bitverdict.harness.frontends.main import main
from bitverdict.harness.frontends.pytest_nodes import NodeJudge
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model import addresses
from bitverdict.harness.model.certificate import TELLS_NOTHING
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.profiles import PROFILES
from tests.support import users_repository

CHECKOUT = Path(__file__).resolve().parents[2]
SM_80, SM_90 = target("emulated:sm_80"), target("emulated:sm_90")


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The tests of a user's repository, imported."""
    folder = users_repository.make(tmp_path_factory.mktemp("mine"), users_repository.FLAT)
    before, modules = list(sys.path), set(sys.modules)
    addresses.add_search_path([str(folder)])
    addresses.load(f"{folder}/my_tests.py:test_scale")
    yield next(module for name, module in sys.modules.items() if name.startswith("_loaded_my_tests"))
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if name.startswith(("_loaded_my", "mykernels")):
            del sys.modules[name]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What runs leave lies here, few cases are required, nothing is drawn, and there is one target."""
    monkeypatch.setenv("BITVERDICT_STATE", str(tmp_path))
    monkeypatch.setenv("BITVERDICT_PROFILE", "whole")
    monkeypatch.setattr(called_test, "targets", lambda: [SM_90])
    monkeypatch.setattr(required, "sizes_of", lambda count: [Sizes(alike_number=number) for number in range(3)])
    return tmp_path


def first_of(test: Any, where: bv.Target = SM_90, *, cases: tuple[int, ...] = (4, 0)) -> Verdict:
    """The verdict on the first of some required cases that is no pass, and tells something apart; else that on the last."""
    contract = test.__contract__
    asked = contract.required(where)
    for place in cases:
        verdict = judge(asked[place], where, contract)
        if verdict.decision is not Decision.PASS and TELLS_NOTHING not in verdict.details:
            return verdict
    return verdict


KINDS = {
    "scale": {Outcome.WRONG_MATHEMATICS, Outcome.OUTSIDE_BOUND},
    "named": {Outcome.WRONG_MATHEMATICS, Outcome.OUTSIDE_BOUND},
    "by_name": {Outcome.WRONG_MATHEMATICS, Outcome.OUTSIDE_BOUND},
    "into": {Outcome.WRONG_MATHEMATICS, Outcome.OUTSIDE_BOUND, Outcome.INCONCLUSIVE},
    "best": {Outcome.WRONG_WORDS},
    "count": {Outcome.WRONG_WORDS},
    "add_where": {Outcome.WRONG_WORDS},
    "positive": {Outcome.WRONG_WORDS},
    "gather": {Outcome.WRONG_WORDS, Outcome.WRONG_MATHEMATICS},
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_output_passes_and_its_wrong_twin_fails(kind: str, mine: ModuleType) -> None:
    right = first_of(getattr(mine, f"test_{kind}"))
    assert right.decision is Decision.PASS and right.words > 0, right.message
    wrong = first_of(getattr(mine, f"test_{kind}_wrong"), cases=(4, 0, 5, 1, 9))
    assert wrong.outcome in KINDS[kind] and wrong.decision is not Decision.PASS, wrong.message


def test_what_a_target_lacks_is_not_run_and_named(mine: ModuleType) -> None:
    verdict = first_of(mine.test_gather_e4m3, SM_80)
    assert verdict.decision is Decision.NOT_RUN and verdict.message.startswith("emulated:sm_80 lacks e4m3 as a type")
    assert first_of(mine.test_gather_e4m3).decision is Decision.PASS


def test_what_cannot_be_traced_is_a_usage_error_with_its_operator(mine: ModuleType) -> None:
    with pytest.raises(UsageError, match=r"the reference cannot be traced: linalg\.svd: it factorises or solves"):
        first_of(mine.test_untraceable, cases=(1,))


def test_a_type_that_was_not_named_fails_by_both_names(mine: ModuleType) -> None:
    verdict = first_of(mine.test_another_type, cases=(1,))
    assert verdict.outcome is Outcome.WRONG_SHAPE and "torch.float16, expected torch.float32" in verdict.message


def test_a_launcher_that_refuses_is_told_how_to_draw_what_it_takes(mine: ModuleType) -> None:
    verdict = first_of(mine.test_refuses, cases=(1,))
    assert verdict.outcome is Outcome.LAUNCHER_ERROR and "multiple_of=8" in verdict.details["if this is meant"]


def test_called_alone_it_raises_the_report_and_the_replay_line(mine: ModuleType, state: Path) -> None:
    with pytest.raises(AssertionError) as raised:
        mine.test_scale_wrong()
    said = str(raised.value)
    (stored,) = (state / "failures").iterdir()
    assert "FAIL my_tests.py:test_scale_wrong on emulated:sm_90" in said and f"replay: bitverdict replay {stored}" in said
    assert re.search(r"\n  at \S+\.py:\d+\n", said), said
    case = reproducers.read(stored).case
    assert [each["value"] for each in case["problem"]["draws"]][:2] == [1, 65] and "m=1 n=65 x=fp16(1,65)" in said
    assert main(["replay", str(stored)]) == 1


def test_a_body_that_draws_later_is_a_usage_error(mine: ModuleType, state: Path) -> None:
    with pytest.raises(UsageError, match="draw everything before the launch"):
        mine.test_draws_later()


@pytest.mark.share(4)
def test_a_test_case_has_a_subtest_a_target(mine: ModuleType, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called_test, "profile_of", lambda machines: replace(PROFILES["whole"], shrink_seconds=0))
    ran = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(mine.TestRows).run(ran)
    assert ran.testsRun == 1 and ran.wasSuccessful()
    listed = bv.load_tests(mine.__name__)(unittest.defaultTestLoader, unittest.TestSuite(), None)
    names = {str(each).split()[0] for each in listed}
    assert {"test_scale", "test_named_wrong"} <= names
    failed = unittest.TestResult()
    next(each for each in listed if str(each).startswith("test_named_wrong")).run(failed)  # type: ignore[union-attr]
    assert len(failed.failures) == 1 and "my_tests.py:test_named_wrong" in failed.failures[0][1]


def test_the_command_line_judges_a_test_by_its_address(mine: ModuleType, state: Path, capsys: pytest.CaptureFixture) -> None:
    where = ["--target", "emulated:sm_90", "--max-cases", "1", "--jobs", "1", "--shrink-seconds", "0"]
    assert main(["run", f"{mine.__file__}:test_scale", *where]) == 0
    assert main(["run", f"{mine.__file__}:test_scale_wrong", *where]) == 1
    assert "my_tests.py:test_scale_wrong" in capsys.readouterr().out


def test_while_a_file_is_imported_to_be_judged_its_calls_do_nothing(mine: ModuleType, state: Path) -> None:
    script = state / "script.py"
    script.write_text("from my_tests import test_scale_wrong\nimport bitverdict as bv\ntest_scale_wrong()\n"
                      "bv.assert_right(print, (1,), reference=lambda xp, x: x)\nx = 3\n")  # fmt: skip
    assert addresses.load(f"{script}:x") == 3


# ----------------------------------------------------------------------------------------------------------------- one launch


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """x (3, 70) with rows 75 apart, w (70,) fp16."""
    made = np.random.default_rng(0)
    x = torch.from_numpy(made.standard_normal((3, 75)).astype(np.float16))[:, :70]
    return x, torch.from_numpy(made.standard_normal(70).astype(np.float16))


def test_one_launch_is_judged_on_its_operands(mine: ModuleType, state: Path) -> None:
    left, names = 2.0, sys.modules["mykernels"]
    right = lambda xp, x, w: x * w * left / 2.0  # a closure: it never leaves this process
    bv.assert_right(names.scale, operands(), reference=right, target="emulated:sm_90")
    with pytest.raises(AssertionError) as raised:
        bv.assert_right(names.scale_short, operands(), reference=right, target="emulated:sm_90")
    (stored,) = (state / "failures").iterdir()
    assert "mykernels.py:scale_short on emulated:sm_90" in str(raised.value) and "x=fp16(3,70) w=fp16(70,)" in str(raised.value)
    assert main(["replay", str(stored)]) == 1


def test_large_operands_lie_in_a_file(mine: ModuleType, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_launch, "WITHIN", 100)
    bv.assert_right(f"{mine.__file__}:scale", operands(), reference=lambda xp, x, w: x * w, target="emulated:sm_90")
    assert len(list((state / "given").iterdir())) == 1


WRONG_CALLS = [
    (lambda names: (lambda x, w: x, operands()), {}, "is no function of a file"),
    (lambda names: (names.scale, ("x", "w")), {}, "operand 'x': must be a tensor"),
    (lambda names: ("nowhere.py:scale", operands()), {}, "there is no file nowhere.py"),
    (lambda names: (names.scale, operands()), {"returns": ("fp16", "fp16")}, "returns names 2 formats and the reference returns 1"),
    (lambda names: (names.scale, operands()), {"accumulation": "fp3"}, "accumulation='fp3': must be one of"),
]


@pytest.mark.parametrize(("call", "more", "said"), WRONG_CALLS)
def test_a_launch_that_cannot_be_asked_is_told_its_rule(call: Any, more: dict, said: str, mine: ModuleType, state: Path) -> None:
    function, given = call(sys.modules["mykernels"])
    with pytest.raises(UsageError, match=re.escape(said)):
        bv.assert_right(function, given, reference=lambda xp, x, w: x * w, target="emulated:sm_90", **more)


# ------------------------------------------------------------------------------------------------------- shipped mathematics


def test_a_launcher_has_the_claims_and_limits_of_its_test(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(
        "import bitverdict as bv\n"
        "test_named = bv.test('absent_until_launched.py:matmul', like='matmul', claims=('bf16',), requires=lambda k: k % 8 == 0,\n"
        "                     batch_invariant='m', deterministic=True)\n"
    )
    (tmp_path / "absent_until_launched.py").write_text("raise SystemExit('imported')\n")
    made = addresses.load(f"{tmp_path}/named.py:test_named", unwrap=False)
    source = made.__bitverdict__(SM_90)
    assert (
        source.address == "matmul" and source.launcher == f"{tmp_path}/named.py:test_named" and str(tmp_path) in source.search_path
    )
    required = source.required()
    assert {case.problem.dtype for case in required} == {"fp16", "bf16"} and all(case.problem.k % 8 == 0 for case in required)
    assert all(case.search_path == source.search_path and case.promises == "m,deterministic" for case in required)
    launcher = addresses.load(source.launcher)
    with pytest.raises(UsageError, match="SystemExit: imported"):
        launcher(1, 2)


def promising(*sizes: str, **more: Any) -> None:
    bv.test(f"{__file__}:promising", like="matmul", batch_invariant=sizes, **more).__bitverdict__(SM_90)


SEALED = [
    (lambda: bv.test(operands, like="matmul", sealed=True), "cannot be sealed; name it instead"),
    (lambda: bv.test("mykernels:scale", like="matmul", sealed=True), "cannot be sealed; name it instead"),
    (lambda: bv.judged(reference=print, sealed=True), "cannot be sealed; name it instead"),
    (lambda: promising("rows", "mm"), r"batch_invariant='mm': is no size of matmul.*; it must be of rows, .*\bm\b"),
    (lambda: promising("m", sealed=True, requires=lambda m: m > 1), "make requires an attribute of the launcher"),
    (lambda: bv.test(operands, like="matmull"), r"no such kernel \(did you mean 'matmul'\?\)"),
    (lambda: bv.judged(reference=3), "must be a function of xp and the operands"),  # type: ignore[arg-type]
    (lambda: bv.judged(reference=print, returns="fp99"), "dtype 'fp99': unknown"),
    (lambda: bv.judged(reference=print, regimes=("norml",)), r"regime 'norml': unknown \(did you mean 'normal'\?\)"),
    (lambda: bv.judged(reference=print)(lambda: None), "must be a function of one argument, draw"),
    (lambda: bv.judged(reference=lambda xp: 1)(lambda draw: None)(), "no name of its module leads to it"),
]


@pytest.mark.parametrize(("asked", "said"), SEALED)
def test_what_cannot_be_asked_is_a_usage_error(asked: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked()


# ------------------------------------------------------------------------------------------------------------------- pytest


def test_under_pytest_a_usage_error_is_the_text_of_the_test(mine: ModuleType, state: Path, node_judge: NodeJudge) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"^error: the body draws .* after its first use"):
        node_judge.hold_test(mine.test_draws_later.__bitverdict__, "emulated:sm_90", [])


@pytest.mark.share(4)
def test_each_configuration_of_an_autotuner_is_judged(mine: ModuleType, state: Path, node_judge: NodeJudge) -> None:
    node_judge.hold_test(mine.test_twice.__bitverdict__, "emulated:sm_90", [])
    with pytest.raises(pytest.fail.Exception, match="wrong mathematics") as failed:
        node_judge.hold_test(mine.test_twice_wrong.__bitverdict__, "emulated:sm_90", [])
    assert "tuning=config 1" in str(failed.value)


@pytest.mark.share(4)
def test_pytest_judges_a_repository_whose_packages_are_called_as_ours(tmp_path: Path) -> None:
    """One process of pytest's and one worker of xdist's, with the entry point loaded and no conftest."""
    users_repository.make(tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "BITVERDICT"))}
    names = "(test_scale or test_scale_wrong or test_gather_e4m3) and not TestRows"
    asked = "-n 1 -q -rA -p no:cacheprovider -p bitverdict.harness.frontends.pytest_options --bv-draws 1"
    command = [sys.executable, "-m", "pytest", *asked.split(), "--bv-target", "emulated:sm_80", "-k", names]
    environment["PYTHONPATH"] = str(CHECKOUT)
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    said = ran.stdout + ran.stderr
    assert "PASSED tests/test_rows.py::test_scale[emulated:sm_80]" in said, said
    assert "FAILED tests/test_rows.py::test_scale_wrong[emulated:sm_80]" in said and "1 skipped" in said, said
    (stored,) = (tmp_path / ".bitverdict" / "failures").iterdir()
    assert f"replay: bitverdict replay {stored}" in said and "lacks e4m3 as a type" in said
