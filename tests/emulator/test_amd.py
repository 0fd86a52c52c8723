"""Contract under test: AMD's GPUs as emulated targets (docs/amd_targets.md). Model only: no AMD GPU was run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.frontend.amd_assembly import instructions
from bitverdict.harness.emulator.frontend.float_instructions import origins
from bitverdict.harness.emulator.releases import installed_release
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.architectures import EMULATED_ARCHITECTURES, is_amd
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.triton_release import sums_by_tree
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.reference import tensor_core
from bitverdict.reference.k_order import mfma_order
from bitverdict.reference.reduction_order import AMD as AMD_PAIRS
from bitverdict.reference.reduction_order import Layout, reduction_order
from bitverdict.reference.row_functions import RowSum
from bitverdict.reference.tracing.function_errors import FUNCTIONS, function_error
from tests.faults.kernels import cross_entropy, rms_norm
from tests.faults.mutants import Mutant, once, write_mutant
from tests.support import amd_kernels

AMD = tuple(name for name in EMULATED_ARCHITECTURES if is_amd(name))
ROW_KERNELS = ("softmax", "rope", "swiglu", "rms_norm", "cross_entropy", "dropout")


def numbers(count: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(count).astype(np.float32))


def added(arch: str, more: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, out = numbers(1000), numbers(1000, 1), torch.zeros(1000)
    with emulated(arch) as device:
        amd_kernels.add[(4,)](x, y, out, 1000, more, 256, enable_fp_fusion=False)
        assert "amdg.buffer_store" in device.launches[-1].program and not device.advice
    return out, x + y


@pytest.mark.parametrize("arch", AMD)
def test_a_vector_sum_is_right_bit_for_bit(arch: str) -> None:
    found, due = added(arch, 0)
    assert torch.equal(found, due)


def test_a_mask_that_reaches_one_element_too_far_is_a_fault() -> None:
    with pytest.raises(EmulatedFault, match=r"stray read: .*read at byte 4000 of ") as raised:
        added("gfx942", 1)
    assert "amdg.buffer_load" in raised.value.details["operation"]


def test_a_masked_load_gives_zero_as_the_hardware_does() -> None:
    x, out = numbers(64), torch.ones(64)
    with emulated("gfx942") as device:
        amd_kernels.masked[(1,)](x, out, 40, 64)
    assert torch.equal(out[:40], x[:40]) and not out[40:].any() and not device.advice
    assert re.search(r"amdg.buffer_load\"\(%x, %\w+, %\w+\)", device.launches[-1].program)  # no `other`


def test_an_offset_below_a_buffer_is_a_fault() -> None:
    x, out = numbers(64), torch.zeros(64)
    with emulated("gfx942"):
        amd_kernels.shifted[(1,)](x, out, 0, 64)
        assert torch.equal(x, out)
        with pytest.raises(EmulatedFault, match=r"stray read: .*read at byte -4 of"):
            amd_kernels.shifted[(1,)](x, out, 1, 64)


def counted(more: int) -> torch.Tensor:
    """How often each of 10 places is named: 40 lanes of 64, and `more`."""
    out = torch.zeros(10, dtype=torch.int32)
    with emulated("gfx942") as device:
        amd_kernels.counted[(1,)](out, 40, 10, more, 64)
        assert "amdg.buffer_atomic_rmw" in device.launches[-1].program
    return out


def test_a_masked_lane_of_a_buffer_atomic_adds_nothing() -> None:
    assert counted(0).tolist() == [4] * 10


def test_a_buffer_atomic_outside_of_its_tensor_is_a_fault() -> None:
    with pytest.raises(EmulatedFault, match=r"stray write") as raised:
        counted(1)
    assert "amdg.buffer_atomic_rmw" in raised.value.details["operation"]


def test_a_masked_store_through_a_buffer_leaves_the_rest() -> None:
    """The mutant drops the mask from the tile program."""
    x = numbers(64)
    for dropped in (False, True):
        out = torch.ones(64)
        options = LaunchOptions(rewrite=lambda text: _without_store_mask(text) if dropped else text)
        with emulated("gfx942", options=options):
            amd_kernels.copied[(1,)](x, out, 40, 64)
        assert torch.equal(out[:40], x[:40]) and torch.equal(out[40:], x[40:] if dropped else torch.ones(24))


def _without_store_mask(text: str) -> str:
    store = re.search(r'"amdg.buffer_store"\((%\w+), (%\w+), (%\w+), (%\w+)\).*', text)
    assert store is not None
    line = store[0].replace(f", {store[4]})", ")").replace("1, 1, 1, 0, 1>", "1, 1, 1, 0, 0>")
    return text.replace(store[0], re.sub(r", tensor<64xi1[^)]*>\) -> \(\)", ") -> ()", line))


def test_a_sum_goes_through_lanes_as_the_compiled_program_says() -> None:
    """DPP controls of the machine code: row_shr 8, 4, 2, 1, row_bcast 15, 31; then four warps."""
    values, out = numbers(8 * 1024).reshape(8, 1024), torch.zeros(8)
    with emulated("gfx942"):
        for row in range(8):
            kernel = amd_kernels.summed[(1,)](values[row], out[row:], 1024, enable_fp_fusion=False)
    code = kernel.asm["amdgcn"]
    rows = [f"row_shr:{step}" for step in (8, 4, 2, 1)] + ["row_bcast:15", "row_bcast:31"]
    moves = re.findall(r"\b(row_shr:\d+|row_bcast:\d+|quad_perm:\[[\d,]+\])", code)
    assert ("v_pk_add_f32" in code) == sums_by_tree() and moves == [*rows, "quad_perm:[2,3,0,1]", "quad_perm:[1,0,3,2]"]

    def same(warps: int, sm: int, threads: int) -> bool:
        order = RowSum(1024, 4, warps, sm, threads, chain=not sums_by_tree())
        return bool((order.total(values.numpy())[:, 0] == out.numpy()).all())

    assert same(4, AMD_PAIRS, 64)
    assert same(4, 90, 64) != sums_by_tree() and not same(8, AMD_PAIRS, 32)


def test_a_warp_of_64_lanes_is_combined_by_rows() -> None:
    layout = Layout((), tuple((1 << bit,) for bit in range(6)), ())
    assert reduction_order(layout, 0).lanes == (3, 2, 1, 0, 4, 5)
    assert reduction_order(layout, 0, single=False).lanes == (5, 4, 3, 2, 1, 0)


def squares(values: np.ndarray, fused: bool) -> np.float32:
    """The sum of squares of 256 `values` (fp32), four of a thread: pairs, or one after another, then 64 lanes by rows. `fused`:
    with the products of the first pair taken in, or all but the second."""
    exact = values.astype(np.float64).reshape(64, 4) ** 2  # of these few bits float64 loses none, nor of their sums
    rounded = exact.astype(np.float32)
    taken = exact if fused else rounded
    if sums_by_tree():
        pair = (taken[:, :2] + rounded[:, 2:]).astype(np.float32)
        lanes = pair[:, 0] + pair[:, 1]
    else:
        lanes = rounded[:, 1]
        for place in (0, 2, 3):
            lanes = (taken[:, place] + lanes).astype(np.float32)
    for bit in (3, 2, 1, 0, 4, 5):
        lanes = lanes + lanes[np.arange(64) ^ 1 << bit]
    return lanes[63]


def test_products_are_taken_into_a_sum_as_the_machine_code_says() -> None:
    """v_pk_mul_f32 and v_pk_fma_f32, or v_fmac_f32; without fusion v_pk_add_f32, and in some sums other words."""
    rows, found = np.random.default_rng(3).integers(1, 1 << 14, (8, 256)).astype(np.float32), {}
    with emulated("gfx942") as device:
        for fused in (True, False):
            out = torch.zeros(8)
            for row in range(8):
                given = torch.from_numpy(rows[row])
                kernel = amd_kernels.summed_squares[(1,)](given, out[row:], 256, num_warps=1, enable_fp_fusion=fused)
            assert bool(re.search("v_pk_fma_f32|v_fmac_f32", kernel.asm["amdgcn"])) == fused
            found[fused] = out.numpy()
            assert (out.numpy() == [squares(row, fused) for row in rows]).all()
    assert (found[True] != found[False]).any() and not device.advice


@pytest.mark.parametrize("rows", [8, 16])
def test_of_two_negated_products_the_machine_code_names_the_one_taken_in(rows: int) -> None:
    """LLVM makes -p + -q, which takes p in, or -q - p, which takes q in; it rounds each where -x is 0 - x."""
    x, y = np.random.default_rng(3).integers(1, 1 << 14, (2, rows, 64)).astype(np.float32)
    out = torch.zeros(64)
    with emulated("gfx942"):
        kernel = amd_kernels.summed_negatives[(1,)](torch.from_numpy(x), torch.from_numpy(y), out, rows, num_warps=1)
    takes_away = bool(re.search(r"v_pk_fma_f32 .* neg_lo:\[0,\d,1\]", kernel.asm["amdgcn"]))
    exact = -(x.astype(np.float64) * y).reshape(rows // 8, 2, 4, 64)  # float64 loses no bit of these
    rounded = exact.astype(np.float32)
    taken = rounded if installed_release().negates_by_subtraction else exact
    lanes, *others = (taken[:, int(takes_away)] + rounded[:, int(not takes_away)]).astype(np.float32)
    for pair, ends in zip(others, rounded[1:], strict=True):
        lanes = lanes + pair if sums_by_tree() else lanes + ends[0] + ends[1]
    assert np.array_equal(out.numpy(), (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))


def wave_squares(values: np.ndarray, own: bool) -> np.float32:
    """The sum of squares of 256 `values` (fp32), one of a thread: the word of each wave's last lane, whose first sum takes in the
    product of its `own` element, or that of the lane below; then four waves."""
    exact, at = values.astype(np.float64).reshape(4, 64) ** 2, np.arange(64)
    rounded = exact.astype(np.float32)
    sides = (exact, rounded) if own else (rounded, exact)
    lanes = (sides[0] + sides[1][:, at ^ 8]).astype(np.float32)
    for bit in (2, 1, 0, 4, 5):
        lanes = lanes + lanes[:, at ^ 1 << bit]
    first, second, third, fourth = lanes[:, 63]
    return (first + third) + (second + fourth)


def test_a_wave_has_the_word_of_its_last_lane_which_takes_its_own_product() -> None:
    rows = np.random.default_rng(3).integers(1, 1 << 14, (16, 256)).astype(np.float32)
    out = torch.zeros(16)
    with emulated("gfx942") as device:
        for row, values in enumerate(map(torch.from_numpy, rows)):
            kernel = amd_kernels.summed_squares[(1,)](values, out[row:], 256, num_warps=4, enable_fp_fusion=True)
    assert re.search(r"v_readlane_b32 s\d+, v\d+, 63", kernel.asm["amdgcn"]) and not device.advice
    assert (out.numpy() == [wave_squares(row, own=True) for row in rows]).all()
    assert (out.numpy() != [wave_squares(row, own=False) for row in rows]).any()


def test_what_a_register_holds_is_known_through_branches_and_loops() -> None:
    """A product in a loop, under a branch, in a packed half, and in another lane."""
    text = """
	v_mul_f32_e32 v1, v0, v0
	v_mov_b32_e32 v2, 0
