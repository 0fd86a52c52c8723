"""``--on ray``: the cases of a command are judged by a Ray cluster (docs/fleets.md), and all else stays here."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bitverdict.harness.model.targets import Target, target, targets_called
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.session.reproducers import KNOBS
from bitverdict.harness.workers.forkserver import end_early
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool

if TYPE_CHECKING:
    from bitverdict.harness.workers.ray_pool import Cluster


def add_on(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on",
        choices=("here", "ray"),
        default="here",
        help="where cases are judged: on this machine, or by the Ray cluster at RAY_ADDRESS (docs/fleets.md)",
    )


def cluster(on: str) -> Cluster | None:
    """The cluster that is asked for; None where cases are judged here. UsageError where it cannot be had."""
    if on != "ray":
        return None
    from bitverdict.harness.workers.ray_pool import Cluster

    made = Cluster()
    end_early()  # of the workers of this machine
    return made


def machines(cluster: Cluster, named: Iterable[str], arch: str = "") -> list[Target]:
    """The targets of the cluster that are asked for: emulated ones, and ``cuda:N`` for the Nth model of GPU in it.

    UsageError for a GPU that the cluster does not have.
    """
    names = [f"cuda:{arch}"] if arch else list(named)
    if names and all(name.startswith("emulated:") for name in names):
        return targets_called(names)
    gpus = cluster.gpus()
    if not names:
        from bitverdict.harness.model.architectures import EMULATED_ARCHITECTURES

        return [target(f"emulated:{machine}") for machine in EMULATED_ARCHITECTURES] + gpus
    return targets_called(names, gpus)


def pool(
    cluster: Cluster | None, *, jobs: int, timeout: float, journal: Journal | None = None, files: Iterable[str | Path] = ()
) -> WorkerPool:
    """The worker pool of a command: of `cluster`, or of this machine with a place for each core where `jobs` is 0."""
    if cluster is None:
        return WorkerPool(jobs=jobs or len(os.sched_getaffinity(0)), timeout=timeout, journal=journal)
    from bitverdict.harness.workers.ray_pool import RayPool

    knobs = {name: os.environ.get(name) for name in KNOBS}
    return RayPool(cluster, jobs=jobs, timeout=timeout, journal=journal, knobs=knobs, files=[str(each) for each in files])


def check_trusted(on: str, sealed: bool) -> None:
    """UsageError for sealed cases on a cluster."""
    if on == "ray" and sealed:
        raise UsageError("--on ray --sealed: sealed cases are judged in a jail of this machine; leave one of them out")
