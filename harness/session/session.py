"""Many cases: a session chooses them, has them judged, counts the verdicts, reduces and stores what failed, and tells observers.

Command line and pytest drive the same session. `Session.run` judges several case sources at once, over all places of a worker
pool, and goes on with a run that was cut. `Session.first_failure` judges one case source in its order, as a test does, until a case
fails. What counts, what is a bug, how it is reduced and what is stored is one policy; what it comes to is `Tally.status`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Protocol

from bitverdict.harness.judge.machine_faults import MachineFault
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import BodyError, UsageError
from bitverdict.harness.model.verdict import PROCESSOR, Decision, Outcome, Verdict
from bitverdict.harness.session import reproducers
from bitverdict.harness.session.bugs import SHRUNK, Bug
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.case_source import CaseSource, WalkEnded, in_turns, walk
from bitverdict.harness.session.deadline import Clock, Deadlines, NodeDeadline
from bitverdict.harness.session.first_launches import first_launch, with_traits
from bitverdict.harness.session.observer import Observer
from bitverdict.harness.session.profiles import Profile
from bitverdict.harness.session.replay import Judges, rerun, with_error_budget
from bitverdict.harness.session.resume import Past
from bitverdict.harness.session.shard import WHOLE_RUN, Shard
from bitverdict.harness.session.shrink import KernelFailed, VerdictCache, failure_class, shrink
from bitverdict.harness.session.tally import Tally
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.stopping import Stopping

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase

MOST_BUGS = 4  # reduced per contract and target; the others are stored as they came
MAX_REDRAWS = 200  # draws that reducing walks again where it launches each of them


class Pool(Judges, Protocol):
    """What judges many: `bitverdict.harness.workers.pool.WorkerPool`, or a test's own that starts no process."""

    journal: Journal

    def judge_all(
        self, work: Iterable[tuple[Case, Target]], stopping: Stopping | None = None, /
    ) -> Iterator[tuple[Case, Target, Verdict]]:
        """Verdicts as they come, in any order; it draws from `work` as it has room."""

    def interruptible(self) -> AbstractContextManager[None]: ...


