"""Determinism and batch invariance of kernels: which cases are asked, the tasks of workers, and docs/invariance.md."""
