"""One launch of the kernel under test: operands uploaded, outputs and faults brought back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.judge.bounds_check import OutOfBounds, place_in
from bitverdict.harness.judge.case_memory import MemoryReservation, memory_of
from bitverdict.harness.judge.classify import LaunchResult, outcome_of
from bitverdict.harness.judge.clock import WAIT_BUCKET, Clock
from bitverdict.harness.judge.devices import device_of, target_device
from bitverdict.harness.judge.guarded_buffers import Guard, Poison, far_bytes, guarded_allocations, near_bytes, poison_word, words
from bitverdict.harness.judge.launched_instructions import Instructions, of_products, remember, watch_launches
from bitverdict.harness.judge.out_of_memory import free_memory
from bitverdict.harness.judge.real_values import RealValues
from bitverdict.harness.judge.remedies import remedy_for
from bitverdict.harness.judge.returned_memory import forget, returned_before
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, Launcher
from bitverdict.harness.model.feature_table import observers
from bitverdict.harness.model.paths import ROOT, relative, source_line
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.torch_internals import FunctionModesOff
from bitverdict.harness.model.verdict import Outcome

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator.autotuner_choices import TuningChoice
    from bitverdict.harness.emulator.device import Device, Launch


@dataclass(frozen=True)
class Allocations:
    """What is asked of tensors that a launcher allocates and does not fill."""

    tracks_unwritten: bool = False
    """An emulated launch tells `LaunchResult.unwritten_reads` and `LaunchResult.unwritten`."""
    zero_allocation: str = ""
    """The one of this name holds zeros, and no poison."""
    poison: Poison | None = None
    """What they hold, and what lies around operands; None: what the case's data seed says."""


DEFAULT_ALLOCATIONS = Allocations()


def launch(
    case: Case, target: Target, contract: Contract, launcher: Launcher | None, operands: dict[str, Operand], clock: Clock,
    enter_target: Callable[..., AbstractContextManager[object]] = target_device, allocations: Allocations = DEFAULT_ALLOCATIONS,
) -> LaunchResult:  # fmt: skip
    """Upload the operands, run the launcher once on the target, and say what came; where memory is short, once more. A case that
    needs much memory (`bitverdict.harness.judge.case_memory`) needs room first: without it the outcome is "not run".
    `enter_target` enters the target, and may also see its device."""
    with MemoryReservation(target, memory_of(case, target, contract, operands.values()), near_bytes(operands.values())) as room:

        def launch_once() -> LaunchResult:
            room.begin()
            return _launch_once(case, target, contract, launcher, operands, clock, enter_target, allocations, room)

        if not room.short and (seen := launch_once()).outcome is Outcome.OUT_OF_MEMORY and not room.short:
            forget()
            free_memory()
            seen = launch_once()
        return LaunchResult(Outcome.NOT_RUN, "machine", room.short) if room.short else seen


