"""The fast gate: tests that compile nothing and start no Python, told by what their file imports, and held to it while they run.

A test is of the fast gate unless its file, or a module of `tests` that it imports, imports what launches kernels or starts
processes (`LAUNCHES`), or it is marked `compiles`. Whoever writes a test enters it nowhere."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from bitverdict.harness.model.paths import ROOT

LAUNCHES = re.compile(
    r"multiprocessing|triton\.comp|benchmarks(?!\.figures)|bitverdict(\.emulated)?$|bitverdict\.harness\.("
    r"emulator\.(emulated$|device|untrusted|frontend\.(assembly|compiled))|judge\.(judge|launch|devices|offline_driver)\b"
    r"|session\.(session|shrink|watch)\b|report\.launch_replay|sealed\.\w+\.|workers\.(pool|process|server|standby|start|program)"
    r"|frontends\.(main\.main|cli|public|called|one_launch|pytest_nodes)|lab\.(crosscheck|large|libdevice|offline|sanitizers\.runs"
    r"|tma|gpu_oracle|commands|pages\.oper|hardware_words)|mutants\.(campaign|mutant_judge|source_judging|front_end|same_|equivalence"
    r"|small_calls|program))"
)
"""Modules, and names in modules, by which a test may launch a kernel or start a process."""
_seen: list[str] | None = None  # what the test under way compiled and started; None outside of the fast gate's tests


@cache
def imports(path: Path) -> frozenset[str]:
    """Modules that the file imports, anywhere in it, and names that it takes from them."""
    named: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:  # statements alone: an expression imports nothing
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom):
            named |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt | ast.excepthandler | ast.match_case)]
    return frozenset(named)


@cache
def is_fast(path: Path) -> bool:
    """Whether neither the test file nor what it imports of `tests` imports what launches kernels or starts processes."""
    of_tests, waiting = {path}, [path]
    while waiting:
        for name in imports(waiting.pop()):
            if LAUNCHES.match(name):
                return False
            module = ROOT / f"{name.replace('.', '/')}.py"
            if name.startswith("tests.") and module not in of_tests and module.is_file():
                of_tests.add(module)
                waiting.append(module)
    return True


def _audit(event: str, told: tuple[Any, ...]) -> None:
    if _seen is not None and event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        if "fork" in event or "python" in (program := Path(str(told[0])).name) or "bitverdict" in program:
            _seen.append(f"{event} {told[0] if told else ''}")


@cache
def _watch() -> None:
    """Once a process: a hook cannot be taken away again."""
    sys.addaudithook(_audit)


@contextmanager
def compiles_nothing() -> Iterator[None]:
    """A test of the fast gate: AssertionError where Triton compiled for it, or it started Python."""
    global _seen
    _watch()
    from triton import knobs

    _seen, earlier = [], knobs.compilation.listener
    seen = _seen

    def listener(**told: Any) -> None:
        seen.append(f"compiled {told['src'].name}")
        if earlier is not None:
            earlier(**told)

    knobs.compilation.listener = listener
    try:
        yield
    finally:
        _seen, knobs.compilation.listener = None, earlier
    assert not seen, f"a test of the fast gate {seen}: mark it `compiles`"
