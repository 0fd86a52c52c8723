"""One case on one target, judged in this process: what is owed, what came, what the difference is called.

`judge` never raises for what a kernel does: a refusal, a fault of the device or of the emulated one, and a bug in a launcher are
outcomes with a name. A death of the process itself is `bitverdict.harness.workers.slot`'s to name. What it does raise is a fault of
the contract."""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bitverdict.harness.judge.called_again import CalledAgain, second
from bitverdict.harness.judge.classify import Seen, for_the_launcher, outcome_of
from bitverdict.harness.judge.compare import Comparison, compare
from bitverdict.harness.judge.decide import against_fault, against_words
from bitverdict.harness.judge.far_views import admitted
from bitverdict.harness.judge.guarded_buffers import TORCH_DTYPES, Guard, Poison, far_bytes, guarded_allocations, poison_word, words
from bitverdict.harness.judge.launched_instructions import Instructions, of_products, remember, watched
from bitverdict.harness.judge.out_of_memory import free_memory
from bitverdict.harness.judge.remedies import remedy_for
from bitverdict.harness.model.contract import Case, Contract, Expected, Operand, Owed, load, load_afresh, resolve
from bitverdict.harness.model.paths import ROOT, relative
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Outcome, RestsOn, Ruling, Verdict

NO_KERNEL = "no Triton kernel was launched: what was judged is no kernel, so its right words say nothing about one"


