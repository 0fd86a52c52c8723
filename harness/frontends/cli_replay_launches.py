"""``bitverdict replay-launches``: what scripts and tests launch on the emulated GPU, again on a real one, byte for byte."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bitverdict.harness.model.usage import UsageError

EXIT_EQUAL, DIFFERS, EXIT_NOTHING = 0, 1, 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("tasks", nargs="*", metavar="TASK", help="'FILE.py ARGS', '-m MODULE ARGS' or 'pytest ARGS', quoted")
    add("--tasks-from", type=Path, metavar="FILE", help="more of them, one a line")
    add("--on", default="cuda:0", metavar="MACHINE", help="what replays: cuda:N, or emulated:sm_NN to try it out")
    add("--arch", default="", metavar="sm_NN", help="of the emulated GPU (default: that of the machine that replays)")
    add("--jobs", type=int, default=1, metavar="N", help="tasks that run at once (default 1)")
    add("--configurations", nargs="+", default=["first"], metavar="C",
                        help="of autotuned kernels: 'first', and numbers, taken besides where there is an autotuner")  # fmt: skip
    add("--seconds", type=float, default=300.0, metavar="S", help="the limit of a task (default 300)")
    add("--whole", type=float, default=0.0, metavar="S", help="the limit of the run (default: none)")
    add("--results", type=Path, metavar="FILE", help="a line of JSON a launch; goes on where it ended")
    add("--cpu-tensors", action="store_true", help="launches may be given tensors of the CPU")


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 where all words are equal, 1 where some differ, lie outside their bounds or were lost, 5 where none were
    compared."""
    import torch

    from bitverdict.harness.emulator import LaunchOptions
    from bitverdict.harness.ptx_machine.open_words import OpenWords
    from bitverdict.harness.report.launch_replay.campaign import Run, carry_out, tuning_of
    from bitverdict.harness.report.launch_replay.scripts import task_of
    from bitverdict.harness.report.launch_replay.summary import lines, sum_rows

    task_lines = list(arguments.tasks)
    if arguments.tasks_from is not None:
        if not arguments.tasks_from.is_file():
            raise UsageError(f"--tasks-from {arguments.tasks_from}: no such file; give one with a task a line")
        task_lines += [line for line in arguments.tasks_from.read_text().splitlines() if line.strip()]
    if not task_lines:
        raise UsageError("no task: give 'FILE.py', '-m MODULE' or 'pytest FILE', each with its arguments in one pair of quotes")
    for configuration in arguments.configurations:
        tuning_of(configuration)
    torch.set_num_threads(1)  # before the forks: a pool of threads does not outlive one
    replay_run = Run(
        arch=arguments.arch or arch_of(arguments.on),
        machine=arguments.on,
        jobs=max(arguments.jobs, 1),
        seconds=arguments.seconds,
        total_seconds=arguments.whole,
        configurations=arguments.configurations,
        results=arguments.results,
        options=LaunchOptions(takes_cpu_tensors=arguments.cpu_tensors, whole_storages=True, probes=(OpenWords(),)),
        progress=progress,
    )
    told = sum_rows(carry_out([task_of(line) for line in task_lines], replay_run))
    print("\n".join(lines(told)))
    if not told.is_equal:
        return DIFFERS
    return EXIT_EQUAL if told.launches else EXIT_NOTHING


def progress(row: dict, done: int, of: int) -> None:
    """A line on standard error for each task, and for each launch that is not equal."""
    if row["event"] == "task":
        print(f"{done} of {of}: {row['task']} ({row['configuration']}): {row['state']} after {row['seconds']:.1f} s {row['said']}",
              file=sys.stderr, flush=True)  # fmt: skip
    elif row.get("differing") or row.get("outside") or "raised" in row:
        print(
            f"  {row['kernel']}: {row.get('raised') or row.get('first') or row.get('first_outside')}", file=sys.stderr, flush=True
        )


def arch_of(machine: str) -> str:
    """The architecture of a machine by its name. UsageError where it has none that is known."""
    from bitverdict.harness.model.targets import target

    return target(machine).arch


__all__ = ["add_arguments", "run"]
