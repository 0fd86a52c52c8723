"""What a fault costs: the same cases, faulty and made benign, one after the other in one place, and where the difference goes.

    python -m benchmarks.fault_cost --target cuda:0 --out DIR            about two minutes on an H200
    python -m benchmarks.fault_cost --target emulated:sm_90 --out DIR --cases 10 --turns 1   tries it without a GPU

The cases take turns among the kinds of fault of tests/faults/crashes/faulting_kernels.py. Both forms are run once before anything
is counted, so nothing is compiled. Then, `--turns` times, the benign ones and the faulty ones; each series ends with one benign
case that is counted, so that the last fault's new worker is paid for too. The cost of a fault is the wall of its case less the wall
of the same case made benign.

`--standbys 3 2 1 0`: how many workers wait (the first number is held to the goal, the others take a third of
the cases, once). Written to DIR: fault_cost.json, after each series. Exit status 1 when the goal is missed or a case is not judged
as it should be, 2 without the target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.campaign import REQUIRED_PATH, Option, parse, run_script, write
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool

CHECKOUT = Path(__file__).resolve().parent.parent

ADDRESS = "tests.faults.crashes.faulting_kernels:CONTRACT"
GOAL = {"median": 0.7, "p95": 1.5}  # seconds a fault
BUCKETS = ("start", "launch", "compile", "transfer", "harness", "reference")


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    try:
        machine = target(given.target)
    except ValueError as error:
        print(error)
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    told: dict = {"target": machine.name, "model": machine.model, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                  "command": "python -m benchmarks.fault_cost " + " ".join(sys.argv[1:]), "goal": GOAL, "cases": given.cases,
                  "wrong": [], "series": {}}  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        kinds = warmed(machine, Path(scratch), told)
        print(f"kinds: {', '.join(kinds)}", flush=True)
        for standbys in given.standbys:
            series: dict = {"pairs": [], "walls": [], "parts": []}
            told["series"][str(standbys)] = series
            held = standbys == given.standbys[0]
            count = given.cases if held else max(len(kinds), given.cases // 3)
            for turn in range(given.turns if held else 1):
                one_turn(machine, kinds, count, standbys, Path(scratch) / f"{standbys}-{turn}", series, told["wrong"])
                series |= summary(series)
                write(given.out / "fault_cost.json", told)
                print(f"standby workers {standbys}: {series['sentence']}", flush=True)
    first = told["series"][str(given.standbys[0])]
    for line in told["wrong"][:10]:
        print(line)
    return 1 if told["wrong"] or first["median"] > GOAL["median"] or first["p95"] > GOAL["p95"] else 0


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    return parse(
        __doc__, argv=arguments, target="cuda:0", out=REQUIRED_PATH, cases=50,
        turns=Option(3, "of the first number of standby workers; one of the others (default 3)"),
        standbys=Option((3, 2, 1, 0), "workers that wait (default 3 2 1 0)"),
    )  # fmt: skip


def warmed(machine: Target, scratch: Path, told: dict) -> list[str]:
    """The kinds that this target faults by, each compiled in both forms."""
    contract, kinds = resolve(ADDRESS), list[str]()
    with WorkerPool(journal=Journal(scratch / "warming.jsonl")) as pool:
        for benign, faulty in zip(*[iter(contract.required(machine))] * 2, strict=True):
            first, second = pool.judge(benign, machine), pool.judge(faulty, machine)
            if Outcome.NOT_MODELLED in (first.outcome, second.outcome):
                continue
            kinds.append(benign.problem.kind)
            check(benign, first, told["wrong"])
            check(faulty, second, told["wrong"])
        pool.judge(made(kinds[0], False, 0), machine)
        begun = time.perf_counter()
        inside = [pool.judge(made(kinds[0], False, number), machine).seconds["total"] for number in range(200)]
        around = (time.perf_counter() - begun - sum(inside)) / len(inside)
        told["round_trip"] = {"case_seconds": statistics.median(inside), "around_it": around}
    trip = told["round_trip"]
    print(
        f"a benign case takes {trip['case_seconds']:.4f} s in its worker, {trip['around_it']:.4f} s of pipe and journal around it"
    )
    return kinds


def check(case: Case, verdict: Verdict, wrong: list[str]) -> None:
    """Note a verdict that is not what the case was made for."""
    expected = case.problem.kind if case.problem.faulty else "pass"
    if str(verdict.outcome) != expected or verdict.failed != case.problem.faulty or verdict.decision is Decision.INCONCLUSIVE:
        came = f"{verdict.decision}, {verdict.outcome} {verdict.message} {verdict.location}"
        wrong.append(f"{case.problem}: {came}; expected {expected}")


def one_turn(machine: Target, kinds: list[str], count: int, standbys: int, scratch: Path, series: dict, wrong: list[str]) -> None:
    """One benign series and one faulty series, each in a worker pool of its own that has judged a case of its kind before."""
    walls: dict[bool, list[float]] = {}
    for faulty in (False, True):
        with WorkerPool(journal=Journal(scratch / f"{faulty}.jsonl"), standbys=standbys) as pool:
            pool.judge(made(kinds[0], False, 0), machine)
            pool.judge(made(kinds[0], faulty, 0), machine)  # the first fault: from now on all standby workers wait
            cost, shared = list[float](), pool.standbys[machine.name]
            for number in range(count + 1):
                case = made(kinds[number % len(kinds)], faulty and number < count, number)
                waited, begun = shared.waited, time.perf_counter()
                verdict = pool.judge(case, machine)
                cost.append(time.perf_counter() - begun)
                check(case, verdict, wrong)
                if faulty:
                    parts = {name: verdict.seconds.get(name, 0.0) for name in BUCKETS}
                    parts |= {"wall": cost[-1], "waited": shared.waited - waited}
                    parts["other"] = parts["wall"] - parts["waited"] - sum(parts[name] for name in BUCKETS[1:])  # pipe, kill, fork
                    series["parts"].append({"kind": case.problem.kind, "number": number, **parts})
            walls[faulty] = cost
            wrong.extend(f"a worker could not warm up: {said}" for said in shared.failures)
    series["walls"].append([sum(walls[True]), sum(walls[False])])
    series["pairs"] += [bad - good for bad, good in zip(walls[True], walls[False], strict=True)][:count]
    series.setdefault("whole", []).append((sum(walls[True]) - sum(walls[False])) / count)


def made(kind: str, faulty: bool, number: int) -> Case:
    record = {"kind": kind, "faulty": faulty}
    return resolve(ADDRESS).case_from_json({"problem": record, "data_seed": number})


def summary(series: dict) -> dict:
    """Median and 95th percentile of the cost of a fault, the means of what it is made of, and a sentence."""
    pairs, parts = sorted(series["pairs"]), series["parts"]
    p95 = pairs[min(len(pairs) - 1, int(0.95 * len(pairs)))]
    mean = {name: statistics.mean(part[name] for part in parts) for name in ("wall", "waited", "other", *BUCKETS)}
    found = {"median": statistics.median(pairs), "p95": p95, "mean": mean}
    share = ", ".join(f"{name} {seconds:.3f}" for name, seconds in mean.items() if name not in ("wall", "start"))
    found["sentence"] = (f"a fault costs {found['median']:.3f} s (median), {p95:.3f} s (95th percentile), "
                         f"{statistics.mean(series['whole']):.3f} s (whole walls); a case of it: {share}; by kind: "
                         f"{by_kind(parts)}; a worker starts in {mean['start']:.3f} s beside it")  # fmt: skip
    return found


def by_kind(parts: list[dict]) -> str:
    """The mean seconds of a case's own launch by kind: how long a device takes to say that it faulted."""
    kinds = {part["kind"] for part in parts}
    return ", ".join(
        f"{kind} {statistics.mean(part['launch'] for part in parts if part['kind'] == kind):.3f}" for kind in sorted(kinds)
    )


if __name__ == "__main__":
    run_script(main)
