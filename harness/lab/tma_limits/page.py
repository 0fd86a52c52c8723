"""The map as text: what each column answers, grouped where it is the same, then who misses what and who cries wolf."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bitverdict.harness.lab.tma_limits.answers import NO_INSTRUCTION, Answers
from bitverdict.harness.lab.tma_limits.points import Point

COLUMN_ORDER = ("rule", "compiler", "emulated", "emulated iisan", "hardware", "hardware iisan")
HARMLESS = {"pass", "compiles"}
NO_ANSWER = {NO_INSTRUCTION, "not run", "not modelled", "inconclusive", "cancelled"}
Columns = dict[str, Answers]
NO_EXPLANATION = "not explained"
EXPLANATIONS = (  # (part of a title, what is in its lines, why); the first that fits
    (
        "iisan misses",
        "sign of the",
        "iisan asserts the sign of a scatter's row and column, and none of a tiled store's coordinates",
    ),
    (
        "iisan misses",
        "stray write",
        "iisan asserts nothing about the 16 bytes in which a row ends: the store runs, with no fault, and overwrites the padding",
    ),
    (
        "",
        "emulated stray read",
        "the emulated GPU sees which addresses are read: rows looked for too early begin in the gap between rows; the GPU only "
        "shows "
        "that the words are wrong",
    ),
)


def text(made: dict[str, Columns], origins: list[dict]) -> str:
    """The page, as Markdown."""
    return "\n".join([*_head(origins), *(line for arch, columns in made.items() for line in _architecture(arch, columns))]) + "\n"


def brief(made: dict[str, Columns]) -> str:
    """A line for every answer of every column, and the disagreements: for a terminal."""
    lines = []
    for arch, columns in made.items():
        for name, answers in columns.items():
            counts: dict[str, int] = {}
            for answer in answers.values():
                counts[answer["outcome"]] = counts.get(answer["outcome"], 0) + 1
            lines.append(f"{arch} {name}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
        for title, found in disagreements(columns):
            lines.append(f"{arch} {title}: {len(found)}")
            lines += [f"    {line}" for line in found[:6]]
    return "\n".join(lines)


def _head(origins: list[dict]) -> Iterator[str]:
    yield from (
        "# Where TMA operations stop being legal",
        "",
        "For each TMA operation (tiled load, tiled store, gather, scatter of rows) and each precondition a grid of launches on",
        "both sides of it. At every point six columns answer, each for itself:",
        "",
        "| column | says |",
        "| --- | --- |",
        "| rule | what is documented or measured before (`reference/tiled_copy.py`, `reference/gather_scatter.py`) |",
        "| compiler | Triton's front end and verifier, then ptxas, offline: `compiles` or `refused` |",
        "| emulated | the same launch on the emulated GPU |",
        "| emulated iisan | there, compiled with Triton's instruction sanitizer |",
        "| hardware, hardware iisan | the launch on a GPU: what it did to memory, or the fault that ended it |",
        "",
        "`stray write`: bytes beside the tensor changed, with no fault. `not there`: the GPU has no such instruction. `-`: not",
        "asked there. A descriptor is made on the host unless the point says otherwise.",
        "",
        "What the hardware taught the rule and the emulated GPU (H200):",
        "",
        "- A store ends a row with the whole unit of 16 bytes in which the row ends: `python -m "
        "bitverdict.harness.lab.tma_limits.edges` measured",
        "  it byte by byte in 5,170 launches (`tests/hardware_words/tma_edges_h200.json`), none of them otherwise.",
        "- A box whose row has less than 16 bytes compiles, and is refused by the driver (`Failed to create tensor map",
        "  descriptor: invalid argument`).",
        "- A descriptor made in the kernel with a base off a multiple of 16 bytes is a misaligned address. With such a row stride",
        "  it faults nowhere: the descriptor holds the stride in units of 16 bytes and drops what is over, so every row after the",
        "  first is looked for too early: a load brings wrong words, a store writes between the rows. The bytes that the two",
        "  stores touched (30 and 64 in the gaps) are those that this predicts. iisan asserts both.",
        "",
        "Made by `bitverdict lab tma-limits --merge tests/hardware_words/tma_limits_h200.json --page docs/tma_limits.md`;",
        "the merged file holds the hardware's answers, written on the GPU by",
        "`bitverdict lab tma-limits --hardware cuda:0 --json FILE`.",
        "",
    )
    for place, origin in enumerate(origins):
        what = "everything but hardware" if place == 0 else "hardware"
        yield f"- {what}: " + ", ".join(f"{name} {value}" for name, value in origin.items())
    yield ""


def _architecture(arch: str, columns: Columns) -> Iterator[str]:
    column_names = [name for name in COLUMN_ORDER if name in columns]
    yield from (f"## {arch}", "")
    disagreeing = list(disagreements(columns))
    for title, found in disagreeing:
        yield f"**{title}: {len(found)}**"
        yield ""
        for why, lines in by_reason(title, found).items():
            yield from [f"{len(lines)}: {why}.", ""]
            yield from (f"- {line}" for line in lines[:6])
            yield from [f"- and {len(lines) - 6} more"] if len(lines) > 6 else []
            yield ""
    groups: dict[tuple[str, str], dict[tuple[str, ...], list[str]]] = {}
    for key in _keys(columns):
        point = Point(**json.loads(key))
        outcomes = tuple(columns[name].get(key, {"outcome": "-"})["outcome"] for name in column_names)
        groups.setdefault((point.operation, point.precondition), {}).setdefault(outcomes, []).append(point.name)
    operation = ""
    for (name, precondition), rows in groups.items():
        if name != operation:
            operation = name
            yield from (f"### {operation} ({arch})", "")
        yield from (
            f"{precondition}",
            "",
            "| points | " + " | ".join(column_names) + " |",
            "| --- " * (len(column_names) + 1) + "|",
        )
        for outcomes, names in rows.items():
            shown = "; ".join(names[:8]) + (f"; and {len(names) - 8} more" if len(names) > 8 else "")
            yield f"| {shown} | " + " | ".join(outcomes) + " |"
        yield ""


def _keys(columns: Columns) -> list[str]:
    return list(dict.fromkeys(key for answers in columns.values() for key in answers))


def disagreements(columns: Columns) -> Iterator[tuple[str, list[str]]]:
    """(what is compared, a line for each point where the two do not agree)."""
    pairs = (
        ("the emulated GPU is not what the rule says", "emulated", "rule", _differ),
        ("the emulated iisan build is not what the rule says", "emulated iisan", "rule iisan", _differ),
        ("the hardware is not what the rule says", "hardware", "rule", _differ),
        ("the hardware's iisan build is not what the rule says", "hardware iisan", "rule iisan", _differ),
        ("the emulated GPU is not the hardware", "emulated", "hardware", _differ),
        ("the emulated iisan build is not the hardware's", "emulated iisan", "hardware iisan", _differ),
        ("the compiler refuses what runs", "compiler", "hardware" if "hardware" in columns else "emulated", _refused_in_vain),
        ("iisan misses (emulated)", "emulated iisan", "emulated", _misses),
        ("iisan misses (hardware)", "hardware iisan", "hardware", _misses),
        ("iisan's false alarms (emulated)", "emulated iisan", "emulated", _false_alarm),
        ("iisan's false alarms (hardware)", "hardware iisan", "hardware", _false_alarm),
    )
    for title, left_name, right_name, wrong in pairs:
        if left_name in columns and right_name in columns:
            lines = []
            for key, answer in columns[left_name].items():
                if key in columns[right_name] and wrong(answer["outcome"], columns[right_name][key]["outcome"]):
                    point = Point(**json.loads(key))
                    lines.append(
                        f"{point.operation}, {point.precondition}: {point.name}: {left_name} {answer['outcome']}, "
                        f"{right_name} {columns[right_name][key]['outcome']}"
                    )
            yield title, lines


def by_reason(title: str, found: list[str]) -> dict[str, list[str]]:
    """The lines of a disagreement by what explains them; UNEXPLAINED where nothing here does."""
    groups: dict[str, list[str]] = {}
    for line in found:
        why = next((why for part, told, why in EXPLANATIONS if part in title and told in line), NO_EXPLANATION)
        groups.setdefault(why, []).append(line)
    return groups


def _differ(one: str, other: str) -> bool:
    return one != other and not {one, other} & NO_ANSWER


def _refused_in_vain(compiler: str, launched: str) -> bool:
    return compiler == "refused" and launched in HARMLESS


def _misses(iisan: str, bare: str) -> bool:
    """The bare launch faults or damages, and iisan names nothing."""
    return bare not in HARMLESS | NO_ANSWER | {"refused", "launcher error"} and iisan != "device assert" and iisan not in NO_ANSWER


def _false_alarm(iisan: str, bare: str) -> bool:
    return iisan == "device assert" and bare in HARMLESS
