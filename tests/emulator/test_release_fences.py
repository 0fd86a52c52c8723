"""Contract under test: on every release of Triton an emulated launch misses a proxy fence where the PTX of that compiler lacks it,
and nowhere else."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.releases import installed_release


@triton.jit
def products(q, g, k, v, out, n, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr):
    """out (M, D) = q (M, n) @ k (n, D), both by asynchronous copies."""
    rows, columns, inner = tl.arange(0, M)[:, None], tl.arange(0, D)[None, :], tl.arange(0, N)
    total = tl.zeros((M, D), tl.float32)
    for first in tl.range(0, n, N, num_stages=STAGES):
        left = tl.load(q + rows * n + first + inner[None, :], mask=(first + inner < n)[None, :], other=0.0)
        right = tl.load(k + (first + inner)[:, None] * D + columns, mask=(first + inner < n)[:, None], other=0.0)
        total = tl.dot(left, right, total)
    tl.store(out + rows * D + columns, total)


@triton.jit
def gradients(q, g, k, v, out, n, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr):
    """out (M, D) = ((q @ k.T) * (g @ v.T)) @ k, q and g (M, D), k and v (n, D): as of attention backwards."""
    rows, columns, keys = tl.arange(0, M)[:, None] * D, tl.arange(0, D)[None, :], tl.arange(0, N)[:, None]
    left, slopes = tl.load(q + rows + columns), tl.load(g + rows + columns)
    total = tl.zeros((M, D), tl.float32)
    for first in tl.range(0, n, N, num_stages=STAGES):
        places = (first + keys) * D + columns
        right = tl.load(k + places, mask=first + keys < n, other=0.0)
        values = tl.load(v + places, mask=first + keys < n, other=0.0)
        powers = tl.dot(left, tl.trans(right)) * tl.dot(slopes, tl.trans(values))
        total = tl.dot(powers.to(tl.float16), right, total)
    tl.store(out + rows + columns, total)


def has_unfenced_product(ptx: str) -> bool:
    """Whether a way through `ptx` leads from a wait for `cp.async` to a product with no proxy fence between them."""
    lines = ptx.splitlines()
    labels = {line.split(":")[0]: number for number, line in enumerate(lines) if line.startswith("$L")}
    todo, seen = [(0, False)], set[tuple[int, bool]]()
    while todo:
        number, is_open = todo.pop()
        if (number, is_open) in seen or number >= len(lines):
            continue
        seen.add((number, is_open))
        line = lines[number]
        if is_open and re.search(r"wgmma\.mma_async|tcgen05\.mma", line):
            return True
        is_open = "cp.async.wait_group" in line or (is_open and "fence.proxy.async" not in line)
        branch = re.search(r"\bbra(?:\.uni)?\s+(\$L\w+)", line)
        if branch:
            todo.append((labels[branch[1]], is_open))
        if not branch or line.lstrip().startswith("@"):
            todo.append((number + 1, is_open))
    return False


def test_a_fence_is_missed_on_the_way_that_lacks_it() -> None:
    turn = "$L1:\ncp.async.wait_group 2;\n{}@%p bra $L3;\n$L2:\n{}wgmma.mma_async;\nbra.uni $L1;\n$L3:\nbra.uni $L2;"
    fence = "fence.proxy.async;\n"
    assert [has_unfenced_product(turn.format(*each)) for each in (("", ""), (fence, ""), ("", fence))] == [True, False, False]
    assert has_unfenced_product(fence + turn.format("", ""))


@pytest.mark.parametrize("stages", [3, 1])
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("kernel", [products, gradients])
def test_a_fence_is_missed_where_the_compilers_own_ptx_lacks_it(kernel: Any, arch: str, stages: int) -> None:
    """What an emulated launch says of the compiler is what Triton's own pipeline writes: with all fences the words are right."""
    signature = (
        dict.fromkeys("qgkv", "*fp16") | {"out": "*fp32", "n": "i32"} | dict.fromkeys(("D", "M", "N", "STAGES"), "constexpr")
    )
    sizes, aligned = {"D": 64, "M": 64, "N": 32, "STAGES": stages}, {(place,): [["tt.divisibility", 16]] for place in range(6)}
    source = ASTSource(fn=kernel, signature=signature, constexprs=sizes, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", int(arch[3:]), 32), options={"num_warps": 4})
    generator = torch.Generator().manual_seed(0)
    q, g, k, v = (torch.randint(-1, 2, (128, 64), generator=generator).float() for _ in "qgkv")
    q, g = (q.reshape(64, 128), g) if kernel is products else (q[:64], g[:64])
    operands, out, is_unfenced = (
        [each.half() for each in (q, g, k, v)],
        torch.zeros(64, 64),
        has_unfenced_product(compiled.asm["ptx"]),
    )
    with emulated(arch, "latest"), pytest.raises(EmulatedFault, match="no proxy fence") if is_unfenced else nullcontext() as caught:
        kernel[(1,)](*operands, out, 128, **sizes)
    if is_unfenced:
        assert caught.value.details["made by"].startswith("the compiler of Triton") and stages > 1
        assert caught.value.details["workaround"] in {each.workaround for each in installed_release().hazards}
    else:
        assert torch.equal(out, q @ k if kernel is products else (q @ k.T * (g @ v.T)).half().float() @ k)
