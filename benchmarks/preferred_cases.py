"""Whether the generated cases that a run prefers tell more apart than as many that it would have drawn without a choice.

    python -m benchmarks.preferred_cases [--target emulated:sm_90] [--cases N] [--seeds S] STEM ...

Of each base seed a run makes a quarter more draws than it judges (`bitverdict.harness.session.draw_preference`). Each draw's
certificate is computed without a launch. Printed is, of the cases kept and of as many first draws, the share that tells each
subject apart (of a product's constants, of movement, masks, precision), and the share that tells every constant. "at most" is the
share that a choice would have which knows the certificates: all draws that tell the subject.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from benchmarks.campaign import parse, run_script
from bitverdict.harness.checks.certificate.certify import certificate
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.certificate import Kind
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.session.case_source import CaseSource, walk
from bitverdict.harness.session.draw_preference import draw_count, prefer_draws

ALL = "every constant"


def has_words(case: Case, where: Target) -> bool:
    """Whether a result is expected of the case."""
    return resolve(case.contract).expected_outcome(case, where).result


def told(case: Case, where: Target) -> dict[str, bool]:
    """Of each subject whether the case tells it apart, under its kind; {} of a case without a certificate."""
    contract = resolve(case.contract)
    if not has_words(case, where):
        return {}
    operands = {each.name: each for each in contract.operands(case)}
    expected = contract.expected(case, where, operands, {})
    made = certificate(contract, case, where, operands, {}, expected, frozenset())
    found = {
        f"{kind}: {subject}": all(each.is_detected for each in rows)
        for kind in Kind
        for subject, rows in made.subjects(kind).items()
    }
    if constants := made.subjects(Kind.CONSTANT):
        found[ALL] = all(each.is_detected for rows in constants.values() for each in rows)
    return found


def counted(cases: Iterable[Case], known: dict[str, dict[str, bool]]) -> tuple[Counter, int]:
    """How many of `cases` tell each subject, and how many there are."""
    listed = list(cases)
    return Counter(subject for case in listed for subject, tells in known[case.key].items() if tells), len(listed)


def main() -> None:
    asked = parse(__doc__, "stems+", target="emulated:sm_90", cases=24, seeds=3)
    where = target(asked.target)
    for stem in asked.stems:
        begun, kept, plain, most, of = time.monotonic(), Counter(), Counter(), Counter(), 0  # type: ignore[var-annotated]
        for seed in range(asked.seeds):
            source, draws = CaseSource(stem, where, seed=seed), list[Case]()
            walk(source, draw_count(asked.cases), draws.append)
            draws = list({case.key: case for case in draws}.values())
            chosen = prefer_draws(draws, asked.cases, source.required(), lambda case: has_words(case, where))
            known = {case.key: told(case, where) for case in draws}
            one, count = counted(chosen, known)
            other, _ = counted(draws[: len(chosen)], known)
            every, _ = counted(draws, known)
            kept, plain, of = kept + one, plain + other, of + count
            most += Counter({subject: min(number, count) for subject, number in every.items()})
        print(f"{stem} on {where.name}: {of} cases of {asked.seeds} base seeds, {time.monotonic() - begun:.0f} s", flush=True)
        for subject in sorted({*kept, *plain}, key=lambda each: (each != ALL, each)):
            shares = (
                f"{name} {counts[subject] / of:>6.1%}"
                for name, counts in (("preferred", kept), ("drawn", plain), ("at most", most))
            )
            print(f"  {subject:<44} {'   '.join(shares)}", flush=True)


if __name__ == "__main__":
    run_script(main)
