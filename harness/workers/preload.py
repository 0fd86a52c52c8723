"""Imported by the forkserver alone, after torch and Triton: what its workers have from it, and would each do alone.

The digest of Triton's own files, which Triton puts into the key of every compilation: 0.3 s over a libtriton of half a GB, which
every worker would spend in its first case. It stays for the life of a process, and a fork has what its parent had. The files are
those that the forkserver imported.

What was imported is frozen: 260,000 objects, none of which ends before its worker does. A worker's collections then pass over what
its own cases made. They also come less often. Both together are 6 to 15 % of the time of a worker's cases.
"""

from __future__ import annotations

import atexit
import gc
from contextlib import suppress

from bitverdict.harness.workers.forkserver import COLLECTED_AFTER, collect_again

with suppress(ImportError, AttributeError, OSError):  # a Triton that keeps it elsewhere: each worker takes its own, as Triton does
    from bitverdict.harness.judge.devices import take_compiler_digest

    take_compiler_digest()

collect_again()
atexit.register(gc.unfreeze)  # or the bindings of Triton print a page of what was left, when the server ends
gc.set_threshold(*COLLECTED_AFTER)
