"""Contract under test: a lane that is not loaded and given nothing else holds zero, as compiled, and an advice says where it
decides what is stored; a kernel whose result does not depend on such lanes draws none."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from tests.support import masked_kernels as kernels
from tests.support.drawn_sums import load
from tests.support.ptx_threads import DeviceMemory, Threads

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SIZE, BLOCK = 20, 32
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "i8": torch.int8, "i64": torch.int64}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_lane_that_is_not_loaded_holds_zero_as_in_the_ptx(dtype, arch):
    a = torch.arange(1, BLOCK + 1).to(TYPES[dtype])
    out, single = torch.full_like(a, 77), torch.full_like(a[:1], 77)
    with emulated(arch) as device:
        kernels.zeros[(1,)](a, out, single, SIZE, BLOCK=BLOCK, num_warps=1)
    assert (out[:SIZE] == a[:SIZE]).all() and not out[SIZE:].any() and not single.any()
    assert len(device.advice) == 2

    signature = dict.fromkeys(("a", "out", "single"), f"*{dtype}") | {"n": "i32", "BLOCK": "constexpr"}
    target = GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    compiled = triton.compile(ASTSource(kernels.zeros, signature, {(4,): BLOCK}), target=target, options={"num_warps": 1})
    arrays = [t.view(torch.uint8).numpy() for t in (a, torch.full_like(a, 77), torch.full_like(single, 77))]
    Threads(compiled.asm["ptx"], [x.__array_interface__["data"][0] for x in arrays] + [SIZE], DeviceMemory(*arrays), 32).run()
    for got, expected in zip(arrays[1:], (out, single), strict=True):
        np.testing.assert_array_equal(got, expected.view(torch.uint8).numpy())


def launch(name: str, wide: bool, arch: str = "sm_90") -> list[str]:
    """The advice of a launch of `masked_kernels.<name>`."""
    generator = torch.Generator().manual_seed(1)
    a = torch.randint(-9, 9, (BLOCK * 32,), dtype=torch.int32, generator=generator)
    out: Any = torch.zeros(BLOCK * 32, dtype=torch.int32)
    size, more = SIZE, {}
    if name in ("turned", "described"):
        size = 10
    with emulated(arch) as device:
        if name.startswith("product"):
            size, more = 48, {"STAGES": int(name[-1])}
            a, out, name = torch.randn(64, 64).half(), torch.zeros(64, 64), "product"
        if name == "described":
            out = TensorDescriptor.from_tensor(torch.zeros(16 + size + wide, 32, dtype=torch.int32), [16, 32])
        getattr(kernels, name)[(1,)](a, out, size, BLOCK=BLOCK, WIDE=wide, **more)
    return device.advice


TWINS = [
    "elementwise", "carried", "largest", "counted", "scanned", "scanned_back", "indexed", "added", "branched", "turned",
    "described", "single", "chosen",
]  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_an_advice_names_the_store_that_depends_on_an_undefined_lane(name):
    assert launch(name, wide=False) == []
    (said,) = (advice for advice in launch(name, wide=True) if "atomic sum" not in advice)
    verb = "the way taken here" if name == "branched" else "what is stored here"
    assert f"{verb} depends on lanes that " in said and "leaves undefined (a mask without `other`)" in said
    assert said.count("masked_kernels.py:") == 2


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", ["product, stages 1", "product, stages 3"])
def test_lanes_are_followed_through_products_and_shared_memory(name, arch):
    assert not [advice for advice in launch(name, wide=False, arch=arch) if "leaves undefined" in advice]
    assert [advice for advice in launch(name, wide=True, arch=arch) if "leaves undefined" in advice]


def test_an_asynchronous_copy_of_gluon_is_taken_at_its_word():
    a, out = torch.arange(1, 129, dtype=torch.int32), torch.full((128,), 77, dtype=torch.int32)
    with emulated("sm_80") as device:
        kernels.copied[(1,)](a, out, 100, BLOCK=128, num_warps=1)
    assert torch.equal(out, torch.where(torch.arange(128) < 100, a, 0)) and device.advice == []


def test_a_program_without_such_a_load_carries_nothing():
    with emulated("sm_90") as device:
        kernels.elementwise[(1,)](torch.zeros(64), torch.zeros(64), 64, BLOCK=64, WIDE=True)
        assert "_undefined" in device.launches[-1].python
        kernels.elementwise[(1,)](torch.zeros(64), torch.zeros(64), 64, BLOCK=64, WIDE=False)
        assert "_undefined" not in device.launches[-1].python  # stored under the mask of the load
        from tests.support import tile_kernels

        tile_kernels.copy[(1,)](torch.zeros(64), torch.zeros(64), 64, 64, BLOCK=64)
        assert "_undefined" not in device.launches[-1].python


def attend(n: int, schedule: str = "eager", rewrite: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """What `scaled_products` of `n` rows gives on sm_100, and what it should."""
    generator = torch.Generator().manual_seed(n)
    q, k = (torch.randint(-2, 3, (128, 64), generator=generator).half() for _ in range(2))
    out = torch.full((128, 64), 77.0)
    with emulated("sm_100", schedule, options=LaunchOptions(rewrite=rewrite)):
        described = TensorDescriptor.from_tensor(q, [128, 64]), TensorDescriptor.from_tensor(k, [64, 64])
        kernels.scaled_products[(1,)](*described, out, n, M=128, N=64)
    expected, largest = torch.zeros(128, 64), torch.zeros(128)
    for start in range(0, n, 64):
        rows = k[start : start + 64].float()
        scores = q.float() @ rows.T
        largest = largest.maximum(scores.amax(1))
        expected = torch.where(largest[:, None] > 20, expected, -expected) + scores @ rows
    return out, expected + largest[:, None]


@pytest.mark.parametrize("schedule", ["eager", "latest"])
@pytest.mark.parametrize("n", [0, 64, 128])
def test_a_loop_without_an_iteration_discards_what_its_first_load_takes(n, schedule):
    """The compiler hoists the product ahead of the loop under a predicate, and the load of what it wrote without one."""
    out, expected = attend(n, schedule)
    assert torch.equal(out, expected)


def test_what_a_load_of_unwritten_tensor_memory_takes_is_not_stored():
    """A twin whose select takes it in either way."""
    select, taken = re.compile(r'("arith.select"\(%\w+), (%\w+), %\w+\)'), r"\1, \2, \2)"
    with pytest.raises(EmulatedFault, match=r"^uninitialised read.* never written; it decides what .*py:\d+ does") as caught:
        attend(0, rewrite=lambda text: select.sub(taken, text))
    assert caught.value.details["made by"].startswith("the compiler of Triton")
    out, expected = attend(128, rewrite=lambda text: select.sub(taken, text))
    assert torch.equal(out, expected)


HEAD = """import triton
import triton.language as tl


