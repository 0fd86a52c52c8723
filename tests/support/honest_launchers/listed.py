"""Every honest launcher that is judged sealed and unsealed, and what judges it: kernels of the project, examples of the docs, right
launchers, KernelBench candidates, and the idioms of this folder.

A sealed file must not be imported by the process that chooses cases. So kernels of the project and the examples are written to a
folder of their own first, as a user's would lie there.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bitverdict.harness.contracts.torch_mathematics.kernelbench import address_of
from bitverdict.harness.model.paths import KERNELS, kernels_with_a_contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.sealed.processes.candidate_descriptions import begin
from bitverdict.harness.session.case_source import CaseSource

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
EXAMPLES = CHECKOUT / "docs/examples/your_kernels"
BENCH = HERE.parent / "kernelbench"
RIGHT = {
    "tf32": "matmul", "nearest_tf32": "matmul", "zero_padding": "block_scaled_matmul", "descending": "matmul",
    "interleaved": "matmul", "restarted": "matmul", "thirds": "matmul", "pairs": "matmul", "split_with_atomics": "matmul",
    "split_under_a_lock": "matmul", "streamed": "matmul", "ascending": "matmul",
}  # fmt: skip


class Honest(NamedTuple):
    """One launcher: what it is called, its group, and its case source, sealed, by the target."""

    name: str
    group: str
    source: Callable[[Target], CaseSource]


def listed(folder: Path) -> list[Honest]:
    """All of them; `folder` takes the files that are written."""
    return [*_idioms(), *_kernels(folder / "kernels"), *_examples(folder / "examples"), *_right(), *_of_kernelbench()]


def _launcher(address: str, of: str) -> Callable[[Target], CaseSource]:
    """The launcher at `address`, by the mathematics of the contract `of`."""

    def source(target: Target) -> CaseSource:
        begin(address)
        return CaseSource(of, target, launcher=address, is_sealed=True)

    return source


def _described(file: Path, group: str) -> Iterator[Honest]:
    """The tests of a file."""
    for name, found in vars(_imported(file)).items():
        if callable(make := getattr(found, "__bitverdict__", None)):
            yield Honest(name.removeprefix("test_"), group, lambda target, make=make: make(target, sealed=True))


def _imported(file: Path) -> Any:
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _idioms() -> Iterator[Honest]:
    return _described(HERE / "described.py", "idiom")


def _kernels(folder: Path) -> Iterator[Honest]:
    folder.mkdir(parents=True)
    for stem in kernels_with_a_contract():
        (folder / f"{stem}.py").write_text((KERNELS / f"{stem}.py").read_text())
        yield Honest(stem, "kernel of the project", _launcher(f"{folder / stem}.py:{stem}", stem))


def _examples(folder: Path) -> Iterator[Honest]:
    """Their tests import the kernel. Here the test names it instead, and its body gives the arguments."""
    folder.mkdir(parents=True)
    for test in sorted(EXAMPLES.glob("test_*.py")):
        name = test.stem.removeprefix("test_")
        (folder / f"{name}.py").write_text((EXAMPLES / f"{name}.py").read_text())
        stands_in = f"def {name}(*operands, **named):\n    return (*operands, *named.values())\n"
        text = test.read_text().replace(f"from {name} import {name}\n", f"\n\n{stands_in}")
        text = re.sub(r"^(@bv\.judged\()", rf'\1launcher="{name}.py:{name}", ', text, flags=re.MULTILINE)
        (folder / test.name).write_text(text)
        yield from _described(folder / test.name, "example of the docs")
    tutorial = folder / "tutorial_matmul.py"
    tutorial.write_text((CHECKOUT / "docs/examples/tutorial_matmul.py").read_text())
    yield Honest("tutorial_matmul", "example of the docs", _launcher(f"{tutorial}:matmul", "matmul"))


def _right() -> Iterator[Honest]:
    for name, of in RIGHT.items():
        yield Honest(f"right {name}", "right launcher", _launcher(f"{HERE.parent / 'right_launchers.py'}:{name}", of))


def _of_kernelbench() -> Iterator[Honest]:
    for candidate in sorted((BENCH / "candidates").glob("*.py")):
        problem = address_of(str(BENCH / "problems" / candidate.name))
        yield Honest(f"KernelBench {candidate.stem}", "KernelBench candidate", _launcher(f"{candidate}:ModelNew", problem))


__all__ = ["Honest", "listed"]
