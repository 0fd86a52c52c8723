"""Which cases a run judges: the required cases of each contract first, then draws by Hypothesis from a seed of the run's own.

Draws depend on (base seed, contract, emulated target or architecture of the GPU) alone, so that a run can be repeated, and so that
shrinking walks the same way again with the verdicts already known. In a sealed run a secret stands in the place of the base seed
(`bitverdict.harness.model.protocols.SeedSource`).
"""

from __future__ import annotations

import hashlib
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitverdict.harness.judge.first_launch import LauncherTraits
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.feature_table import checks
from bitverdict.harness.model.launcher_limits import UNLIMITED_LAUNCHER, is_far, narrowed_by, read_claims
from bitverdict.harness.model.log_lines import case_count
from bitverdict.harness.model.protocols import SeedSource
from bitverdict.harness.model.targets import Target
from bitverdict.harness.session.draw_preference import draw_count, prefer_draws
from bitverdict.harness.session.rotation import Rotation, facts_of

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase


SPECIALISED_MULTIPLE = 16  # Triton compiles a size that is a multiple of it anew
DRAWS_PER_CASE = 10  # draws for each generated case of a run that keeps some alone
BY_ITSELF = "each case by itself"
"""A backend of Hypothesis: its own numbers under another name, so that each case is drawn anew. Under its own name it runs a case
some five times, each with one number changed, and begins with cases of which only the first numbers are drawn."""


