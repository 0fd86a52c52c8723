"""``bitverdict merge JOURNAL...``: the journals of the shards of one run, or of one campaign of mutants, each thing counted once.

Exit status: that of a run which judged the same; 3 where a shard is missing or was cut and no case failed.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from bitverdict.harness.frontends import cli_run
from bitverdict.harness.frontends.cli_mutate import status
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.mutants.report import report
from bitverdict.harness.mutants.shards import is_campaign, merge
from bitverdict.harness.sealed import secret_draws
from bitverdict.harness.sealed.secret_draws import Secret
from bitverdict.harness.session import bugs, merged, resume, tables
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.profiles import PROFILES
from bitverdict.harness.session.result_files import Records
from bitverdict.harness.session.selection import Selection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("journals", nargs="+", type=Path, metavar="JOURNAL", help="a journal of each shard (.harness/journal)")
    parser.add_argument("--into", type=Path, default=None, metavar="FILE", help="the one journal (default: in .harness/journal)")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="as of run")
    parser.add_argument("--junit", type=Path, default=None, metavar="FILE", help="as of run")
    parser.add_argument("--coverage", action="store_true", help="print the classes seen of each dimension")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line of the table for each target and element type")


def run(arguments: argparse.Namespace) -> int:
    """Read, count, write, report."""
    if any(map(is_campaign, arguments.journals)):
        return _campaign(arguments)
    found = merged.read(arguments.journals)
    asked = argparse.Namespace(**cli_run.defaults() | found.arguments)
    if resume.sources_of(asked) != found.asked["sources"]:
        changed = ", ".join(sorted(found.asked["sources"]))
        raise UsageError(f"merge: {changed} is not the file that was judged; merge in a checkout of the same commit")
    os.environ.update(found.asked["knobs"])
    sources = cli_run.checked(asked, found.machines)
    secret = Secret.begin(found.secret) if any(source.sealed for source in sources) else None
    sources = [
        replace(source, accepted=source.accepted or asked.accept_claims, secret=secret if source.sealed else None)
        for source in sources
    ]
    sources = Selection(asked.k, asked.case).of(sources)
    shown = tables.console()
    journal = found.write(arguments.into)
    records = Records(arguments.json, arguments.junit)
    records.begin({"merge": [str(path) for path in arguments.journals]} | found.arguments)
    watching: list[Observer] = [records]
    profile = PROFILES[asked.profile]
    session = merged.MergedSession(merged.NoPool(journal), profile, max_cases=asked.max_cases, past=found.past, observers=watching)
    session.merged = found
    session.run(sources)
    for part in bugs.reports(session.bugs.values(), near=Path.cwd()):
        shown.print(part, soft_wrap=True)
    if found.both:
        shown.print(f"{found.both} cases failed in one journal and not in another; they count as failed", soft_wrap=True)
    tables.show(shown, session.tally, coverage=arguments.coverage, whole=arguments.verbose)
    records.end(session.tally)
    if not session.tally.missing:
        journal.note("finished", status=session.tally.status())
    journal.close()
    shown.print(f"{len(found.parts)} journals, {len(found.ends)} verdicts: {journal.path}", markup=False, soft_wrap=True)
    if session.tally.missing:
        shown.print(f"run --resume {journal.path} judges what is missing", markup=False, soft_wrap=True)
    if secret is not None:
        print(secret_draws.revealed(secret))
    return session.tally.status()


def _campaign(arguments: argparse.Namespace) -> int:
    """The results of the shards of `bitverdict mutate`, as one file and one report."""
    into = arguments.into or state_directory() / "mutants" / "merged.jsonl"
    found = merge(arguments.journals, into)
    shown = tables.console()
    shown.print(report(found.judged, found.address, found.target, "what judged it", 0), markup=False, soft_wrap=True)
    shown.print(f"{len(arguments.journals)} files, {len(found.judged)} of {found.mutants} mutants: {into}", soft_wrap=True)
    if found.missing:
        shown.print(found.missing, soft_wrap=True)
    return status(found.judged, ended=bool(found.missing))
