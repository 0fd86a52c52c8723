"""One name for each module, and one place: what the three folders of the checkout do when they are imported.

`bitverdict/` holds links to `harness/`, `kernels/` and `reference/`, so that mypy and editors find `bitverdict.harness` wherever
`bitverdict` is found; Python needs none of them (`bitverdict/__init__.py`). Each folder's `__init__` calls `room`. It looks its
modules up where they really lie: a traceback, a kernel's line and a debugger name ``kernels/matmul.py``, a file that git knows.
And it refuses any other name: the folders lie on the path of a checkout too, and `kernels.matmul` beside
`bitverdict.kernels.matmul` would be two modules with two sets of classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable


def room(name: str, path: Iterable[str]) -> list[str]:
    """The real folders of the package `name`, for its `__path__`. ImportError for a name outside `bitverdict`."""
    if name.startswith("bitverdict."):
        return [os.path.realpath(folder) for folder in path]
    raise ImportError(f"{name}: is called bitverdict.{name}; import it by that name", name=name)
