"""docs/tutorials.md: document by document, what became which kernel, where it differs and why, and what holds each statement.

All of it is in `tests/tutorial_parameters.json`, whose rows the tests hold (`tests/kernel_contracts/tutorial_rows.py`)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from bitverdict.harness.model.paths import ROOT

REGISTER = "tests/tutorial_parameters.json"
Row = dict[str, Any]
MOST_CHARACTERS = 70  # characters of a list that is shown whole
HEAD = """# The tutorials, and what became of them

bitverdict's first kernels follow five public documents. This page says what became of each: which kernel follows which, where ours
differs and why, and what holds each thing that a document states. `bitverdict lab pages tutorials.md` prints it from
[{register}](../{register}), a row a line. Tests hold the rows, and miss one that is dropped or altered
([tests/README.md](../tests/README.md)).

*cases*: a case of the contract is that combination, and is judged word for word; on an emulated GPU where nothing else is said, in
the profile `whole` where that is said. *test*, *mutant*: a test that fails without it. *clause*: the launcher refuses the other.
*choice*: ours differs, for the reason given. *not run*: the hardware was not here. **No Blackwell, A100 or AMD GPU was run.**

{counts}
"""


def page() -> str:
    made = json.loads((ROOT / REGISTER).read_text())
    return text(made["documents"], made["rows"])


def text(documents: dict[str, Row], rows: list[Row]) -> str:
    kinds = Counter(_kind(row) for row in rows)
    counts = f"{len(rows)} rows: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) + "."
    parts = [HEAD.format(register=REGISTER, counts=counts)]
    parts += [_document(name, record, [row for row in rows if row["document"] == name]) for name, record in documents.items()]
    return "\n".join(parts)


def _document(name: str, record: Row, rows: list[Row]) -> str:
    lines = [f"## {record['about']}", "", "| in the document | here | where ours differs, and why |", "| --- | --- | --- |"]
    for theirs, ours in record["kernels"].items():
        code = theirs if " " in theirs else f"`{theirs}`"
        lines.append(f"| {code} | [{ours}](../kernels/{ours}.py) | {record['differs'][ours]} |")
    lines += ["", "| what the document states | held by | |", "| --- | --- | --- |"]
    lines += [f"| {_cell(_fact_text(row))} | {_kind(row)} | {_cell(_holder(row))} |" for row in rows]
    return "\n".join([*lines, ""])


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def _kind(row: Row) -> str:
    kind: str = next(iter(row["held"]))
    return {"refused": "clause", "throughput": "benchmark"}.get(kind, kind)


def _fact_text(row: Row) -> str:
    """The fact, or else the row's name, and the values that it goes through."""
    lists = "; ".join(f"{names}: {_values(values)}" for names, values in row.get("lists", {}).items())
    said: str = row["fact"] if "fact" in row else row["id"]
    return f"{said} ({lists})" if lists else said


def _values(values: list) -> str:
    shown = ", ".join("x".join(map(str, value)) if isinstance(value, list) else str(value) for value in values)
    return shown if len(shown) <= MOST_CHARACTERS else f"{len(values)} of them"


def _holder(row: Row) -> str:
    ((kind, holder),) = row["held"].items()
    match kind:
        case "cases":
            whole = ", profile `whole`" if holder["profile"] == "whole" else ""
            return f"`{holder['kernel']}` on {', '.join(holder['on'])}{whole}"
        case "refused":
            return f"*{holder['clause']}* of `{holder['kernel']}`"
        case "fault":
            return f"a case of `{holder['kernel']}` that expects *{holder['outcome']}*"
        case "out of resources":
            return f"a case of `{holder['kernel']}` that expects to be too large"
        case "throughput":
            return f"`{holder['kernel']}` in {holder['dtype']}: [benchmarks.md](benchmarks.md)"
        case "large":
            return f"`bitverdict lab large`: `{holder['kernel']}` in {', '.join(holder['formats'])}"
        case "mutant":
            return "; ".join(f"{named['name'] or named['kind']} (`{named['kernel']}`)" for named in _as_list(holder))
        case "test":
            return "; ".join(_link(node) for node in _as_list(holder))
    return str(holder)


def _link(node: str) -> str:
    file, _, name = node.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../{file})"


def _as_list(held: object) -> list:
    return held if isinstance(held, list) else [held]
