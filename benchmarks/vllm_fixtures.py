"""Fixtures of vLLM's kernel tests from the `conftest.py` of all its tests, which imports the engine: the few that need none."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch


@pytest.fixture
def default_vllm_config() -> Iterator[Any]:
    config = import_module("vllm.config")
    given = config.VllmConfig()
    with config.set_current_vllm_config(given):
        yield given


@pytest.fixture
def workspace_init() -> Iterator[None]:
    workspace = import_module("vllm.v1.worker.workspace")
    workspace.init_workspace_manager(torch.device(0))
    yield
    workspace.reset_workspace_manager()
