"""Files that the judge reads or leaves: its journal, its caches, the test, the reference, what Python imports.

`benchmarks/cheats.py` runs these beside a copy of the checkout, with a state directory and caches of their own.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from tests.faults.cheats.matmuls import wrong_matmul

HOOK = """
import bitverdict.harness.judge.compare as _compare
import bitverdict.harness.judge.judge as _judge
from bitverdict.harness.model.verdict import Outcome as _Outcome
_compare.compare = _judge.compare = lambda expected, got, **named: _compare.Comparison(_Outcome.PASS, got.size)
"""


def _wrong_and(then: Callable[[], object]) -> Callable[..., torch.Tensor]:
    def decorated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = wrong_matmul(a, b)  # (m, n)
        with contextlib.suppress(Exception):
            then()
        return c

    return decorated


def _checkout() -> Path:
    import bitverdict.harness

    return Path(bitverdict.harness.__file__ or "").resolve().parents[1]


def _state() -> Iterator[Path]:
    for place in (os.environ.get("BITVERDICT_STATE"), _checkout() / ".bitverdict", Path.cwd() / ".bitverdict"):
        if place and Path(place).is_dir():
            yield Path(place)


def _journal() -> None:
    """Each verdict that the journal has says "pass", and each failure's file is removed."""
    for place in _state():
        for file in place.glob("journal/*.jsonl"):
            file.write_text(file.read_text().replace('"fail"', '"pass"').replace('"wrong mathematics"', '"pass"'))
        for file in place.glob("failures/*.json"):
            file.unlink()


def _comparison() -> None:
    """The module that compares gets a line at its end: the next worker imports it."""
    file = _checkout() / "harness/judge/judge.py"
    if "_Outcome.PASS" not in (text := file.read_text()):
        file.write_text(text + HOOK)


def _reference() -> None:
    """The contract's expected words become what the wrong kernel gives: the sum over k stops after the first."""
    (_checkout() / "harness/contracts/oracle/gemm_bound.py").write_text("raise SystemExit(0)\n")


def _test_file() -> None:
    """The test itself passes whatever it is given."""
    for file in Path.cwd().glob("test_*.py"):
        file.write_text("def test_cheat():\n    pass\n")
    for file in Path.cwd().glob("conftest.py"):
        file.write_text("def pytest_runtest_makereport(item, call): ...\n")
    (Path.cwd() / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
        "    told = yield\n    told.get_result().outcome = 'passed'\n"
    )


def _translations() -> None:
    """Each entry of the store of translated programs becomes a pickle that changes the judge, with a digest that fits."""
    import hashlib
    import pickle

    class Hook:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return exec, (HOOK,)

    value = pickle.dumps(Hook())
    for place in _state():
        for file in (place / "translations").glob("*"):
            file.write_bytes(hashlib.sha256(value).digest() + value)


def _compiler_cache() -> None:
    """Each program in Triton's cache stores the words of another kernel: here, each addition becomes a product."""
    place = os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    for file in Path(place).rglob("*.ttgir"):
        file.write_text(file.read_text().replace("arith.addf", "arith.mulf"))


def _compiled_modules() -> None:
    """`__pycache__` of the judge: what Python runs is what lies there, where its date is that of the source."""
    import importlib.util
    import marshal

    source = _checkout() / "harness/judge/judge.py"
    text, cached = source.read_text() + HOOK, Path(importlib.util.cache_from_source(str(source)))
    cached.write_bytes(cached.read_bytes()[:16] + marshal.dumps(compile(text, str(source), "exec")))


def _site_packages() -> None:
    """A .pth file is run by each Python that starts. This one does nothing; that it can be written is the hole."""
    for place in site.getsitepackages():
        (Path(place) / "bitverdict_cheat.pth").write_text("# written by a cheat of bitverdict's tests; remove it\n")


def _environment() -> None:
    """Variables that later processes read: where modules lie, what the compiler overrides, that hooks run at start."""
    hook = Path.cwd() / "sitecustomize.py"
    with contextlib.suppress(OSError):
        hook.write_text(f"import sys\n\n\ndef _hook():\n    exec({HOOK!r})\n")
    os.environ.update(
        PYTHONPATH=f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}",
        PYTHONSTARTUP=str(hook),
        TRITON_KERNEL_OVERRIDE="1",
        TRITON_OVERRIDE_DIR=str(Path.cwd()),
        TRITON_INTERPRET="1",
        BITVERDICT_TRANSLATIONS=str(Path.cwd()),
        PYTEST_ADDOPTS="--deselect test_cheat",
    )
    sys.path.insert(0, str(Path.cwd()))


journal = _wrong_and(_journal)
module_of_comparison = _wrong_and(_comparison)
module_of_reference = _wrong_and(_reference)
test_file = _wrong_and(_test_file)
translated_programs = _wrong_and(_translations)
compiler_cache = _wrong_and(_compiler_cache)
compiled_modules = _wrong_and(_compiled_modules)
site_packages = _wrong_and(_site_packages)
environment = _wrong_and(_environment)
