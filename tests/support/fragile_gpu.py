"""A GPU as it breaks, without one: a fault is sticky for its process, as a CUDA context's is, and may show in a later case.

Addressed as a contract (`ADDRESS`); its cases copy three numbers by torch and then do what they are asked to.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bitverdict.harness.judge.devices import device_of, target_device
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis

ADDRESS = "tests.support.fragile_gpu:CONTRACT"
_broken: list[str] = []  # what the device of this process says from now on
_judged: list[str] = []


@dataclass(frozen=True)
class FragileGpu(Target):
    """A target that is not emulated, on the CPU."""


@device_of.register(FragileGpu)
def _device_of(target: FragileGpu) -> torch.device:
    return torch.device("cpu")


@target_device.register(FragileGpu)
@contextmanager
def _entered(target: FragileGpu, schedule: str = "eager", tuning: str = "", **options: bool) -> Iterator[Any]:
    yield None
    if _broken:
        raise RuntimeError(f"CUDA error: {_broken[0]}")


FRAGILE = FragileGpu("cuda:0", "sm_90", 0)


@dataclass(frozen=True, kw_only=True)
class Problem:
    does: str = ""
    n: int = 0  # tells cases apart
    once: str = ""  # a file that is there after the first time: then nothing is done any more


class FragileContract(Contract):
    stem, address = "fragile_gpu", ADDRESS

    def operands(self, case: Case) -> list[Operand]:
        return [Operand(name="source", format="int32", codes=np.array([1, 2, case.problem.n], np.int32))]

    def launch(self, case: Case, tensors: Mapping, launcher: Callable | None) -> Mapping:
        problem = case.problem
        if problem.once and os.path.exists(problem.once):
            return {"out": tensors["source"].clone()}
        if problem.once:
            os.close(os.open(problem.once, os.O_CREAT))
        if problem.does == "fault":
            _broken.append("an illegal instruction was encountered")
        elif problem.does == "fault unless first" and _judged:
            _broken.append("an illegal memory access was encountered")
        elif problem.does == "damage" and _judged:  # judged right; the process dies in the case after it
            _judged.append("damaged")
        elif problem.does == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif problem.does == "kill the server":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(10)  # what the server forked dies with it
        elif problem.does == "leave":
            os._exit(255)  # what is said of a worker whose server was killed
        elif "damaged" in _judged:
            os.kill(os.getpid(), signal.SIGSEGV)
        _judged.append(problem.does)
        return {"out": tensors["source"].clone()}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        return [ExpectedOutput(name="out", format="int32", shape=(3,), words=operands["source"].codes, basis=Basis.EXACT)]

    def case_from_json(self, record: Mapping) -> Case:
        return Case(contract=ADDRESS, problem=Problem(**record["problem"]), config="torch")


CONTRACT = FragileContract()


def case(does: str = "", n: int = 0, *, once: str = "") -> Case:
    return Case(contract=ADDRESS, problem=Problem(does=does, n=n, once=once), config="torch")
