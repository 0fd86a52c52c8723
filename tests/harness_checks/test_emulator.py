"""Contract under test: an unmodified Triton kernel under `emulated(arch)` runs the compiler's tile program on CPU tensors, word
for word as the architecture's arithmetic has it; what traps or races on the GPU is raised by name, with both lines; what is not
known is refused before anything runs; and nothing of Triton's own state is left changed."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import driver
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

from harness.emulator import EmulatedFault, emulated
from reference import tensor_core
from tests.harness_checks import tile_kernels as kernels

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SCHEDULES = ("eager", "latest", "drawn:7")
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "tf32": torch.float32, "int8": torch.int8}
CODES = {"fp16": np.uint16, "bf16": np.uint16, "e4m3": np.uint8, "tf32": np.uint32, "int8": np.int8}
FAMILIES = {"sm_80": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05"}


def operands(fmt: str, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """a (m, k) and b (k, n), wide exponents so that alignment drops bits."""
    generator = torch.Generator().manual_seed(m * 1000003 + n * 1009 + k)
    if fmt == "int8":
        return tuple(torch.randint(-128, 128, shape, dtype=torch.int8, generator=generator) for shape in ((m, k), (k, n)))
    spread = 2 if fmt == "e4m3" else 4
    pair = [
        torch.randn(shape, generator=generator) * torch.exp2(torch.randint(-spread, spread, shape, generator=generator).float())
        for shape in ((m, k), (k, n))
    ]
    return tuple(x.to(TYPES[fmt]) for x in pair)


def multiply(device, a, b, *, tile=(128, 128, 32), warps=4, stages=3, precision="tf32", **options):
    """a (m, k) times b (k, n) by `kernels.product`, in the accumulator's type."""
    m, k = a.shape
    n = b.shape[1]
    whole = a.dtype == torch.int8
    c = torch.empty(m, n, dtype=torch.int32 if whole else torch.float32)
    kernels.product[(triton.cdiv(m, tile[0]), triton.cdiv(n, tile[1]))](
        a,
        b,
        c,
        m,
        n,
        k,
        a.stride(0),
        b.stride(0),
        c.stride(0),
        BLOCK_M=tile[0],
        BLOCK_N=tile[1],
        BLOCK_K=tile[2],
        ACCUMULATOR=tl.int32 if whole else tl.float32,
        PRECISION=precision,
        num_warps=warps,
        num_stages=stages,
        **options,
    )
    return c


def codes(tensor: torch.Tensor, fmt: str) -> np.ndarray:
    return tensor.contiguous().view(torch.uint8).numpy().view(CODES[fmt])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("fmt", ["fp16", "bf16", "e4m3", "tf32", "int8"])
def test_a_matmul_gives_the_words_of_the_architecture(arch, fmt, schedule):
    if (arch, fmt) == ("sm_80", "e4m3"):
        with emulated(arch), pytest.raises(triton.CompilationError):
            multiply(None, *operands(fmt, 128, 128, 64))
        return
    a, b = operands(fmt, 160, 136, 112)
    with emulated(arch, schedule) as device:
        got = multiply(device, a, b).numpy()
    if fmt == "int8":
        expected = (a.numpy().astype(np.int64) @ b.numpy().astype(np.int64)).astype(np.int32)
    else:
        rule = tensor_core.instruction(arch, FAMILIES[arch], fmt, fmt, "fp32")
        expected = tensor_core.product(rule, codes(a, fmt), codes(b, fmt)).view(np.float32)
    assert device.launches[-1].instructions == {FAMILIES[arch]}
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


def test_one_fraction_bit_fewer_would_be_seen():
    a, b = operands("fp16", 64, 64, 64)
    with emulated("sm_80") as device:
        got = multiply(device, a, b).numpy()
    other = tensor_core.instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
    assert (tensor_core.product(other, codes(a, "fp16"), codes(b, "fp16")) != got.view(np.uint32)).any()


