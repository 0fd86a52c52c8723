"""Contract under test: matmul expects the words of its plan for every legal problem, in every configuration, and says what else it
expects.

Drawn cases are judged in `test_contracts.py`; here are the promises a draw does not show: that the required cases covers, that the
table of outcomes is the compiler's, that the autotuned launch is the configured one, that offsets past 2^31 hold, that AMD's
list is chosen by target."""

from __future__ import annotations

import dataclasses
import json
import operator
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

import bitverdict.kernels.matmul
from bitverdict.harness.contracts.inputs.all_codes import PAIRS
from bitverdict.harness.contracts.matmul import CONTRACT
from bitverdict.harness.contracts.oracle.gemm_bound import bounded_product
from bitverdict.harness.contracts.oracle.matmul_support import KINDS
from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.judge.guarded_buffers import Guard, Poison, words
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.judge.launch import own_cache
from bitverdict.harness.lab.pages.matmul_support import row
from bitverdict.harness.model.architectures import BY_DEFAULT
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.launcher_limits import FAR_PAD
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision
from bitverdict.kernels.features import Feature, features_of
from bitverdict.kernels.matmul import CONFIGS, HOPPER_CONFIGS, Config, Problem, View
from tests.support.shares import in_this_turn
from tests.support.tile_program import matmul_source
from tests.support.tutorial_facts import holds

CHECKOUT = Path(__file__).resolve().parents[2]
TUTORIAL = CHECKOUT / "docs" / "examples" / "tutorial_matmul.py"
SMALL = CONFIGS["cuda"][-1]
GROUPS = {"sm_80": (8,), "sm_90": (2, 8), "sm_100": (2, 8)}  # of the described tile: refused alone where there is no TMA


def emulated_targets() -> list[Target]:
    return [target(f"emulated:{arch}") for arch in BY_DEFAULT]


def case(**fields) -> Case:
    return Case(contract="matmul", problem=Problem(**fields), config=SMALL)


