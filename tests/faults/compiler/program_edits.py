"""A contract whose launches run a program that was changed after TTGIR: a fault of the compiler's, on a GPU as on an emulated one.

Triton asks a hook for the stages of each compilation; the one set here edits the text of the module between the stages `ttgir` and
`llir`, then lets the hook that was there before (the emulated GPU's) do its part. Its key is in the compile cache's.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bitverdict.harness.model.contract import Contract


class Edits:
    """Triton's `add_stages_inspection_hook`: `pattern`, wherever it occurs, becomes `by`; `changes` counts them."""

    def __init__(self, pattern: str, by: str, before: Callable | None) -> None:
        self.pattern, self.by, self.before = pattern, by, before
        self.changes = 0

    def __call__(
        self, backend: Any = None, stages: Any = None, options: Any = None, language: Any = None, capability: Any = None
    ) -> Any:
        if backend is None:  # the compile cache asks for its key
            told = self.before() if self.before else ("", "")
            digest = hashlib.sha256(repr((self.pattern, self.by, told)).encode()).hexdigest()
            return digest, digest
        made = stages["ttgir"]
        stages["ttgir"] = lambda module, metadata: self.edited(made(module, metadata))
        return self.before(backend, stages, options, language, capability) if self.before else None

    def edited(self, module: Any) -> Any:
        """The module with its text changed. ValueError where the text does not occur."""
        from triton._C.libtriton import ir

        text, self.changes = re.subn(self.pattern, self.by, str(module))
        if not self.changes:
            raise ValueError(f"edit {self.pattern!r}: the program has no such text; look at it with TRITON_KERNEL_DUMP=1")
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "edited.ttgir"
            path.write_text(text)
            again = ir.parse_mlir_module(str(path), module.context)
        again.context = module.context
        return again


def edited(contract: Contract, pattern: str, by: str) -> Contract:
    """`contract`, its launches under `Edits`."""
    launch = contract.launch

    def changed(*given: Any) -> Any:
        with editing(pattern, by):
            return launch(*given)

    contract.launch = changed  # type: ignore[method-assign, assignment]
    return contract


@contextmanager
def editing(pattern: str, by: str) -> Iterator[Edits]:
    from triton import knobs

    earlier = knobs.runtime.add_stages_inspection_hook
    edits = Edits(pattern, by, earlier)
    knobs.runtime.add_stages_inspection_hook = edits
    try:
        yield edits
    finally:
        knobs.runtime.add_stages_inspection_hook = earlier
