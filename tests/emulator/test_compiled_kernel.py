"""Contract under test: what a launch returns has the machine code of the whole compilation, made when it is asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.runtime.errors import PTXASError

from bitverdict.harness.emulator import LaunchOptions, emulated, machine_code
from bitverdict.harness.emulator.machine_code import cubin_resources
from bitverdict.harness.judge.offline_driver import capture_compilations
from tests.faults.idioms.gluon_partition_idioms import copy_is_refilled_by_the_partition_that_read_it
from tests.support.emulated_launches import described, matrix


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    rows, k = tl.arange(0, BLOCK), tl.arange(0, K_BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in range(0, K, K_BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + (step + k)[None, :])
        b = tl.load(b_ptr + (step + k)[:, None] * BLOCK + rows[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * BLOCK + rows[None, :], total)


def launched(**options: Any) -> Any:
    a, b = torch.ones(64, 96, dtype=torch.float16), torch.ones(96, 64, dtype=torch.float16)
    c = torch.empty(64, 64)
    return product[(1,)](a, b, c, 96, BLOCK=64, K_BLOCK=32, **options)


@pytest.mark.share(3)
@pytest.mark.parametrize("options", [{}, {"num_warps": 8, "num_stages": 4}, {"maxnreg": 128}])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_machine_code_is_that_of_the_whole_compilation(arch: str, options: dict, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with emulated(arch):
        kernel = launched(**options)
        assert not {"llir", "ptx", "cubin"} & set(kernel.asm), "nothing is compiled that nobody asked for"
        assert "ptx" in kernel.asm and kernel.asm.get("ptx", "") == kernel.asm["ptx"]
        text, registers, spilled, shared = kernel.asm["ptx"], kernel.n_regs, kernel.n_spills, kernel.metadata.shared
    with capture_compilations(arch) as kept:
        launched(**options)
    assert text == kept[0].assembly and f".target {arch}" in text
    assert (registers, 4 * spilled) == cubin_resources(kept[0].binary) and shared == kept[0].metadata["shared"]


def test_the_warps_of_partitions_are_counted_as_the_whole_compilation_does(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    tensors = [described(matrix(128, 64), [128, 64]), described(matrix(64, 64), [64, 64]), described(matrix(128, 64), [128, 64])]
    with emulated("sm_90", options=LaunchOptions(dry=True)) as device:
        copy_is_refilled_by_the_partition_that_read_it[(1,)](*tensors, num_warps=4)
    with capture_compilations("sm_90") as kept:
        copy_is_refilled_by_the_partition_that_read_it[(1,)](*tensors, num_warps=4)
    assert device.launches[0].metadata["num_warps"] == kept[0].metadata["num_warps"] > 4


def test_the_stack_of_a_thread_counts_spills_and_arrays(tmp_path: Path, monkeypatch: Any) -> None:
    said = "Function k:\n  REG:40 STACK:16 SHARED:0 LOCAL:8 TEXTURE:0 SURFACE:0 SAMPLER:0"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert knobs.nvidia.cuobjdump.path  # asked for its version now
    monkeypatch.setattr(machine_code.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=said))
    assert cubin_resources(b"a cubin that nobody has asked for") == (40, 24)


def test_a_stage_that_there_is_not_is_a_key_error() -> None:
    with emulated("sm_90"):
        kernel = launched()
    with pytest.raises(KeyError, match="hsaco"):
        kernel.asm["hsaco"]
    assert "hsaco" not in kernel.asm and kernel.asm.get("hsaco") is None


def test_what_ptxas_refuses_is_refused_when_the_code_is_asked_for(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with emulated("sm_90"):
        kernel = launched(ptx_options="--no-such-option")
        with pytest.raises(PTXASError, match="no-such-option"):
            _ = kernel.n_regs
        assert "ttgir" in kernel.asm


def test_asking_for_machine_code_leaves_the_emulated_compiler_as_it_was() -> None:
    with emulated("sm_90") as device:
        hook = knobs.runtime.add_stages_inspection_hook
        assert launched().n_regs > 0 and knobs.runtime.add_stages_inspection_hook is hook
        kernel = launched(num_stages=2)
        assert len(device.launches) == 2
    assert knobs.runtime.add_stages_inspection_hook is None
    gone = {"extern_libs": [["libdevice", "/an/environment/that/is/gone/libdevice.10.bc"]]}  # as a cache may hold it
    kernel.metadata = type(kernel.metadata)(**kernel.metadata._asdict() | gone)
    assert ".target sm_90" in kernel.asm["ptx"]
