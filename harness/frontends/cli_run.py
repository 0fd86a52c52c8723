"""``bitverdict run``: judge contracts on targets, show the table, store and shrink what fails."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bitverdict.harness.frontends import fleet
from bitverdict.harness.frontends.progress import ProgressDisplay
from bitverdict.harness.frontends.project_settings import project_settings
from bitverdict.harness.frontends.run_options import add_arguments
from bitverdict.harness.frontends.sealing import protection, source_of
from bitverdict.harness.frontends.subjects import address_of_word, find_subjects, mathematics_of
from bitverdict.harness.judge.machine_faults import MachineFault, check_compiler_cache, missing_tools
from bitverdict.harness.model.addresses import add_search_path, load, resolve
from bitverdict.harness.model.decorated_object import root_of
from bitverdict.harness.model.extras import require_extra
from bitverdict.harness.model.launcher_limits import check_launcher
from bitverdict.harness.model.paths import kernels_with_a_contract, path_from_here
from bitverdict.harness.model.supervision import cancels_from_here
from bitverdict.harness.model.targets import Target, targets, targets_called
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.sealed import secret_draws
from bitverdict.harness.sealed.secret_draws import Secret
from bitverdict.harness.session import bugs, resume, tables, tally
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.discrimination import CertificateLines
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.profiles import PROFILES
from bitverdict.harness.session.result_files import Records
from bitverdict.harness.session.selection import Selection
from bitverdict.harness.session.session import Session
from bitverdict.harness.session.shard import WHOLE_RUN, Shard
from bitverdict.harness.workers.forkserver import collect_again
from bitverdict.harness.workers.pool import WorkerPool


def run(arguments: argparse.Namespace) -> int:
    """Judge as asked; returns the exit status. UsageError for anything asked that cannot be, before anything is written."""
    begin, past, goes_on = time.perf_counter(), resume.Past(), arguments.resume is not None
    if goes_on:
        arguments, journal, past = resume.take_up(arguments, defaults())
    else:
        _take_subjects(arguments)
    shard = Shard.parse_shard(arguments.shard)
    fleet.check_trusted(arguments.on, arguments.sealed)
    cluster = fleet.cluster(arguments.on)
    sources = check_arguments(arguments, None if cluster is None else fleet.machines(cluster, arguments.target, arguments.arch))
    fleet.check_trusted(arguments.on, any(source.is_sealed for source in sources))
    sources = [replace(source, claims_accepted=source.claims_accepted or arguments.accept_claims) for source in sources]
    secret = None
    if any(source.is_sealed for source in sources):
        if shard != WHOLE_RUN and not arguments.secret and not goes_on:
            raise UsageError(f"--shard {shard} --sealed: all shards must draw by one secret; give each the same --secret HEX")
        secret = secret_draws.take_up(journal) if goes_on else Secret.begin(arguments.secret)
        sources = [replace(source, secret=secret if source.is_sealed else None) for source in sources]
    elif arguments.secret:
        raise UsageError("--secret: is of a sealed run; give --sealed too, or leave it out")
    case_sources = Selection(arguments.k, arguments.case, arguments.lf, journal.path.name if goes_on else "").select_cases(sources)
    if not case_sources:
        names = ", ".join(dict.fromkeys(source.name for source in sources))
        print(f"--lf: no case of {names} failed in its last run; leave --lf out")
        return tally.NOTHING_RAN
    profile = PROFILES[arguments.profile]
    if getattr(arguments, "owes_no_draws", False):
        profile = replace(profile, node_least=0)
    protection_text = protection(sources, required=arguments.require_jail)
    collect_again()
    if arguments.shrink_seconds is not None:
        profile = replace(profile, shrink_seconds=arguments.shrink_seconds)
    os.environ.setdefault(
        "BITVERDICT_POOL_SEED", str(arguments.seed if secret is None else secret.number("pool") % secret_draws.SEEDS)
    )
    check_compiler_cache()
    if goes_on:
        journal.note("resumed")
    else:
        journal = resume.begin(arguments, dict.fromkeys(source.target for source in sources))
        if secret is not None:
            secret_draws.commit(secret, journal)
    console = tables.console()
    for line in (missing_tools(), protection_text, "" if secret is None else secret_draws.commitment_line(secret)):
        if line:
            console.print(line, markup=False, soft_wrap=True)
    records = Records(arguments.json, arguments.junit)
    records.begin({name: str(value) for name, value in vars(arguments).items() if name not in resume.UNSTORED_NAMES})
    cancels_from_here()
    timeout = profile.case_seconds if arguments.timeout is None else arguments.timeout
    with fleet.pool(cluster, jobs=arguments.jobs, timeout=timeout, journal=journal, files=resume.sources_of(arguments)) as pool:
        observers: list[Observer] = [records] if arguments.quiet else [ProgressDisplay(console), records]
        if arguments.certificate == "cases":
            observers.append(CertificateLines(lambda line: console.print(line, markup=False, soft_wrap=True)))
        session = Session(
            pool,
            profile,
            max_cases=arguments.max_cases,
            past=past,
            observers=observers,
            until_failure=arguments.x,
            expect_cases=pool.compile_ahead,
            shard=shard,
        )
        session_tally = session.tally
        session_tally.accepts_known_faults = arguments.accept_compiler_faults
        session.run(case_sources)
        if session_tally.is_cancelled:
            console.print(
                f"cancelled; what was judged is in {path_from_here(str(journal.path))}; bitverdict run --resume goes on",
                style="yellow",
            )
        page_data = page_of(session_tally, session.bugs.values(), pool) if arguments.html or arguments.pictures else None
        for part in bugs.reports(session.bugs.values(), directory=Path.cwd(), is_full=arguments.verbose):
            tables.print_wrapped(console, part)
    if arguments.quiet:
        console.print(session_tally.sentence(), markup=False, style="bold", soft_wrap=True)
    else:
        tables.show(console, session_tally, time.perf_counter() - begin, coverage=arguments.coverage, with_table=arguments.verbose)
    try:
        records.end(session_tally)
        if page_data is not None:
            write_told(page_data, arguments)
        if not session_tally.is_cancelled and not session_tally.stop_reason:
            if secret is not None:
                secret_draws.reveal(secret, journal)
            journal.note("finished", status=session_tally.status())
            journal.close()
    except MachineFault as fault:
        if not session_tally.stop_reason:  # or the last line has said it
            print(f"error: {fault}", file=sys.stderr)
        session_tally.stop_reason = str(fault)
    if secret is not None:
        ended = not session_tally.is_cancelled and not session_tally.stop_reason
        print(secret_draws.revelation_lines(secret) if ended else secret_draws.withheld(secret))
    return session_tally.status()


def run_selftest(arguments: argparse.Namespace) -> int:
    """``bitverdict selftest``: the kernels that bitverdict brings, by their own contracts."""
    if unknown := [stem for stem in arguments.stems if stem not in kernels_with_a_contract()]:
        raise UsageError(f"selftest {unknown[0]}: judges the kernels that bitverdict brings; yours are judged by: run {unknown[0]}")
    arguments.stems = arguments.stems or ([] if arguments.contract else kernels_with_a_contract())
    arguments.owes_no_draws = True  # required cases say whether it works here
    arguments.accept_compiler_faults = True  # which its docs list by release, and no kernel of its can mend
    return run(arguments)


def _take_subjects(arguments: argparse.Namespace) -> None:
    """Put into `arguments` the addresses that their words name (`subjects`); the tests of this folder where they name nothing."""
    words, launcher = arguments.stems, arguments.launcher
    if arguments.contract:
        arguments.contract = address_of_word(arguments.contract)
    elif launcher:
        arguments.launcher = launcher = address_of_word(launcher)
        arguments.stems = words or [mathematics_of(launcher, "run", sealed=arguments.sealed)]
    else:
        subjects = find_subjects(words or ["."], "run", sealed=arguments.sealed)
        arguments.stems, arguments.launcher = list(subjects.addresses), subjects.launcher


def page_of(counted: tally.Tally, found: Iterable[bugs.Bug], pool: WorkerPool) -> dict:
    """What the page tells of a run; the first failing cases are launched again for their pictures, unless the run was ended."""
    from bitverdict.harness.report.collect import of_run

    ended = counted.is_cancelled or counted.stop_reason
    return of_run(counted, found, None if ended else pool, base_path=Path.cwd())


def write_told(page_data: dict, arguments: argparse.Namespace) -> None:
    """The page and the pictures, where `arguments` ask for them."""
    from bitverdict.harness.report.collect import header
    from bitverdict.harness.report.page import write_page, write_pictures

    if arguments.html:
        write_page(arguments.html, page_data, header())
    if arguments.pictures:
        write_pictures(arguments.pictures, page_data)


def _test_at(address: str) -> Callable[[Target], CaseSource] | None:
    """The case source, by the target, of a test that a public function made; None where something else lies at `address`.

    Its file finds the modules beside it, and those of the package that it lies in, as under pytest.
    """
    if ".py:" not in address:
        return None
    add_search_path(_folders(address))
    return getattr(load(address, unwrap=False), "__bitverdict__", None)


def _folders(address: str) -> tuple[str, ...]:
    """Where the file of an address finds the modules beside it; none of an address of a module."""
    place = address.rpartition(":")[0]
    return (str(root_of(Path(place).resolve())),) if place.endswith(".py") else ()


def defaults() -> dict[str, object]:
    """The arguments of a run that is asked nothing."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return vars(parser.parse_args([]))


