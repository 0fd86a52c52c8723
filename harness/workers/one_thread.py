"""Processes that compute on one thread each, because there is one of them a core.

The libraries read these variables when they are loaded, which a spawned process does before any code of ours runs in it: they must
be set where it is started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def one_thread() -> Iterator[None]:
    """What is started in here has one thread for each of NumPy's and torch's operations; afterwards the variables are as before."""
    earlier = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(dict.fromkeys(VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in earlier.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