@pytest.mark.parametrize("fused", [True, False])
def test_an_ieee_product_is_one_ascending_chain_of_multiply_adds(fused):
    a, b = operands("tf32", 20, 24, 40)
    with emulated("sm_80") as device:
        got = multiply(device, a, b, tile=(32, 32, 16), precision="ieee", enable_fp_fusion=fused).numpy()
    expected = np.zeros((20, 24), np.float32)
    for k in range(40):
        for row in range(20):
            exact = np.longdouble(a[row, k].item()) * b[k].numpy().astype(np.longdouble)  # (24,) exact: 48 bits of 64
            if fused:
                expected[row] = (exact + expected[row]).astype(np.float32)
            else:
                expected[row] += exact.astype(np.float32)
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_masked_lanes_touch_nothing(size):
    source = torch.randn(size)
    destination = torch.full((size + 32,), -1.0)
    with emulated("sm_90"):
        kernels.copy[(2,)](source, destination, size, size + 5, BLOCK=64)
    reach = min(size + 5, 128)
    assert torch.equal(destination[:size], source)
    assert (destination[size:reach] == 0).all() and (destination[reach:] == -1).all()


@pytest.mark.parametrize(("size", "reach", "outcome"), [(64, 65, "stray write"), (65, 64, "stray read")])
def test_an_access_outside_its_tensor_but_inside_the_storage_is_convicted_with_its_line(size, reach, outcome):
    storage = torch.zeros(2, 256)
    source, destination = storage[0, 100:164], torch.zeros(256)[64:128]
    with emulated("sm_80") as device, pytest.raises(EmulatedFault) as raised:
        kernels.copy[(1,)](source, destination, size, reach, BLOCK=128)
    assert raised.value.outcome == outcome
    assert re.search(r"tile_kernels\.py:\d+$", raised.value.location)
    assert raised.value.details["offset"] == 256
    assert device.findings == [raised.value]


def test_the_gap_between_the_rows_of_a_strided_view_belongs_to_nobody():
    storage = torch.zeros(8, 16)
    with emulated("sm_80"), pytest.raises(EmulatedFault, match="stray write"):
        kernels.copy[(1,)](torch.ones(32), storage[:, :8], 32, 32, BLOCK=32)


def test_an_address_outside_every_storage_is_illegal():
    with emulated("sm_80"), pytest.raises(EmulatedFault, match="illegal address"):
        kernels.copy[(1 << 20,)](torch.zeros(64), torch.zeros(64), 1 << 30, 1 << 30, BLOCK=128)


@pytest.mark.parametrize("kernel", [kernels.collide, kernels.lanes_collide])
def test_two_values_at_one_address_are_a_race(kernel):
    with emulated("sm_90"), pytest.raises(EmulatedFault) as raised:
        kernel[(2,)](torch.zeros(64, dtype=torch.int32), BLOCK=64)
    assert raised.value.outcome == "race"


def test_an_unknown_operation_is_refused_by_name_and_line_before_anything_runs():
    destination = torch.full((32,), 5.0)
    with emulated("sm_90"), pytest.raises(EmulatedFault) as raised:
        kernels.sine[(1,)](torch.zeros(32), destination, BLOCK=32)
    assert raised.value.outcome == "not modelled" and "math.sin" in raised.value.message
    assert "tile_kernels.py" in raised.value.location
    assert (destination == 5).all()


def test_more_shared_memory_than_the_target_has_is_out_of_resources():
    a, b = operands("tf32", 128, 256, 256)
    with emulated("sm_80"), pytest.raises(OutOfResources) as raised:
        multiply(None, a, b, tile=(128, 256, 64), warps=8, stages=4)
    assert raised.value.limit == 163 * 1024 and raised.value.required > raised.value.limit


