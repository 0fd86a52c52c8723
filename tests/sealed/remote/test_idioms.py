"""Contract under test: ordinary lines around a kernel give in a candidate's process what they give here, or raise the same."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.judge.classify import outcome_of
from bitverdict.harness.judge.devices import import_context
from bitverdict.harness.sealed.remote.errors import CandidateRaised
from tests.support.forked_candidate import forked_candidate

IDIOMS = "tests.support.remote_idioms:idiom"


def alike(here: Any, there: Any) -> bool:
    """Whether two values are equal, tensors by words, types, strides and the device."""
    if isinstance(here, torch.Tensor):
        kind = torch.complex128 if here.is_complex() else torch.float64
        return (
            isinstance(there, torch.Tensor)
            and (here.is_cuda, here.dtype, here.shape, here.stride()) == (there.is_cuda, there.dtype, there.shape, there.stride())
            and torch.equal(*(torch.nan_to_num(tensor.detach().cpu().to(kind)) for tensor in (here, there)))
        )
    if isinstance(here, dict):
        return here.keys() == there.keys() and all(alike(value, there[name]) for name, value in here.items())
    if isinstance(here, list | tuple):
        return len(here) == len(there) and all(map(alike, here, there))
    return bool(here == there)


def result_of(call: Callable[[torch.Tensor], Any]) -> tuple[Any, int]:
    """What `call` gives or raises on a device of its own, and how many launches it made."""
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False)) as device:
        try:
            result = call(device.place(torch.arange(100.0)))
        except Exception as error:
            result = error
    return result, len(device.launches)


def differs(here: tuple[Any, int], there: tuple[Any, int]) -> bool:
    """Whether results differ, or launches; of an exception its outcome and message."""
    if isinstance(here[0], Exception):
        seen = outcome_of(here[0])
        fields = there[0].fields if isinstance(there[0], CandidateRaised) else {"outcome": "", "message": str(there[0])}
        return not isinstance(there[0], Exception) or (str(seen.outcome), seen.message) != (fields["outcome"], fields["message"])
    with emulated("sm_90"):
        return isinstance(there[0], Exception) or not alike(here[0], there[0]) or here[1] != there[1]


def test_an_idiom_gives_in_another_process_what_it_gives_here() -> None:
    with import_context(IDIOMS):
        known = importlib.import_module("tests.support.remote_idioms").IDIOMS
    with forked_candidate() as candidate:
        remote = candidate.launcher(IDIOMS)
        results = {name: (result_of(call), result_of(lambda x, name=name: remote(name, x))) for name, call in known.items()}
    assert len(known) > 100 and not {name: sides for name, sides in results.items() if differs(*sides)}
