"""Contract under test: recording keeps words only after the checks that would show a misplaced element, and a file repeats itself.

No GPU: the machine is one whose words come from `bitverdict.reference.tensor_core`; what is mutated is a machine that misplaces
elements, or whose words depend on where a product lies."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from bitverdict.harness.lab.hardware_words import conversion_inputs, cuda_library, instruction_words, probe_inputs, record
from bitverdict.harness.lab.hardware_words.cuda_library import CannotRecord, Device
from bitverdict.harness.lab.hardware_words.probes import PROBES, Probe
from bitverdict.harness.lab.hardware_words.terms import ABSENT, ProbeRequest, lowest_exponent, numbers, terms
from bitverdict.reference.formats import BF16, E4M3, E5M2, FORMATS, FP16, TF32, decode
from bitverdict.reference.tensor_core import elements, instruction

GPU = Device("NVIDIA H200", "sm_90", "13000", "13000")
TUTORIAL = instruction_words.DATA_SEED


class ModelMachine:
    """Answers as `machine.Machine` does, with words of the model; `fault` may change the words of a placement."""

    def __init__(self, probe: Probe, fault=lambda words, turn: words) -> None:
        self.probe, self.fault = probe, fault

    def words(self, ptx: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, *, steps: int, turn: int = 0) -> np.ndarray:
        rule = instruction("sm_90", self.probe.family, self.probe.a, self.probe.b, "fp16" if c.dtype.itemsize == 2 else "fp32")
        unsigned = np.dtype(f"u{c.dtype.itemsize}")
        with np.errstate(all="ignore"):
            found = elements(rule, a, b, np.ascontiguousarray(c).view(unsigned))
        return self.fault(found, turn).view(c.dtype)


def probe_of(family: str, a: str, k: int) -> Probe:
    return next(p for p in PROBES if (p.family, p.a, p.b, p.k, p.steps) == (family, a, a, k, 1))


FP16_PROBE = probe_of("wgmma", "fp16", 16)


def test_a_recorded_file_holds_what_it_takes_to_repeat_it() -> None:
    arrays = instruction_words.record_probe(ModelMachine(FP16_PROBE), GPU, FP16_PROBE, TUTORIAL)
    about = json.loads(str(arrays["meta"]))
    assert arrays["a"].shape == arrays["b"].shape == (len(arrays["d32"]), 16)
    assert {"c32", "d32", "c16", "d16", "kind"} <= arrays.keys()
    assert about["instruction"]["d16"] == "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16"
    assert about["d"] == {"d32": "fp32", "d16": "fp16"}
    assert {"gpu", "arch", "family", "a", "b", "k", "steps", "data_seed", "source", "compiler", "driver", "date"} <= about.keys()


def test_the_same_seed_gives_the_same_operands_and_another_gives_others() -> None:
    first, again, other = (instruction_words.operands(FP16_PROBE, seed) for seed in (1, 1, 2))
    assert all((getattr(first, name) == getattr(again, name)).all() for name in ("a", "b", "c32", "c16", "kind"))
    assert (first.a != other.a).any()


def test_a_machine_that_misplaces_elements_fails_before_a_word_is_kept() -> None:
    shifted = ModelMachine(FP16_PROBE, lambda words, turn: np.roll(words, 1))
    with pytest.raises(CannotRecord, match="exact integer products are wrong"):
        instruction_words.record_probe(shifted, GPU, FP16_PROBE, TUTORIAL)


def test_a_machine_whose_second_placement_is_wrong_fails() -> None:
    turned = ModelMachine(FP16_PROBE, lambda words, turn: words ^ np.array(turn == 2, words.dtype))
    with pytest.raises(CannotRecord, match="placement 2"):
        instruction_words.record_probe(turned, GPU, FP16_PROBE, TUTORIAL)


def test_words_that_change_with_their_place_are_refused() -> None:
    large = lambda words, turn: words if len(words) == 64 else words ^ np.array(turn, words.dtype)
    with pytest.raises(CannotRecord, match="product's place in the tile"):
        instruction_words.record_probe(ModelMachine(FP16_PROBE, large), GPU, FP16_PROBE, TUTORIAL)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.stem)
def test_every_probe_has_rows_of_every_kind_and_k_of_its_instruction(probe: Probe) -> None:
    chosen = instruction_words.operands(probe)
    assert chosen.a.shape[1] == probe.k * probe.steps
    assert chosen.a.nbytes == chosen.b.nbytes == len(chosen.a) * probe.steps * chosen.a.itemsize * probe.k
    if not probe.integer:
        assert set(chosen.kind.tolist()) == set(range(len(probe_inputs.KINDS)))
    source = cuda_library.SOURCES[0].read_text()
    for _, _, ptx in instruction_words.instructions(probe):
        shape = next(part for part in ptx.split(".") if part.startswith("m") and "n8k" in part)
        assert shape in source and ptx.rsplit(".", 1)[1] in source


def test_stems_are_unique_and_the_files_stay_below_the_limit(capsys: pytest.CaptureFixture) -> None:
    assert len({probe.stem for probe in PROBES}) == len(PROBES)
    assert all(re.fullmatch(r"own_(mmasync|wgmma)_k\d+_\w+", probe.stem) for probe in PROBES)
    assert record.main(["--dry-run"]) == 0
    total = int(capsys.readouterr().out.splitlines()[-1].split("about ")[1].split(" bytes")[0])
    assert total < record.FILE_LIMIT - 300_000  # room for the conversions


@pytest.mark.parametrize("format", [FP16, BF16, TF32, E4M3, E5M2], ids=lambda f: f.name)
def test_numbers_have_the_exponent_and_sign_asked_for(format) -> None:
    exponent = np.arange(lowest_exponent(format), 9)
    codes = numbers(format, exponent, exponent % 2, np.zeros(len(exponent), np.int64))
    assert (decode(format, codes) == 2.0**exponent * np.where(exponent % 2, -1, 1)).all()


@pytest.mark.parametrize(("a", "b"), [("fp16", "fp16"), ("bf16", "bf16"), ("e5m2", "e4m3")])
def test_terms_have_the_product_asked_for_and_absent_ones_are_zero(a: str, b: str) -> None:
    asked = ProbeRequest(np.random.default_rng(3), FORMATS[a], FORMATS[b], 16, 200)
    exponents = asked.rng.integers(asked.lowest, asked.highest + 1, asked.shape)
    exponents[:, ::5] = ABSENT
    signs = asked.signs(asked.shape)
    left, right = terms(asked, exponents, signs, np.ones(asked.shape, bool))
    product = decode(FORMATS[a], left) * decode(FORMATS[b], right)  # [R, K]
    there = exponents != ABSENT
    assert (product[there] == (2.0**exponents * np.where(signs, -1, 1))[there]).all()
    assert (product[~there] == 0).all()


def test_the_rows_contain_what_no_published_word_shows() -> None:
    chosen = instruction_words.operands(probe_of("wgmma", "bf16", 16))
    with np.errstate(invalid="ignore"):
        values = decode(BF16, chosen.a) * decode(BF16, chosen.b)  # [R, K]
        total = values.sum(axis=1)
    assert np.isnan(values).any() and np.isinf(values).any()
    assert ((np.abs(values) > 2.0**128) & np.isfinite(values)).any()  # products beyond fp32
    assert ((total != 0) & (np.abs(total) < 2.0**-126)).any()  # subnormal results
    assert ((chosen.c32 == 0x80000000) & (values == 0).all(axis=1)).any()  # nothing but zeros and c = -0


@pytest.mark.parametrize("name", ["bf16", "tf32", "e5m2"])
def test_a_row_at_the_floor_holds_terms_near_the_smallest_subnormals_alone(name: str) -> None:
    """So that nothing larger hides whether the tiny term is seen; and where both can be, its operands are normal numbers."""
    format = FORMATS[name]
    asked = ProbeRequest(np.random.default_rng(7), format, format, 16, 400)
    drawn = probe_inputs.floor(asked)
    left, right = (np.abs(decode(format, drawn[side])) for side in "ab")  # [R, K]
    products = left * right
    there = products > 0
    of_fp32 = (products <= 2.0**-135).all(axis=1)
    assert there.any(axis=1).mean() > 0.9
    assert of_fp32.mean() > 0.6 if asked.lowest < -149 else of_fp32.mean() < 0.1
    assert (products[~of_fp32] <= 2.0**-10).all()
    assert (products[~of_fp32][there[~of_fp32]] >= 2.0**-48).all()
    smallest = 2.0**format.smallest_exponent
    possible = there & (products >= smallest**2)
    assert possible.any() and (left[possible] >= smallest).all() and (right[possible] >= smallest).all()


def test_the_shares_of_the_kinds_are_of_a_thousand_rows() -> None:
    assert sum(probe_inputs.SHARES.values()) == 1000
    counts = np.bincount(probe_inputs.rows(BF16, BF16, 16, 1000, data_seed=1).kind)
    assert counts.tolist() == [*probe_inputs.SHARES.values()]


def test_tf32_operands_have_bits_that_the_instruction_drops() -> None:
    chosen = instruction_words.operands(probe_of("mma.sync", "tf32", 8))
    noisy = (chosen.a & 0x1FFF).any(axis=1)
    assert 0.3 < noisy.mean() < 0.7


def test_conversions_are_fed_ties_and_their_neighbours() -> None:
    source = set(conversion_inputs.fp32_sources(TUTORIAL).tolist())
    tie = int(np.float32(1.0625).view(np.uint32))  # half way from 1 to the next e4m3
    assert {tie - 1, tie, tie + 1, tie | 0x80000000, 0x7FC00000, 0x7F800000, 0x80000000} <= source


@pytest.mark.parametrize("format", [FP16, BF16, TF32], ids=lambda f: f.name)
def test_conversions_are_fed_each_end_of_the_subnormal_and_normal_numbers(format) -> None:
    source = set(conversion_inputs.fp32_sources(TUTORIAL).tolist())
    step = 2.0 ** (format.smallest_exponent - format.mantissa_bits)
    normal, top = 2.0**format.smallest_exponent, format.largest_code - (1 << format.low_padding)
    below, largest = decode(format, np.array([top, format.largest_code], format.storage))
    for value in (step / 2, step, normal - step, normal - step / 2, normal, below, (below + largest) / 2):
        word = int(np.float32(value).view(np.uint32))
        assert {word - 1, word, word + 1, word | 0x80000000} <= source, value


def test_a_chip_is_fed_the_conversions_that_it_has() -> None:
    assert set(conversion_inputs.sources(TUTORIAL, 75)) == {"cvt_rn_f16_f32", "cvt_rz_f16_f32"}
    assert set(conversion_inputs.sources(TUTORIAL, 89)) == set(conversion_inputs.sources(TUTORIAL)) - {"cvt_rn_tf32_f32"}


def test_repeating_counts_the_words_that_come_out_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = instruction_words.record_probe(ModelMachine(FP16_PROBE), GPU, FP16_PROBE, TUTORIAL)
    np.savez_compressed(tmp_path / "h200_own_test.npz", **arrays)
    monkeypatch.setattr(record, "_machine", lambda library: (ModelMachine(FP16_PROBE), GPU))
    assert record.repeat(tmp_path, None, "cuda:0") == 0
    arrays["d32"] = arrays["d32"].copy()
    arrays["d32"][5] ^= 1
    np.savez_compressed(tmp_path / "h200_own_test.npz", **arrays)
    assert record.repeat(tmp_path, None, "cuda:0") == 1


def test_without_a_gpu_or_files_the_reason_is_told_and_the_status_is_2(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert record.main(["--repeat", str(tmp_path)]) == 2
    assert record.main(["--out", str(tmp_path), "--kernel", "matmul", "--target", "emulated:sm_90"]) == 2
    assert "hardware words come from hardware" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc (CUDA toolkit)")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_the_sources_compile_and_know_every_probe(tmp_path: Path, arch: str) -> None:
    text = cuda_library.build(tmp_path, arch).read_bytes()
    for probe in PROBES:
        for _, _, ptx in instruction_words.instructions(probe):
            assert ptx.encode() in text
    for name in conversion_inputs.sources(TUTORIAL):
        assert name.encode() in text


def test_a_kernel_s_words_are_kept_with_their_case_and_repeat() -> None:
    from bitverdict.harness.lab.hardware_words import kernel_words
    from bitverdict.harness.model.targets import target

    emulated = target("emulated:sm_90")
    stem, case = kernel_words.chosen_cases("matmul", emulated, 1)[0]
    arrays = kernel_words.record_case(case, emulated)
    assert stem == "own_kernel_matmul_0"
    assert json.loads(str(arrays["meta"]))["case"] == case.to_json()
    words, differing = kernel_words.repeat_case(arrays, emulated)
    assert words == arrays["output_c"].size and differing == 0
    arrays["output_c"][0, 0] ^= 1
    assert kernel_words.repeat_case(arrays, emulated) == (words, 1)
    arrays["operand_a"][0, 0] ^= 1
    with pytest.raises(CannotRecord, match="drawn otherwise"):
        kernel_words.repeat_case(arrays, emulated)
