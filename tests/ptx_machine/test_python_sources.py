"""Contract under test: kernels of Numba-CUDA and TileLang run to their words on the emulated GPU, and what is asked wrongly is
refused with the rule; the files of docs/ptx.md pass, and fail once broken."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

import bitverdict as bv
from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.ptx_machine.numba_source import compile_function

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ptx.md").read_text()
NO_NUMBA = "numba-cuda is not installed" * (
    importlib.util.find_spec("numba_cuda") is None
) or "NumPy has no row_stack, which numba-cuda asks for" * ("row_stack" not in dir(np))
needs_numba = pytest.mark.skipif(bool(NO_NUMBA), reason=NO_NUMBA)
needs_tilelang = pytest.mark.skipif(
    importlib.util.find_spec("tilelang") is None or shutil.which("nvcc") is None, reason="tilelang or nvcc is not installed"
)


def file_of_the_page(name: str) -> str:
    found = re.search(rf"File `{name}`[^\n]*\n\n```python\n(.*?)```", PAGE, re.S)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        pytest.param("test_numba.py", "if i < x.size", "if i <= x.size", "stray read", marks=needs_numba),
        pytest.param("test_numba.py", "3.0 * x)", "3.01 * x)", "outside the bound", marks=needs_numba),
        pytest.param("test_tilelang.py", "B[step * depth", "B[0 * depth", "outside the bound", marks=needs_tilelang),
    ],
)
def test_a_file_of_the_page_passes_and_its_mutant_fails(name: str, before: str, after: str, said: str, tmp_path: Path) -> None:
    text = file_of_the_page(name)
    assert before in text
    for written, passes in ((text, True), (text.replace(before, after), False)):
        (tmp_path / name).write_text(written)
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--bv-target", "emulated:sm_90", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode == 0) == passes and (passes or re.search(said, done.stdout)), done.stdout[-3000:]


@needs_numba
def test_numba_kernels_take_strides_tuples_and_numbers_of_any_type() -> None:
    from numba import cuda

    @cuda.jit(device=True)
    def scaled(x, by):  # type: ignore[no-untyped-def]
        return x * by

    def sums(out, arrays, by, offset):  # type: ignore[no-untyped-def]
        i, j = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            out[i, j] = scaled(arrays[0][i, j], by) + arrays[1][j, i] + offset

    a, b = torch.arange(35.0).view(5, 7).t(), torch.arange(70.0).view(5, 14)[:, ::2]
    for out in (torch.zeros(7, 5), np.zeros((7, 5), np.float32)):
        with emulated("sm_80"):
            bv.numba_kernel(sums)[(2, 2), (4, 4)](out, (a, b), np.float32(3), 2)
        assert torch.equal(torch.as_tensor(out), a * 3 + b.t() + 2)


@needs_numba
def test_numba_kernels_that_share_memory_race_without_a_barrier() -> None:
    from numba import cuda, float32

    def flipped(y, x, waits):  # type: ignore[no-untyped-def]
        place, tile = cuda.threadIdx.x, cuda.shared.array(0, float32)
        tile[place] = x[place]
        if waits:
            cuda.syncthreads()
        y[place] = tile[cuda.blockDim.x - 1 - place]

    x, y = torch.randn(128), torch.zeros(128)
    with emulated("sm_80"):
        run = bv.numba_kernel(flipped)[1, 128, 0, 512]
        run(y, x, True)
        assert torch.equal(y, x.flip(0))
        with pytest.raises(EmulatedFault, match="race"):
            run(y, x, False)


@needs_numba
def test_what_numba_does_not_compile_is_told_in_its_words() -> None:
    def kernel(x):  # type: ignore[no-untyped-def]
        x.append(1)

    with emulated("sm_80"):
        with pytest.raises(ValueError, match=r"Numba does not compile kernel for array\(float32, 1d, C\)(.|\n)*append"):
            bv.numba_kernel(kernel)[1, 1](torch.zeros(3))
        with pytest.raises(ValueError, match=r"a tensor of torch\.bfloat16"):
            bv.numba_kernel(kernel)[1, 1](torch.zeros(3, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("said", "error", "sentence"),
    [
        (
            "module 'numpy' has no attribute 'row_stack'",
            EmulatedFault,
            r"not modelled: Numba-CUDA with NumPy [\d.]+: module 'numpy'",
        ),
        ("'array' object has no attribute 'x'", AttributeError, "'array' object has no attribute 'x'"),
    ],
)
def test_numba_that_is_too_old_for_numpy_is_not_modelled(
    said: str, error: type[Exception], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AttributeError(said)

    parts = "", ".core", ".core.errors", ".cuda", ".cuda.core", ".cuda.core.sigutils", ".cuda.dispatcher"
    names = [f"numba{part}" for part in parts]
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name in names[1:]:
        monkeypatch.setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], sys.modules[name], raising=False)
    monkeypatch.setattr(sys.modules["numba.core.errors"], "NumbaError", RuntimeError, raising=False)
    monkeypatch.setattr(sys.modules["numba.cuda.core.sigutils"], "normalize_signature", lambda _: ((), None), raising=False)
    monkeypatch.setattr(sys.modules["numba.cuda.dispatcher"], "get_current_device", None, raising=False)
    monkeypatch.setattr(sys.modules["numba.cuda"], "compile", refuse, raising=False)
    with pytest.raises(error, match=sentence):
        compile_function(refuse, (), "sm_80", False)


@needs_tilelang
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_tilelang_kernels_check_tensors_and_take_sizes_of_a_launch(arch: str, tmp_path: Path) -> None:
    source = tmp_path / "tilelang_sum.py"
    source.write_text(TILELANG_SUM)
    module = types.ModuleType("tilelang_sum")
    module.__file__ = str(source)
    exec(compile(TILELANG_SUM, str(source), "exec"), module.__dict__)
    a, b = torch.randn(48, 64), torch.randn(48, 64)
    c = torch.zeros(48, 64)
    kernel = bv.tilelang_kernel(module.total)
    with emulated(arch):
        kernel(a, b, c)
        assert torch.equal(c, a + b)
        with pytest.raises(ValueError, match=r"B is float32 \(48, 64\): a tensor is torch.float32 \(48, 32\)"):
            kernel(a, b[:, :32].contiguous(), c)
        with pytest.raises(ValueError, match="3 buffers, 2 tensors"):
            kernel(a, b)


TILELANG_SUM = """
import tilelang, tilelang.language as T

@tilelang.jit
def total(A, B):
    M = T.dynamic("M")
    A: T.Tensor((M, 64), "float32")
    B: T.Tensor((M, 64), "float32")
    C = T.empty((M, 64), "float32")
    with T.Kernel(T.ceildiv(M, 16), threads=128) as row:
        for i, j in T.Parallel(16, 64):
            C[row * 16 + i, j] = A[row * 16 + i, j] + B[row * 16 + i, j]
    return C
"""


def test_without_the_package_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numba.cuda", "tilelang"):
        monkeypatch.setitem(sys.modules, name, None)
    with emulated("sm_80"):
        with pytest.raises(EmulatedFault, match=r"pip install bitverdict\[numba\]"):
            bv.numba_kernel(print)[1, 1](torch.zeros(3))
        with pytest.raises(EmulatedFault, match="pip install tilelang"):
            bv.tilelang_kernel(types.SimpleNamespace())()
