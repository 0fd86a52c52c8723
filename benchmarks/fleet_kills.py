"""Kills of every kind while ``bitverdict run --on ray`` judges on a Ray cluster of several nodes on this machine.

    python -m benchmarks.fleet_kills --kills 20 --seed 1 --out DIR

One undisturbed run without Ray judges numbered cases, faults of all kinds among them. Then runs on Ray's own test cluster judge
the same cases. In each of them a Ray worker, a node and the driver are killed and a raylet is stopped past the cluster's limit, in
an order drawn from the seed. A driver that was killed goes on with ``run --resume --on ray``.

``--kinds head head`` ends the cluster's head instead: first its GCS alone, then its whole node. The run must stop by itself and
name the remedy. It goes on with ``run --resume --on ray`` on a new cluster.

Each run is held to the undisturbed one in everything but times, and its journal to its results: one verdict a case, none judged
again after it (`benchmarks.injected_faults.books`). Writes DIR/fleet_kills.json, and ends with status 1 where something does not
hold. Needs ``pip install '.[ray]'``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.campaign import REQUIRED_PATH, Option, parse, run_script, write
from benchmarks.injected_faults import books, command, differences, journal_of, results, run
from bitverdict.harness.workers.journal import records

NODES = 3
KINDS = ("worker", "node", "driver", "raylet")
HEAD = "head"  # killed where it is asked for: a new cluster takes up the run
REMEDY = "then run --resume"  # what a run says whose head, or whose node, ended
BETWEEN = 20  # verdicts at least between two kills
STORE = 80 << 20  # bytes of a node's object store: 75 MiB is the least that Ray takes
TIMEOUT = "30"  # seconds of a case: a node that begins while others judge on two cores takes long over its first one
WITHIN = 900.0  # seconds of one run
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 5,
}
"""Ray's limits: a raylet that is silent for about 5 s is dead to the cluster. Their defaults make it 30 s."""


@contextmanager
def cluster(nodes: int = NODES) -> Iterator[Any]:
    """Ray's test cluster: a head that judges nothing, and `nodes` nodes of one processor each."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        start(made, nodes)
        yield made
    finally:
        made.shutdown()


def start(made: Any, nodes: int) -> None:
    """Start the head of a cluster that has none, then its nodes."""
    made.add_node(num_cpus=0, include_dashboard=False, object_store_memory=STORE, _system_config=HEALTH)
    for _ in range(nodes):
        node(made)


def node(made: Any) -> Any:
    return made.add_node(num_cpus=1, object_store_memory=STORE)


def raylet(of: Any) -> int:
    """The process of a node's raylet."""
    return of.all_processes["raylet"][0].process.pid


def below(process: int) -> list[int]:
    """The Ray workers of the raylet `process` that judge."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == process and b"judged" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
    return found


def ended(out: Path) -> int:
    """Verdicts in the journal of the run in `out` so far."""
    with suppress(ValueError):
        return sum(record["event"] == "end" for record in records(journal_of(out)))
    return 0


def until(holds: Callable[[], object], seconds: float) -> bool:
    """Whether `holds` came to hold within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return False


def asked(cases: int, out: Path) -> list[str]:
    """The command of a run that begins."""
    return [*command(cases, out), "--timeout", TIMEOUT]


