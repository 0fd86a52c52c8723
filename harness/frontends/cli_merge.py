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
from bitverdict.harness.model.log_lines import case_count, count_text
from bitverdict.harness.model.paths import state_directory
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.mutants.report import report
from bitverdict.harness.mutants.shards import is_campaign, merge
from bitverdict.harness.sealed import secret_draws
from bitverdict.harness.sealed.secret_draws import Secret
from bitverdict.harness.session import bugs, merge_journals, resume, tables
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.profiles import PROFILES
from bitverdict.harness.session.result_files import Records
from bitverdict.harness.session.selection import Selection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("journals", nargs="+", type=Path, metavar="JOURNAL", help="a journal of each shard (.bitverdict/journal)")
    add("--into", type=Path, default=None, metavar="FILE", help="the one journal (default: in .bitverdict/journal)")
    add("--json", type=Path, default=None, metavar="FILE", help="as of run")
    add("--junit", type=Path, default=None, metavar="FILE", help="as of run")
    add("--coverage", action="store_true", help="print the classes seen of each dimension")
    add("-v", "--verbose", action="store_true", help="the table of verdicts, and where time went")


def run(arguments: argparse.Namespace) -> int:
    """Read, count, write, report."""
    if any(map(is_campaign, arguments.journals)):
        return _campaign(arguments)
    merged_run = merge_journals.read(arguments.journals)
    run_arguments = argparse.Namespace(**cli_run.defaults() | merged_run.arguments)
    if resume.sources_of(run_arguments) != merged_run.request["sources"]:
        changed = ", ".join(sorted(merged_run.request["sources"]))
        raise UsageError(f"merge: {changed} is not the file that was judged; merge in a checkout of the same commit")
    os.environ.update(merged_run.request["knobs"])
    sources = cli_run.check_arguments(run_arguments, merged_run.machines)
    secret = Secret.begin(merged_run.secret) if any(source.is_sealed for source in sources) else None
    sources = [
        replace(
            source,
            claims_accepted=source.claims_accepted or run_arguments.accept_claims,
            secret=secret if source.is_sealed else None,
        )
        for source in sources
    ]
    sources = Selection(run_arguments.k, run_arguments.case).select_cases(sources)
    console = tables.console()
    journal = merged_run.write(arguments.into)
    records = Records(arguments.json, arguments.junit)
    records.begin({"merge": [str(path) for path in arguments.journals]} | merged_run.arguments)
    watching: list[Observer] = [records]
    profile = PROFILES[run_arguments.profile]
    session = merge_journals.MergedSession(
        merge_journals.NoPool(journal), profile, max_cases=run_arguments.max_cases, past=merged_run.past, observers=watching
    )
    session.merged_run = merged_run
    session.tally.accepts_known_faults = run_arguments.accept_compiler_faults
    session.run(sources)
    for part in bugs.reports(session.bugs.values(), directory=Path.cwd()):
        tables.print_wrapped(console, part)
    if merged_run.conflicts:
        console.print(
            f"{case_count(merged_run.conflicts)} failed in one journal and not in another: counted as failed", soft_wrap=True
        )
    tables.show(console, session.tally, session.tally.wall, coverage=arguments.coverage, with_table=arguments.verbose)
    records.end(session.tally)
    if not session.tally.missing_shards:
        journal.note("finished", status=session.tally.status())
    journal.close()
    journals, verdicts = count_text(len(merged_run.parts), "journal"), count_text(len(merged_run.ends), "verdict")
    console.print(f"{journals}, {verdicts}: {journal.path}", markup=False, soft_wrap=True)
    if session.tally.missing_shards:
        console.print(f"run --resume {journal.path} judges what is missing", markup=False, soft_wrap=True)
    if secret is not None:
        print(secret_draws.revelation_lines(secret))
    return session.tally.status()


def _campaign(arguments: argparse.Namespace) -> int:
    """The results of the shards of `bitverdict mutate`, as one file and one report."""
    into = arguments.into or state_directory() / "mutants" / "merged.jsonl"
    campaign = merge(arguments.journals, into)
    shown = tables.console()
    shown.print(report(campaign.judged, campaign.address, campaign.target, "what judged it", 0), markup=False, soft_wrap=True)
    files = count_text(len(arguments.journals), "file")
    shown.print(f"{files}, {len(campaign.judged)} of {campaign.mutants} mutants: {into}", soft_wrap=True)
    if campaign.missing_text:
        shown.print(campaign.missing_text, soft_wrap=True)
    return status(campaign.judged, ended=bool(campaign.missing_text))
