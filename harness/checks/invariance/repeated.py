"""The same call in other surroundings: again, with other neighbours in memory, under another schedule, on another stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bitverdict.harness.checks.invariance.calls import PLAIN, SHIFT, Call, Caller, Surroundings
from bitverdict.harness.checks.invariance.finding import End, Finding
from bitverdict.harness.checks.invariance.relation import Relation, held, same
from bitverdict.harness.judge.devices import device_of, entered
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, nearest_emulated
from bitverdict.harness.model.verdict import Outcome

AGAIN = ("a second call", "a third call")
REPLAYS = 3
SCHEDULES = ("latest", "drawn:1", "drawn:2")
MULTIPROCESSORS = (1, 3, 7)
OF_ITS_PROCESS = "streams and graphs are of the sealed launcher's own process"


@dataclass(frozen=True)
class Variation:
    """One other way to make a call: `check` names what it belongs to."""

    check: str
    changed: str
    around: Surroundings = PLAIN
    schedule: str = ""

    def of(self, case: Case) -> Case:
        return replace(case, schedule=self.schedule) if self.schedule else case


def variations(target: Target) -> list[Variation]:
    """All that a target can be asked."""
    made = [Variation("repeat", which) for which in AGAIN]
    made += [Variation("neighbours", f"other bytes beside the operands ({n})", Surroundings(poison=n)) for n in (1, 2)]
    made.append(Variation("neighbours", "the operands in the opposite order in memory", Surroundings(reordered=True)))
    made.append(Variation("alignment", f"each operand {SHIFT} bytes further", Surroundings(shift=SHIFT)))
    if target.emulated:
        made += [Variation("schedules", f"the schedule {name}", schedule=name) for name in SCHEDULES]
        made += [
            Variation("multiprocessors", f"{count} multiprocessor{'s' * (count > 1)}", schedule=f"eager on {count}")
            for count in MULTIPROCESSORS
        ]
    else:
        made.append(Variation("stream", "another stream", Surroundings(entering=on_another_stream)))
        made.append(Variation("graph", f"a CUDA graph, replayed {REPLAYS} times", Surroundings(entering=replayed)))
    return made


def repeated(caller: Caller, first: Call, checks: frozenset[str]) -> Iterator[Finding]:
    """A finding for each variation of the call `first` whose check is one of `checks`.

    Other words are a failure. Where the order of atomics or the number of multiprocessors decides, they are information, unless the
    kernel is promised to be deterministic."""
    promises = caller.promises.deterministic
    for each in variations(caller.target):
        if each.check not in checks:
            continue
        if caller.sealed and each.around.entering is not entered:
            yield Finding(check=each.check, end=End.NOT_APPLICABLE, changed=each.changed, reason=OF_ITS_PROCESS)
            continue
        call = caller.call(each.of(first.case), first.operands, each.around)
        maps = dict.fromkeys(first.outputs(), same)
        free = bool(first.launch_result.unordered) or each.check == "multiprocessors"
        relation = Relation(each.check, each.changed, maps, same_call=True, promised=promises or not free)
        if each.check == "graph" and call.launch_result.outcome in (
            Outcome.LAUNCHER_ERROR,
            Outcome.LAUNCH_FAILURE,
            Outcome.REFUSED,
        ):
            reason = f"the call cannot be captured: {call.launch_result.message}".partition("\n")[0]
            yield Finding(check=each.check, end=End.NOT_APPLICABLE, changed=each.changed, reason=reason)
            continue
        found = held(relation, caller, first, call)
        if found.fails and found.end is End.DIFFERS and not promises and (said := _unordered(caller, first)):
            found = replace(found, promised=False, cause=f"{said}: the order in which they come decides")
        yield found


def _unordered(caller: Caller, first: Call) -> str:
    """What in the programs of a call on a real GPU leaves the order open, as the emulated GPU like it sees them. Empty where
    nothing does, or where it cannot launch the call."""
    if caller.target.emulated:
        return ""
    there = Caller(caller.contract, nearest_emulated(caller.target.arch), caller.launcher)
    return there.call(first.case, first.operands).launch_result.unordered


@contextmanager
def on_another_stream(target: Target, *how: Any, **options: Any) -> Iterator[Any]:
    """A real GPU whose current stream is a new one."""
    import torch

    with entered(target, *how, **options) as device, torch.cuda.stream(torch.cuda.Stream(device_of(target))) as stream:
        yield device
        del stream
        torch.cuda.current_stream().synchronize()


@contextmanager
def replayed(target: Target, *how: Any, **options: Any) -> Iterator[Any]:
    """A real GPU on which what is launched is captured, and then replayed `REPLAYS` times."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with entered(target, *how, **options) as device:
        with torch.cuda.graph(graph):
            yield device
        for _ in range(REPLAYS):
            graph.replay()
        torch.cuda.synchronize()
