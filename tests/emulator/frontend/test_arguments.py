"""Contract under test: a launch may be given tuples, reinterpreted tensors, and pointers that lie in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated, reach
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome
from tests.support.vector_add import VectorAdd, case


@triton.jit
def twice(x):
    return 2 * x


@triton.jit
def thrice(x):
    return 3 * x


@triton.jit
def strided(parts, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(parts[0] + offsets * parts[2], mask=offsets < n, other=0.0)
    if parts[3] is None:
        x += 1
    else:
        x += parts[3]
    tl.store(parts[1] + offsets, parts[4](x), mask=offsets < n)


TUPLES = {
    "a stride of 1, None and a function": ((1, None, twice), 16, lambda x: 2 * (x + 1)),
    "another stride": ((2, None, twice), 8, lambda x: 2 * (x[::2] + 1)),
    "a constexpr": ((tl.constexpr(1), None, twice), 16, lambda x: 2 * (x + 1)),
    "a number for None": ((1, 5, twice), 16, lambda x: 2 * (x + 5)),
    "another function": ((1, None, thrice), 16, lambda x: 3 * (x + 1)),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("held", TUPLES)
def test_a_tuple_may_hold_constants_beside_tensors(held: str, arch: str) -> None:
    parts, count, expected = TUPLES[held]
    with emulated(arch):
        x, y = torch.arange(16.0, device="cuda"), torch.full((16,), -1.0, device="cuda")
        strided[(1,)]((x, y, *parts), count, BLOCK=16)
    assert torch.equal(y.cpu()[:count], expected(torch.arange(16.0))) and (y[count:] == -1).all()


def test_a_stray_read_through_a_tuple_names_the_place_in_it() -> None:
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"stray read: .*read at byte 64 of parts\[0\]"):
        x, y = torch.arange(16.0, device="cuda"), torch.zeros(32, device="cuda")
        strided[(1,)]((x, y, 1, None, twice), 17, BLOCK=32)


@triton.jit
def copied(x_desc, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets[:, None] * BLOCK + offsets[None, :], x_desc.load([0, 0]))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("held", "seen"), [(torch.int16, tl.uint16), (torch.int32, tl.uint32), (torch.uint8, tl.int8)])
def test_a_descriptor_may_lie_on_a_reinterpreted_tensor(arch: str, held: torch.dtype, seen: tl.dtype) -> None:
    with emulated(arch):
        x = torch.arange(256, device="cuda").reshape(16, 16).to(held)
        y = torch.zeros_like(x)
        desc = TensorDescriptor(triton.reinterpret(x, seen), [16, 16], [16, 1], [16, 16])
        copied[(1,)](desc, triton.reinterpret(y, seen), BLOCK=16)
    assert torch.equal(x.cpu(), y.cpu())


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_descriptor_of_wider_elements_than_its_tensors_reads_past_it(arch: str) -> None:
    with emulated(arch):
        x, y = torch.zeros(16, 16, dtype=torch.int16, device="cuda"), torch.zeros(16, 16, dtype=torch.int32, device="cuda")
        desc = TensorDescriptor(triton.reinterpret(x, tl.uint32), [16, 16], [16, 1], [16, 16])
        due = {"sm_80": "stray read: .*read at byte 512 of x_desc", "sm_90": r"illegal address: .* \(nearest: x_desc, 512 bytes"}[
            arch
        ]
        with pytest.raises(EmulatedFault, match=due):  # a row of a bulk copy begins in the tensor and ends past it
            copied[(1,)](desc, triton.reinterpret(y, tl.uint32), BLOCK=16)


@triton.jit
def grouped(table_ptr, n, BLOCK: tl.constexpr):
    """One program a group: table[group] holds the addresses of x and y."""
    group, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    x_ptr = tl.load(table_ptr + 2 * group).to(tl.pointer_type(tl.float32))
    y_ptr = tl.load(table_ptr + 2 * group + 1).to(tl.pointer_type(tl.float32))
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


def groups(count: int, *, beyond: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    xs = [torch.arange(20.0, device="cuda")[:10] for _ in range(count)]
    ys = [torch.zeros(10, device="cuda") for _ in range(count)]
    addresses = [address for x, y in zip(xs, ys, strict=True) for address in (x.data_ptr() + beyond, y.data_ptr())]
    return xs, ys, torch.tensor(addresses, dtype=torch.int64, device="cuda")


@pytest.mark.parametrize("by", ["the device", "the function"])
def test_pointers_in_memory_lead_to_the_tensors_that_were_named(by: str) -> None:
    with emulated("sm_90") as device:
        xs, ys, table = groups(3)
        (device.reach if by == "the device" else reach)(*xs, *ys)
        grouped[(3,)](table, 10, BLOCK=16)
    assert all(torch.equal(y.cpu(), x.cpu() + 1) for x, y in zip(xs, ys, strict=True))
    reach(*xs)  # and on a GPU the call does nothing


def test_a_pointer_in_memory_leads_to_any_tensor_of_the_gpu_that_is_alive() -> None:
    with emulated("sm_90"):
        xs, ys, table = groups(3)
        grouped[(3,)](table, 10, BLOCK=16)
    assert all(torch.equal(y.cpu(), x.cpu() + 1) for x, y in zip(xs, ys, strict=True))


def test_a_pointer_in_memory_to_a_tensor_that_is_gone_is_illegal() -> None:
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"illegal address: write .* inside no tensor"):
        _, ys, table = groups(3)
        del ys[1]
        grouped[(3,)](table, 10, BLOCK=16)


def test_a_pointer_in_memory_needs_a_named_tensor_where_names_count() -> None:
    """As a contract has it: what a launcher allocated is no operand."""
    with emulated("sm_90", options=LaunchOptions(follows_pointers=False)) as device:
        xs, ys, table = groups(3)
        device.reach(*xs[1:], *ys)
        with pytest.raises(EmulatedFault, match=r"illegal address: read .* inside no tensor"):
            grouped[(3,)](table, 10, BLOCK=16)


@triton.jit
def past(x, table_ptr, y, distance, BLOCK: tl.constexpr):
    """What lies behind x, beside a pointer that lay in memory."""
    offsets = tl.arange(0, BLOCK)
    held = tl.load(tl.load(table_ptr).to(tl.pointer_type(tl.float32)) + offsets)
    tl.store(y + offsets, tl.load(x + distance + offsets) + held)


def test_an_argument_leads_to_no_other_tensor_though_pointers_in_memory_do() -> None:
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"illegal address: read .* inside no tensor"):
        (x, z), (y, _), table = groups(2)
        past[(1,)](x, table, y, (z.data_ptr() - x.data_ptr()) // 4, BLOCK=8)


def test_a_pointer_in_memory_past_the_end_of_its_tensor_is_a_stray_read() -> None:
    with emulated("sm_90") as device, pytest.raises(EmulatedFault, match=r"stray read: .* of reachable tensor 0"):
        xs, ys, table = groups(1, beyond=4)
        device.reach(*xs, *ys)
        grouped[(1,)](table, 10, BLOCK=16)


class Address:
    """What is no tensor and has an address: Triton takes it for a pointer."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype, self.address = tensor.dtype, tensor.data_ptr()

    def data_ptr(self) -> int:
        return self.address


