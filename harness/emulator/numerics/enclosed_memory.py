"""Which words of a memory are enclosed, by address (`enclosures` says what that is)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_PAGE_BITS = 14
_PAGE = 1 << _PAGE_BITS  # bytes
_WORDS = np.dtype([*((name, np.int64) for name in ("address", "word", "low", "high", "size")), ("is_integer", np.bool_)])


@dataclass(frozen=True)
class Enclosure:
    """The lowest and the highest words that a value may have, as keys in its shape."""

    low: np.ndarray
    high: np.ndarray

    def join(self, low: np.ndarray, high: np.ndarray) -> Enclosure:
        return Enclosure(np.minimum(self.low, low), np.maximum(self.high, high))


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

    def words(self) -> np.ndarray:
        """Records (n,) of the words, by address."""
        words = self._words[self._words["size"] > 0]
        return words[np.argsort(words["address"])]

    def forget(self, address: np.ndarray, size: int) -> None:
        """Forget each word of which a byte of the `size` at any of `address` is part."""
        if self:
            numbers = self._numbers(np.asarray(address), size)
            self._clear(np.unique(numbers[numbers > 0]))

    def forget_range(self, first: int, end: int) -> None:
        """Forget what lies from address `first` up to `end`."""
        at = self._words["address"]
        self._clear(np.flatnonzero((self._words["size"] > 0) & (at >= first) & (at < end)))

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
        places = self._places(address[:, None] + np.arange(size), adds=True)
        self._table.reshape(-1)[places] = numbers[:, None]

    def enclosure_at(self, address: np.ndarray, word: np.ndarray, size: int, is_integer: bool = False) -> Enclosure | None:
        """What may lie at `address` (...) that holds the keys `word`; None where all of it is exact."""
        if not self:
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
        numbers = self._numbers(address, size)
        if is_integer is None or not numbers.any():
            return bool(numbers.any())
        found = self._words[numbers]
        alike = (found["address"] == address[..., None]) & (found["size"] == size) & (found["is_integer"] == is_integer)
        return bool(((numbers > 0) & ~alike).any())

    def _numbers(self, address: np.ndarray, size: int) -> np.ndarray:
        """(..., size) numbers of the words that the `size` bytes at each address are part of."""
        return self._table.reshape(-1)[self._places(address[..., None] + np.arange(size))]

    def _places(self, address: np.ndarray, *, adds: bool = False) -> np.ndarray:
        """Where in the table the bytes at `address` have their numbers; `adds` rows for pages that have none."""
        page = address >> _PAGE_BITS
        first, last = (int(page.min()), int(page.max())) if page.size else (0, 0)
        if last - first < 64:
            pages, row_number = range(first, last + 1), page - first
        else:
            unique_pages, row_number = np.unique(page, return_inverse=True)
            pages, row_number = unique_pages.tolist(), row_number.reshape(page.shape)
        if adds:
            for number in pages:
                self._rows.setdefault(number, len(self._rows) + 1)
            if (more := len(self._rows) + 1 - len(self._table)) > 0:
                more = max(more, len(self._table))
                self._table = np.concatenate([self._table, np.zeros((more, _PAGE), np.int32)])
        rows = np.array([self._rows.get(number, 0) for number in pages], np.int64)
        return rows[row_number] * _PAGE + (address & (_PAGE - 1))

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
        for size in np.unique(self._words["size"][numbers]):
            some = numbers[self._words["size"][numbers] == size]
            self._table.reshape(-1)[self._places(self._words["address"][some][:, None] + np.arange(size))] = 0
        if numbers.size:
            self._words["size"][numbers] = 0
            self._free.append(numbers)
            self._count -= numbers.size
