"""A failing case once more, in a worker, with a recorder: which words are wrong, by which program, and what the chip did.

It is a task of the worker pool (`bitverdict.harness.workers.task`), so a case that kills its worker costs its pictures alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bitverdict.harness.emulator.recorder import Recorder
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.compare import compare_words
from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.diagnose import ulp_distance, values
from bitverdict.harness.judge.instrumentation import own_instrumentation
from bitverdict.harness.judge.launch import launch
from bitverdict.harness.judge.real_values import mathematics
from bitverdict.harness.judge.remote_launcher import launcher_of
from bitverdict.harness.model.addresses import add_search_path, resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, ExpectedOutput, UndecidedCase, case_from_record
from bitverdict.harness.model.paths import relative
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.workers.task import TASK_RESULT, Task

ROWS, COLUMNS = 32, 64  # cells of a map
BINS = range(-8, 9)  # powers of two of a histogram; the outer ones hold what lies beyond
SECONDS = 90.0


def task_of(case: Case) -> Task:
    """What a worker is asked for the pictures of `case`."""
    return Task(function=f"{__name__}:examine_task", contract=case.contract, given={"case": case.to_json()}, timeout=SECONDS)


def examine_task(target: Target, given: Mapping[str, Any]) -> Verdict:
    """The task: what `examine` found, as what was measured."""
    add_search_path(given["case"].get("search_path", ()))
    contract = resolve(given["case"]["contract"])
    found = examine(case_from_record(contract, given["case"]), target, contract)
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: found})


class _WriterContract:
    """A contract that keeps, beside each output of a launch, which program stored its elements."""

    def __init__(self, contract: Contract, recorder: Recorder) -> None:
        self.contract, self.recorder = contract, recorder
        self.writers: dict[str, np.ndarray] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.contract, name)

    def launch(self, case: Case, tensors: Mapping[str, object], launcher: Callable | None) -> Mapping[str, Any]:
        from bitverdict.harness.emulator.cuda_tensors import inside

        outputs = self.contract.launch(case, tensors, launcher)
        self.writers = {name: self.recorder.writers_of(inside(each)) for name, each in outputs.items()}
        return outputs


def examine(case: Case, target: Target, contract: Contract) -> dict[str, Any]:
    """What one launch of `case` on the emulated `target` shows, as JSON: its outputs, its writers, the events of one program.

    That program is the one at fault, or the one that stored the first wrong word. Of a case of several calls the first is launched.
    """
    case, recorder = replace(case, calls=1), Recorder()
    writer_contract: Any = _WriterContract(contract, recorder)
    with own_instrumentation(case.launcher or case.contract), launched_with(probes=(recorder,)):
        operands = {operand.name: operand for operand in contract.operands(case)}
        launch_result = launch(case, target, writer_contract, launcher_of(case, target), operands, Clock())
    outputs: list[dict] = []
    if launch_result.outcome is None:
        try:
            expected = contract.expected(case, target, operands, launch_result.launch_record)
        except UndecidedCase:
            expected = []
        named = [item for item in expected if item.name in launch_result.outputs]
        outputs = [
            told
            for item in named
            if (
                told := output_told(
                    item,
                    launch_result.outputs[item.name],
                    launch_result.real_values.get(item.name),
                    writer_contract.writers[item.name],
                )
            )
        ]
    wrote = next((number for item in outputs if (number := item["first_writer"])), 0)
    key = recorder.writers[wrote - 1] if wrote else recorder.last_program
    timeline = recorder.to_json(key if key in recorder.events else recorder.last_program)
    for event in timeline.get("events", ()):
        event["line"] = relative(event["line"])
    return {
        "target": target.name,
        "outcome": str(launch_result.outcome or ""),
        "outputs": outputs,
        "writers": [[launched, list(program)] for launched, program in recorder.writers],
        "stored_at": relative(recorder.lines.get(wrote, "")),
        "timeline": timeline,
    }


def output_told(expected: ExpectedOutput, words: np.ndarray, real: Any, writers: np.ndarray) -> dict[str, Any] | None:
    """The map and the histogram of one output as JSON; None where its shape or its words are none that can be compared."""
    if tuple(words.shape) != tuple(expected.shape) or not words.size or writers.shape != words.shape:
        return None
    differs = compare_words(expected, words)[0]
    found = mathematics(expected, real)
    if found is not None and found.wrong_elements.any():
        differs = found.wrong_elements
    flat = differs.reshape(-1)
    first_word = int(flat.argmax()) if flat.any() else 0
    return {
        "name": expected.name,
        "format": expected.format,
        "shape": list(words.shape),
        "wrong": int(differs.sum()),
        "of": int(differs.size),
        "first_writer": int(writers.reshape(-1)[first_word]) if flat.any() else 0,
        "tile": list(expected.tile) if expected.tile else None,
        "map": tile_map(differs, writers, expected.tile, _error_sizes(expected, words)[1]),
        "errors": errors(expected, words, differs),
    }


def tile_map(differs: np.ndarray, writers: np.ndarray, tile: tuple[int, int] | None, sizes: np.ndarray | None) -> dict[str, Any]:
    """Cells of an output, seen as rows of its last axis: of each how many words, how many wrong, who stored the first wrong
    one, or the first one, and the largest of the error's `sizes`; -1 where a word has none that is finite."""
    columns = differs.shape[-1] if differs.ndim else 1
    wrong_rows, writer_rows = differs.reshape(-1, columns), writers.reshape(-1, columns)
    size_rows = np.zeros(wrong_rows.shape) if sizes is None else sizes.reshape(-1, columns)
    height, width = (_step(wrong_rows.shape[axis], most, (tile or (1, 1))[axis]) for axis, most in ((0, ROWS), (1, COLUMNS)))
    cells = []
    for top in range(0, wrong_rows.shape[0], height):
        row = []
        for left in range(0, columns, width):
            here = wrong_rows[top : top + height, left : left + width].reshape(-1)
            stored = writer_rows[top : top + height, left : left + width].reshape(-1)
            largest = float(size_rows[top : top + height, left : left + width].max())
            known = largest if np.isfinite(largest) else -1.0
            row.append([int(here.size), int(here.sum()), int(stored[int(here.argmax()) if here.any() else 0]), known])
        cells.append(row)
    return {"cell": [height, width], "shape": list(wrong_rows.shape), "cells": cells}


