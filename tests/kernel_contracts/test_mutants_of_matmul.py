"""Contract under test: each mutant of matmul fails as what it is, by one case that its reproducer replays; and
most of them are invisible to the tutorial's own test.

That test (allclose with atol=1e-2 on whole contiguous fp16 tiles) cannot see a fault whose launches are the right kernel's
launches: the same arguments, the same grid, the same tile program. That is compared, not sampled: it holds for any data and any
tolerance."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import bitverdict.kernels.matmul
from bitverdict.harness.contracts.matmul import TUTORIAL
from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.replay import replay
from tests.faults.kernels.matmul import MUTANTS, NO_FILL, UNSEEN_BY_ITS_OWN_TEST
from tests.faults.mutants import Mutant, mutant_contract, mutant_source, once
from tests.support.shares import judged_here

LOOKED_FOR_ON = ("emulated:sm_80", "emulated:sm_90")
OWN_TEST_SIZES = TUTORIAL["m, n, k"]  # each run in fp16 whatever dtypes its parameters name
ASKED = 25
UNSEEN = 15


class WorkerPool:
    """Judges here, in this process."""

    def judge(self, case: Case, where: Target) -> Verdict:
        return judge(case, where)


def cases(contract: Contract, where: Target, mutant: Mutant) -> Iterator[Case]:
    """The required cases, the cases of the classes the fault names first."""
    required = contract.required(where)
    wanted = set(mutant.shows_in)
    return iter(sorted(required, key=lambda case: not wanted <= {(n, str(v)) for n, v in contract.coverage(case, where).items()}))


def first_failure(mutant: Mutant, contract: Contract) -> tuple[Case, Target, Verdict] | None:
    for name in mutant.on or LOOKED_FOR_ON:
        where = target(name)
        for case in cases(contract, where, mutant):
            verdict = judge(case, where, contract)
            if verdict.failed:
                return case, where, verdict
    return None


@pytest.mark.parametrize("mutant", judged_here(MUTANTS), ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_each_mutant_fails_as_its_kind_and_replays_from_its_reproducer(mutant: Mutant, tmp_path: Path) -> None:
    found = first_failure(mutant, mutant_contract(mutant, tmp_path))
    assert found is not None, "passed by the whole required cases"
    case, where, verdict = found
    assert verdict.outcome in mutant.expected, verdict.message
    stored = reproducers.write(reproducers.reproducer_of(case, where.name, verdict), tmp_path / "failures")
    again = replay(stored, WorkerPool())
    assert again.verdict.failed
    assert again.is_same_bug


class Recorder:
    """Stands in for the jitted kernel: notes what each launch passes, and passes it on."""

    def __init__(self, kernel: object) -> None:
        self.kernel, self.launches = kernel, []

    def __getitem__(self, grid):
        def launch(*arguments, **meta):
            shown = [(a.shape, a.stride(), a.dtype) if isinstance(a, torch.Tensor) else a for a in arguments]
            self.launches.append((shown, sorted(meta.items(), key=lambda item: item[0]), grid(meta)))
            return self.kernel[grid](*arguments, **meta)

        return launch


def own_test_launches(module, monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """What the tutorial's test makes of a module: per size, the launch's arguments and grid, and the tile program it runs,
    places removed."""
    recorder = Recorder(module.matmul_kernel)
    monkeypatch.setattr(module, "matmul_kernel", recorder)
    seen = []
    with emulated("sm_80", options=LaunchOptions(dry=True)) as device:
        for m, n, k in OWN_TEST_SIZES:
            a, b = torch.zeros(m, k, dtype=torch.float16), torch.zeros(k, n, dtype=torch.float16)
            c = module.matmul_configured(a, b, "", None, bitverdict.kernels.matmul.CONFIGS["cuda"][2])
            seen.append(
                (recorder.launches[-1], device.launches[-1].grid, without_places(device.launches[-1].program), c.dtype, c.shape)
            )
    return seen


def without_places(program: str) -> str:
    """The program with places dropped, constants written where they are used (the order they are declared in is the source's),
    and the other values numbered by first appearance (their names come from the source's variables)."""
    lines = (line for line in program.splitlines() if not line.startswith("#loc"))
    text = "\n".join(re.sub(r' ?loc\("[^"]*"\(#loc\d*\)\)| ?loc\(#loc\d*\)|(?<=[^:]) loc\(.*$', "", line) for line in lines)
    constants = dict(re.findall(r"(%[\w.]+) = (\S*arith\.constant\S* .*)", text))
    numbers: dict[str, str] = {name: f"<{value}>" for name, value in constants.items()}
    kept = "\n".join(line for line in text.splitlines() if "arith.constant" not in line)
    return re.sub(r"%[\w.]+", lambda found: numbers.setdefault(found[0], f"%{len(numbers)}"), kept)


@pytest.mark.share(4)
def test_most_faults_are_invisible_to_the_tutorials_own_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    with monkeypatch.context() as patch:
        right = own_test_launches(bitverdict.kernels.matmul, patch)
    passing, judged = [], judged_here(MUTANTS)
    for mutant in judged:
        with monkeypatch.context() as patch:
            if own_test_launches(mutant_contract(mutant, tmp_path).module, patch) == right:
                passing.append(mutant.name)
    with capsys.disabled():
        print(f"\n{len(judged)} mutants, {len(passing)} of them launch exactly what the right kernel launches in its own test")
    assert len(MUTANTS) >= ASKED
    assert len(UNSEEN_BY_ITS_OWN_TEST) >= UNSEEN
    assert passing == [mutant.name for mutant in UNSEEN_BY_ITS_OWN_TEST if mutant in judged]


def test_a_fault_whose_text_is_not_there_once_is_refused() -> None:
    with pytest.raises(ValueError, match="occurs 0 times"):
        mutant_source(replace(MUTANTS[0], edits=once("no such text", "")))
    with pytest.raises(ValueError, match=r"occurs \d+ times"):
        mutant_source(replace(MUTANTS[0], edits=once("tl.load", "")))


@pytest.mark.share(4)
def test_the_untouched_kernel_passes_through_the_same_door(tmp_path: Path) -> None:
    same = Mutant(kernel="matmul", name="none", edits=once("tl.load(a_ptrs)", "tl.load(a_ptrs)"), expected=())
    contract = mutant_contract(same, tmp_path)
    where = target("emulated:sm_80")
    verdicts = [judge(case, where, contract) for case in contract.required(where)[:12]]
    assert {verdict.decision for verdict in verdicts} == {Decision.PASS}
    assert resolve("matmul").stem == contract.stem


def test_a_tail_without_a_fill_is_right_as_compiled_and_draws_an_advice(tmp_path: Path) -> None:
    contract, where = mutant_contract(NO_FILL, tmp_path), target("emulated:sm_80")
    ragged = [case for case in contract.required(where) if case.problem.k % 16]  # no BLOCK_K divides it
    assert len(ragged) >= 6
    for case in ragged[:6]:
        verdict = judge(case, where, contract)
        assert verdict.decision is Decision.PASS
        assert [said for said in verdict.advice if "leaves undefined (a mask without `other`)" in said]
