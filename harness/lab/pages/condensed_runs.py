"""What runs of `benchmarks/invariance.py` came to, kernel by kernel: the stored form that docs/invariance.md is printed from.

`python -m bitverdict.harness.lab.pages.condensed_runs FILE... > tests/hardware_words/invariance.json` makes it of files
of JSON lines, each behind the line that says where it was made. A FILE that ends in .json is the stored form: of it those runs
stay, in their order, whose target none of the others has. Write to another file then, and move it.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitverdict.harness.checks.invariance.invariance_finding import End, InvarianceFinding, attribute_causes

MOST_FIELDS = 3  # of a configuration that together decide


def condense_run(lines: Iterable[str]) -> dict[str, Any]:
    """One run: where it was made, and what each kernel came to."""
    records = [json.loads(line) for line in lines if line.strip()]
    made, rows = records[0], records[1:]
    kernels: dict[str, list[dict]] = {}
    for row in rows:
        kernels.setdefault(row["kernel"], []).append(row)
    return made | {"cases": len(rows), "kernels": {name: of_a_kernel(kernels[name]) for name in sorted(kernels)}}


def of_a_kernel(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The counts of each check over the cases of one kernel."""
    findings = [
        item for row in rows for item in attribute_causes([InvarianceFinding.from_json(record) for record in row["findings"]])
    ]
    configs = {json.dumps(row["case"]["config"], sort_keys=True) for row in rows}
    record: dict[str, Any] = {"cases": len(rows), "configurations": len(configs)}
    record["checks"] = {
        check: of_a_check([item for item in findings if item.check == check])
        for check in dict.fromkeys(item.check for item in findings)
    }
    if decided := deciding_fields([item for item in findings if item.check == "configurations"]):
        record["decided by"] = decided
    return record


def of_a_check(findings: Sequence[InvarianceFinding]) -> dict[str, Any]:
    """How often a check came to each end, the words that it compared, and the first finding that is no pass."""
    counts: dict[str, Any] = {
        str(end): count for end in End if (count := sum(check_finding.end is end for check_finding in findings))
    }
    counts["words"] = sum(check_finding.compared for check_finding in findings)
    counts["fails"] = sum(check_finding.fails for check_finding in findings)
    listing = [
        check_finding for end in (End.FAULT, End.DIFFERS, End.NOT_DECIDED) for check_finding in findings if check_finding.end is end
    ]
    if listing:
        first = listing[0]
        counts["first"] = {"changed": first.changed, "cause": first.cause or first.reason}
        counts["share"] = round(max(check_finding.differing / max(check_finding.compared, 1) for check_finding in listing), 4)
    elif all(check_finding.end is End.NOT_APPLICABLE for check_finding in findings):
        counts["reason"] = findings[0].reason
    return counts


def deciding_fields(found: Sequence[InvarianceFinding]) -> list[str]:
    """The fewest fields of a configuration of which one is another wherever words are others, and none where they are the same.
    Empty where no words are others, or where no such fields are."""
    others = [fields for each in found if each.end is End.DIFFERS and (fields := changed_fields(each.changed))]
    alike = set().union(*(changed_fields(each.changed) for each in found if each.end is End.SAME_WORDS))
    free = sorted(set().union(*others) - alike) if others else []
    for count in range(1, MOST_FIELDS + 1):
        for chosen in itertools.combinations(free, count):
            if all(fields & set(chosen) for fields in others):
                return list(chosen)
    return []


def changed_fields(changed: str) -> frozenset[str]:
    """The fields that a finding names: of "block_k = 32 for 64, stages = 2 for 3" both names."""
    return frozenset(part.partition(" = ")[0] for part in changed.split(", ") if " = " in part)


def merge_files(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The runs of `files`: those that are stored first, each once a target and machine."""
    stored = [run for file in files if file.suffix == ".json" for run in json.loads(file.read_text())["runs"]]
    made = [condense_run(file.read_text().splitlines()) for file in files if file.suffix != ".json"]
    return list({(run["arch"], run["machine"]): run for run in (*stored, *made)}.values())


if __name__ == "__main__":
    print(json.dumps({"runs": merge_files([Path(name) for name in sys.argv[1:]])}, indent=1))
