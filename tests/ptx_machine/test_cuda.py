"""Contract under test: device functions, `printf`, `assert`, constants and structs of PTX, and CUDA C++ that nvcc compiles: each
runs to its words, and what is not executed is refused by name, with its line."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import bitverdict as bv
from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.ptx_machine.cuda_source import compile_kernel
from tests.ptx_machine.test_ptx_machine import kernel, launch, replaced_once

TWICE = """
.func (.param .b32 result) twice(.param .b32 number, .param .b64 unused)
{
    .reg .b32 %r<4>; .reg .pred %p<2>;
    ld.param.b32 %r0, [number];
    setp.gt.s32 %p0, %r0, 99;
    @%p0 bra BIG;
    shl.b32 %r1, %r0, 1;
    st.param.b32 [result], %r1;
    ret;
BIG:
    st.param.b32 [result], 7;
    ret;
}
"""
CALL = """{
    .param .b32 argument; .param .b64 other; .param .b32 returned;
    st.param.b32 [argument], %r3;
    call.uni (returned),
    twice,
    (argument, other);
    ld.param.b32 %r4, [returned];
    }
"""
STORE = "mul.wide.u32 %rd1, %r3, 4; add.s64 %rd2, %rd10, %rd1; st.global.b32 [%rd2], %r4;"


def test_a_device_function_runs_in_the_place_of_its_call() -> None:
    """Twice in one kernel: the registers and labels of each call are its own."""
    y = torch.zeros(128, dtype=torch.int32)
    launch(
        kernel(CALL + "mov.b32 %r3, %r4;" + CALL + "mov.u32 %r3, %tid.x; add.u32 %r4, %r4, %r1;" + STORE, "u64", shared=TWICE), y
    )
    once = torch.where(torch.arange(128) > 99, 7, 2 * torch.arange(128))
    assert torch.equal(y, torch.where(once > 99, 7, 2 * once).int())


@pytest.mark.parametrize(
    ("replace", "by", "said"),
    [
        ("shl.b32 %r1, %r0, 1;", "call.uni (result), twice, (number, unused);", "twice calls itself"),
        ("func (.param", "extern .func (.param .b32 r) absent(.param .b32 a);\n.func (.param", "absent has no body"),
    ],
    ids=["recursive", "without a body"],
)
def test_a_call_that_cannot_be_followed_is_refused_with_its_line(replace: str, by: str, said: str) -> None:
    call = CALL if "absent" not in by else CALL.replace("twice", "absent").replace(", other)", ")")
    text = kernel(call + STORE, "u64", shared=replaced_once(TWICE, replace, by))
    with pytest.raises(EmulatedFault, match=said) as seen:
        launch(text, torch.zeros(128, dtype=torch.int32))
    assert "line" in str(seen.value) and seen.value.outcome == "not modelled"


def test_what_another_kernel_of_the_module_has_is_not_read() -> None:
    other = ".visible .entry other()\n{\n    prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);\n    ret;\n}\n"
    y = torch.zeros(128, dtype=torch.int32)
    launch(kernel("mov.b32 %r4, 5;" + STORE, "u64", shared=other), y)
    assert y.eq(5).all()


SYSTEM = """.global .align 1 .b8 words[12] = {116, 32, 37, 100, 32, 37, 46, 50, 102, 10, 0};
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
"""
PRINT = """.local .align 8 .b8 buffer[16];
    setp.gt.u32 %p1, %r3, 1;
    @%p1 bra END;
    mov.b64 %rd1, buffer; mov.b64 %rd2, words;
    st.local.b32 [%rd1], %r3; mov.b64 %rd3, 0d3FF8000000000000; st.local.b64 [%rd1 + 8], %rd3;
    { .param .b64 a; .param .b64 b; .param .b32 r;
    st.param.b64 [a], %rd2; st.param.b64 [b], %rd1;
    call.uni (r), vprintf, (a, b); }
END:
"""


def test_printf_prints_thread_by_thread(capsys: pytest.CaptureFixture[str]) -> None:
    launch(kernel(PRINT, shared=SYSTEM))
    assert capsys.readouterr().out == "t 0 1.50\nt 1 1.50\n"


def test_a_failed_assertion_is_told_with_its_text() -> None:
    system = SYSTEM + ".global .align 1 .b8 message[6] = {120, 32, 62, 32, 48, 0};"
    text = kernel(
        """setp.ne.u32 %p1, %r3, {thread};
    @%p1 bra END;
    mov.b64 %rd1, message;
    {{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    st.param.b64 [a], %rd1; st.param.b64 [b], %rd1; st.param.b32 [c], 12; st.param.b64 [d], %rd1; st.param.b64 [e], 1;
    call.uni __assertfail, (a, b, c, d, e); }}
