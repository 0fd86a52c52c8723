"""Sealed runs as an `Isolation`: a confined process for the candidate, one for what executes its tile programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.protocols import Isolation, SeedSource
from bitverdict.harness.model.targets import Target
from bitverdict.harness.workers.start import Start

JAIL = "BITVERDICT_SEALED_JAIL"
"""The candidate's processes."""
EXECUTORS = "BITVERDICT_SEALED_EXECUTORS"
GPU_JAIL = "BITVERDICT_SEALED_GPU_JAIL"
"""On a GPU: those processes of the candidate that have it."""


class ProcessIsolation(Isolation):
    """The processes of `bitverdict.harness.sealed.processes`, and draws that depend on a secret."""

    def start_of(self, case: Case, start: Start, *, gpu: bool) -> Start:
        from bitverdict.harness.sealed.processes.jails import start_of

        return start_of(case.launcher, case.search_path, start, gpu=gpu)

    def install(self, target: Target, log: Path) -> str:
        from bitverdict.harness.sealed.processes.trio import install

        return install(target, log)

    def is_isolated(self, variables: Mapping[str, str]) -> bool:
        return JAIL in variables

    def begin(self, launcher: str) -> None:
        from bitverdict.harness.sealed.processes.candidate_descriptions import begin

        begin(launcher)

    def seeds(self) -> SeedSource:
        from bitverdict.harness.sealed.secret_draws import Secret

        return Secret.begin()
