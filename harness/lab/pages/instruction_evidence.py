"""The table of docs/arithmetic.md that says what each instruction rests on, printed from the records.

    python -m bitverdict.harness.lab.pages.instruction_evidence

prints it; `bitverdict lab pages arithmetic.md` puts it into the page, between the two lines `BEGIN` and `END`.
"""

from __future__ import annotations

from itertools import groupby

from bitverdict.reference.tensor_core.lookup import ALL_INSTRUCTIONS
from bitverdict.reference.tensor_core.record import Instruction

BEGIN = "<!-- printed by: python -m bitverdict.harness.lab.pages.instruction_evidence -->"
END = "<!-- end of what is printed -->"
HEADS = ("chip", "instruction", "operands", "a verdict says", "it rests on")


def row_of(rule: Instruction) -> tuple[str, str, str, str]:
    """What instructions of one row share: chip, instruction, basis, evidence."""
    kind = "" if rule.kind == rule.family else f" {rule.kind}"
    return rule.arch, f"{rule.family}{kind}", f"words by {rule.evidence.basis}", str(rule.evidence)


def operands_of(rules: list[Instruction]) -> str:
    """Their operands and results; those of many mixes in words."""
    if len(rules) > 6:
        results = " or ".join(sorted({rule.d for rule in rules}, reverse=True))
        mixed = "" if any(rule.a == rule.b for rule in rules) else ", mixed"
        return f"{', '.join(dict.fromkeys(rule.a for rule in rules))}{mixed} -> {results}"
    found = [
        f"{rule.a if rule.a == rule.b else f'{rule.a} x {rule.b}'} -> {rule.d}"
        + (f" scaled by {rule.scale} per {rule.scale_block}" if rule.scale and rule.kind == "mxf4nvf4" else "")
        for rule in rules
    ]
    return ", ".join(found)


def table() -> str:
    """A row for each chip, instruction and evidence, in the order of `ALL_INSTRUCTIONS`."""
    order = list(dict.fromkeys(map(row_of, ALL_INSTRUCTIONS)))
    lines = ["| " + " | ".join(HEADS) + " |", "| " + " | ".join(["---"] * len(HEADS)) + " |"]
    for shared, rules in groupby(sorted(ALL_INSTRUCTIONS, key=lambda rule: order.index(row_of(rule))), key=row_of):
        chip, instruction, basis, evidence = shared
        lines.append(f"| {chip} | {instruction} | {operands_of(list(rules))} | {basis} | {evidence} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """`text`, the page, with the table as it is now. ValueError where the two lines are not there once each, in their order."""
    before, begun, after = text.partition(f"{BEGIN}\n")
    _, ended, rest = after.partition(f"\n{END}\n")
    if not begun or not ended or BEGIN in rest or END in rest:
        raise ValueError(f"the page must hold these two lines once, in this order: {BEGIN} and {END}")
    return before + begun + table() + ended + rest


if __name__ == "__main__":
    print(table())
