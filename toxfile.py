"""The GPU environments judge the torch and Triton of the Python that runs tox, unless BITVERDICT_PYTHON names another one."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("BITVERDICT_PYTHON", sys.executable)
