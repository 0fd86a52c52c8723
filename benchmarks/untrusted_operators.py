"""Torch's operators with arguments that lie: which of those that an executor runs for a candidate end its process.

Run: `python -m benchmarks.untrusted_operators [turns] [data_seed] [OPERATOR ...]` (40 turns of each; 2 cores take some minutes).
Each operator of aten that `harness/sealed/remote/operators.py` allows is called in a process of its own, with tensors of sizes
that do not fit, indices far outside, and numbers at the ends of their types. It may give a result or raise. Exit status 1 where a
process dies of a signal, with the operators by name: an index that nobody checks writes memory that is not the candidate's.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.campaign import run_script
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.sealed.remote.operator_arguments import check_given
from bitverdict.harness.sealed.remote.operators import operator

TURNS, SEED = 40, 17
SECONDS = 20  # of one process
MEMORY = 6 << 30
FAR = 1 << 33  # elements: outside of whatever a process has mapped beside a tensor
DTYPES = (torch.float32, torch.int64, torch.bool, torch.float16)
NUMBERS = (0, 1, 2, 3, 4, -1, 7, 1 << 20, -(1 << 31), (1 << 31) - 1, FAR, -FAR, (1 << 63) - 1)


def allowed() -> Iterator[Any]:
    """Every operator that is run for a candidate."""
    for name in sorted(dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, name)
        for overload in getattr(packet, "overloads", list)():
            try:
                yield operator(f"aten.{name}.{overload}")
            except EmulatedFault:
                continue


def tensor(draw: random.Random) -> torch.Tensor:
    """Small, of sizes that may not fit; integers are often far outside of anything."""
    sizes = draw.choice(
        ((), (3,), (4,), (2, 3), (3, 3), (2, 2), (2, 3, 4), (1, 2, 4, 4), (2, 2, 4, 4), (1, 1, 2, 4, 4), (0,), (64,))
    )
    kind = draw.random()
    if kind < 0.5:
        made = torch.ones(sizes, dtype=draw.choice((torch.float32, torch.float32, torch.float64)))
    elif kind < 0.95:
        made = torch.full(sizes, draw.choice((0, 1, 2, -1, FAR, -FAR, 1 << 30)), dtype=torch.int64)
        if draw.random() < 0.2:
            made = torch.full(sizes, draw.choice((0, 1, -1, (1 << 31) - 1, 1 << 20)), dtype=torch.int32)
    else:
        made = torch.ones(sizes, dtype=draw.choice((torch.bool, torch.uint8, torch.complex64)))
    return made


def value(kind: str, draw: random.Random) -> Any:
    """A value for the type `kind` of an argument in torch's schema."""
    if kind.startswith("Optional["):
        return None if draw.random() < 0.5 else value(kind[len("Optional[") : -1], draw)
    if kind.startswith("List["):
        inner, count = kind[len("List[") : -1], draw.choice((1, 2, 2, 3, 4))
        return [
            draw.choice((1, 2, 2, 3, 0)) if inner == "int" and draw.random() < 0.7 else value(inner, draw) for _ in range(count)
        ]
    if kind == "Tensor":
        return tensor(draw)
    if kind in ("ScalarType", "Layout", "MemoryFormat"):
        return draw.choice(
            {"ScalarType": DTYPES, "Layout": [torch.strided]}.get(kind, [torch.contiguous_format, torch.preserve_format])
        )
    if kind in ("int", "SymInt"):
        return draw.choice(NUMBERS) if draw.random() < 0.4 else draw.choice((0, 1, 2, 3, 4))
    if kind in ("float", "number"):
        return draw.choice((0.0, 1.0, 0.5, -1.0, 1e30, float("nan"), 2))
    if kind == "bool":
        return draw.random() < 0.5
    if kind == "str":
        return draw.choice(("sum", "mean", "none", "", "reflect", "max"))
    return None


def called(function: Any, draw: random.Random) -> None:
    """One call of `function`."""
    args, kwargs = [], {}
    for each in function._schema.arguments:
        if each.has_default_value() and draw.random() < 0.5:
            if each.kwarg_only:
                continue
            args.append(each.default_value)
            continue
        given = value(str(getattr(each, "real_type", each.type)), draw)
        if each.kwarg_only:
            kwargs[each.name] = given
        else:
            args.append(given)
    try:
        check_given(function, tuple(args), kwargs)
        function(*args, **kwargs)
    except Exception:
        pass


def dies(function: Any, seed: int, turns: int) -> int:
    """The signal that ends a process which calls `function` `turns` times; 0 where none does."""
    process = os.fork()
    if process == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
        signal.alarm(SECONDS)
        draw = random.Random(f"{function} {seed}")
        for _ in range(turns):
            called(function, draw)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    return -code if code < 0 and -code != signal.SIGALRM else 0


def main() -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else TURNS
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else SEED
    begun, count, dead = time.monotonic(), 0, list[str]()
    for function in allowed():
        if len(sys.argv) > 3 and not any(name in str(function) for name in sys.argv[3:]):
            continue
        count += 1
        if number := dies(function, seed, turns):
            dead.append(str(function))
            print(f"{function}: {signal.Signals(number).name}", flush=True)
    print(f"{count} operators, {turns} calls each, {time.monotonic() - begun:.0f} s: {len(dead)} end their process")
    return int(bool(dead))


if __name__ == "__main__":
    run_script(main)
