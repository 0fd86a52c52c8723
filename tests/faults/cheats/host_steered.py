"""The host reads the operands, computes, and steers kernels that know nothing: by integers, grids, places and their order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.faults.cheats.matmuls import BLOCK, copied, empty_result

WORDS = 1 << 16


@triton.jit
def nothing(a_ptr):
    """0, of the last bit of a rounded word: a load, of whose value nobody knows what it is without rounding."""
    rounded = (tl.load(a_ptr).to(tl.float32) * 1.2345).to(tl.float16)
    return ((rounded.to(tl.int16, bitcast=True) & 1) >> 1).to(tl.int32)


@triton.jit
def table_kernel(a_ptr, t_ptr, BLOCK: tl.constexpr):
    """All words of 16 bits, in their order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    tl.store(t_ptr + at, (at - 32768 + nothing(a_ptr)).to(tl.int16))


@triton.jit(do_not_specialize=["word"])
def word_kernel(a_ptr, c_ptr, word):
    """What the host says, with a load that comes to nothing."""
    tl.store(c_ptr, (word + nothing(a_ptr)).to(tl.int16))


@triton.jit(do_not_specialize=["first", "second", "third", "fourth"])
def four_words_kernel(a_ptr, c_ptr, size, first, second, third, fourth):
    at = tl.arange(0, 4)  # (4,)
    word = tl.where(at == 0, first, tl.where(at == 1, second, tl.where(at == 2, third, fourth)))  # (4,)
    zero = nothing(a_ptr)
    tl.store(c_ptr + at, (word + zero).to(tl.int16), mask=at < size)


@triton.jit
def count_kernel(a_ptr, c_ptr):
    """The byte is the number of programs."""
    if tl.program_id(0) == 0:
        tl.store(c_ptr, (tl.num_programs(0) - 1 + nothing(a_ptr)).to(tl.uint8))


@triton.jit
def two_counts_kernel(a_ptr, c_ptr):
    """The byte is in the two sides of the grid."""
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(c_ptr, ((tl.num_programs(0) - 1) * 16 + tl.num_programs(1) - 1 + nothing(a_ptr)).to(tl.uint8))


@triton.jit
def distance_kernel(a_ptr, p_ptr, q_ptr, c_ptr):
    """The word is the distance of two pointers."""
    distance = ((q_ptr.to(tl.int64) - p_ptr.to(tl.int64)) - 32768).to(tl.int32)
    tl.store(c_ptr, (distance + nothing(a_ptr)).to(tl.int16))


@triton.jit
def nibble_kernel(a_ptr, c_ptr, NIBBLE: tl.constexpr):
    """One of sixteen kernels: it puts its four bits behind those that are there."""
    tl.store(c_ptr, (16 * tl.load(c_ptr).to(tl.int32) + NIBBLE + nothing(a_ptr)).to(tl.int16))


@triton.jit(do_not_specialize=["stride"])
def stride_kernel(t_ptr, c_ptr, stride):
    """The second word of a table by a stride that the host says."""
    tl.store(c_ptr, tl.load(t_ptr + stride))


@triton.jit
def constant_kernel(a_ptr, c_ptr, WORD: tl.constexpr):
    tl.store(c_ptr, (WORD + nothing(a_ptr)).to(tl.int16))


def _words(a: torch.Tensor, b: torch.Tensor) -> list[int]:
    """The right words as integers, row by row, computed on the host from operands that are read as integers."""
    x, y = (each.view(torch.int16).cpu().view(each.dtype).double() for each in (a, b))
    return (x @ y).to(a.dtype).view(torch.int16).reshape(-1).tolist()


def _table(a: torch.Tensor) -> torch.Tensor:
    table = torch.empty(WORDS, device=a.device, dtype=torch.int16)  # (words,)
    table_kernel[(WORDS // BLOCK,)](a, table, BLOCK=BLOCK)
    return table


def _flat(c: torch.Tensor) -> torch.Tensor:
    return c.view(torch.int16).reshape(-1)  # (m n,)


def slices_joined(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Words of a kernel's table, whose places the host chose, joined by torch: a move of a kernel's words."""
    c, table = empty_result(a, b), _table(a)
    parts = [table[word + 32768 :][:1] for word in _words(a, b)]
    return torch.cat(parts).view(a.dtype).view(c.shape)


def slices_stacked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c, table = empty_result(a, b), _table(a)
    return torch.stack([table[word + 32768] for word in _words(a, b)]).view(a.dtype).view(c.shape)


def slices_copied_into_their_places(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c, table = empty_result(a, b), _table(a)
    flat = _flat(c)
    for at, word in enumerate(_words(a, b)):
        flat[at : at + 1].copy_(table[word + 32768 :][:1])
    return c


def integers_and_a_load(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = empty_result(a, b)
    flat = _flat(c)
    for at, word in enumerate(_words(a, b)):
        word_kernel[(1,)](a, flat[at:], word)
    return c


def four_integers_a_launch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c, words = empty_result(a, b), _words(a, b)
    flat = _flat(c)
    for at in range(0, len(words), 4):
        four_words_kernel[(1,)](a, flat[at:], len(words) - at, *(words[at : at + 4] + [0] * 4)[:4])
    return c


def _bytes(a: torch.Tensor, b: torch.Tensor) -> list[int]:
    return [byte for word in _words(a, b) for byte in (word & 255, (word >> 8) & 255)]


def number_of_programs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = empty_result(a, b)
    flat = c.view(torch.uint8).reshape(-1)
    for at, byte in enumerate(_bytes(a, b)):
        count_kernel[(byte + 1,)](a, flat[at:])
    return c


def sides_of_the_grid(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = empty_result(a, b)
    flat = c.view(torch.uint8).reshape(-1)
    for at, byte in enumerate(_bytes(a, b)):
        two_counts_kernel[(byte // 16 + 1, byte % 16 + 1)](a, flat[at:])
    return c


def distance_of_pointers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c, room = empty_result(a, b), torch.empty(WORDS, device=a.device, dtype=torch.int8)
    flat = _flat(c)
    for at, word in enumerate(_words(a, b)):
        distance_kernel[(1,)](a, room, room[min(word + 32768, WORDS - 1) :], flat[at:])
    return c


def order_of_launches(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One of sixteen kernels for each four bits: no argument tells anything."""
    c = torch.zeros_like(empty_result(a, b))
    flat = _flat(c)
    for at, word in enumerate(_words(a, b)):
        for shift in (12, 8, 4, 0):
            nibble_kernel[(1,)](a, flat[at:], NIBBLE=(word >> shift) & 15)
    return c


def table_and_integers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A kernel's table, and a launch for each element, which is told how far to go: the word depends on what it loads."""
    c, table = empty_result(a, b), _table(a)
    flat = _flat(c)
    for at, word in enumerate(_words(a, b)):
        stride_kernel[(1,)](table, flat[at:], word + 32768)
    return c


def table_and_places(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A kernel's table, and pointers into it."""
    c, table = empty_result(a, b), _table(a)
    flat = _flat(c)
    for at, word in enumerate(_words(a, b)):
        copied(table[word + 32768 :][:1], flat[at : at + 1])
    return c


def constants_and_a_load(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = empty_result(a, b)
    flat = _flat(c)
    for at, word in enumerate(_words(a, b)):
        constant_kernel[(1,)](a, flat[at:], WORD=word)
    return c
