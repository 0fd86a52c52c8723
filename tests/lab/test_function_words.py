"""Contract under test: words and digests of functions are kept only when they belong together, and are read back as they were.

No GPU: the machine computes with NumPy. Its faults are a digest of other words, a digest of other arguments, and a packed form that
differs from the single one.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bitverdict.harness.lab.hardware_words import function_words
from bitverdict.harness.lab.hardware_words.cuda_library import CannotRecord, Device, nvcc
from bitverdict.harness.lab.hardware_words.function_words import (
    CONTROL,
    OF_16_BITS,
    RANGE,
    SOURCES,
    Run,
    digest,
    operands,
    pack,
    unpack,
)

GPU = Device("NVIDIA H200", "sm_90", "13000", "13000")


class NumpyMachine:
    """Answers as FunctionMachine does; every function but the control mixes its operands.

    `fault` may change words before they are digested, `packed_fault` is put into every result of a packed form.
    """

    def __init__(self, fault=lambda name, words: words, packed_fault: int = 0) -> None:
        self.fault, self.packed_fault = fault, packed_fault

    def describe(self) -> Device:
        return GPU

    def results(self, name: str, a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        if name == CONTROL:
            with np.errstate(invalid="ignore"):
                root = np.sqrt(a.view(np.float32))  # (n,)
            return np.where(np.isnan(root), np.uint32(0x7FFFFFFF), root.view(np.uint32))
        if name.removesuffix("x2") in OF_16_BITS:
            doubled = (a & 0xFFFF) * 2 & 0xFFFF | (a >> 16) * 2 << 16  # (n,)
            return doubled ^ np.uint32(self.packed_fault) if name.endswith("x2") else doubled & 0xFFFF
        return (a * np.uint32(3) + (0 if b is None else b)) ^ a >> 7

    def digests(self, name: str, first: int, count: int) -> np.ndarray:
        found = [digest(self.fault(name, self.results(name, *operands(name, first + i)))) for i in range(count)]
        return np.array(found, np.uint32)


@pytest.fixture
def few_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen ranges of each function and one run, so that a recording takes a second."""
    monkeypatch.setattr(function_words, "RANGES", 16)
    monkeypatch.setattr(function_words, "PAIR_RANGES", 4)
    monkeypatch.setattr(function_words, "kept_runs", lambda: [Run("rcp_approx_ftz_f32", 0x3F800000, 5 << 20)])


def changed_in(function: str) -> Callable[[str, np.ndarray], np.ndarray]:
    """A fault in the last word of each range of one function."""

    def fault(name: str, words: np.ndarray) -> np.ndarray:
        return np.append(words[:-1], words[-1] ^ np.uint32(1)) if name == function else words

    return fault


@pytest.mark.usefixtures("few_ranges")
def test_a_recording_holds_what_a_fit_and_a_check_need(tmp_path: Path) -> None:
    machine = NumpyMachine()
    function_words.record(machine, tmp_path)
    with np.load(tmp_path / "h200_own_functions_digests.npz") as held:
        about = json.loads(str(held["meta"]))
        assert held["ex2_approx_ftz_f32"][3] == digest(machine.results("ex2_approx_ftz_f32", operands("ex2_approx_ftz_f32", 3)[0]))
        assert {"rcp_approx_ftz_f64", "tanh_approx_f32", "div_full_f32"} <= set(held.files)
    assert {"gpu", "arch", "source", "compiler", "driver", "cuda", "date"} <= about.keys()
    with np.load(tmp_path / "h200_own_functions_words_0.npz") as held:
        keys = [key for key in held.files if key != "meta"]
        words = np.concatenate([unpack(held[key]) for key in keys])  # (5 << 20,)
    assert keys == ["rcp_approx_ftz_f32-3f800000", "rcp_approx_ftz_f32-3fa00000", "rcp_approx_ftz_f32-3fc00000"]
    assert (words == machine.results("rcp_approx_ftz_f32", np.arange(5 << 20, dtype=np.uint32) + np.uint32(0x3F800000))).all()


@pytest.mark.usefixtures("few_ranges")
def test_a_packed_form_that_differs_is_counted() -> None:
    for fault, differing in ((0, 0), (1 << 16, 1 << 16)):
        _, counted = function_words.small_words(NumpyMachine(packed_fault=fault))
        assert counted["tanh_approx_f16x2"] == differing


