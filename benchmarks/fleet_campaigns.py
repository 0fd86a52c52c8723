"""Campaigns of each kind here, on a Ray cluster, and on it in two shards that are merged: one set of verdicts.

    python -m benchmarks.fleet_campaigns --out DIR

The cluster is started as docs/fleets.md says: ``ray start --head``, ``ray start --address HOST:PORT``, ``RAY_ADDRESS=HOST:PORT``
(with ``--block``, ports of their own and one processor each, so that both nodes end with this command). A campaign is `exhaustive`,
a test of a user's, a problem of a corpus with the interface of KernelBench, mutants, or entries of the corpus of published
packages, which are installed from the registry below DIR. ``pytest --bv-database`` keeps a
failing case on ``redis-server --port``, and a second session judges it first.

Writes DIR/fleet_campaigns.json, and ends with status 1 where something differs. Needs
``pip install '.[ray,redis]'`` and Debian's redis-server.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.campaign import REQUIRED_PATH, parse, run_script, write
from benchmarks.fleet_kills import STORE
from benchmarks.injected_faults import CHECKOUT, timeless

TESTS, PROBLEMS = "docs/examples/your_kernels/test_softmax.py:test_softmax", "tests/support/kernelbench"
PLUGINS = ("-p", "bitverdict.harness.frontends.pytest_options", "-p", "bitverdict.harness.frontends.pytest_plugin")
"""An installed bitverdict loads them by itself."""
SECONDS = 300.0  # of one command
SHARDS = 2
RUNS = {
    "exhaustive": "run --contract tests.faults.crashes.injected:KILLED --profile exhaustive --max-cases 40".split(),
    "a user's test": ["run", TESTS, "--max-cases", "8"],
    "a corpus's problem": f"kernelbench {PROBLEMS}/problems/relu.py {PROBLEMS}/candidates/relu.py --unsealed --max-cases 8".split(),
}
CORPUS = ["--package", "xformers"]
MUTANTS = "mutate softmax --source --count 6 --seed 1 --target emulated:sm_90".split()


def called(words: Sequence[str], out: Path, **variables: str) -> subprocess.CompletedProcess:
    """``bitverdict`` with `words`, its state in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    given = os.environ | {"BITVERDICT_STATE": str(out / "state"), "COLUMNS": "160"} | variables
    command = [sys.executable, "-m", "bitverdict", *words]
    return subprocess.run(command, cwd=CHECKOUT, env=given, capture_output=True, text=True, timeout=SECONDS)


def verdicts(path: Path) -> list[str]:
    """Each case or mutant of a result file with what it came to, without times; sorted, so one that is twice shows."""
    found = []
    for line in map(json.loads, path.read_text().splitlines()):
        if line.get("event") == "verdict":
            kept = {name: line["verdict"].get(name) for name in ("decision", "outcome", "basis", "words")}
            found.append([line["contract"], line["target"], line["case"], kept])
        elif "mutant" in line:
            found.append(
                [line["mutant"]["id"], {name: line["result"][name] for name in ("end", "killed_by") if name in line["result"]}]
            )
    return sorted(json.dumps(timeless(each), sort_keys=True) for each in found)


def three_ways(name: str, words: list[str], out: Path, address: str) -> dict:
    """The campaign here, on the cluster, and there in shards."""
    mutants, ray = words[0] == "mutate", ["--on", "ray"]
    asked = words if mutants else [*words, "--target", "emulated:sm_90", "--shrink-seconds", "0"]

    def judged(place: str, *more: str, **variables: str) -> tuple[Path, int]:
        file = out / place / "results.jsonl"
        ended = called([*asked, *more, "--json", str(file)], out / place, **variables)
        if not file.exists() or ended.returncode not in (0, 1, 3):
            raise SystemExit(f"{name}, {place}: status {ended.returncode}: {ended.stdout[-600:]}{ended.stderr[-600:]}")
        return file, ended.returncode

    (here, status), (there, fleet) = judged("here"), judged("ray", *ray, RAY_ADDRESS=address)
    shards = [judged(f"shard-{n}", *ray, "--shard", f"{n}/{SHARDS}", RAY_ADDRESS=address)[0] for n in range(1, SHARDS + 1)]
    merged = out / "merged.jsonl"
    if mutants:
        whole = called(["merge", *map(str, shards), "--into", str(merged)], out)
    else:
        journals = [str(each) for place in shards for each in (place.parent / "state" / "journal").glob("*.jsonl")]
        whole = called(["merge", *journals, "--into", str(out / "one.jsonl"), "--json", str(merged)], out)
    same = verdicts(here) == verdicts(there) == verdicts(merged) and status == fleet == whole.returncode
    counts = [len(verdicts(path)) for path in (here, there, *shards, merged)]
    return {"campaign": name, "here, ray, shards, merged": counts, "status": [status, fleet, whole.returncode], "the same": same}


