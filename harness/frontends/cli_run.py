"""``bitverdict run``: judge contracts on targets, show the table, store and shrink what fails."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from bitverdict.harness.frontends.progress import Showing
from bitverdict.harness.judge.first_launch import shown as shown_by
from bitverdict.harness.judge.machine_faults import MachineFault, check_compiler_cache, writing
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.launcher_limits import check_launcher
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.supervision import cancels_from_here
from bitverdict.harness.model.targets import Target, nearest_emulated, target, targets
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session import reproducers, resume, tables
from bitverdict.harness.session import tally as report
from bitverdict.harness.session.case_source import CaseSource, in_turns
from bitverdict.harness.session.deadline import Deadlines
from bitverdict.harness.session.failure_report import cells, describe, failure_report
from bitverdict.harness.session.profiles import PROFILES, Profile
from bitverdict.harness.session.replay import rerun
from bitverdict.harness.session.result_files import FREE, Records
from bitverdict.harness.session.shrink import VerdictCache, shrink
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.stopping import Stopping

MOST_BUGS = 4  # shrunk per contract and target; the others are stored as they came


@dataclass
class Bug:
    """The first case of a signature on a case source; of an error too, which is stored but not shrunk."""

    source: CaseSource
    case: Case
    verdict: Verdict
    seen: int = 1
    notes: list[str] = field(default_factory=list)
    first: Case | None = None  # before it was shrunk


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stems", nargs="*", metavar="STEM", help="kernels to judge (default: all)")
    parser.add_argument(
        "--target", action="append", default=[], metavar="T", help="emulated:sm_NN or cuda:N (default: all that are here)"
    )
    parser.add_argument("--arch", default="", metavar="sm_NN", help="every GPU of this architecture; an error when there is none")
    parser.add_argument(
        "--profile", choices=sorted(PROFILES), default="quick", help="how long to draw; required cases are judged whole"
    )
    parser.add_argument(
        "--launcher",
        default="",
        metavar="FILE:FUNCTION",
        help="judge your own launcher by the kernel's mathematics; its "
        "attributes claims and requires say what it takes (docs/judging.md)",
    )
    parser.add_argument(
        "--contract", default="", metavar="ADDRESS", help="judge the contract at package.module:NAME or path/file.py:NAME"
    )
    parser.add_argument("--max-cases", type=int, default=None, metavar="N", help="at most N cases per contract and target")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="base seed of the draws (default 0)")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="workers at a time (default: one a core)")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="a case that takes longer is a timeout")
    parser.add_argument(
        "--first-configuration", action="store_true", help="a launcher's autotuners take their first configuration, and no other"
    )
    parser.add_argument(
        "--shrink-seconds", type=float, default=None, metavar="SECONDS", help="time to shrink one bug; 0: store it as it came"
    )
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="every verdict as a line of JSON, then a summary")
    parser.add_argument("--junit", type=Path, default=None, metavar="FILE", help="JUnit XML, whole at any time")
    parser.add_argument("--html", type=Path, default=None, metavar="FILE", help="the report as a page, with the pictures")
    parser.add_argument(
        "--resume", nargs="?", const="", default=None, metavar="JOURNAL", help="go on with a run that was cut (default: the newest)"
    )
    parser.add_argument("--coverage", action="store_true", help="print the classes seen of each dimension")


def run(arguments: argparse.Namespace) -> int:
    """Judge as asked; returns the exit status. ValueError for anything asked that cannot be, before anything is written."""
    past, goes_on = resume.Past(), arguments.resume is not None
    if goes_on:
        arguments, journal, past = resume.take_up(arguments, _defaults())
    profile, case_sources = PROFILES[arguments.profile], checked(arguments)
    os.environ.setdefault("HARNESS_POOL_SEED", str(arguments.seed))
    check_compiler_cache()
    if goes_on:
        journal.note("resumed")
    else:
        journal = resume.begin(arguments)
    shown = tables.console(record=arguments.html is not None)
    records = Records(arguments.json, arguments.junit)
    records.begin({name: str(value) for name, value in vars(arguments).items() if name not in resume.NOT_ASKED})
    tally, bugs = report.Tally(), dict[tuple, Bug]()
    cancels_from_here()
    with WorkerPool(jobs=arguments.jobs or len(os.sched_getaffinity(0)), timeout=arguments.timeout, journal=journal) as pool:
        try:
            with pool.interruptible(), Showing(shown) as showing:
                _judge(case_sources, profile, arguments, pool, past, tally, bugs, records, showing)
                _shrink(bugs, profile, arguments, pool, showing)
        except KeyboardInterrupt:
            tally.cancelled = True
            shown.print(f"cancelled; what was judged is in {journal.path}; run --resume goes on from there", style="yellow")
        except MachineFault as fault:  # what was judged before is shown
            tally.stopped = str(fault)
        _show_bugs(bugs, shown, records, tally)
    shown.print(tables.table(tally))
    for line in tables.LEGEND:
        shown.print(line, markup=False, style="dim", soft_wrap=True)
    for line in tables.not_run_lines(tally):
        shown.print(line, markup=False, style="dim", soft_wrap=True)
    for line in tally.scope.lines():
        shown.print(line, markup=False, style="dim", soft_wrap=True)
    if arguments.coverage:
        shown.print("\n".join(tables.coverage_lines(tally)), markup=False)
    for advice, count in tally.advice.most_common(5):
        shown.print(f"advice ({count} cases): {advice}", markup=False)
    if time_line := tables.time_line(tally):
        shown.print(time_line, markup=False, style="dim")
    shown.print(tally.sentence(), markup=False, style="bold", soft_wrap=True)
    try:
        records.end(tally)
        if arguments.html:
            with writing("--html", arguments.html, FREE):
                shown.save_html(str(arguments.html))
        if not tally.cancelled and not tally.stopped:
            journal.note("finished", status=tally.status())
            journal.close()
    except MachineFault as fault:
        if not tally.stopped:  # or the last line has said it
            print(f"error: {fault}", file=sys.stderr)
        tally.stopped = str(fault)
    return tally.status()


def _defaults() -> dict:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return vars(parser.parse_args([]))


def _show_bugs(bugs: dict[tuple, Bug], shown: Console, records: Records, tally: report.Tally) -> None:
    """Store each bug and show it whole on the first target that has it, by one line on the others."""
    told: set[tuple] = set()
    for bug in bugs.values():
        name, where = _named(bug.source), bug.source.target.name
        try:
            path = reproducers.write(
                reproducers.reproducer_of(bug.case, where, bug.verdict, model=bug.source.target.model, first=bug.first)
            )
            records.reproducer(path, bug.source.address, where)
            line = reproducers.replay_line(_near(path))
        except MachineFault as fault:
            tally.stopped = tally.stopped or str(fault)
            line = f"(not stored: {fault})"
        if (name, bug.verdict.signature) in told:
            shown.print(f"the same on {where} ({bug.seen} cases): {line}", markup=False, soft_wrap=True)
            continue
        told.add((name, bug.verdict.signature))
        notes = [f"{bug.seen} cases show it", *bug.notes] if bug.seen > 1 else bug.notes
        shown.print()
        shown.print(failure_report(name, where, bug.case, bug.verdict, notes, line), soft_wrap=True)
    if told:
        shown.print()


def check_timeout(seconds: float) -> None:
    """UsageError for a time in which nothing can be judged: every kernel would fail by it."""
    if not seconds > 0:
        raise UsageError(f"--timeout {seconds:g}: must be more than 0 seconds; leave it out for 120, give inf for no limit")


def checked(arguments: argparse.Namespace) -> list[CaseSource]:
    """The case sources asked for. Every address, target, count and output path is checked here, before anything runs or is
    written."""
    if arguments.contract and arguments.stems:
        raise UsageError(f"--contract {arguments.contract} and {' '.join(arguments.stems)}: give kernels or one contract, not both")
    addresses = [arguments.contract] if arguments.contract else list(dict.fromkeys(arguments.stems)) or kernels_with_a_contract()
    for address in addresses:
        resolve(address)
    if arguments.launcher:
        if len(addresses) != 1:
            raise UsageError(
                f"--launcher {arguments.launcher}: is judged by one kernel's mathematics; name it, for example: run matmul"
            )
        check_launcher(resolve(addresses[0]), arguments.launcher)
    for name, least in (("max_cases", 1), ("jobs", 0), ("shrink_seconds", 0)):
        value = getattr(arguments, name)
        if value is not None and not value >= least:
            raise UsageError(f"--{name.replace('_', '-')} {value}: must be at least {least}")
    check_timeout(arguments.timeout)
    for path in (arguments.json, arguments.junit, arguments.html):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise UsageError(f"{path}: must be a file in a directory that exists; make {path.absolute().parent} first")
    machines = [target(name) for name in dict.fromkeys(arguments.target)] if arguments.target else targets()
    if arguments.arch:
        machines = [machine for machine in targets() if machine.arch == arguments.arch and not machine.emulated]
        if not machines:
            here = ", ".join(f"{machine.name} ({machine.arch})" for machine in targets() if not machine.emulated) or "none"
            raise UsageError(f"--arch {arguments.arch}: no GPU of architecture {arguments.arch!r} is visible; GPUs here: {here}")
    tuning = "first" if arguments.first_configuration else ""
    case_sources = [
        CaseSource(address, machine, arguments.seed, arguments.launcher, tuning) for address in addresses for machine in machines
    ]
    if arguments.launcher and not any(source.required() for source in case_sources):  # what it claims and requires is read here
        raise UsageError(f"--launcher {arguments.launcher}: its requires takes no case of {addresses[0]}; mend the attribute")
    return case_sources


def _judge(
    case_sources: list[CaseSource],
    profile: Profile,
    arguments: argparse.Namespace,
    pool: WorkerPool,
    past: resume.Past,
    tally: report.Tally,
    bugs: dict[tuple, Bug],
    records: Records,
    showing: Showing,
) -> None:
    """Every case dealt comes to one verdict, an earlier one or a new one; counted in the order they were dealt in, so that neither
    the number of workers nor a kill changes which case stands for a bug."""
    by_key = {(source.address, source.target.name): source for source in case_sources}
    contracts = {source.address: source.contract for source in case_sources}
    places: dict[tuple[str, str], int] = {}
    arrived: dict[int, tuple[Case, Target, Verdict]] = {}
    counted, stopping = 0, Stopping()

    def arrive(case: Case, machine: Target, verdict: Verdict) -> None:
        arrived[places[machine.name, case.key]] = case, machine, verdict
        showing.step(_named(by_key[case.contract, machine.name]), machine.name, verdict)

    def left() -> Iterator[tuple[Case, Target]]:
        for case, machine in _cases(case_sources, profile, arguments, pool, past, tally, showing):
            places[machine.name, case.key] = len(places)
            known = past.verdict(machine.name, case)
            if known is None:
                yield case, machine
            else:
                stopping.heard(case.contract, machine.name, known)
                arrive(case, machine, known)

    def count(place: int) -> None:
        case, machine, verdict = arrived.pop(place)
        source = by_key[case.contract, machine.name]
        tally.count(case, _named(source), machine.name, contracts[case.contract].coverage(case, machine), verdict)
        records.verdict(case, _named(source), machine.name, verdict)
        if verdict.failed or verdict.decision is Decision.ERROR:
            key = (source.address, machine.name, verdict.signature)
            if key in bugs:
                bugs[key].seen += 1
            else:
                bugs[key] = Bug(source, case, verdict)

    try:
        for answer in pool.judge_all(left(), stopping):
            arrive(*answer)
            while counted in arrived:
                count(counted)
                counted += 1
    finally:  # those that came before an earlier one did
        for place in sorted(arrived):
            count(place)


def _cases(
    case_sources: list[CaseSource],
    profile: Profile,
    arguments: argparse.Namespace,
    pool: WorkerPool,
    past: resume.Past,
    tally: report.Tally,
    showing: Showing,
) -> Iterator[tuple[Case, Target]]:
    """The required cases of all case sources in turns, whole; then draws in turns until their number or the time is reached.

    What the time decided is in the journal, and is so again in a run that goes on.
    """
    deadlines = Deadlines(profile.seconds, past, pool.journal)
    able = []
    for source in case_sources:
        if source.lacking:
            tally.not_run(_named(source), source.target.name, f"{source.target.name} lacks {', '.join(source.lacking)}")
        else:
            able.append(source)
    most = arguments.max_cases
    able = _shown(able, pool, past)
    for source in able:
        tally.scope.narrow(_named(source), source.narrowed())
    required = [source.required()[:most] for source in able]
    for source, cases in zip(able, required, strict=True):
        tally.require(_named(source), source.target.name, cases)
    showing.expect(sum(map(len, required)))
    yield from in_turns([[(case, source.target) for case in cases] for source, cases in zip(able, required, strict=True)])
    wanted = [min(profile.draws, most - len(cases)) if most is not None else profile.draws for cases in required]
    drawn: list[list[tuple[Case, Target]]] = []
    for source, count in deadlines.until_enough("drawn", zip(able, wanted, strict=True)):
        drawn.append([(case, source.target) for case in (source.drawn(count) if count > 0 else [])])
    showing.expect(sum(map(len, drawn)))
    order = list(in_turns(drawn))  # of two cases dealt to two places the later may be in the journal alone
    again = enumerate(order, 1) if past.begun else ()
    earlier = max((place for place, (case, machine) in again if past.dealt(machine.name, case)), default=0)
    yield from deadlines.until_enough("enough", order, least=earlier)


def _shown(case_sources: list[CaseSource], pool: WorkerPool, past: resume.Past) -> list[CaseSource]:
    """`case_sources` with what the first launch of a user's launcher shows of it.

    That launch is of a required case; where the case comes up again its verdict counts. For a real GPU it is made on an emulated
    one, which alone sees the program.
    """
    asked: dict[tuple[str, str], tuple[Case, Target]] = {}
    for source in case_sources:
        seeing = source.target if source.target.emulated else nearest_emulated(source.target.arch)
        case = replace(source, target=seeing).first()
        if case is not None:
            asked[source.address, source.target.name] = case, seeing
    out = {(where.name, case.key): (case, where) for case, where in asked.values() if past.verdict(where.name, case) is None}
    for case, where, verdict in pool.judge_all(out.values()):
        past.verdicts[where.name, case.key] = verdict
    found = []
    for source in case_sources:
        first = asked.get((source.address, source.target.name))
        seen = past.verdict(first[1].name, first[0]) if first is not None else None
        found.append(source if seen is None else replace(source, shown=shown_by(seen.recorded)))
    return found


def _shrink(bugs: dict[tuple, Bug], profile: Profile, arguments: argparse.Namespace, pool: WorkerPool, showing: Showing) -> None:
    """Make each bug's case small, with the signature held; say how often a failure repeats."""
    seconds = profile.shrink_seconds if arguments.shrink_seconds is None else arguments.shrink_seconds
    shrunk: dict[tuple[str, str], int] = {}
    for number, bug in enumerate(bugs.values(), 1):
        where = bug.source.target

        def judged(case: Case, where: Target = where, number: int = number) -> Verdict:
            verdict = pool.judge(case, where)
            showing.say(f"shrinking bug {number} of {len(bugs)}: {verdict.outcome}")
            return verdict

        place = (bug.source.address, where.name)
        shrunk[place] = shrunk.get(place, 0) + 1
        if seconds and shrunk[place] <= MOST_BUGS and bug.verdict.failed and bug.verdict.outcome is not Outcome.TIMEOUT:
            memory = VerdictCache(judged)
            memory.known[bug.case.key] = bug.verdict
            before, first = bug.case, bug.verdict
            bug.first = before
            bug.case, bug.verdict = shrink(
                bug.source, bug.case, bug.verdict, memory, draws=min(profile.draws, 200), seconds=seconds
            )
            if cells(first.details.get("heat")) > max(4, cells(bug.verdict.details.get("heat"))):
                bug.verdict.details["heat_before"] = first.details["heat"]
            if bug.case.key != before.key:
                bug.notes.append(f"shrunk in {memory.asked} launches from: {describe(before)}")
            flaky = rerun(bug.case, where.name, bug.verdict, pool)
            if flaky:
                bug.notes.append(flaky)


def _named(source: CaseSource) -> str:
    """The kernel under test as the table names it: a file without its directory."""
    address = source.launcher or source.address
    place, _, name = address.rpartition(":")
    return f"{Path(place).name}:{name}" if place.endswith(".py") else address


def _near(path: Path) -> Path:
    """The path as it can be typed from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
