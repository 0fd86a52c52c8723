"""Contract under test: a room imports what its line allows and nothing else, so that no oracle inherits a bug from what it
judges."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
MAY = {
    "kernels": "kernels torch triton _rooms",
    "reference": "reference numpy _rooms",
    "harness/emulator": "harness.emulator harness.model.architectures harness.model.paths harness.model.protocols "
    "harness.model.torch_internals harness.model.triton_release reference numpy torch triton",
    "harness/model": "harness.model kernels.features numpy torch hypothesis packaging",
    "harness/contracts": "harness.contracts harness.model kernels reference numpy torch triton hypothesis array_api_compat",
    "harness/judge": "harness.judge harness.model harness.emulator reference numpy torch triton",
    "harness/checks": "harness.checks harness.model harness.judge harness.emulator reference numpy torch triton",
    "harness/workers": "harness.workers harness.model harness.judge numpy torch triton ray",
    "harness/session": "harness.session harness.model harness.workers harness.judge numpy torch hypothesis rich",
    "harness/sealed": "harness.sealed harness.model harness.judge harness.checks harness.workers harness.session harness.emulator "
    "numpy torch triton landlockpy pyseccomp",
    "harness/ptx_machine": "harness.ptx_machine harness.model harness.emulator harness.judge reference numpy torch triton "
    "numba tilelang tvm",
    "harness/mutants": "harness.mutants harness.model harness.emulator harness.judge harness.workers harness.session reference "
    "numpy torch triton libcst",
    "harness/report": "harness reference numpy torch triton jinja2 markupsafe pygments -harness.frontends -harness.lab",
    "harness/lab/gpu_oracle": "harness.lab.gpu_oracle reference numpy torch triton",
    "harness/lab": "harness kernels reference tests.faults numpy torch triton rich mpmath",
    "harness/frontends": "harness kernels.features numpy torch triton hypothesis rich redis shtab mcp -harness.lab",
    "bitverdict": "harness",
}
"""A room -> what its files may import besides the standard library, bitverdict left out; a minus takes one back."""

MAY_TEST = "harness/frontends/pytest_"
"""The files that may import pytest and xdist."""

PARTS = ("kernels", "reference", "harness")
ORACLE = ("harness.contracts", "harness.model", "kernels", "reference")
"""What a process that has imported every contract may have loaded, whoever imported it."""


def imported(source: str, package: str) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of each import in `source`; of those under TYPE_CHECKING none."""
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


def under(name: str, roots: list[str] | tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def offences(path: str, source: str) -> list[str]:
    """Imports in the file at `path` (relative to the checkout) that its room may not make."""
    room = max((prefix for prefix in MAY if path.startswith(prefix + "/")), key=len, default=None)
    if room is None:
        return [f"{path}: lies in no room"] if path.startswith(PARTS) and path.count("/") > 1 else []
    package = "bitverdict." + ".".join(Path(path).with_suffix("").parts[:-1])
    allowed = [name for name in MAY[room].split() if not name.startswith("-")]
    taken_back = [name[1:] for name in MAY[room].split() if name.startswith("-")]
    found = []
    for line, name in imported(source, package):
        ours = name.removeprefix("bitverdict.")
        if ours == name and name.partition(".")[0] in PARTS:
            found.append(f"{path}:{line}: imports {name}; it is called bitverdict.{name}")
            continue
        top = name.partition(".")[0]
        right = under(ours, allowed) and not under(ours, taken_back)
        right |= top in sys.stdlib_module_names or name in ("bitverdict.harness", "bitverdict.__version__")  # the package itself
        right |= top in ("pytest", "xdist") and path.startswith(MAY_TEST)
        if not right:
            found.append(f"{path}:{line}: imports {name}")
    return found


def files() -> list[str]:
    return sorted(str(path.relative_to(CHECKOUT)) for part in (*PARTS, "bitverdict") for path in (CHECKOUT / part).rglob("*.py"))


def loaded_by(statements: str) -> set[str]:
    """Modules of this project, without bitverdict, that a fresh process has after `statements`."""
    check = f"{statements}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    return {name.removeprefix("bitverdict.") for name in done.stdout.split() if name.startswith("bitverdict.")}


@pytest.mark.compiles
def test_a_process_with_every_contract_has_no_emulator_and_no_judge() -> None:
    """Whatever they import by way of others."""
    stems = [path.stem for path in (CHECKOUT / "harness" / "contracts").glob("[a-z]*.py")]
    loaded = loaded_by("\n".join(f"import bitverdict.harness.contracts.{stem}" for stem in stems))
    assert f"harness.contracts.{stems[0]}" in loaded
    assert not [name for name in loaded if not under(name, ORACLE) and name not in ("harness", "_rooms")]


@pytest.mark.compiles
def test_the_package_itself_imports_nothing_that_is_slow() -> None:
    assert loaded_by("import bitverdict") == set()


SLOW = ("torch", "triton", "hypothesis", "pytest", "sympy", "torch.distributed.tensor", "torch._dynamo", "torch._inductor", "rich")
"""Packages that take a tenth of a second or more to import."""


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("statements", "allowed"),
    [
        ("from bitverdict.harness.frontends.main import parser; parser()", {"rich"}),
        ("import bitverdict.harness.emulator", {"torch", "triton"}),
    ],
    ids=["command line", "emulated GPU"],
)
def test_nothing_slow_is_imported_before_it_is_used(statements: str, allowed: set[str]) -> None:
    check = f"{statements}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert set(SLOW) & set(done.stdout.split()) == allowed


