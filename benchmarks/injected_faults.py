"""Faults of all kinds among innocent cases under pytest, and kills at random times of runs that are then resumed.

    python -m benchmarks.injected_faults pytest --faults 1000 --target emulated:sm_90 --out DIR
    python -m benchmarks.injected_faults pytest --faults 200 --target cuda --timeout 12 --out DIR
    python -m benchmarks.injected_faults kills --kills 20 --seed 1 --out DIR

`pytest` judges ten innocent cases a fault by `tests/faults/crashes/injected_session.py` with four workers, and then asks of the
journals, the JUnit file and the reproducers: is each case that was begun in the results exactly once, is no innocent failed, has
every fault its name, and every signature its reproducer? `kills` makes one undisturbed `run` over the same faults (a process that
kills itself and a hang among them), then others in which by turns a worker and the parent die of SIGKILL at times drawn from the
seed, goes on with ``run --resume`` until the end, compares everything but times, and holds each journal against its results: one
verdict a case, none judged again after it. Four in five of the workers that die have a case out. Both write what they found into
DIR and end with status 1 where something does not hold.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.campaign import REQUIRED_PATH, Option, parse, run_script, write
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.workers.journal import records
from bitverdict.harness.workers.process import UNKNOWN
from tests.faults.crashes.injected import EVERY, NAMES, fault_of

CHECKOUT = Path(__file__).resolve().parent.parent

SESSION = "tests/faults/crashes/injected_session.py"


# --- faults under pytest


def session(faults: int, target: str, timeout: float, workers: int, out: Path) -> dict:
    """One pytest session and what is found about it."""
    cases = EVERY * faults
    state, junit = out / "state", out / "junit.xml"
    variables = os.environ | {"BITVERDICT_STATE": str(state), "BITVERDICT_INJECTED": f"{cases}/{target}/{timeout:g}"}
    variables.pop("BITVERDICT_SHARE", None)  # all of its cases, whatever share of the suite this commit runs
    words = [sys.executable, "-m", "pytest", SESSION, "-q", "--tb=no", "-p", "no:cacheprovider", f"--junitxml={junit}", "-rN"]
    words += ["-p", "no:randomly", "--no-header"]
    if importlib.util.find_spec("xdist") is not None and workers:
        words += ["-n", str(workers)]
    begun = time.monotonic()
    with (out / "pytest.log").open("w") as log:
        status = subprocess.run(words, cwd=CHECKOUT, env=variables, stdout=log, stderr=subprocess.STDOUT).returncode
    seconds = time.monotonic() - begun
    found = checked(cases, not target.startswith("emulated"), [*state.glob("journal/*.jsonl")], junit, state / "failures")
    return {"cases": cases, "faults": faults, "target": target, "pytest status": status, "seconds": round(seconds, 1), **found}


def checked(cases: int, gpu: bool, journals: Iterable[Path], junit: Path, failures: Path) -> dict:
    """What journals, results and reproducers of a session say of `cases` numbers; ``wrong`` is empty if all of it holds."""
    begun, ended, again, wrong, signatures = Counter[int](), Counter[int](), Counter[int](), list[str](), set[tuple]()
    for journal in journals:
        numbers: dict[int, int] = {}
        for record in records(journal):
            if record["event"] == "begin":
                numbers[record["number"]] = record["case"]["problem"]["number"]
                begun[numbers[record["number"]]] += 1
            elif record["event"] == "again":
                again[numbers[record["number"]]] += 1
            elif record["event"] == "end":
                verdict = Verdict.from_json(record["verdict"])
                ended[numbers[record["number"]]] += 1
                if verdict.decision != "pass":
                    signatures.add(verdict.signature)
    results, named = Counter[int](), Counter[str]()
    for entry in ElementTree.parse(junit).iter("testcase"):
        number = int(re.search(r"\[(\d+)\]", entry.attrib["name"])[1])  # type: ignore[index]
        results[number] += 1
        told = next((worker.attrib.get("message", "") for worker in entry if worker.tag in ("failure", "error", "skipped")), "")
        name = re.sub(r"^[\w.]*?\w+\d+: |^Skipped: ", "", told).partition(":")[0] if told else "pass"
        expected_outcome = NAMES.get(fault_of(number, gpu=gpu), "pass")
        named[name] += 1
        if name != expected_outcome:
            wrong.append(f"case {number} expects {expected_outcome!r} and is told as {told[:160] or 'pass'!r}")
    for count, what in ((begun, "begun in the journals"), (ended, "ended in the journals"), (results, "in the results")):
        wrong += [f"case {number} is {what} {count[number]} times" for number in range(cases) if count[number] != 1]
        wrong += [f"case {number}, {what}, is none of the session's" for number in count if number not in range(cases)]
    stored = {tuple(json.loads(path.read_text())["signature"]) for path in failures.glob("*.json")}
    wrong += [f"no reproducer of {signature}" for signature in sorted(signatures - stored)]
    wrong += [f"a reproducer of {signature}, which no verdict has" for signature in sorted(stored - signatures)]
    return {"named": dict(named.most_common()), "judged again": again.total(), "bugs": len(stored), "wrong": wrong}


# --- kills

JOBS = 2
LOOKS = ("fault repeats", "fault does not repeat", "judged once")  # which say after how many cases of its worker a fault came
NOTES = rf"^ *({'|'.join(LOOKS)}): "


def command(cases: int, out: Path, *words: str, contract: str = "KILLED") -> list[str]:
    asked = ["--contract", f"tests.faults.crashes.injected:{contract}", "--target", "emulated:sm_90", "--jobs", str(JOBS)]
    asked += ["--profile", "exhaustive", "--max-cases", str(cases), "--timeout", "6", "--shrink-seconds", "0"]
    asked += ["--json", str(out / "run.jsonl"), "--junit", str(out / "run.xml"), "-v"]
    return [sys.executable, "-m", "bitverdict", "run", *(words or asked)]


def run(words: list[str], out: Path) -> subprocess.Popen:
    out.mkdir(parents=True, exist_ok=True)
    variables = os.environ | {"BITVERDICT_STATE": str(out / "state"), "COLUMNS": "160"}
    with (out / "stdout.txt").open("w") as told, (out / "stderr.txt").open("a") as error:
        return subprocess.Popen(words, cwd=CHECKOUT, env=variables, stdout=told, stderr=error)


def results(out: Path, status: int) -> dict:
    """Everything a run leaves but times, the texts of dying processes and its own directory."""
    told = (out / "stdout.txt").read_text().replace(str(out), "OUT")
    shown = re.sub(r" \([^()]* s; -v for the table\)$", "", told, flags=re.MULTILINE).splitlines()
    times = rf"^\[ *[\d.]+ s\]|time in workers|harness \+ start\)|{NOTES}"
    table = [line for line in shown if not re.search(times, line)]
    lines = [json.loads(line) for line in (out / "run.jsonl").read_text().splitlines()]
    junit = ElementTree.parse(out / "run.xml")
    for entry in junit.iter("testcase"):
        del entry.attrib["time"]
    seeds = {path.name: json.loads(path.read_text()) for path in (out / "state" / "failures").glob("*.json")}
    return {
        "status": status,
        "table": [timeless(line) for line in table],
        "json": [timeless(line) for line in lines if line["event"] != "run"],
        "junit": timeless(ElementTree.tostring(junit.getroot(), encoding="unicode")),
        "seeds": {name: timeless(seed) for name, seed in sorted(seeds.items())},
    }


def timeless(value: object) -> object:
    """`value` without times, addresses, what a dying process printed, and how a primary fault was told from a collateral fault:
    which worker gets a case, and after how many others, is a matter of time."""
    if isinstance(value, dict):
        left = {"time", "seconds", "processor", "stderr", "traceback", "wall", "path", "versions", "own_share", *LOOKS}
        return {name: timeless(inner) for name, inner in value.items() if name not in left}
    if isinstance(value, list):
        return [timeless(inner) for inner in value]
    if isinstance(value, str):
        return re.sub(r"0x[0-9a-f]{6,}", "#", value)
    return value


def journal_of(out: Path) -> Path:
    """The one journal of the run in `out`. ValueError when there is none, or a second."""
    (found,) = (out / "state" / "journal").glob("*.jsonl")
    return found


def books(out: Path) -> list[str]:
    """What does not hold of a run that was ended and taken up: each case comes to one verdict, begins again only where the run
    died with it out, and is in the results once, as it was judged. Of a run that shrinks nothing."""
    wrong, at, begun, verdicts = list[str](), dict[int, str](), set[str](), dict[str, str]()
    for record in records(journal_of(out)):
        match record["event"]:
            case "resumed":
                begun.clear()
            case "begin":
                key = at[record["number"]] = json.dumps(record["case"], sort_keys=True)
                wrong += [f"judged again after its verdict: {key}"] if key in verdicts else []
                wrong += [f"out twice: {key}"] if key in begun else []
                begun.add(key)
            case "end":
                key = at[record["number"]]
                wrong += [f"two verdicts: {key}"] if key in verdicts else []
                verdicts[key] = record["verdict"]["outcome"]
    told = [json.loads(line) for line in (out / "run.jsonl").read_text().splitlines()]
    shown = [(json.dumps(line["case"], sort_keys=True), line["verdict"]["outcome"]) for line in told if line["event"] == "verdict"]
    counts = Counter(key for key, _ in shown)
    wrong += [f"in the results {counts[key]} times: {key}" for key in verdicts.keys() | counts.keys() if counts[key] != 1]
    wrong += [f"no verdict in the journal: {key}" for key in counts.keys() - verdicts.keys()]
    others = [(key, outcome) for key, outcome in shown if verdicts.get(key, outcome) != outcome]
    return wrong + [f"shown as {outcome}, judged as {verdicts[key]}: {key}" for key, outcome in others]


def differences(undisturbed: dict, got: dict, out: Path) -> list[str]:
    """The parts of `got`, the results in `out`, that are others than of the undisturbed run, and what its books do not hold."""
    return [f"{name} differs" for name in undisturbed if got[name] != undisturbed[name]] + books(out)


def hit(out: Path) -> dict[str, int]:
    """Cases that were out when their worker was killed from outside, and those out when the parent was, as the journal has them."""
    found, cases, open_cases = Counter[str](), dict[int, dict](), set[int]()
    for record in records(journal_of(out)):
        match record["event"]:
            case "begin":
                cases[record["number"]] = record["case"]
                open_cases.add(record["number"])
            case "end":
                open_cases.discard(record["number"])
            case "again":
                mutated, first = cases[record["number"]]["problem"]["fault"] == "kill", record["verdict"]
                from_outside = first["outcome"] == "killed" or first["details"]["status"] == UNKNOWN
                found["with a worker"] += from_outside and not mutated
            case "resumed":
                found["with the parent"] += len(open_cases)
                open_cases.clear()
    return dict(found)


def workers(process: int) -> dict[int, int]:
    """Every descendant -> its depth: at 1 the process of the run, at 2 the forkserver and its tracker, at 3 the cells."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(status.read_text().rpartition(")")[2].split()[1]), []).append(int(status.parent.name))
        except (OSError, IndexError):
            continue
    found, todo = dict[int, int](), [(process, 0)]
    while todo:
        above, depth = todo.pop()
        below = [(worker, depth + 1) for worker in parents.get(above, [])]
        found.update(below)
        todo += below
    return found


