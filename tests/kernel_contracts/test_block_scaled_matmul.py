"""Contract under test: what block_scaled_matmul promises beyond a case: its plan is what the compiler makes, its padding is never
read as a scale, its launcher is the tutorial's and refuses by name, its metadata counts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.contracts.block_scaled_matmul import CONTRACT, COVER
from bitverdict.harness.contracts.oracle.dot_scaled_lowering import element_words, scaled_plan
from bitverdict.harness.emulator import Device, LaunchOptions, emulated
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import load
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.triton_release import stores_in_the_ring
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.kernels.block_scaled_matmul import CLAUSES, Config, Problem, block_scaled_matmul, configurations, launch_metadata
from bitverdict.kernels.clauses import broken
from bitverdict.kernels.scaled_operands import FORMATS, packing, problem_of, scale_shape
from tests.contracts.test_strategies import drawn
from tests.support.tutorial_facts import holds

KINDS = {"mxfp4": "mxf4", "nvfp4": "mxf4nvf4", "mxfp8": "mxf8f6f4", "mixed": "mxf8f6f4"}


def zeros(name: str, m: int = 128, n: int = 128, k: int = 256) -> list[torch.Tensor]:
    """Operands of a format, all zero: a, its scales, b, its scales."""
    f, made = FORMATS[name], []
    for rows, element in ((m, f.a), (n, f.b)):
        dtype = torch.uint8 if element == "e2m1" else torch.float8_e4m3fn
        made.append(torch.zeros((rows, k // packing(element)), dtype=dtype))
        scale = torch.float8_e4m3fn if f.scale == "ue4m3" else torch.uint8
        made.append(torch.zeros(scale_shape(rows, k, f.block_size), dtype=scale))
    return made


@pytest.fixture
def machine() -> Iterator:
    """A function that launches nothing but compiles: (arch) -> the emulated device."""
    opened = []

    def enter(arch: str) -> Device:
        manager = emulated(arch, options=LaunchOptions(dry=True))
        device = manager.__enter__()
        opened.append(manager)
        return device

    yield enter
    for manager in reversed(opened):
        manager.__exit__(None, None, None)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_plan_names_the_instruction_that_the_compiler_chose(name: str, arch: str, machine) -> None:
    f = FORMATS[name]
    if arch == "sm_80" and name != "mxfp4":
        return  # expected a refusal by the front end: judged with the contract's cases
    plan = scaled_plan(arch, f.a, f.b, f.scale, f.block_size)
    device = machine(arch)
    block_scaled_matmul(*zeros(name), configs=Config())
    (found,) = device.launches[-1].products
    family, a, b, d, m, n, k = found
    assert (family, d, m, n, k) == (plan.family, "fp32", 128, 128, 128)
    assert (a, b) == ((f.a, f.b) if arch == "sm_100" else ("bf16", "bf16"))
    if arch == "sm_100":
        assert plan.rule.kind == KINDS[name]
    if arch == "sm_80":  # what the plan's order of K rests on
        assert set(re.findall(r"opIdx = \d, parent = #mma, kWidth = (\d+)", device.launches[-1].program)) >= {"8"}


@pytest.mark.parametrize("name", FORMATS)
def test_scales_of_whole_tiles_are_copied_and_ragged_ones_replaced(name: str, machine) -> None:
    device = machine("sm_100")
    block_scaled_matmul(*zeros(name), configs=Config())
    assert "ttng.tmem_copy" in device.launches[-1].program
    block_scaled_matmul(*zeros(name, k=384), configs=Config(block_k=256))
    assert "ttng.tmem_copy" not in device.launches[-1].program


@pytest.mark.parametrize("padding", [0x00, 0x7F, 0xFF])
@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_what_the_padding_of_scales_holds_changes_no_word(name: str, padding: int) -> None:
    where = target("emulated:sm_90")
    problem = CONTRACT.size_fields(name, 40, 24, 130) | {"format": name, "out": "fp32"}
    case = CONTRACT.case(problem, {}, regime="codes")

    class Padded(type(CONTRACT)):  # type: ignore[misc]
        def operands(self, case):
            made = {operand.name: operand for operand in super().operands(case)}
            a, b = self.sides(case, made)
            for operand, side in ((made["a_scale"], a), (made["b_scale"], b)):
                from bitverdict.reference import scale_layout

                made[operand.name] = dataclasses.replace(operand, codes=scale_layout.pack(side.scales, padding=padding))
            return list(made.values())

    verdict = judge(case, where, Padded(CONTRACT.module))
    assert verdict.decision is Decision.PASS, verdict.message


def test_the_tutorials_call_is_taken_as_it_is() -> None:
    a, a_scale, b, b_scale = zeros("mxfp8", 256, 256, 256)
    sizes = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128, "num_stages": 4, "ELEM_PER_BYTE_A": 1, "VEC_SIZE": 32}
    a_desc, b_desc = TensorDescriptor.from_tensor(a, [128, 128]), TensorDescriptor.from_tensor(b, [256, 128])
    with emulated("sm_100") as device:
        out = block_scaled_matmul(a_desc, a_scale, b_desc, b_scale, torch.float16, 256, 256, 256, sizes)
    assert (out.shape, out.dtype, out.any().item()) == ((256, 256), torch.float16, False)
    assert device.launches[-1].grid == (2, 1, 1)


def test_results_are_views_of_rows_on_16_bytes() -> None:
    with emulated("sm_90"):
        out = block_scaled_matmul(*zeros("mxfp8", 3, 5, 128), torch.float32)
    assert (out.shape, out.stride()) == ((3, 5), (8, 1))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda o: [o[0].to(torch.int16), *o[1:]], "spell no format"),
        (lambda o: [o[0][:, :32], *o[1:]], r"must be \(m, k\) and \(n, k\) with one k"),
        (lambda o: [o[0], o[1][:, :1], *o[2:]], "pack them in tiles of 128 x 4"),
        (lambda o: [o[0], o[1].transpose(2, 3).reshape(o[1].shape).mT, *o[2:]], r"call .contiguous\(\)"),
        (lambda o: [o[0].T.contiguous().T, *o[1:]], "rows must be contiguous along K"),
        (lambda o: [o[0][:1].expand(o[0].shape), *o[1:]], "not overlap; call"),
    ],
)
def test_operands_that_do_not_belong_together_are_refused_by_name(wrong, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        block_scaled_matmul(*wrong(zeros("mxfp4")), configs=Config())


@pytest.mark.parametrize("k", [4, 40, 64, 100])
def test_one_row_is_taken_at_any_k_because_no_row_follows_it(k: int) -> None:
    """Its stride is never used: the launcher counts the row as padded to whole 16 bytes."""
    for rows in (1, 2):
        found = broken(CLAUSES, problem_of(*zeros("mxfp8", rows, 1, k)), Config())
        assert [clause.name for clause in found] == (["row strides of 16 bytes"] if rows > 1 and k % 16 else [])


def test_sizes_that_are_not_the_operands_are_refused() -> None:
    with pytest.raises(ValueError, match="must be the same; slice them"):
        block_scaled_matmul(*zeros("mxfp4"), torch.float16, 128, 128, 512)


def test_every_clause_is_broken_by_a_required_case() -> None:
    where = target("emulated:sm_90")
    rules = {
        CONTRACT.expected_outcome(case, where).message
        for case in CONTRACT.required(where)
        if not CONTRACT.expected_outcome(case, where).result
    }
    unbroken = {clause.name for clause in CLAUSES if clause.rule not in rules}
    assert unbroken == {"format", "largest sizes", "whole bytes"}  # no tensor poses them: held just below


@holds("other formats")
@pytest.mark.parametrize(("fields", "name"), [({"format": "mxfp6"}, "format"), ({"m": 0}, "sizes"), ({"n": 2**31}, "largest sizes"),
                                              ({"k": 33}, "whole bytes")])  # fmt: skip
def test_the_clauses_that_no_tensor_poses_hold_all_the_same(fields: dict, name: str) -> None:
    problem = Problem(**{"m": 64, "n": 64, "k": 64, "format": "mxfp4"} | fields)
    assert [clause.name for clause in broken(CLAUSES, problem, Config())] == [name]


@holds("metrics")
@pytest.mark.parametrize("name", FORMATS)
def test_the_metadata_names_format_and_sizes_and_counts_operations(name: str) -> None:
    f = FORMATS[name]

    class Kernel:
        name = "kernel"

    told = launch_metadata(None, Kernel, {"m": 256, "n": 128, "k": 64, "A": f.a, "B": f.b, "BLOCK_SIZE": f.block_size})
    assert told["name"] == f"kernel_{name} [M=256, N=128, K=64]"
    assert told["flops"] == 2 * 256 * 128 * 64
    assert told["bytes"] == 256 * 64 // packing(f.a) + 128 * 64 // packing(f.b) + 384 * 64 // f.block_size


@pytest.mark.parametrize("name", FORMATS)
def test_the_default_tile_fits_the_machine_it_is_for(name: str, machine) -> None:
    for arch in ("sm_90", "sm_100") if name != "mxfp4" else ("sm_80", "sm_90", "sm_100"):
        machine(arch)
        assert block_scaled_matmul(*zeros(name)).shape == (128, 128)
        assert configurations(name, block_scaled_mma=arch == "sm_100")[0].num_stages in (3, 4)


@pytest.mark.parametrize(("warps", "out"), [(4, "fp32"), (8, "fp32"), (4, "fp16")])
def test_whether_a_wide_tile_fits_in_sm_90_is_known_beforehand(warps: int, out: str) -> None:
    """Before Triton 3.9 a tile of fp32 is 32 bytes beyond the chip, and with 8 warps, whose threads have less than a word of the
    scales to copy, 2 KiB under it."""
    fields = CONTRACT.size_fields("mxfp8", 1, 1, 16) | {"format": "mxfp8", "out": out}
    asked = CONTRACT.case(fields, {"block_n": 256, "num_warps": warps})
    verdict = judge(asked, target("emulated:sm_90"), CONTRACT)
    assert verdict.decision is Decision.PASS, verdict.message
    assert ("Required: 232480" in verdict.message) == ((warps, out) == (4, "fp32") and not stores_in_the_ring())


@pytest.mark.parametrize(
    ("where", "least", "most"), [(Target("emulated:sm_100", "sm_100"), 1, 2), (Target("cuda:0", "sm_100", index=0), 3, 6)]
)
def test_what_is_drawn_for_hardware_has_more_tiles_than_for_the_emulator(where: Target, least: int, most: int) -> None:
    tiles = [(-(-case.problem.m // case.config.block_m), -(-case.problem.n // case.config.block_n))
             for case in drawn(CONTRACT.cases(where), 100)]  # fmt: skip
    assert least < max(map(max, tiles)) <= most + 1  # a size may be one past its last tile


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4", "mxfp8"])
def test_each_format_is_asked_every_way_that_k_can_end(name: str) -> None:
    """With a whole tile of scales, inside one, and inside a block of one scale."""
    where, seen = target("emulated:sm_100"), set()
    for case in CONTRACT.required(where):
        if (
            case.config
            and case.problem.format == name
            and CONTRACT.expected_outcome(case, where).result
            and case.regime not in COVER
        ):
            told = CONTRACT.coverage(case, where)
            seen.add((told["scale tiles of K"], told["last block"]))
    assert {("whole", "whole"), ("ragged", "whole"), ("ragged", "short")} <= seen


def test_a_launcher_is_not_asked_a_k_that_its_format_cannot_have(tmp_path: Path) -> None:
    path = tmp_path / "user.py"
    path.write_text("""
