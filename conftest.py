"""The court's options and fixtures for every test; a GPU, where one is asked for, is leased before anything imports CUDA."""

from __future__ import annotations

pytest_plugins = ["harness.pytest_hooks"]