END:""",
        shared=system,
    )
    launch(text.replace("{thread}", "500").replace("{{", "{").replace("}}", "}"))
    with pytest.raises(EmulatedFault, match=r"assertion `x > 0` failed \(x > 0:12\)") as seen:
        launch(text.replace("{thread}", "5").replace("{{", "{").replace("}}", "}"))
    assert seen.value.outcome == "device assert" and seen.value.details["thread"] == 5


CONSTANT = kernel("ld.const.b32 %r4, [table + 4];" + STORE, "u64", shared=".const .align 4 .b32 table[2] = {3, 4};")


def test_constants_are_the_modules_or_the_hosts() -> None:
    y = torch.zeros(128, dtype=torch.int32)
    launch(CONSTANT, y)
    assert y.eq(4).all()
    with emulated("sm_80"):
        bv.ptx_kernel(CONSTANT, constants={"table": np.array([8, 9], np.int32)})[1, 128](y)
        assert y.eq(9).all()
        for name, values, said in (("other", [1], "the module has table"), ("table", [1, 2, 3], "12 bytes, and it has 8")):
            with pytest.raises(ValueError, match=said):
                bv.ptx_kernel(CONSTANT, constants={name: np.array(values, np.int32)})[1, 128](y)


def test_a_struct_is_given_by_its_bytes() -> None:
    text = kernel("ld.param.v2.b32 {%r4, %r5}, [both + 8]; add.s32 %r4, %r4, %r5;" + STORE, "u64")
    text = replaced_once(text, ".param .u64 p0", ".param .u64 p0, .param .align 8 .b8 both[16]")
    y = torch.zeros(128, dtype=torch.int32)
    launch(text, y, struct.pack("qii", 1, 30, 12))
    assert y.eq(42).all()
    with pytest.raises(ValueError, match="a struct of 16 bytes"):
        launch(text, y, 5)


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("ld.param.v2.b32 {%r4, %r5}, [%rd4 + 8];", ""),
        ("ld.v2.b32 {%r4, %r5}, [%rd4 + 8];", ""),
        ("ld.param.v2.b32 {%r4, %r5}, [%rd4 + 12];", "misaligned address: read of 8 bytes at 0xf000010c of parameters"),
        ("ld.param.v2.b32 {%r4, %r5}, [%rd4 + 304];", "illegal address: read of 8 bytes at 0xf0000230 of parameters"),
        ("setp.lt.u32 %p1, %r3, 9; selp.b64 %rd4, %rd10, %rd4, %p1; ld.v2.b32 {%r4, %r5}, [%rd4];", "to other memory"),
    ],
    ids=["param", "generic", "misaligned", "behind the last", "mixed"],
)
def test_a_parameter_is_read_at_an_address_in_a_register(load: str, said: str) -> None:
    text = kernel(f"mov.b64 %rd4, both; cvta.param.u64 %rd4, %rd4; {load} add.s32 %r4, %r4, %r5; {STORE}", "u64")
    text = replaced_once(text, ".param .u64 p0", ".param .u64 p0, .param .align 8 .b8 both[304]")
    y = torch.zeros(128, dtype=torch.int32)
    values = y, struct.pack("qii288x", 1, 30, 12)
    if not said:
        launch(text, *values)
        assert y.eq(42).all()
        return
    with pytest.raises(EmulatedFault, match=said):
        launch(text, *values)


@pytest.mark.parametrize(
    ("first", "block", "reader"), [("", 32, 1), ("and.b32 %r6, %r3, 31; setp.eq.u32 %p2, %r6, 0; @%p2", 64, 32)]
)
def test_a_race_names_another_thread_where_the_writer_reads_too(first: str, block: int, reader: int) -> None:
    """All threads of a warp read, or the first of each warp."""
    text = kernel(
        f"mov.u32 %r5, s; {first} ld.shared.b32 %r4, [%r5];setp.ne.u32 %p1, %r3, 0; @%p1 bra END; st.shared.b32 [%r5], 7;\nEND:",
        shared=".shared .align 4 .b8 s[4];",
    )
    said = f"thread 0 of CTA 0 writes byte 0 of shared memory, which thread {reader} of CTA 0 read"
    with pytest.raises(EmulatedFault, match=said):
        launch(text, block=block)


def test_sums_that_ptxas_may_fuse_are_an_advice() -> None:
    body = "mov.b32 %f1, 0f40000000; mul{rounding}.f32 %f2, %f1, %f1; add.f32 %f3, %f2, %f1; mov.b32 %r4, %f3;" + STORE
    for rounding, expected in (("", 1), (".rn", 0)):
        with emulated("sm_80") as device:
            bv.ptx_kernel(kernel(body.replace("{rounding}", rounding), "u64"))[1, 128](torch.zeros(128, dtype=torch.int32))
        assert sum("1 sums of kernel take a product" in advice for advice in device.advice) == expected


FILE, FORMS, HISTOGRAM = (Path(__file__).with_name(name) for name in ("sums.cu", "forms.cu", "cluster_histogram.cu"))
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="CUDA C++ is compiled by nvcc, which is not here")


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    bv.cuda_kernel(FILE, "scaled")[-(-x.numel() // 64), 64](y, x, 3.0, x.numel())
    return y


@needs_nvcc
def test_cuda_is_judged_by_a_reference() -> None:
    bv.assert_right(scaled, (torch.randn(300),), reference=lambda xp, x: 3.0 * x, target="emulated:sm_90")
    with pytest.raises(AssertionError):
        bv.assert_right(scaled, (torch.randn(300),), reference=lambda xp, x: 3.0001 * x, target="emulated:sm_90")


def misnamed(x: torch.Tensor) -> torch.Tensor:
    bv.cuda_kernel(FILE, "scale")[1, 32](x)
    return x


@needs_nvcc
def test_what_a_launcher_asks_wrongly_of_cuda_is_its_own_failure() -> None:
    with pytest.raises(AssertionError, match=r"refused: .*no kernels called 'scale'"):
        bv.assert_right(misnamed, (torch.randn(30),), reference=lambda xp, x: x, target="emulated:sm_90")


@needs_nvcc
@pytest.mark.parametrize("syncs", ["true", "false"])
def test_a_template_without_its_barrier_is_a_race(syncs: str) -> None:
    x, y = torch.randn(2, 128), torch.zeros(2)
    with emulated("sm_80"):
        run = bv.cuda_kernel(FILE, f"sums<4, {syncs}>")[2, 128]
        if syncs == "true":
            run(y, x)
            assert torch.allclose(y, x.sum(1), atol=1e-4)
            return
        with pytest.raises(EmulatedFault, match="nothing orders the two") as seen:
            run(y, x)
    line = next(number for number, text in enumerate(FILE.read_text().split("\n"), 1) if "part[t + s]" in text)
    assert seen.value.location.endswith(f"sums.cu:{line}")


@needs_nvcc
@pytest.mark.parametrize("meets", ["true", "false"])
def test_a_cluster_counts_in_the_shared_memory_of_its_ctas(meets: str) -> None:
    """By cooperative groups; without the last meeting a CTA may end while others still count in its memory."""
    x, y = torch.randint(0, 128, (2, 128), dtype=torch.int32), torch.zeros(2, 128, dtype=torch.int32)
    with emulated("sm_90"):
        run = bv.cuda_kernel(HISTOGRAM, f"histogram<{meets}>")[8, 32]
        if meets == "true":
            run(y, x)
            assert torch.equal(y, torch.stack([torch.bincount(numbers, minlength=128) for numbers in x]).int())
            return
        with pytest.raises(EmulatedFault, match=r"race: atom\.add.* which may have ended: nothing orders its end behind this"):
            run(y, x)


@needs_nvcc
@pytest.mark.parametrize("name", ["indexed", "pointed"])
def test_structs_that_a_kernel_indexes_are_read_where_they_lie(name: str) -> None:
    """Larger than 256 bytes, so that the second begins behind all of the first."""
    numbers, y = np.random.default_rng(0).random((2, 80)).astype(np.float32), torch.zeros(128)
    with emulated("sm_90"):
        bv.cuda_kernel(FORMS, name)[1, 128](y, *(each.tobytes() + struct.pack("i", 80) for each in numbers))
    thread = np.arange(128)
    assert np.array_equal(y.numpy(), numbers[0][7 * thread % 80] + numbers[1][thread % 3])


@needs_nvcc
@pytest.mark.parametrize("name", ["sums<4, true>", "sums<4u, (bool)1>"])
def test_a_template_is_found_by_what_cu_filt_prints(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "cu++filt"
    tool.write_text('#!/bin/sh\nfor each; do echo "void sums<(unsigned int)4, (bool)1>(float *, const float *, int)"; done\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    text = FILE.read_text().split("__global__ void scaled")[0]
    assert compile_kernel(text, 0, name, "sm_80", ())[1].startswith("_Z4sumsILj4ELb1E")
    with pytest.raises(ValueError, match="no kernels called 'sums<4, false>'"):
        compile_kernel(text, 0, "sums<4, false>", "sm_80", ())


@needs_nvcc
def test_what_cannot_be_compiled_or_found_says_what_is_there(tmp_path: Path) -> None:
    with emulated("sm_80"):
        with pytest.raises(ValueError, match=r"no kernels called 'scale': it has scaled\(float"):
            bv.cuda_kernel(FILE, "scale")[1, 32]()
        (tmp_path / "broken.cu").write_text(FILE.read_text().replace("int n)", "int m)"))
        with pytest.raises(ValueError, match=r'nvcc does not compile .*broken.cu for sm_80:[^"]*"n" is undefined'):
            bv.cuda_kernel(tmp_path / "broken.cu", "scaled")[1, 32]()
    with pytest.raises(ValueError, match="no such file"):
        bv.cuda_kernel(tmp_path / "none.cu", "scaled")


def test_without_nvcc_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    with emulated("sm_80"), pytest.raises(EmulatedFault, match="install the CUDA toolkit"):
        bv.cuda_kernel(FILE, "missing")[1, 32]()
