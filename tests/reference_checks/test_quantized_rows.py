"""Contract under test: the plan of quantised rows gives OCP's codes for MX, and for NVFP4 those of its fp32 steps.

Held to a block by hand, to another implementation of each step, and to the rule in real numbers where the tensor's scale is a power
of two, on values next to ties."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from bitverdict.harness.contracts.inputs.near_ties import near_ties
from bitverdict.reference import quantized_rows as plan
from bitverdict.reference.block_scaling import BLOCK_FORMATS, NVFP4, quantize
from bitverdict.reference.formats import E2M1, E4M3, Format, Rounding, decode
from bitverdict.reference.packing import unpack
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module
from tests.reference_checks.nearest_code import nearest_magnitude

KINDS = ("mxfp4", "mxfp8_e4m3", "mxfp8_e5m2", "nvfp4")


def drawn(name: str, columns: int, tensor_scale: float = 1.0) -> np.ndarray:
    """fp32 words (16, columns), most next to a tie."""
    return near_ties(name, "fp32", (16, columns), tensor_scale, np.random.default_rng(columns))


def nearest(fmt: Format, values: np.ndarray) -> np.ndarray:
    """Codes of fp32 `values`, found among the numbers of `fmt`; what is larger becomes the largest."""
    place = np.minimum(nearest_magnitude(fmt, values, Rounding.NEAREST_EVEN), fmt.largest_code)
    return place.astype(np.uint8) | (np.signbit(values) * np.uint8(fmt.sign_bit))


def stepped(values: np.ndarray, scale: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """One row in NVFP4, block by block: each step is an operation of fp32, each code the nearest number's."""
    elements, scales = [], []
    with np.errstate(all="ignore"):
        for start in range(0, len(values), 16):
            block = values[start : start + 16]
            usable = np.isfinite(block).all()
            top = np.abs(block).max() / (np.float32(6) * scale) if usable else np.float32(0)
            code = nearest(E4M3, np.array([top]))[0]
            divisor = np.float32(decode(E4M3, code[None])[0]) * scale
            quotient = block / divisor if divisor > 0 else np.copysign(np.float32(0), block)
            scales.append(code if usable else 0x7F)
            elements.append(nearest(E2M1, quotient if usable else np.zeros_like(block)))
    return np.concatenate(elements), np.array(scales, np.uint8)


def faults(module: ModuleType) -> list[str]:
    """What `module` gives that it must not."""
    found = []
    by_hand = np.array([[3.0, -0.5, 0.25, 0.375, -1.25]], np.float32).view(np.uint32)  # 2^s = 2^-1 by the largest, 3
    elements, scales = module.quantized_rows("mxfp4", by_hand)
    if elements.tolist() != [[0xA7, 0x21, 0x0C]] or scales.tolist() != [[126]]:  # 6, -1; 0.5, 1 (a tie); -2 (a tie), 0
        found.append("by hand")
    for name in KINDS:
        words = drawn(name, 203)
        made, scales = module.quantized_rows(name, words)
        elements = unpack(made, length=203) if BLOCK_FORMATS[name].element is E2M1 else made
        for power in (0,) if name != "nvfp4" else (-7, 0, 60):
            if name == "nvfp4":
                made, scales = module.quantized_rows(name, words := drawn(name, 203, 2.0**power), 2.0**power)
                elements = unpack(made, length=203)
            due = quantize(BLOCK_FORMATS[name], words.view(np.float32), tensor_scale=2.0**power if name == "nvfp4" else None)
            if not (np.array_equal(elements, due.elements) and np.array_equal(scales, due.scales)):
                found.append(f"{name} of real numbers, 2^{power}")
    for scale in (np.float32(0.3), np.float32(1 / 2688)):
        words = drawn("nvfp4", 203, float(scale))
        made, scales = module.quantized_rows("nvfp4", words, float(scale))
        for row, values in enumerate(words.view(np.float32)):
            elements, due_scales = stepped(values, scale)
            if not (np.array_equal(unpack(made[row], length=203), elements) and np.array_equal(scales[row], due_scales)):
                found.append(f"nvfp4 in steps, {scale}, row {row}")
    return found


def test_codes_are_those_by_hand_of_real_numbers_and_of_fp32_steps() -> None:
    assert faults(plan) == []


def test_rounding_twice_shows_where_the_tensor_scale_is_no_power_of_two() -> None:
    words = drawn("nvfp4", 512, scale := float(np.float32(0.3)))
    made, _ = plan.quantized_rows("nvfp4", words, scale)
    due = quantize(NVFP4, words.view(np.float32), tensor_scale=scale)
    assert (unpack(made) != due.elements).any()


@pytest.mark.parametrize("mutant", corpus.QUANTIZED_ROWS, ids=lambda mutant: mutant.name)
def test_another_plan_is_refused(mutant: Mutant) -> None:
    with mutant_module(mutant) as changed:
        assert faults(changed)
