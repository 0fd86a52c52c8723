"""Contract under test: each byte of the emulated GPU's memory has the origin of what wrote it last, whether a kernel or
torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import Device, LaunchOptions, emulated
from bitverdict.harness.emulator.cuda_tensors import inside
from bitverdict.harness.emulator.memory.provenance import KERNEL, Kind, Origin, Provenance

FOLLOWED = LaunchOptions(provenance=True, takes_cpu_tensors=False)


@triton.jit
def writing_kernel(x, out, count, stored, summed, n, BLOCK: tl.constexpr):
    """All ways to write global memory: under a mask, by atomics, one that compares among them, by TMA, which also adds."""
    at = tl.arange(0, BLOCK)
    tile = tl.load(x + at, mask=at < n)
    tl.store(out + at, tile + 1, mask=at < n)
    tl.atomic_add(count + at % 4, at)
    tl.atomic_cas(count + 4 + tl.arange(0, 2), tl.arange(0, 2), tl.full((2,), 5, tl.int32))
    box = tl.reshape(tile, (1, BLOCK))
    stored.store([1, 0], box)
    summed.atomic_add([1, 0], box)


@triton.jit
def batched_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + 2 * at, tl.load(x + at))


@pytest.fixture
def device() -> Iterator[Device]:
    with emulated("sm_90", options=FOLLOWED) as entered:
        yield entered


def kinds(device: Device, tensor: torch.Tensor) -> list[str]:
    """The kind of each element, or "torch OPERATOR" and "the host CALL"."""
    found = device.provenance(tensor)
    assert found is not None
    named = {number: f"{each.kind} {each.maker}".strip() for number, each in found.by_number.items()}
    return [named[number] for number in found.numbers.reshape(-1).tolist()]


def by_kernel(device: Device, *shape: int) -> torch.Tensor:
    """What stands for a tensor that a kernel has written: a distinct number an element."""
    made = torch.empty(shape, device="cuda").copy_(torch.arange(torch.Size(shape).numel()).view(shape))
    assert device.origins is not None
    device.origins.put(inside(made), KERNEL)
    return made


def test_whatever_a_kernel_writes_is_a_kernels(device: Device) -> None:
    x, out = device.place(torch.arange(32.0)), torch.empty(32, device="cuda")
    count = torch.zeros(8, dtype=torch.int32, device="cuda")
    stored, summed = torch.empty(2, 16, device="cuda"), torch.zeros(2, 16, device="cuda")
    boxes = [TensorDescriptor.from_tensor(each, [1, 16]) for each in (stored, summed)]
    writing_kernel[(1,)](x, out, count, *boxes, 9, BLOCK=16)
    kernel, nobody = str(Kind.KERNEL), str(Kind.UNWRITTEN)
    assert kinds(device, out) == [kernel] * 9 + [nobody] * 23
    assert kinds(device, count) == [kernel] * 5 + ["a constant"] * 3, "a comparison that fails writes nothing"
    assert kinds(device, stored) == [nobody] * 16 + [kernel] * 16
    assert kinds(device, summed) == ["a constant"] * 16 + [kernel] * 16
    assert set(kinds(device, x)) == {"an operand"}
    strided = torch.empty(64, device="cuda")
    batched_kernel[(8,)](x, strided, BLOCK=4)
    assert device.launches[-1].serial_reason == "" and kinds(device, strided) == [kernel, nobody] * 32
    assert device.origins is not None and not device.origins.inputs, "nothing was computed by torch"
    batched_kernel[(8,)](x * 2 + 0, strided, BLOCK=4)  # the line that is told
    (given,) = device.origins.inputs
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# the line that is told" in text)
    assert (given.kernel, given.argument, given.bytes) == ("batched_kernel", "x", 4 * 32)
    assert given.origin == Origin(Kind.TORCH, "add", f"tests/emulator/memory/test_provenance.py:{line}")


MOVES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "clone": lambda k, t: k.clone(),
    "cast": lambda k, t: k.half(),
    "transposed": lambda k, t: k.t().contiguous(),
    "cat": lambda k, t: torch.cat([k, k]),
    "stack": lambda k, t: torch.stack([k, k], 1),
    "repeat": lambda k, t: k.repeat(2, 3),
    "flip": lambda k, t: k.flip(0),
    "roll": lambda k, t: k.roll(1, 0),
    "copy_": lambda k, t: t.copy_(k),
    "item assignment": lambda k, t: _into(t, k),
    "bytes": lambda k, t: k.view(torch.int32).clone().view(torch.uint8),
    "expanded": lambda k, t: k[:, None].expand(2, 2, 3).contiguous(),
}


def _into(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    target[:, :] = value
    return target


@pytest.mark.parametrize("name", MOVES)
def test_what_torch_only_moves_stays_a_kernels(device: Device, name: str) -> None:
    """And the same move of what torch computed is torch's."""
    for source, expected in ((by_kernel(device, 2, 3), str(Kind.KERNEL)), (by_kernel(device, 2, 3) + 1, "torch add")):
        assert set(kinds(device, MOVES[name](source, torch.empty(2, 3, device="cuda")))) == {expected}