@triton.jit
def kernel(a, out, n, fill, BLOCK: tl.constexpr, FILLED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    if FILLED:
        x = tl.load(a + at, mask=inside, other=fill)
    else:
        x = tl.load(a + at, mask=inside)
    y = tl.load(a + at + BLOCK)
"""


def drawn(seed: int) -> str:
    """A kernel whose only loads with lanes left out are of x, which it gives `fill` instead where FILLED."""
    chance = random.Random(seed)
    values, truths, lines = ["x", "y", "at"], ["inside", "(x > 0)", "(y < x)"], []
    for i in range(chance.randint(3, 7)):
        a, b, p, q = chance.choice(values), chance.choice(values), chance.choice(truths), chance.choice(truths)
        made = chance.choice([
            f"{a} + {b}", f"{a} * 2 - {b}", f"tl.where({p}, {a}, {b})", f"tl.where(inside, {a}, 0)", f"tl.cumsum({a}, 0)",
            f"tl.cumsum({a}, 0, reverse=True)", f"{b} + tl.sum({a})", f"tl.where(inside, {a}, 5) + tl.max({b})",
            f"tl.where({p} & {q}, {a}, 3)", f"tl.where({p} | {q}, {a}, 3)", f"tl.minimum({a}, {b})",
        ])  # fmt: skip
        lines.append(f"v{i} = {made}")
        values.append(f"v{i}")
        if chance.random() < 0.3:
            lines.append(f"t{i} = ({a} > {b}) {chance.choice('&|')} {p}")
            truths.append(f"t{i}")
    mask = chance.choice(["inside", "at < BLOCK", chance.choice(truths)])
    lines.append(f"tl.store(out + at, {chance.choice(values[3:])}, mask={mask})")
    return HEAD + "".join(f"    {line}\n" for line in lines)


@pytest.mark.share(4)
def test_no_advice_means_that_no_word_depends_on_an_undefined_lane(tmp_path):
    """By what another value in those lanes changes."""
    silent = 0
    for seed in range(24):
        kernel = load(drawn(seed), tmp_path, f"masked_{seed}")
        a = torch.randint(-9, 9, (2 * BLOCK,), dtype=torch.int32, generator=torch.Generator().manual_seed(seed))
        results = []
        with emulated(ARCHITECTURES[seed % 3]) as device:
            for filled, fill in ((True, 1000), (True, -77), (False, 0)):
                out = torch.full((BLOCK,), 55, dtype=torch.int32)
                kernel[(1,)](a, out, SIZE, fill, BLOCK=BLOCK, FILLED=filled)
                results.append(out)
        differ = not (torch.equal(results[0], results[1]) and torch.equal(results[0], results[2]))
        assert device.advice or not differ, drawn(seed)
        silent += not device.advice
    assert 3 <= silent <= 21