@pytest.mark.usefixtures("few_ranges")
@pytest.mark.parametrize("kept", [0, 0xFFFFFFFF], ids=["too small", "too large"])
def test_a_digest_of_other_words_is_refused(kept: int) -> None:
    class Constant(NumpyMachine):
        def digests(self, name: str, first: int, count: int) -> np.ndarray:
            return np.full(count, kept, np.uint32) if name == "ex2_approx_f32" else super().digests(name, first, count)

    function_words.check(NumpyMachine())
    for wrong in (Constant(), NumpyMachine(changed_in("ex2_approx_f32"))):
        with pytest.raises(CannotRecord, match=r"ex2_approx_f32: range \d+ has digest"):
            function_words.check(wrong)


@pytest.mark.usefixtures("few_ranges")
def test_digests_of_other_arguments_are_refused() -> None:
    class OneFurther(NumpyMachine):
        def results(self, name: str, a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
            return super().results(name, a + np.uint32(1), b)

    with pytest.raises(CannotRecord, match="digests are of other arguments"):
        function_words.check(OneFurther())


@pytest.mark.usefixtures("few_ranges")
def test_a_gpu_that_answers_otherwise_is_counted(tmp_path: Path) -> None:
    function_words.record(NumpyMachine(), tmp_path)
    kept = tmp_path / "h200_own_functions_digests.npz"
    assert function_words.repeat(NumpyMachine(), kept) == 0
    assert function_words.repeat(NumpyMachine(changed_in("sin_approx_f32")), kept) == 16


def test_words_come_back_as_they_were_packed() -> None:
    rng = np.random.default_rng(1)
    smooth = np.arange(100_000, dtype=np.uint32) // 3 + np.uint32(0xFFFFFF00)  # wraps
    drawn = rng.integers(0, 1 << 32, 5000, dtype=np.uint32)
    for words in (smooth, drawn, np.zeros(1, np.uint32), np.full(3, 0xFFFFFFFF, np.uint32)):
        assert (unpack(pack(words)) == words).all()
    assert pack(smooth).nbytes < smooth.nbytes / 100


def test_products_around_the_smallest_normal_number_straddle_it() -> None:
    """Some must round to 2^-126 only where the rounding is that of subnormals."""
    a, b = (words.view(np.float32).astype(np.float64) for words in function_words.tiny_products())  # (65536,) each
    below = 1.0 - a * b * 2.0**126  # (65536,) exact
    assert ((below > 2.0**-25) & (below < 2.0**-24)).sum() > 1000
    assert ((below > 0) & (below < 2.0**-25)).sum() > 1000
    assert (below < 0).sum() > 1000


def test_edges_of_a_division_are_of_both_signs_and_every_kind() -> None:
    edges = function_words.edges()
    assert len(edges) == 256
    size = edges & np.uint32(0x7FFFFFFF)  # (256,)
    subnormal, scaled = (size > 0) & (size < 0x800000), (size > 0x7E800000) & (size < 0x7F800000)
    for kind in (size == 0, subnormal, scaled, size == 0x7F800000, size > 0x7F800000):
        assert kind[:128].any() and kind[128:].any()


def test_a_range_is_digested_as_zlib_does_it(tmp_path: Path) -> None:
    """The CRC of functions.cu, on the host."""
    try:
        compiler = nvcc()
    except CannotRecord:
        pytest.skip("no nvcc")
    library = tmp_path / "functions.so"
    options = ["-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-gencode=arch=compute_90a,code=sm_90a"]
    subprocess.run([compiler, *options, "-o", str(library), str(SOURCES[0])], check=True, capture_output=True)
    loaded = ctypes.CDLL(str(library))
    loaded.digest_words.restype = ctypes.c_uint32
    words = np.random.default_rng(2).integers(0, 1 << 32, 1000, dtype=np.uint32)
    first = loaded.digest_words(words.ctypes.data_as(ctypes.c_void_p), len(words))
    assert first == zlib.crc32(words.tobytes()) == digest(words)
    words[500] ^= 1
    assert loaded.digest_words(words.ctypes.data_as(ctypes.c_void_p), len(words)) != first


def test_pairs_of_a_range_are_those_of_the_kernels() -> None:
    """By hand: the mixing of MurmurHash3 maps 1 to 0x514E28B7 and 0 to 0."""
    a, b = operands("div_full_f32", 0)
    assert a[0] == 0 and a[1] == 0x514E28B7 and b[0] == function_words.mix_words(np.array([0x9E3779B9], np.uint32))[0]
    assert len(np.unique(a)) == RANGE