def corpus_three_ways(out: Path, address: str) -> dict:
    """Entries of published packages here, on the cluster, and there in shards, whose files one behind the other are merged."""

    def run(place: str, *more: str) -> tuple[Path, int]:
        (at := out / place).mkdir(parents=True, exist_ok=True)
        given = os.environ | {"BITVERDICT_STATE": str(at / "state"), "RAY_ADDRESS": address}
        command = [sys.executable, "-m", "benchmarks.corpus", str(out / "packages"), *CORPUS]
        command += ["--results", str(at / "results.jsonl"), *more]
        ended = subprocess.run(command, cwd=CHECKOUT, env=given, capture_output=True, text=True, timeout=2 * SECONDS)
        if not (at / "results.jsonl").exists():
            raise SystemExit(f"corpus, {place}: status {ended.returncode}: {ended.stderr[-600:]}")
        return at / "results.jsonl", ended.returncode

    def outcomes(file: Path) -> list[str]:
        rows = map(json.loads, file.read_text().splitlines())
        return sorted(json.dumps({**row, "seconds": 0, "launching": 0}, sort_keys=True) for row in rows)

    (here, status), (there, fleet) = run("here"), run("ray", "--ray")
    shards = [run(f"shard-{n}", "--ray", "--shard", f"{n}/{SHARDS}")[0] for n in range(1, SHARDS + 1)]
    merged = out / "merged.jsonl"
    merged.write_text("".join(each.read_text() for each in shards))
    same = outcomes(here) == outcomes(there) == outcomes(merged) and status == fleet
    counts = [len(outcomes(path)) for path in (here, there, *shards, merged)]
    return {"campaign": "corpus", "here, ray, shards, merged": counts, "status": [status, fleet], "the same": same}


# --- the cluster and the server, as the pages say


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@contextmanager
def running(words: Sequence[str], log: Path, port: int) -> Iterator[None]:
    """A command in the foreground until left, once something listens on `port`."""
    with log.open("w") as told:
        process = subprocess.Popen(words, stdout=told, stderr=subprocess.STDOUT, env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"})
    try:
        end = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < end and socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.2)
        if process.poll() is not None:
            raise SystemExit(f"{' '.join(words)}: ended with {process.returncode}: {log.read_text()[-600:]}")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def cluster(out: Path) -> Iterator[str]:
    """RAY_ADDRESS of a head that judges nothing and two nodes of one processor, by Ray's own command."""
    start, port = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"], free_port()
    address, store = f"127.0.0.1:{port}", f"--object-store-memory={STORE}"
    head = [*start, "--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=1", "--include-dashboard=false", store]
    node = [*start, f"--address={address}", "--num-cpus=1", store]
    with running(head, out / "head.txt", port), running(node, out / "node.txt", port):
        yield address


def on_redis(out: Path) -> dict:
    """A session keeps what failed on a Redis server; the keys that it left."""
    import redis

    port = free_port()
    words = [
        shutil.which("redis-server") or "redis-server",
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        str(out),
    ]
    file = out / "test_wrong.py"
    file.write_text(WRONG)
    url = f"redis://127.0.0.1:{port}/0"
    with running(words, out / "redis.txt", port):
        given = os.environ | {"BITVERDICT_STATE": str(out / "state")}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGINS, "--bv-database", url, str(file)]
        told = [subprocess.run(command, cwd=CHECKOUT, env=given, capture_output=True, text=True, timeout=SECONDS) for _ in range(2)]
        keys = len(redis.Redis.from_url(url).keys())
    (out / "pytest.txt").write_text("".join(each.stdout + each.stderr for each in told))
    return {"statuses": [each.returncode for each in told], "keys on the server": keys}


WRONG = """import bitverdict as bv
import torch, triton, triton.language as tl

SIZES = range(20, 60, 3)  # of drawn cases, not of required ones, which no database keeps

@triton.jit
def double(x, y, n, wrong, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=at < n - wrong)

def doubled(x):
    y = torch.zeros_like(x)
    double[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), int(x.numel() in SIZES), 64)
    return y

@bv.judged(reference=lambda xp, x: x * 2)
def test_doubled(draw):
    return doubled(draw.tensor("fp32", (draw.size(1, 100),)))
"""


def main() -> int:
    given = parse(__doc__, out=REQUIRED_PATH, only=())
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    asked = {name: words for name, words in (RUNS | {"mutants": MUTANTS}).items() if not given.only or name in given.only}
    found: dict = {"campaigns": []}
    if asked or "corpus" in given.only:
        with cluster(out) as address:
            for number, (name, words) in enumerate(asked.items()):
                row = three_ways(name, words, out / str(number), address)
                print(json.dumps(row), flush=True)
                found["campaigns"].append(row)
            if not given.only or "corpus" in given.only:
                found["campaigns"].append(corpus_three_ways(out / "corpus", address))
                print(json.dumps(found["campaigns"][-1]), flush=True)
    if not given.only or "redis" in given.only:
        found["redis"] = on_redis(out)
        print(json.dumps(found["redis"]), flush=True)
    write(out / "fleet_campaigns.json", found)
    kept = "redis" not in found or found["redis"]["keys on the server"] > 0
    return int(not kept or not all(row["the same"] for row in found["campaigns"]))


if __name__ == "__main__":
    run_script(main)
