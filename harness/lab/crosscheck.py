"""Hardware against plan against emulation, on the same cases: ``bitverdict lab crosscheck STEM --target cuda:0``.

For each drawn case the words of the GPU, the words of the plan and the words of the emulated GPU of the same architecture are held
against each other. Because agreement says nothing unless disagreement was possible, the plan's words are also computed under a
model that is wrong in one constant (`MOVED_MODELS`); a word that comes out the same under all of them would have agreed with
anything near. Each case is a task of a worker (`bitverdict.harness.workers.task`): one that faults, dies or hangs is a row by its
name."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bitverdict.harness.contracts.oracle import dot_lowering
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.compare import compare_words
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.workers.gpu_lease import free_places
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.stopping import Stopping
from bitverdict.harness.workers.task import TASK_RESULT, Task, task_result_of
from bitverdict.reference.tensor_core import Instruction, product

_MIXED_CASES = 8  # drawn for each worker at a time
TIMEOUT = 300.0  # seconds of one case: hardware, plan, emulation, and the plan again under each moved model


def _sequential(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
    """One fp32 fused multiply-add an element of K: what a float loop on a CPU would give."""
    from bitverdict.reference.formats import FORMATS, decode
    from bitverdict.reference.fused_multiply_add import chain

    if rule.d != "fp32":
        return product(rule, a, b, c)
    left, right = (decode(FORMATS[name], codes).astype(np.float32).view(np.uint32) for name, codes in ((rule.a, a), (rule.b, b)))
    return chain(left, right, c)


def _fewer_bits(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
    return product(rule if rule.d == "int32" else replace(rule, fraction_bits=rule.fraction_bits - 1), a, b, c)


def _longer_blocks(rule: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
    return product(rule if rule.d == "int32" else replace(rule, block=2 * rule.block, passes=None), a, b, c)


MOVED_MODELS: dict[str, dot_lowering.Model] = {
    "one fraction bit fewer": _fewer_bits,
    "K blocks of twice the length": _longer_blocks,
    "sequential fp32": _sequential,
}
"""Models that are wrong in one constant, by name. Integers are exact under all of them."""


@dataclass
class Tally:
    """What a crosscheck came to, by element type of the operands."""

    cases: Counter = field(default_factory=Counter)
    words: Counter = field(default_factory=Counter)
    differ: Counter = field(default_factory=Counter)  # (dtype, "plan" | "emulation") -> words
    moved_words: Counter = field(default_factory=Counter)  # (dtype, name of the moved model) -> words that would differ
    outcomes: Counter = field(default_factory=Counter)  # (dtype, outcome) of cases that gave no words
    wrong_rows: list[dict] = field(default_factory=list)  # cases whose words differ, or that one side refuses
    classes: dict[str, Counter] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    def add(self, row: dict) -> None:
        kind = row["kind"]
        self.keys.add(row["key"])
        for name, value in row["coverage"].items():
            self.classes.setdefault(name, Counter())[str(value)] += 1
        if row["wrong"]:
            self.wrong_rows.append(row)
        if row["words"] == 0:
            self.outcomes[kind, row["outcome"]] += 1
            return
        self.cases[kind] += 1
        self.words[kind] += row["words"]
        for side in ("plan", "emulation"):
            self.differ[kind, side] += row["differ"][side]
        for name, count in row["moved"].items():
            self.moved_words[kind, name] += count


def sharpen_case(case: Case, place: int) -> Case:
    """`case` where rounding shows: fp32 results of operands that are neither integers nor extreme, over several tiles and K blocks.

    What cannot be asked so (integers, kernels with one output type) stays as it was.
    """
    problem, changes = case.problem, {}
    kind = getattr(problem, "dtype", "") or getattr(problem, "format", "")
    if getattr(problem, "out", "") and kind.startswith(("fp", "bf", "e", "mx", "nv", "mixed")):
        changes["out"] = "fp32"
    for name, step in (("m", 128 * (place % 4)), ("n", 128 * (place % 5)), ("k", 32 * (place % 12))):
        if getattr(problem, name, 0) > 1:
            changes[name] = getattr(problem, name) + step
    return replace(case, regime=("normal", "wide")[place // 4 % 2], problem=replace(problem, **changes))


def crosscheck(
    address: str,
    hardware: Target,
    *,
    cases: int,
    words: int,
    seed: int,
    jobs: int,
    with_moved_models: bool = True,
    sharp: bool = False,
    seconds: float | None = None,
) -> Iterator[dict]:
    """One row a case, as they come: at least `cases` distinct cases and then until `words` output words are compared.

    `seconds` ends it whatever was reached; `sharp` asks each case where rounding shows (`sharpen_case`).
    """
    start_time, word_count, judged, batch, stopping = time.monotonic(), 0, 0, 0, Stopping()
    room = jobs if hardware.emulated else min(jobs, max(1, len(free_places([hardware]))))
    with WorkerPool(jobs=room, timeout=TIMEOUT) as pool, pool.interruptible():
        while judged < cases or word_count < words:
            wanted = max(cases - judged, jobs * _MIXED_CASES)
            drawn = CaseSource(address, hardware, seed=seed + batch).drawn(wanted)
            batch += 1
            if sharp:
                contract = resolve(address)
                sharper = [sharpen_case(case, place) for place, case in enumerate(drawn)]
                pairs = zip(drawn, sharper, strict=True)
                drawn = [
                    s if contract.expected_outcome(s, hardware) == contract.expected_outcome(case, hardware) else case
                    for case, s in pairs
                ]
            tasks = ((task_of(case, moved=with_moved_models), hardware) for case in drawn)
            for task, _, verdict in pool.judge_all(tasks, stopping):
                row = row_of(task, hardware, verdict)
                judged, word_count = judged + (row["words"] > 0), word_count + row["words"]
                yield row
                if seconds is not None and time.monotonic() - start_time > seconds:
                    return
            if stopping.reason(address, hardware.name):  # each batch that follows would be cancelled too
                return


def task_of(case: Case, *, moved: bool = True) -> Task:
    """The work of comparing one case in a worker; `row_of` reads what came."""
    given = {"case": case.to_json(), "moved": moved}
    return Task(function=f"{__name__}:compare_case", contract=case.contract, given=given)


def compare_case(hardware: Target, request: Mapping) -> Verdict:
    """One case on `hardware`, on the emulated GPU and by the plan, in this process: its row is what was measured.

    Whatever goes wrong is in the row. An outcome of the launch is the verdict's own: after a fault the worker is replaced.
    """
    contract = resolve(request["case"]["contract"])
    row = _empty_row(contract.case_from_json(request["case"]), contract, hardware)
    decision, outcome = Decision.PASS, Outcome.PASS
    try:
        _fill(row, contract.case_from_json(request["case"]), contract, hardware, with_moved_models=request["moved"])
        decision = Decision.FAIL if row["wrong"] else Decision.PASS
        outcome = Outcome(row["outcome"]) if row["outcome"] in set(Outcome) else Outcome.WRONG_WORDS if row["wrong"] else outcome
    except Exception:
        row["wrong"] = traceback.format_exc()[-1500:]
        decision, outcome = Decision.ERROR, Outcome.ERROR
    return Verdict(
        decision=decision,
        outcome=outcome,
        message=row["wrong"].strip().rpartition("\n")[2],
        basis=Basis.WORDS if row["words"] else Basis.NO_BASIS,
        words=row["words"],
        details={TASK_RESULT: row},
    )


def row_of(task: Task, hardware: Target, verdict: Verdict) -> dict:
    """The row of a comparison that came to `verdict`. That a worker died or hung over it is wrong, by the verdict's name."""
    row = task_result_of(verdict)
    if row is None:
        contract = resolve(task.contract)
        at = f" ({verdict.location})" if verdict.location else ""
        row = _empty_row(contract.case_from_json(task.given["case"]), contract, hardware)
        row |= {"outcome": str(verdict.outcome), "wrong": f"{verdict.outcome}: {verdict.message}{at}"}
    return row