def odd(a, a_scale, b, b_scale): ...
def one(a, a_scale, b, b_scale): ...
def whole(a, a_scale, b, b_scale): ...
odd.requires = lambda k: k % 2 == 1
one.requires = lambda k: k == 160
whole.requires = lambda k: k % 256 == 0
""")
    cases = {name: CONTRACT.case(CONTRACT.size_fields(name, 64, 64, 132) | {"format": name}, {}) for name in ("mxfp4", "mixed")}
    for name, launcher, k in (("mxfp4", "odd", None), ("mxfp4", "one", 160), ("mixed", "one", None), ("mixed", "whole", 256),
                              ("mxfp4", "whole", 256)):  # fmt: skip
        asked = CONTRACT.for_launcher(cases[name], f"{path}:{launcher}")
        assert (asked and asked.problem.k) == k, (name, launcher)


def test_a_users_right_launcher_passes_and_a_wrong_layout_fails(tmp_path, monkeypatch) -> None:
    path = tmp_path / "user.py"
    path.write_text(USER)
    where = target("emulated:sm_90")
    case = CONTRACT.case(CONTRACT.size_fields("nvfp4", 130, 40, 96) | {"format": "nvfp4", "out": "fp32"}, {}, regime="normal")
    asked = [CONTRACT.for_launcher(case, f"{path}:{name}") for name in ("right", "row_major")]
    assert judge(asked[0], where, CONTRACT).message.startswith("no Triton kernel was launched")
    monkeypatch.setattr(CONTRACT, "must_launch", False)  # the user's is NumPy here: the comparison is under test
    right, wrong = (judge(each, where, CONTRACT) for each in asked)
    assert (right.decision, wrong.outcome) == (Decision.PASS, Outcome.OUTSIDE_BOUND)
    assert right.words == 130 * 40


USER = """
import numpy as np
import torch

