"""How much faster two GPUs judge than one: the same shards of the same cases, with everything compiled before.

    python benchmarks/two_gpus.py --out DIR                          needs two GPUs; about three minutes on two H200s
    python benchmarks/two_gpus.py --out DIR --emulated sm_90 --shards 6   tries the script: cores in place of GPUs

The shards are pytest's own nodes (`--harness-shards`), judged by `pytest -n auto --harness-target cuda`: each worker leases one of
the GPUs that it may see, `HARNESS_GPU_SLOTS` workers to a GPU. A first run on both fills Triton's cache and is not counted; then
one GPU and two take turns. Written to DIR: two_gpus.json. Exit status 1 when two take more than 0.6 of the time of one, 2 without
two GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

GOAL, LEAST_SHARDS = 0.6, 200
NODES = "tests/kernel_contracts/test_contracts.py"


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    if given.emulated:
        machines: list[list[str]] = [["1"], ["2"]]
        name, model = f"emulated:{given.emulated}", f"emulated {given.emulated}, one core and two"
    else:
        from harness.targets import targets, visible_device

        gpus = [machine for machine in targets() if not machine.emulated]
        if len(gpus) < 2:
            print(f"{len(gpus)} GPUs are visible: this benchmark needs two; --emulated sm_90 tries it on cores")
            return 2
        entries = [visible_device(gpu.index) for gpu in gpus[:2]]
        machines, name, model = [entries[:1], entries], "cuda", gpus[0].model
    given.out.mkdir(parents=True, exist_ok=True)
    told: dict = {"model": model, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                  "command": "python benchmarks/two_gpus.py " + " ".join(sys.argv[1:]), "profile": given.profile,
                  "shards_of_a_contract": given.shards, "goal": GOAL, "one": [], "two": []}  # fmt: skip
    told["warming"] = judged(machines[1], name, given, warming=True)
    print(f"warming: {told['warming']}", flush=True)
    for _ in range(given.turns):
        for key, visible in zip(("one", "two"), machines, strict=True):
            told[key].append(judged(visible, name, given))
            print(f"{key}: {told[key][-1]}", flush=True)
            summary(told)
            (given.out / "two_gpus.json").write_text(json.dumps(told, indent=1) + "\n")
    print(told["sentence"])
    alike = {(run["shards"], run["cases"], run["words"]) for run in told["one"] + told["two"]}
    if len(alike) != 1 or any(run["status"] for run in told["one"] + told["two"]):
        print(f"the runs are not comparable: {alike}; see the output of pytest above")
        return 1
    return 0 if told["ratio"] <= GOAL and (told["shards"] >= LEAST_SHARDS or given.emulated) else 1


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".harness/benchmarks"), metavar="DIR")
    parser.add_argument("--shards", type=int, default=60, help="of each contract")
    parser.add_argument("--profile", default="ci")
    parser.add_argument("--turns", type=int, default=1, help="how often one GPU and two are timed")
    parser.add_argument("--emulated", default="", metavar="sm_NN")
    return parser.parse_args(arguments)


def judged(visible: list[str], name: str, given: argparse.Namespace, *, warming: bool = False) -> dict:
    """One run of pytest over all shards: seconds of wall, shards, cases, words, exit status."""
    environment = dict(os.environ, TRITON_DEFAULT_FP_FUSION="1")
    workers = "auto"
    if name == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
        if warming:
            environment["HARNESS_GPU_SLOTS"] = str(max(4, len(os.sched_getaffinity(0)) // len(visible)))
    else:
        workers = visible[0]
    with tempfile.TemporaryDirectory() as place:
        junit = Path(place) / "junit.xml"
        line = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-n", workers, "--dist", "worksteal",
                NODES, "--harness-target", name, "--harness-shards", str(given.shards), "--harness-profile", given.profile,
                "--junitxml", str(junit)]  # fmt: skip
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
        f"{one:.1f} s on one, {two:.1f} s on two"
        + (f": {told['ratio']:.2f} of the time (goal {GOAL})" if told["ratio"] else "")
    )


if __name__ == "__main__":
    sys.exit(main())
