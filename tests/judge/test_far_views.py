"""Contract under test: views that reach past 2^31 elements cost the pages that they use, are guarded there, and are asked of each
kernel that takes strides; an offset that is computed in 32 bits fails by name; memory that is not there is "not run"."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bitverdict.kernels.ampere_gemm
import bitverdict.kernels.matmul
from bitverdict.harness.contracts.base.single_config import far_pad
from bitverdict.harness.judge import far_views
from bitverdict.harness.judge.far_views import FAR_BYTES, Islands, admit_bytes, is_far
from bitverdict.harness.judge.guarded_buffers import Guard, Poison, far_bytes, guarded_allocations, poison_word, words
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.machine_lock import exclusive
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.harness.session.tally import Tally
from tests.faults.kernels.wrapped_offsets import MUTANTS
from tests.faults.mutants import Mutant, mutant_contract

CPU = torch.device("cpu")
GPU = Target("cuda:0", "sm_90", index=0, uuid="of no GPU")
ROW = (1 << 30) + 64  # elements: the third row of fp16 begins past 2^31 elements and 2^32 bytes
FAR_TWICE = {"matmul": 2, "split_k_matmul": 2}  # rows that lie far apart, and steps of K that do; either way to add the parts


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    steps=st.lists(st.sampled_from([2, 6, 4096, 1 << 20, (1 << 20) + 6]), min_size=3, max_size=3),
    offset=st.integers(0, 3000),
)
def test_islands_hold_every_element_and_the_bands_and_are_apart(shape, steps, offset) -> None:
    strides, band = steps[: len(shape)], 1 << 16
    start = band + 2 * offset
    size = start + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 2 + band
    islands = Islands.around(size, band, start, shape, strides, 2)
    owned = np.zeros(size, bool)
    for index in np.ndindex(shape):
        first = start + sum(i * s for i, s in zip(index, strides, strict=True))
        owned[first : first + 2] = True
    covered = np.zeros(size, bool)
    covered[islands.places()] = True
    assert covered[owned].all() and covered[:band].all() and covered[-band:].all()
    ends = [edge for run in islands.runs for edge in run]
    assert ends == sorted(set(ends)) and islands.runs[0][0] == 0 and islands.runs[-1][1] == size


def test_a_large_buffer_full_of_elements_is_not_far() -> None:
    assert not is_far(4 * FAR_BYTES, 4 * FAR_BYTES) and not is_far(FAR_BYTES, 2) and is_far(FAR_BYTES + 1, 2)


def far_operand() -> Operand:
    codes = np.arange(12, dtype=np.uint16).reshape(3, 4)
    return Operand(name="a", format="fp16", codes=codes, strides=(ROW, 1), offset=3)


def test_a_far_operand_arrives_bit_for_bit_and_takes_a_few_pages() -> None:
    uploaded, before = Guard(Poison.of_seed(0)), resident()
    tensor = uploaded.upload(far_operand(), CPU)
    assert np.array_equal(words(tensor), far_operand().codes) and tensor.stride() == (ROW, 1)
    assert uploaded.out_of_bounds() is None
    assert resident() - before < 64 << 20 and far_bytes([far_operand()]) > 1 << 32


@pytest.mark.parametrize("element", [-1, 4, ROW - 1, ROW, 2 * ROW + 3, 2 * ROW + 4])
def test_a_byte_written_near_an_element_of_a_far_operand_is_a_verdict(element: int) -> None:
    uploaded = Guard(Poison.of_seed(1))
    tensor = uploaded.upload(far_operand(), CPU)
    tensor.as_strided((1,), (1,), tensor.storage_offset() + element).view(torch.int16).fill_(0x1234)
    found = uploaded.out_of_bounds()
    assert found is not None and found.details["bytes"] == 2 and found.details["first_byte"] == 2 * element
    assert found.outcome is (Outcome.INPUT_CHANGED if 0 <= element < 2 * ROW + 4 else Outcome.STRAY_WRITE)


@pytest.mark.parametrize("element", [None, -1, 4, ROW - 1, 2 * ROW + 4])
def test_a_far_output_is_poisoned_and_guarded_around_its_elements(element: int | None) -> None:
    uploaded, before = Guard(Poison.of_seed(2)), resident()
    with guarded_allocations(uploaded):
        made = torch.empty_strided((3, 4), (ROW, 1), dtype=torch.float16)
    assert (words(made) == poison_word(uploaded.poison.output, 2)).all()
    made.fill_(1.0)
    if element is not None:
        made.as_strided((1,), (1,), made.storage_offset() + element).fill_(1.0)
    found = uploaded.out_of_bounds()
    assert (found is None) == (element is None) and (found is None or found.outcome is Outcome.STRAY_WRITE)
    assert resident() - before < 64 << 20


def test_values_of_a_far_allocation_are_kept() -> None:
    uploaded = Guard(Poison.of_seed(0))
    with guarded_allocations(uploaded):
        made = torch.zeros_like(torch.empty_strided((3, 4), (ROW, 1), dtype=torch.float16))
    assert not made.any() and uploaded.out_of_bounds() is None


def far_cases(contract: Contract, where: Target) -> list[Case]:
    wide = [case for case in contract.required(where) if re.search(r"\d{8}", str(case.problem))]
    return [case for case in wide if contract.expected_outcome(case, where).result and far_bytes(contract.operands(case))]


def reach(operand: Operand) -> int:
    """Elements from the first to the last."""
    return sum((n - 1) * s for n, s in zip(operand.codes.shape, operand.strides or (), strict=False))


def first_target(contract: Contract) -> Target:
    machines = map(target, ("emulated:sm_80", "emulated:sm_90", "emulated:sm_100"))
    return next(machine for machine in machines if contract.requires <= machine.features)


def spread(operand: Operand) -> Operand:
    """The same words in rows twice as far apart; of a line in every other element."""
    whole = operand.strides or np.empty(operand.codes.shape, np.uint8).strides
    rows = [stride if stride == 1 < len(whole) else 2 * stride for stride in whole]
    return dataclasses.replace(operand, strides=tuple(rows))


def takes_strides(contract: Contract, where: Target) -> bool:
    """Whether the launcher takes an operand in rows that are apart: an operand after the other is handed over so."""
    case = next(
        case
        for case in contract.required(where)
        if contract.expected_outcome(case, where).result and all(each.codes.size > 1 for each in contract.operands(case))
    )
    operands = contract.operands(case)
    for place in range(len(operands)):
        asked = copy.copy(contract)
        asked.operands = lambda _, place=place: [  # type: ignore[method-assign]
            spread(each) if number == place else each for number, each in enumerate(operands)
        ]
        if judge(case, where, asked).outcome is not Outcome.REFUSED:
            return True
    return False


def returned_bytes(contract: Contract) -> list[int]:
    """The bytes of the largest storage that each launch of `contract` returns: they are entered as it is launched."""
    largest, launch = [], contract.launch

    def watched(*given):
        results = launch(*given)
        largest.append(max(tensor.untyped_storage().nbytes() for tensor in results.values()))
        return results

    contract.launch = watched  # type: ignore[method-assign]
    return largest


@pytest.mark.share(3)
@pytest.mark.parametrize("stem", kernels_with_a_contract())
def test_each_kernel_that_takes_strides_is_asked_one_far_case_and_is_right(stem: str) -> None:
    contract = copy.copy(resolve(stem))
    where, returned = first_target(contract), returned_bytes(contract)
    cases = far_cases(contract, where)
    assert len(cases) == FAR_TWICE.get(stem, 1) or not (cases or takes_strides(contract, where))
    for case in cases:
        assert any(reach(operand) >= 1 << 31 and far_bytes([operand]) > 1 << 32 for operand in contract.operands(case))
        before = resident()
        verdict = judge(case, where, contract)
        assert (verdict.decision, verdict.outcome) == (Decision.PASS, Outcome.PASS) and verdict.words
        assert resident() - before < 512 << 20
        assert (contract.result_bytes(case) > 1 << 32) == (returned[-1] > 1 << 32)


@pytest.mark.parametrize(("stem", "takes"), [("dropout", True), ("rms_norm", True), ("tma_gather", True), ("tmem_copy", False)])
def test_a_launcher_that_takes_strides_is_told_from_one_that_refuses_them(stem: str, takes: bool) -> None:
    contract = resolve(stem)
    assert takes_strides(contract, first_target(contract)) == takes


@pytest.mark.share(3)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.kernel}: {mutant.name}")
def test_an_offset_that_wraps_at_32_bits_is_an_illegal_address(mutant: Mutant, tmp_path: Path) -> None:
    contract = mutant_contract(mutant, tmp_path)
    where = target("emulated:sm_100" if mutant.kernel == "tma_scatter" else "emulated:sm_90")
    verdict = judge(far_cases(contract, where)[0], where, contract)
    assert verdict.failed and str(verdict.outcome) in mutant.expected
    assert Path(verdict.location.rpartition(":")[0]).name == Path(contract.address.rpartition(":")[0]).name


TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "tutorial_matmul.py"
WIDER = re.compile(r"    offs_([mn]) = (.*)\n")


@pytest.mark.parametrize(("text", "claims", "outcomes"), [
    (TUTORIAL.read_text(), "", ()),
    (TUTORIAL.read_text(), "far", (Outcome.ILLEGAL_ADDRESS, Outcome.ILLEGAL_ADDRESS)),
    (WIDER.sub(r"    offs_\1 = (\2).to(tl.int64)\n", TUTORIAL.read_text()), "far", (Outcome.PASS, Outcome.ILLEGAL_ADDRESS)),
])  # fmt: skip
def test_a_launcher_is_asked_a_far_case_where_it_claims_one(text: str, claims: str, outcomes, tmp_path: Path) -> None:
    launcher = tmp_path / "mine.py"
    launcher.write_text(f"{text}\n\nmatmul.claims = {claims.split()}\n")
    contract, where = resolve("matmul"), target("emulated:sm_80")
    asked = [contract.for_launcher(case, f"{launcher}:matmul") for case in far_cases(contract, where)]
    came = tuple(judge(case, where, contract).outcome for case in asked if case is not None)
    assert came == outcomes


def test_a_launcher_of_another_kernel_is_asked_a_far_case_it_claims(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def near(*operands): ...\ndef far(*operands): ...\nfar.claims = 'far'\n")
    contract = resolve("ampere_gemm")
    (case,) = far_cases(contract, target("emulated:sm_80"))
    assert contract.for_launcher(case, f"{tmp_path / 'mine.py'}:near") is None
    assert contract.for_launcher(case, f"{tmp_path / 'mine.py'}:far").problem == case.problem


@pytest.mark.parametrize("pad", [0, 1, 64, 1 << 12, 1 << 16])
def test_rows_a_page_apart_are_asked_without_the_claim_of_far_ones(pad: int, tmp_path: Path) -> None:
    """A gap that leaves every offset below 2^31 elements is no far case."""
    (tmp_path / "mine.py").write_text("def near(*operands): ...\nnear.claims = 'strides'\n")
    launcher, matmul, ampere = f"{tmp_path / 'mine.py'}:near", resolve("matmul"), resolve("ampere_gemm")
    view, sizes = bitverdict.kernels.matmul.View(pad=pad), {"m": 33, "n": 40, "k": 48}
    asked = matmul.for_launcher(
        Case(contract="matmul", problem=bitverdict.kernels.matmul.Problem(**sizes, a=view, b=view)), launcher
    )
    assert (asked.problem.a.pad, asked.problem.b.pad) == (pad, pad)
    problem = bitverdict.kernels.ampere_gemm.Problem(**sizes, a_pad=pad)
    near = ampere.for_launcher(Case(contract="ampere_gemm", problem=problem), launcher)
    assert near is not None and near.problem == problem


def test_a_stride_that_no_32_bits_hold_is_refused_for_a_far_case() -> None:
    assert far_pad(3, 40) + 40 == ROW
    with pytest.raises(ValueError, match="must fit 32 bits; take more rows"):
        far_pad(2, 40)


def test_memory_that_cannot_be_mapped_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> torch.Tensor:
        raise OSError(12, "Cannot allocate memory")

    with admit_bytes(0, GPU) as none, admit_bytes(5 << 30, target("emulated:sm_90")) as here:
        assert none == here == ""
    monkeypatch.setattr(far_views, "map_zeros", refuse)
    with admit_bytes(5 << 30, target("emulated:sm_90")) as why:
        assert why.startswith("5.0 GiB of operands and results: this machine does not map so much address space (Cannot")


@pytest.mark.parametrize(("free", "fits"), [(14 << 30, True), (12 << 30, False)])
@pytest.mark.share(4)
def test_a_gpu_must_have_room_before_a_far_case_is_launched(free: int, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 80 << 30))
    with admit_bytes(12 << 30, GPU) as why:
        assert why == ("" if fits else "12.0 GiB of operands and results: 12.0 of 80.0 GiB are free on cuda:0")


def test_one_far_case_at_a_time_is_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_views, "PATIENCE", 0.2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 << 30, 80 << 30))
    with exclusive(f"far {GPU.uuid}", wait=1.0) as mine:
        assert mine
        with admit_bytes(1 << 30, GPU) as why:
            assert "another process judged a case that needs as much on cuda:0 for 0.2 s" in why
    with admit_bytes(1 << 30, GPU) as why:
        assert why == ""


def test_a_far_case_without_memory_is_not_run_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def none(needed: int, where: Target) -> Iterator[str]:
        yield f"{needed >> 30} GiB are not here" if needed else ""

    monkeypatch.setattr("bitverdict.harness.judge.case_memory.admit_bytes", none)
    contract, where = resolve("tma_gather"), target("emulated:sm_100")
    (far,) = far_cases(contract, where)
    near = contract.required(where)[0]
    verdicts = [judge(case, where, contract) for case in (near, far)]
    assert verdicts[0].decision is Decision.PASS
    # the far case: of the table, and of the rows that are written
    assert (verdicts[1].decision, verdicts[1].message) == (Decision.NOT_RUN, "8 GiB are not here")
    tally = Tally()
    tally.require(contract.address, where.name, [near, far])
    for case, verdict in zip((near, far), verdicts, strict=True):
        tally.count(case, contract.address, where.name, {}, verdict)
    assert tally.status() == 0 and not tally.open()