def test_moves_keep_each_element_apart(device: Device) -> None:
    kernel, added = by_kernel(device, 2), by_kernel(device, 2) * 1
    one, other = str(Kind.KERNEL), "torch mul"
    both = torch.cat([kernel, added])
    assert kinds(device, both) == [one, one, other, other]
    assert kinds(device, both.view(2, 2).t().contiguous()) == [one, other, one, other]
    assert kinds(device, both.flip(0)) == [other, other, one, one]
    assert kinds(device, both.roll(1)) == [other, one, one, other]
    assert kinds(device, torch.nn.functional.pad(both, (1, 1))) == ["a constant", one, one, other, other, "a constant"]
    both[1:3] = both[0:1]
    assert kinds(device, both) == [one, one, one, other]
    kernel.view(torch.int16)[0] = 7
    assert kinds(device, kernel) == ["a constant", one], "half a word is the host's"


COMPUTES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mul": lambda k: k * 2,
    "mm": lambda k: k @ k,
    "where": lambda k: torch.where(k > 1, k, k),
    "sort": lambda k: k.sort()[0],
    "index": lambda k: k[torch.tensor([1, 0], device="cuda")],
    "gather": lambda k: k.gather(0, torch.zeros(2, 2, dtype=torch.int64, device="cuda")),
    "index_select": lambda k: k.index_select(0, torch.tensor([1], device="cuda")),
    "masked_fill": lambda k: k.masked_fill(k > 1, 0.0),
}


@pytest.mark.parametrize("name", COMPUTES)
def test_what_torch_computes_or_picks_by_data_is_its_own(device: Device, name: str) -> None:
    assert set(kinds(device, COMPUTES[name](by_kernel(device, 2, 2)))) == {f"torch {name}"}


def test_in_place_only_what_changed_is_torchs(device: Device) -> None:
    out = by_kernel(device, 4)
    out *= 2
    kernel = str(Kind.KERNEL)
    assert kinds(device, out) == [kernel, "torch mul", "torch mul", "torch mul"], "0 is what the kernel wrote"
    out[torch.tensor([0], device="cuda")] = 5.0
    assert kinds(device, out)[0] == "torch index_put"
    torch.add(out, 1, out=(other := by_kernel(device, 4)))
    assert kinds(device, other) == ["torch add"] * 4


def test_a_constant_counts_as_filled_until_the_host_has_read(device: Device) -> None:
    """Zeros in a whole tensor do afterwards too: a launcher clears what its kernel adds to."""
    out = by_kernel(device, 4)

    def zeroed() -> list[torch.Tensor]:
        return [torch.zeros(4, device="cuda"), torch.full((4,), 0.0, device="cuda"), torch.zeros_like(out), out.new_zeros(4),
                torch.empty(4, device="cuda").zero_(), torch.empty(4, device="cuda").fill_(0)]  # fmt: skip

    def others() -> list[torch.Tensor]:
        part = torch.zeros(4, device="cuda")
        part[2] = 2.5
        return [torch.ones(1, device="cuda"), torch.full((1,), 2.0, device="cuda"), torch.empty(1, device="cuda").fill_(1),
                torch.full((1,), -0.0, device="cuda"), part[2:3]]  # fmt: skip

    assert {kind for each in zeroed() + others() for kind in kinds(device, each)} == {"a constant"}
    out[0].item()
    assert {kind for each in zeroed() for kind in kinds(device, each)} == {"a constant"}
    host = [kinds(device, each) for each in others()]
    assert host == [["the host ones"], ["the host full"], ["the host fill"], ["the host full"], ["the host copy"]]
    out[:2].zero_()
    assert kinds(device, out) == ["the host zero"] * 2 + [str(Kind.KERNEL)] * 2


