"""Contract under test: the rooms import only whom they may, so that no oracle inherits a bug from the accused."""

from __future__ import annotations

import ast
import subprocess
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

ORACLE = {
    "harness.contracts",
    "harness.contract",
    "harness.kernel_contract",
    "harness.blocked_contract",
    "harness.claims",
    "harness.strategies",
    "harness.operands",
    "harness.scaled_operands",
    "harness.transformer_layer",
    "harness.operand_coverage",
    "harness.plan",
    "harness.scaled_plan",
    "harness.product_bound",
    "harness.narrowed_operands",
    "harness.allowed_results",
    "harness.exact_operands",
    "harness.scaled_bound",
    "harness.matmul_outcomes",
    "harness.case_fields",
    "harness.usage",
    "harness.verdict",
    "harness.paths",
}
"""Contracts, and what makes their cases, operands and expected results. They neither run nor judge, and see no result."""

ORACLE_MAY = ORACLE | {"harness.targets", "harness.supervision"}
"""What these may import of harness: a list of what is allowed, so that a new file of another kind is not."""


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


def of_the_oracle(path: str) -> bool:
    return under(".".join(Path(path).with_suffix("").parts), ORACLE)


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
        wrong |= of_the_oracle(path) and top == "harness" and not under(name, ORACLE_MAY)
        wrong |= room == "harness" and top in ("pytest", "xdist") and not path.startswith("harness/pytest_")
        if wrong:
            found.append(f"{path}:{line}: imports {name}")
    return found


def files() -> list[str]:
    return sorted(
        str(p.relative_to(CHECKOUT)) for room in ("kernels", "reference", "harness") for p in (CHECKOUT / room).rglob("*.py")
    )


def test_a_process_that_has_every_contract_has_no_emulator_and_no_judge() -> None:
    """Whatever they import by way of others."""
    stems = [path.stem for path in (CHECKOUT / "harness" / "contracts").glob("[a-z]*.py")]
    check = "\n".join([*(f"import bitverdict.harness.contracts.{stem}" for stem in stems), "import sys; print(*sys.modules)"])
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    loaded = {name for name in done.stdout.split() if name.startswith("harness.")}
    assert f"bitverdict.harness.contracts.{stems[0]}" in loaded
    assert not [name for name in loaded if not under(name, ORACLE_MAY)]


def test_the_files_of_the_oracle_are_there() -> None:
    """A rule over a file that was renamed would hold for ever."""
    for name in ORACLE_MAY:
        place = CHECKOUT.joinpath(*name.split("."))
        assert place.is_dir() or place.with_suffix(".py").is_file(), name


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
        ("harness/contracts/x.py", "from harness.crosscheck import MOVED"),
        ("harness/contracts/x.py", "from harness import seed_files"),
        ("harness/contracts/x.py", "from ..emulator import emulated"),
        ("harness/contracts/x.py", "import harness.a_file_of_tomorrow"),
        *(
            (f"harness/{name}.py", line)
            for name in (
                "plan",
                "scaled_plan",
                "product_bound",
                "scaled_bound",
                "matmul_outcomes",
                "kernel_contract",
                "blocked_contract",
                "scaled_operands",
                "operands",
                "strategies",
                "contract",
                "claims",
                "verdict",
            )
            for line in (
                "from harness.emulator import emulated",
                "def f():\n    from harness import judge",
                "from .rulings import against_words",
                "import harness.record",
            )
        ),
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
        ("harness/plan.py", "from reference.tensor_core import product\nfrom harness.targets import Target"),
        ("harness/contracts/x.py", "from harness import contract as contracts, strategies\nfrom harness.plan import dot_plan"),
        ("harness/judge.py", "from harness.emulator import emulated"),
        ("harness/pytest_hooks.py", "import pytest"),
        ("tests/x.py", "import scipy"),
    ],
)
def test_a_right_import_is_acquitted(path: str, line: str) -> None:
    assert not offences(path, line)