@pytest.mark.parametrize("room", MAY)
def test_each_room_imports_only_what_its_line_allows(room: str) -> None:
    assert (CHECKOUT / room).is_dir()
    wrong = [each for path in files() if path.startswith(room + "/") for each in offences(path, (CHECKOUT / path).read_text())]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", [path.name for path in (CHECKOUT / "harness").iterdir() if (path / "__init__.py").is_file()])
def test_each_folder_of_harness_is_a_room(folder: str) -> None:
    assert f"harness/{folder}" in MAY


WRONG = [
    ("kernels/x.py", "import bitverdict.reference.formats"),
    ("kernels/x.py", "from bitverdict.harness.judge import judge"),
    ("kernels/x.py", "import numpy"),
    ("kernels/x.py", "def f():\n    from hypothesis import given"),
    ("reference/x.py", "import torch"),
    ("reference/formats/x.py", "from bitverdict.kernels.matmul import matmul"),
    ("reference/x.py", "import ml_dtypes"),
    ("reference/x.py", "__import__('triton')"),
    ("reference/x.py", "import importlib\nimportlib.import_module('torch')"),
    ("reference/x.py", "from reference.formats import E4M3"),
    ("harness/model/x.py", "from bitverdict.harness.emulator import emulated"),
    ("harness/model/x.py", "from bitverdict.kernels import matmul"),
    ("harness/model/x.py", "import triton"),
    ("harness/emulator/x.py", "from bitverdict.harness.model.contract import Case"),
    ("harness/emulator/x.py", "from bitverdict.kernels import matmul"),
    ("harness/emulator/memory/x.py", "from ...model.contract import Case"),
    ("harness/contracts/x.py", "from bitverdict.harness.emulator import emulated"),
    ("harness/contracts/oracle/x.py", "from bitverdict.harness.judge import judge"),
    ("harness/contracts/x.py", "from bitverdict.harness.workers.process import Worker"),
    ("harness/contracts/x.py", "from bitverdict.harness import session"),
    ("harness/contracts/x.py", "from bitverdict.harness.lab.crosscheck import MOVED"),
    ("harness/contracts/inputs/x.py", "from ...emulator import emulated"),
    ("harness/contracts/x.py", "import bitverdict.harness.a_room_of_tomorrow"),
    ("harness/judge/x.py", "from bitverdict.harness.contracts.matmul import CONTRACT"),
    ("harness/judge/x.py", "from bitverdict.harness.workers.pool import WorkerPool"),
    ("harness/workers/x.py", "from bitverdict.harness.session.tally import Tally"),
    ("harness/session/x.py", "from bitverdict.harness.frontends import cli_run"),
    ("harness/frontends/x.py", "from bitverdict.harness.lab.crosscheck import MOVED"),
    ("harness/judge/x.py", "from bitverdict.harness.checks.provenance import held"),
    ("harness/judge/x.py", "from bitverdict.harness.sealed.isolation import JAIL"),
    ("harness/workers/x.py", "from bitverdict.harness.sealed.isolation import JAIL"),
    ("harness/session/x.py", "from bitverdict.harness.sealed.secret_draws import Secret"),
    ("harness/checks/x.py", "from bitverdict.harness.sealed.candidate.judge_side import SealedCaseLauncher"),
    ("harness/report/x.py", "from bitverdict.harness.lab.crosscheck import MOVED"),
    ("harness/frontends/x.py", "from tests.faults import mutants as mutated"),
    ("harness/frontends/x.py", "import pytest"),
    ("harness/frontends/x.py", "from bitverdict.harness.lab.size import main"),
    ("harness/lab/x.py", "from tests.support import shares"),
    ("harness/emulator/pytest_x.py", "import pytest"),
    ("harness/judge/x.py", "import scipy"),
    ("harness/tomorrow/x.py", "import json"),
]
PASS = [
    ("kernels/x.py", "import triton.language as tl\nfrom bitverdict.kernels.features import Feature"),
    ("reference/x.py", "import numpy as np\nfrom dataclasses import dataclass\nfrom .formats import E4M3"),
    (
        "harness/emulator/x.py",
        "from bitverdict.harness.emulator.memory.onchip import View\nimport bitverdict.reference.tensor_core",
    ),
    (
        "harness/contracts/x.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bitverdict.harness.emulator import Device",
    ),
    ("harness/contracts/oracle/x.py", "from bitverdict.reference.tensor_core import product\nfrom ...model.targets import Target"),
    ("harness/judge/x.py", "from bitverdict.harness.emulator import emulated"),
    ("harness/session/x.py", "from bitverdict.harness.workers.pool import WorkerPool"),
    ("harness/lab/x.py", "from bitverdict.harness.frontends.main import parser\nfrom tests.faults.corpus import COLLECTIONS"),
    ("harness/frontends/pytest_plugin.py", "import pytest"),
    ("tests/x.py", "import scipy"),
]


@pytest.mark.parametrize(("path", "line"), WRONG)
def test_a_wrong_import_fails(path: str, line: str) -> None:
    assert offences(path, line)


@pytest.mark.parametrize(("path", "line"), PASS)
def test_a_right_import_passes(path: str, line: str) -> None:
    assert not offences(path, line)
