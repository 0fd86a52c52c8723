"""Contract under test: the emulated GPU holds the compiler's own work to the same rules: what the compiler repairs is an advice and
no failure, what it lays out fills the shared memory it asked for, and where its own program races (a transposed operand inside
a pipelined loop, Triton 3.9 on sm_100) it fails, and the forms beside it pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.frontend.assembly import ptx
from bitverdict.harness.emulator.frontend.lowerings import shared_memory
from bitverdict.harness.emulator.memory import onchip as emulated_memory
from bitverdict.harness.emulator.releases import installed_release
from bitverdict.kernels.block_scaled_matmul import Config, block_scaled_matmul
from bitverdict.kernels.scaled_operands import scale_shape
from tests.support.emulated_launches import KERNELS, SCHEDULES, load, source_of

FENCED = ("blocked_matmul", "hopper_matmul", "small_mma", "tma_scatter", "fused_gather_scatter_matmul")
FENCE = re.compile(r"^ *fence_async_shared\(\).*\n", re.MULTILINE)
REPAIRED = "only by a proxy fence that the compiler inserts"


@pytest.mark.parametrize("kernel", FENCED)
def test_a_missing_fence_that_the_compiler_repairs_is_an_advice(kernel: str, tmp_path: Path) -> None:
    """It is no failure."""
    faulty, fences = FENCE.subn("", source_of(kernel).read_text())
    assert fences == 1
    path = tmp_path / f"{kernel}_unfenced.py"
    path.write_text(faulty)
    run, arch = KERNELS[kernel]
    with emulated(arch, "latest") as device:
        try:
            got, expected = run(load(path))
        except EmulatedFault as fault:  # of a release that makes none here, as its PTX says
            assert "no proxy fence" in fault.message and "fence.proxy" not in ptx(device.launches[-1].program, 100, fuses_sums=True)
            return
    assert ((got.double() - expected).abs() <= 2**-10 * expected.abs().max()).all()
    assert not device.findings and any(REPAIRED in said and path.name in said for said in device.advice)


@pytest.mark.parametrize("kernel", FENCED)
def test_the_same_fence_is_a_race_where_the_compiler_does_not_repair_it(kernel: str, tmp_path: Path) -> None:
    path = tmp_path / f"{kernel}_unfenced.py"
    path.write_text(FENCE.sub("", source_of(kernel).read_text()))
    run, arch = KERNELS[kernel]
    with emulated(
        arch,
        "latest",
        options=LaunchOptions(rewrite=lambda text: re.sub(r'^ *"ttng\.fence_async_shared"\(.*\n', "", text, flags=re.MULTILINE)),
    ):
        with pytest.raises(EmulatedFault, match="no proxy fence") as caught:
            run(load(path))
    assert caught.value.outcome == "race" and caught.value.location.startswith(str(path))


@triton.jit
def in_rows(a_tiles, b_tiles, c, k, WIDEN: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr):
    """c (BLOCK, BLOCK) = a (BLOCK, k) @ b (k, BLOCK), both by TMA, rows first. The tensor core takes 32-bit elements of b from
    columns only, so the compiler turns each tile of fp32 in shared memory; with WIDEN it converts each tile there instead."""
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for block in tl.range(tl.cdiv(k, BLOCK_K), num_stages=STAGES):
        left = a_tiles.load([0, block * BLOCK_K])  # (BLOCK, BLOCK_K)
        right = b_tiles.load([block * BLOCK_K, 0])  # (BLOCK_K, BLOCK)
        if WIDEN:
            right = right.to(tl.float16)
        total = tl.dot(left, right, total)
    at = tl.arange(0, BLOCK)
    tl.store(c + at[:, None] * BLOCK + at[None, :], total)


def multiply(dtypes: tuple[torch.dtype, torch.dtype], stages: int, blocks: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """(got, expected) of small integers, which no step can round."""
    draw, block_k = torch.Generator().manual_seed(0), 128 // dtypes[0].itemsize
    a, b = (
        torch.randint(-3, 4, shape, generator=draw).to(dtype)
        for shape, dtype in zip(((64, blocks * block_k), (blocks * block_k, 64)), dtypes, strict=True)
    )
    c = torch.empty(64, 64)
    tiles = TensorDescriptor.from_tensor(a, [64, block_k]), TensorDescriptor.from_tensor(b, [block_k, 64])
    in_rows[(1,)](*tiles, c, blocks * block_k, WIDEN=dtypes[0] != dtypes[1], BLOCK=64, BLOCK_K=block_k, STAGES=stages)
    return c, a.float() @ b.float()


FP32, FP16 = (torch.float32, torch.float32), (torch.float16, torch.float16)


@pytest.mark.parametrize("schedule", ["eager", "latest", "drawn:0"])
def test_triton_3_9_turns_a_tile_into_a_buffer_that_is_still_read(schedule: str) -> None:
    """The product before reads it. The one buffer for turned tiles is stored to before the loop waits for the product of the step
    before (docs/emulator.md)."""
    with emulated("sm_100", schedule) as device, pytest.raises(EmulatedFault) as caught:
        multiply(FP32, stages=3)
    fault = caught.value
    assert fault.outcome == "race" and "overwrites shared memory" in fault.message and "tcgen05.mma" in fault.message
    assert fault.details["operation"].startswith("%right") and "ttg.local_alloc" in fault.details["operation"]
    assert re.search(r'"ttg\.local_alloc"\(%right', device.launches[-1].program)


@pytest.mark.parametrize(
    ("arch", "dtypes", "stages", "blocks"),
    [
        ("sm_100", FP32, 3, 2),  # the first product has a buffer of its own: nothing is used twice
        ("sm_100", FP32, 1, 4),  # no pipeline: each product is waited for
        ("sm_100", FP16, 3, 4),  # 16-bit rows need no turning
        ("sm_100", (torch.float16, torch.float8_e5m2), 3, 4),  # converted tiles: the wait comes before the store
        ("sm_90", FP32, 3, 4),
    ],
)
def test_the_forms_beside_it_pass(arch: str, dtypes: tuple, stages: int, blocks: int) -> None:
    for schedule in ("eager", "latest", "drawn:0"):
        with emulated(arch, schedule) as device:
            got, expected = multiply(dtypes, stages, blocks)
        assert torch.equal(got, expected) and not device.findings


def test_the_wait_that_the_compiler_forgot_would_pass_it() -> None:
    """The loop's wait for a product moved from behind the next product to before the next turned tile."""

    def waits_first(text: str) -> str:
        lines = text.splitlines(keepends=True)
        products = [i for i, line in enumerate(lines) if '"ttng.tc_gen5_mma"' in line]
        wait = next(i for i in range(products[-1], len(lines)) if '"ttng.wait_barrier"' in lines[i])
        turned = max(i for i in range(products[-1]) if re.search(r'"ttg\.local_alloc"\(%right', lines[i]))
        return "".join([*lines[:turned], lines[wait], *lines[turned:wait], *lines[wait + 1 :]])

    with emulated("sm_100", "latest", options=LaunchOptions(rewrite=waits_first)):
        got, expected = multiply(FP32, stages=3)
    assert torch.equal(got, expected)


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ends of all shared memory that a launch lays out, operands and scratch."""
    ends: list[int] = []
    allocate, scratch = OnChipMemory.allocate, OnChipMemory.scratch

    def allocated(self, op, tensor, *rest):
        view = allocate(self, op, tensor, *rest)
        ends.extend([] if tensor else [view.high])
        return view

    def used(self, op, at, size):
        ends.append(at + size)
        scratch(self, op, at, size)

    monkeypatch.setattr(OnChipMemory, "allocate", allocated)
    monkeypatch.setattr(OnChipMemory, "scratch", used)
    return ends


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_a_launch_lays_out_fills_the_shared_memory_asked_for(kernel: str, reached: list[int]) -> None:
    """The compiler asked for it."""
    run, arch = KERNELS[kernel]
    with emulated(arch) as device:
        run(load(source_of(kernel)))
    states = 4 if kernel == "specialised" else 0  # of warp_specialize: bytes that tell a partition's warps what to run
    assert max(reached) + states == device.launches[-1].metadata["shared"]


def mixed(stages: int = 1) -> torch.Tensor:
    """(128, 128) = mxfp8 @ mxfp4 of ones over K = 256: 256 everywhere."""
    a = torch.full((128, 256), 0x38, dtype=torch.uint8).view(torch.float8_e4m3fn)
    b = torch.full((128, 128), 0x22, dtype=torch.uint8)
    scales = [torch.full(scale_shape(128, 256, 32), 127, dtype=torch.uint8) for _ in range(2)]
    return block_scaled_matmul(a, scales[0], b, scales[1], torch.float32, configs=Config(num_stages=stages, scale_load="5D"))


def sizes_of_fp4(program: str) -> list[tuple[int, int]]:
    """(elements, bytes up to the next allocation) of the fp4 operands that lie padded in `program`."""
    layouts = re.findall(r"^(#\w+) = #ttg\.nvmma_shared<\{.*fp4Padded = true", program, re.MULTILINE)
    found = re.findall(r'"ttg\.local_alloc".*allocation\.offset = (\d+).*-> !ttg\.memdesc<([\dx]+)xi\d+, (#\w+)', program)
    starts = sorted(int(offset) for offset, _, _ in found)
    return [
        (torch.Size(map(int, shape.split("x"))).numel(), min(start for start in starts if start > int(offset)) - int(offset))
        for offset, shape, layout in found
        if layout in layouts
    ]


def test_fp4_beside_fp8_takes_two_bytes_a_byte_as_the_compiler_lays_it(reached: list[int]) -> None:
    with emulated("sm_100") as device:
        assert (mixed(stages=3) == 256).all()
    launch = device.launches[-1]
    assert max(reached) == launch.metadata["shared"]
    sizes = sizes_of_fp4(launch.program)
    assert sizes and all(size == emulated_memory.SPREAD * elements for elements, size in sizes)


def barrier_into_operand(text: str) -> str:
    """A compiler's fault: the barrier of the product lies in the last bytes of its padded operand."""
    layout = re.search(r"^(#\w+) = #ttg\.nvmma_shared<\{.*fp4Padded = true", text, re.MULTILINE)
    assert layout is not None
    start = int(re.search(rf'"ttg\.local_alloc".*allocation\.offset = (\d+).*, {layout[1]}, #smem', text)[1])  # type: ignore[index]
    last = max(int(n) for n in re.findall(r"allocation\.offset = (\d+)", text))
    return text.replace(f"allocation.offset = {last} ", f"allocation.offset = {start + 128 * 128 - 64} ")


