"""The rows of `tests/tutorial_parameters.json`, and what holds each: cases, rows of the benchmark, tests, or a reason.

A row is one fact of a tutorial. `lists` are its lists of parameters under the tutorial's own names. `held` says by one key what
stands for it here:

    cases             a case of the contract for every combination of the lists: `fields` names ours, `also` fixes others, `on` is
                      the emulated architectures, or "a GPU of sm_90" for what the profile `whole` judges on a real GPU alone
    refused           a required case that breaks the clause of this name
    fault             a required case that expects this outcome of the hardware
    out of resources  a required case that expects to be too large
    throughput        a row of `benchmarks/throughput.py` for every size or configuration
    large             a case of `bitverdict large`
    mutant            a mutant of the kernel, which its tests see fail
    test              a file of tests, or one test of it
    not run, choice   a reason
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.tutorial_figures import TABLES
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.studies.large_gemm.cases import cases as large_cases
from bitverdict.kernels.clauses import broken
from tests.faults.corpus import COLLECTIONS

CHECKOUT = Path(__file__).resolve().parents[2]
TRANSCRIPTION = json.loads((CHECKOUT / "tests" / "tutorial_parameters.json").read_text())
DOCUMENTS: dict[str, dict[str, str]] = TRANSCRIPTION["documents"]
ROWS: list[dict[str, Any]] = TRANSCRIPTION["rows"]
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8_e4m3fn": "e4m3"}  # the tutorials' name -> ours
UNAVAILABLE = ("no Blackwell GPU", "no A100", "no AMD GPU")  # what a row may say that it is not run for
TABLE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps")  # the columns of a table of figures that say how it was launched

Row = Mapping[str, Any]
Fields = dict[str, Any]


def missing(row: Row) -> list[str]:
    """What of `row` nothing holds; empty where all of it is held."""
    if len(row["held"]) != 1:
        return [f"held by {sorted(row['held'])}: must be one of {', '.join(_HOLDERS)}"]
    ((kind, held),) = row["held"].items()
    return _HOLDERS[kind](row, held) if kind in _HOLDERS else [f"held by {kind!r}: must be one of {', '.join(_HOLDERS)}"]


def combinations(row: Row) -> Iterator[Fields]:
    """One record a combination of the row's lists, names of one tuple taken apart."""
    lists = row.get("lists", {})
    for chosen in product(*lists.values()):
        apart: Fields = {}
        for names, value in zip(lists, chosen, strict=True):
            parts = names.split(", ")
            apart |= dict(zip(parts, value, strict=True)) if len(parts) > 1 else {names: value}
        yield apart


def in_our_words(asked: Fields, held: Row) -> Fields:
    """The fields of Problem and Config, and the regime, that the combination `asked` is."""
    wanted = dict(held.get("also", {}))
    for name, value in asked.items():
        ours = held["fields"][name]
        told = held.get("values", {}).get(name, {}).get(str(value).lower(), value)
        told = TYPES.get(told, told) if isinstance(told, str) else told
        wanted |= dict.fromkeys([ours] if isinstance(ours, str) else ours, told)
    return wanted


def target_of(arch: str) -> Target:
    """The emulated target of `arch`, or for "a GPU of sm_90" such a GPU, which need not be here."""
    gpu = arch.removeprefix("a GPU of ")
    return Target(f"emulated:{arch}", arch) if gpu == arch else Target("cuda:0", gpu, index=0)


@cache
def judged(kernel: str, arch: str, profile: str) -> tuple[tuple[Case, Fields], ...]:
    """The cases that a run of `profile` ("run": any) judges, each with its fields and its regime."""
    contract, where = resolve(kernel), target_of(arch)
    found = contract.required(where) + (contract.whole(where) if profile == "whole" else [])
    return tuple((case, _fields(case)) for case in found)


def _fields(case: Case) -> Fields:
    config = vars(case.config) if case.config is not None else {}
    return vars(case.problem) | config | {"regime": case.regime}


def _has(had: Fields, wanted: Row) -> bool:
    return all(name in had and had[name] == value for name, value in wanted.items())


def _by_cases(row: Row, held: Row) -> list[str]:
    told = []
    for arch, asked in product(held["on"], combinations(row)):
        wanted, contract = in_our_words(asked, held), resolve(held["kernel"])
        found = (case for case, had in judged(held["kernel"], arch, held["profile"]) if _has(had, wanted))
        if not any(contract.expected_outcome(case, target_of(arch)).outcome in ("pass", "out of resources") for case in found):
            told.append(f"no case of {held['kernel']} on {arch}: {wanted}")
    return told


