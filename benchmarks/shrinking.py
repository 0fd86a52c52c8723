"""Do crash mutants shrink to one reduced case, whatever the seed, and do they replay in a fresh clone?

    python -m benchmarks.shrinking [--seeds 5] [--only TEXT] [--draws 300] [--no-clone] [--out DIR]

For each crash of tests/faults/crashes/kernels.py and each base seed: draw until a case shows it (no required cases, no
database), shrink it, write its reproducer, and judge that file again in a clone of this repository's HEAD, the faulty source gone.
Prints a row a crash: how many seeds end at the commonest reduced case, seconds and launches to shrink, files that replay as the
same bug. `--out` keeps reproducers and a JSON of all runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

from benchmarks.campaign import Option, parse, run_script

CHECKOUT = Path(__file__).resolve().parent.parent

REPLAY = """
import sys
from pathlib import Path
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.session.replay import replay
with WorkerPool() as bench:
    for name in sys.argv[1:]:
        print(name, replay(Path(name), bench).sentence, sep="\\t", flush=True)
"""


def shrunk(crash, seed: int, directory: Path, pool, draws: int) -> dict:
    """One crash found by the draws of one seed, shrunk and stored: what came of it, for the table."""
    from bitverdict.harness.model.targets import target
    from bitverdict.harness.session import reproducers
    from bitverdict.harness.session.case_line import describe
    from bitverdict.harness.session.case_source import CaseSource
    from bitverdict.harness.session.shrink import VerdictCache, shrink
    from tests.faults.mutants import write_mutant

    os.environ["BITVERDICT_POOL_SEED"] = str(seed)  # as `run --seed` does
    place = directory / crash.name.replace(" ", "_")
    place.mkdir(exist_ok=True)
    source = CaseSource(write_mutant(crash, place), target(crash.on[0]), seed)
    memory = VerdictCache(lambda case: pool.judge(case, source.target))
    cases = source.drawn(draws)
    found = next((case for case in cases if memory(case).failed and memory(case).outcome in crash.expected), None)
    if found is None:
        seen = Counter(str(verdict.outcome) for verdict in memory.known.values())
        return {"crash": crash.name, "seed": seed, "least": f"not met in {len(cases)} draws: {dict(seen)}", "seconds": 0.0}
    before, begun = memory.asked, time.monotonic()
    case, verdict = shrink(source, found, memory(found), memory, draws=draws, seconds=300)
    seconds = time.monotonic() - begun
    path = reproducers.write(
        reproducers.reproducer_of(case, crash.on[0], verdict, first_case=found), _made(directory / f"seed-{seed}")
    )
    return {
        "crash": crash.name, "kind": str(verdict.outcome), "when": crash.when, "seed": seed, "from": describe(found),
        "least": describe(case), "seconds": seconds, "launches": memory.asked - before, "file": str(path),
    }  # fmt: skip


def _made(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def replayed(files: list[str], directory: Path) -> set[str]:
    """The reproducers that fail again of the same bug in a fresh clone, the faulty sources moved away."""
    clone = directory / "clone"
    subprocess.run(["git", "clone", "-q", str(CHECKOUT), str(clone)], check=True)
    hidden = [path.rename(path.with_suffix(".hidden")) for path in directory.glob("*/*.py") if path.parent != clone]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "BITVERDICT_POOL_SEED")}
    environment |= {"BITVERDICT_STATE": str(directory / "state"), "PYTHONPATH": os.pathsep.join([str(clone), *KEPT_PATH])}
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, *files], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    for path in hidden:
        path.rename(path.with_suffix(".py"))
    if done.returncode:
        print(done.stderr[-2000:])
    return {name for name, _, said in (line.partition("\t") for line in done.stdout.splitlines()) if "the same bug" in said}


KEPT_PATH = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and Path(place) != CHECKOUT]


def main() -> None:
    arguments = parse(
        __doc__, seeds=5, draws=Option(300, "at most this many draws until a crash shows"), only="", no_clone=False, out=Path
    )
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    from bitverdict.harness.workers.journal import Journal
    from bitverdict.harness.workers.pool import WorkerPool
    from tests.faults.crashes.kernels import CRASHES

    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.out.resolve() if arguments.out else Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with WorkerPool(timeout=60, journal=Journal(directory / "journal.jsonl")) as pool:
            for crash in CRASHES:
                for seed in range(arguments.seeds) if arguments.only in crash.name else ():
                    rows.append(shrunk(crash, seed, directory, pool, arguments.draws))
                    print(".", end="", file=sys.stderr, flush=True)
        again = set() if arguments.no_clone else replayed([row["file"] for row in rows if "file" in row], directory)
        (directory / "runs.json").write_text(json.dumps([row | {"replayed": row.get("file") in again} for row in rows], indent=1))
        print(file=sys.stderr)
        show(rows, again)


def show(rows: list[dict], again: set[str]) -> None:
    """The table, in Markdown, and the sums."""
    print("| crash | kind | strikes at | reduced case | agree | s, median | s, most | launches, most | replayed |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    agreed = 0
    for name in dict.fromkeys(row["crash"] for row in rows):
        of = [row for row in rows if row["crash"] == name]
        (least, count), *others = Counter(row["least"] for row in of).most_common()
        agreed += count if any("file" in row and row["least"] == least for row in of) else 0
        one = next(row for row in of if row["least"] == least)
        seconds, launches = [row["seconds"] for row in of], [row.get("launches", 0) for row in of]
        back = sum(row.get("file") in again for row in of)
        print(
            f"| {name} | {one.get('kind', '')} | {one.get('when', '')} | `{least}` | {count} of {len(of)} "
            f"| {median(seconds):.1f} | {max(seconds):.1f} | {max(launches)} | {back} of {len(of)} |"
        )
        for other, times in others:
            print(f"|  |  | other | `{other}` | {times} | | | | |")
    most = max((row["seconds"] for row in rows), default=0)
    print(
        f"\n{agreed} of {len(rows)} end at the commonest reduced case of their crash, the slowest in {most:.1f} s; "
        f"{sum(row.get('file') in again for row in rows)} replay in a fresh clone"
    )


if __name__ == "__main__":
    run_script(main)