@dataclass(frozen=True)
class CaseSource:
    """The cases of one contract on one target; `launcher` is a user's, judged by this contract's mathematics."""

    address: str
    target: Target
    seed: int = 0
    launcher: str = ""
    tuning: str = ""  # what autotuners take in every case; "": in each case another configuration, and the tuning runs in one
    real_values: bool = True  # whether launches may compute without rounding too
    certificate: bool = False  # whether cases say which faults they would have exposed
    recover_order: bool = False  # whether words are expected by the order of sums that launches show
    ptx: bool = False  # whether the PTX of launches is executed too
    promises: str = ""  # of the launcher (`Case.promises`)
    launcher_traits: LauncherTraits | None = None  # what a first launch showed of the launcher
    search_path: tuple[str, ...] = ()  # folders in which the launcher's file finds its modules
    only: tuple[Case, ...] | None = None  # these cases, and no others
    before: tuple[Case, ...] = ()  # judged before all others, and always
    keeps: Callable[[Case], bool] | None = None  # whether a case is asked for; None: all are
    selection_reason: str = ""  # what chose them, for a person
    is_sealed: bool = False  # a process of its own imports the launcher; what is called twice is called a third time
    claims_accepted: bool = False  # what the launcher says of itself was said, or accepted, by the user
    secret: SeedSource | None = None  # what the draws and all seeds depend on, in the place of `seed`
    rotation: Rotation | None = None  # which part of the required cases is judged; None: all

    @property
    def contract(self) -> Contract:
        return resolve(self.address)

    @property
    def name(self) -> str:
        """The kernel under test as tables name it: a file without its directory."""
        address = self.launcher or self.address
        place, _, name = address.rpartition(":")
        return f"{Path(place).name}:{name}" if place.endswith(".py") else address

    @property
    def is_a_users(self) -> bool:
        """Whether nothing is known of the launcher before its first launch."""
        return bool(self.launcher) or self.contract.any_launcher

    @property
    def missing_features(self) -> list[str]:
        """Features the kernel requires and the target lacks; a user's launcher requires none that we know."""
        return [] if self.launcher else sorted(map(str, self.contract.lacking(self.target)))

    @property
    def unserved_reason(self) -> str:
        """Why the target cannot serve the kernel; empty where it can."""
        return f"{self.target.name} lacks {', '.join(self.missing_features)}" if self.missing_features else ""

    @property
    def draw_key(self) -> str:
        """What draws depend on: the GPUs of one architecture draw alike, whichever of them a worker leased."""
        return self.target.name if self.target.emulated else f"cuda:{self.target.arch}"

    def required(self, *, full_size: bool = False) -> list[Case]:
        """The cases that every run judges. Of a user's launcher also those at the edges of its own tile, as far as it is known.

        Of its shape classes the first case each is called twice or, sealed, three times, and each configuration of its autotuners
        has a case. `whole`: the cases at the tutorials' own sizes before them, so that short ones fill the time beside the last
        long one.
        """
        if self.only is not None:
            return list(self.only)
        kept = [case for each in self._required_cases(whole=full_size) if self.is_kept(case := self.apply_seed(each))]
        if self.rotation is not None:
            kept = self.rotation.keep_cases(kept, facts_of(self.contract, self.target))
        return list({case.key: case for case in (*self.before, *kept)}.values())

    def rotation_note(self) -> str:
        """How many required cases `rotation` leaves to other turns, as a sentence; empty where none."""
        if self.rotation is None:
            return ""
        every = len(replace(self, rotation=None).required())
        left = every - len(self.required())
        turn = self.rotation.turn % self.rotation.turn_count
        return f"{left} of {every} required cases belong to another turn than {turn} of {self.rotation.turn_count}" if left else ""

    def apply_seed(self, case: Case) -> Case:
        """`case` with seeds that the secret gives it, where there is one."""
        return case if self.secret is None else self.secret.drawn(case, lambda made: self.contract.decides(made, self.target))

    def is_kept(self, case: Case) -> bool:
        return self.keeps is None or self.keeps(case)

    def _required_cases(self, *, whole: bool) -> list[Case]:
        first = self.contract.whole(self.target) if whole else []
        cases = self._distinct_cases([*first, *self.contract.required(self.target)], strengthened=True)
        if not self.launcher:
            return self._spread_configurations(self._with_third_calls(cases))
        if self.launcher_traits is not None and self.launcher_traits.tile is not None:
            edges = self._distinct_cases(self.contract.around(self.launcher_traits.tile, self.target))
            cases = list({case.key: case for case in (*cases, *edges)}.values())
        return self._spread_configurations(self._with_third_calls(_with_second_calls(cases)))

    def _with_third_calls(self, cases: list[Case]) -> list[Case]:
        """`cases` with the calls of a sealed run: of those called twice the first with sizes of each kind is called three times."""
        twice = [(_kind_of_sizes(case), case.key) for case in cases if self.is_sealed and case.calls == 2]
        first = dict(reversed(twice))  # by kind
        return [replace(case, calls=3) if case.calls == 2 and case.key in first.values() else case for case in cases]

    def first_case(self) -> Case | None:
        """The case whose launch shows what the launcher is: the first one required."""
        cases = replace(self, launcher_traits=None).required() if self.is_a_users and self.only is None else []
        return cases[0] if cases else None

    def drawn(self, count: int) -> list[Case]:
        """Up to `count` distinct cases that the required cases do not have, of a few more draws those that may tell most apart."""
        if self.only is not None:
            return []
        required = self.required()
        required_keys = {case.key for case in required}
        drawn: list[Case] = []

        def take(case: Case) -> None:
            if self.keeps is None:
                drawn.append(case)
            elif case.key not in required_keys and case.key not in {other.key for other in drawn}:
                drawn.append(case)
                if len(drawn) >= count:
                    raise WalkEnded(f"{count} cases are kept")

        walk(self, self.draws(count), take)
        drawn = prefer_draws(drawn, count, required, lambda case: self.contract.expected_outcome(case, self.target).result)
        return [
            case
            for case in self._spread_configurations(self._distinct_cases(drawn, prepared=True), runs=False)
            if case.key not in required_keys
        ]

    def draws(self, count: int) -> int:
        """How many draws are made for `count` generated cases."""
        return count if self.keeps is not None else draw_count(count)

    def _spread_configurations(self, cases: list[Case], *, runs: bool = True) -> list[Case]:
        """`cases` with what autotuners take: each configuration in turn, over again from the first case where there are more of
        them than cases; with `runs` one case once more, with its tuning runs."""
        if not self.is_a_users or not cases:
            return cases
        if self.tuning:
            return [replace(case, tuning=self.tuning) for case in cases]
        configurations = self.launcher_traits.configurations if self.launcher_traits is not None else 0
        if configurations < 2:
            return cases
        more = range(len(cases), configurations if runs else 0)
        asked = [*enumerate(cases), *((place, replace(cases[place % len(cases)], calls=1)) for place in more)]
        tuned = [replace(case, tuning=f"config {place}") for place, case in asked]
        first = cases[min(1, len(cases) - 1)] if self.launcher else cases[0]  # the second of a described kernel is its smallest
        return [*tuned, replace(first, calls=1, tuning="runs")] if runs else tuned

    def plain_cases(self) -> list[Case]:
        """The required cases of a launcher that says nothing of itself; none where the cases are chosen by name."""
        if not self.launcher or self.only is not None:
            return []
        source = replace(
            self, launcher=UNLIMITED_LAUNCHER, tuning="first", launcher_traits=None, before=(), secret=None, is_sealed=False
        )
        return source.required()

    def limit_notes(self) -> list[str]:
        """What the launcher's `claims` and `requires` leave out, a sentence each."""
        notes = (
            [f"chosen for {self.selection_reason}: {case_count(len(self.required()))} that every run judges"]
            if self.selection_reason
            else []
        )
        notes += self.contract.left_out(self.target)
        if not self.launcher:
            return notes
        more, waived = self.contract.claims, self.contract.waives
        claims = read_claims(self.launcher, (*more, *waived))
        left = [word for word in more if word not in claims]
        notes += [f"not claimed, so not tested: {', '.join(left)}"] if left else []
        notes += [f"claimed {word}, so not tested: {asked}" for word, asked in waived.items() if word in claims]
        counts = narrowed_by(self.launcher, lambda: self._distinct_cases(self.contract.required(self.target)))
        for what, how in (("moved", "moved to other sizes"), ("left out", "left out")):
            if counts[what]:
                notes.append(f"requires: {counts[what]} of {counts['asked']} required cases {how}")
        return notes

    def prepare(self, case: Case) -> Case | None:
        """`case` under this case source's address and launcher; None where a user's launcher is not asked it, or expects
        nothing."""
        if case.contract != self.address:
            case = replace(case, contract=self.address)
        if not self.real_values:
            case = replace(case, real_values=False)
        if self.certificate:
            case = replace(case, certificate=True)
        if self.recover_order:
            case = replace(case, recover_order=True)
        if self.ptx:
            case = replace(case, ptx=True)
        if self.is_sealed:
            case = replace(case, sealed=True)
        if self.promises:
            case = replace(case, promises=self.promises)
        if not self.launcher:
            return case
        case = replace(case, search_path=self.search_path)
        adapt: Callable[[Case, str], Case | None] | None = getattr(self.contract, "for_launcher", None)
        asked = adapt(case, self.launcher) if adapt else replace(case, launcher=self.launcher, config=None)
        expected_outcome = self.contract.expected_outcome(asked, self.target) if asked is not None else None
        return asked if expected_outcome is not None and (expected_outcome.result or expected_outcome.any_refusal) else None

    def strengthen(self, case: Case | None) -> Case | None:
        """`case`, fed by another seed where it would expose no fault by chance; None for None."""
        return self._choose_seed(case) if case is not None else None

    def _choose_seed(self, case: Case) -> Case:
        for check in checks():
            case = check.choose(case, self.contract, self.target)
        return case

    def _distinct_cases(self, cases: list[Case], *, prepared: bool = False, strengthened: bool = False) -> list[Case]:
        ready = cases if prepared else [done for case in cases if (done := self.prepare(case)) is not None]
        if strengthened:
            ready = [self._choose_seed(case) for case in ready]
        return list({case.key: case for case in ready}.values())


