"""Contract under test: the rooms import only whom they may, so that no oracle inherits a bug from the accused."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
MAY = {
    "kernels": {"kernels", "torch", "triton"},
    "reference": {"reference", "numpy"},
    "harness/emulator": {"harness.emulator", "reference", "triton", "numpy", "torch"},
    "harness": {"harness", "kernels", "reference", "torch", "triton", "numpy", "hypothesis", "pytest", "xdist", "rich"},
}
"""Room -> what its files may import besides the standard library; the first matching prefix holds."""

CONTRACTS_MAY_NOT = {
    "harness.emulator",
    "harness.judge",
    "harness.rulings",
    "harness.isolation",
    "harness.cell",
    "harness.child",
    "harness.spares",
    "harness.warming",
    "harness.docket",
    "harness.shrinking",
    "harness.least_case",
    "harness.journal",
    "harness.resume",
    "harness.lease",
    "harness.large_cases",
    "harness.large_nodes",
    "harness.sanitizer",
    "harness.offline_compile",
    "harness.offline_driver",
    "harness.pytest_hooks",
    "harness.pytest_summary",
    "harness.commands",
    "harness.report",
    "harness.replay",
}
"""A contract says what is owed; it neither runs nor judges. Expected words never come from the emulator."""


def imported(source: str, package: str) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of each import in `source`, of those under a TYPE_CHECKING block none."""
    tree = ast.parse(source)
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "importlib.import_module") and node.args:
            if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def under(name: str, roots: set[str]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def offences(path: str, source: str) -> list[str]:
    """Imports in the file at `path` (relative to the checkout) that its room may not make."""
    room = next((prefix for prefix in MAY if path.startswith(prefix + "/")), None)
    if room is None:
        return []
    package = ".".join(Path(path).with_suffix("").parts[:-1])
    found = []
    for line, name in imported(source, package):
        top = name.partition(".")[0]
        wrong = not under(name, MAY[room]) and top not in sys.stdlib_module_names
        wrong |= path.startswith("harness/contracts/") and under(name, CONTRACTS_MAY_NOT)
        wrong |= room == "harness" and top in ("pytest", "xdist") and not path.startswith("harness/pytest_")
        if wrong:
            found.append(f"{path}:{line}: imports {name}")
    return found


def files() -> list[str]:
    return sorted(
        str(p.relative_to(CHECKOUT)) for room in ("kernels", "reference", "harness") for p in (CHECKOUT / room).rglob("*.py")
    )


@pytest.mark.parametrize("room", sorted({path.partition("/")[0] for path in files()}))
def test_each_room_imports_only_whom_it_may(room: str) -> None:
    wrong = [
        offence for path in files() if path.startswith(room + "/") for offence in offences(path, (CHECKOUT / path).read_text())
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("kernels/x.py", "import reference.formats"),
        ("kernels/x.py", "from harness import judge"),
        ("kernels/x.py", "import numpy"),
        ("kernels/x.py", "def f():\n    from hypothesis import given"),
        ("reference/x.py", "import torch"),
        ("reference/formats/x.py", "from kernels.matmul import matmul"),
        ("reference/x.py", "import ml_dtypes"),
        ("reference/x.py", "__import__('triton')"),
        ("reference/x.py", "import importlib\nimportlib.import_module('torch')"),
        ("harness/emulator/x.py", "from harness.contract import Case"),
        ("harness/emulator/x.py", "from kernels import matmul"),
        ("harness/emulator/x.py", "from ..contract import Case"),
        ("harness/contracts/x.py", "from harness.emulator import emulated"),
        ("harness/contracts/x.py", "from harness import judge"),
        ("harness/contracts/x.py", "from harness.child import Child"),
        ("harness/contracts/x.py", "from harness import resume"),
        ("harness/x.py", "from tests.harness_checks import planted"),
        ("harness/x.py", "import pytest"),
        ("harness/emulator/pytest_x.py", "import pytest"),
        ("harness/x.py", "import scipy"),
    ],
)
def test_a_wrong_import_is_convicted(path: str, line: str) -> None:
    assert offences(path, line)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("kernels/x.py", "import triton.language as tl\nfrom kernels.features import Feature"),
        ("reference/x.py", "import numpy as np\nfrom dataclasses import dataclass\nfrom .formats import E4M3"),
        ("harness/emulator/x.py", "from harness.emulator.memory import View\nimport reference.tensor_core"),
        ("harness/contracts/x.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from harness.emulator import Device"),
        ("harness/pytest_hooks.py", "import pytest"),
        ("tests/x.py", "import scipy"),
    ],
)
def test_a_right_import_is_acquitted(path: str, line: str) -> None:
    assert not offences(path, line)
