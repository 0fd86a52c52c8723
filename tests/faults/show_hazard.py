"""Print how the emulated GPU tells a hazard: ``python -m tests.faults.show_hazard [TEXT]``, the first whose kind
and kernel contain TEXT. `docs/emulator.md` shows the one it prints without."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from tests.emulator.ordering.test_hazards import EVERY, failure_report
from tests.faults.mutants import Mutant, ProgramEdit, SourceEdit

SHOWN = "in-flight operand overwritten blocked_matmul"


def told(hazard: Mutant, directory: Path) -> str:
    """The failure in text: message, rule, both operations, the state of barriers, the timeline."""
    fault, needed = failure_report(hazard, directory)
    details = fault.details
    lines = [f"{fault.outcome}: {fault.message}", f"  at         {fault.location}"]
    for name in ("rule", "operation", "other operation", "other location", "schedule"):
        if details.get(name):
            lines.append(f"  {name:15s} {details[name]}")
    lines += [f"  barrier at {place}: {state}" for place, state in details["barriers"].items()]
    lines += ["  timeline (=> and -> are the two that collide)", *(f"  {line}" for line in details["timeline"])]
    for edit in hazard.edits:
        if isinstance(edit, SourceEdit):
            lines.append(f"  replaced in the kernel: {edit.replace!r} by {edit.by!r}; {needed} schedules drawn")
        elif isinstance(edit, ProgramEdit):
            lines.append(f"  replaced in the program: {edit.pattern!r} by {edit.by!r}; {needed} schedules drawn")
    return re.sub(r"\S*/(\w+\.py)", r"\1", "\n".join(lines))


def main() -> None:
    text = " ".join(sys.argv[1:]) or SHOWN
    found = [hazard for hazard in EVERY if text in f"{hazard.kind} {hazard.kernel}"]
    if not found:
        sys.exit(f"{text!r}: no such hazard; kinds: {', '.join(sorted({hazard.kind for hazard in EVERY}))}")
    with tempfile.TemporaryDirectory() as directory:
        print(told(found[0], Path(directory)))


if __name__ == "__main__":
    main()
