"""Which machines a pytest session judges on, how many workers its GPUs have room for, and the seed of its draws.

Nothing here imports torch: pytest-xdist's controller, which judges nothing, is to start its workers in a second."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from bitverdict.harness.frontends.project_settings import project_settings
from bitverdict.harness.model import architectures
from bitverdict.harness.model.targets import gpus_called, is_leased, show_workers, target, targets
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.workers.gpu_lease import PREFERRED_PLACES, free_places

T = TypeVar("T")
BY_DEFAULT = tuple(f"emulated:{arch}" for arch in architectures.BY_DEFAULT)


def target_names(config: pytest.Config) -> list[str]:
    """What `--bv-target` names; where it is not given ``[tool.bitverdict]``, else the emulated GPUs that are judged by default."""
    return list(dict.fromkeys(config.getoption("--bv-target") or project_settings().get("targets", ()))) or list(BY_DEFAULT)


def gpu_names(config: pytest.Config) -> list[str]:
    """Of these the names of GPUs, emulated ones left out."""
    return [name for name in target_names(config) if name.startswith("cuda")]


def base_seed(config: pytest.Config) -> int:
    """`--hypothesis-seed`, else 0."""
    given = config.getoption("--hypothesis-seed", default=None)
    return int(given) if given not in (None, "") and str(given).lstrip("-").isdigit() else 0


def check_targets(config: pytest.Config) -> None:
    """pytest's usage error for a target that is not here."""
    for name in target_names(config):
        _find_target(gpus_called, name) if is_leased(name) else _find_target(target, name)


def workers(config: pytest.Config) -> int:
    """One worker a core, but no more than the GPUs' free memory has room for, where GPUs are asked for. The workers are told which
    GPUs there are, and which places on them they were counted for."""
    cores = len(os.sched_getaffinity(0))
    found = {gpu.index: gpu for name in gpu_names(config) for gpu in _find_target(gpus_called, name)}
    if not found:
        return cores
    show_workers(targets())
    places = free_places(list(found.values()))[:cores]
    os.environ[PREFERRED_PLACES] = ",".join(map(str, places))
    return max(1, len(places))


def _find_target(find: Callable[[str], T], name: str) -> T:
    """`find` of what the command line asked: none here is a usage error, before and after xdist counts its workers."""
    try:
        return find(name)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