def judging(process: int, out: Path) -> list[int]:
    """The cells, where each of them has a case out; else none."""
    open_cases = set[int]()
    for record in records(journal_of(out)):
        match record["event"]:
            case "begin":
                open_cases.add(record["number"])
            case "end":
                open_cases.discard(record["number"])
            case "resumed":
                open_cases.clear()
    cells = [worker for worker, depth in workers(process).items() if depth == 3]
    return cells if len(cells) == len(open_cases) == JOBS else []


def killed(cases: int, wall: float, plan: list[str], draw: random.Random, out: Path) -> tuple[dict, list[str]]:
    """The results of a run in which the members of `plan` ("worker", "parent") are killed in turn, and what was done."""
    done: list[str] = []
    process = run(command(cases, out), out)
    while process.poll() is None and not [*(out / "state" / "journal").glob("*.jsonl")]:
        time.sleep(0.01)  # before its first record there is nothing to go on with
    for who in plan:
        after, any_worker = draw.uniform(0.15, 0.9) * wall, draw.random() < 0.2
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            pass
        there: list[int] = []
        while process.poll() is None and who == "worker" and not there:
            below = [worker for worker, depth in workers(process.pid).items() if depth > 1]
            there = below if any_worker else judging(process.pid, out)
            time.sleep(0 if there else 0.002)
        if process.poll() is not None:
            done.append(f"{who}: over before {after:.2f} s")
            continue
        collateral = process.pid if who == "parent" else draw.choice(there)
        try:
            os.kill(collateral, signal.SIGKILL)
            done.append(f"{who} after {after:.2f} s" + (", any of them" if who == "worker" and any_worker else ""))
        except ProcessLookupError:
            done.append(f"{who}: gone before {after:.2f} s")
        if who == "parent":
            process.wait()
            process = run(command(cases, out, "--resume"), out)
    return results(out, process.wait(600)), done