def _by_outcome(row: Row, held: Row, expects: Callable[[Any, Case, Target], bool]) -> list[str]:
    contract, where = resolve(held["kernel"]), target_of(held["on"])
    found = (case for case, had in judged(held["kernel"], held["on"], "run") if _has(had, held["fields"]))
    return [] if any(expects(contract, case, where) for case in found) else [f"no required case of {held}"]


def _by_refusal(row: Row, held: Row) -> list[str]:
    def refuses(contract: Any, case: Case, where: Target) -> bool:
        if contract.expected_outcome(case, where).layer != "launcher":
            return False
        return held["clause"] in [clause.name for clause in broken(contract.module.CLAUSES, case.problem, case.config)]

    return _by_outcome(row, held, refuses)


def _by_fault(row: Row, held: Row) -> list[str]:
    return _by_outcome(row, held, lambda contract, case, where: contract.expected_outcome(case, where).outcome == held["outcome"])


def _by_capacity(row: Row, held: Row) -> list[str]:
    return _by_fault(row, {**held, "outcome": "out of resources"})


@cache
def _timed() -> tuple[tuple[str, str, Fields], ...]:
    """(kernel, type, fields) of each row of the benchmark."""
    from benchmarks.throughput_rows import SIZES, asked, size_of

    asks = list(asked([size_of(text) for text in SIZES]))
    return tuple(
        (ask.row.kernel, ask.row.dtype, _fields(ask.case) | {"m": ask.row.m, "n": ask.row.n, "k": ask.row.k}) for ask in asks
    )


def _by_throughput(row: Row, held: Row) -> list[str]:
    asked: list[Fields] = []
    for figure in row.get("figures", ()):
        launched = dict(zip(row["columns"], figure, strict=True))
        asked.append({name.lower(): launched[name] for name in TABLE} | dict(zip("mnk", row["size"], strict=True)))
    for made in combinations(row) if "lists" in row else ():
        side = row.get("rows_and_columns")
        asked.append({name.lower(): value for name, value in made.items()} | ({"m": side, "n": side} if side else {}))
    had = [fields for kernel, dtype, fields in _timed() if (kernel, dtype) == (held["kernel"], held["dtype"])]
    told = [f"no row of the benchmark: {held} {each}" for each in asked if not any(_has(fields, each) for fields in had)]
    return told + [
        f"not beside ours on the page: {figure}"
        for figure in row.get("figures", ())
        if figure[-1] not in [each.tflops for each in TABLES if each.kernel == held["kernel"]]
    ]


def _by_large(row: Row, held: Row) -> list[str]:
    told = []
    for asked in combinations(row):
        size = asked["M"], asked["N"], asked["K"]
        found = [case.problem for case in large_cases([size], Target("", "sm_90")) if case.contract == held["kernel"]]
        for kind in held.get("formats", [held.get("dtype")]):
            if not any(kind in (getattr(p, "format", None), getattr(p, "dtype", None)) for p in found):
                told.append(f"bitverdict large has no {held['kernel']} in {kind} of {size}")
    return told


def _by_test(row: Row, node: str) -> list[str]:
    file, _, name = node.partition("::")
    path = CHECKOUT / file
    names = (
        {each.name for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef)} if path.is_file() else set()
    )
    tests = {each for each in names if each.startswith("test_")}
    return [] if (name in tests if name else tests) else [f"no test {node}"]


def _by_mutant(row: Row, held: Row) -> list[str]:
    known = {(mutant.kernel, mutant.name) for mutant in COLLECTIONS["kernels"]}
    return [] if (held["kernel"], held["name"]) in known else [f"no mutant {held}"]


def _by_machine(row: Row, reason: str) -> list[str]:
    return [] if reason.startswith(UNAVAILABLE) else [f"not run: {reason!r}: must begin with one of {', '.join(UNAVAILABLE)}"]


def _by_choice(row: Row, reason: str) -> list[str]:
    return (
        [] if row["kind"] in ("statement", "default") and len(reason.split()) > 3 else [f"choice: {reason!r}: of a {row['kind']}"]
    )


_HOLDERS: dict[str, Callable[[Row, Any], list[str]]] = {
    "cases": _by_cases,
    "refused": _by_refusal,
    "fault": _by_fault,
    "out of resources": _by_capacity,
    "throughput": _by_throughput,
    "large": _by_large,
    "mutant": _by_mutant,
    "test": _by_test,
    "not run": _by_machine,
    "choice": _by_choice,
}
