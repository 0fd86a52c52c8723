"""``bitverdict ci [JOURNAL]``: what journals say, as annotations, a summary, SARIF and JUnit; it judges nothing.

Exit status: that of the runs: 0 all right, 1 fail, 3 inconclusive, an error or a run that was cut, 5 nothing ran.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bitverdict.harness.judge.machine_faults import writing
from bitverdict.harness.model.log_lines import count_text
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.report.ci.findings import journals, read
from bitverdict.harness.report.ci.forms import commands, junit, sarif, summary
from bitverdict.harness.session.reproducers import write_atomically
from bitverdict.harness.session.result_files import FREE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("journals", nargs="*", type=Path, metavar="JOURNAL", help="journals of runs or of pytest, or folders (default: all here)")
    add("--sarif", type=Path, default=None, metavar="FILE", help="a SARIF 2.1.0 log")
    add("--junit", type=Path, default=None, metavar="FILE", help="JUnit XML")
    add("--summary", type=Path, default=None, metavar="FILE", help="Markdown, added to (default: where GITHUB_STEP_SUMMARY says)")


def run(arguments: argparse.Namespace) -> int:
    journal_findings = read(journals(arguments.journals or [state_directory() / "journal"]), Path.cwd())
    for line in commands(journal_findings.findings):
        print(line)
    summary_text = summary(journal_findings)
    place = arguments.summary or (Path(given) if (given := os.environ.get("GITHUB_STEP_SUMMARY")) else None)
    if place is None:
        print(summary_text)
    else:
        with writing("--summary", place, FREE), place.open("a") as file:
            file.write(summary_text)
    for option, path, form in (("--sarif", arguments.sarif, sarif), ("--junit", arguments.junit, junit)):
        if path is not None:
            with writing(option, path, FREE):
                write_atomically(path, form(journal_findings))
    if journal_findings.unended_runs:
        runs = count_text(len(journal_findings.unended_runs), "run")
        print(f"not ended: {runs}; run --resume goes on with the newest", file=sys.stderr)
    return journal_findings.status()
