"""PTX executed beside its tile program, on one core: `python -m benchmarks.ptx_speed` prints the table of docs/ptx.md.

Element-wise kernels of everyday_kernels.py on 1,048,576 elements. An instruction counts once for each thread that takes it. Seconds
are of the processor, the least of five launches. Exit status 1 where one is below 50 million instructions of threads a second.

All are launched once before any is timed. The C library gives large arrays back to the system until enough were freed, so the first
kernel of a process faults the pages of its shadow memory in again in each launch: up to 10,000 pages, a third of its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.campaign import run_script
from benchmarks.everyday_kernels import pointwise_kernel, vector, vector_add_kernel
from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.ptx_machine.below_the_tile_program import PtxTwin
from bitverdict.harness.ptx_machine.threads import Threads

ELEMENTS, GOAL = 1 << 20, 50e6
KERNELS = {
    "vector add": vector(vector_add_kernel, ELEMENTS),
    "vector add, bf16": vector(vector_add_kernel, ELEMENTS, torch.bfloat16),
    **{kind: vector(pointwise_kernel, ELEMENTS, KIND=kind) for kind in ("axpy", "sigmoid", "gelu")},
}
HEAD = (
    "| kernel | instructions of threads | PTX | million a second | times the tile program's time |\n| --- | --- | --- | --- | --- |"
)


def main() -> int:
    run_block, taken, slow = Threads._block, [0], 0
    for launch in KERNELS.values():
        _launch(launch, PtxTwin())

    def counted(frame: Threads, block: Any, lanes: Any) -> Any:
        taken[0] += len(block.steps) * (frame.lanes if lanes is None else len(lanes))
        return run_block(frame, block, lanes)

    Threads._block = counted  # type: ignore[method-assign]
    print(HEAD)
    for name, launch in KERNELS.items():
        seconds: dict[bool, list[float]] = {False: [], True: []}  # without the PTX and with it
        for _, has_ptx in ((turn, has_ptx) for turn in range(5) for has_ptx in seconds):
            twin, taken[0], start = PtxTwin(), 0, time.process_time()
            _launch(launch, *([twin] if has_ptx else []))
            seconds[has_ptx].append(time.process_time() - start)
            assert all(result.words and not result.difference for result in twin.results)
        tile, ptx = min(seconds[False]), min(seconds[True]) - min(seconds[False])
        slow += taken[0] / ptx < GOAL
        print(f"| {name} | {taken[0]:,} | {ptx:.3f} s | {taken[0] / ptx / 1e6:.0f} | {ptx / tile:.1f} |", flush=True)
    return int(slow > 0)


def _launch(launch: Callable[[], object], *probes: PtxTwin) -> None:
    with emulated("sm_80", options=LaunchOptions(takes_cpu_tensors=True, probes=probes)):
        launch()


if __name__ == "__main__":
    run_script(main)