@holds("EVEN_K")
@pytest.mark.parametrize("arch", BY_DEFAULT)
def test_the_required_cases_meets_every_class_of_every_dimension(arch: str) -> None:
    where = target(f"emulated:{arch}")
    seen: dict[str, Counter] = {}
    for required in CONTRACT.required(where):
        for dimension, value in CONTRACT.coverage(required, where).items():
            seen.setdefault(dimension, Counter())[value] += 1
    always = {config.name for config in CONFIGS["cuda"]} | {"autotuned", "32x64x32 g1 w2 s5", "32x64x32 g4 w2 s5"}
    assert set(seen["config"]) - {config.name for config in HOPPER_CONFIGS} == always | {
        f"64x64x32 g{g} w4 s4 tma" for g in GROUPS[arch]
    }
    assert arch == "sm_80" or {config.name for config in HOPPER_CONFIGS} <= set(seen["config"])
    assert {"fp16", "bf16", "e4m3", "int8", "fp32 tf32", "fp32 ieee"} <= set(seen["dtype"])
    assert set(seen["EVEN_K"]) == {"True", "False"}
    for size in "mnk":
        assert set(seen[f"{size} mod 16"]) == set(range(16)), size
        assert {"tile - 1", "tile", "tile + 1"} <= set(seen[f"{size} at tile"]), size
    assert {"eager", "latest", "drawn", "eager on 2", "latest on 2"} == set(seen["schedule"])
    assert {"one", "a row", "a column", "a grid"} == set(seen["tiles"])
    assert set(seen["groups"]) == {"one", "several"}
    assert set(seen["activation"]) >= {"none", "leaky_relu"}
    assert set(seen["clause"]) == {clause.name for clause in bitverdict.kernels.matmul.CLAUSES} - {"sizes"} | {"none broken"}


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])  # sm_80 lacks e4m3, and with it the cases that vary some configurations
def test_each_configuration_is_asked_ragged_rows_of_several_lengths(arch: str) -> None:
    """Ends in different blocks of 16 columns: a fault of one lane's share of a row shows in one of them alone."""
    where, ends = target(f"emulated:{arch}"), {config: set() for config in CONFIGS["cuda"]}
    for case in CONTRACT.required(where):
        p = case.problem
        if case.config in ends and p.m % 16 and 16 <= p.m < 96 and p.n % 16 and 16 <= p.n < 64:
            ends[case.config].add(p.n // 16)
    assert all(len(found) > 1 for found in ends.values()), ends


def test_the_required_cases_starts_with_a_cheap_case() -> None:
    for where in emulated_targets():
        first = CONTRACT.required(where)[0]
        assert first.config in CONFIGS["cuda"][-2:]


def asked(arch: str, kind: tuple[str, str], config: Config) -> Case:
    """A required case of `kind` in `config`, so that what is compiled here and in `test_contracts.py` is compiled once. With K = 1
    there would be no ring, and an output in e4m3 has rows of its own. Of a type that `arch` lacks few are required."""

    def fits(found: Case) -> bool:
        p = found.problem
        return (p.dtype, p.precision) == kind and found.config == config and min(p.m, p.n) > 0 and p.k > 1 and p.out != "e4m3"

    own = Problem(m=128, n=128, k=128, dtype=kind[0], out=kind[0], precision=kind[1])
    return next(filter(fits, CONTRACT.required(target(f"emulated:{arch}"))), Case(contract="matmul", problem=own, config=config))


@pytest.mark.parametrize("arch", BY_DEFAULT)
@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_each_row_of_the_table_of_outcomes_is_what_the_compiler_makes(arch: str, kind: tuple[str, str]) -> None:
    for config in CONFIGS["cuda"]:
        case = asked(arch, kind, config)
        if not in_this_turn(f"outcome of matmul {config.name}, {' '.join(kind)}, {arch}", case):
            continue
        tensors = Guard(Poison.of_seed(0)).upload_all(CONTRACT.operands(case), torch.device("cpu"))
        with own_cache(case), emulated(arch, options=LaunchOptions(dry=True)) as device:
            try:
                CONTRACT.launch(case, tensors, None)
                told = "words: " + " ".join(sorted(device.launches[-1].instructions))
            except OutOfResources as error:
                told = f"out of resources: {error.required} of {error.limit} bytes"
            except CompilationError as error:
                told = "refused: no e4m3" if "fp8e4nv" in str(error) else str(error)
        expected_outcome = row(arch, kind, config)
        assert agree(expected_outcome, told), (config.name, expected_outcome, told)


def agree(expected_outcome: str, told: str) -> bool:
    if expected_outcome.startswith("out of resources"):  # the barriers of tcgen05 come on top of the ring: some bytes, not a tile
        needed, said = (
            int(text.split()[3]) for text in (expected_outcome, told if told.startswith("out") else "out of resources: 0")
        )
        return told.split()[-2] == expected_outcome.split()[-2] and 0 <= said - needed < 1024
    return told.replace("words: fma", "words: fp32 fused multiply-adds") == expected_outcome.partition(",")[0]


def test_a_wrong_row_does_not_agree_with_the_compiler() -> None:
    assert agree("words: mma.sync, e4m3 as fp16", "words: mma.sync")
    assert not agree("words: wgmma", "words: mma.sync")
    assert not agree("out of resources: 196608 of 166912 bytes", "words: mma.sync")
    assert not agree("out of resources: 196608 of 166912 bytes", "out of resources: 294912 of 166912 bytes")
    assert agree("out of resources: 294912 of 232448 bytes", "out of resources: 294928 of 232448 bytes")


def test_one_k_block_known_to_the_compiler_needs_no_ring() -> None:
    """K = 1 is a constant of the program, so what is out of resources otherwise fits."""
    where = target("emulated:sm_90")
    big = CONFIGS["cuda"][0]
    for k, expected_outcome in ((1, "pass"), (2, "out of resources")):
        ragged = Case(contract="matmul", problem=Problem(m=5, n=7, k=k, dtype="fp32", out="fp32"), config=big)
        assert CONTRACT.expected_outcome(ragged, where).outcome == expected_outcome
        verdict = judge(ragged, where)
        assert (verdict.decision, verdict.outcome) == (Decision.PASS, expected_outcome)


@pytest.mark.parametrize("arch", BY_DEFAULT)
@pytest.mark.share(4)
def test_an_empty_sum_is_the_activation_of_zero(arch: str) -> None:
    with emulated(arch):
        for activation, value in (("", 0.0), ("leaky_relu", 1.0)):
            c = bitverdict.kernels.matmul.matmul_configured(torch.zeros(3, 0), torch.zeros(0, 5), activation, None, SMALL)
            assert torch.equal(c, torch.full((3, 5), value))


@pytest.mark.parametrize("sizes", [(0, 5, 4), (5, 0, 4), (0, 0, 0)])
def test_an_empty_result_is_returned_without_a_launch(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    with emulated("sm_90") as device:
        c = bitverdict.kernels.matmul.matmul(torch.zeros(m, k), torch.zeros(k, n))
    assert c.shape == (m, n)
    assert not device.launches


@holds("best configuration")
def test_the_autotuned_launch_records_its_winner_and_expects_its_words() -> None:
    where = target("emulated:sm_90")
    drawn = Case(contract="matmul", problem=Problem(m=40, n=33, k=48, dtype="e4m3", out="fp32"), regime="wide")
    verdict = judge(drawn, where)
    assert verdict.decision is Decision.PASS
    assert verdict.basis.partition(":")[0] == "words by hardware, in bound"
    won = Config(**verdict.recorded["config"])
    assert won in CONFIGS["cuda"]
    operands = {operand.name: operand for operand in CONTRACT.operands(drawn)}
    other = next(c for c in CONFIGS["cuda"] if (c.num_warps == 2) != (won.num_warps == 2))
    expected_outcome, not_expected = (
        CONTRACT.expected(drawn, where, operands, {"config": dataclasses.asdict(c)})[0].words for c in (won, other)
    )
    assert not np.array_equal(expected_outcome, not_expected), "the winner decides bits: a record of another one would fail"


@holds("key of the tuner")
def test_the_autotuner_tunes_again_for_another_layout_or_type() -> None:
    keys = bitverdict.kernels.matmul._tuner("cuda").keys
    assert {"m", "n", "k", "LAYOUT", "ACTIVATION", "PRECISION"} <= set(keys)
    row_major, column_major = torch.zeros(4, 8), torch.zeros(8, 4).T
    assert bitverdict.kernels.matmul._order(row_major) != bitverdict.kernels.matmul._order(column_major)


def test_offsets_in_64_bits_give_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    where = target("emulated:sm_80")
    ragged = Case(contract="matmul", problem=Problem(m=70, n=90, k=45, a=View(order="column", pad=3), b=View(step=2)), config=SMALL)
    monkeypatch.setattr(bitverdict.kernels.matmul, "_reach", lambda *tensors: 2**31)
    assert judge(ragged, where).decision is Decision.PASS


@pytest.mark.parametrize("wide", [True, False])
def test_an_operand_past_2_to_the_31_elements_needs_64_bit_offsets(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows 2^30 elements apart: the last begins at element 2^31. Pages never touched cost no memory."""
    storage = torch.empty(2**31 + 64, dtype=torch.int8)
    a = storage.as_strided((3, 32), (2**30, 1))  # (3, 32)
    a.copy_((torch.arange(96) % 7).to(torch.int8).reshape(3, 32))
    b = (torch.arange(32 * 16) % 5 - 2).to(torch.int8).reshape(32, 16)
    if not wide:
        monkeypatch.setattr(bitverdict.kernels.matmul, "_reach", lambda *tensors: 0)
    with emulated("sm_80"):
        if not wide:
            with pytest.raises(EmulatedFault, match="read"):
                bitverdict.kernels.matmul.matmul_configured(a, b, "", torch.int32, SMALL)
            return
        assert bitverdict.kernels.matmul._reach(a, b) >= 2**31
        c = bitverdict.kernels.matmul.matmul_configured(a, b, "", torch.int32, SMALL)
    assert torch.equal(c, a.int() @ b.int())


def test_int8_results_are_the_sum_modulo_256_and_e4m3_results_saturate() -> None:
    with emulated("sm_90"):
        full = torch.full((2, 40), 127, dtype=torch.int8)
        assert bitverdict.kernels.matmul.matmul_configured(full, full.T, "", None, SMALL)[0, 0] == np.int32(127 * 127 * 40).astype(
            np.int8
        )
        large = torch.full((2, 40), 256.0, dtype=torch.float16)
        assert bitverdict.kernels.matmul.matmul_configured(large, large.T, "", torch.float8_e4m3fn, SMALL).float()[0, 0] == 448


def test_the_configurations_follow_the_target_and_not_this_machine() -> None:
    assert bitverdict.kernels.matmul.configurations("hip") is CONFIGS["hip"]
    assert all(config.waves_per_eu for config in CONFIGS["hip"])
    assert not any(config.waves_per_eu for config in bitverdict.kernels.matmul.configurations("cuda"))
    with pytest.raises(ValueError, match="must be one of cuda, hip"):
        bitverdict.kernels.matmul.configurations("xpu")


@holds("offsets on HIP")
@pytest.mark.parametrize("config", CONFIGS["hip"], ids=lambda config: config.name.replace(" ", "-"))
def test_each_amd_configuration_compiles_with_wrapped_offsets(config: Config, tmp_path: Path, monkeypatch) -> None:
    """It compiles to machine code. The tutorial's AMD branch has no modulo and reads past a ragged operand; here there is one path,
    compiled for gfx942."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages, "waves_per_eu": config.waves_per_eu}
    compiled = triton.compile(matmul_source(config, "fp16"), target=GPUTarget("hip", "gfx942", 64), options=options)
    assert compiled.asm["hsaco"]
    vectors = [line for line in compiled.asm["ttir"].splitlines() if "arith.remsi" in line and "tensor<" in line]
    assert len(vectors) == 2, "rows modulo m and columns modulo n"


def test_every_user_case_is_one_that_a_plain_launcher_takes() -> None:
    for required in CONTRACT.required(target("emulated:sm_90")):
        asked = CONTRACT.for_launcher(required, f"{TUTORIAL}:matmul")
        p = required.problem
        if max(p.a.pad, p.b.pad) >= FAR_PAD or p.k_of_b is not None or p.dtype_of_b or required.regime == PAIRS:
            assert asked is None, "far rows, refusals and pairs of codes are asked only of a launcher that claims them"
            continue
        assert asked.config is None
        assert (asked.problem.dtype, asked.problem.out, asked.problem.activation) == ("fp16", "fp16", "")
        sizes = operator.attrgetter("m", "n", "k")
        assert sizes(asked.problem) == sizes(required.problem), "sizes of 0 too"
        assert asked.problem.a == asked.problem.b == View()


@pytest.mark.share(3)
@pytest.mark.parametrize("arch", BY_DEFAULT)
def test_the_plans_words_lie_within_the_bound_that_a_users_launcher_gets(arch: str) -> None:
    where, shares = target(f"emulated:{arch}"), []
    for required in CONTRACT.required(where):
        if not CONTRACT.expected_outcome(required, where).result or required.config is None:
            continue
        operands = {operand.name: operand for operand in CONTRACT.operands(required)}
        expected_outcome = CONTRACT.expected(required, where, operands, {})[0]
        got = expected_outcome.words.view(f"u{expected_outcome.words.dtype.itemsize}")
        from bitverdict.harness.judge.compare import compare

        found = compare(bounded_product(required.problem, operands["a"].codes, operands["b"].codes, arch), got)
        assert found.outcome in ("pass", "inconclusive"), (required.key, found.message)
        shares.append(found.bound_used or 0.0)
    assert max(shares) > 0.2, "a bound that nothing comes near fails no kernel"


def test_a_case_goes_through_json_unchanged() -> None:
    for where in emulated_targets():
        for required in CONTRACT.required(where):
            assert CONTRACT.case_from_json(json.loads(json.dumps(required.to_json()))) == required


@pytest.mark.parametrize("broken", [{"version": 99}, {"problem": {"m": 1}}, {"problem": {"rows": 1}}, {"config": {"tile": 3}}])
def test_a_record_that_is_no_case_is_refused(broken: dict) -> None:
    record = case(m=1, n=2, k=3).to_json() | broken
    with pytest.raises(ValueError, match=r"must have the fields|reads version"):
        CONTRACT.case_from_json(record)


@pytest.mark.parametrize("view", [View(), View(order="column"), View(pad=3), View(order="column", pad=16, step=2, offset=5)])
def test_operands_lie_as_their_view_says(view: View) -> None:
    asked = case(m=5, n=4, k=7, a=view)
    a = CONTRACT.operands(asked)[0]
    assert isinstance(a, Operand)
    tensor = Guard(Poison.of_seed(0)).upload(a, torch.device("cpu"))
    assert tensor.stride() == view.strides(5, 7)
    assert np.array_equal(words(tensor), a.codes)


def test_what_hardware_a_target_has_is_a_set_of_features() -> None:
    assert Feature.FP8_E4M3 not in features_of("sm_80")
    assert Feature.WGMMA in features_of("sm_90")
    assert Feature.WGMMA not in features_of("sm_100")
    assert {Feature.TCGEN05, Feature.TMA_SCATTER} <= features_of("sm_100")
    with pytest.raises(ValueError, match="not in the table"):
        features_of("sm_20")
