"""One round of a watch: a fork of the process that looks at the files, with its own worker pool.

Before the save it makes its workers ready. After it, it imports the user's files, which nobody else does: one that ends its process
ends this one. It judges the required cases until one fails, reduces that, and tells what it found; where none fails it goes on with
generated cases until it is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

from bitverdict.harness.model.addresses import add_search_path, load, resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, case_from_record
from bitverdict.harness.model.feature_table import isolation
from bitverdict.harness.model.launcher_limits import check_launcher
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.protocols import Isolation, SeedSource
from bitverdict.harness.model.supervision import dies_with
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.session import tables
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.profiles import Profile
from bitverdict.harness.session.resume import Past
from bitverdict.harness.session.selection import Selection
from bitverdict.harness.session.session import Session
from bitverdict.harness.session.watch import Event
from bitverdict.harness.session.watched_files import imported_from, repository_of
from bitverdict.harness.workers.forkserver import ask_the_parents_server, start_early
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool

DRAWS = 40  # generated cases between two lines about them
MAX_DRAWS = 10_000
ENDED_WITHIN = 2.0  # seconds from the end of a round until it is killed


@dataclass(frozen=True)
class WatchTarget:
    """What is judged: `contract` is the address of one, or "" where the kind of `launcher` says; `launcher` may be empty.

    `expression` is that of ``-k``. `reduce_for` is in seconds, as `timeout`.
    """

    contract: str
    launcher: str
    targets: tuple[Target, ...]
    jobs: int
    seed: int = 0
    expression: str | None = None
    timeout: float = 20.0
    reduce_for: float = 10.0
    is_sealed: bool = False

    @property
    def file(self) -> Path | None:
        """The user's file; None where modules are named, or a kernel of ours."""
        place = (self.launcher or self.contract).rpartition(":")[0]
        return Path(place).resolve() if place.endswith(".py") else None

    @property
    def preload_addresses(self) -> list[str]:
        """Contracts that no save changes."""
        return [self.contract] if self.launcher and self.contract and ":" not in self.contract else []

    def secret(self) -> SeedSource | None:
        """What the next draws of a sealed launcher depend on. Each round has its own, which nobody is told: the candidate may keep
        what it saw of the operands of an earlier one. A case that fails has its seeds in its record."""
        return self._isolation().seeds() if self.is_sealed else None

    def _isolation(self) -> Isolation:
        apart = isolation()
        if apart is None:
            raise UsageError("--sealed: this installation has no sealed runs")
        return apart

    def sources(self) -> list[CaseSource]:
        """Its case sources. UsageError where the user's file is none that can be judged."""
        contract, launcher = self.contract, self.launcher
        if self.is_sealed:
            self._isolation().begin(launcher)
        if not contract:
            loaded_object = load(launcher)
            name = launcher.rpartition(":")[2]
            if isinstance(getattr(loaded_object, "__contract__", loaded_object), Contract):
                contract, launcher = launcher, ""
            elif name in kernels_with_a_contract():
                contract = name
            else:
                raise UsageError(
                    f"{launcher}: is a {type(loaded_object).__name__}; name the kernel by whose mathematics it is judged, for "
                    f"example: watch {launcher} matmul; or write a test of it: bitverdict run {launcher} says how"
                )
        if launcher:
            check_launcher(resolve(contract), launcher)
        secret = self.secret()
        sources = [
            CaseSource(contract, target, self.seed, launcher, is_sealed=self.is_sealed, secret=secret) for target in self.targets
        ]
        return Selection(self.expression).select_cases(sources)


class ForkedRound:
    """A round as the process sees it that looks at the files."""

    dying_processes: list[tuple[int, float]] = []  # process, and when it is killed

    def __init__(self, watch_target: WatchTarget, folder: Path) -> None:
        """`folder` is for its journal and what its workers print, and exists."""
        self._reap()
        start_early()  # again, where it was killed
        self._connection, theirs = Pipe()
        parent = os.getpid()
        self._process = os.fork()
        if not self._process:
            self._connection.close()
            _run(theirs, watch_target, folder, parent)
        theirs.close()
        self._over = self._finished = False

    def go(self, first: list[dict]) -> None:
        with contextlib.suppress(OSError):  # it died: `events` says so
            self._connection.send(first)

    def events(self, seconds: float) -> list[Event]:
        events: list[Event] = []
        self._reap()
        if self._over:
            time.sleep(seconds)
            return events
        wait([self._connection], seconds)
        while self._connection.poll(0):
            try:
                events.append(self._connection.recv())
                self._finished |= events[-1]["event"] in ("drawn", "refused")
            except (EOFError, OSError):
                self._over = True
                events += [] if self._finished else [{"event": "ended", "how": self._how()}]
                break
        return events

    def end(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self._process, signal.SIGINT)  # as Ctrl-C ends a run: with its workers
            self.dying_processes.append((self._process, time.monotonic() + ENDED_WITHIN))
        self._connection.close()
        self._reap()

    def _how(self) -> str:
        """How it ended."""
        try:
            status = os.waitpid(self._process, 0)[1]
        except ChildProcessError:
            return "its process ended"
        code = os.waitstatus_to_exitcode(status)
        return f"its process ended by {signal.Signals(-code).name}" if code < 0 else f"its process left with exit status {code}"

    @classmethod
    def _reap(cls) -> None:
        """See ended rounds out; kill those that do not end."""
        for process, until in list(cls.dying_processes):
            with contextlib.suppress(ChildProcessError):
                if not os.waitpid(process, os.WNOHANG)[0]:
                    if time.monotonic() > until:
                        os.kill(process, signal.SIGKILL)
                    continue
            cls.dying_processes.remove((process, until))