def without(name: str, attribute: str):
    """A change of the tile program that makes every wait `name` wait for nothing."""

    def change(text: str) -> str:
        return re.sub(rf'("{name}"\(.*?\) <\{{{attribute} = )\d+', r"\g<1>99", text)

    return change


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("arch", "wait", "attribute", "writer"),
    [
        ("sm_80", "ttg.async_wait", "num", "cp.async"),
        ("sm_90", "ttg.async_wait", "num", "cp.async"),
    ],
)
def test_a_dropped_cp_async_wait_is_a_race_with_both_lines(arch, wait, attribute, writer, schedule):
    a, b = operands("fp16", 128, 128, 256)
    with emulated(arch, schedule) as device, pytest.raises(EmulatedFault) as raised:
        device.rewrite(without(wait, attribute))
        multiply(device, a, b, tile=(64, 64, 32))
    fault = raised.value
    assert fault.outcome == "race" and writer in fault.message
    lines = {re.search(r"tile_kernels\.py:(\d+)$", place)[1] for place in (fault.location, fault.details["other location"])}
    source = (kernels.product.fn.__code__.co_firstlineno, kernels.product.raw_src)
    assert all("tl.load" in source[1][int(n) - source[0]] or "tl.dot" in source[1][int(n) - source[0]] for n in lines)
    assert "async_copy_global_to_local" in fault.details["other operation"]


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_a_dropped_proxy_fence_is_a_race_with_both_lines(arch):
    a, b = operands("fp16", 128, 128, 70)  # rows that are no multiple of 16 bytes: operands go through registers
    with emulated(arch) as device, pytest.raises(EmulatedFault, match="proxy fence") as raised:
        device.rewrite(lambda text: "\n".join(line for line in text.splitlines() if '"ttng.fence_async_shared"' not in line))
        multiply(device, a, b)
    assert raised.value.outcome == "race"
    assert "tile_kernels.py" in raised.value.location and "tile_kernels.py" in raised.value.details["other location"]


def test_registers_of_a_wgmma_that_nobody_waited_for_are_a_race():
    a, b = operands("fp16", 128, 128, 64)
    with emulated("sm_90") as device, pytest.raises(EmulatedFault, match="race"):
        device.rewrite(without("ttng.warp_group_dot_wait", "pendings"))
        multiply(device, a, b)


def test_an_accumulator_read_before_the_barrier_is_waited_for_is_a_race():
    a, b = operands("fp16", 128, 128, 256)
    with emulated("sm_100") as device, pytest.raises(EmulatedFault, match="race"):
        device.rewrite(lambda text: "\n".join(line for line in text.splitlines() if '"ttng.wait_barrier"' not in line))
        multiply(device, a, b)


def test_a_barrier_that_nobody_arrives_at_is_a_deadlock_with_its_state():
    a, b = operands("fp16", 128, 128, 64)
    with emulated("sm_100") as device, pytest.raises(EmulatedFault) as raised:
        device.rewrite(lambda text: text.replace("<{count = 1 : i32}>", "<{count = 2 : i32}>"))
        multiply(device, a, b)
    assert raised.value.outcome == "deadlock"
    assert any("1 of 2 arrivals" in state for state in raised.value.details["barriers"].values())


def test_uninitialised_shared_memory_is_convicted():
    a, b = operands("fp16", 128, 128, 64)
    with emulated("sm_80") as device, pytest.raises(EmulatedFault, match="uninitialised read"):
        device.rewrite(
            lambda text: re.sub(r'= "ttg.local_alloc"\((%\w+)\) (.*) : \((tensor<[^)]*>)\)', r'= "ttg.local_alloc"() \2 : ()', text)
        )
        multiply(device, a, b, stages=1)


def test_a_kernel_that_never_ends_is_a_timeout(monkeypatch):
    monkeypatch.setattr("harness.emulator.device.STEP_LIMIT", 10_000)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match="timeout"):
        kernels.spin[(1,)](torch.zeros(1, dtype=torch.int32), 1 << 30)