def _launch_once(
    case: Case, target: Target, contract: Contract, launcher: Launcher | None, operands: dict[str, Operand], clock: Clock,
    enter_target: Callable[..., AbstractContextManager[object]], allocations: Allocations, room: MemoryReservation,
) -> LaunchResult:  # fmt: skip

    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset it warns in 3.9 and may flip in 3.10: it decides bits
    guard = Guard(
        allocations.poison or Poison.of_seed(case.data_seed), zero_allocation=allocations.zero_allocation, on_allocation=room.take
    )
    tracking_options = {"list_allocations": lambda: _allocated_views(guard)} if allocations.tracks_unwritten else {}
    device: Any = None
    gpu_launches: list[Instructions | None] = []
    tuner_choices: list[Any] = []
    probe_records: dict[str, Any] = {}
    far_size = far_bytes(operands.values())  # of which no shadow has room
    declared_formats = contract.declared(case) if case.real_values and not far_size else None
    try:
        with clock.measure("transfer"):
            uploaded = guard.upload_all(operands.values(), device_of(target))
            tensors = {name: uploaded[operand.name] for name, operand in operands.items()}
        remember()
        if case.config is None and not target.emulated and not case.tuning:
            _tune(case, target, contract, launcher, operands, clock)
        with (
            clock.measure("launch"),
            _compilations(clock),
            own_cache(case),
            guarded_allocations(guard),  # around the target, whose tensors are made of what this one allocates
            enter_target(
                target,
                case.schedule,
                case.tuning,
                allow_duplicate_rows=contract.either_row,
                takes_cpu_tensors=False,
                real_values=declared_formats,
                **{name: value for observer in observers() for name, value in observer.options(case, far=bool(far_size)).items()},
                **tracking_options,
            ) as device,
            _steer_autotuners(case, target) as tuner_choices,
            watch_launches() as gpu_launches,
        ):
            if device is not None:
                with FunctionModesOff():  # or the modes are told of all that this asks of torch
                    tensors = {name: device.place(tensor) for name, tensor in tensors.items()}
                if contract.pointers_in_memory:
                    device.reach(lambda: {buffer.name: buffer.view for buffer in guard.buffers})
            outputs = {name: _with_words(output) for name, output in dict(contract.launch(case, tensors, launcher)).items()}
        with clock.measure("transfer"):
            between = contract.between_calls()
            reused_memory = between["memory"] if between else returned_before(outputs, tensors.values())
            launch_result = _read_outputs(outputs)
            if device is not None and launch_result.outputs:
                found = {name: device.enclosure(tensor) for name, tensor in outputs.items()}
                launch_result.enclosures = {name: each for name, each in found.items() if each is not None}
                if declared_formats is not None:
                    launch_result.real_values, launch_result.hangs = _real_values(device, outputs), tuple(device.hangs)
                in_place = [tensors[name] for name in contract.written(case) if name in tensors]
                probe_records = {
                    name: value
                    for observer in observers()
                    for name, value in observer.observe_outputs(device, outputs, in_place).items()
                }
                launch_result.elements = sum(done.elements for done in device.launches)
                launch_result.reads_allocated = any(device.has_loaded(buffer.storage) for buffer in guard.allocated_buffers)
                if allocations.tracks_unwritten:
                    launch_result.unwritten_reads = tuple(_unwritten_reads(device, guard))
                    launch_result.unwritten = {name: device.unwritten_elements(tensor) for name, tensor in outputs.items()}
            out_of_bounds = guard.out_of_bounds(contract.written(case))
            after = [*between.get("changed", ()), *_changed_outputs(launch_result, outputs)]
            _keep_fault(launch_result, out_of_bounds, reused_memory, after, _asked_since(launcher))
    except Exception as error:  # whatever a kernel or its launcher does is an outcome
        launch_result = outcome_of(error)
        if (case.launcher or contract.remedy) and launch_result.layer == "launcher":
            launch_result.details |= remedy_for(error, case.launcher, contract.remedy)
    launch_result.advice = tuple(relative(str(a)) for a in getattr(device, "advice", None) or ())
    launch_result.launches = len(gpu_launches) + len(getattr(device, "launches", None) or ())
    launch_result.launch_record = _describe_launches(device, gpu_launches, tuner_choices) | probe_records
    if launch_result.outcome is None:
        said = (
            observer.broken_promise(case, contract, target, getattr(device, "launches", None) or ()) for observer in observers()
        )
        launch_result.broken_promise = next(filter(None, said), "")
    launch_result.order_hazard = _find_order_hazard(getattr(device, "launches", None) or ())
    if between := contract.between_calls():
        launch_result.launch_record["calls"] = between | {"ordered": target.emulated and not launch_result.order_hazard}
    if launch_result.outcome is None:
        launch_result.details = {
            f"poison of {name}": poison_word(guard.poison.output, word.dtype.itemsize)
            for name, word in launch_result.outputs.items()
        }
        launch_result.launch_record |= contract.recorded(case) | ({"poison": guard.poison.output} if contract.any_launcher else {})
        launch_result.launch_record["digests"] = {
            name: hashlib.blake2b(word, digest_size=8).hexdigest() for name, word in launch_result.outputs.items()
        }
    return launch_result


def _with_words(output: torch.Tensor) -> Any:
    """What a launcher returned, so that its bytes are its values: torch negates some tensors only when they are read."""
    from torch import Tensor

    return output.resolve_neg() if isinstance(output, Tensor) and output.is_neg() else output


