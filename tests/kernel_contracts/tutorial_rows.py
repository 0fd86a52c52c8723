"""The rows of `tests/tutorial_parameters.json`, and what holds each: cases, rows of the benchmark, tests, or a reason.

A row is one fact of a tutorial. `lists` are its lists of parameters under the tutorial's own names. `held` says by one key what
stands for it here:

    cases             a case of the contract for every combination of the lists: `fields` names ours, `also` fixes others, `on` is
                      the emulated architectures, or "a GPU of sm_90" for what the profile `whole` judges on a real GPU alone
    refused           a required case that breaks the clause of this name
    fault             a required case that expects this outcome of the hardware
    out of resources  a required case that expects to be too large
    throughput        a row of `benchmarks/throughput.py` for every size or configuration
    large             a case of `bitverdict lab large`
    mutant            mutants that their tests see fail; `edits` is what of the source they change, so that it is about this fact
    test              tests that say so themselves, by `holds` above them, with the row's figures
    not run, choice   a reason

What else a row states in figures (`stated`) is held too: by the mark of its test, by the clause that it bounds, by the case of
the fault, by what a regime draws; of what is not run, by its own words. What is transcribed is pinned, row by row: `digest`.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tutorial_figures import TABLES
from bitverdict.harness.contracts.inputs import block_scaled_inputs, regimes
from bitverdict.harness.lab.large_gemm.cases import cases as large_cases
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.kernels.clauses import broken
from bitverdict.kernels.element_types import bits_of
from bitverdict.reference.formats import FORMATS, decode
from tests.faults.corpus import COLLECTIONS
from tests.faults.mutants import FunctionEdit, ProgramEdit, SourceEdit

CHECKOUT = Path(__file__).resolve().parents[2]
TRANSCRIPTION = json.loads((CHECKOUT / "tests" / "tutorial_parameters.json").read_text())
DOCUMENTS: dict[str, dict[str, Any]] = TRANSCRIPTION["documents"]
ROWS: list[dict[str, Any]] = TRANSCRIPTION["rows"]
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8_e4m3fn": "e4m3"}  # the tutorials' name -> ours
PINS: dict[str, str] = json.loads((CHECKOUT / "tests" / "tutorial_pins.json").read_text())
STRUCTURE = {"id", "document", "kind", "lists", "fact", "held", "chip", "size", "columns", "figures", "rows_and_columns"}
LARGEST = 1024  # no bound of a clause is above
UNAVAILABLE = ("no Blackwell GPU", "no A100", "no AMD GPU")  # what a row may say that it is not run for
TABLE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps")  # the columns of a table of figures that say how it was launched

Row = Mapping[str, Any]
Fields = dict[str, Any]


def missing(row: Row) -> list[str]:
    """What of `row` nothing holds; empty where all of it is held."""
    if len(row["held"]) != 1 or not set(row["held"]) <= set(_HOLDERS):
        return [f"held by {sorted(row['held'])}: must be one of {', '.join(_HOLDERS)}"]
    ((kind, held),) = row["held"].items()
    kernels = {part["kernel"] for part in _listed(held) if isinstance(part, dict)}
    if strange := kernels - set(DOCUMENTS[row["document"]]["kernels"].values()):
        return [f"held by {', '.join(sorted(strange))}: no kernel of the document {row['document']!r}"]
    return _HOLDERS[kind](row, held) + _unheld_figures(row, kind, held)


def stated(row: Row) -> Fields:
    """The figures that a row states beside its lists and tables."""
    return {name: value for name, value in row.items() if name not in STRUCTURE}


def digest(row: Row) -> str:
    """Of all that a row transcribes, its holder left out."""
    transcribed = {name: value for name, value in row.items() if name != "held"}
    return f"{zlib.crc32(json.dumps(transcribed, sort_keys=True).encode()):08x}"


def differing(rows: list[dict[str, Any]]) -> set[str]:
    """The rows that are missing, more, or another than the pins in `tests/tutorial_pins.json` say."""
    return {row for row, _ in PINS.items() ^ {row["id"]: digest(row) for row in rows}.items()}


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
                told.append(f"bitverdict lab large has no {held['kernel']} in {kind} of {size}")
    return told


def _by_test(row: Row, held: str | list[str]) -> list[str]:
    nodes = [held] if isinstance(held, str) else held
    return [
        f"{node}: must be a test with @holds({row['id']!r}, {stated(row)})"
        for node in nodes
        if marks().get((row["id"], node)) != stated(row)
    ]


@cache
def marks() -> dict[tuple[str, str], Fields]:
    """(row, test) -> figures, of each mark `holds` above a test of this checkout."""
    made = {}
    for path in sorted((CHECKOUT / "tests").rglob("test_*.py")):
        if "@holds(" not in (text := path.read_text()):
            continue
        for test in ast.parse(text).body:
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
                continue
            for mark in test.decorator_list:
                if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "holds":
                    figures = {str(given.arg): ast.literal_eval(given.value) for given in mark.keywords}
                    made[ast.literal_eval(mark.args[0]), f"{path.relative_to(CHECKOUT)}::{test.name}"] = figures
    return made


def unclaimed_marks(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Marks above tests that the row does not name as its holder, or whose row is not there."""
    named = {(row["id"], node) for row in rows if "test" in row["held"] for node in _listed(row["held"]["test"])}
    return set(marks()) - named


