"""Contract under test: inside `emulated(arch)` Triton's own driver, compiler, autotuner and descriptors work as for the target;
what is not known is refused by name before anything runs; and nothing of Triton's state is left changed."""

from __future__ import annotations

import importlib.util

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.compiler import max_shared_mem
from triton.runtime import driver
from triton.runtime.errors import OutOfResources

from bitverdict.harness.emulator import EmulatedFault, emulated
from tests.support import gluon_kernels, library_kernels
from tests.support import tile_kernels as kernels
from tests.support.emulated_products import ARCHITECTURES, FAMILIES, multiply, operands


def test_an_unknown_operation_is_refused_by_name_and_line_before_it_runs():
    destination = torch.full((32,), 5.0)
    with emulated("sm_90"), pytest.raises(EmulatedFault) as raised:
        library_kernels.of_no_library[(1,)](torch.zeros(32), destination, BLOCK=32)
    assert raised.value.outcome == "not modelled" and "tt.extern_elementwise: call of __nv_no_such_function" in raised.value.message
    assert "library_kernels.py" in raised.value.location
    assert (destination == 5).all()


def test_a_load_of_tensor_memory_that_reduces_is_refused_by_name():
    with emulated("sm_100"), pytest.raises(EmulatedFault, match=r"ttng\.tmem_load.* with a reduction") as raised:
        gluon_kernels.reduced[(1,)](torch.zeros(128), num_warps=4)
    assert raised.value.outcome == "not modelled" and "gluon_kernels.py" in raised.value.location


def test_more_shared_memory_than_the_target_has_is_out_of_resources():
    a, b = operands("tf32", 128, 256, 256)
    with emulated("sm_80"), pytest.raises(OutOfResources) as raised:
        multiply(None, a, b, tile=(128, 256, 64), warps=8, stages=4)
    assert raised.value.limit == 163 * 1024 and raised.value.required > raised.value.limit


def test_the_limit_of_shared_memory_is_that_of_the_gpu_that_is_entered():
    """Triton keeps it by the number of the device, which the emulated GPUs of one process share."""
    found = []
    for arch in ("sm_80", "sm_90", "sm_80"):
        with emulated(arch):
            found.append(max_shared_mem(driver.active.get_current_device()))
    assert found == [163 * 1024, 227 * 1024, 163 * 1024]


def test_every_target_compiles_for_itself_and_the_same_target_only_once():
    a, b = operands("fp16", 64, 64, 64)
    for arch in (*ARCHITECTURES, "sm_80"):
        with emulated(arch) as device:
            multiply(device, a, b, tile=(128, 128, 64))
        assert device.launches[-1].instructions == {FAMILIES[arch]}


def test_driver_and_hooks_are_restored_even_after_a_fault():
    before = driver._active, triton.knobs.runtime.add_stages_inspection_hook, triton.runtime.autotuner.Autotuner.run
    with pytest.raises(EmulatedFault), emulated("sm_90"):
        library_kernels.of_no_library[(1,)](torch.zeros(32), torch.zeros(32), BLOCK=32)
    assert before == (driver._active, triton.knobs.runtime.add_stages_inspection_hook, triton.runtime.autotuner.Autotuner.run)


def test_the_autotuner_executes_the_first_configuration_that_fits_once():
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


def test_a_finding_names_the_launched_file_and_not_the_compiled_one(tmp_path):
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


@triton.jit(noinline=True)
def summed(p):
    return tl.sum(tl.load(p + tl.arange(0, 256)), axis=0)


@triton.jit
def calling(p, out):
    tl.store(out, summed(p))


def test_a_function_that_is_not_inlined_may_use_shared_memory():
    """Beside what its caller has there: `numerics/test_moves_and_counts.py`."""
    p, out = torch.arange(256, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with emulated("sm_90") as device:
        calling[(1,)](p, out)
    assert out.item() == 255 * 128 and '"tt.call"' in device.launches[0].program


@triton.jit(noinline=True)
def descriptor_of(p, n, BLOCK: tl.constexpr):
    return tl.make_tensor_descriptor(p, shape=[n, n], strides=[n, 1], block_shape=[BLOCK, BLOCK])


@triton.jit
def moving(x, out, n, BLOCK: tl.constexpr):
    source, target = descriptor_of(x, n, BLOCK), descriptor_of(out, n, BLOCK)
    at = tl.program_id(0) * BLOCK
    target.store([at, 0], source.load([at, 0]) + 1)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_each_call_of_a_function_makes_a_descriptor_of_its_own(arch):
    """Though it is written once: the scratch memory of a function is laid out for each of its calls."""
    x, out = torch.randn(32, 32), torch.zeros(32, 32)
    with emulated(arch):
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
        moving[(2,)](x, out, 32, BLOCK=16)
    assert torch.equal(out[:, :16], x[:, :16] + 1) and not out[:, 16:].any()


@triton.jit(noinline=True)
def raised(x, n):
    return x + n


@triton.jit(noinline=True)
def raised_by_branch(x, n):
    if x > 3:
        n = tl.num_programs(0) * n
    return x + n


@triton.jit
def counting(out, n, BRANCHES: tl.constexpr):
    """One word, which all threads read, and one stores."""
    value = tl.load(out)
    if tl.program_id(0) == 0:
        value = raised_by_branch(value, n) if BRANCHES else raised(value, n)
    tl.store(out, value)


@pytest.mark.parametrize("branches", [False, True])
def test_what_threads_do_not_use_of_a_called_function_is_no_race(branches):
    """The copies that other threads read are of no use to them, unless the function branches by them."""
    out = torch.ones(1, dtype=torch.int32)
    with emulated("sm_90"):
        if branches:
            with pytest.raises(EmulatedFault, match=r"race: .*no barrier between"):
                counting[(1,)](out, 4, BRANCHES=True)
        else:
            counting[(1,)](out, 4, BRANCHES=False)
            assert out.item() == 5