class Clock:
    """Seconds by bucket; what no bucket claims is the harness's own."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.buckets: dict[str, float] = {}

    @contextmanager
    def on(self, bucket: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.buckets[bucket] = self.buckets.get(bucket, 0.0) + time.perf_counter() - begun

    def seconds(self) -> dict[str, float]:
        total = time.perf_counter() - self.begun
        compiling = min(self.buckets.get("compile", 0.0), self.buckets.get("launch", 0.0))
        shown = dict(self.buckets, compile=compiling, launch=self.buckets.get("launch", 0.0) - compiling)
        shown["harness"] = total - sum(shown.values())
        return {name: round(spent, 6) for name, spent in shown.items()} | {"total": round(total, 6)}


def judge(case: Case, target: Target, contract: Contract | None = None) -> Verdict:
    """The verdict on `case` on `target`. Raises ValueError for addresses that lead nowhere, and what a broken contract raises."""
    clock = Clock()
    contract = contract if contract is not None else resolve(case.contract)
    lacking = ", ".join(sorted(str(feature) for feature in contract.requires - target.features))
    if lacking and not case.launcher:
        return replace(_not_run(f"{target.name} lacks {lacking}"), seconds=clock.seconds())
    verdict = _of_its_calls(case, target, contract, clock)
    needs_it = verdict.outcome is Outcome.REFUSED and verdict.details.get("layer") in ("emulator", "verifier", "ptxas", "launcher")
    if lacking and verdict.convicted and needs_it:  # a user's launcher may need what the shipped kernel does, or may not
        verdict = _not_run(f"{target.name} lacks {lacking}: {verdict.message}")
    return replace(verdict, seconds=clock.seconds())


def _not_run(why: str) -> Verdict:
    return Verdict(ruling=Ruling.NOT_RUN, outcome=Outcome.NOT_RUN, rests_on=RestsOn.NOTHING, message=why)


def _of_its_calls(case: Case, target: Target, contract: Contract, clock: Clock) -> Verdict:
    """The verdict on the one call of the case, or on both."""
    launcher = _launcher(case, target)
    owed = contract.owed(case, target)
    try:
        if case.calls == 1:
            return _judge(case, target, contract, launcher, owed, clock)
        again = CalledAgain(contract)

        def alone() -> Verdict:
            return _judge(second(case), target, contract, _launcher(case, target, afresh=True), owed, clock)

        return again.told(_judge(case, target, again, launcher, owed, clock), alone)
    except MemoryError as error:  # of the reference: a launch's own is an outcome already
        return against_fault(owed, outcome_of(error))


def _judge(case: Case, target: Target, contract: Contract, launcher: Callable | None, owed: Owed, clock: Clock) -> Verdict:
    with clock.on("reference"):
        operands = {operand.name: operand for operand in contract.operands(case)}
    seen = launch(case, target, contract, launcher, operands, clock)
    verdict = against_fault(owed, seen) if seen.outcome is not None or not owed.result else None
    if verdict is None:
        with clock.on("reference"):
            expected = contract.expected(case, target, operands, seen.recorded)
        verdict = against_words(expected, [_compared(each, seen) for each in expected])
        work = contract.must_launch and all(operand.codes.size for operand in operands.values())
        if work and not seen.launches and verdict.outcome is Outcome.RIGHT:
            verdict = Verdict(ruling=Ruling.UNDECIDED, outcome=Outcome.UNDECIDED, message=NO_KERNEL)
    return replace(verdict, advice=seen.advice, recorded=seen.recorded)


def _launcher(case: Case, target: Target, *, afresh: bool = False) -> Callable | None:
    """The user's launcher, imported where its file finds `target` when it asks for its GPU. None: the kernel's own. `afresh`: one
    that remembers no earlier call.

    It is called through `for_the_launcher`: where it does not take what it is given, the TypeError counts against it.
    """
    if not case.launcher:
        return None
    with target.enter() if target.emulated else nullcontext():
        launcher = load_afresh(case.launcher) if afresh else load(case.launcher)
    return functools.update_wrapper(functools.partial(for_the_launcher, launcher), launcher)


def _compared(expected: Expected, seen: Seen) -> Comparison:
    if expected.name not in seen.outputs:
        return Comparison(Outcome.WRONG_SHAPE, 0, message=f"{expected.name}: the launcher returned no such output")
    poison = seen.details.get(f"poison of {expected.name}")
    due = TORCH_DTYPES.get(expected.format)
    dtypes = (seen.dtypes[expected.name], str(due)) if due is not None else None
    return compare(expected, seen.outputs[expected.name], poison=poison, dtypes=dtypes)


def launch(
    case: Case, target: Target, contract: Contract, launcher: Callable | None, operands: dict[str, Operand], clock: Clock
) -> Seen:
    """Lend the operands, run the launcher once on the target, and say what came; where memory is short, once more. Far operands
    (`bitverdict.harness.judge.far_views`) need room first: without it the outcome is "not run"."""
    far = far_bytes(operands.values())
    with admitted(far and far + contract.result_bytes(case), target) as short:
        if short:
            return Seen(Outcome.NOT_RUN, "machine", short)
        seen = _launch_once(case, target, contract, launcher, operands, clock)
        if seen.outcome is Outcome.OUT_OF_MEMORY:
            free_memory()
            seen = _launch_once(case, target, contract, launcher, operands, clock)
        return seen


def _launch_once(
    case: Case, target: Target, contract: Contract, launcher: Callable | None, operands: dict[str, Operand], clock: Clock
) -> Seen:
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset it warns in 3.9 and may flip in 3.10: it decides bits
    guard = Guard(Poison.of(case.data_seed))
    device: Any = None
    launched: list[Instructions | None] = []
    told: list[Any] = []
    try:
        with clock.on("transfer"):
            lent = guard.lend_all(operands.values(), target.device)
            tensors = {name: lent[operand.name] for name, operand in operands.items()}
        remember()
        if case.config is None and not target.emulated and not case.tuning:
            _tune(case, target, contract, launcher, tensors, clock)
        with (
            clock.on("launch"),
            _compilations(clock),
            _own_cache(case),
            guarded_allocations(guard),  # around the target, whose tensors are made of what this one allocates
            target.enter(case.schedule, case.tuning) as device,
            _tuned(case, target) as told,
            watched() as launched,
        ):
            if device is not None:
                device.either_row, device.takes_cpu_tensors = contract.either_row, False
                tensors = {name: device.place(tensor) for name, tensor in tensors.items()}
                if contract.pointers_in_memory:
                    device.reach(lambda: {buffer.name: buffer.view for buffer in guard.buffers})
            outputs = dict(contract.launch(case, tensors, launcher))
        with clock.on("transfer"):
            seen = _returned(outputs)
            trespass = guard.trespass()
    except Exception as error:  # whatever a kernel or its launcher does is an outcome
        seen, trespass = outcome_of(error), None
        if case.launcher and seen.layer == "launcher":
            seen.details |= remedy_for(error, case.launcher)
    seen.advice = tuple(relative(str(a)) for a in getattr(device, "advice", None) or ())
    seen.launches = len(launched) + len(getattr(device, "launches", None) or ())
    seen.recorded = _launched(device, launched, told)
    if trespass is not None:
        seen.outcome, seen.message, seen.details = trespass.outcome, trespass.message, trespass.details
    elif seen.outcome is None:
        seen.details = {
            f"poison of {name}": poison_word(guard.poison.output, word.dtype.itemsize) for name, word in seen.outputs.items()
        }
        seen.recorded |= contract.recorded(case)
    return seen


def _returned(outputs: dict[str, Any]) -> Seen:
    """The words of what a launcher returned; anything but tensors is an outcome of its own."""
    from torch import Tensor

    for name, output in outputs.items():
        if not isinstance(output, Tensor):
            said = f"{name}: the launcher returned a {type(output).__name__}: it must return a tensor"
            return Seen(Outcome.WRONG_SHAPE, message=said)
    dtypes = {name: str(tensor.dtype) for name, tensor in outputs.items()}
    return Seen(outputs={name: words(tensor) for name, tensor in outputs.items()}, dtypes=dtypes)


def _tune(case: Case, target: Target, contract: Contract, launcher: Callable | None, tensors: dict, clock: Clock) -> None:
    """A launch before the one that is judged: an autotuner on hardware runs every candidate into one output, where each fills in
    what another leaves out. The judged launch is then the winner's alone, into fresh poison."""
    with clock.on("tuning"), _own_cache(case), target.enter(case.schedule), guarded_allocations(Guard(Poison.of(case.data_seed))):
        contract.launch(case, tensors, launcher)