def test_what_lies_in_the_upper_half_of_a_padded_operand_fails(monkeypatch) -> None:
    """It did not when the operand was laid out at half its size."""

    def failed() -> str:
        with emulated("sm_100", "latest", options=LaunchOptions(rewrite=barrier_into_operand)):
            try:
                assert (mixed() == 256).all()
            except EmulatedFault as fault:
                return fault.outcome
        return ""

    assert failed() == "barrier misuse"
    monkeypatch.setattr(shared_memory, "SPREAD", 1)
    monkeypatch.setattr("bitverdict.harness.emulator.device._translations", {})
    assert failed() == ""


@triton.jit
def in_partitions(a_tiles, b_tiles, out, k, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """out (BLOCK, BLOCK) = a (BLOCK, k) @ b (BLOCK, k) transposed, by partitions that the compiler makes."""
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for block in tl.range(tl.cdiv(k, BLOCK_K), warp_specialize=True, num_stages=2):
        total = tl.dot(a_tiles.load([0, block * BLOCK_K]), b_tiles.load([0, block * BLOCK_K]).T, total)
    out.store([0, 0], total.to(tl.float16))


def multiply_in_partitions() -> tuple[torch.Tensor, torch.Tensor]:
    a, b = (torch.randint(-3, 4, (64, 256), generator=torch.Generator().manual_seed(seed)).half() for seed in range(2))
    out = torch.empty(64, 64).half()
    tiles = [TensorDescriptor.from_tensor(each, [64, 64]) for each in (a, b, out)]
    in_partitions[(1,)](*tiles, 256, BLOCK=64, BLOCK_K=64)
    return out.float(), a.float() @ b.float().T


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_parity_of_minus_one_that_the_compiler_writes_is_one(schedule: str) -> None:
    """It keeps the parity as an i1 and extends its sign. As 0 it would let a tile be overwritten, or wait for ever."""
    with emulated("sm_90", schedule) as device:
        got, expected = multiply_in_partitions()
    assert torch.equal(got, expected) and not device.findings
    assert re.search(r'"arith.extsi".*: \(i1\) -> i32', device.launches[-1].program)
    assert any("neither 0 nor 1" in said and Path(__file__).name in said for said in device.advice)


def test_barriers_are_initialised_twice_where_the_record_says_so() -> None:
    """Of a specialised loop on sm_90, by the compiler: docs/emulator.md."""
    is_recorded = any(hazard.operation == "ttng.init_barrier" for hazard in installed_release().hazards)
    with emulated("sm_90"):
        try:
            got, expected = multiply_in_partitions()
            assert not is_recorded and torch.equal(got, expected)
        except EmulatedFault as fault:
            assert is_recorded and fault.outcome == "barrier misuse" and fault.details["known"]


EXTENDED = re.compile(r'"arith\.extsi"\((%\w+)\)(.*: \(i1\) -> i32)')


def inverted(text: str) -> str:
    """The tile program with each parity that it extends turned into the other one."""
    lines = []
    for line in text.splitlines():
        if found := EXTENDED.search(line):
            lines.append('%yes = "arith.constant"() <{value = true}> : () -> i1 loc(#loc)')
            lines.append(f'%other = "arith.xori"({found[1]}, %yes) : (i1, i1) -> i1 loc(#loc)')
            line = line.replace(f"({found[1]})", "(%other)")
        lines.append(line)
    return "\n".join(lines)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_wrong_parity_that_the_compiler_writes_fails_as_its_fault(schedule: str) -> None:
    with emulated("sm_90", schedule, options=LaunchOptions(rewrite=inverted)), pytest.raises(EmulatedFault) as caught:
        multiply_in_partitions()
    assert caught.value.outcome in ("race", "deadlock", "uninitialised read") and caught.value.details["made by"]


@gluon.jit
def waiting(parity):
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    mbarrier.arrive(arrived, count=1)
    mbarrier.wait(arrived, parity)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_the_machine_code_takes_the_lowest_bit_of_a_parity(arch: str) -> None:
    with emulated(arch):
        code = waiting[(1,)](0).asm["sass"]
    (asked,) = set(re.findall(r"SYNCS\.PHASECHK\S*TRYWAIT \w+, \[\S+\], (\w+)", code))
    shifted = rf"SHF\.L\.U32 {asked}, \S+, 0x1f|IMAD\.U32 {asked}, \S+, -0x80000000, RZ"  # ptxas of either: x << 31
    assert re.search(shifted, code), code


def test_a_parity_of_minus_one_that_an_author_writes_is_misuse() -> None:
    with emulated("sm_90"), pytest.raises(EmulatedFault, match="parity -1") as caught:
        waiting[(1,)](-1)
    assert caught.value.outcome == "barrier misuse"