def _with_second_calls(cases: list[Case]) -> list[Case]:
    """`cases`, the first of each shape class with a second call: by its shape a launcher may keep buffers, descriptors, results."""
    visited_kinds: set[tuple] = set()
    called_cases = []
    for case in cases:
        kind = (_kind_of_sizes(case), *(value for value in vars(case.problem).values() if isinstance(value, str)))
        far = is_far(case.problem)  # two of them would take twice the memory
        plain = kind in visited_kinds or far or 0 in _sizes(case)[:3] or getattr(case.problem, "k_of_b", None) is not None
        called_cases.append(case if plain else replace(case, calls=2))
        visited_kinds |= set() if plain else {kind}
    return called_cases


def _kind_of_sizes(case: Case) -> str:
    """In which way Triton compiles for them."""
    sizes = _sizes(case)
    return "one" if 1 in sizes else "whole" if all(size % SPECIALISED_MULTIPLE == 0 for size in sizes) else "ragged"


def _sizes(case: Case) -> list[int]:
    return [value for value in vars(case.problem).values() if type(value) is int]


class WalkEnded(unittest.SkipTest):
    """Raised by what `walk` calls: no further case is drawn. Hypothesis passes a SkipTest on at once, as no failure of a case."""


def walk(
    source: CaseSource,
    count: int,
    visit: Callable[[Case], None],
    *,
    phases: Sequence[str] = ("generate",),
    database: ExampleDatabase | None = None,
) -> None:
    """Call `visit` with up to `count` cases in the order the case source's seed gives; what `visit` raises ends the walk,
    a `WalkEnded` silently.

    `phases` are Hypothesis's: "reuse" visits what `database` keeps of this case source instead, with or without "generate" after
    it; "shrink" has Hypothesis shrink what was raised, and raise the smallest. A case that raises is saved in `database`, and one
    that no longer does is dropped from it; the case that ends the walk is not saved."""
    import hypothesis
    from hypothesis import HealthCheck, Phase, Verbosity
    from hypothesis.control import current_build_context
    from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS

    from bitverdict.harness.session.saved_failures import SavedFailures

    AVAILABLE_PROVIDERS[BY_ITSELF] = AVAILABLE_PROVIDERS["hypothesis"]
    base = source.seed if source.secret is None else source.secret.number("draws")
    saved_failures = SavedFailures(database) if database is not None else None
    settings = hypothesis.settings(
        max_examples=count if source.keeps is None else DRAWS_PER_CASE * count,
        database=saved_failures,
        deadline=None,
        derandomize=False,
        backend=BY_ITSELF,
        phases=[Phase[name] for name in phases],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
    )

    @settings  # after the seed, which sets the database of what it decorates to none
    @hypothesis.seed(derived_seed(base, source.address, source.draw_key))
    @hypothesis.given(case=source.contract.cases(source.target))
    def visit_case(case: Case) -> None:
        prepared = source.prepare(case)
        asked = source.strengthen(prepared)
        ready = source.apply_seed(asked) if asked is not None else None
        if ready is not None and source.is_kept(ready):
            if asked == prepared:  # or its choices draw it with another seed
                _choices[source.target.name, ready.key] = current_build_context().data.choices
            try:
                visit(ready)
            except WalkEnded:
                if saved_failures is not None:
                    saved_failures.closed = True
                raise

    # Hypothesis would know all case sources by this one function; and without a key of ours it keeps nothing where a seed is given.
    key = hashlib.sha256("\0".join([source.address, source.draw_key, source.launcher]).encode()).digest()
    visit_case._hypothesis_internal_database_key = key  # type: ignore[attr-defined]
    with suppress(unittest.SkipTest), _no_constants_of_modules():  # also Hypothesis's word for a database that keeps nothing
        visit_case()


