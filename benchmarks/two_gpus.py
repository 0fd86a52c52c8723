"""How much faster two GPUs judge than one: the same shards of the same cases, with everything compiled before.

    python -m benchmarks.two_gpus --out DIR                      needs two GPUs; minutes
    python -m benchmarks.two_gpus --out DIR --emulated sm_90     tries the script: cores in place of GPUs, contracts for products

The shards are pytest's own nodes: large products of every kernel and type that run there, each with several seeds of data, judged
by `pytest -n auto --bv-target cuda`. Each worker leases a GPU; a GPU has the same number of slots in both runs (`--slots`), so
two GPUs are judged on by twice the workers, as `-n auto` does it. What is timed is the whole command, its start included.
The work is fixed by count, and no case depends on time: the autotuned launcher is left out. A first run on both fills Triton's
cache with one shard of each and is not counted. Then two GPUs, and one; where two needed less than `--least`
seconds, so that starting is most of it, there are as many more seeds, and both are timed anew. Written to DIR:
two_gpus.json. Exit status 1 when two take more than 0.6 of the time of one, 2 without two GPUs.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.campaign import Option, parse, run_script, write

CHECKOUT = Path(__file__).resolve().parent.parent

GOAL, LEAST_SHARDS = 0.6, 200
LARGE, CONTRACTS = "tests/kernel_contracts/test_large.py", "tests/kernel_contracts/test_contracts.py"
WARMING = 1 << 22  # products of a shard where only the compilation matters


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    if given.emulated:
        machines: list[list[str]] = [["1"], ["2"]]
        name, model = f"emulated:{given.emulated}", f"emulated {given.emulated}, one core and two"
    else:
        from bitverdict.harness.model.targets import targets, visible_device

        gpus = [machine for machine in targets() if not machine.emulated]
        if len(gpus) < 2:
            print(f"{len(gpus)} GPUs are visible: this benchmark needs two; --emulated sm_90 tries it on cores")
            return 2
        entries = [visible_device(gpu.index) for gpu in gpus[:2]]
        machines, name, model = [entries[:1], entries], "cuda", gpus[0].model
    told: dict = {"model": model, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                  "command": "python -m benchmarks.two_gpus " + " ".join(sys.argv[1:]), "size": given.size,
                  "seeds": given.seeds, "slots": given.slots, "cores": len(os.sched_getaffinity(0)),
                  "goal": GOAL, "one": [], "two": []}  # fmt: skip
    told["warming"] = judged(machines[1], name, given, WARMING)
    print(f"warming: {told['warming']}", flush=True)
    for turn in range(given.turns):
        told["two"].append(judged(machines[1], name, given, given.products))
        seconds = told["two"][-1]["seconds"]
        if turn == 0 and not given.emulated and seconds < given.least and not told["two"][-1]["status"]:
            print(f"{given.seeds} seeds: {told['two'][-1]}: too short", flush=True)
            given.seeds = told["seeds"] = math.ceil(given.seeds * 1.2 * given.least / seconds)
            told["two"] = [judged(machines[1], name, given, given.products)]
        print(f"two: {told['two'][-1]}", flush=True)
        told["one"].append(judged(machines[0], name, given, given.products))
        print(f"one: {told['one'][-1]}", flush=True)
        told["products"] = given.products
        summary(told)
        write(given.out / "two_gpus.json", told)
    print(told["sentence"])
    alike = {(run["shards"], run["cases"], run["words"]) for run in told["one"] + told["two"]}
    if len(alike) != 1 or any(run["status"] for run in told["one"] + told["two"]):
        print(f"the runs are not comparable: {alike}; see the output of pytest above")
        return 1
    return 0 if told["ratio"] <= GOAL and (told["shards"] >= LEAST_SHARDS or given.emulated) else 1


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    return parse(
        __doc__, argv=arguments, out=Path(".bitverdict/benchmarks"), size=Option("4096x4096x4096", "of the products"),
        seeds=Option(14, "shards of each kernel, type and configuration"), slots=Option(8, "workers on each GPU"),
        products=Option(1 << 29, "that a shard's expected words cost, where the host computes them"),
        least=Option(100.0, "that two GPUs must need, or there is more work"),
        turns=Option(1, "how often one GPU and two are timed"), emulated="",
    )  # fmt: skip


def judged(visible: list[str], name: str, given: argparse.Namespace, products: int) -> dict:
    """One run of pytest over all shards: seconds of wall, shards, cases, words, exit status."""
    environment = dict(os.environ, TRITON_DEFAULT_FP_FUSION="1")
    workers = "auto"
    if name == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
        environment["BITVERDICT_GPU_SLOTS"] = str(
            given.slots if products != WARMING else len(os.sched_getaffinity(0)) // len(visible)
        )
        seeds = 1 if products == WARMING else given.seeds
        nodes = [LARGE, "-k", "not autotuned", "--bv-large", given.size, "--bv-large-seeds", str(seeds),
                 "--bv-products", str(products)]  # fmt: skip
    else:
        workers = visible[0]
        nodes = [CONTRACTS, "-k", "ampere_gemm", "--bv-shards", str(given.seeds), "--bv-draws", str(given.seeds)]
    with tempfile.TemporaryDirectory() as place:
        junit = Path(place) / "junit.xml"
        line = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-n", workers, "--dist", "worksteal",
                *nodes, "--bv-target", name, "--junitxml", str(junit)]  # fmt: skip
        begun = time.perf_counter()
        ran = subprocess.run(line, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
        seconds = time.perf_counter() - begun
        if ran.returncode:
            print(ran.stdout[-4000:], ran.stderr[-2000:], sep="\n", flush=True)
        told = counted(junit) if junit.exists() else {}
        return {"gpus": visible, "seconds": round(seconds, 2), "status": ran.returncode} | told


def counted(junit: Path) -> dict[str, int]:
    """Shards that ran, their cases and words, from what each node recorded."""
    found = {"shards": 0, "not_run": 0, "cases": 0, "words": 0}
    for node in ElementTree.parse(junit).iter("testcase"):
        skipped = node.find("skipped") is not None
        found["not_run" if skipped else "shards"] += 1
        for told in node.iter("property"):
            if told.get("name") in ("cases", "words"):
                found[str(told.get("name"))] += int(told.get("value") or 0)
    return found


def summary(told: dict) -> None:
    one, two = (statistics.median(run["seconds"] for run in told[key]) if told[key] else 0.0 for key in ("one", "two"))
    last = (told["two"] or told["one"])[-1]
    told["shards"] = last.get("shards", 0)
    told["ratio"] = round(two / one, 3) if one and two else None
    told["sentence"] = (
        f"{told['shards']} shards, {last.get('cases', 0):,} cases, {last.get('words', 0):,} words: "
        f"{one:.1f} s on one, {two:.1f} s on two" + (f": {told['ratio']:.2f} of the time (goal {GOAL})" if told["ratio"] else "")
    )


if __name__ == "__main__":
    run_script(main)