def _empty_row(case: Case, contract: Any, hardware: Target) -> dict:
    row = {"key": case.key, "case": case.to_json(), "kind": _kind(case), "coverage": contract.coverage(case, hardware)}
    return row | {
        "words": 0,
        "outcome": "",
        "differ": {"plan": 0, "emulation": 0},
        "first": [],
        "moved": {},
        "wrong": "",
        "seconds": {},
    }


def _kind(case: Case) -> str:
    problem = case.problem
    precision = getattr(problem, "precision", "")
    dtype = getattr(problem, "dtype", "") or getattr(problem, "format", "")
    return f"{dtype} {precision}" if dtype == "fp32" else dtype


def _fill(row: dict, case: Case, contract: Any, hardware: Target, *, with_moved_models: bool) -> None:
    expected_outcome = contract.expected_outcome(case, hardware)
    operands = {operand.name: operand for operand in contract.operands(case)}
    clock = Clock()
    launch_result = launch(case, hardware, contract, None, operands, clock)
    row["seconds"] = clock.seconds()
    if launch_result.outcome is not None or not expected_outcome.result:
        row["outcome"] = str(launch_result.outcome or "ran")
        row["wrong"] = (
            ""
            if row["outcome"] == expected_outcome.outcome
            else f"{row['outcome']}: {launch_result.message}; expected {expected_outcome.outcome}"
        )
        return
    # the emulated GPU is asked for the configuration that the hardware ran: an autotuner may choose another one there
    fixed = case
    if "config" in launch_result.launch_record and case.config is None:
        fixed = contract.case_from_json({**case.to_json(), "config": launch_result.launch_record["config"]})
    emulated = launch(fixed, target(f"emulated:{hardware.arch}"), contract, None, operands, Clock())
    if emulated.outcome is not None:
        row["wrong"] = f"the emulated GPU says {emulated.outcome}: {emulated.message}"
    for expected in contract.expected(case, hardware, operands, launch_result.launch_record):
        actual = launch_result.outputs[expected.name]
        if expected.words is None:
            row["wrong"] = row["wrong"] or f"{expected.name} has no plan: {expected.basis}"
            continue
        owed_words = expected.words.view(actual.dtype)
        row["words"] += actual.size
        differ = compare_words(expected, actual)[0] if expected.others is not None else actual != owed_words
        row["differ"]["plan"] += int(differ.sum())
        places = [tuple(at) for at in np.argwhere(differ)[:8].tolist()]
        row["first"] += [{"at": list(at), "got": hex(actual[at]), "plan": hex(owed_words[at])} for at in places]
        if emulated.outcome is None and expected.others is None:  # or both are right in words of their own
            row["differ"]["emulation"] += int((actual != emulated.outputs[expected.name]).sum())
        if with_moved_models:
            _count_moved(row, case, contract, hardware, operands, launch_result.launch_record, expected.name, owed_words)
    if any(row["differ"].values()) and not row["wrong"]:
        row["wrong"] = f"words differ: {row['differ']}"


def _count_moved(
    row: dict, case: Case, contract: Any, hardware: Target, operands: dict, recorded: dict, name: str, right: np.ndarray
) -> None:
    for model, words in MOVED_MODELS.items():
        with dot_lowering.mutated_model(words):
            other = next(e for e in contract.expected(case, hardware, operands, recorded) if e.name == name)
        row["moved"][model] = row["moved"].get(model, 0) + int((other.words.view(right.dtype) != right).sum())


def write_rows(path: Path, rows: Iterable[dict]) -> Iterator[dict]:
    """Pass rows through, each appended to `path` as a line of JSON and flushed: a kill loses nothing that was compared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")
            out.flush()
            yield row
