"""The contract of a described kernel: its body draws and launches, its reference is traced, and everything else follows.

Required cases take each draw through its edges and each regime once; generated ones are Hypothesis's. What must come is what the
trace of the reference says (`bitverdict.reference.tracing`): real values to float64's own running error, and words to the bound of
an implementation that sums in the accumulation type, in any order.
"""

# One file because each method of the one contract class decides by the same description and its draws.
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.contracts.described import asked_values, decisions
from bitverdict.harness.contracts.described.arguments import assign, check_arguments, reference_errors
from bitverdict.harness.contracts.described.before_launch import TensorUsed, nothing_is_launched
from bitverdict.harness.contracts.described.call_text import call_text
from bitverdict.harness.contracts.described.draw import DiscardedDraw, Draw, of_a_draw, operands_of
from bitverdict.harness.contracts.described.dtypes import format_of, torch_dtype
from bitverdict.harness.contracts.described.number_lists import MAX_WRITTEN_INDICES, Indices
from bitverdict.harness.contracts.described.operands import PLAIN_REGIMES, REFERENCE_REGIMES, SPECIAL, operand
from bitverdict.harness.contracts.described.options import DIVISOR, Options
from bitverdict.harness.contracts.described.outputs import expected_output
from bitverdict.harness.contracts.described.record import OPERANDS, DrawRecord, Entry
from bitverdict.harness.contracts.described.required import asked_by_default, listing
from bitverdict.harness.contracts.described.returned_outputs import ReturnedOutputs, ReturningContract
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.contracts.oracle import shared_mathematics
from bitverdict.harness.model.case import CASE_VERSION, Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput, UndecidedCase
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.usage import BodyError, UsageError

