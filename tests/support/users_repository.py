"""A repository of a user's: kernels as users write them, with wrong twins, and tests of them by the public functions.

It has packages called `kernels`, `reference` and `harness`, as theirs have.
"""

from __future__ import annotations

from pathlib import Path

KERNELS = (Path(__file__).parent / "users_kernels.txt").read_text()

TESTS = (Path(__file__).parent / "users_tests.txt").read_text()
FILES = {
    "kernels/__init__.py": "",
    "kernels/rows.py": KERNELS,
    "reference/__init__.py": "def mine():\n    return 'reference of the user'\n",
    "harness/__init__.py": "",
    "harness/checks.py": "from . import __name__ as package\n",
    "tests/__init__.py": "from harness.checks import package\nassert package == 'harness'\n",
    "tests/test_rows.py": "from reference import mine\nfrom . import package\nassert mine()\n" + TESTS.format(
        kernels="kernels.rows", file="../kernels/rows.py"
    ),
}  # fmt: skip
FLAT = {"mykernels.py": KERNELS, "my_tests.py": TESTS.format(kernels="mykernels", file="mykernels.py")}
"""The same without packages: what a test of ours may import, beside the rooms."""


def make(folder: Path, files: dict[str, str] = FILES) -> Path:
    """The repository, in `folder`."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