def _listed(held: Any) -> list:
    return held if isinstance(held, list) else [held]


def _by_mutant(row: Row, held: Row | list[Row]) -> list[str]:
    return [f"no mutant {named}" for named in _listed(held) if not any(_is(mutant, named) for mutant in _mutants())]


@cache
def _mutants() -> tuple[Any, ...]:
    return (*COLLECTIONS["kernels"], *COLLECTIONS["timing"])


def _is(mutant: Any, named: Row) -> bool:
    if (mutant.kernel, mutant.name, mutant.kind) != (named["kernel"], named["name"], named.get("kind", "")):
        return False
    return any(named["edits"] in _text_before(edit) for edit in mutant.edits)


def _text_before(edit: Any) -> str:
    match edit:
        case SourceEdit():
            return edit.replace
        case ProgramEdit():
            return edit.pattern
        case FunctionEdit():
            return edit.function.__name__
    return ""


def _unheld_figures(row: Row, kind: str, held: Any) -> list[str]:
    """The figures of `row` that neither its holder nor its own words have."""
    if kind == "test":  # with its mark
        return []
    words = row.get("fact", "")
    return [f"nothing holds {name} = {value}" for name, value in stated(row).items() if not _figure(name, value, row, held, words)]


def _figure(name: str, value: Any, row: Row, held: Any, words: str) -> bool:
    if "refused" in row["held"]:
        return _bound(name, held) == value
    if "fault" in row["held"]:
        return value in held["fields"].values()
    if name == "deviation":
        drawn = decode(FORMATS["fp32"], regimes.draw("fp32", (400, 400), regimes.TENTH, regimes.generator(1, "a")))
        return abs(float(np.std(drawn)) / value - 1) < 0.02
    if name == "epsilon":
        return value == block_scaled_inputs.EPSILON
    return all(str(part) in words for part in _listed(value))


def _bound(name: str, held: Row) -> Any:
    """What the clause takes of the one field that the refused case breaks: the least, the ends, all; a unit in bytes."""
    contract, ((field, _),) = resolve(held["kernel"]), held["fields"].items()
    clause = next(clause for clause in contract.module.CLAUSES if clause.name == held["clause"])
    case = next(case for case, had in judged(held["kernel"], held["on"], "run") if _has(had, held["fields"]))
    changed = {"dtype": "fp16"} if name.endswith("_in_fp16") else {}
    changed |= {size: LARGEST for size in ("m", "n") if size in vars(case.problem)}  # no clause then bounds a block by its tensor
    case = dataclasses.replace(case, problem=dataclasses.replace(case.problem, **changed))
    asked = ((value, _with(case, field, value)) for value in range(1, LARGEST + 1))
    taken = [value for value, made in asked if clause.holds(made.problem, made.config)]
    if not taken:
        return None
    match name:
        case "allowed":
            return taken
        case "range":
            return [taken[0], taken[-1]]
        case "unit":
            return taken[0] * bits_of(case.problem.dtype) // 8
    return taken[0]


def _with(case: Case, field: str, value: Any) -> Case:
    part = "config" if hasattr(case.config, field) else "problem"
    return dataclasses.replace(case, **{part: dataclasses.replace(getattr(case, part), **{field: value})})


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
