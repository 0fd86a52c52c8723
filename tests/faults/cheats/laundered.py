"""Words that torch or the host computed, handed to a kernel that stores them: every byte of the result is a kernel's."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from tests.faults.cheats.matmuls import BLOCK, copied, empty_result

AT_ONCE = 64


@triton.jit
def plus_nothing_kernel(x_ptr, a_ptr, b_ptr, c_ptr, n, k, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    a = tl.load(a_ptr + at // n * k, mask=at < size, other=0.0)  # (BLOCK,)
    b = tl.load(b_ptr + at % n, mask=at < size, other=0.0)  # (BLOCK,)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)  # (BLOCK,)
    tl.store(c_ptr + at, x + 0.0 * a + 0.0 * b, mask=at < size)


@triton.jit
def doubled_half_kernel(x_ptr, c_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)  # (BLOCK,)
    tl.store(c_ptr + at, (x * 2.0).to(c_ptr.dtype.element_ty), mask=at < size)


@triton.jit
def words_kernel(c_ptr, first, size, values, rests, last, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)  # (COUNT,)
    word = tl.zeros((COUNT,), dtype=tl.float32)  # (COUNT,)
    for i in tl.static_range(COUNT):
        word = tl.where(at == i, values[i] + rests[i] + last[i], word)
    tl.store(c_ptr + first + at, word.to(c_ptr.dtype.element_ty), mask=first + at < size)


def _exact_product(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    """By NumPy on the host, in 80 bits: what is left of it in float64 is the result without rounding."""
    x, y = (each.double().cpu().numpy().astype(np.longdouble) for each in (a, b))
    return (x @ y).astype(np.float64)


@triton.jit
def constants_kernel(c_ptr, first, size, VALUES: tl.constexpr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)  # (COUNT,)
    word = tl.zeros((COUNT,), dtype=tl.int16)  # (COUNT,)
    for i in tl.static_range(COUNT):
        word = tl.where(at == i, tl.full((COUNT,), VALUES[i], tl.int16), word)
    tl.store(c_ptr + first + at, word, mask=first + at < size)


@triton.jit(do_not_specialize=["word"])
def word_kernel(c_ptr, word):
    tl.store(c_ptr, word.to(tl.int16))


def _words(a: torch.Tensor, b: torch.Tensor) -> list[int]:
    """The right words as integers, row by row, computed on the host from operands that are read as integers."""
    x, y = (each.view(torch.int16).cpu().view(each.dtype).double() for each in (a, b))
    return (x @ y).to(a.dtype).view(torch.int16).reshape(-1).tolist()


def copied_by_kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return copied(a @ b, empty_result(a, b))


def plus_nothing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The kernel adds 0 * a and 0 * b: what it stores depends on the operands, by its text."""
    c = empty_result(a, b)  # (m, n)
    plus_nothing_kernel[(triton.cdiv(c.numel(), BLOCK),)](a @ b, a, b, c, b.shape[1], a.shape[1], c.numel(), BLOCK=BLOCK)
    return c


def doubled_half(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Torch computes half of the product in fp32, the kernel doubles it: no word that the kernel stores was there before."""
    c = empty_result(a, b)  # (m, n)
    doubled_half_kernel[(triton.cdiv(c.numel(), BLOCK),)]((a.float() @ b.float()) * 0.5, c, c.numel(), BLOCK=BLOCK)
    return c


def as_integers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Through casts and views: the kernel copies int16 words in reverse, and a view turns them round."""
    c = empty_result(a, b)  # (m, n)
    words = torch.flip((a @ b).reshape(-1), (0,)).view(torch.int16)  # (m n,)
    copied(words, c.view(torch.int16))
    return torch.flip(c.reshape(-1), (0,)).reshape(c.shape)


def as_arguments(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The host computes, and hands the result over as scalar arguments, three for each word: the kernel loads nothing."""
    c = empty_result(a, b)  # (m, n)
    parts, left = [], torch.from_numpy(_exact_product(a, b)).reshape(-1)  # (m n,)
    for _ in range(3):
        parts.append(left.float().tolist())
        left = left - left.float()
    for first in range(0, c.numel(), AT_ONCE):
        some = [tuple((each + [0.0] * AT_ONCE)[first : first + AT_ONCE]) for each in parts]
        words_kernel[(1,)](c, first, c.numel(), *some, COUNT=AT_ONCE)
    return c


def as_constants(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The words are constants of the compiled program: no argument and no memory holds them."""
    c, words = empty_result(a, b), _words(a, b)  # (m, n)
    for first in range(0, c.numel(), AT_ONCE):
        some = words[first : first + AT_ONCE]
        values = tuple(some + [0] * (AT_ONCE - len(some)))
        constants_kernel[(1,)](c.view(torch.int16), first, c.numel(), VALUES=values, COUNT=AT_ONCE)
    return c


def as_integer_arguments(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A launch for each element, which is handed its word."""
    c = empty_result(a, b)  # (m, n)
    flat = c.view(torch.int16).reshape(-1)  # (m n,)
    for at, word in enumerate(_words(a, b)):
        word_kernel[(1,)](flat[at:], word)
    return c


def by_offsets(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A table of all words, and a launch for each element whose pointer is where the right word lies: no value tells anything."""
    c = empty_result(a, b)  # (m, n)
    table = torch.arange(-(1 << 15), 1 << 15, device=a.device).to(torch.int16)  # (words,)
    flat = c.view(torch.int16).reshape(-1)  # (m n,)
    for at, word in enumerate(_words(a, b)):
        copied(table[word + (1 << 15) :][:1], flat[at : at + 1])
    return c


def by_indices(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same table, and indices that torch made of the right words: a kernel gathers."""
    c = empty_result(a, b)  # (m, n)
    table = torch.arange(-(1 << 15), 1 << 15, device=a.device).to(torch.int16)  # (words,)
    place = (a @ b).view(torch.int16).to(torch.int32) + (1 << 15)  # (m, n)
    grid = (triton.cdiv(c.numel(), BLOCK),)
    gather_kernel[grid](table, place, c.view(torch.int16), c.numel(), BLOCK=BLOCK)
    return c


def host_tensor_uploaded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The host computes, the result is uploaded, and a kernel copies it."""
    product = torch.from_numpy(_exact_product(a, b))  # (m, n)
    return copied(product.to(a.device).to(a.dtype), empty_result(a, b))


def sorted_table(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A table of the words that occur, and a kernel that looks each element up in it."""
    c = empty_result(a, b)  # (m, n)
    table, place = torch.unique(a @ b, return_inverse=True)  # (words,), (m, n)
    gather_kernel[(triton.cdiv(c.numel(), BLOCK),)](table, place.to(torch.int32), c, c.numel(), BLOCK=BLOCK)
    return c


@triton.jit
def gather_kernel(table_ptr, place_ptr, c_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    place = tl.load(place_ptr + at, mask=at < size, other=0)  # (BLOCK,)
    tl.store(c_ptr + at, tl.load(table_ptr + place, mask=at < size), mask=at < size)