@pytest.mark.parametrize("alive", [True, False])
def test_an_object_with_an_address_points_into_a_tensor_that_is_alive(alive: bool) -> None:
    with emulated("sm_90"):
        x, y = torch.arange(16.0, device="cuda"), torch.zeros(16, device="cuda")
        address = Address(x)
        if alive:
            strided[(1,)]((address, y, 1, None, twice), 16, BLOCK=16)
            assert torch.equal(y.cpu(), 2 * (torch.arange(16.0) + 1))
        else:
            del x
            with pytest.raises(EmulatedFault, match=r"illegal address"):
                strided[(1,)]((address, y, 1, None, twice), 16, BLOCK=16)


def test_a_compiled_kernel_that_is_given_too_little_is_a_type_error() -> None:
    with emulated("sm_90"):
        x, y = torch.arange(16.0, device="cuda"), torch.zeros(16, device="cuda")
        kernel = strided[(1,)]((x, y, 1, None, twice), 16, BLOCK=16)
        kernel[(1, 1, 1)]((x, y, 1, None, twice), 16, 16)
        with pytest.raises(TypeError, match=r"strided takes 3 arguments \(parts, n, BLOCK\), 2 were given"):
            kernel[(1, 1, 1)]((x, y, 1, None, twice), 16)


class Grouped(VectorAdd):
    """c = a + 1, by addresses in memory."""

    pointers_in_memory = True

    def launch(self, case: Any, tensors: Any, launcher: Any) -> dict:
        a = tensors["a"]
        c = torch.empty_like(a)
        table = torch.tensor([a.data_ptr(), c.data_ptr() + self.beyond], dtype=torch.int64, device=a.device)
        grouped[(1,)](table, case.problem.n, BLOCK=64)
        return {"c": c - 1 + tensors["b"]}

    beyond = 0


def test_a_contract_may_say_that_pointers_lie_in_memory() -> None:
    contract, machine = Grouped(), target("emulated:sm_90")
    right = judge(case(50), machine, contract)
    assert right.decision is Decision.PASS, (right.outcome, right.message)
    contract.beyond = 4
    assert judge(case(50), machine, contract).outcome is Outcome.STRAY_WRITE
    contract.beyond, contract.pointers_in_memory = 0, False
    assert judge(case(50), machine, contract).outcome is Outcome.ILLEGAL_ADDRESS
