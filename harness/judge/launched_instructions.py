"""Which matrix instructions launched kernels hold: an emulated GPU knows them of its tile programs, a real one's are in the PTX.

Each is (family, kind, a, b, d) in the words of `bitverdict.reference.tensor_core`, empty where it is not known: `tcgen05.mma` names
a kind and leaves its operands to a descriptor. What is found here only narrows a bound; where nothing is found every instruction
counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bitverdict.harness.judge import hang_report

if TYPE_CHECKING:
    from bitverdict.harness.emulator.device import Launch

Instructions = list[tuple[str, str, str, str, str]]
TYPES = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32", "e4m3": "e4m3", "e5m2": "e5m2", "e2m3": "e2m3", "e3m2": "e3m2",
         "e2m1": "e2m1", "s8": "int8", "f32": "fp32", "s32": "int32"}  # fmt: skip
_NAMES = re.compile(r"^\s*(?:@!?%?\w+\s+)?(mma\.sync|wgmma\.mma_async|tcgen05\.mma)((?:\.[\w:]+)*)\s", re.MULTILINE)
_ptx: dict[int, str] = {}  # handle of a loaded function -> file of its PTX


def of_ptx(text: str) -> Instructions:
    """The matrix instructions of a PTX module, each once. PTX ISA: `mma`, `wgmma.mma_async`, `tcgen05.mma`."""
    instructions = set()
    for name, modifiers in _NAMES.findall(text):
        parts = modifiers.split(".")
        kind = next((part.removeprefix("kind::") for part in parts if part.startswith("kind::")), "")
        d, a, b = ([TYPES[part] for part in parts if part in TYPES] + [""] * 3)[:3]
        instructions.add((name.partition(".")[0] if name != "mma.sync" else name, kind, a, b, d))
    return sorted(instructions)


def of_products(launches: Iterable[Launch]) -> Instructions:
    """The same of an emulated GPU's launches, whose `products` are keyed (family, a, b, d, ..)."""
    return sorted({(family, "", a, b, d) for launch in launches for family, a, b, d, *_ in launch.products})


@contextmanager
def watch_launches() -> Iterator[list[Instructions | None]]:
    """While entered, one entry for each launch of a Triton kernel on a GPU, by Triton's own hooks; None where its PTX is not at
    hand. An emulated GPU keeps its own."""
    from triton import knobs

    launches: list[Instructions | None] = []

    def on_launch(metadata: object) -> None:
        hang_report.note_launch()
        file = _ptx.get(getattr(metadata, "data", {}).get("function", 0))
        launches.append(None if file is None else _of_file(file))

    remember()
    knobs.runtime.launch_enter_hook.add(on_launch)
    try:
        yield launches
    finally:
        knobs.runtime.launch_enter_hook.remove(on_launch)


def remember() -> None:
    """From now on keep where the PTX of each kernel lies that is loaded: a launch names the loaded function alone."""
    from triton import knobs

    knobs.runtime.kernel_load_end_hook.add(_on_kernel_load)  # once: a chain holds no function twice


def _on_kernel_load(module: object, function: object, name: str, files: dict[str, str], digest: str) -> None:
    file = next((path for path in files.values() if str(path).endswith(".ptx")), None)
    if isinstance(function, int) and file is not None:
        _ptx[function] = str(file)


@lru_cache(maxsize=512)
def _of_file(file: str) -> Instructions | None:
    path = Path(file)
    return of_ptx(path.read_text()) if path.is_file() else None