def test_integers_wrap_and_divide_toward_zero():
    a = torch.tensor([7, -7, 2**31 - 1, -(2**31) + 1] * 8, dtype=torch.int32)
    b = torch.tensor([2, 2, 3, -5] * 8, dtype=torch.int32)
    results = [torch.zeros(32, dtype=torch.int32) for _ in range(4)]
    with emulated("sm_80"):
        kernels.integers[(1,)](a, b, *results, BLOCK=32)
    assert torch.equal(results[0], torch.div(a, b, rounding_mode="trunc"))
    assert torch.equal(results[1], torch.fmod(a, b))
    assert torch.equal(results[2], a * b) and torch.equal(results[3], a >> 3)


@pytest.mark.parametrize("fused", [True, False])
def test_a_product_that_feeds_a_sum_is_contracted_as_the_option_says(fused):
    a, b, c = (torch.randn(256, generator=torch.Generator().manual_seed(i)) for i in range(3))
    got = torch.empty(256)
    with emulated("sm_90"):
        kernels.multiply_add[(1,)](a, b, c, got, BLOCK=256, enable_fp_fusion=fused)
    exact = a.numpy().astype(np.longdouble) * b.numpy() + c.numpy()  # 64 bits of fraction: no tie is misjudged here
    separate = a.numpy() * b.numpy() + c.numpy()
    expected = exact.astype(np.float32) if fused else separate
    np.testing.assert_array_equal(got.numpy(), expected)
    assert (exact.astype(np.float32) != separate).any()


def test_every_target_compiles_for_itself_and_the_same_target_only_once():
    a, b = operands("fp16", 64, 64, 64)
    for arch in (*ARCHITECTURES, "sm_80"):
        with emulated(arch) as device:
            multiply(device, a, b, tile=(128, 128, 64))
        assert device.launches[-1].instructions == {FAMILIES[arch]}


def test_driver_and_hooks_are_restored_even_after_a_fault():
    before = driver._active, triton.knobs.runtime.add_stages_inspection_hook, triton.runtime.autotuner.Autotuner.run
    with pytest.raises(EmulatedFault), emulated("sm_90"):
        kernels.sine[(1,)](torch.zeros(32), torch.zeros(32), BLOCK=32)
    assert before == (driver._active, triton.knobs.runtime.add_stages_inspection_hook, triton.runtime.autotuner.Autotuner.run)


def test_the_autotuner_takes_the_first_configuration_that_fits_and_executes_it_once():
    configs = [
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=4, num_warps=8),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=2, num_warps=4),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=2, num_warps=4),
    ]
    tuned = triton.autotune(configs, key=["m", "n", "k"])(kernels.product)
    a, b = operands("tf32", 64, 64, 256)
    winners = {}
    for arch in ("sm_80", "sm_100", "sm_80"):
        c = torch.empty(64, 64)
        with emulated(arch) as device:
            tuned[lambda meta: (triton.cdiv(64, meta["BLOCK_M"]), triton.cdiv(64, meta["BLOCK_N"]))](
                a, b, c, 64, 64, 256, 256, 64, 64, ACCUMULATOR=tl.float32, PRECISION="tf32"
            )
        winners[arch] = tuned.best_config.kwargs["BLOCK_M"]
        assert sum(bool(launch.operations) for launch in device.launches) == 1
    assert winners["sm_80"] == 64


@pytest.mark.parametrize(("arch", "schedule"), [("sm_75", "eager"), ("sm_90", "soon"), ("sm_90", "drawn:x")])
def test_an_unknown_target_or_schedule_is_a_value_error(arch, schedule):
    with pytest.raises(ValueError, match=r"sm_75|schedule"), emulated(arch, schedule):
        pass


