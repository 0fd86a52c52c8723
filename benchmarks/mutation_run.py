"""One mutant at a time, in a copy of the checkout: `Slot` has Cosmic Ray apply it, `python -m benchmarks.mutation_run` tests it.

Nothing is left from one mutant to the next: no bytecode, no compiled kernel, no example of Hypothesis, no state of a run, no
process. Hypothesis draws from seed 0. A test that takes far longer than in the map counts as a kill by time.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

COPIED = ("benchmarks", "bitverdict", "docs", "harness", "kernels", "reference", "tests")
LEFT_BEHIND = ("__pycache__", ".bitverdict", ".hypothesis", ".pytest_cache")
STATE = ("state", "cache", "tmp")
FIRST = 12.0  # seconds of tests in the first of two processes: most mutants end there, and few test files are imported
COLLECTED_WITHIN = 240.0  # seconds
SLOWER = 10.0  # times the seconds of the map, and
AT_LEAST = 90.0  # seconds, before a test is taken to hang
_PR_SET_CHILD_SUBREAPER = 36


def copied(checkout: Path, place: Path) -> Path:
    """A copy of the checkout below `place`, with empty directories beside it for what a run leaves."""
    tree = place / "t"
    for name in COPIED:
        shutil.copytree(checkout / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
    for path in checkout.iterdir():
        if path.is_file():
            shutil.copy2(path, tree)
    for name in STATE:
        (place / name).mkdir()
    return tree


def environment(tree: Path, before: list[str] | None = None) -> dict[str, str]:
    """The variables for a test run in `tree`: its own state, no GPU, one thread a process, no package of another checkout."""
    place = tree.parent
    checkout = os.environ.get("MUTATION_CHECKOUT", os.getcwd())
    path = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and os.path.realpath(part) != checkout]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return os.environ | threads | {
        "MUTATION_CHECKOUT": checkout,
        "PYTHONPATH": os.pathsep.join([*(before or []), str(tree), *path]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "BITVERDICT_STATE": str(place / "state"),
        "TRITON_CACHE_DIR": str(place / "cache"),
        "TMPDIR": str(place / "tmp"),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "TENSOR_CORE_WORDS": os.environ.get("TENSOR_CORE_WORDS", str(Path(checkout).parent / "shared" / "golden")),
    }  # fmt: skip


def pytest_command(jobs: int = 0) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.mutation_pytest", "-p", "no:cacheprovider", "--tb=no",
               "--hypothesis-seed=0", "-n", str(jobs)]  # fmt: skip
    return [*command, "--dist", "worksteal"] if jobs else command


def run_to_end(command: list[str], tree: Path, variables: dict[str, str], limit: float | None = None) -> list[str]:
    """The lines that the command printed, within `limit` seconds."""
    with tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen(command, cwd=tree, env=variables, stdin=subprocess.DEVNULL, stdout=said,
                                   stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        try:
            running.wait(limit)
        except subprocess.TimeoutExpired:
            print(f"stopped after {limit:.0f} s: {' '.join(command[1:4])}", flush=True)
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        said.seek(0)
        return said.read().strip().splitlines()


def outcomes(log: Path) -> dict[str, tuple[str, float]]:
    """Each test's outcome ("passed", "failed", "skipped") and its seconds, of what `benchmarks.mutation_pytest` wrote."""
    found: dict[str, tuple[str, float]] = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        told = json.loads(line)
        if "test" in told and told["when"] != "collect":
            outcome, seconds = found.get(told["test"], ("passed", 0.0))
            worst = max(outcome, told["outcome"], key=("passed", "skipped", "failed").index)
            found[told["test"]] = (worst, seconds + told["seconds"])
    return found


def pytest_run(tree: Path, tests: list[str], jobs: int, limit: float) -> dict[str, bool]:
    """Whether each of `tests` passes in `tree`; without those that did not run within `limit` seconds."""
    chosen, log = tree.parent / "chosen.json", tree.parent / "log.jsonl"
    chosen.write_text(json.dumps(tests))
    log.unlink(missing_ok=True)
    files = sorted({test.partition("::")[0] for test in tests})
    variables = environment(tree) | {"MUTATION_TESTS": str(chosen), "MUTATION_LOG": str(log)}
    run_to_end([*pytest_command(jobs), *files], tree, variables, limit)
    return {test: outcome == "passed" for test, (outcome, _) in outcomes(log).items()}


def collected(tree: Path, paths: list[str]) -> list[str]:
    """Node ids of the tests at `paths`, in the order of the files."""
    told = run_to_end([*pytest_command(), "--collect-only", *paths], tree, environment(tree))
    return [line for line in told if "::" in line]


