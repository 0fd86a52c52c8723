"""Hypothesis's database of a walk, in which the case that ends the walk is not saved: Hypothesis saves the choices of any case that
raises, and the walk of a node that passes ends by an exception too."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis.database import ExampleDatabase


class SavedFailures(ExampleDatabase):
    """`database`, in which nothing is saved any more once it is `closed`."""

    def __init__(self, database: ExampleDatabase) -> None:
        super().__init__()
        self.database, self.closed = database, False

    def save(self, key: bytes, value: bytes) -> None:
        if not self.closed:
            self.database.save(key, value)

    def fetch(self, key: bytes) -> Iterable[bytes]:
        return self.database.fetch(key)

    def delete(self, key: bytes, value: bytes) -> None:
        self.database.delete(key, value)

    def move(self, src: bytes, dest: bytes, value: bytes) -> None:
        self.database.move(src, dest, value)
