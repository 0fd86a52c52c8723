"""What a jail costs: seconds of a start, memory, and what a process that prints without need takes.

    python -m benchmarks.jail [--starts 20] [--gigabytes 10]

One line for each way to confine that this machine has: with bubblewrap, without it, and with resource limits alone. A start is
measured from the request to the greeting of a process that is confined; the zygote has imported what a sealed run has it import.
"""

from __future__ import annotations

import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.campaign import parse, run_script
from bitverdict.harness.sealed.jail.jail import ConfinedProcess, Jail, start_process, wait_ready
from bitverdict.harness.sealed.jail.protections import ALWAYS, BUBBLEWRAP, LANDLOCK, SECCOMP, Protections, protections
from bitverdict.harness.sealed.processes.jails import CANDIDATE_IMPORTS

MIB = 1 << 20


def wait(channel: socket.socket) -> None:
    """What is measured: a process that has all that a candidate's has, and does nothing."""
    channel.recv(1)


def print_much(channel: socket.socket, gigabytes: float) -> None:
    for _ in range(int(gigabytes * 1024)):
        print("x" * MIB, end="")


def ways() -> Iterator[tuple[str, Protections]]:
    found = protections()
    yield ("with all that this machine has" if found.remedies else "with all protections"), found
    if found.has(BUBBLEWRAP):
        held = tuple(name for name in (SECCOMP, LANDLOCK) if found.has(name))
        yield "without bubblewrap, as where no user namespace can be made", Protections((*held, *ALWAYS), {})
    yield "with resource limits alone", Protections(ALWAYS, {})


def started(jail: Jail, function: str, log: Path | None = None, **arguments: float) -> tuple[ConfinedProcess, socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        return start_process(jail.address, f"benchmarks.jail:{function}", [theirs], arguments, log=log), ours


def of_its_own(pid: int) -> int:
    """Bytes of memory that no other process shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private"))


def zygote_of(pid: int) -> int:
    """Bubblewrap's grandchild, or the process itself."""
    while Path(f"/proc/{pid}/exe").readlink().name == "bwrap":
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid


def measured(found: Protections, starts: int, gigabytes: float) -> str:
    begun = time.perf_counter()
    folder = str(Path(__file__).resolve().parent)
    jail = Jail([folder], preload=(*CANDIDATE_IMPORTS, "benchmarks.jail"), machine_protections=found)
    try:
        wait_ready(jail.address)
        ready = time.perf_counter() - begun
        seconds, ends = [], []
        for _ in range(starts):
            process, _ = started(jail, "wait")
            seconds.append(process.start_seconds)
            begun = time.perf_counter()
            process.end()
            ends.append(time.perf_counter() - begun)
        zygote = zygote_of(jail._process.pid)
        memory = of_its_own(zygote)
        process, _ = started(jail, "wait")
        children = Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
        own = of_its_own(int(children[0]))
        process.end()
        with tempfile.NamedTemporaryFile() as log:
            begun = time.perf_counter()
            process, _ = started(jail, "print_much", Path(log.name), gigabytes=gigabytes)
            said, taken = process.end_sentence(3600), time.perf_counter() - begun
    finally:
        jail.end()
    return (
        f"  zygote ready {ready:.2f} s; start of a process {statistics.median(seconds) * 1e3:.1f} ms (median of {starts}, "
        f"most {max(seconds) * 1e3:.1f}), end {statistics.median(ends) * 1e3:.1f} ms\n"
        f"  memory: zygote {memory / MIB:.0f} MiB of its own, a process that waits {own / MIB:.1f} MiB\n"
        f"  output of {gigabytes:g} GiB: {taken:.1f} s; {said}"
    )


def main() -> None:
    asked = parse(__doc__, starts=20, gigabytes=10.0)
    print(protections().sentence())
    for name, found in ways():
        print(name, measured(found, asked.starts, asked.gigabytes), sep="\n")


if __name__ == "__main__":
    run_script(main)
