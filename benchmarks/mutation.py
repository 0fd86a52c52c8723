"""How many mutants of the project's own code the suite notices: Cosmic Ray's mutants, each held to the tests that execute its line.

    pip install cosmic-ray coverage
    python -m benchmarks.mutation --out DIR                   all of it: a day on two cores, about 15 minutes on 32
    python -m benchmarks.mutation --out DIR --seconds 560     stops in time; the same line again goes on from DIR
    python -m benchmarks.mutation --out DIR --only harness/contracts/oracle/dot_lowering.py --count 20 --jobs 1
    python -m benchmarks.mutation --out DIR --retry tests/contracts/test_dot_lowering.py    the survivors, against new tests
    cr-report DIR/session.sqlite --surviving-only --show-diff

1. *Map*: the suite is run once, measured by Coverage.py in every process; which test executes which line.
2. *Draw*: `--count` mutants over all files in proportion to their lines, at least one a file (`benchmarks.mutation_draw`).
3. *Run*: each mutant in a copy of the checkout, against the tests that execute its line, quickest first, until one fails. A test
   that failed is run again alone: a kill is two failures. A line that runs while a module is imported is held to the tests that
   execute other lines of its file, and to those of the files that import it.
4. *Control*: every test that killed something must pass alone in a copy without a mutant, or its kills do not count.

Written to DIR: session.sqlite (Cosmic Ray's), map.json.xz, progress.json, mutants.json with each mutant's diff and what became of
it, report.md. Exit status 1 while mutants are left to run. No GPU is used.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import mutation_draw, mutation_map
from benchmarks.campaign import REQUIRED_PATH, Option, parse, run_script
from benchmarks.mutation_map import Map
from benchmarks.mutation_run import Slot, collected, copied, pytest_run

CHECKOUT = Path(__file__).resolve().parent.parent
ROOMS = ("harness", "reference", "kernels")
COUNT, TUTORIAL = 480, "2"
RESERVE = 45.0  # seconds before the end that are left for the control and the report


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    end = time.monotonic() + given.seconds
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.environ["MUTATION_CHECKOUT"] = str(CHECKOUT)
    work = Path(tempfile.mkdtemp(prefix="mu"))  # short: sockets in it have at most 108 characters of path
    try:
        check_sources(out)
        if not (out / "session.sqlite").exists():
            draw(out, given, work)
        if not (out / "map.json.xz").exists():
            mutation_map.make(CHECKOUT, out / "map.json.xz", work / "map", given.jobs, given.tests, 0.7 * given.seconds)
        print(f"{end - time.monotonic():.0f} s left for mutants", flush=True)
        run(out, given, work, end - RESERVE)
        report(out)  # the control may not come to its end
        control(out, given, work, end)
        return report(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    return parse(
        __doc__, argv=arguments, out=REQUIRED_PATH,
        count=Option(COUNT, f"about how many mutants are drawn (default {COUNT})"),
        seed=Option(TUTORIAL, f"what the draw depends on, beside the sources (default {TUTORIAL})"), only=[],
        tests=Option([], "make the map from these tests alone"), retry=Option([], "run the survivors again, against these tests"),
        jobs=os.cpu_count() or 1, seconds=Option(86400.0, "start nothing that ends later than this (default a day)"),
        budget=Option(300.0, "seconds of tests, as measured in the map, for one mutant"),
    )  # fmt: skip


def sources() -> list[Path]:
    return sorted(path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py"))


def digest() -> str:
    told = hashlib.sha256()
    for path in sources():
        told.update(str(path.relative_to(CHECKOUT)).encode() + path.read_bytes())
    return told.hexdigest()


def check_sources(out: Path) -> None:
    """SystemExit where DIR belongs to other sources: mutants are named by their place in a file."""
    place, now = out / "progress.json", digest()
    state = progress(out)
    if state.get("sources", now) != now:
        raise SystemExit(f"{out}: was begun with other sources; go on in that checkout, or give an empty directory")
    place.write_text(json.dumps(state | {"sources": now}))


def progress(out: Path) -> dict[str, Any]:
    place = out / "progress.json"
    return json.loads(place.read_text()) if place.exists() else {"passed": {}, "unsound": [], "controlled": []}


def draw(out: Path, given: argparse.Namespace, work: Path) -> None:
    """Cosmic Ray's session, with the mutants that are drawn and no others."""
    from cosmic_ray.work_db import WorkDB, use_db

    paths = [str(path.relative_to(CHECKOUT)) for path in sources()]
    chosen = [path for path in paths if not given.only or path in given.only]
    lines = {path: len((CHECKOUT / path).read_text().splitlines()) for path in chosen}
    work.mkdir(exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(given.jobs, initializer=os.chdir, initargs=(CHECKOUT,)) as pool:
        tasks = [(path, count, given.seed, str(work)) for path, count in mutation_draw.shares(lines, given.count).items()]
        found = pool.starmap(drawn_of, tasks, chunksize=1)
    items = [item for own, _ in found for item in own]
    with use_db(out / "session.part", WorkDB.Mode.create) as session:
        session.clear()
        session.add_work_items(items)
    (out / "session.part").rename(out / "session.sqlite")
    could = sum(number for _, number in found)
    print(f"{len(items)} mutants drawn of {could:,} in {sum(bool(own) for own, _ in found)} of {len(chosen)} files", flush=True)


def drawn_of(path: str, count: int, seed: str, work: str) -> tuple[list[Any], int]:
    """The work items drawn of one file, and how many it has, those left out not counted."""
    import re

    from cosmic_ray.commands.init import init
    from cosmic_ray.config import load_config
    from cosmic_ray.work_db import WorkDB, use_db

    config = load_config("benchmarks/mutation.toml")
    excluded = re.compile("|".join(config.sub("filters", "operators-filter")["exclude-operators"]))
    place = Path(work) / f"{hashlib.sha256(path.encode()).hexdigest()[:16]}.sqlite"
    with use_db(place, WorkDB.Mode.create) as session:
        init([Path(path)], session, config.operators_config)
        items = session.work_items
    place.unlink()
    spans = mutation_draw.left_out(Path(path).read_text())
    specs = {
        (spec.operator_name, spec.occurrence): item
        for item in items
        for spec in item.mutations
        if not excluded.match(spec.operator_name) and not mutation_draw.inside(spec, spans)
    }
    kept = [specs[key].mutations[0] for key in sorted(specs)]
    wanted = mutation_draw.drawn(kept, count, f"{seed} {path}")
    return [specs[spec.operator_name, spec.occurrence] for spec in wanted], len(kept)


def run(out: Path, given: argparse.Namespace, work: Path, end: float) -> None:
    """Run what has no result yet, a process a slot; one that the end interrupts goes on from the same test the next time."""
    from cosmic_ray.work_db import WorkDB, use_db

    known = Map.read(out / "map.json.xz")
    state = progress(out)
    with use_db(out / "session.sqlite", WorkDB.Mode.open) as session:
        left = sorted(session.pending_work_items, key=lambda item: item.job_id)
        again: list[str] = []
        if given.retry:
            left = [item for item, result in session.completed_work_items if told_by(result)["end"] == "survived"]
            again = collected(copied(CHECKOUT, work / "retry"), given.retry)
            state["passed"] = {}
        place = {item.job_id: (str(item.mutations[0].module_path), item.mutations[0].start_pos[0]) for item in left}
        random.Random(given.seed).shuffle(left)
        left.sort(key=lambda item: known.all_at_import(*place[item.job_id]))  # the least telling ones last
        context = multiprocessing.get_context("spawn")
        todo, done = context.Queue(), context.Queue()
        for item in left:
            tests = again or known.tests_for(*place[item.job_id], given.budget)
            tests = [test for test in tests if test not in state["unsound"]]
            todo.put((item, tests, [known.seconds.get(test, 1.0) for test in tests], state["passed"].get(item.job_id, 0)))
        slots = [
            context.Process(target=Slot.serve, args=(CHECKOUT, work / str(number), todo, done, end))
            for number in range(min(given.jobs, len(left)))
        ]
        for slot in slots:
            todo.put(None)
            slot.start()
        going, said = len(slots), time.monotonic()
        outcomes: Counter[str] = Counter()
        while going:
            told = done.get()
            if told is None:
                going -= 1
                continue
            job, result, passed = told
            if result is None:
                state["passed"][job] = passed
                outcomes["not finished"] += 1
            else:
                session.set_result(job, result)
                state["passed"].pop(job, None)
                outcomes[told_by(result)["end"]] += 1
            (out / "progress.json").write_text(json.dumps(state))
            if time.monotonic() - said > 20:
                said = time.monotonic()
                print(f"{end - said:.0f} s left: {dict(outcomes)} of {len(left)}", flush=True)
        for slot in slots:
            slot.join()
        todo.cancel_join_thread()
        print(dict(outcomes), flush=True)


def control(out: Path, given: argparse.Namespace, work: Path, end: float) -> None:
    """Take back what was killed by a test that fails without a mutant too, when it is run by itself."""
    from cosmic_ray.work_db import WorkDB, use_db

    state = progress(out)
    with use_db(out / "session.sqlite", WorkDB.Mode.open) as session:
        killers: dict[str, list[str]] = {}
        for item, result in session.completed_work_items:
            by = told_by(result).get("by")
            if by and "::" in by:
                killers.setdefault(by, []).append(item.job_id)
        fresh = sorted(set(killers) - set(state["controlled"]))
        if not fresh:
            return
        tree = copied(CHECKOUT, work / "control")
        passes = pytest_run(tree, fresh, given.jobs, max(10.0, end - time.monotonic()))
        failed = [test for test, right in passes.items() if not right]
        state["controlled"] += [test for test, right in passes.items() if right]
        state["unsound"] += failed
        wrong = [job for test in failed for job in killers[test]]
    remove_results(out / "session.sqlite", wrong)
    (out / "progress.json").write_text(json.dumps(state))
    print(f"control: {len(passes)} of {len(fresh)} tests that killed were run without a mutant, {len(failed)} failed: {failed}",
          flush=True)  # fmt: skip


def remove_results(session: Path, jobs: list[str]) -> None:
    import sqlite3

    with contextlib.closing(sqlite3.connect(session)) as database, database:
        database.executemany("delete from work_results where job_id = ?", [(job,) for job in jobs])


def told_by(result: Any) -> dict[str, Any]:
    """What `benchmarks.mutation_run` said at its end."""
    with contextlib.suppress(ValueError, IndexError):
        told = json.loads((result.output or "").splitlines()[-1])
        if isinstance(told, dict) and result.test_outcome is not None:
            return told
    return {"end": "error"}


def report(out: Path) -> int:
    """Write mutants.json and report.md; 1 where mutants are left."""
    from cosmic_ray.work_db import WorkDB, use_db

    rows: list[dict[str, Any]] = []
    known = Map.read(out / "map.json.xz")
    with use_db(out / "session.sqlite", WorkDB.Mode.open) as session:
        results = dict(session.results)
        for item in session.work_items:
            spec, result = item.mutations[0], results.get(item.job_id)
            row = {"job": item.job_id, "file": str(spec.module_path), "line": spec.start_pos[0], "in": spec.definition_name,
                   "operator": spec.operator_name, "occurrence": spec.occurrence,
                   "executed by": len(known.at(str(spec.module_path), spec.start_pos[0]))}  # fmt: skip
            if result is None:
                row |= {"end": "not run"}
            else:
                row |= told_by(result) | {"diff": result.diff}
                if row["end"] == "error":
                    row["said"] = result.output
            rows.append(row)
    rows.sort(key=lambda row: (row["end"], row["file"], row["line"]))
    (out / "mutants.json").write_text(json.dumps(rows, indent=1))
    ends = Counter(row["end"] for row in rows)
    finished = sum(ends[name] for name in ("killed", "timeout", "survived"))
    share = (ends["killed"] + ends["timeout"]) / finished if finished else 0.0
    text = [f"# {len(rows)} mutants: {', '.join(f'{count} {name}' for name, count in sorted(ends.items()))}", "",
            f"{share:.1%} of {finished} that have a result were noticed.", ""]  # fmt: skip
    for row in rows:
        if row["end"] in ("survived", "error"):
            text += [f"## {row['file']}:{row['line']} {row['operator']} ({row['job']})", "",
                     f"{row['end']}; {row.get('ran', 0)} tests passed; {row['executed by']} execute the line", "",
                     "```diff", *changed(row.get("diff") or row.get("said") or ""), "```", ""]  # fmt: skip
    (out / "report.md").write_text("\n".join(text))
    print("\n".join(text[:3]), flush=True)
    return 1 if ends["not run"] else 0


def changed(diff: str) -> list[str]:
    """The lines of a diff that were taken out and put in."""
    return [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


if __name__ == "__main__":
    run_script(main)
