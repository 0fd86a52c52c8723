"""Imported by the forkserver alone, after torch and Triton: the digest of Triton's own files, taken once for all its workers.

Triton puts it into the key of every compilation: 0.3 s over a libtriton of half a GB, which every worker would spend in its first
case. Triton keeps it for the life of a process, and a fork has what its parent kept. The files are those that the forkserver
imported.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError, OSError):  # a Triton that keeps it elsewhere: each worker takes its own, as Triton does
    from triton.runtime.cache import triton_key

    triton_key()