TABLE = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])

def widened(packed, scale, axes):
    values = torch.stack((TABLE[(packed & 15).long()], TABLE[(packed >> 4).long()]), -1).flatten(1).double()
    rows, k = values.shape
    tiles = scale.float().permute(axes).reshape(scale.shape[0] * 128, scale.shape[1] * 4)
    return values * tiles[:rows].double().repeat_interleave(16, 1)[:, :k]

def multiplied(a, a_scale, b, b_scale, out_dtype, axes):
    return (widened(a, a_scale, axes) @ widened(b, b_scale, axes).T).to(out_dtype)

def right(a, a_scale, b, b_scale, out_dtype=torch.float16):
    return multiplied(a, a_scale, b, b_scale, out_dtype, (0, 3, 2, 1, 4))

def row_major(a, a_scale, b, b_scale, out_dtype=torch.float16):
    return multiplied(a, a_scale, b, b_scale, out_dtype, (0, 1, 2, 3, 4))
"""


@pytest.mark.parametrize(("name", "arch"), [("mxfp4", "sm_80"), ("mxfp8", "sm_90"), ("nvfp4", "sm_100"), ("mixed", "sm_100")])
def test_the_benchmark_checks_words_before_it_times_and_sees_a_wrong_one(name: str, arch: str, monkeypatch) -> None:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "block_scaled_matmul.py"
    parsed, measured = load(f"{path}:parsed"), load(f"{path}:measured")
    given = parsed(["--format", name, "--size", "128", "--no-bench", "-K", "128"])
    with emulated(arch):
        assert measured(given, given.K, arch, "cpu") == 0
        monkeypatch.setattr(
            "bitverdict.harness.contracts.oracle.dot_scaled_lowering.element_words", lambda *given: element_words(*given) ^ 1
        )
        assert measured(given, given.K, arch, "cpu") == 4096


def test_the_layer_regime_is_a_layers_own_values_quantized() -> None:
    operands = {o.name: o for o in CONTRACT.operands(CONTRACT.case(CONTRACT.size_fields("nvfp4", 64, 48,
    64) | {"format": "nvfp4"}, {},
                                                                   regime="layer", data_seed=3))}  # fmt: skip
    a, b = CONTRACT.sides(CONTRACT.case(CONTRACT.size_fields("nvfp4", 64, 48, 64) | {"format": "nvfp4"}, {}), operands)
    assert len(np.unique(a.codes)) == 16
    assert len(np.unique(a.scales)) > 20 and len(np.unique(b.scales)) > 3