def test_a_finding_names_the_file_that_was_launched_not_the_one_that_was_compiled(tmp_path):
    for name in ("first.py", "second.py"):
        path = tmp_path / name
        path.write_text(
            "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef stray(x):\n    tl.store(x + 100000, 1.0)\n"
        )
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with emulated("sm_90"), pytest.raises(EmulatedFault) as raised:
            module.stray[(1,)](torch.zeros(4))
        assert raised.value.location == f"{path}:7"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_host_descriptors_are_tma_where_the_target_has_it_and_pointers_where_not(arch, schedule):
    a, b = operands("fp16", 100, 72, 136)
    c = torch.full((100, 72), float("nan"), dtype=torch.float16)
    with emulated(arch, schedule) as device:
        kernels.descriptor_product[(2, 2)](
            TensorDescriptor.from_tensor(a, [64, 32]),
            TensorDescriptor.from_tensor(b, [32, 64]),
            TensorDescriptor.from_tensor(c, [64, 64]),
            136,
            BLOCK_M=64,
            BLOCK_N=64,
            BLOCK_K=32,
            num_stages=3,
        )
    rule = tensor_core.instruction(arch, FAMILIES[arch], "fp16", "fp16", "fp32")
    expected = tensor_core.product(rule, codes(a, "fp16"), codes(b, "fp16")).view(np.float32).astype(np.float16)
    np.testing.assert_array_equal(c.numpy().view(np.uint16), expected.view(np.uint16))
    assert ("ttng.async_tma_copy_global_to_local" in device.launches[-1].operations) == (arch != "sm_80")


def test_clusters_are_refused_by_name():
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"not modelled.*num_ctas"):
        kernels.copy[(2,)](torch.zeros(64), torch.zeros(64), 64, 64, BLOCK=64, num_ctas=2)


def test_another_release_of_triton_is_refused_with_what_is_known(monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.8.0")
    with pytest.raises(RuntimeError, match=r"triton 3\.8\.0.*3\.9"), emulated("sm_90"):
        pass


def test_a_pass_that_is_missing_is_named(monkeypatch):
    from harness.emulator import compiling

    monkeypatch.setattr(compiling, "_PASSES", (*compiling._PASSES, ("passes.ttgpuir", object(), "add_something", "")))
    with pytest.raises(RuntimeError, match="add_something"), emulated("sm_90"):
        pass


def test_a_drawn_schedule_repeats_itself():
    a, b = operands("fp16", 128, 128, 256)
    said = []
    for _ in range(2):
        with emulated("sm_80", "drawn:11") as device:
            multiply(device, a, b, tile=(64, 64, 32))
        said.append(device.launches[-1].timeline)
    assert said[0] == said[1]
    with emulated("sm_80", "drawn:12") as device:
        multiply(device, a, b, tile=(64, 64, 32))
    assert device.launches[-1].timeline != said[0]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_loop_that_the_compiler_specialises_gives_the_same_words(arch, schedule):
    a, b = operands("fp16", 200, 136, 192)
    c = torch.full((200, 136), float("nan"), dtype=torch.float16)
    with emulated(arch, schedule) as device:
        kernels.persistent_product[(2,)](
            TensorDescriptor.from_tensor(a, [128, 64]),
            TensorDescriptor.from_tensor(b.T.contiguous(), [64, 64]),
            TensorDescriptor.from_tensor(c, [128, 64]),
            200,
            136,
            192,
            BLOCK_M=128,
            BLOCK_N=64,
            BLOCK_K=64,
            PROGRAMS=2,
            num_stages=3,
        )
    rule = tensor_core.instruction(arch, FAMILIES[arch], "fp16", "fp16", "fp32")
    expected = tensor_core.product(rule, codes(a, "fp16"), codes(b, "fp16")).view(np.float32).astype(np.float16)
    np.testing.assert_array_equal(c.numpy().view(np.uint16), expected.view(np.uint16))
    assert ("ttg.warp_specialize" in device.launches[-1].operations) == (arch == "sm_100")
