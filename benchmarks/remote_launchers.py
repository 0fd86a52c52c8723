"""Launchers in a process of their own give what they give in this one: kernels of the project, and ordinary lines around a kernel.

Run: `python benchmarks/remote_launchers.py [--cases 10] [KERNEL ...]`. Required cases of each kernel with a launcher are launched
here and through a channel, on every emulated target: outcome, message, details, words, real values, launches and what is recorded
must be equal. Of each idiom of `tests/support/remote_idioms.py`: values, types, strides and the device, or what it raises. The
other process is a fork without a jail. Exit status 1 where something differs.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.judge.classify import LaunchResult, outcome_of
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.devices import import_context
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.model.addresses import load, resolve
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.launcher_limits import check_launcher
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.sealed.remote.errors import CandidateRaised
from bitverdict.harness.sealed.remote.executor import Candidate
from tests.support.forked_candidate import forked_candidate

TARGETS = ("emulated:sm_80", "emulated:sm_90", "emulated:sm_100")
SAME = (
    "outcome",
    "layer",
    "message",
    "location",
    "dtypes",
    "hangs",
    "reads_allocated",
    "unordered",
    "launches",
    "recorded",
    "advice",
)
IDIOMS = "tests.support.remote_idioms:idiom"


def launcher_of(stem: str, contract: Contract) -> str | None:
    """The address of the kernel's own launcher; None where none takes what the contract hands over."""
    module = importlib.import_module(f"bitverdict.kernels.{stem}")
    own = [name for name, each in vars(module).items() if inspect.isfunction(each) and each.__module__ == module.__name__]
    for name in sorted((name for name in own if not name.startswith("_")), key=lambda name: name != stem):
        address = f"{module.__name__}:{name}"
        try:
            check_launcher(contract, address)
        except UsageError:
            continue
        return address
    return None


def differing(here: LaunchResult, there: LaunchResult) -> Iterator[str]:
    """What of a launch differs, in words."""
    for name in SAME:
        if getattr(here, name) != getattr(there, name):
            yield f"{name}: {getattr(here, name)!r:.200} here, {getattr(there, name)!r:.200} there"
    for name in (here.details.keys() | there.details.keys()) - {"traceback", "if this is meant"}:
        if here.details.get(name) != there.details.get(name):
            yield f"details: {name}: {here.details.get(name)!r:.200} here, {there.details.get(name)!r:.200} there"
    if here.outputs.keys() != there.outputs.keys() or here.real_values.keys() != there.real_values.keys():
        yield f"outputs {sorted(here.outputs)} here, {sorted(there.outputs)} there"
        return
    for name, words in here.outputs.items():
        if not np.array_equal(words, there.outputs[name]):
            yield f"words of {name}"
    for name, real in here.real_values.items():
        other = there.real_values[name]
        if not all(np.array_equal(*pair, equal_nan=True) for pair in ((real.value, other.value), (real.error, other.error))):
            yield f"real values of {name}"


def kernels(candidate: Candidate, stems: list[str], most: int) -> tuple[int, int]:
    """(cases, those that differ) of the kernels `stems`, all where there are none."""
    cases = wrong = 0
    for stem in stems or kernels_with_a_contract():
        contract = resolve(stem)
        if (address := launcher_of(stem, contract)) is None:
            continue
        begun, judged = time.perf_counter(), 0
        for there in map(target, TARGETS):
            if contract.lacking(there):
                continue
            remote, local = candidate.launcher(address, arch=there.arch), load(address)
            asked = [case for each in contract.required(there) if (case := contract.for_launcher(each, address)) is not None]
            for case in random.Random(0).sample(asked, min(most, len(asked))):
                operands = {each.name: each for each in contract.operands(case)}
                seen = [launch(case, there, contract, each, operands, Clock()) for each in (local, remote)]
                judged += 1
                if said := list(differing(*seen)):
                    wrong += 1
                    print(f"DIFFERS {stem} on {there.name}: {case.problem}: {'; '.join(said)}")
        cases += judged
        print(f"{stem:42} {judged:3} cases, {time.perf_counter() - begun:5.1f} s", flush=True)
    return cases, wrong


def alike(here: Any, there: Any) -> bool:
    if isinstance(here, torch.Tensor):
        kind = torch.complex128 if here.is_complex() else torch.float64
        return (
            isinstance(there, torch.Tensor)
            and (here.is_cuda, here.dtype, here.shape, here.stride()) == (there.is_cuda, there.dtype, there.shape, there.stride())
            and torch.equal(*(torch.nan_to_num(each.detach().cpu().to(kind)) for each in (here, there)))
        )
    if isinstance(here, dict):
        return here.keys() == there.keys() and all(alike(each, there[name]) for name, each in here.items())
    if isinstance(here, list | tuple):
        return len(here) == len(there) and all(map(alike, here, there))
    return bool(here == there)


def idioms(candidate: Candidate) -> tuple[int, int]:
    """(idioms, those that differ)."""
    with import_context(IDIOMS):
        known = importlib.import_module("tests.support.remote_idioms").IDIOMS
    remote, wrong = candidate.launcher(IDIOMS), 0
    for name, function in known.items():
        came: list[Any] = []
        launches = []
        for call in (function, lambda x, name=name: remote(name, x)):
            with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False)) as device:
                try:
                    came.append(call(device.place(torch.arange(100.0))))
                except Exception as error:
                    came.append(error)
            launches.append(len(device.launches))
        here, there = came
        if isinstance(here, Exception):
            seen = outcome_of(here)
            told = there.fields if isinstance(there, CandidateRaised) else {"outcome": "", "message": str(there)}
            same = isinstance(there, Exception) and (str(seen.outcome), seen.message) == (told["outcome"], told["message"])
        else:
            with emulated("sm_90"):
                same = not isinstance(there, Exception) and alike(here, there) and launches[0] == launches[1]
        if not same:
            wrong += 1
            print(f"DIFFERS {name}: {here!r:.300} here, {there!r:.600} there")
    return len(known), wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL")
    parser.add_argument("--cases", type=int, default=10, help="of a kernel on a target")
    told = parser.parse_args()
    with forked_candidate() as candidate:
        lines, wrong_lines = (0, 0) if told.kernels else idioms(candidate)
        cases, wrong = kernels(candidate, told.kernels, told.cases)
    print(f"{lines} idioms, {wrong_lines} differ; {cases} cases of kernels, {wrong} differ")
    return 1 if wrong or wrong_lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
