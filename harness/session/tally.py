"""What a run counts and shows: the table of verdicts with what each rests on, the required cases, the exit status.

Everything here reads verdicts and decides nothing but the exit status: 0 all right, 1 fail, 3 an error or a case that is
inconclusive, 5 nothing ran (2, usage, is the command line's). Command line and pytest take it from `Tally.status`. No number of
decided cases outweighs one that is not. A case that exposes no fault is the exception: it asks what others ask too, and is open
only where no other case of its contract on its target compared words. So is, where the run accepts them, a case that ends in a
fault of the compiler which stands in the record of its release (`Release.hazards`): the last line counts these.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.certificate import TELLS_NOTHING
from bitverdict.harness.model.log_lines import case_count
from bitverdict.harness.model.verdict import BESIDE_BUCKETS, PTX_LAUNCHES, Decision, Outcome, Verdict
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.session.completeness import Completeness
from bitverdict.harness.session.discrimination import Discrimination
from bitverdict.harness.session.scope import Scope

OWN_BUCKETS = ("transfer", "harness", "start")  # neither the kernel's nor the reference's; start: a worker's context
PASS, FAIL, USAGE, INCONCLUSIVE, NOTHING_RAN = 0, 1, 2, 3, 5
DEFINITE_DECISIONS = (Decision.PASS, Decision.FAIL)
MOST_LISTED = 2000  # cases of a page
RAN = (*DEFINITE_DECISIONS, Decision.INCONCLUSIVE, Decision.ERROR)


@dataclass
class Row:
    """One line of the table: a contract on a target, one dtype."""

    contract: str
    target: str
    dtype: str
    decisions: Counter = field(default_factory=Counter)
    outcomes: Counter = field(default_factory=Counter)
    basis: Counter = field(default_factory=Counter)
    words: int = 0
    bound_used: float | None = None
    seconds: float = 0.0
    messages: set[str] = field(default_factory=set)  # of cases that did not run

    @property
    def cases(self) -> int:
        return self.decisions.total()

    @property
    def facts(self) -> dict:
        """What every report has of it, as JSON."""
        return {
            "contract": self.contract,
            "target": self.target,
            "dtype": self.dtype,
            "cases": self.cases,
            "words": self.words,
            "bound_used": self.bound_used,
        }

    @property
    def did_not_run(self) -> bool:
        return self.decisions[Decision.NOT_RUN] == self.cases


@dataclass
class Tally:
    """Everything counted in one run."""

    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    required: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # keys of required cases not yet judged
    required_counts: dict[tuple[str, str], int] = field(default_factory=dict)  # how many are required
    decided_counts: Counter = field(default_factory=Counter)  # of them, those that were decided
    open_required: Counter = field(default_factory=Counter)  # of them, those that were judged and are inconclusive
    quiet: Counter = field(default_factory=Counter)  # (contract, target) -> cases that expose no fault
    known_faults: Counter = field(default_factory=Counter)  # (contract, target) -> cases that end in a fault that is accepted
    with_words: Counter = field(default_factory=Counter)  # (contract, target) -> cases that failed, or passed by words
    classes: dict[str, Counter] = field(default_factory=dict)  # coverage: dimension -> class -> cases
    bucket_seconds: Counter = field(default_factory=Counter)
    advice: Counter = field(default_factory=Counter)
    ptx: Counter = field(default_factory=Counter)  # of launches as PTX: executed, not executed, words
    inconclusive: Counter = field(default_factory=Counter)  # why, first line -> cases
    inconclusive_examples: dict[str, str] = field(default_factory=dict)  # why -> the first such case, with its contract and target
    cancelled_cases: Counter = field(default_factory=Counter)  # contract, target and why -> cases that a run did not go on to
    cases: list[tuple[str, str, Case, str, str, float]] = field(default_factory=list)  # the first, as a page lists them
    scope: Scope = field(default_factory=Scope)
    completeness: Completeness = field(default_factory=Completeness)
    discrimination: Discrimination = field(default_factory=Discrimination)
    errors: Counter = field(default_factory=Counter)  # message and place of each error -> cases
    drawn: int = 0  # cases that a pytest node or a run drew
    draw_shortfall: str = ""  # why they are fewer than its profile asks for
    accepts_known_faults: bool = False  # of the compiler, which the record of its release has
    is_cancelled: bool = False
    missing_shards: str = ""  # which shards, of a run that is merged of them
    stop_reason: str = ""  # by what, where the machine did not let the run go on
    start_time: float = field(default_factory=time.perf_counter)
    wall: float = 0.0  # seconds from the tally's birth to its last verdict

    def require(self, contract: str, target: str, cases: list[Case]) -> None:
        keys = self.required[contract, target] = {case.key for case in cases}
        self.required_counts[contract, target] = len(keys)

    def draw(self, drawn: int, least: int, shortfall: str) -> None:
        """A pytest node or a run drew so many cases, of the `least` that its profile asks for."""
        self.drawn = drawn
        self.draw_shortfall = f"{drawn} of {least} cases drawn: {shortfall}" if shortfall else ""

    def count(self, case: Case, contract: str, target: str, classes: dict, verdict: Verdict) -> None:
        self.wall = time.perf_counter() - self.start_time
        if verdict.decision is Decision.CANCELLED:
            self.cancelled_cases[f"{contract} on {target}: {verdict.message}"] += 1
            return
        self.scope.count(case, contract, target, verdict)
        self.completeness.count(case, contract, target, verdict)
        self.discrimination.count(contract, target, verdict)
        if len(self.cases) < MOST_LISTED:
            seconds = verdict.seconds.get("total", 0.0)
            self.cases.append((contract, target, case, str(verdict.decision), str(verdict.outcome), seconds))
        dtype = str(classes.get("dtype", ""))
        row = self.rows.setdefault((contract, target, dtype), Row(contract, target, dtype))
        row.decisions[verdict.decision] += 1
        row.outcomes[str(verdict.outcome)] += 1
        row.words += verdict.words
        row.seconds += verdict.seconds.get("total", 0.0)
        if verdict.decision is Decision.NOT_RUN:
            row.messages.add(verdict.message)
        else:
            row.basis[verdict.basis.partition(":")[0]] += 1
        if verdict.bound_used is not None and verdict.decision is Decision.PASS:
            row.bound_used = max(row.bound_used or 0.0, verdict.bound_used)
        for name, spent in verdict.seconds.items():
            self.bucket_seconds[name] += spent
        for dimension, member in classes.items():
            self.classes.setdefault(dimension, Counter())[str(member)] += 1
        self.advice.update(verdict.advice)
        self.ptx.update(dict(zip(("executed", "not executed", "words"), verdict.details.get(PTX_LAUNCHES, ()), strict=False)))
        quiet = verdict.decision is Decision.INCONCLUSIVE and TELLS_NOTHING in verdict.details
        self.quiet[contract, target] += quiet
        is_known = self.accepts_known_faults and verdict.outcome is Outcome.COMPILER_FAULT and "known" in verdict.details
        self.known_faults[contract, target] += is_known
        self.with_words[contract, target] += verdict.failed or (verdict.decision is Decision.PASS and verdict.words > 0)
        left = self.required.get((contract, target), set())
        if case.key in left:
            left.discard(case.key)
            self.decided_counts[contract, target] += verdict.decision in DEFINITE_DECISIONS
            self.open_required[contract, target] += verdict.decision is Decision.INCONCLUSIVE and not (quiet or is_known)
        if verdict.decision is Decision.INCONCLUSIVE:
            self.inconclusive[reason := verdict.message.partition("\n")[0]] += 1
            self.inconclusive_examples.setdefault(reason, f"{contract} on {target}: {describe(case)}")
        if verdict.decision is Decision.ERROR:
            self.errors[verdict.message.partition("\n")[0] + (f" ({verdict.location})" if verdict.location else "")] += 1

    def not_run(self, contract: str, target: str, reason: str) -> None:
        """A whole contract that a target cannot serve: one line, counted as nothing."""
        row = self.rows.setdefault((contract, target, ""), Row(contract, target, ""))
        row.decisions[Decision.NOT_RUN] += 1
        row.messages.add(reason)

    def total(self, decision: Decision) -> int:
        return sum(row.decisions[decision] for row in self.rows.values())

    @property
    def ran(self) -> int:
        return sum(self.total(decision) for decision in RAN)

    def status(self) -> int:
        """The exit status of a run, and of a pytest node: `PASS` passes, `NOTHING_RAN` is a skip, any other fails."""
        if self.total(Decision.FAIL):
            return FAIL
        if (
            not self.ran
            and not self.is_cancelled
            and not self.stop_reason
            and not self.missing_shards
            and not self.completeness.open()
        ):
            return NOTHING_RAN
        return INCONCLUSIVE if self.open() else PASS

    def open(self) -> list[str]:
        """Why the run does not say what it was asked, a sentence each; empty where it does."""
        reasons = [*(["cancelled"] if self.is_cancelled else []), *([self.missing_shards] if self.missing_shards else [])] + (
            [f"stopped: {self.stop_reason}"] if self.stop_reason else []
        )
        if self.errors:
            first = next(iter(self.errors))
            reasons.append(f"{case_count(self.errors.total())} ended in an error, which is no fault of a kernel: {first}")
        if unseen := sum(map(len, self.required.values())):
            reasons.append(f"{unseen} of the required cases {'was' if unseen == 1 else 'were'} not judged")
        for (contract, target), decisions in self.by_place().items():
            inconclusive, ran = decisions[Decision.INCONCLUSIVE], sum(decisions[decision] for decision in RAN)
            quiet, known = self.quiet[contract, target], self.known_faults[contract, target]
            for count, said in ((quiet, "tells anything apart"), (known, "comes through the compiler without a fault")):
                if count and not self.with_words[contract, target]:
                    reasons.append(f"none of {case_count(count)} of {contract} on {target} {said}")
            inconclusive -= quiet + known  # what such a case is asked for, the others are too
            required = self.open_required[contract, target]
            if inconclusive:
                verb = "is" if inconclusive == 1 else "are"
                of_them = f", {required} of them of the required cases" if required else ""
                reasons.append(f"{inconclusive} of {case_count(ran)} of {contract} on {target} {verb} inconclusive{of_them}")
        return reasons + self.completeness.open()

    def by_place(self) -> dict[tuple[str, str], Counter]:
        """(contract, target) -> how many cases came to each decision."""
        found: dict[tuple[str, str], Counter] = {}
        for row in self.rows.values():
            found.setdefault((row.contract, row.target), Counter()).update(row.decisions)
        return found

    def sentence(self) -> str:
        """The last line: what the status says, in words."""
        words = sum(row.words for row in self.rows.values())
        numbers = {decision: self.total(decision) for decision in Decision} | {Decision.CANCELLED: self.cancelled_cases.total()}
        counts = ", ".join(f"{number} {decision}" for decision, number in numbers.items() if number)
        text = f"{case_count(self.ran)} judged, {words:,} output words compared: {counts or 'nothing ran'}"
        return "; ".join(
            filter(None, [text, self.ptx_sentence(), self.accepted_sentence(), self.completeness.sentence(), *self.open()])
        )

    def ptx_sentence(self) -> str:
        """How many launches were executed as PTX too, and how many were not; empty where none was asked for."""
        executed, left_out = self.ptx["executed"], self.ptx["not executed"]
        told = f"{executed:,} launches executed as PTX too, {self.ptx['words']:,} words stored; {left_out:,} not executed so"
        return told if executed + left_out else ""

    def accepted_sentence(self) -> str:
        """How many cases are not judged by faults that are accepted; empty where none is."""
        known = self.known_faults.total()
        told = f"{known} OF THEM NOT JUDGED, by faults that this release of Triton's compiler is known for: docs/releases.md"
        return told if known else ""

    def to_json(self) -> dict:
        rows = [
            {
                **row.facts,
                "decisions": {str(decision): n for decision, n in row.decisions.items()},
                "outcomes": dict(row.outcomes),
                "basis": dict(row.basis),
                "seconds": round(row.seconds, 3),
                "not_run": sorted(row.messages),
            }
            for row in self.rows.values()
        ]
        cover = [
            {"contract": contract, "target": target, "judged": self.decided_counts[contract, target], "not_judged": len(left)}
            for (contract, target), left in self.required.items()
        ]
        return {
            "status": self.status(),
            "sentence": self.sentence(),
            "known_faults": self.known_faults.total(),
            "rows": rows,
            "cover": cover,
            "classes": {name: dict(sorted(counts.items())) for name, counts in self.classes.items()},
            "seconds": {name: round(spent, 3) for name, spent in self.bucket_seconds.items()},
            "wall": round(self.wall, 3),
            "own_share": round(own_share(self.bucket_seconds), 4),
            "advice": dict(self.advice),
            "cancelled": dict(self.cancelled_cases),
            "scope": self.scope.to_json(),
            "completeness": self.completeness.to_json(),
            "told_apart": self.discrimination.to_json(),
        }


def own_share(seconds: Mapping[str, float]) -> float:
    """The share of the harness's own buckets in the sum of all, 0 to 1."""
    spent = {name: value for name, value in seconds.items() if name not in BESIDE_BUCKETS}
    return sum(spent.get(name, 0.0) for name in OWN_BUCKETS) / max(sum(spent.values()), 1e-9)
