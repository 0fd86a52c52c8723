"""What runs of `benchmarks/invariance.py` came to, kernel by kernel: the stored form that docs/invariance.md is printed from.

`python -m bitverdict.harness.report.invariance.condensed FILE... > tests/hardware_words/invariance.json` makes it of files of JSON
lines, each behind the line that says where it was made. A FILE that ends in .json is the stored form: of it those runs stay, in
their order, whose target none of the others has. Write to another file then, and move it.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitverdict.harness.checks.invariance.finding import End, Finding, attributed

MOST_FIELDS = 3  # of a configuration that together decide


def condensed(lines: Iterable[str]) -> dict[str, Any]:
    """One run: where it was made, and what each kernel came to."""
    records = [json.loads(line) for line in lines if line.strip()]
    made, rows = records[0], records[1:]
    kernels: dict[str, list[dict]] = {}
    for row in rows:
        kernels.setdefault(row["kernel"], []).append(row)
    return made | {"cases": len(rows), "kernels": {name: of_a_kernel(kernels[name]) for name in sorted(kernels)}}


def of_a_kernel(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The counts of each check over the cases of one kernel."""
    findings = [each for row in rows for each in attributed([Finding.from_json(found) for found in row["findings"]])]
    configs = {json.dumps(row["case"]["config"], sort_keys=True) for row in rows}
    found: dict[str, Any] = {"cases": len(rows), "configurations": len(configs)}
    found["checks"] = {
        check: of_a_check([each for each in findings if each.check == check])
        for check in dict.fromkeys(each.check for each in findings)
    }
    if decided := deciding([each for each in findings if each.check == "configurations"]):
        found["decided by"] = decided
    return found


def of_a_check(found: Sequence[Finding]) -> dict[str, Any]:
    """How often a check came to each end, the words that it compared, and the first finding that is no pass."""
    counts: dict[str, Any] = {str(end): count for end in End if (count := sum(each.end is end for each in found))}
    counts["words"] = sum(each.compared for each in found)
    counts["fails"] = sum(each.fails for each in found)
    told = [each for end in (End.FAULT, End.DIFFERS, End.NOT_DECIDED) for each in found if each.end is end]
    if told:
        first = told[0]
        counts["first"] = {"changed": first.changed, "cause": first.cause or first.reason}
        counts["share"] = round(max(each.differing / max(each.compared, 1) for each in told), 4)
    elif all(each.end is End.NOT_APPLICABLE for each in found):
        counts["reason"] = found[0].reason
    return counts


def deciding(found: Sequence[Finding]) -> list[str]:
    """The fewest fields of a configuration of which one is another wherever words are others, and none where they are the same.
    Empty where no words are others, or where no such fields are."""
    others = [fields for each in found if each.end is End.DIFFERS and (fields := changed_fields(each.changed))]
    alike = set().union(*(changed_fields(each.changed) for each in found if each.end is End.SAME))
    free = sorted(set().union(*others) - alike) if others else []
    for count in range(1, MOST_FIELDS + 1):
        for chosen in itertools.combinations(free, count):
            if all(fields & set(chosen) for fields in others):
                return list(chosen)
    return []


def changed_fields(changed: str) -> frozenset[str]:
    """The fields that a finding names: of "block_k = 32 for 64, stages = 2 for 3" both names."""
    return frozenset(part.partition(" = ")[0] for part in changed.split(", ") if " = " in part)


def together(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The runs of `files`: those that are stored first, each once a target and machine."""
    stored = [run for file in files if file.suffix == ".json" for run in json.loads(file.read_text())["runs"]]
    made = [condensed(file.read_text().splitlines()) for file in files if file.suffix != ".json"]
    return list({(run["arch"], run["machine"]): run for run in (*stored, *made)}.values())


if __name__ == "__main__":
    print(json.dumps({"runs": together([Path(name) for name in sys.argv[1:]])}, indent=1))