class Slot:
    """A copy of the checkout, and the process that runs one mutant after the other in it."""

    @staticmethod
    def serve(checkout: Path, place: Path, todo: Any, done: Any, end: float) -> None:
        """Until `todo` gives None or the time is `end`. Into `done`: (job, result or None where time ran out, tests passed)."""
        import cosmic_ray.mutating

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a mutant leaves behind becomes a worker of this process
        os.environ.setdefault("MUTATION_CHECKOUT", str(checkout))
        try:
            tree = copied(checkout, place)
            os.environ.update(environment(tree))
            os.chdir(tree)
            while (item := todo.get()) is not None and time.monotonic() < end:
                work, tests, seconds, passed = item
                plan = place / "plan.json"
                plan.write_text(json.dumps({"tests": tests, "seconds": seconds, "passed": passed, "until": end}))
                left = max(5.0, end - time.monotonic() + 15.0)
                command = f"{sys.executable} -m benchmarks.mutation_run {plan}"
                result = cosmic_ray.mutating.mutate_and_test(work.mutations, command, left)
                told = _last(result.output)
                stopped = told.get("end") == "unfinished" or result.output == "timeout"  # by us, by Cosmic Ray
                if stopped and result.test_outcome is not None:
                    done.put((work.job_id, None, told.get("ran", passed)))
                else:
                    done.put((work.job_id, result, 0))
                _end_descendants()
                for name in STATE:
                    shutil.rmtree(place / name, ignore_errors=True)
                    (place / name).mkdir()
                for name in LEFT_BEHIND:
                    shutil.rmtree(tree / name, ignore_errors=True)
        finally:
            done.put(None)


def _last(output: str | None) -> dict[str, Any]:
    with suppress(ValueError, IndexError):
        told = json.loads((output or "").splitlines()[-1])
        return told if isinstance(told, dict) else {}
    return {}


def _after(log: Path, offset: int) -> bytes:
    """The whole lines of the file from `offset` on."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(offset)
        text = file.read()
        return text[: text.rfind(b"\n") + 1]
    return b""


def _end_descendants() -> None:
    """Kill and reap every process below this one."""
    while below := _below(os.getpid()):
        for process in below:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _below(process: int) -> list[int]:
    found = [process]
    for parent in found:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found[1:]


class Tested:
    """What became of one mutant: `end` is killed, timeout, survived or unfinished; `by` the test that failed twice."""

    def __init__(self, plan: dict[str, Any], work: Path) -> None:
        self.tests: list[str] = plan["tests"]
        self.seconds = dict(zip(self.tests, plan["seconds"], strict=True))
        self.until, self.work = plan["until"], work
        self.ran = plan["passed"]
        self.flaky: list[str] = []
        self.begun = time.monotonic()

    def run(self) -> dict[str, Any]:
        end, by = "survived", ""
        while self.ran < len(self.tests) and end == "survived":
            end, by = self._some()
        return {"end": end, "by": by, "ran": self.ran, "of": len(self.tests), "flaky": self.flaky,
                "seconds": round(time.monotonic() - self.begun, 1)}  # fmt: skip

    def _some(self) -> tuple[str, str]:
        """Run the next tests in one process."""
        left = self.tests[self.ran :]
        if not self.ran:
            total = 0.0
            for count, test in enumerate(left, 1):
                total += self.seconds[test]
                if total > FIRST:
                    left = left[:count]
                    break
        passed, failed, end = self._pytest(left)
        if end == "passed":
            self.ran += len(left)
            return "survived", ""
        if end == "failed" and failed in self.seconds:
            _, _, again = self._pytest([failed])
            if again == "passed":
                self.flaky.append(failed)
                self.ran += passed + 1
                return "survived", ""
            end = again if again != "failed" else "killed"
            return end, failed
        self.ran += passed
        return ("killed", failed or end) if end in ("failed", "stopped") else (end, failed)

    def _pytest(self, tests: list[str]) -> tuple[int, str, str]:
        """How many passed; the test that failed or hung, or what did where none began; the end: passed, failed, stopped (with
        neither), timeout, unfinished."""
        chosen, log = self.work / "chosen.json", self.work / "log.jsonl"
        chosen.write_text(json.dumps(tests))
        log.unlink(missing_ok=True)
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        variables = os.environ | {"MUTATION_TESTS": str(chosen), "MUTATION_LOG": str(log)}
        variables.pop("PYTEST_XDIST_WORKER", None)  # of a pytest that tests this file
        with open(self.work / "said.txt", "w+") as said:
            running = subprocess.Popen([*pytest_command(), "-x", *files], stdin=subprocess.DEVNULL, stdout=said,
                                       stderr=subprocess.STDOUT, env=variables)  # fmt: skip
            read, since, test, allowed = 0, time.monotonic(), "", COLLECTED_WITHIN
            while running.poll() is None:
                time.sleep(0.05)
                now = time.monotonic()
                fresh = _after(log, read)
                if fresh:
                    read, since = read + len(fresh), now
                    begun = [told["begins"] for line in fresh.decode().splitlines() if "begins" in (told := _last(line))]
                    if begun:
                        test, allowed = begun[-1], max(AT_LEAST, SLOWER * self.seconds.get(begun[-1], 0.0))
                if now > self.until or now - since > allowed:
                    running.kill()
                    running.wait()
                    passed = sum(outcome == "passed" for outcome, _ in outcomes(log).values())
                    return passed, test or "collection", "unfinished" if now > self.until else "timeout"
            told = outcomes(log)
            passed = sum(outcome != "failed" for outcome, _ in told.values())
            bad = [test for test, (outcome, _) in told.items() if outcome == "failed"]
            if bad:
                return passed, bad[0], "failed"
            if running.returncode in (0, 5):  # 5: none of them is there any more, the mutant changed their names
                return passed, "", "passed"
            said.seek(0)
            return passed, test or said.read()[-300:], "stopped"


def main(arguments: list[str]) -> int:
    """0 where all tests of the plan passed. The last line printed says what became of the mutant."""
    place = Path(arguments[0])
    told = Tested(json.loads(place.read_text()), place.parent).run()
    print(json.dumps(told))
    return 0 if told["end"] == "survived" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