def _step(size: int, most: int, tile: int) -> int:
    """Elements of one side of a cell: so that no more than `most` cells come, dividing a tile or made of whole ones."""
    step = max(tile, 1)
    while step > 1 and step % 2 == 0 and -(-size // (step // 2)) <= most:
        step //= 2
    while -(-size // step) > most:
        step *= 2
    return step


def _error_sizes(expected: ExpectedOutput, words: np.ndarray) -> tuple[str, np.ndarray | None]:
    """("bound" or "ulp", the error of each word in it); None where nothing says."""
    with np.errstate(all="ignore"):
        if expected.value is not None and expected.bound is not None:
            distance = np.abs(values(expected.format, words) - expected.value)
            smallest = np.finfo(float).tiny
            return "bound", np.where(distance == 0, 0.0, distance / np.where(expected.bound == 0, smallest, expected.bound))
        if expected.words is not None:
            return "ulp", ulp_distance(expected.format, words, expected.words.view(words.dtype)).astype(np.float64)
    return "", None


def errors(expected: ExpectedOutput, words: np.ndarray, differs: np.ndarray) -> dict[str, Any]:
    """A histogram by powers of two: of |got - value| / bound where there is a bound, else of the distance in ulp.

    `counts` has for each bin of `BINS` how many words pass and how many are wrong; `zero` those without an error, `unplaced` those
    without a finite one.
    """
    unit, share = _error_sizes(expected, words)
    if share is None:
        return {}
    with np.errstate(all="ignore"):
        placed = np.isfinite(share) & (share > 0)
        bins = np.clip(np.ceil(np.log2(np.where(placed, share, 1.0))), BINS.start, BINS.stop - 1).astype(int)
    counts = [[int((placed & (bins == at) & ~differs).sum()), int((placed & (bins == at) & differs).sum())] for at in BINS]
    zero, unplaced = share == 0, ~np.isfinite(share)
    without, none = ([int((mask & ~differs).sum()), int((mask & differs).sum())] for mask in (zero, unplaced))
    return {"unit": unit, "first": BINS.start, "counts": counts, "zero": without, "unplaced": none}