def _read_outputs(outputs: dict[str, Any]) -> LaunchResult:
    """The words of what a launcher returned; anything but tensors is an outcome of its own."""
    from torch import Tensor

    for name, output in outputs.items():
        if not isinstance(output, Tensor):
            message = f"{name}: the launcher returned a {type(output).__name__}: it must return a tensor"
            return LaunchResult(Outcome.WRONG_SHAPE, message=message)
        if output.is_meta:
            message = (
                f"{name}: the launcher returned a tensor of the device meta, which has no words: return one of the operands' device"
            )
            return LaunchResult(Outcome.WRONG_SHAPE, message=message)
    dtypes = {name: str(tensor.dtype) for name, tensor in outputs.items()}
    return LaunchResult(outputs={name: words(tensor).copy() for name, tensor in outputs.items()}, dtypes=dtypes)


def _changed_outputs(seen: LaunchResult, outputs: Mapping[str, object]) -> list[str]:
    """The names of outputs that have other words by now than when the launcher returned them."""
    return [name for name, got in seen.outputs.items() if not np.array_equal(got, words(outputs[name]))]


def _asked_since(launcher: Launcher | None) -> str:
    """What a sealed launcher's process asked for since it returned; of a launcher in this process nobody knows."""
    asked: Callable[[], str] | None = getattr(launcher, "after_return", None)
    return asked() if asked is not None else ""


def _keep_fault(
    launch_result: LaunchResult, out_of_bounds: OutOfBounds | None, reused_memory: list[str], after: list[str], late_request: str
) -> None:
    """Give `launch_result` the first fault that was found after the launcher returned. `reused_memory`: outputs in memory that was
    returned before; `after`: outputs that changed after the return; `late_request`: what the launcher asked for then."""
    if out_of_bounds is not None:
        launch_result.outcome, launch_result.message, launch_result.details = (
            out_of_bounds.outcome,
            out_of_bounds.message,
            out_of_bounds.details,
        )
    elif launch_result.outcome is not None:
        return
    elif reused_memory:
        launch_result.outcome = Outcome.MEMORY_RETURNED
        launch_result.message = (
            f"{reused_memory[0]}: lies in memory that an earlier call returned; return a buffer of its own from each call"
        )
    elif after or late_request:
        name = f"{after[0]}: its words are others than those that were returned" if after else "the launcher went on"
        launch_result.outcome = Outcome.WORDS_CHANGED
        launch_result.message = f"{name}{f': {late_request}' if late_request else ''}; return when all is done"


def _allocated_views(guard: Guard) -> list[Any]:
    """What the `guard` handed out full of poison, as an emulated device follows it."""
    from bitverdict.harness.emulator import AllocatedStorage

    return [AllocatedStorage(buffer.name, buffer.storage, buffer.poison) for buffer in guard.allocated_buffers]


def _unwritten_reads(device: Device, guard: Guard) -> Iterator[tuple[str, str, str]]:
    """(line, allocation, where in it) of each operation of the emulated `device` that took uninitialised words."""
    named = {buffer.name: buffer for buffer in guard.allocated_buffers}
    for location, name, parameter, byte in device.unwritten_reads:
        at = place_in(named[name], byte - named[name].start)
        given = f"{parameter} of the kernel, " if parameter != name else ""
        yield source_line(*location.rsplit(":", 1)), name, f"{given}the first {at}"


_HAZARD_MARKS = {"tt.atomic_": "a kernel updates memory by atomics", "async_tma_reduce": "a kernel reduces by TMA",
              "inline_asm": "a kernel has assembly of its own", "isVolatile = true": "a kernel has volatile loads"}  # fmt: skip


def _find_order_hazard(launches: Iterable[Launch]) -> str:
    """What in the tile programs of emulated `launches` may leave other words in another order of programs; empty where nothing."""
    return next((said for done in launches for mark, said in _HAZARD_MARKS.items() if mark in done.program), "")


def _real_values(device: Device, outputs: Mapping[str, object]) -> dict[str, RealValues]:
    """What the emulated `device` knows of the tensors `outputs` without rounding, by name. Nothing where no kernel computed them,
    or where the launcher saw computed words: what it writes then is no launch's."""
    if not device.launches or device.reals.is_lost:
        return {}
    found = {name: device.real_values(tensor) for name, tensor in outputs.items()}
    return {name: each for name, each in found.items() if each is not None}


