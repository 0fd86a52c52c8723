"""Which words of a memory are enclosed, by address (`enclosures` says what that is)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_PAGE_BITS = 14
_PAGE = 1 << _PAGE_BITS  # bytes
FEW_ELEMENTS = 1 << 10  # elements, which are computed sooner than it is found out which are the same
_FEW_PAGES = 64  # looked at one by one
_COLUMNS = [*((name, np.int64) for name in ("address", "word", "low", "high", "size")), ("is_integer", np.bool_)]
_WORDS = np.dtype(_COLUMNS, align=True)


@dataclass(frozen=True)
class Enclosure:
    """The lowest and the highest words that a value may have, as keys in its shape."""

    low: np.ndarray
    high: np.ndarray

    def join(self, low: np.ndarray, high: np.ndarray) -> Enclosure:
        if self.low.shape == low.shape and has_repeats(self.low) and has_repeats(low):
            sides = [without_repeats(*pair) for pair in ((self.low, low), (self.high, high))]
            return Enclosure(*(np.broadcast_to(run(*each), low.shape) for run, each in zip((np.minimum, np.maximum), sides)))
        return Enclosure(np.minimum(self.low, low), np.maximum(self.high, high))


def has_repeats(array: np.ndarray) -> bool:
    """Whether a large `array` repeats its elements along an axis."""
    return (
        array.size > FEW_ELEMENTS
        and 0 in array.strides
        and any(not stride and length > 1 for stride, length in zip(array.strides, array.shape, strict=True))
    )


def without_repeats(*arrays: np.ndarray) -> Any:
    """`arrays` of one shape with one element along each axis along which all repeat theirs; one array alone by itself."""
    repeated = [not any(strides) for strides in zip(*(each.strides for each in arrays), strict=True)]
    place = tuple(slice(1) if each else slice(None) for each in repeated)
    return arrays[0][place] if len(arrays) == 1 else [each[place] for each in arrays]


class EnclosedMemory:
    """Words of memory that are enclosed, by address: of global memory over all launches of a device. `word` is what the launch
    stored, as a key, and an address that holds another by now was written by something else since; `size` is in bytes.

    Each byte of such a word has its number in a table, a row a page of memory, so that a store costs what it stores.
    """

    def __init__(self) -> None:
        self._count = 0
        self._words = np.zeros(1, _WORDS)  # by number; 0 is the number of no word, and one of no bytes is free
        self._free: list[np.ndarray] = []  # numbers
        self._rows: dict[int, int] = {}  # by page
        self._table = np.zeros((1, _PAGE), np.int32)  # the first row is that of all other pages

    def __bool__(self) -> bool:
        return self._count > 0

    def copy(self) -> EnclosedMemory:
        """One of its own, with the same words."""
        twin = EnclosedMemory()
        twin._count, twin._words, twin._table = self._count, self._words.copy(), self._table.copy()
        twin._free, twin._rows = list(self._free), dict(self._rows)
        return twin

    def become(self, other: EnclosedMemory) -> None:
        """Have the words of `other`, which is used no more."""
        self.__dict__.update(other.__dict__)

    def words(self) -> np.ndarray:
        """Records (n,) of the words, by address."""
        words = self._words[self._words["size"] > 0]
        return words[np.argsort(words["address"])]

    def addresses_between(self, first: int, end: int) -> dict[int, np.ndarray]:
        """{size: addresses (n,) of the words of it from address `first` up to `end`, in no order}."""
        numbers = self._between(first, end)
        address, sizes = (self._words[name][numbers] for name in ("address", "size"))
        return {size: address[sizes == size] for size in (_distinct(sizes).tolist() if sizes.size else ())}

    def forget(self, address: np.ndarray, size: int) -> None:
        """Forget each word of which a byte of the `size` at any of `address` is part."""
        if not self._is_free(address := np.asarray(address), size):
            numbers = self._numbers(address, size).reshape(-1)
            if numbers.any():
                self._clear(_distinct(numbers))

    def forget_range(self, first: int, end: int) -> None:
        """Forget each word that begins from address `first` up to `end`."""
        numbers = self._between(first, end)
        if not numbers.size:
            return
        address = self._words["address"][numbers]
        lowest, past = int(address.min()), int((address + self._words["size"][numbers]).max())  # no byte there is of another word
        for page in range(lowest >> _PAGE_BITS, (past - 1 >> _PAGE_BITS) + 1):
            if row := self._rows.get(page, 0):
                start = page << _PAGE_BITS
                self._table[row, max(lowest - start, 0) : past - start] = 0
        self._free_numbers(numbers)

    def store(
        self, address: np.ndarray, word: np.ndarray, low: np.ndarray, high: np.ndarray, size: int, is_integer: bool = False
    ) -> None:
        """(n,) each, keys; none of the addresses twice. `is_integer`: the words are integers."""
        if not address.size:
            return
        self.forget(address, size)
        numbers = self._take(address.size)
        for name, column in zip(_WORDS.names or (), (address, word, low, high, size, is_integer), strict=True):
            self._words[name][numbers] = column
        self._count += address.size
        self._add_pages(address, size)
        self._number_bytes(address, size, numbers[:, None])

    def enclosure_at(self, address: np.ndarray, word: np.ndarray, size: int, is_integer: bool = False) -> Enclosure | None:
        """What may lie at `address` (...) that holds the keys `word`; None where all of it is exact."""
        if self._is_free(address, 1):
            return None
        numbers = self._numbers(address, 1)[..., 0]
        if not numbers.any():
            return None
        found = self._words[numbers]
        there = (found["address"] == address) & (found["word"] == word) & (found["size"] == size)
        there &= found["is_integer"] == is_integer
        if not there.any():
            return None
        return Enclosure(np.where(there, found["low"], word), np.where(there, found["high"], word))

    def overlaps(self, address: np.ndarray, size: int, is_integer: bool | None = None) -> bool:
        """Whether a byte of the `size` at any of `address` is part of an enclosed word; of another one than those that lie there as
        words of that size, of integers or not as `is_integer` says, unless it is None."""
        if self._is_free(address, size):
            return False
        numbers = self._numbers(address, size)
        if is_integer is None or not numbers.any():
            return bool(numbers.any())
        found = self._words[numbers]
        alike = (found["address"] == address[..., None]) & (found["size"] == size) & (found["is_integer"] == is_integer)
        return bool(((numbers > 0) & ~alike).any())

    def _is_free(self, address: np.ndarray, size: int) -> bool:
        """Whether no byte from the lowest of `address` to the `size` at the highest is part of a word; False where they lie far
        apart, too."""
        if not self or not address.size:
            return True
        lowest, past = int(address.min()), int(address.max()) + size
        pages = range(lowest >> _PAGE_BITS, (past - 1 >> _PAGE_BITS) + 1)
        if len(pages) >= _FEW_PAGES:
            return False
        rows = ((page << _PAGE_BITS, self._rows.get(page, 0)) for page in pages)
        return not any(row and self._table[row, max(lowest - start, 0) : past - start].any() for start, row in rows)

    def _between(self, first: int, end: int) -> np.ndarray:
        """The numbers of the words from address `first` up to `end`."""
        at = self._words["address"]
        return np.flatnonzero((at >= first) & (at < end) & (self._words["size"] > 0))

    def _numbers(self, address: np.ndarray, size: int) -> np.ndarray:
        """(..., size) numbers of the words that the `size` bytes at each address are part of."""
        table, places = self._places(address, size)
        return table[places].reshape(*address.shape, size)

    def _number_bytes(self, address: np.ndarray, size: int, numbers: np.ndarray | int) -> None:
        """Put `numbers`, (n, 1) or one, at each of the `size` bytes of `address` (n,)."""
        table, places = self._places(address, size)
        table[places] = numbers

    def _places(self, address: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray | slice]:
        """The table in the form in which it takes the places, of which one is that of the `size` bytes at each address."""
        table = self._table.reshape(-1)
        if not address.size:
            return table[:0].reshape(-1, size), slice(None)
        lowest, highest = int(address.min()), int(address.max()) + size - 1
        pages = range(lowest >> _PAGE_BITS, (highest >> _PAGE_BITS) + 1)
        if len(pages) < _FEW_PAGES:
            rows = [self._rows.get(page, 0) for page in pages]
            follow = rows == list(range(rows[0], rows[0] + len(rows)))
            if follow and highest - lowest + 1 == address.size * size and (np.diff(address.reshape(-1)) == size).all():
                at = rows[0] * _PAGE + (lowest & (_PAGE - 1))
                return table[at : at + address.size * size].reshape(-1, size), slice(None)
            shifts = [(row - page) * _PAGE for row, page in zip(rows, pages, strict=True)]
        else:
            follow, shifts = False, []
        is_aligned = not (address & (size - 1)).any()  # none lies on two pages
        address = address if is_aligned else address[..., None] + np.arange(size)
        if follow:
            places = address + shifts[0]
        elif shifts:
            places = address + np.array(shifts)[(address >> _PAGE_BITS) - pages.start]
        else:
            some, of_address = np.unique(address >> _PAGE_BITS, return_inverse=True)
            shift = np.array([(self._rows.get(page, 0) - page) * _PAGE for page in some.tolist()])
            places = address + shift[of_address.reshape(address.shape)]
        return (table.reshape(-1, size), places // size) if is_aligned else (table, places)

    def _add_pages(self, address: np.ndarray, size: int) -> None:
        """A row of the table for each page of the `size` bytes at `address` that has none."""
        pages: Sequence[int] = range(int(address.min()) >> _PAGE_BITS, (int(address.max()) + size - 1 >> _PAGE_BITS) + 1)
        if len(pages) > 2:
            pages = np.unique(np.stack([address >> _PAGE_BITS, (address + size - 1) >> _PAGE_BITS])).tolist()
        for number in pages:
            self._rows.setdefault(number, len(self._rows) + 1)
        if (more := len(self._rows) + 1 - len(self._table)) > 0:
            more = max(more, len(self._table))
            self._table = np.concatenate([self._table, np.zeros((more, _PAGE), np.int32)])

    def _take(self, count: int) -> np.ndarray:
        """`count` numbers that are free."""
        parts: list[np.ndarray] = []
        while count:
            if not self._free:
                more = max(count, len(self._words))
                self._free.append(np.arange(more) + len(self._words))
                self._words = np.concatenate([self._words, np.zeros(more, _WORDS)])
            some = self._free.pop()
            parts.append(some[:count])
            if some.size > count:
                self._free.append(some[count:])
            count -= parts[-1].size
        return np.concatenate(parts)

    def _clear(self, numbers: np.ndarray) -> None:
        """No word has `numbers` any more."""
        if not numbers.size:
            return
        words = self._words[numbers]
        for size in _distinct(words["size"]).tolist():
            self._number_bytes(words["address"][words["size"] == size], size, 0)
        self._free_numbers(numbers)

    def _free_numbers(self, numbers: np.ndarray) -> None:
        self._words["size"][numbers] = 0
        self._free.append(numbers)
        self._count -= numbers.size


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Those of `numbers` (n,) that are not 0, each once. The bytes of a word mostly follow each other, and so do words."""
    changes = np.empty(numbers.shape, np.bool_)
    changes[0] = True
    np.not_equal(numbers[1:], numbers[:-1], out=changes[1:])
    some = numbers[changes & (numbers > 0)]
    return some if (some[1:] > some[:-1]).all() else np.unique(some)