if TYPE_CHECKING:
    import torch
    from hypothesis.strategies import SearchStrategy

    from bitverdict.harness.model.targets import Target


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a user says of a kernel.

    `body(draw)` draws operands and returns what the kernel returned, or the arguments of `launcher`, an address. `reference(xp,
    *operands, **named)` is the mathematics. `exact`: a result is held to the one word that is nearest to the reference. `returns`:
    formats of the outputs, in order; without it that which comes. `accumulation`: the type in which the kernel may sum.
    `recover_order`: expect words by the order of sums that launches show (docs/order_of_sums.md).
    `specials`: feed NaN, infinities, subnormals and the whole range of exponents too. `gradient`: judge the backward pass too
    (`described.gradients`). `sealed`: each case is, whoever asks for it. `batch_invariant` and `deterministic`: what the kernel
    promises (`Contract.batch_invariant`). `strides`: of tensors that say none, as `Draw.tensor` takes them.
    """

    body: Callable[[Draw], Any]
    reference: Callable[..., Any]
    exact: bool = False
    returns: tuple[str, ...] = ()
    accumulation: str = "fp32"
    specials: bool = False
    regimes: tuple[str, ...] = ()
    launcher: str = ""
    real_values: bool = True
    gradient: bool = False
    sealed: bool = False
    batch_invariant: tuple[str, ...] = ()
    deterministic: bool = False
    recover_order: bool = False
    strides: str | None = None


class DescribedContract(ReturningContract):
    """The contract of `description`; `where` says its address and the folders in which its modules are found."""

    any_launcher = True
    must_launch = True
    remedy = "draw only what the launcher takes, as in draw.size(8, 512, multiple_of=8) (docs/your_kernel.md)"

    def __init__(self, description: Description, where: Callable[[], tuple[str, tuple[str, ...]]]) -> None:
        super().__init__()
        self.description, self.where = description, where
        self._required: dict[str, tuple[list[Case], list[str]]] = {}  # by target, with what is left out
        self._declared: tuple[Case, frozenset[str] | None] | None = None  # of the last case that was asked for
        self.batch_invariant, self.deterministic = description.batch_invariant, description.deterministic

    @property
    def address(self) -> str:  # type: ignore[override]  # known once its module is
        return self.where()[0]

    @property
    def regimes(self) -> tuple[str, ...]:
        """What operands are fed, the plainest first."""
        return self.description.regimes or (PLAIN_REGIMES + SPECIAL if self.description.specials else PLAIN_REGIMES)

    # --- which cases

    def cases(self, target: Target) -> SearchStrategy[Case]:
        from hypothesis import assume
        from hypothesis import strategies as st

        from bitverdict.harness.contracts.inputs import strategies

        @st.composite
        def drawn(draw: Callable) -> Case:
            problem = self.drawn(decisions.ByHypothesis(draw))
            assume(problem is not None)
            assert problem is not None
            return self.case(
                problem,
                regime=draw(st.sampled_from(self.regimes)),
                data_seed=draw(strategies.data_seeds()),
                schedule=draw(strategies.schedules(target.emulated)),
            )

        return drawn()

    def required(self, target: Target) -> list[Case]:
        if target.name not in self._required:
            self._required[target.name] = self._listed_cases(target)
        return list(self._required[target.name][0])

    def left_out(self, target: Target) -> list[str]:
        """What required cases should ask and cannot, a sentence each."""
        self.required(target)
        return list(self._required[target.name][1])

    def _listed_cases(self, target: Target) -> tuple[list[Case], list[str]]:
        """The required cases and what they leave out."""
        from bitverdict.harness.contracts.inputs import strategies

        schedules = strategies.listed_schedules(target.emulated, 1)
        cases_by_key: dict[str, Case] = {}
        draw_listing = listing(self.drawn, len(self.regimes))

        def take(problem: DrawRecord, regime: str) -> None:
            case = self.case(
                problem,
                regime=regime,
                data_seed=len(cases_by_key),
                schedule=strategies.cycle_value(schedules, len(cases_by_key)),
                calls=1 if cases_by_key else 2,
            )
            cases_by_key.setdefault(dataclasses.replace(case, data_seed=0, schedule="eager", calls=1).key, case)

        for problem, number in draw_listing.draws:
            take(problem, self.regimes[number])
        plain = list(cases_by_key.values())
        for problem in draw_listing.layout_draws:
            take(problem, self.regimes[0])
        left_out = list(draw_listing.gaps)
        operations = self._operations(plain)
        for problem, regime in () if self.description.regimes else self._asked_values(target, plain, operations, left_out):
            take(problem, regime)
        return list(cases_by_key.values()), left_out

    def _operations(self, cases: Sequence[Case]) -> frozenset[str]:
        """The operations of the reference that round, in the first of `cases`. UsageError where it cannot be traced."""
        from bitverdict.reference.tracing import rounding_operations

        if not cases:
            return frozenset()
        given, named = self.arguments(cases[0], {each.name: each for each in self.operands(cases[0])})
        with reference_errors():
            return rounding_operations(self.description.reference, given, named)

    def _asked_values(
        self, target: Target, cases: Sequence[Case], operations: frozenset[str], gaps: list[str]
    ) -> Iterator[tuple[DrawRecord, str]]:
        """Draws and regimes that the `operations` of the reference ask for (`described.asked_values`); `gaps` is told what is not
        asked."""
        if not cases:
            return
        entries: tuple[Entry, ...] = cases[0].problem.draws
        if asked_values.follow_the_regime(entries):
            largest = sorted(cases, key=lambda case: -_elements_of(case))
            for regime, candidates, request in (
                (asked_values.large_regime(operations), cases[: decisions.ALIKE_COUNT], "values of which exponentials overflow"),
                (asked_values.exact_regime(operations), largest[: decisions.ALIKE_COUNT], "sums that fp32 holds and fp16 does not"),
            ):
                if not regime or (self.description.gradient and regime != regimes.EIGHTHS):
                    continue  # nothing is known of whether a gradient is decided
                chosen_case = next(
                    (case for case in candidates if self._decides(dataclasses.replace(case, regime=regime), target)), None
                )
                if chosen_case is None:
                    gaps.append(f"{request}: not tested, because the reference itself is not decided there")
                else:
                    yield chosen_case.problem, regime
        if asked_values.may_leave_some_unread(entries, assign(self.description.reference, entries).by_name):
            for case in cases[: asked_values.MOST_TRIED]:
                operands = self.operands(case)
                if asked_values.plants_nan(operands, self._unread(case, operands)):
                    yield case.problem, regimes.UNREAD
                    break

    def _decides(self, case: Case, target: Target) -> bool:
        """Whether the reference says of each element of each output what it may be."""
        from bitverdict.reference.tracing import trace

        try:
            given, named = self.arguments(case, {each.name: each for each in self.operands(case)})
            how = self.description.accumulation
            with np.errstate(all="ignore"):
                outputs = trace(self.description.reference, given, named, arch=target.arch, accumulation=how)
                return asked_values.is_decided(outputs)
        except Exception:
            return False

    def _unread(self, case: Case, operands: list[Operand]) -> list[Operand]:
        """`operands` with NaN where the reference reads nothing."""
        from bitverdict.reference.tracing import reference_values

        def evaluate(operands: Mapping[str, Operand]) -> list[np.ndarray]:
            given, named = self.arguments(case, operands)
            with np.errstate(all="ignore"):
                return reference_values(self.description.reference, given, named)

        try:
            return asked_values.with_nan_unread(operands, evaluate)
        except Exception:
            return operands  # the reference's own: judging the case says so

    def drawn(self, source: decisions.Source) -> DrawRecord | None:
        """What the body draws where `source` decides; None where it leaves the case out."""
        draw = Draw(source, strides=self.description.strides)
        with nothing_is_launched():
            try:
                self.description.body(draw)
            except TensorUsed:
                pass
            except DiscardedDraw:
                return None
            except UsageError:
                raise
            except Exception as error:
                if (said := of_a_draw(error)) is not None:
                    raise UsageError(said) from None
                if type(error).__module__.partition(".")[0] == "hypothesis":
                    raise  # what it could not draw
                return DrawRecord(draw.entries)  # the launch raises it again, and is told of it there
        check_arguments(self.description.reference, draw.entries)
        return DrawRecord(draw.entries).with_names(self.names(draw.entries))

    def case(self, problem: DrawRecord, **rest: Any) -> Case:
        address, folders = self.where()
        return Case(
            contract=address,
            problem=problem,
            launcher=self.description.launcher,
            search_path=folders,
            real_values=self.description.real_values,
            sealed=self.description.sealed,
            recover_order=self.description.recover_order,
            **rest,
        )

    def simpler(self, case: Case) -> Iterator[Case]:
        """`case` with one draw made simpler, the others as they are, as far as the body draws them still."""
        entries: tuple[Entry, ...] = case.problem.draws
        for place, options in enumerate(self._options([entry.value for entry in entries])):
            for value in self._simpler_values(case, place, options) if options is not None else ():
                try:
                    problem = self.drawn(decisions.ReducedDraws(entries, place, value))
                except UsageError:
                    continue
                if problem is not None and problem != case.problem:
                    yield dataclasses.replace(case, problem=problem)

    def call_text(self, case: Case) -> str:
        if self.description.launcher or self.description.gradient:
            return ""  # the body returns arguments, or not what is wrong
        names, operands = self.names(case.problem.draws), {each.name: each for each in self.operands(case)}
        return call_text(self.description.body, case.problem.draws, {place: operands[name] for place, name in names.items()})

    def _simpler_values(self, case: Case, place: int, options: Options) -> list[Any]:
        """Values of the draw at `place`, the simplest first; of indices that their words draw, indices that are fewer of these."""
        entry: Entry = case.problem.draws[place]
        values = list(options.simpler(entry.value))
        if isinstance(options, Indices) and options.count <= MAX_WRITTEN_INDICES and not isinstance(entry.value, tuple):
            values += options.plainer(operand(case, entry, place, entry.name).codes.ravel().tolist())
        return values

    def _options(self, values: Sequence[Any]) -> list[Options | None]:
        """What each draw of a case may be."""
        options_drawn: list[Options | None] = []

        class Listens(decisions.Simplest):
            def decide(self, place: int, kind: str, name: str, options: Options) -> Any:
                options_drawn.append(options)
                return super().decide(place, kind, name, options)

        self.drawn(Listens(values))
        return [*options_drawn, *[None] * (len(values) - len(options_drawn))][: len(values)]

    def sizes(self, case: Case) -> dict[str, int]:
        """The sizes that the body draws, by their names; one without is called "size" and its number."""
        return {name: int(case.problem.draws[place].value or 0) for name, place in _sizes(case.problem.draws).items()}

    def resized(self, case: Case, name: str, value: int) -> Case | None:
        values = [entry.value for entry in case.problem.draws]
        place = _sizes(case.problem.draws)[name]
        problem = self.drawn(decisions.Simplest([*values[:place], value, *values[place + 1 :]]))
        if problem is None or len(problem.draws) != len(values):
            return None
        others = [entry.value for entry in problem.draws]
        same = others[place] == value and others[:place] + others[place + 1 :] == values[:place] + values[place + 1 :]
        return dataclasses.replace(case, problem=problem) if same else None

    def problem_told(self, told: Sequence[tuple[str, str]]) -> DrawRecord | None:
        source = decisions.ReportedDraws(told)
        problem = self.drawn(source)
        source.check()
        if problem is None:
            raise UsageError("--case: the body leaves this case out")
        return problem

    def case_from_json(self, record: Mapping) -> Case:
        if record.get("version") != CASE_VERSION:
            raise UsageError(
                f"case of version {record.get('version')!r}: this installation reads version {CASE_VERSION}; replay it with "
                "the one that wrote it"
            )
        rest = {name: record[name] for name in ("contract", "regime", "data_seed", "schedule", "launcher") if name in record}
        if rest.get("regime", self.regimes[0]) not in (*PLAIN_REGIMES, *SPECIAL, *REFERENCE_REGIMES, *self.regimes):
            raise UsageError(
                f"case.regime is {rest['regime']!r:.100}: must be one of "
                f"{', '.join((*PLAIN_REGIMES, *SPECIAL, *REFERENCE_REGIMES))}"
            )
        return Case(problem=DrawRecord.from_json(record.get("problem") or {}), **({"contract": self.address} | rest))

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        classes: dict[str, str | int] = {"target": target.name, "regime": case.regime, "schedule": case.schedule_kind}
        entries: tuple[Entry, ...] = case.problem.draws
        formats = dict.fromkeys(entry.dtype for entry in entries if entry.kind in OPERANDS)
        if formats:
            classes["dtype"] = next(iter(formats))
        for place, entry in enumerate(entries):
            called = entry.name or f"draw {place}"
            if isinstance(entry.value, int) and entry.kind == "size":
                classes[f"{called} mod 16"] = entry.value % DIVISOR
            elif entry.kind in ("choice", "flag", "tensor", "indices", "offsets", "mask"):
                classes[called] = "written out" if isinstance(entry.value, tuple) else str(entry.value)
        return classes

    # --- one case

    def operands(self, case: Case) -> list[Operand]:
        names = self.names(case.problem.draws)
        fed = asked_values.of_plain_values(case) if case.regime == regimes.UNREAD else case
        operands = [operand(fed, entry, place, names[place]) for place, entry in operands_of(case.problem.draws)]
        return operands if fed is case else self._unread(fed, operands)

    def asked_by_default(self, case: Case) -> str:
        return asked_by_default(case.problem.draws)

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, Any]:
        import torch

        self._returned = ReturnedOutputs({}, frozenset())
        entries: tuple[Entry, ...] = case.problem.draws
        names = self.names(entries)
        outputs: list[Any] = []

        def tensor_of(entry: Entry, place: int) -> Any:
            if place in names and names[place] in tensors:
                return tensors[names[place]]
            device = next(iter(tensors.values())).device if tensors else "cuda"
            outputs.append(torch.empty(entry.shape or (), dtype=torch_dtype(entry.dtype), device=device))  # entry.shape
            return outputs[-1]

        draw = Draw(decisions.RecordedDraws(entries), tensor_of, self.description.strides)
        result = self.description.body(draw)
        if len(draw.entries) != len(entries):
            raise BodyError(
                f"the body draws {len(draw.entries)} values now and drew {len(entries)} when the case was drawn: "
                "a body may depend on its draws alone"
            )
        if launcher is not None:
            result = launcher(*(result if isinstance(result, tuple) else (result,)))
            if result is None and outputs:
                result = tuple(outputs)
        self._returned = ReturnedOutputs.from_result(result, tensors)
        return self._returned.outputs

    def declared(self, case: Case) -> frozenset[str] | None:
        if self._declared is None or self._declared[0] is not case:
            self._declared = case, self._traced_formats(case)
        return self._declared[1]

    def _traced_formats(self, case: Case) -> frozenset[str] | None:
        from bitverdict.reference.tracing import Untraceable, declared_formats

        named = {each.name: each for each in self.operands(case)}
        try:
            return declared_formats(self.description.reference, *self.arguments(case, named))
        except Untraceable:
            return None  # `expected` says why

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        from bitverdict.reference.tracing import Untraceable, trace

        given, named = self.arguments(case, operands)
        try:
            traced_outputs = trace(
                self.description.reference, given, named, arch=target.arch, accumulation=self.description.accumulation
            )
        except Untraceable as untraceable:
            raise UndecidedCase(f"the reference cannot be traced: {untraceable}") from None
        returned_outputs = [(str(name), str(kind)) for name, kind in recorded["outputs"]]
        if len(returned_outputs) != len(traced_outputs):
            raise BodyError(
                f"the body returns {len(returned_outputs)} outputs and the reference "
                f"{len(traced_outputs)}: they must be the same, in the same order"
            )
        returns = [format_of(each) for each in self.description.returns] or [kind for _, kind in returned_outputs]
        if len(returns) != len(traced_outputs):
            raise BodyError(f"returns names {len(returns)} formats and the reference returns {len(traced_outputs)} outputs")
        return [
            expected_output(name, format_name, each, before=operands.get(name), run_record=recorded, exact=self.description.exact)
            for (name, _), format_name, each in zip(returned_outputs, returns, traced_outputs, strict=True)
        ]

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics | None:
        outputs = tuple(self._returned.outputs)
        given, named = self.arguments(case, operands)
        return shared_mathematics.reference_mathematics(self.description.reference, operands, given, named, outputs)

    # --- the arguments of the reference

    def arguments(self, case: Case, operands: Mapping[str, Operand]) -> tuple[list[Any], dict[str, Any]]:
        """(positional, named) arguments of the reference behind `xp`: an operand is (format, codes), any other draw its value."""
        entries: tuple[Entry, ...] = case.problem.draws
        names, assignment = self.names(entries), assign(self.description.reference, entries)

        def value(place: int) -> Any:
            return (operands[names[place]].format, operands[names[place]].codes) if place in names else entries[place].value

        by_name = {name: value(place) for name, place in assignment.by_name.items()}
        given = []
        for name in assignment.positional:
            if name not in by_name:
                break
            given.append(by_name.pop(name))
        return given + [value(place) for place in assignment.variadic_places], by_name

    def names(self, entries: Sequence[Entry]) -> dict[int, str]:
        """Place -> name of each operand: its own, that of the reference's parameter, or its number."""
        parameters = {place: name for name, place in assign(self.description.reference, entries).by_name.items()}
        return {
            place: entry.name or parameters.get(place, "") or f"operand_{number}"
            for number, (place, entry) in enumerate(operands_of(entries))
        }


def _elements_of(case: Case) -> int:
    """Of all operands together."""
    return sum(math.prod(entry.shape or ()) for _, entry in operands_of(case.problem.draws))


def _sizes(entries: Sequence[Entry]) -> dict[str, int]:
    """Name -> place of each size that was drawn."""
    places = [place for place, entry in enumerate(entries) if entry.kind == "size"]
    return {entries[place].name or entries[place].called or f"size {number}": place for number, place in enumerate(places)}