def _tune(
    case: Case, target: Target, contract: Contract, launcher: Launcher | None, operands: dict[str, Operand], clock: Clock
) -> None:
    """A launch before the one that is judged: an autotuner on hardware runs every candidate into one output, where each fills in
    what another leaves out. The judged launch is then the winner's alone, into fresh poison. Operands are its own: one may be an
    output too."""
    guard = Guard(Poison.of_seed(case.data_seed))
    with clock.measure("tuning"), own_cache(case), target_device(target, case.schedule), guarded_allocations(guard):
        uploaded = guard.upload_all(operands.values(), device_of(target))
        contract.launch(case, {name: uploaded[operand.name] for name, operand in operands.items()}, launcher)


@contextmanager
def _steer_autotuners(case: Case, target: Target) -> Iterator[list[TuningChoice]]:
    """On hardware autotuners take what the case says, where it says something; yields what they took. An emulated device does so
    itself, and keeps its own list."""
    if target.emulated or not case.tuning:
        yield []
        return
    from bitverdict.harness.emulator.autotuner_choices import apply_tuning

    with apply_tuning(case.tuning) as told:
        yield told


def _describe_launches(device: Device, on_gpu: list[Instructions | None], tuner_choices: list[TuningChoice]) -> dict[str, Any]:
    """What an emulated device executed: kernel, grid, families of matrix instructions, tile of its largest product, its integer
    constants, digest of the tile program. Of both kinds of devices `instructions`: every matrix instruction that was launched,
    where all are known; and what autotuners took, each kernel's last choice."""
    emulated = getattr(device, "launches", None) or ()
    launches = [
        {
            "kernel": done.name,
            "place": done.place,
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
    found: dict[str, Any] = {"launches": launches[-8:]} if launches else {}
    if instructions and len(known) == len(on_gpu):
        found["instructions"] = [list(one) for one in instructions]
    if chosen := {each.kernel: each.to_json() for each in getattr(device, "tuned", None) or tuner_choices}:
        found["tuned"] = list(chosen.values())
    return found


@lru_cache(maxsize=256)
def _digest(files: tuple[str, ...], directory: str) -> str:
    """Of this checkout and the judged `files`, by their names in `directory`."""
    under_test = [str(Path(directory, file).resolve()) for file in files]
    return hashlib.sha256("\0".join([str(ROOT), *under_test]).encode()).hexdigest()[:12]


@contextmanager
def own_cache(case: Case) -> Iterator[None]:
    """A directory of Triton's cache for this checkout and this judged file alone.

    Triton finds a compiled kernel by its text: a copy of a file would be answered with the lines, and the name, of the other.
    """
    from triton import knobs

    places = (address.rpartition(":")[0] for address in (case.contract, case.launcher))
    digest = _digest(tuple(place for place in places if place.endswith(".py")), os.getcwd())
    earlier = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = str(Path(knobs.cache.dir) / f"bitverdict-{digest}")
    try:
        yield
    finally:
        os.environ.pop("TRITON_CACHE_DIR") if earlier is None else os.environ.__setitem__("TRITON_CACHE_DIR", earlier)


@contextmanager
def _compilations(clock: Clock) -> Iterator[None]:
    """Put the compiler's own account of its time into the bucket `compile`, and what of it was a wait into `WAIT_BUCKET`."""
    from triton import knobs

    from bitverdict.harness.judge import compile_once

    previous_listener, initial_wait = knobs.compilation.listener, compile_once.wait_seconds

    def listener(**told: Any) -> None:
        clock.buckets["compile"] = clock.buckets.get("compile", 0.0) + told["times"].total / 1e6
        if previous_listener is not None:
            previous_listener(**told)

    knobs.compilation.listener = listener
    try:
        yield
    finally:
        knobs.compilation.listener = previous_listener
        if compile_once.wait_seconds > initial_wait:
            clock.buckets[WAIT_BUCKET] = clock.buckets.get(WAIT_BUCKET, 0.0) + compile_once.wait_seconds - initial_wait
