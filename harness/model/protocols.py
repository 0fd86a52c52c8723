"""What rooms meet by that may not import each other: the optional questions about a case, what rides on a launch, how a worker of
untrusted code is started, where a run's randomness comes from, and how a call is marked whose failure is the caller's.

A feature implements one of these, and one line of a table names it (`bitverdict.harness.model.feature_table`). No room below it
knows it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from bitverdict.harness.emulator.device import Launch
    from bitverdict.harness.model.case import Case
    from bitverdict.harness.model.contract import Contract, ExpectedOutput
    from bitverdict.harness.model.targets import Target
    from bitverdict.harness.model.verdict import Verdict

JudgementT = TypeVar("JudgementT")
ComparisonT = TypeVar("ComparisonT")
RunT = TypeVar("RunT", contravariant=True)
AccessT = TypeVar("AccessT", contravariant=True)
EventT = TypeVar("EventT", contravariant=True)


def for_the_launcher(function: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
    """`function` called on behalf of the launcher: what it raises with these arguments is the launcher's, though we called it."""
    return function(*args, **kwargs)


class Check(Protocol[JudgementT, ComparisonT]):
    """An optional question about one case. Each method has a default that asks nothing, so a check writes those that it needs.

    Each step is taken in the order of the table. `bitverdict.harness.judge.judgement.CaseCheck` is this protocol with the judge's
    records.
    """

    def choose(self, case: Case, contract: Contract, target: Target) -> Case:
        """The case to judge in the place of `case`, before it is dealt: of the same kind, so that it can tell something."""
        return case

    def judge_all_calls(self, judgement: JudgementT, judge_once: Callable[[JudgementT], Verdict]) -> Verdict | None:
        """The verdict on a case that takes more than one launch, by `judge_once`; None leaves it to the next check."""
        return None

    def before_comparison(self, judgement: JudgementT) -> None:
        """Change what is expected, or launch the case elsewhere, once the launch came back with outputs."""

    def compare(self, judgement: JudgementT, expected: ExpectedOutput, comparison: ComparisonT) -> ComparisonT:
        """The comparison of one output, or a stricter one."""
        return comparison

    def after_comparison(self, judgement: JudgementT, verdict: Verdict) -> Verdict:
        """The verdict on outputs that were compared, changed or with details."""
        return verdict

    def after_launch(self, judgement: JudgementT, verdict: Verdict) -> Verdict:
        """The verdict on the launch, also on one that ended in a fault."""
        return verdict

    def after_case(self, judgement: JudgementT, verdict: Verdict) -> Verdict:
        """The verdict on a case of one call, which may launch others."""
        return verdict


class LaunchProbe(Generic[RunT, AccessT, EventT]):
    """What rides on the launches of an emulated GPU. Each method has a default that does nothing; the GPU and its memory call the
    methods that a probe writes, in the order of the probes. `bitverdict.harness.emulator.device_probe.DeviceProbe` is this protocol
    with the emulator's records.
    """

    runs_in_turn: bool = False
    """Programs of a launch must run one by one, because the probe follows the events of each."""

    def on_request(self, source: object, metadata: object, grid: tuple[int, int, int], values: Sequence[object]) -> None:
        """Triton launches the compiled kernel `source` (its own record) with `values`, one for each parameter of the signature."""

    def begin(self, run: RunT) -> None:
        """Programs of a launch are about to run: its memory and its arguments are there."""

    def begin_batches(self) -> None:
        """Programs run several at once from here on."""

    def end_batches(self, *, kept: bool) -> None:
        """They have run: what they did is `kept`, or taken back."""

    def on_load(self, access: AccessT) -> None:
        """A launch has taken words of memory, for a register, for memory on the chip or for an atomic."""

    def on_combination(self, access: AccessT, old_words: Any, values: Any) -> None:
        """An atomic has combined `old_words` with `values`; no word twice."""

    def on_store(self, access: AccessT) -> None:
        """A launch has written words of memory, or issued what nobody may look at before it has written them."""

    def on_move(self, event: EventT) -> None:
        """Something happened on the chip: an access, an asynchronous operation, a barrier."""

    def settle(self, run: RunT) -> None:
        """All programs of the launch have come to their end: what they leave open may be settled in memory, before `end`."""

    def end(self, run: RunT) -> None:
        """The launch that began is over, whatever came of it."""

    def on_failure(self, error: BaseException) -> None:
        """`error` ends a launch, also one that has not begun: a fault of the kernel, a refusal, or the emulator's own."""


class LaunchObserver(Protocol):
    """What the judge follows on one launch: it asks the device for a probe, and says afterwards what was seen."""

    def options(self, case: Case, *, far: bool) -> Mapping[str, Any]:
        """What the device is entered with. `far`: operands lie so far apart that no shadow of memory has room."""
        return {}

    def observe_outputs(self, device: object, outputs: Mapping[str, object], in_place: Sequence[object]) -> Mapping[str, Any]:
        """What is recorded of a launch that came back with tensors, by name. `in_place`: operands that it may have written."""
        return {}

    def broken_promise(self, case: Case, contract: Contract, target: Target, launches: Sequence[Launch]) -> str:
        """What the contract promises of the instructions of `launches` and they do not hold; empty: nothing."""
        return ""


class Isolation(Protocol):
    """How code that is not trusted is kept apart: processes of its own, and who asks them."""

    def start_of(self, case: Case, start: Any, *, gpu: bool) -> Any:
        """How a worker is started that judges `case`: as `start` (`bitverdict.harness.workers.start.Start`), and isolated."""

    def install(self, target: Target, log: Path) -> str:
        """In a worker that was started so: have the judge ask processes of its own. Empty, or why it cannot."""

    def is_isolated(self, variables: Mapping[str, str]) -> bool:
        """Whether a worker with these variables is one of isolated cases."""

    def begin(self, launcher: str) -> None:
        """From here on this process asks `launcher`, at an address, in a process of its own."""

    def seeds(self) -> SeedSource:
        """Where the seeds of a run that begins come from: nobody knows them before it."""


class SeedSource(Protocol):
    """Where a run's draws and the seeds of its cases come from."""

    def number(self, *parts: str) -> int:
        """64 bits of `parts`."""

    def drawn(self, case: Case, decides: Callable[[Case], bool]) -> Case:
        """`case` with seeds of this source's, its shape as it was: the first ones with which it `decides` something."""

    def describe(self, *, revealed: bool) -> dict[str, str]:
        """What a stored failure says of it."""


__all__ = ["Check", "Isolation", "LaunchObserver", "LaunchProbe", "SeedSource", "for_the_launcher"]
