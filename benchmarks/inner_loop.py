"""How long a person waits: from a command to its first verdict, and from a save to its answer.

    python -m benchmarks.inner_loop [--runs 10] [--saves 20] [--out FILE]

Each cold run of ``bitverdict run`` is beside one of its peer, ``python -c "import torch, triton"``: no process that has both takes
less. A save changes the kernel of a small matmul, so that it is compiled anew, or a comment beside it; each is another change.
Times are of the wall, with the load average beside them. CPU seconds are those of the run's own process, not of its workers.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.campaign import Option, parse, run_script, write

CHECKOUT = Path(__file__).resolve().parents[1]
EXAMPLE = CHECKOUT / "docs" / "examples" / "tutorial_matmul.py"
PEER = [sys.executable, "-c", "import torch, triton"]
EDITS = {
    "the kernel, right": ("    acc = tl.zeros(", "    # edit {n}\n    acc = tl.zeros("),
    "the kernel, wrong": ("mask=offs_k[None, :] < K - k, other=0.0)", "mask=offs_k[None, :] < K - k, other=0.0) * {n}"),
    "beside the kernel": ('"""A matmul', '"""{n} A matmul'),
}


def first_verdict(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds until the first line of `words` that tells of a verdict, and CPU seconds of all of it."""
    before, begun = _cpu(), time.perf_counter()
    command = [sys.executable, "-m", "bitverdict", *words]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=CHECKOUT)
    assert run.stdout is not None
    line = run.stdout.readline()
    seconds = time.perf_counter() - begun
    if "cases, last" not in line:
        raise SystemExit(f"the first line is {line!r}: must tell of a verdict")
    run.communicate()
    return seconds, _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cold(runs: int, environment: dict[str, str]) -> dict:
    """First verdicts of a user's launcher, each beside its peer; the first pair warms caches and is left out."""
    words = ["run", "matmul", "--launcher", str(EXAMPLE) + ":matmul", "--target", "emulated:sm_90", "--max-cases", "1"]
    verdicts, peers, spent = [], [], []
    for number in range(runs + 1):
        seconds, cpu = first_verdict(words, environment)
        begun = time.perf_counter()
        subprocess.run(PEER, check=True, env=environment, cwd=CHECKOUT)
        if number:
            verdicts.append(seconds), spent.append(cpu), peers.append(time.perf_counter() - begun)
    return {
        "first verdict": told(verdicts),
        "its CPU": told(spent),
        "import torch, triton": told(peers),
        "ratio of medians": round(statistics.median(verdicts) / statistics.median(peers), 2),
    }


def _take_interrupts() -> None:
    """Ctrl-C ends what is started, also where a shell that runs this in the background has SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Watching:
    """``bitverdict watch`` of a copy of the example."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.file = folder / "mine.py"
        self.text = EXAMPLE.read_text()
        self.file.write_text(self.text)
        words = ["watch", f"{self.file}:matmul", "--target", "emulated:sm_90"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bitverdict", *words],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=CHECKOUT,
            preexec_fn=_take_interrupts,
        )
        self.answer()

    def answer(self) -> str:
        """The next answer to a save: a line that begins with a time of day."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line[:2].isdigit() and line[2] == ":":
                return line
        raise SystemExit("the watch ended")

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


def saves(count: int, environment: dict[str, str], pause: float) -> dict:
    """Answers to `count` saves of each kind of edit. `pause`: seconds between an answer and the next save."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        watching = Watching(Path(folder), environment)
        try:
            for kind, (old, new) in EDITS.items():
                seconds = []
                assert old in watching.text
                for number in range(1, count + 1):
                    time.sleep(pause)
                    begun = time.perf_counter()
                    watching.file.write_text(watching.text.replace(old, new.format(n=number + 1)))
                    line = watching.answer()
                    seconds.append(time.perf_counter() - begun)
                    if ("FAIL" in line) != kind.endswith("wrong"):
                        raise SystemExit(f"after an edit of {kind}: {line}")
                found[kind] = told(seconds)
        finally:
            watching.end()
    return found


def told(seconds: list[float]) -> dict:
    return {
        "median": round(statistics.median(seconds), 3),
        "least": round(min(seconds), 3),
        "most": round(max(seconds), 3),
        "of": len(seconds),
        "load average": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    arguments = parse(
        __doc__, runs=Option(10, "cold runs (default 10)"), saves=Option(20, "saves of each kind (default 20)"),
        pause=Option(3.0, "seconds between an answer and the next save (default 3)"), out=Path,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as state:
        environment = os.environ | {"BITVERDICT_STATE": state, "PYTHONPATH": str(CHECKOUT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has its bytecode
        found = cold(arguments.runs, environment) | saves(arguments.saves, environment, arguments.pause)
    for name, figures in found.items():
        print(f"{name}: {figures}")
    if arguments.out:
        write(arguments.out, found)


if __name__ == "__main__":
    run_script(main)