class Killed:
    """One run in `out` over `cases` on the cluster `made`, and what is killed of it."""

    def __init__(self, made: Any, cases: int, draw: random.Random, out: Path) -> None:
        self.made, self.cases, self.draw, self.out = made, cases, draw, out
        self.done: list[str] = []
        self.wrong: list[str] = []
        self.seconds: list[float] = []  # from the end of a head to that of the command
        self.process = run([*asked(cases, out), "--on", "ray", "--jobs", str(len(made.worker_nodes))], out)

    def over(self) -> bool:
        return self.process.poll() is not None

    def kill(self, kind: str) -> None:
        """Kill one of `kind` once `BETWEEN` more verdicts have come; a node that goes is replaced."""
        before = ended(self.out)
        if not until(lambda: self.over() or ended(self.out) >= before + BETWEEN, WITHIN) or self.over():
            return
        came = ended(self.out)
        getattr(self, kind)()
        self.done.append(f"{kind} after {came} verdicts")

    def worker(self) -> None:
        busy: list[int] = []
        until(lambda: busy.extend(each for of in self.made.worker_nodes for each in below(raylet(of))) or busy, 60)
        os.kill(self.draw.choice(busy), signal.SIGKILL)

    def node(self) -> None:
        of = self.draw.choice(sorted(self.made.worker_nodes, key=raylet))
        there = below(raylet(of))
        self.made.remove_node(of, allow_graceful=False)
        for each in there:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        node(self.made)

    def driver(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = run([*command(self.cases, self.out, "--resume"), "--on", "ray"], self.out)

    def raylet(self) -> None:
        of = self.draw.choice(sorted(self.made.worker_nodes, key=raylet))
        stopped = raylet(of)
        os.kill(stopped, signal.SIGSTOP)
        alive = len(self.alive())
        if not until(lambda: len(self.alive()) < alive, 60):
            raise SystemExit("the cluster did not notice that a raylet was stopped: see HEALTH")
        node(self.made)
        os.kill(stopped, signal.SIGCONT)  # it finds itself dead, and ends
        self.made.remove_node(of, allow_graceful=False)

    def head(self) -> None:
        """End the head, see that the command says so, and go on with it on a new cluster."""
        processes = self.made.head_node.all_processes
        whole, nodes = len(self.done) % 2 == 1, len(self.made.worker_nodes)
        for name in ("gcs_server", "raylet") if whole else ("gcs_server",):
            os.kill(processes[name][0].process.pid, signal.SIGKILL)
        begun = time.monotonic()
        status = self.process.wait(WITHIN)
        self.seconds.append(round(time.monotonic() - begun, 1))
        said = (self.out / "stdout.txt").read_text() + (self.out / "stderr.txt").read_text()
        decided = {each["verdict"]["decision"] for each in records(journal_of(self.out)) if each["event"] == "end"}
        if status != (1 if "fail" in decided else 3) or REMEDY not in said:
            self.wrong.append(f"status {status} without its remedy after the end of the head: {said[-500:]}")
        for of in list(self.made.worker_nodes):
            self.made.remove_node(of, allow_graceful=False)
        self.made.remove_node(self.made.head_node, allow_graceful=False)
        start(self.made, nodes)
        os.environ["RAY_ADDRESS"] = self.made.address
        self.process = run([*command(self.cases, self.out, "--resume"), "--on", "ray"], self.out)

    def alive(self) -> list[dict]:
        return [each for each in self.made.global_state.node_table() if each["Alive"]]


def kills(count: int, seed: int, cases: int, out: Path, kinds: tuple[str, ...] = KINDS, nodes: int = NODES) -> dict:
    """An undisturbed run, then runs with a kill of each kind, until there were `count` kills."""
    import ray

    undisturbed = results(out / "undisturbed", run(asked(cases, out / "undisturbed"), out / "undisturbed").wait(WITHIN))
    wrong = books(out / "undisturbed")
    print(f"seed {seed}; undisturbed, without Ray: {undisturbed['table'][-1]}", flush=True)
    draw, told, number, begun = random.Random(seed), Counter[str](), 0, time.monotonic()
    silent: list[float] = []
    with cluster(nodes) as made:
        while told.total() < count and number < count:
            place, os.environ["RAY_ADDRESS"] = out / f"run-{number}", made.address
            one = Killed(made, cases, draw, place)
            for kind in draw.sample(kinds, len(kinds)):
                if told.total() < count:
                    before = len(one.done)
                    one.kill(kind)
                    told[kind] += len(one.done) - before
            differs = [*one.wrong, *differences(undisturbed, results(place, one.process.wait(WITHIN)), place)]
            silent += one.seconds
            wrong += [f"run {number} ({'; '.join(one.done)}): {what}" for what in differs]
            print(f"run {number}: {'; '.join(one.done)}: {'; '.join(differs) or 'the same'}", flush=True)
            number += 1
    found = {"ray": ray.__version__, "nodes": nodes, "seed": seed, "cases": cases, "runs": number, "kills": dict(told)}
    found |= {"seconds until the command said that its head ended": silent} if silent else {}
    return found | {"seconds": round(time.monotonic() - begun), "undisturbed": undisturbed["table"][-1], "wrong": wrong}


def main() -> int:
    given = parse(
        __doc__, kills=20, seed=1, cases=600, kinds=Option(KINDS, "what is killed in each run", choices=[*KINDS, HEAD]),
        nodes=NODES, out=REQUIRED_PATH,
    )  # fmt: skip
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    found = kills(given.kills, given.seed, given.cases, out, tuple(given.kinds), given.nodes)
    write(out / "fleet_kills.json", found)
    print(json.dumps(found, indent=1))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    run_script(main)