def check_timeout(seconds: float) -> None:
    """UsageError for a time in which nothing can be judged: every kernel would fail by it."""
    if not seconds > 0:
        raise UsageError(f"--timeout {seconds:g}: must be more than 0 seconds; leave it out for 120, give inf for no limit")


def _machines(arguments: argparse.Namespace) -> Sequence[Target]:
    """The targets that are asked for."""
    asked = [f"cuda:{arguments.arch}"] if arguments.arch else arguments.target
    asked = asked or ([] if arguments.all_targets else project_settings().get("targets", []))
    return targets_called(asked) or targets(every=arguments.all_targets)


def check_arguments(arguments: argparse.Namespace, machines: Sequence[Target] | None = None) -> list[CaseSource]:
    """The case sources asked for. Every address, target, count and output path is checked here, before anything runs or is
    written. `machines`: on these, wherever they are."""
    if arguments.lf and arguments.shard:
        raise UsageError(f"--shard {arguments.shard} --lf: what failed last is known on one machine alone; leave one of them out")
    if arguments.contract and arguments.stems:
        raise UsageError(f"--contract {arguments.contract} and {' '.join(arguments.stems)}: give kernels or one contract, not both")
    addresses = [arguments.contract] if arguments.contract else list(dict.fromkeys(arguments.stems)) or kernels_with_a_contract()
    tests = {address: found for address in addresses if (found := _test_at(address)) is not None}
    for address in addresses:
        if address not in tests:
            resolve(address)
    if arguments.launcher:
        if tests:
            raise UsageError(f"--launcher {arguments.launcher}: {next(iter(tests))} names its own; leave one of them out")
        if len(addresses) != 1:
            raise UsageError(
                f"--launcher {arguments.launcher}: is judged by one kernel's mathematics; name it, for example: run matmul"
            )
        if arguments.sealed:
            from bitverdict.harness.sealed.processes.candidate_descriptions import begin

            begin(arguments.launcher)
        else:
            add_search_path(_folders(arguments.launcher))
        check_launcher(resolve(addresses[0]), arguments.launcher)
    elif arguments.sealed and len(tests) != len(addresses):
        own = next(address for address in addresses if address not in tests)
        raise UsageError(
            f"--sealed: {own} is judged with its own kernel, which is trusted; name another's by --launcher FILE:FUNCTION"
        )
    for name, least in (("max_cases", 1), ("jobs", 0), ("shrink_seconds", 0)):
        value = getattr(arguments, name)
        if value is not None and not value >= least:
            raise UsageError(f"--{name.replace('_', '-')} {value}: must be at least {least}")
    if arguments.timeout is not None:
        check_timeout(arguments.timeout)
    for path in (arguments.json, arguments.junit, arguments.html):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise UsageError(f"{path}: must be a file in a directory that exists; make {path.absolute().parent} first")
    if arguments.html:
        require_extra("jinja2", "--html")
    machines = _machines(arguments) if machines is None else machines
    tuning = "first" if arguments.first_configuration else ""
    if arguments.case and len(addresses) != 1:
        raise UsageError(f"--case {arguments.case!r}: has the fields of one kernel; name it, for example: run matmul --case ...")

    def plain_source(address: str, machine: Target) -> CaseSource:
        folders = () if arguments.sealed else _folders(arguments.launcher)
        return CaseSource(address, machine, launcher=arguments.launcher, is_sealed=arguments.sealed, search_path=folders)

    case_sources = [
        replace(
            source_of(tests[address], machine, sealed=arguments.sealed) if address in tests else plain_source(address, machine),
            seed=arguments.seed,
            tuning=tuning,
            real_values=not arguments.no_real_values,
            recover_order=arguments.recover_order,
            ptx=arguments.ptx,
            certificate=bool(arguments.certificate),
        )
        for address in addresses
        for machine in machines
    ]
    if arguments.launcher and not any(source.required() for source in case_sources):  # what it claims and requires is read here
        raise UsageError(f"--launcher {arguments.launcher}: its requires takes no case of {addresses[0]}; fix the attribute")
    return case_sources