def _run(connection: Connection, watch_target: WatchTarget, folder: Path, parent: int) -> NoReturn:
    """The process of a round."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # by which it is ended
        dies_with(parent)
        ask_the_parents_server()
        _round(connection, watch_target, folder)
        status = 0
    except (KeyboardInterrupt, BrokenPipeError, EOFError):
        status = 0
    except Exception as error:
        with contextlib.suppress(OSError):
            connection.send({"event": "refused", "why": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})
    finally:
        os._exit(status)


def _round(connection: Connection, watch_target: WatchTarget, folder: Path) -> None:
    journal = Journal(folder / f"{os.getpid()}.jsonl")
    for address in watch_target.preload_addresses:
        resolve(address)
    with WorkerPool(jobs=watch_target.jobs, timeout=watch_target.timeout, journal=journal) as pool:
        pool.prepare(watch_target.targets, watch_target.preload_addresses)
        first = connection.recv()
        _judge(pool, watch_target, first, connection.send)


def _judge(pool: WorkerPool, watch_target: WatchTarget, first_records: list[dict], tell: Callable[[Event], None]) -> None:
    file = watch_target.file
    if file is not None:
        add_search_path([str(file.parent)])
    try:
        sources = watch_target.sources()
    except UsageError as error:
        tell({"event": "files", "files": _files(file, error)})
        tell({"event": "refused", "why": str(error)})
        return
    sources = [replace(source, before=_cases(source, first_records)) for source in sources]
    profile = Profile("watch", draws=0, seconds=None, node_seconds=None, shrink_seconds=watch_target.reduce_for)
    reporter = VerdictReporter(tell)
    session = Session(pool, profile, observers=[reporter], until_failure=True)
    tell({"event": "files", "files": _files(file)})
    session.run(sources)
    if not _report_session(session, reporter, tell):
        return
    past, seed = Past(), watch_target.seed
    while reporter.number < MAX_DRAWS:
        seed += 1
        secret = watch_target.secret()
        drawn = [GeneratedCases(**vars(source) | {"seed": seed, "before": (), "secret": secret}) for source in sources]
        session = Session(pool, replace(profile, draws=DRAWS), past=past, observers=[reporter], until_failure=True)
        session.run(drawn)
        if not _report_session(session, reporter, tell, "generated"):
            return


def _report_session(session: Session, reporter: VerdictReporter, tell: Callable[[Event], None], kind: str = "required") -> bool:
    """Tell what a session came to; whether to go on."""
    if session.tally.is_cancelled:
        raise KeyboardInterrupt
    bugs = list(session.bugs.values())
    for bug in bugs:
        case = bug.case.to_json() if bug.verdict.failed else None
        tell({"event": "report", "report": bug.report(directory=Path.cwd()), "case": case})
    why = [] if bugs else tables.not_run_lines(session.tally)
    if not reporter.number:
        tell({"event": "refused", "why": "; ".join(why[:3]) or "its requires takes no case; fix the attribute"})
        return False
    tell({"event": "judged", "kind": kind, "cases": reporter.number, "failed": len(bugs), "why": why[:3]})
    if bugs or not session.tally.ran:
        tell({"event": "drawn", "cases": reporter.number})
        return False
    return True


class VerdictReporter(Observer):
    """Tells of each verdict as it is counted."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self.tell, self.of, self.number = tell, 0, 0

    def expect(self, more: int) -> None:
        self.of = self.of or more  # of the required cases: the others are without end

    def on_count(self, case: Case, name: str, target: str, classes: dict[str, str | int], verdict: Verdict) -> None:
        if verdict.outcome == "cancelled":
            return
        self.number += 1
        self.tell(
            {
                "event": "verdict",
                "number": self.number,
                "of": self.of,
                "name": name,
                "target": target,
                "case": case.to_json(),
                "line": describe(case),
                "decision": str(verdict.decision),
                "outcome": str(verdict.outcome),
                "message": verdict.message.partition("\n")[0],
                "location": verdict.location,
            }
        )


@dataclass(frozen=True)
class GeneratedCases(CaseSource):
    """The generated cases of a case source alone."""

    def required(self, *, full_size: bool = False) -> list[Case]:
        return []


def _cases(source: CaseSource, records: Sequence[dict]) -> tuple[Case, ...]:
    """The cases of `records` that are of this source; those that it is not asked any more are left out."""
    cases = []
    for record in records:
        with contextlib.suppress(Exception):  # its contract was edited
            case = replace(case_from_record(source.contract, record), contract=source.address, launcher=source.launcher)
            if source.prepare(case) is not None:
                cases.append(case)
    return tuple(cases)


def _files(file: Path | None, error: Any = None) -> list[str]:
    """The files that are looked at from here on: what was imported from the repository, and where an import failed."""
    if file is None:
        return []
    repository = repository_of(file)
    paths = {file} | imported_from(repository)
    cause = error.__cause__ or error.__context__ if error is not None else None
    while cause is not None:
        if isinstance(cause, SyntaxError) and cause.filename:
            paths.add(Path(cause.filename).resolve())
        trace = cause.__traceback__
        while trace is not None:
            path = Path(trace.tb_frame.f_code.co_filename)
            if path.is_absolute() and path.is_relative_to(repository) and path.is_file():
                paths.add(path.resolve())
            trace = trace.tb_next
        cause = cause.__cause__ or cause.__context__
    return sorted(map(str, paths))
