"""How the compiled program stores a value to shared memory: the width decides which lane's word stays where several store to one
place. Asked of the PTX, and only where lanes have different words."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from triton.runtime.cache import get_cache_manager

from bitverdict.harness.emulator.compiler_digest import digest
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.frontend.assembly import NotAssembled, instructions, ptx
from bitverdict.harness.emulator.mlir_reader import Operation, Program
from bitverdict.reference.thread_words import MATRIX

_STORE = re.compile(r"st(?:\.volatile)?\.shared(?:::cta)?(?:\.v(\d))?\.[a-z]+(\d+)$")


@dataclass(frozen=True, eq=False)
class SharedStores:
    """The stores of one tile program on one target. `capability`: 0 on AMD's, whose machine code is not read."""

    program: Program
    capability: int

    def forms(self, op: Operation) -> set[int]:
        """Forms (`thread_words`) of the stores that the compiler makes of `op`; of all in the program where none is under its
        lines. NotModelled where the compiler does not take the program."""
        if not self.capability:
            raise NotModelled(op, "whose words differ from lane to lane, on a target whose stores to shared memory are not read")
        try:
            store_forms = _store_forms(self.program.text, self.capability)
        except NotAssembled as error:
            raise NotModelled(
                op, f"whose words differ from lane to lane, in a program that the compiler does not take: {error}"
            ) from error
        own = {form for line, form in store_forms if line in (op.line, op.last_line)}
        return own or {form for _, form in store_forms}


@lru_cache(maxsize=256)  # a launch asks again, and an executor of programs that nobody trusts keeps nothing on disk
def _store_forms(text: str, capability: int) -> list[tuple[int, int]]:
    """(line of the tile program `text`, form) of each store, from disk when it was found before."""
    told = f"shared stores 1 {digest()} {capability} {text}"
    cache = get_cache_manager(hashlib.sha256(told.encode()).hexdigest())
    if path := cache.get_file("stores.json"):
        return [(line, form) for line, form in json.loads(Path(path).read_text())]
    line_forms = set()
    for each in instructions(ptx(text, capability, fuses_sums=True)):
        if each.opcode.startswith("stmatrix"):
            line_forms.add((each.line, MATRIX))
        elif width := _STORE.match(each.opcode):
            line_forms.add((each.line, int(width[1] or 1) * int(width[2]) // 8))
    cache.put(json.dumps(sorted(line_forms)), "stores.json", binary=False)
    return sorted(line_forms)


__all__ = ["SharedStores"]