.LBB0_1:
	v_add_f32_e32 v2, v2, v1
	v_mul_f32_e32 v1, v3, v3
	s_cbranch_scc1 .LBB0_1
	s_cbranch_execz .LBB0_2
	v_mov_b32_e32 v2, v4
.LBB0_2:
	v_add_f32_e32 v5, v2, v6
	v_pk_fma_f32 v[8:9], v[0:1], v[2:3], v[4:5] op_sel_hi:[1,0,1]
	v_add_f32_dpp v7, v1, v1 row_shr:8 row_mask:0xf bank_mask:0xf
"""
    listed = list(instructions(text, frozenset()))
    defined: dict[str, list] = {}
    for each in listed:
        for name in each.writes:
            defined.setdefault(name, []).append(each)
    added, joined, low, high, moved = [each for each in listed if each.opcode.startswith(("add.", "fma."))]
    assert [each.opcode for each in origins(added.reads[1:], defined)] == ["mul.rn.f32"] * 2  # before the loop, and around it
    assert {each.opcode for each in origins(joined.reads[:1], defined)} == {"add.rn.f32"}
    assert [each.reads[1] for each in (low, high)] == [low.reads[1]] * 2 and low.reads[0] != high.reads[0]
    assert origins(moved.reads[:1], defined) == [] and origins(moved.reads[1:], defined)[0].opcode == "mul.rn.f32"


def test_an_exponential_lies_within_the_error_that_is_promised() -> None:
    x, out = 20 * numbers(1024), torch.zeros(1024)
    with emulated("gfx942"):
        amd_kernels.powers[(1,)](x, out, 1024)
    real = np.exp(x.numpy().astype(np.float64))
    error = np.abs(out.numpy() - real) / real / 2.0**-24  # units of the result
    rule = function_error("exp", "gfx942")
    assert (error <= rule.relative + rule.argument * np.abs(x.numpy())).all()


def test_errors_of_functions_on_amd_are_those_of_opencl_where_larger() -> None:
    assert function_error("log", "gfx942").relative == 6 and function_error("log", "sm_90") is FUNCTIONS["log"]
    assert [function_error(name, "gfx942").relative for name in ("exp", "exp2", "sqrt")] == [6] * 3
    assert function_error("exp", "gfx942").argument == FUNCTIONS["exp"].argument
    assert function_error("divide", "gfx942") is FUNCTIONS["divide"]  # 6 units, where OpenCL has 5


def multiplied(arch: str, rewrite: dict[str, str] | None = None, schedule: str = "eager", k: int = 72, **options: int) -> tuple:
    """(c, a, b) of a 32 x 32 product; `rewrite`: regular expressions and what they are replaced by in the tile program."""
    a, b, c = numbers(32 * k).half().reshape(32, k), numbers(k * 32, 1).half().reshape(k, 32), torch.zeros(32, 32)

    def changed(text: str) -> str:
        for pattern, by in (rewrite or {}).items():
            text, count = re.subn(pattern, by, text)
            assert count, pattern
        return text

    with emulated(arch, schedule, options=LaunchOptions(rewrite=changed)) as device:
        amd_kernels.product[(1,)](a, b, c, k, 32, 32, num_warps=1, **options)
    return c, a, b, device


@pytest.mark.parametrize("kpack", [1, 2])
def test_a_product_is_the_chain_of_its_mfma_instructions(kpack: int) -> None:
    c, a, b, device = multiplied("gfx942", k=64, kpack=kpack, matrix_instr_nonkdim=16)
    text = device.launches[-1].program
    width = int(re.search(r"kWidth = (\d+)", text)[1])
    assert "instrShape = [16, 16, 16]" in text and width == 4 * kpack
    rule, found = tensor_core.instruction("gfx942", "mfma", "fp16", "fp16", "fp32", k=16), np.zeros((32, 32), np.uint32)
    codes = [each.numpy().view(np.uint16) for each in (a, b)]
    for block in range(0, 64, 32):
        for part in (block + mfma_order(32, 4, width, 4)).reshape(-1, 16):
            found = tensor_core.product(rule, codes[0][:, part].copy(), codes[1][part].copy(), found)
    assert (c.numpy().view(np.uint32) == found).all()
    straight = tensor_core.product(rule, *codes, np.zeros((32, 32), np.uint32))
    assert (found == straight).all() == (kpack == 1)


def test_k_of_an_mfma_is_taken_by_groups_of_lanes() -> None:
    assert mfma_order(8, 2, 4, 2).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert mfma_order(16, 2, 2, 4).tolist() == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]  # two repetitions in one
    with pytest.raises(ValueError, match="k must be a multiple of 16"):
        mfma_order(24, 2, 8, 4)


WAIT = r'"ttg.async_wait"(.*num = )0( : i32.*)'


@pytest.mark.parametrize("schedule", ["eager", "latest"])
def test_lds_that_is_read_before_the_wait_is_a_race(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """gfx950's pipeliner loads to LDS, of some releases where it is told to; the mutant waits for all groups but the last two."""
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", "1")
    right, a, b, device = multiplied("gfx950", schedule=schedule)
    assert "amdg.buffer_load_to_local" in device.launches[-1].program
    assert torch.allclose(right, a.float() @ b.float(), atol=2**-7)
    with pytest.raises(EmulatedFault, match="race") as raised:
        multiplied("gfx950", {WAIT: r'"ttg.async_wait"\g<1>2\2'}, schedule)
    assert raised.value.details["rule"].startswith("load to LDS writes shared memory until an async_wait")
    assert "amdg.buffer_load_to_local" in raised.value.details["operation"] + raised.value.details.get("other operation", "")