def test_what_the_host_sends_and_sees_is_told(device: Device) -> None:
    assert set(kinds(device, torch.tensor([1.0, 2.0], device="cuda"))) == {"the host tensor"}
    assert set(kinds(device, torch.randn(2).to("cuda"))) == {"the host to"}
    assert set(kinds(device, torch.arange(3, device="cuda"))) == {"torch arange"}
    out = by_kernel(device, 3)
    out[:2] = torch.tensor([2.5, 3.5])
    assert kinds(device, out)[:2] == ["the host copy"] * 2
    assert device.origins is not None and not device.origins.reads
    (
        out.sum().item(),
        out.cpu(),
        out.tolist(),
        bool((out > 1).all()),
        torch.zeros(3).copy_(out),
        torch.equal(out, out),
        out.nonzero(),
    )
    assert [read.call for read in device.origins.reads] == [
        "item",
        "a copy to the host",
        "tolist",
        "item",
        "copy_",
        "equal",
        "nonzero",
    ]
    assert Kind.KERNEL in {origin.kind for origin in list(device.origins.reads)[1].origins}


def test_an_operands_words_are_told_from_copies_elsewhere(device: Device) -> None:
    x = device.place(torch.arange(6.0).view(2, 3))
    at_its_place, elsewhere = "an operand", str(Kind.COPY)
    assert device.origins is not None
    for same in (x.clone(), torch.empty(2, 3, device="cuda").copy_(x), x.clone().clone(), x.view(6).clone()):
        assert set(kinds(device, same)) == {at_its_place} and device.origins.at_their_places(inside(same))
    rows = torch.tensor([1, 0], device="cuda")
    for moved in (x.t().contiguous(), x[1:].clone(), x.flip(0), torch.cat([x, x]), x.half(), x[rows]):
        assert {kind[: len(elsewhere)] for kind in kinds(device, moved)} == {elsewhere}
    assert not device.origins.at_their_places(inside(x.clone().t()))
    one, other = (device.place(torch.arange(15.0)[start:].as_strided((2, 3), (5, 1))) for start in (0, 2))
    one.as_strided((8,), (1,)).copy_(other.as_strided((8,), (1,)))  # gaps and all
    assert set(kinds(device, one)) == {at_its_place} and set(kinds(device, one.clone())) == {at_its_place}


def test_an_unknown_storage_is_from_before_the_call() -> None:
    with emulated("sm_90"):
        early = torch.zeros(4, device="cuda")
    with emulated("sm_90", options=FOLLOWED) as device:
        assert set(kinds(device, early + 0)) == {"torch add"}
        assert set(kinds(device, early)) == {"the host memory from before the call"}
    with emulated("sm_90") as device:
        assert device.provenance(early) is None and device.origins is None


def test_origins_beyond_the_numbers_share_one() -> None:
    known = Provenance()
    numbers = [known.number(Origin(Kind.TORCH, f"operator {n}")) for n in range(300)]
    assert len(set(numbers)) == 176 and max(numbers) == 255 and known.origins[255] == Origin(Kind.TORCH, "other calls")
    assert known.number(Origin(Kind.COPY, "clone")) == 4


def test_what_an_operator_writes_without_saying_so_is_torchs(device: Device) -> None:
    """`native_batch_norm` writes its running statistics, which its schema does not declare; what it only reads stays a kernel's."""
    x, mean, spread = by_kernel(device, 8, 3), by_kernel(device, 3), by_kernel(device, 3)
    torch.ops.aten.native_batch_norm(x, None, None, mean, spread, True, 1.0, 1e-5)
    assert set(kinds(device, mean)) == set(kinds(device, spread)) == {"torch native_batch_norm"}
    assert set(kinds(device, x)) == {"a kernel's store"}


def test_parts_that_the_host_may_have_chosen_are_torchs_once_joined(device: Device) -> None:
    """After it has read floats; whole tensors, and parts after a look at nothing that tells of a result, stay a kernel's."""
    table, other = by_kernel(device, 8), by_kernel(device, 8)
    assert set(kinds(device, torch.cat([table[2:3], table[5:6]]))) == {"a kernel's store"}
    other.sum().item()
    assert set(kinds(device, torch.cat([table, other]))) == {"a kernel's store"}
    assert set(kinds(device, torch.cat([table[2:3], table[5:6]]))) == {"torch cat"}
    whole = torch.empty(2, device="cuda")
    whole[:1].copy_(table[5:6])
    assert kinds(device, whole)[0] == "torch copy"
