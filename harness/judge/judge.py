"""One case on one target, judged in this process: what is expected, what came, what the difference is called.

`judge` never raises for what a kernel does: a refusal, a fault of the device or of the emulated one, and a bug in a launcher are
outcomes with a name. A death of the process itself is `bitverdict.harness.workers.slot`'s to name. What it does raise is a fault of
the contract."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from bitverdict.harness.judge import provenance
from bitverdict.harness.judge.beside_emulated import Beside, beside, emulated_like, held_to_emulated, told_beside
from bitverdict.harness.judge.called_again import CalledAgain, second
from bitverdict.harness.judge.certificate.certify import certified
from bitverdict.harness.judge.classify import Seen, for_the_launcher, outcome_of
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.compare import Comparison, compare, contradicted, with_enclosed
from bitverdict.harness.judge.decide import against_fault, against_words, at_odds
from bitverdict.harness.judge.devices import entered, multiprocessors_of
from bitverdict.harness.judge.explain.advised import probable_cause
from bitverdict.harness.judge.explain.cause import WRONG, cause_of
from bitverdict.harness.judge.explain.unwritten_reads import Again, nobody_wrote
from bitverdict.harness.judge.guarded_buffers import TORCH_DTYPES
from bitverdict.harness.judge.instrumentation import own_instrumentation
from bitverdict.harness.judge.launch import AS_EVER, Allocations
from bitverdict.harness.judge.missing_features import COMPILER, held_to_features, not_run
from bitverdict.harness.judge.sealed import beside as beside_sealed
from bitverdict.harness.judge.sealed.ahead import meanwhile
from bitverdict.harness.judge.sealed.asking import Sealed, launch
from bitverdict.harness.model.addresses import load, load_afresh, resolve
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, ExpectedOutput, Undecided
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import EXCLUDED, Basis, Decision, Outcome, Verdict

FEW_DIGITS = "those of the reference to within half a unit of the floats that the launcher passes, in the format of the parameter"
MOST_SECONDS = 3.0  # that a launch took which is repeated for an explanation: the limit of a case is far
NO_KERNEL = "no Triton kernel was launched: what was judged is no kernel, so its right words say nothing about one"


def judge(case: Case, target: Target, contract: Contract | None = None, *, explained: bool = True) -> Verdict:
    """The verdict on `case` on `target`. Raises ValueError for addresses that lead nowhere, and what a broken contract raises. A
    failure is not `explained` where nobody reads it."""
    clock = Clock()
    contract = contract if contract is not None else resolve(case.contract)
    lacking = ", ".join(sorted(str(feature) for feature in contract.lacking(target)))
    if lacking and not case.launcher:
        return replace(not_run(f"{target.name} lacks {lacking}"), seconds=clock.seconds())
    with own_instrumentation(case.launcher or case.contract):
        verdict = _of_its_calls(case, target, contract, clock, explained)
    if case.launcher or contract.any_launcher:
        layer = verdict.details.get("layer") if verdict.outcome is Outcome.REFUSED else None
        if lacking and verdict.failed and layer in (*COMPILER, "launcher"):  # it may need what the shipped kernel does, or may not
            verdict = not_run(f"{target.name} lacks {lacking}: {verdict.message}", refused_by=layer)
        verdict = held_to_features(verdict, target)
    if verdict.failed and (asked := contract.asked_by_default(case)):
        verdict = _told_what_is_asked(verdict, asked)
    return replace(verdict, seconds=clock.seconds())


def _told_what_is_asked(verdict: Verdict, asked: str) -> Verdict:
    """Of a failure where operands lie as nobody claimed: what the launcher itself refuses loudly is not run; what it takes and gets
    wrong fails, and says how to exclude it."""
    if verdict.details.get("layer") == "launcher":
        return replace(not_run(f"the launcher excludes {asked}: {verdict.message}"), details={EXCLUDED: asked})
    remedy = f'{asked}, as a test asks that says nothing of strides; for a kernel that takes no others say strides="contiguous"'
    return replace(verdict, details=verdict.details | {"asked by default": f"{remedy} (docs/your_kernel.md)"})


def _undecided(why: str) -> Verdict:
    return Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.INCONCLUSIVE, basis=Basis.NOTHING, message=why)


def _of_its_calls(case: Case, target: Target, contract: Contract, clock: Clock, explained: bool) -> Verdict:
    """The verdict on the one call of the case, or on both."""
    launcher = asked_launcher(case, target)
    expected_outcome = contract.expected_outcome(case, target)
    try:
        if case.calls == 1:
            verdict = _judge(case, target, contract, launcher, expected_outcome, clock, explained)
            promises = contract.batch_invariant or contract.deterministic or case.promises
            return verdict if not promises else _held_to_promises(verdict, case, target, contract, clock)
        again = CalledAgain(contract)

        def alone() -> Verdict:
            afresh = asked_launcher(case, target, afresh=True)
            return _judge(second(case), target, contract, afresh, expected_outcome, clock, explained)

        return again.told(_judge(case, target, again, launcher, expected_outcome, clock, explained), alone)
    except MemoryError as error:  # of the reference: a launch's own is an outcome already
        return against_fault(expected_outcome, outcome_of(error))


def _held_to_promises(verdict: Verdict, case: Case, target: Target, contract: Contract, clock: Clock) -> Verdict:
    from bitverdict.harness.judge.invariance.promised import held_to_promises

    with clock.on("launch"):
        return held_to_promises(verdict, case, target, contract, asked_launcher(case, target))


def _judge(
    case: Case,
    target: Target,
    contract: Contract,
    launcher: Callable | Sealed | None,
    expected_outcome: ExpectedOutcome,
    clock: Clock,
    explained: bool,
) -> Verdict:
    if isinstance(launcher, Sealed):
        launcher.prepare(case, contract)
    with clock.on("reference"):
        operands = {operand.name: operand for operand in contract.operands(case)}
    seen, expects = _launched(case, target, contract, launcher, operands, expected_outcome, clock)
    verdict = against_fault(expected_outcome, seen) if seen.outcome is not None or not expected_outcome.result else None
    if verdict is None:
        with clock.on("reference"):
            try:
                expected = expects()
            except Undecided as why:
                return replace(_undecided(str(why)), advice=seen.advice, recorded=seen.recorded)
            contradiction = next((said for each in expected if (said := contradicted(each))), "")
        ordered: dict[str, str] = {}
        if case.recover_order and not contradiction:
            from bitverdict.harness.judge.sums.words import with_recovered_words

            with clock.on("order of sums"):
                expected, ordered = with_recovered_words(expected, case, target, contract, launcher, operands)
        if contradiction:
            verdict, twin = at_odds(contradiction), None
        else:
            twin = beside(case, contract, target, seen, lambda there: _on_emulated(case, target, there, contract, operands, clock))
            if twin is not None:
                seen.real_values, seen.hangs = twin.seen.real_values, twin.seen.hangs
            verdict = told_beside(against_words(expected, [_compared(each, seen, twin) for each in expected], seen.hangs), twin)
            if verdict.outcome is Outcome.WRONG_MATHEMATICS:
                again = _with_rounded_arguments(case, target, contract, operands, clock)
                if again is not None:
                    looser = replace(seen, real_values=again.real_values, hangs=again.hangs)
                    found = against_words(expected, [_compared(each, looser, twin) for each in expected], looser.hangs)
                    if not found.failed:
                        verdict = replace(told_beside(found, twin), details=found.details | {"real values": FEW_DIGITS})
        verdict = replace(verdict, details=verdict.details | ordered)
        work = all(operand.codes.size for operand in operands.values())
        if work and contract.must_launch and not seen.launches and verdict.outcome is Outcome.PASS:
            verdict = Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.INCONCLUSIVE, message=NO_KERNEL)
        if work and (provenance.RECORDED in seen.recorded or (case.sealed and target.emulated)):
            verdict = provenance.held(verdict, seen.recorded.get(provenance.RECORDED, {}))
        if seen.broken_promise and verdict.outcome is Outcome.PASS:
            said, basis = seen.broken_promise, Basis.OBSERVED_FAULT
            verdict = Verdict(decision=Decision.FAIL, outcome=Outcome.OTHER_INSTRUCTIONS, message=said, basis=basis)
        if case.sealed and not target.emulated:
            verdict = beside_sealed.held(verdict, seen, twin)
        if verdict.outcome is Outcome.PASS and explained:
            by_real = frozenset(each.name for each in expected if each.exact is not None and each.name in seen.real_values)
            with clock.on("certificate"):
                verdict = certified(verdict, contract, case, target, operands, seen.recorded, expected, by_real)
        if verdict.failed and explained:
            once_more = _again(case, target, contract, operands, seen, twin, clock)
            with clock.on("explanation"):
                verdict = _explained(verdict, functools.partial(_mathematics, contract, case, operands), expected, seen, once_more)
    if verdict.failed and (said := probable_cause(verdict.outcome, verdict.location, verdict.details, seen.advice)):
        verdict = replace(verdict, details={"probable cause": said} | verdict.details)
    return replace(verdict, advice=seen.advice, recorded=seen.recorded)


def _launched(
    case: Case,
    target: Target,
    contract: Contract,
    launcher: Callable | Sealed | None,
    operands: dict[str, Operand],
    expected_outcome: ExpectedOutcome,
    clock: Clock,
) -> tuple[Seen, Callable[[], list[ExpectedOutput]]]:
    """What the launch came to, and what gives what is expected: of a sealed case it is computed while the executor launches."""
    if isinstance(launcher, Sealed) and expected_outcome.result:
        going = launcher.begin(case, target, contract, operands, clock)
        return meanwhile(going, clock, lambda recorded: contract.expected(case, target, operands, recorded))
    seen = launch(case, target, contract, launcher, operands, clock)
    return seen, lambda: contract.expected(case, target, operands, seen.recorded)


def _mathematics(contract: Contract, case: Case, operands: dict[str, Operand], output: str) -> Mathematics | None:
    """What the output `output` of a case is by mathematics, as a function of its operands."""
    if isinstance(contract, CalledAgain):
        return contract.mathematics_of(case, operands, output)
    return contract.mathematics(case, operands)


def _explained(
    verdict: Verdict,
    mathematics: Callable[[str], Mathematics | None],
    expected: list[ExpectedOutput],
    seen: Seen,
    again: Again | None,
) -> Verdict:
    """`verdict` with the cause of the wrong output, where one explains it. What an explanation raises changes no verdict. `again`:
    how the case is launched once more, where that may tell something."""
    wrong = next((each for each in expected if each.name == verdict.details.get("output")), None)
    if wrong is None:
        return verdict
    try:
        found = nobody_wrote(wrong, seen, again) if again is not None and verdict.outcome in WRONG else None
        if found is None:
            poison, others = seen.details.get(f"poison of {wrong.name}"), [each for each in expected if each is not wrong]
            found = cause_of(mathematics(wrong.name), wrong, seen, verdict.outcome, poison, others)
        told = {} if found is None else {"cause": found.sentence, "cause_kind": found.kind, "cause_kinds": list(found.kinds)}
    except Exception as error:
        told = {"explanation failed": f"{type(error).__name__}: {error}"[:400]}
    return replace(verdict, details=verdict.details | told)


def asked_launcher(case: Case, target: Target, *, afresh: bool = False) -> Callable | Sealed | None:
    """`launcher_of`, or of a sealed case what has an executor launch it: this process never imports its file."""
    return Sealed(afresh) if case.sealed else launcher_of(case, target, afresh=afresh)


def launcher_of(case: Case, target: Target, *, afresh: bool = False) -> Callable | None:
    """The user's launcher, imported where its file finds `target` when it asks for its GPU. None: the kernel's own. `afresh`: one
    that remembers no earlier call.

    It is called through `for_the_launcher`: where it does not take what it is given, the TypeError counts against it.
    """
    if not case.launcher:
        return None
    with entered(target) if target.emulated else nullcontext():
        launcher = load_afresh(case.launcher) if afresh else load(case.launcher)
    return functools.update_wrapper(functools.partial(for_the_launcher, launcher), launcher)


def _again(
    case: Case, target: Target, contract: Contract, operands: dict[str, Operand], seen: Seen, twin: Beside | None, clock: Clock
) -> Again | None:
    """How a failing case is launched once more on the emulated GPU, which took words that the launcher allocated and did not fill;
    None where it took none, or where that launch took long."""
    first = seen if target.emulated else twin.seen if twin is not None else None
    took = sum(clock.buckets.get(name, 0.0) for name in ("launch", "emulated"))
    if first is None or not first.reads_allocated or case.calls != 1 or took > MOST_SECONDS:
        return None
    there = target if twin is None else twin.target
    return Again(first, lambda allocations: _on_emulated(case, target, there, contract, operands, Clock(), allocations))


def _on_emulated(
    case: Case, target: Target, there: Target, contract: Contract, operands: dict[str, Operand], clock: Clock,
    allocations: Allocations = AS_EVER,
) -> Seen:  # fmt: skip
    """What `case` on `target` comes to on the emulated GPU `there`: it has as many multiprocessors as a real one."""
    with clock.on("emulated"):
        count = multiprocessors_of(target)
        alike = case if target.emulated else replace(case, schedule=f"eager on {count}" if count else "eager")
        launcher = asked_launcher(case, there, afresh=True)
        return launch(alike, there, contract, launcher, operands, Clock(), allocations=allocations)


def _with_rounded_arguments(
    case: Case, target: Target, contract: Contract, operands: dict[str, Operand], clock: Clock
) -> Seen | None:
    """What an emulated launch of `case` comes to, where floats that the launcher passes are known to half a unit of their format;
    None where there is no such launch."""
    there = target if target.emulated else emulated_like(target)
    if there is None:
        return None
    with clock.on("launch"):
        launcher = asked_launcher(case, there, afresh=bool(case.launcher))
        seen = launch(case, there, contract, launcher, operands, Clock(), rounded_arguments=True)
    return seen if seen.outcome is None else None


def _compared(expected: ExpectedOutput, seen: Seen, twin: Beside | None = None) -> Comparison:
    if expected.name not in seen.outputs:
        return Comparison(Outcome.WRONG_SHAPE, 0, message=f"{expected.name}: the launcher returned no such output")
    poison = seen.details.get(f"poison of {expected.name}")
    due = TORCH_DTYPES.get(expected.format)
    dtypes = (seen.dtypes[expected.name], str(due)) if due is not None else None
    if expected.name in seen.enclosed:
        expected = with_enclosed(expected, *seen.enclosed[expected.name])
    real = seen.real_values.get(expected.name)
    found = compare(expected, seen.outputs[expected.name], poison=poison, dtypes=dtypes, real=real)
    return held_to_emulated(expected, seen.outputs[expected.name], found, twin)
