"""Launchers of c = a + b of which torch or the host computes some words, each beside an honest one that looks like it. All words
are right."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 64
SUM, COPY, COPY_AND_NOTHING, FIRST_HALF, ARGUMENT, SCALED, DOUBLED, ADDED, TWO_ARGUMENTS = range(9)


@triton.jit(do_not_specialize=["n", "form", "value", "zero"], do_not_specialize_on_alignment=["a_ptr", "b_ptr", "c_ptr", "out_ptr"])
def any_kernel(a_ptr, b_ptr, c_ptr, out_ptr, n, form, value, zero, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    a = tl.load(a_ptr + at, mask=at < n)  # (BLOCK,)
    b = tl.load(b_ptr + at, mask=at < n)  # (BLOCK,)
    c = tl.load(c_ptr + at, mask=at < n)  # (BLOCK,)
    out = a + b
    out = tl.where(form == 1, c, out)
    out = tl.where(form == 2, c + zero * a, out)
    out = tl.where((form == 3) & (at >= n // 2), c, out)
    out = tl.where(form == 4, value, out)
    out = tl.where(form == 5, (a + b) * c, out)
    out = tl.where(form == 6, 2.0 * c, out)
    out = tl.where(form == 7, a + c, out)
    out = tl.where(form == 8, value + zero, out)
    tl.store(out_ptr + at, out, mask=at < n)


def _launched(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    form: int,
    value: float = 0.5,
    out: torch.Tensor | None = None,
    zero: float = 0.0,
):
    out = torch.empty(a.shape, device=a.device) if out is None else out
    any_kernel[(triton.cdiv(out.numel(), BLOCK),)](a, b, c, out, out.numel(), form, value, zero, BLOCK=BLOCK)
    return out


def honest(a, b):
    return _launched(a, b, a, SUM)


# torch computes, a kernel writes something else


def beside_a_dummy(a, b):
    _launched(a, b, a, SUM)
    return a + b


def moved_by_torch(a, b):
    return _launched(a, b, a, SUM).view(-1, 1).t().contiguous().clone().view(-1)


# torch computes, a kernel copies


def copied(a, b):
    return _launched(a, b, a + b, COPY)


def copied_twice(a, b):
    once = _launched(a, b, a + b, COPY).clone()
    return _launched(a, b, once, COPY)


def copied_and_nothing_added(a, b):
    return _launched(a, b, torch.add(a, b), COPY_AND_NOTHING)


def copied_by_halves(a, b):
    return _launched(a, b, (a + b).half().float(), COPY)


def scaled_by_torch(a, b):
    """An honest kernel with an input that torch computed: ones, and sums that are 1 now and then."""
    return _launched(a, b, (a == a).float(), SCALED)


def doubled(a, b):
    return _launched(a, b, (a + b) * 0.5, DOUBLED)


def summed_of_parts(a, b):
    """All that the kernel takes torch has computed, and the kernel adds it."""
    return _launched(a * 1.0, b * 1.0, a * 0.0, SUM)


def half_computed_by_torch(a, b):
    """A kernel that does arithmetic on what torch computed."""
    return _launched(a, b, b * 1, ADDED)


# part of the work


def last_half_copied(a, b):
    return _launched(a, b, a + b, FIRST_HALF)


def last_three_by_torch(a, b):
    out = _launched(a, b, a, SUM)
    out[-3:] = torch.stack([a[-3:], b[-3:]]).sum(0).neg().neg()
    return out


def summed_in_two_parts(a, b):
    half = a.numel() // 2
    return torch.cat([_launched(a[:half], b[:half], a[:half], SUM), _launched(a[half:], b[half:], a[half:], SUM)])


# the host computes


def one_argument_an_element(a, b):
    out = torch.empty(a.shape, device=a.device)
    for at, value in enumerate((a + b).cpu().tolist()):
        _launched(a[at : at + 1], b, a, ARGUMENT, value, out[at : at + 1])
    return out


def two_arguments_an_element(a, b):
    """No word that the kernel stores is one of its arguments."""
    out = torch.empty(a.shape, device=a.device)
    for at, value in enumerate((a + b).cpu().tolist()):
        _launched(a[at : at + 1], b, a, TWO_ARGUMENTS, value - 0.25, out[at : at + 1], 0.25)
    return out


def sent_by_the_host(a, b):
    return _launched(a, b, (a.cpu() + b.cpu()).to("cuda"), COPY)


def reads_the_greatest(a, b):
    """The host reads, and passes a float argument that the kernel does not store."""
    return _launched(a, b, a, SUM, a.max().item())


def cleared_first(a, b):
    out = torch.zeros(a.shape, device=a.device)
    return _launched(a, b, a, SUM, 1.0, out)


def product_into_an_empty_result(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Torch gives `out` its sizes; nothing of it reaches the kernel."""
    out = torch.empty(0, device=a.device)
    torch.mm(a[:, None], b[None], out=out)
    assert out.shape == (*a.shape, *b.shape)
    return _launched(a, b, b, SUM)


def negated_lazily(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A view whose bytes have the other sign: torch negates them where they are read."""
    return torch._neg_view(_launched(-a, -b, b, SUM))
