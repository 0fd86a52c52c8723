"""A shipped kernel compiled to machine code for an architecture that it is not for.

    python -m tests.support.compile_elsewhere hopper_matmul sm_80

Prints what the compiler raises; some of it ends the process instead (LLVM's own abort).
"""

from __future__ import annotations

import sys
from contextlib import suppress

import torch

from bitverdict.harness.judge.guarded_buffers import Guard, Poison
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.studies.offline_compile.driver import compiling

MADE_FOR = {"hopper_matmul": "sm_90", "tma_gather": "sm_100", "tma_scatter": "sm_100"}


def compile_for(stem: str, arch: str) -> None:
    """The first required case of `stem`, launched under a driver for `arch` that runs nothing."""
    contract = resolve(stem)
    module = contract.module  # type: ignore[attr-defined]
    case = contract.required(target(f"emulated:{MADE_FOR[stem]}"))[0]
    tensors = Guard(Poison.of(0)).upload_all(contract.operands(case), torch.device("cpu"))
    for asks in ("require_features", "require"):
        with suppress(AttributeError):
            getattr(module, asks)
            setattr(module, asks, lambda *_, **__: None)
    with compiling(arch):
        contract.launch(case, tensors, None)


if __name__ == "__main__":
    try:
        compile_for(*sys.argv[1:])
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(1)
    print("compiled")