def kills(count: int, seed: int, cases: int, out: Path) -> dict:
    """An undisturbed run, then runs with two kills each, a worker's and the parent's, until there were `count` kills."""
    begun = time.monotonic()
    undisturbed = results(out / "undisturbed", run(command(cases, out / "undisturbed"), out / "undisturbed").wait(600))
    wall = time.monotonic() - begun
    draw, wrong, told, out_when = random.Random(seed), books(out / "undisturbed"), Counter[str](), Counter[str]()
    number = 0
    print(f"seed {seed}; undisturbed: {wall:.1f} s, {undisturbed['table'][-1]}", flush=True)
    while min(told["worker"], told["parent"]) < count // 2 and number < 3 * count:
        place = out / f"run-{number}"
        plan = ["worker", "parent"] if number % 2 == 0 else ["parent", "worker"]
        got, done = killed(cases, 0.45 * wall, plan, draw, place)
        told.update(line.split()[0] for line in done if " after " in line)
        differs = differences(undisturbed, got, place)
        out_when.update(hit(place))
        wrong += [f"run {number} ({'; '.join(done)}): {what}" for what in differs]
        print(f"run {number}: {'; '.join(done)}: {'; '.join(differs) or 'the same'}", flush=True)
        number += 1
    found = {"seed": seed, "cases": cases, "undisturbed seconds": round(wall, 1), "undisturbed": undisturbed["table"][-1]}
    return found | {"runs": number, "kills": dict(told), "cases out": dict(out_when), "wrong": wrong}


def main() -> int:
    asked = parse(
        __doc__, "what=pytest|kills", faults=20, target="emulated:sm_90",
        timeout=Option(4.0, "seconds a case may take in the session"), workers=Option(4, "of pytest; 0: none, in one process"),
        kills=20, seed=1, cases=300, out=REQUIRED_PATH,
    )  # fmt: skip
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if asked.what == "pytest":
        found = session(asked.faults, asked.target, asked.timeout, asked.workers, out)
    else:
        found = kills(asked.kills, asked.seed, asked.cases, out)
    write(out / f"{asked.what}.json", found)
    for name, value in found.items():
        print(f"{name}: {value if name != 'wrong' else f'{len(value)} ' + '; '.join(value[:8])}")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    run_script(main)