@contextmanager
def _tuned(case: Case, target: Target) -> Iterator[list]:
    """On hardware autotuners take what the case says, where it says something; yields what they took. An emulated device does so
    itself, and keeps its own list."""
    if target.emulated or not case.tuning:
        yield []
        return
    from bitverdict.harness.emulator.autotuning import tuned

    with tuned(case.tuning) as told:
        yield told


def _launched(device: Any, on_gpu: list[Instructions | None], told: list) -> dict:
    """What an emulated device executed: kernel, grid, families of matrix instructions, tile of its largest product, its integer
    constants, digest of the tile program. Of both kinds of devices `instructions`: every matrix instruction that was launched,
    where all are known; and what autotuners took, each kernel's last choice."""
    emulated = getattr(device, "launches", None) or ()
    launches = [
        {
            "kernel": done.name,
            "grid": list(done.grid),
            "instructions": sorted(done.instructions),
            "tile": list(done.tile),
            "constants": done.constants,
            "program": hashlib.sha256(done.program.encode()).hexdigest()[:12],
        }
        for done in emulated
    ]
    known = [launch for launch in on_gpu if launch is not None]
    instructions = sorted({*of_products(emulated), *(one for launch in known for one in launch)})
    found: dict = {"launches": launches[-8:]} if launches else {}
    if instructions and len(known) == len(on_gpu):
        found["instructions"] = [list(one) for one in instructions]
    if chosen := {each.kernel: asdict(each) for each in getattr(device, "tuned", None) or told}:
        found["tuned"] = list(chosen.values())
    return found


@contextmanager
def _own_cache(case: Case) -> Iterator[None]:
    """A directory of Triton's cache for this checkout and this accused file alone.

    Triton finds a compiled kernel by its text: a copy of a file would be answered with the lines, and the name, of the other.
    """
    from triton import knobs

    places = (address.rpartition(":")[0] for address in (case.contract, case.launcher))
    accused = [str(Path(place).resolve()) for place in places if place.endswith(".py")]
    digest = hashlib.sha256("\0".join([str(ROOT), *accused]).encode()).hexdigest()[:12]
    earlier = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = str(Path(knobs.cache.dir) / f"bitverdict-{digest}")
    try:
        yield
    finally:
        os.environ.pop("TRITON_CACHE_DIR") if earlier is None else os.environ.__setitem__("TRITON_CACHE_DIR", earlier)


@contextmanager
def _compilations(clock: Clock) -> Iterator[None]:
    """Put the compiler's own account of its time into the bucket `compile`."""
    from triton import knobs

    earlier = knobs.compilation.listener

    def listener(**told: Any) -> None:
        clock.buckets["compile"] = clock.buckets.get("compile", 0.0) + told["times"].total / 1e6
        if earlier is not None:
            earlier(**told)

    knobs.compilation.listener = listener
    try:
        yield
    finally:
        knobs.compilation.listener = earlier