@contextmanager
def _no_constants_of_modules() -> Iterator[None]:
    """Hypothesis draws numbers that stand in the source of any loaded module outside site-packages (since 6.131). Draws would
    differ between processes that loaded different modules, and after an edit of any file; there is no setting against it."""
    from hypothesis.internal.conjecture import providers

    before = providers._get_local_constants, providers.CONSTANTS_CACHE
    providers._get_local_constants = type(providers.GLOBAL_CONSTANTS)  # of no arguments: no constants
    providers.CONSTANTS_CACHE = type(providers.CONSTANTS_CACHE)(1024)
    try:
        yield
    finally:
        providers._get_local_constants, providers.CONSTANTS_CACHE = before


_choices: dict[tuple[str, str], Any] = {}  # what Hypothesis drew in this process, by target and case: a row of small numbers each


def reproduction(case: Case, target: str) -> dict[str, str]:
    """How Hypothesis draws `case` again: `version` and `blob` for its `reproduce_failure`, over the contract's strategy.

    `absent` says why there is none: a case of required cases, one made smaller field by field, or one that was fed by another seed
    to tell something apart was never drawn.
    """
    import hypothesis
    from hypothesis.core import encode_failure

    choices = _choices.get((target, case.key))
    if choices is None:
        return {"absent": "not drawn by Hypothesis: it is of the required cases, or was given"}
    return {"version": hypothesis.__version__, "blob": encode_failure(choices).decode()}


def derived_seed(base: int, *parts: str) -> int:
    """A 64-bit seed of (base, parts): equal for equal parts, unrelated for others."""
    return int.from_bytes(hashlib.sha256("\0".join([str(base), *parts]).encode()).digest()[:8], "big")


def in_turns(lists: list[list]) -> Iterator:
    """The first of each, then the second of each, and so on."""
    for place in range(max(map(len, lists), default=0)):
        for items in lists:
            if place < len(items):
                yield items[place]
