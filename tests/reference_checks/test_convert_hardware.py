"""Contract under test: on the GPU at hand, a conversion gives the words that `convert` gives for its architecture, NaNs included.

Every code of the narrow sources; for fp32 and int32 the words around each midpoint, random ones, both ends.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.reference.formats import FORMATS, conversion, convert
from tests.reference_checks.test_convert import WORDS
from tests.reference_checks.test_convert_compiled import PAIRS, TYPES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: the words are the hardware's own"),
]

DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
}
CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


@triton.jit
def cast(source, destination, size, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    tl.store(destination + offsets, tl.load(source + offsets, mask=inside).to(TYPE), mask=inside)


def codes_of(name: str) -> np.ndarray:
    """Codes of a source, as `convert` takes them."""
    if name in ("fp32", "int32"):
        return WORDS.view(np.dtype("int32") if name == "int32" else np.uint32)
    storage = FORMATS[name].storage if name in FORMATS else np.dtype(name)
    return np.arange(1 << (8 * np.dtype(storage).itemsize)).astype(storage)


def on_hardware(source: str, destination: str, codes: np.ndarray) -> np.ndarray:
    """What the GPU makes of `codes` (elements,), as unsigned words."""
    given = torch.from_numpy(codes.view(f"i{codes.itemsize}").copy()).cuda().view(DTYPES[source])
    got = torch.zeros(codes.size, dtype=DTYPES[destination], device="cuda")
    cast[(triton.cdiv(codes.size, 1024),)](given, got, codes.size, TYPES[destination][1], 1024)
    return got.view(CARRIERS[got.element_size()]).cpu().numpy().view(f"u{got.element_size()}")


def arch() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


@pytest.mark.parametrize(("source", "destination"), PAIRS, ids=lambda name: name)
def test_the_gpu_converts_as_its_model_says(source: str, destination: str) -> None:
    try:
        conversion(source, destination, arch())
    except ValueError:
        with pytest.raises((triton.CompilationError, RuntimeError)):
            on_hardware(source, destination, codes_of(source)[:64])
        return
    codes = codes_of(source)
    got = on_hardware(source, destination, codes)
    expected = convert(source, destination, codes, arch())
    expected = expected.view(f"u{expected.itemsize}")
    differ = np.flatnonzero(got != expected)
    shown = [f"{int(codes[place]):#x}: {int(got[place]):#x} for {int(expected[place]):#x}" for place in differ[:8]]
    assert not differ.size, f"{differ.size} of {codes.size} words: {shown}"
