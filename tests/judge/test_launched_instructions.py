"""Contract under test: which matrix instructions were launched is read off the PTX, off the tile program, and off nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from triton import knobs

from bitverdict.harness.contracts.oracle.gemm_bound import instructions
from bitverdict.harness.emulator import emulated
from bitverdict.harness.judge.launched_instructions import of_products, of_ptx, remember, watch_launches
from bitverdict.harness.judge.offline_driver import capture_compilations
from tests.support import right_launchers


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { %r1, %r2 }", ("mma.sync", "", "bf16", "bf16", "fp32")),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {", ("mma.sync", "", "tf32", "tf32", "fp32")),
        ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {", ("mma.sync", "", "int8", "int8", "int32")),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {", ("mma.sync", "", "e4m3", "e5m2", "fp32")),
        ("@%p3 wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {", ("wgmma", "", "fp16", "fp16", "fp32")),
        ("wgmma.mma_async.sync.aligned.m64n64k32.f16.e5m2.e4m3 {", ("wgmma", "", "e5m2", "e4m3", "fp16")),
        ("@%p1 tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r2, %p2;", ("tcgen05", "f16", "", "", "")),
        ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [ %r1 ]", ("tcgen05", "mxf4nvf4", "", "", "")),
    ],
)
def test_an_instruction_is_read_by_its_name_and_types(line: str, found: tuple) -> None:
    assert of_ptx(f"  // mma.sync.aligned.m8n8k4 in a comment\n\t{line}\n\twgmma.commit_group.sync.aligned;\n") == [found]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("arch", "dtype", "found"),
    [
        ("sm_80", torch.float32, ("mma.sync", "tf32")),
        ("sm_90", torch.float16, ("mma.sync", "fp16")),  # tiles of 32 rows are too small for wgmma
        ("sm_90", torch.float8_e4m3fn, ("mma.sync", "fp16")),  # which the compiler widens
        ("sm_100", torch.bfloat16, ("mma.sync", "bf16")),
    ],
)
def test_the_emulated_launch_and_the_compiled_one_say_the_same(arch: str, dtype: torch.dtype, found: tuple, fresh: None) -> None:
    a, b, c = torch.zeros((33, 40), dtype=dtype), torch.zeros((40, 17), dtype=dtype), torch.zeros((33, 17))
    with capture_compilations(arch) as kept:
        right_launchers.added_last(a, b, c, torch.empty_like(c), None, False, False, 4)
    family, operand = found
    assert of_ptx(kept[0].assembly) == [(family, "", operand, operand, "fp32")]
    with emulated(arch) as device:
        right_launchers.added_last(a, b, c, torch.empty_like(c), None, False, False, 4)
    assert of_products(device.launches) == [(family, "", operand, operand, "fp32")]


def test_a_launch_on_a_gpu_is_told_by_the_ptx_of_the_function_it_names(tmp_path: Path) -> None:
    """Triton's two hooks, as its launcher calls them: the one tells where the files are, the other which function runs."""
    file = tmp_path / "kernel.ptx"
    file.write_text("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {\n")
    remember()
    remember()
    knobs.runtime.kernel_load_end_hook(object(), 77001, "kernel", {"kernel.json": "x.json", "kernel.ptx": str(file)}, "digest")
    knobs.runtime.kernel_load_end_hook(object(), 77002, "kernel", {"kernel.ptx": str(tmp_path / "gone.ptx")}, "digest")
    with watch_launches() as launches:
        for function in (77001, 77002, 77003):
            knobs.runtime.launch_enter_hook(SimpleNamespace(data={"name": "kernel", "function": function}))
    assert launches == [[("mma.sync", "", "fp16", "fp16", "fp32")], None, None]
    knobs.runtime.launch_enter_hook(SimpleNamespace(data={"function": 77001}))
    assert len(launches) == 3
    rules = instructions("sm_90", "fp16", frozenset(launches[0] or ()))
    assert {rule.family for rule in rules} == {"mma.sync"}
