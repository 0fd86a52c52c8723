"""Imported by the forkserver before all else: while it imports, garbage is not looked for, which takes a sixth of the time.

`bitverdict.harness.workers.preload`, which it imports last, has it looked for again. What it and its forks
import is found where it is installed.
"""

from __future__ import annotations

import gc

from bitverdict.harness.model import trusted_imports

gc.disable()
trusted_imports.begin()
trusted_imports.forget_safe_path()
