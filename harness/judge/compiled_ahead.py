"""The kernels that a case will launch on a GPU, compiled by a process that needs none: the case's own launch, with nothing run.

What is compiled stays in Triton's cache, where the worker of the case finds it. The launch is made on CPU tensors that lie as those
of the case do, under a driver that names the GPU's architecture (`bitverdict.harness.judge.offline_driver`). A note in that cache
says that a case is done; it ends with the cache, and is void once a kernel, a contract or Triton is another.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict

BUSY = "compiled by another process now"
DECIDED_BY = ("kernels", "harness/contracts", "harness/judge/offline_driver.py")  # sources on which a launch's kernels depend


def can_be(case: Case, target: Target) -> bool:
    """Whether the kernels of `case` are known before its launch on a GPU: not those of a launcher that a user handed in."""
    return not target.emulated and not case.launcher and not case.sealed and not resolve(case.contract).any_launcher


def is_done(case: Case, arch: str) -> bool:
    """Whether an earlier process compiled all that `case` launches on `arch`, and the cache has it still."""
    return _note(case, arch).exists()


def compile_case(target: Target, request: Mapping[str, Any]) -> Verdict:
    """Compile what the case of `request` launches on ``request["arch"]``. A task of a worker; `target` is that worker's and not
    used.

    Passes where all is compiled; "not run" with `BUSY` where another process has one of the kernels in work. Any other end is the
    launch's own, such as a refusal, which the judge of the case meets again and names: here it stands in the message alone.
    """
    import torch

    from bitverdict.harness.judge.compile_once import CompiledElsewhere, compile_once, without_waiting
    from bitverdict.harness.judge.guarded_buffers import Guard, Poison, guarded_allocations
    from bitverdict.harness.judge.launch import own_cache
    from bitverdict.harness.judge.offline_driver import capture_compilations

    contract = resolve(request["case"]["contract"])
    case, arch = contract.case_from_json(dict(request["case"])), request["arch"]
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    note, failure = _note(case, arch), ""
    operands = {operand.name: operand for operand in contract.operands(case)}
    compile_once()
    guard = Guard(Poison.of_seed(case.data_seed))
    try:
        with own_cache(case), without_waiting(), guarded_allocations(guard), capture_compilations(arch, tries=True):
            contract.launch(case, guard.upload_all(operands.values(), torch.device("cpu")), None)
    except CompiledElsewhere:
        return _end(BUSY)
    except Exception as error:  # the judge of the case meets it again, and names it
        failure = f"{type(error).__name__}: {str(error)[:300]}"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()
    return _end(failure) if failure else Verdict(decision=Decision.PASS, outcome=Outcome.PASS, basis=Basis.NO_BASIS)


def _end(message: str) -> Verdict:
    return Verdict(decision=Decision.NOT_RUN, outcome=Outcome.NOT_RUN, message=message, basis=Basis.NO_BASIS)


def _note(case: Case, arch: str) -> Path:
    from triton import __version__, knobs

    environment = {"TRITON_DEFAULT_FP_FUSION": "1"} | {
        name: text for name, text in os.environ.items() if name.startswith("TRITON_")
    }
    environment.pop("TRITON_CACHE_DIR", None)
    depends = (
        case.contract,
        repr(case.problem),
        repr(case.config),
        case.tuning,
        arch,
        __version__,
        str(ROOT),
        str(sorted(environment.items())),
    )
    digest = hashlib.sha256("\0".join((*depends, _sources())).encode()).hexdigest()
    return Path(knobs.cache.dir) / "bitverdict-ahead" / digest


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for place in DECIDED_BY:
        for path in sorted((ROOT / place).rglob("*.py")) or [ROOT / place]:
            digest.update(path.read_bytes())
    return digest.hexdigest()
