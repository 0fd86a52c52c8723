"""One name for each module, and one place: what the three folders of the checkout do when they are imported.

`bitverdict/` holds links to `harness/`, `kernels/` and `reference/`, so that mypy and editors find `bitverdict.harness` wherever
`bitverdict` is found; Python needs none of them (`bitverdict/__init__.py`). Each folder's `__init__` calls `room`. It looks its
modules up where they really lie: a traceback, a kernel's line and a debugger name ``kernels/matmul.py``, a file that git knows.
And it refuses any other name: the folders lie on the path of a checkout too, and `kernels.matmul` beside
`bitverdict.kernels.matmul` would be two modules with two sets of classes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def room(name: str, path: Iterable[str]) -> list[str]:
    """The real folders of the package `name`, for its `__path__`. ImportError for a name outside `bitverdict`."""
    if name.startswith("bitverdict."):
        return [os.path.realpath(folder) for folder in path]
    if _other_package(name, [os.path.realpath(folder) for folder in path]):
        return []
    raise ModuleNotFoundError(f"{name}: is called bitverdict.{name}; import it by that name", name=name)


def _other_package(name: str, ours: list[str]) -> bool:
    """Whether a package of that name is installed beside the checkout, as Hugging Face's `kernels` may be: it is imported, then."""
    beside = [folder for folder in sys.path if os.path.realpath(os.path.join(folder or ".", name)) not in ours]
    spec = PathFinder.find_spec(name, beside)
    if spec is None or spec.loader is None:
        return False
    sys.modules[name] = module_from_spec(spec)  # import gives what stands here once the folder's own module has run
    spec.loader.exec_module(sys.modules[name])
    return True