class Session:
    """One run of cases, and what it came to so far: `tally` and `bugs`.

    `max_cases` bounds the cases of each case source. `past` is what an earlier part of the run came to, `clock` decides when the
    time of `profile` is over. `until_failure`: no case is begun once one has failed. `ahead` is told cases as they are dealt, in
    their order, before the first of them is judged. `shard` is the share of the cases that `run` judges.
    """

    def __init__(
        self,
        pool: Pool,
        profile: Profile,
        *,
        max_cases: int | None = None,
        past: Past | None = None,
        observers: Sequence[Observer] = (),
        clock: Clock = time.monotonic,
        until_failure: bool = False,
        expect_cases: Callable[[Sequence[tuple[Case, Target]]], object] = len,
        shard: Shard = WHOLE_RUN,
    ) -> None:
        self.shard = shard
        self.pool, self.profile, self.max_cases = pool, profile, max_cases
        self.past = past if past is not None else Past()
        self.observers, self.clock, self.ahead = observers, clock, expect_cases
        self.tally, self.bugs = Tally(), dict[tuple, Bug]()
        self._stopping = Stopping(at_failure=until_failure)
        self._sources: dict[tuple[str, str], CaseSource] = {}  # by address and target
        self._contracts: dict[str, Contract] = {}
        self._places: dict[tuple[str, str], int] = {}  # (target, case's key) -> its place in the order dealt
        self._arrived: dict[int, tuple[Case, Target, Verdict]] = {}  # place -> what is not counted yet
        self._known: dict[tuple[str, str], VerdictCache] = {}  # of the sources that are judged in their order

    # --- the whole run

    def run(self, sources: Sequence[CaseSource]) -> None:
        """Judge the cases of `sources`, reduce what failed, and store it.

        Ctrl-C and a fault of the machine end it early: the tally says so, and what was judged before is counted and stored.
        """
        try:
            with self.pool.interruptible(), ExitStack() as watched:
                for observer in self.observers:
                    watched.enter_context(observer)
                self.judge(sources)
                self.reduce()
        except KeyboardInterrupt:
            self.tally.is_cancelled = True
        except MachineFault as fault:
            self.tally.stop_reason = str(fault)
        self.store()

    def judge(self, sources: Sequence[CaseSource]) -> None:
        """Every case dealt comes to one verdict, an earlier one or a new one. They are counted in the order they were dealt in, so
        that neither the number of workers nor a kill changes which case stands for a bug."""
        self._take(sources)
        verdict_count = 0
        try:
            for answer in self.pool.judge_all(self._unjudged_cases(sources), self._stopping):
                self._arrive(*answer)
                while verdict_count in self._arrived:
                    self._count(*self._arrived.pop(verdict_count))
                    verdict_count += 1
        finally:  # those that came before an earlier one did
            for place in sorted(self._arrived):
                self._count(*self._arrived.pop(place))

    def _unjudged_cases(self, sources: Sequence[CaseSource]) -> Iterator[tuple[Case, Target]]:
        """Yield cases without a stored verdict; report stored verdicts directly."""
        for case, target in self.choose(sources):
            if self._stopping.over:
                return
            self._places[target.name, case.key] = len(self._places)
            known = self.past.verdict(target.name, case)
            if known is None:
                yield case, target
            else:
                self._stopping.heard(case.contract, target.name, known)
                self._arrive(case, target, known)

    def _arrive(self, case: Case, target: Target, verdict: Verdict) -> None:
        self._arrived[self._places[target.name, case.key]] = case, target, verdict
        for observer in self.observers:
            observer.on_verdict(self._sources[case.contract, target.name].name, target.name, verdict)

    # --- choose

    def choose(self, sources: Sequence[CaseSource]) -> Iterator[tuple[Case, Target]]:
        """The required cases of all `sources` in turns, whole; then generated ones in turns until their number or the time is
        reached, and however busy the machine is as many of each source as `profile` owes a node. What the time decided is in the
        journal, and is so again in a run that goes on."""
        deadlines = Deadlines(self.profile.seconds, self.past, self.pool.journal, self.clock)
        served_sources, required = self.ask(sources)
        yield from self._dealt(served_sources, required)
        drawn_cases = []
        every = len(served_sources) if self.profile.node_least else 0
        for source, cases in deadlines.until_enough("drawn", zip(served_sources, required, strict=True), least=lambda: every):
            left = self.profile.draws if self.max_cases is None else min(self.profile.draws, self.max_cases - len(cases))
            drawn_cases.append(source.drawn(left) if left > 0 else [])
        order = self._dealt(served_sources[: len(drawn_cases)], drawn_cases)
        again = (
            enumerate(order, 1) if self.past.begun_cases else ()
        )  # of two cases out at once the later may be in the journal alone
        earlier = max((place for place, (case, target) in again if self.past.dealt(target.name, case)), default=0)
        least_count = sum(len(self.shard.share(row[: self.profile.node_least], place)) for place, row in enumerate(drawn_cases))
        limit, spent, dealt = self.profile.node_processor_seconds * len(drawn_cases), self.tally.bucket_seconds, 0
        before = spent[PROCESSOR]
        least = lambda: max(earlier, least_count if spent[PROCESSOR] - before <= limit else 0)
        for dealt, each in enumerate(deadlines.until_enough("enough", order, least=least), 1):  # noqa: B007
            yield each
        long = f"they took {spent[PROCESSOR] - before:.1f} s of the processor, and {limit:g} s are enough"
        self.tally.draw(dealt, least_count, long if dealt < least_count else "")

    def ask(self, sources: Sequence[CaseSource]) -> tuple[list[CaseSource], list[list[Case]]]:
        """Those of `sources` that their targets serve, with the required cases of each. The tally requires this shard's."""
        served_sources = self._with_first_launches([source for source in sources if self._serves(source)])
        for source in served_sources:
            self._limits(source)
        required = [source.required(full_size=self.profile.full_sizes)[: self.max_cases] for source in served_sources]
        for place, (source, cases) in enumerate(zip(served_sources, required, strict=True)):
            self.tally.require(source.name, source.target.name, self.shard.share(cases, place))
        return served_sources, required

    def _limits(self, source: CaseSource) -> None:
        """Count what the launcher of `source` is not asked."""
        self.tally.scope.narrow(source.name, source.limit_notes())
        if (plain := source.plain_cases()) or source.is_sealed:
            strict = source.is_sealed and not source.claims_accepted
            self.tally.completeness.take(source.name, source.target, source.contract, plain, source.required(), strict=strict)

    def _dealt(self, sources: Sequence[CaseSource], cases: Sequence[list[Case]]) -> list[tuple[Case, Target]]:
        """This shard's cases of all sources in turns, each with its target; observers are told how many they are."""
        cases = [self.shard.share(row, place) for place, row in enumerate(cases)]
        for observer in self.observers:
            observer.expect(sum(map(len, cases)))
        dealt = list(in_turns([[(case, source.target) for case in row] for source, row in zip(sources, cases, strict=True)]))
        self.ahead(dealt)
        return dealt

    def _serves(self, source: CaseSource) -> bool:
        """Whether the target has what the kernel requires; where not, it is counted as not run."""
        if unserved := source.unserved_reason:
            self.tally.not_run(source.name, source.target.name, unserved)
        return not unserved

    def _with_first_launches(self, sources: Sequence[CaseSource]) -> list[CaseSource]:
        """`sources` with what the first launch of a user's launcher shows; where its case comes up again its verdict counts."""
        first_launches = {
            (each.address, each.target.name): launch for each in sources if (launch := first_launch(each)) is not None
        }
        out = {(on.name, case.key): (case, on) for case, on in first_launches.values() if self.past.verdict(on.name, case) is None}
        for case, on, verdict in self.pool.judge_all(out.values()):
            self.past.verdicts[on.name, case.key] = verdict
        found = []
        for source in sources:
            launch = first_launches.get((source.address, source.target.name))
            found.append(with_traits(source, self.past.verdict(launch[1].name, launch[0]) if launch is not None else None))
        return found

    # --- one case source in its order

    def first_failure(
        self, source: CaseSource, *, share: int = 0, shares: int = 1, database: ExampleDatabase | None = None
    ) -> Bug | None:
        """Judge the cases of `source` one after the other, until one fails: the bug, or None where none does.

        First what `database` keeps of an earlier run and fails still, then the required cases, then generated ones for the time
        that `profile` has for a node. `share` of `shares` takes that part of the required cases and of the number of the others.
        """
        self._take([source])
        if not self._serves(source):
            return None
        cache = self._known[source.address, source.target.name] = VerdictCache(lambda case: self._judge_case(source, case))
        source = self._with_first_launches([source])[0]
        self._limits(source)
        required = source.required(full_size=self.profile.full_sizes)[share::shares]
        self.tally.require(source.name, source.target.name, required)

        def visit(case: Case) -> None:
            if cache(case).failed:
                raise failure_class(cache(case).signature)

        draws = len(range(share, self.profile.draws, shares))
        parts = (
            shares if source.rotation is None else shares * source.rotation.turn_count
        )  # which deal what is asked of a node together
        least = min(len(range(share, self.profile.node_least, parts)), draws)
        deadline = NodeDeadline(self.profile.node_seconds, least, self.profile.node_processor_seconds, self.clock)

        def visit_in_time(case: Case) -> None:
            """Past the time only what is judged already: Hypothesis runs a case that failed once more, and it must fail again. The
            first other case ends the draws."""
            if case.key not in cache.known:
                if deadline.enough():
                    raise WalkEnded("the time of the node is over")
                deadline.count(cache(case).seconds.get(PROCESSOR, 0.0))
            visit(case)

        try:
            if database is not None:
                walk(source, 1, visit, phases=("reuse",), database=database)
            for case in required:
                visit(case)
            if draws:
                walk(source, draws, visit_in_time, database=database)
            self.tally.draw(deadline.drawn, deadline.least, deadline.shortfall())
        except KernelFailed as failed:
            return self.bugs[source.address, source.target.name, failed.signature]
        return None

    def _judge_case(self, source: CaseSource, case: Case) -> Verdict:
        known = self.past.verdict(source.target.name, case)
        verdict = known if known is not None else self.pool.judge(case, source.target)
        self._count(case, source.target, verdict)
        return verdict

    # --- count

    def _take(self, sources: Sequence[CaseSource]) -> None:
        self._sources |= {(source.address, source.target.name): source for source in sources}
        self._contracts |= {source.address: source.contract for source in sources}

    def _count(self, case: Case, target: Target, verdict: Verdict) -> None:
        if verdict.decision is Decision.ERROR and verdict.details.get("raised") == BodyError.__name__:
            raise UsageError(verdict.message)
        source, contract = self._sources[case.contract, target.name], self._contracts[case.contract]
        classes = contract.coverage(case, target)
        self.tally.count(case, source.name, target.name, classes, verdict)
        for observer in self.observers:
            observer.on_count(case, source.name, target.name, classes, verdict)
        if verdict.failed or verdict.decision is Decision.ERROR:
            bug = Bug(source, case, verdict)
            if bug.key in self.bugs:
                self.bugs[bug.key].case_count += 1
            self.bugs.setdefault(bug.key, bug).add_verdict(verdict, case)

    # --- reduce and store

    def reduce(self) -> None:
        """Make each bug's case small, with the signature held, and say how often a failure repeats.

        An error is no bug of the kernel. Of a timeout each look costs its time again.
        """
        if self.bugs:
            self.pool.journal.note("reducing")
        reduced = Counter[tuple[str, str]]()
        for number, bug in enumerate(self.bugs.values(), 1):
            place = (bug.source.address, bug.source.target.name)
            reduced[place] += 1
            if not self.profile.shrink_seconds or reduced[place] > MOST_BUGS:
                continue
            if bug.verdict.failed and bug.verdict.outcome is not Outcome.TIMEOUT:
                self._reduce(bug, f"bug {number} of {len(self.bugs)}")

    def _reduce(self, bug: Bug, bug_name: str) -> None:
        target, first_verdict = bug.source.target, bug.verdict

        def judged(case: Case) -> Verdict:
            verdict = self.pool.judge(case, target)
            for observer in self.observers:
                observer.say(f"shrinking {bug_name}: {verdict.outcome}")
            return verdict

        cache, known = VerdictCache(judged), self._known.get((bug.source.address, target.name))
        cache.known = {bug.case.key: first_verdict} if known is None else dict(known.known)
        drawn = bug.source.draws(self.profile.draws)
        draws = min(drawn, MAX_REDRAWS) if known is None else self.profile.draws
        seconds = self.profile.shrink_seconds
        bug.first_case = bug.case
        bug.case, bug.verdict = shrink(bug.source, bug.case, first_verdict, cache, draws=draws, seconds=seconds, clock=self.clock)
        for case, verdict in cache.known.items():
            if case != bug.first_case.key and verdict.signature == first_verdict.signature:
                bug.add_verdict(verdict)
        if bug.case.key != bug.first_case.key:
            bug.notes.append(f"{SHRUNK} {cache.asked} launches from: {describe(bug.first_case)}")
        if flaky := rerun(bug.case, target, bug.verdict, self.pool):
            bug.notes.append(flaky)
        bug.verdict = with_error_budget(bug.case, target, bug.verdict, self.pool)

    def store(self) -> None:
        """Tell each bug its cause and write its reproducer; one that cannot be written stops the run, and says why in its bug."""
        for bug in self.bugs.values():
            source = bug.source
            bug.explain()
            try:
                is_complete = not self.tally.is_cancelled and not self.tally.stop_reason
                reproducer = reproducers.reproducer_of(
                    bug.case,
                    source.target.name,
                    bug.verdict,
                    model=source.target.model,
                    first_case=bug.first_case,
                    secret=source.secret.describe(revealed=is_complete) if source.secret is not None else None,
                )
                path = reproducers.write(reproducer)
                for observer in self.observers:
                    observer.on_reproducer(path, source.address, source.target.name)
                bug.path = path
                self.pool.journal.note("stored", **bug.to_json())
            except MachineFault as fault:
                self.tally.stop_reason = self.tally.stop_reason or str(fault)
                bug.not_stored = str(fault)
