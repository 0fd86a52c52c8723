"""What the default run costs beside earlier commits, and what `--certificate` adds to it: paired, in turns. For a quiet machine.

    python -m benchmarks.default_run [--commit REV ...] [--certificate] [--turns 5] [--max-cases N] [STEM ...]

Each side is `bitverdict selftest` of README.md (`run` of commits before it): this checkout; with --certificate this checkout
under --certificate; each REV, in a worktree of its own. A side has its own state and caches, and runs once before it is timed.
Then the sides take turns, each second turn in the opposite order. `--max-cases` bounds the cases of each contract: the profile
bounds drawn cases by time, so that a slower side would judge fewer.

Printed of each side are the median wall and the cases. The ratio is told of the seconds in workers of the cases that both sides
judged, turn by turn: median, least and largest. Buckets whose sum moves by more than 0.2 % of all are named.
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
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOLD = 0.002  # share of all seconds by which a bucket must move to be named


@dataclass
class Side:
    """A checkout and the options it runs under, with what its turns came to."""

    name: str
    checkout: Path
    options: tuple[str, ...]
    state: Path
    walls: list[float] = field(default_factory=list)
    seconds: list[dict[str, Counter]] = field(default_factory=list)  # of each turn: case -> seconds by bucket

    def run(self, words: list[str], *, timed: bool) -> None:
        """One run. What does not end with status 0 is told, and counted all the same."""
        out = self.state / "run.jsonl"
        more = {"PYTHONPATH": str(self.checkout), "HARNESS_STATE": str(self.state), "TRITON_CACHE_DIR": str(self.state / "triton")}
        names_tests = (self.checkout / "harness/frontends/subjects.py").is_file()  # since when `run` alone means the folder's tests
        command = [sys.executable, "-m", "bitverdict", "selftest" if names_tests and not words else "run"]
        command += [*words, *self.options, "--json", str(out)]
        begun = time.monotonic()
        with (self.state / "log").open("w") as log:
            status = subprocess.run(
                command, cwd=self.checkout, env=os.environ | more, stdout=log, stderr=log, check=False
            ).returncode
        if status:
            print(f"{self.name}: status {status}; see {self.state / 'log'}", flush=True)
        if timed:
            self.walls.append(time.monotonic() - begun)
            self.seconds.append(dict(_judged(out)))


def _judged(path: Path) -> Iterator[tuple[str, Counter]]:
    """(case and target, its seconds by bucket) of each verdict in a file of JSON lines."""
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["event"] == "verdict":
            case = {name: value for name, value in record["case"].items() if name != "certificate"}
            yield json.dumps([record["contract"], record["target"], case], sort_keys=True), Counter(record["verdict"]["seconds"])


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """A checkout of `commit` in `folder`."""
    subprocess.run(["git", "worktree", "add", "-q", "--detach", str(folder), commit], cwd=ROOT, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, check=False)


def compared(base: Side, other: Side) -> Iterator[str]:
    """What `other` costs beside `base`, over the cases that both judged in a turn."""
    ratios, moved, whole, cases = [], Counter(), 0.0, 0
    for one, two in zip(base.seconds, other.seconds, strict=True):
        both = one.keys() & two.keys()
        sums = [sum((turn[case] for case in both), Counter()) for turn in (one, two)]
        ratios.append(sums[1]["total"] / max(sums[0]["total"], 1e-9))
        whole, cases = whole + sums[0]["total"], len(both)
        moved.update(sums[1])
        moved.subtract(sums[0])
    told = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    yield f"{other.name} by {base.name}: {told} in workers, over {cases} common cases"
    said = [
        f"{name} {seconds / whole:+.1%}" for name, seconds in moved.most_common() if abs(seconds) > TOLD * whole and name != "total"
    ]
    if said:
        yield f"  of which {', '.join(said)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.default_run", description=__doc__)
    parser.add_argument("stems", nargs="*", metavar="STEM")
    parser.add_argument("--commit", action="append", default=[], metavar="REV")
    parser.add_argument("--certificate", action="store_true")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--max-cases", type=int, default=30)
    asked = parser.parse_args()
    words = [*asked.stems, "--max-cases", str(asked.max_cases)]
    with tempfile.TemporaryDirectory(prefix="default-run-") as folder:
        place = Path(folder)
        trees = [worktree(commit, place / commit) for commit in asked.commit]
        sides = [Side("this checkout", ROOT, (), place / "state")]
        if asked.certificate:
            sides.append(Side("with --certificate", ROOT, ("--certificate",), place / "state certificate"))
        try:
            for commit, tree in zip(asked.commit, trees, strict=True):
                sides.append(Side(commit, tree.__enter__(), (), place / f"state {commit}"))
            for turn in range(asked.turns + 1):
                for side in sides if turn % 2 else sides[::-1]:
                    side.state.mkdir(exist_ok=True)
                    side.run(words, timed=turn > 0)
                print(f"turn {turn} of {asked.turns}", flush=True)
        finally:
            for tree in trees:
                tree.__exit__(None, None, None)
    for side in sides:
        print(f"{side.name}: wall {statistics.median(side.walls):.1f} s, {len(side.seconds[-1])} cases")
    for side in sides[1:]:
        base, other = (sides[0], side) if side.checkout == ROOT else (side, sides[0])
        print("\n".join(compared(base, other)))


if __name__ == "__main__":
    main()
