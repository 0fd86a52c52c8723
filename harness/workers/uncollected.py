"""Imported by the forkserver before all else: while it imports, garbage is not looked for, which takes a sixth of the time.

`bitverdict.harness.workers.preload`, which it imports last, has it looked for again.
"""

from __future__ import annotations

import gc

gc.disable()
