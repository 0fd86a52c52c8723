"""One share of a run: ``--shard 3/16`` takes each sixteenth thing, from the third on.

What is in a shard depends on what is asked alone, never on a clock, a machine or another shard. Of a run each case source is shared
out by the place of a case in its own row of required or generated cases. The first shard is another one for each case source, so
that sources with few cases fill all shards. The shards of a run have no case in common, and together all of its cases
(`bitverdict.harness.session.merge_journals`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from bitverdict.harness.model.usage import UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """Share `number` of `shard_count`, counted from 1."""

    number: int = 1
    shard_count: int = 1

    @classmethod
    def parse_shard(cls, text: str, option: str = "--shard") -> Shard:
        """The shard that `text`, as in "3/16", names; of an empty text the whole. UsageError for any other."""
        if not text:
            return WHOLE_RUN
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        shard = cls(int(found[1]), int(found[2])) if found else None
        if shard is None or not 1 <= shard.number <= shard.shard_count:
            raise UsageError(f"{option} {text}: must be NUMBER/OF with 1 <= NUMBER <= OF, for example 3/16")
        return shard

    def share(self, items: Sequence[T], first: int = 0) -> list[T]:
        """Its share of `items`; `first`: by how many shards the first item is moved on."""
        return list(items[(self.number - 1 - first) % self.shard_count :: self.shard_count])

    def __str__(self) -> str:
        return f"{self.number}/{self.shard_count}"


WHOLE_RUN = Shard()
