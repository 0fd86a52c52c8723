"""What a worker does once, before its first case: the CUDA context, the kernels of torch that every case uses, Triton's driver, and
its part in compiling each kernel once.

Left to the first case, this is 0.2 s of context and 0.3 to 0.6 s of a first launch (H200), and after a fault it is paid again.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import triton
import triton.language as tl

from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.judge.compile_once import compile_once
from bitverdict.harness.judge.devices import device_of, target_device
from bitverdict.harness.judge.guarded_buffers import Guard, Poison, guarded_allocations, words
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import DEVICE_FAULTS, Basis, Decision, Outcome, Verdict

COUNT = 64
BLOCKING_SYNC = 4
"""CU_CTX_SCHED_BLOCKING_SYNC (CUDA driver API, CUctx_flags)."""


@triton.jit
def copy_kernel(source, out, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton looks names of annotations up
    place = tl.arange(0, COUNT)  # (COUNT,)
    tl.store(out + place, tl.load(source + place))


def warm(target: Target, addresses: Sequence[str]) -> None:
    """Import the contracts at `addresses`, and on a GPU take one small launch through all that a case goes through."""
    for address in addresses:
        with contextlib.suppress(Exception):  # the case that names it will say what is wrong with it
            resolve(address)
    if target.emulated:
        return
    import torch

    compile_once()
    sleep_while_the_gpu_works(device_of(target).index)
    guard = Guard(Poison.of_seed(0))
    uploaded = guard.upload(Operand(name="source", format="int32", codes=np.arange(COUNT, dtype=np.int32)), device_of(target))
    with target_device(target), guarded_allocations(guard):
        out: Any = torch.empty_like(uploaded)  # (COUNT,)
        copy_kernel[(1,)](uploaded, out, COUNT=COUNT)
    words(out)
    guard.out_of_bounds()


def sleep_while_the_gpu_works(index: int) -> None:
    """Have this process sleep where it waits for the device: CUDA by itself looks again and again, on a core that another worker
    compiles on. Before the context is made."""
    with contextlib.suppress(OSError, AttributeError):  # no CUDA here, or one without the function
        driver, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        if not driver.cuInit(0) and not driver.cuDeviceGet(ctypes.byref(device), index):
            driver.cuDevicePrimaryCtxSetFlags_v2(device, BLOCKING_SYNC)


def settle_device(verdict: Verdict, target: Target) -> Verdict:
    """The verdict, once nothing of its case runs on the device any more.

    `judge` waits for the device after a launch that returned; a launcher that raised may have left one behind, whose fault would
    otherwise be found in the next case.
    """
    if target.emulated or verdict.outcome in DEVICE_FAULTS:
        return verdict
    import torch

    if not torch.cuda.is_initialized():
        return verdict
    try:
        torch.cuda.synchronize()
    except Exception as error:
        launch_result = outcome_of(error)
        first_fault = f"{verdict.outcome}: {verdict.message}" if verdict.message else str(verdict.outcome)
        return replace(
            verdict,
            decision=Decision.FAIL,
            outcome=launch_result.outcome or Outcome.LAUNCH_FAILURE,
            message=launch_result.message,
            basis=Basis.OBSERVED_FAULT,
            details=dict(verdict.details, first=first_fault, layer="hardware"),
        )
    return verdict
