"""The candidate's process on a real GPU: it is given bytes, uploads them, calls the candidate, and gives bytes back.

It holds no contract. Its device memory is guarded and poisoned as an unsealed worker's is; what it says of guards, launches and
operators is the word of a process that has imported the candidate. The verdict says so: provenance is not observed.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bitverdict.harness.emulator.autotuning import tuned
from bitverdict.harness.emulator.remote.channel import Channel
from bitverdict.harness.emulator.remote.errors import ChannelClosed
from bitverdict.harness.judge.guarded_buffers import Guard, Poison, guarded_allocations
from bitverdict.harness.judge.launched_instructions import remember, watched
from bitverdict.harness.judge.sealed.arrays import LIMITS, receive, send
from bitverdict.harness.judge.sealed.candidate import Loaded
from bitverdict.harness.judge.sealed.description import described
from bitverdict.harness.judge.sealed.tensors_as_bytes import Sent, received, words_of

MOVES = frozenset(
    "aten::empty aten::empty_like aten::empty_strided aten::zeros aten::zeros_like aten::ones aten::full aten::fill_ aten::zero_ "
    "aten::copy_ aten::_to_copy aten::clone aten::view aten::_unsafe_view aten::reshape aten::as_strided aten::t aten::transpose "
    "aten::permute aten::expand aten::slice aten::select aten::squeeze aten::unsqueeze aten::detach aten::alias aten::contiguous "
    "aten::new_empty aten::new_zeros aten::lift_fresh aten::set_".split()
)
"""Operators that move words, or fill with one: all others compute some."""


class Computing(TorchDispatchMode):
    """Counts the operators of torch that compute words, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := func._schema.name) not in MOVES:
            self.counted[name] += 1
        return func(*args, **(kwargs or {}))


Entering = Callable[[torch.device], AbstractContextManager[Any]]


def serve(
    connected: socket.socket, device: str = "cuda:0", entering: Entering = torch.cuda.device, candidate: Loaded | None = None
) -> None:
    """Answer the executor's requests until it closes its end. `device`: where the candidate's tensors lie. `entering` makes it the
    one that launches run on."""
    channel, candidate = Channel(connected, LIMITS), candidate or Loaded()
    remember()
    while True:
        try:
            request, arrays = receive(channel)
        except ChannelClosed:
            return
        back: dict[str, Any] = {}
        try:
            launcher = candidate.load(request["address"], False, request["folders"])
            answer = (
                _said(launcher)
                if request["do"] == "load"
                else _called(launcher, request, arrays, (torch.device(device), entering), back)
            )
        except BaseException as error:
            answer = {"raised": candidate.told(error)}
        send(channel, answer, back)


def _said(launcher: Any) -> dict[str, Any]:
    """What the launcher says of itself, as `described` tells it of one that is asked from afar."""

    class Told:
        __name__ = getattr(launcher, "__name__", type(launcher).__name__)
        kind, callable = type(launcher).__name__, callable(launcher)
        claims, requires = getattr(launcher, "claims", None), getattr(launcher, "requires", None)

        def __init__(self) -> None:
            import inspect

            try:
                self.__signature__ = inspect.signature(launcher)
            except (TypeError, ValueError):
                pass

        def __call__(self) -> None: ...

    return described(Told())


def _called(
    launcher: Any, request: dict[str, Any], arrays: dict[str, Any], where: tuple[torch.device, Entering], back: dict[str, Any]
) -> dict:
    """One call; what goes back are the given storages, as they are afterwards, and the words of what was made."""
    device, entering = where
    storages = [torch.from_numpy(arrays[f"storage {place}"].copy()).to(device) for place in range(request["storages"])]
    args, kwargs = (received(request[name], storages, arrays, device) for name in ("args", "kwargs"))
    guard, operators = Guard(Poison(*request["poison"])), Computing()
    choosing: Any = tuned(request["tuning"]) if request["tuning"] else nullcontext([])
    with guarded_allocations(guard), entering(device) as there, choosing as told, watched() as launched, operators:
        made = launcher(*args, **dict(kwargs))
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    outside = guard.out_of_bounds()
    result = Sent([each.untyped_storage() for each in storages], lambda tensor: words_of(tensor, back))(made)
    back |= {f"storage {place}": storage.cpu().numpy() for place, storage in enumerate(storages)}
    known = [each for each in launched if each is not None]
    return {
        "result": result,
        "launches": len(launched) + len(getattr(there, "launches", None) or ()),
        "instructions": sorted({one for each in known for one in each}) if len(known) == len(launched) else None,
        "tuned": [vars(each) for each in {choice.kernel: choice for choice in told}.values()],
        "operators": sorted(operators.counted.items()),
        "outside": None if outside is None else [str(outside.outcome), outside.message],
    }