@pytest.mark.parametrize("stem", ROW_KERNELS)
def test_kernels_on_rows_pass_on_gfx942(stem: str) -> None:
    """Refused cases too."""
    required, contract = CaseSource(stem, where := target("emulated:gfx942")).required(), resolve(stem)
    refused = [case for case in required if not contract.expected_outcome(case, where).result]
    found = [judge(case, where, contract) for case in (*required[:4], *refused)]
    assert {each.decision.value for each in found} == {"pass"} and sum(each.words for each in found) and refused


SHIFTED = Mutant(
    kernel="softmax",
    name="a shift the wrong way",
    edits=once("values - gl.max", "values + gl.max"),
    expected=("outside the bound",),
)
FAULTS = [
    SHIFTED,
    *(
        each
        for each in (*rms_norm.MUTANTS, *cross_entropy.MUTANTS)
        if each.name in ("dx without the mean", "a gradient of weight one")
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.name)
def test_a_bound_on_gfx942_tells_powers_that_overflow_and_wrong_gradients(fault: Mutant, tmp_path: Path) -> None:
    where, contract = target("emulated:gfx942"), resolve(write_mutant(fault, tmp_path))
    wanted = "hundreds" if fault is SHIFTED else "normal"
    asked = [each for each in contract.required(where) if each.regime == wanted and getattr(each.problem, "backward", True)]
    assert {judge(each, where, contract).outcome.value for each in asked[1:3]} == {"outside the bound"}


def test_a_layout_of_32_threads_is_refused_on_gfx942() -> None:
    """The same kernels compile for 64 threads a warp because their layout asks for the target's."""
    with emulated("gfx942"), pytest.raises(EmulatedFault, match=r"ttg.threads-per-warp is 32: gfx942 has 64"):
        _launch_for_nvidia()


def _launch_for_nvidia() -> None:
    from bitverdict.harness.emulator.frontend.program_verifier import verify_program

    with emulated("sm_90") as device:
        amd_kernels.shifted[(1,)](numbers(64), torch.zeros(64), 0, 64)
    verify_program(device.launches[-1].program, "gfx942")
