"""The harness's options and fixtures for every test; a GPU, where one is asked for, is leased before anything imports CUDA."""

from __future__ import annotations

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores already: a second thread for filling 100 kB of guard bands waits for its turn (0.9 ms against 3 us).
    # Before anything imports NumPy or torch, which read this once.
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

pytest_plugins = ["bitverdict.harness.frontends.pytest_options", "bitverdict.harness.frontends.pytest_plugin"]
