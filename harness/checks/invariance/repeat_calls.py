"""The same call in other surroundings: again, with other neighbours in memory, under another schedule, on another stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bitverdict.harness.checks.invariance.calls import PLAIN_SURROUNDINGS, SHIFT, Call, Caller, Surroundings
from bitverdict.harness.checks.invariance.invariance_finding import End, InvarianceFinding
from bitverdict.harness.checks.invariance.relation import Relation, compare_calls, identity_map
from bitverdict.harness.judge.devices import device_of, target_device
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, nearest_emulated
from bitverdict.harness.model.verdict import Outcome

REPEAT_NAMES = ("a second call", "a third call")
REPLAYS = 3
SCHEDULES = ("latest", "drawn:1", "drawn:2")
MULTIPROCESSORS = (1, 3, 7)
OF_ITS_PROCESS = "streams and graphs are of the sealed launcher's own process"


@dataclass(frozen=True)
class Variation:
    """One other way to make a call: `check` names what it belongs to."""

    check: str
    difference: str
    around: Surroundings = PLAIN_SURROUNDINGS
    schedule: str = ""

    def apply_to(self, case: Case) -> Case:
        return replace(case, schedule=self.schedule) if self.schedule else case


def variations(target: Target) -> list[Variation]:
    """All that a target can be asked."""
    all_variations = [Variation("repeat", which) for which in REPEAT_NAMES]
    all_variations += [Variation("neighbours", f"other bytes beside the operands ({n})", Surroundings(poison=n)) for n in (1, 2)]
    all_variations.append(
        Variation("neighbours", "the operands in the opposite order in memory", Surroundings(opposite_order=True))
    )
    all_variations.append(Variation("alignment", f"each operand {SHIFT} bytes further", Surroundings(shift=SHIFT)))
    if target.emulated:
        all_variations += [Variation("schedules", f"the schedule {name}", schedule=name) for name in SCHEDULES]
        all_variations += [
            Variation("multiprocessors", f"{count} multiprocessor{'s' * (count > 1)}", schedule=f"eager on {count}")
            for count in MULTIPROCESSORS
        ]
    else:
        all_variations.append(Variation("stream", "another stream", Surroundings(enter_target=on_another_stream)))
        all_variations.append(
            Variation("graph", f"a CUDA graph, replayed {REPLAYS} times", Surroundings(enter_target=graph_replay))
        )
    return all_variations


def repeat_findings(caller: Caller, first_call: Call, checks: frozenset[str]) -> Iterator[InvarianceFinding]:
    """A finding for each variation of `first_call` whose check is one of `checks`.

    Other words are a failure. Where the order of atomics or the number of multiprocessors decides, they are information, unless the
    kernel is promised to be deterministic."""
    promises = caller.promises.deterministic
    for variation in variations(caller.target):
        if variation.check not in checks:
            continue
        if caller.is_sealed and variation.around.enter_target is not target_device:
            yield InvarianceFinding(
                check=variation.check, end=End.NOT_APPLICABLE, changed=variation.difference, reason=OF_ITS_PROCESS
            )
            continue
        call = caller.call(variation.apply_to(first_call.case), first_call.operands, variation.around)
        maps = dict.fromkeys(first_call.outputs(), identity_map)
        free = bool(first_call.launch_result.order_hazard) or variation.check == "multiprocessors"
        relation = Relation(variation.check, variation.difference, maps, same_call=True, is_promised=promises or not free)
        if variation.check == "graph" and call.launch_result.outcome in (
            Outcome.LAUNCHER_ERROR,
            Outcome.LAUNCH_FAILURE,
            Outcome.REFUSED,
        ):
            reason = f"the call cannot be captured: {call.launch_result.message}".partition("\n")[0]
            yield InvarianceFinding(check=variation.check, end=End.NOT_APPLICABLE, changed=variation.difference, reason=reason)
            continue
        found = compare_calls(relation, caller, first_call, call)
        if found.fails and found.end is End.DIFFERS and not promises and (said := _open_order_reason(caller, first_call)):
            found = replace(found, promised=False, cause=f"{said}: the order in which they come decides")
        yield found


def _open_order_reason(caller: Caller, first_call: Call) -> str:
    """What in the programs of a call on a real GPU leaves the order open, as the emulated GPU like it sees them. Empty where
    nothing does, or where it cannot launch the call."""
    if caller.target.emulated:
        return ""
    there = Caller(caller.contract, nearest_emulated(caller.target.arch), caller.launcher)
    return there.call(first_call.case, first_call.operands).launch_result.order_hazard


@contextmanager
def on_another_stream(target: Target, *how: Any, **options: Any) -> Iterator[Any]:
    """A real GPU whose current stream is a new one."""
    import torch

    with target_device(target, *how, **options) as device, torch.cuda.stream(torch.cuda.Stream(device_of(target))) as stream:
        yield device
        del stream
        torch.cuda.current_stream().synchronize()


@contextmanager
def graph_replay(target: Target, *how: Any, **options: Any) -> Iterator[Any]:
    """A real GPU on which what is launched is captured, and then replayed `REPLAYS` times."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with target_device(target, *how, **options) as device:
        with torch.cuda.graph(graph):
            yield device
        for _ in range(REPLAYS):
            graph.replay()
        torch.cuda.synchronize()
