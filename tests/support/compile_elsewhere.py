"""A shipped kernel compiled to machine code for an architecture that it is not for, in a worker: LLVM may end the process."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import torch

from bitverdict.harness.emulator.releases import lacking_name
from bitverdict.harness.judge.guarded_buffers import Guard, Poison
from bitverdict.harness.judge.offline_driver import capture_compilations
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.workers.task import TASK_RESULT

MADE_FOR = {"hopper_matmul": "sm_90", "tma_gather": "sm_100", "tma_scatter": "sm_100"}


def compile_for(stem: str, arch: str) -> None:
    """The first required case of `stem`, launched under a driver for `arch` that runs nothing."""
    contract = resolve(stem)
    module = contract.module  # type: ignore[attr-defined]
    case = contract.required(target(f"emulated:{MADE_FOR[stem]}"))[0]
    tensors = Guard(Poison.of_seed(0)).upload_all(contract.operands(case), torch.device("cpu"))
    for asks in ("require_features", "require"):
        with suppress(AttributeError):
            getattr(module, asks)
            setattr(module, asks, lambda *_, **__: None)
    with capture_compilations(arch):
        contract.launch(case, tensors, None)


def compiled(target: Target, given: Mapping) -> Verdict:
    """A task: what the compiler raises on `given` (stem, arch), or "compiled"."""
    told = "compiled"
    try:
        compile_for(given["stem"], given["arch"])
    except Exception as error:
        told = lacking_name(str(error)) or f"{type(error).__name__}: {error}"
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: told})
