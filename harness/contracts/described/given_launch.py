"""The contract of one launch on operands that are given: the mathematics was evaluated where they are, and came with them.

A case holds the operands and what is expected as bytes (NumPy's npz in base64), or names the file that holds them. So a reference
may be any function, and a reproducer needs nothing but the launcher.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.contracts.described.arguments import reference_errors
from bitverdict.harness.contracts.described.dtypes import FLOATS, INTEGERS
from bitverdict.harness.contracts.described.outputs import expected_output
from bitverdict.harness.contracts.described.returned_outputs import ReturnedOutputs, ReturningContract
from bitverdict.harness.model.case import CASE_VERSION, Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.usage import BodyError, UsageError

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.model.targets import Target
    from bitverdict.reference.tracing import TracedOutput

ADDRESS = "bitverdict.harness.contracts.described.given_launch:CONTRACT"
WITHIN = 1 << 20  # bytes that a case holds itself


@dataclass(frozen=True)
class GivenOperand:
    """What is known of an operand beside its words; of a number `value` is all."""

    name: str
    format: str = ""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None
    offset: int = 0
    value: int | float | bool | None = None


@dataclass(frozen=True)
class GivenLaunch:
    """`data` are the words of the operands and the expected outputs, or `file` holds them. `outputs`: kind of each output."""

    operands: tuple[GivenOperand, ...]
    outputs: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()
    exact: bool = False
    declared: tuple[str, ...] = ()
    data: str = ""
    file: str = ""

    def describe_parts(self) -> list[str]:
        """What a report says of it."""
        return [
            f"{each.name}={each.format}{str(each.shape).replace(' ', '')}" if each.format else f"{each.name}={each.value}"
            for each in self.operands
        ]


class GivenOutput:
    """An output of a trace as it was sent: `bitverdict.reference.tracing.TracedOutput`, as far as it is asked."""

    def __init__(self, kind: str, arrays: Mapping[str, np.ndarray], place: int, declared: tuple[str, ...]) -> None:
        self.kind, self.round_to_formats = kind, frozenset(declared)
        self._arrays, self._place = arrays, place
        self.value, self.error = self._array("value"), self._array("error")
        self.unknown, self.no_write_mask = self._array("unknown"), self._array("no_write_mask")
        self.shape = self.value.shape

    def _array(self, name: str) -> np.ndarray:
        return self._arrays[f"out {self._place} {name}"]

    def interval(self, format: str) -> tuple[np.ndarray, ...]:
        """As the trace gives it."""
        return tuple(self._array(f"{format} {part}") for part in PARTS)


PARTS = ("low", "high", "or nan", "open")


def trace_problem(
    operands: Sequence[GivenOperand],
    codes: Mapping[str, np.ndarray],
    reference: Callable[..., object],
    arch: str,
    accumulation: str,
    *,
    exact: bool,
    returns: tuple[str, ...],
) -> tuple[GivenLaunch, bytes]:
    """The problem of a launch on `operands` of `arch`, and the bytes that it is to hold or to name the file of."""
    from bitverdict.reference.tracing import trace

    arguments = [(each.format, codes[each.name]) if each.format else each.value for each in operands]
    arrays = {f"operand {name}": words for name, words in codes.items()}
    with reference_errors():
        outputs = trace(reference, arguments, {}, arch=arch, accumulation=accumulation)
        if returns and len(returns) != len(outputs):
            raise UsageError(f"returns names {len(returns)} formats and the reference returns {len(outputs)} outputs")
        for place, output in enumerate(outputs):
            arrays |= _output_arrays(place, output, (returns[place],) if returns else _may_be_stored_in(output.kind))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    problem = GivenLaunch(
        operands=tuple(operands),
        outputs=tuple(output.kind for output in outputs),
        returns=returns,
        exact=exact,
        declared=tuple(sorted(outputs[0].round_to_formats)) if outputs else (),
    )
    return problem, buffer.getvalue()


def _output_arrays(place: int, output: TracedOutput, formats: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of one output, by the names that `GivenOutput` finds them by."""
    found = {f"out {place} {name}": np.asarray(getattr(output, name)) for name in ("value", "error", "unknown", "no_write_mask")}
    for format_name in formats:
        parts = zip(PARTS, output.interval(format_name), strict=True)
        found |= {f"out {place} {format_name} {part}": np.asarray(array) for part, array in parts}
    return found


def _may_be_stored_in(kind: str) -> tuple[str, ...]:
    return {"float": FLOATS, "integer": (*INTEGERS, *FLOATS), "bool": ("bool",)}[kind]


def with_data(problem: GivenLaunch, data: bytes) -> GivenLaunch:
    """`problem` with the bytes in it."""
    return dataclasses.replace(problem, data=base64.b64encode(data).decode())


class GivenContract(ReturningContract):
    """See the module."""

    any_launcher = True
    must_launch = True
    remedy = "give it operands that it takes"
    stem = "given"
    address = ADDRESS

    def case_from_json(self, record: Mapping) -> Case:
        problem = record.get("problem")
        if record.get("version") != CASE_VERSION or not isinstance(problem, Mapping):
            raise UsageError(f"case of version {record.get('version')!r}: must be of version {CASE_VERSION}, with a problem")
        try:
            fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in problem.items()}
            fields.pop("untraceable", None)  # of older releases: why there are no outputs
            listed = [{name: _tuple(value) for name, value in each.items()} for each in fields.pop("operands")]
            made = GivenLaunch(operands=tuple(GivenOperand(**each) for each in listed), **fields)
            rest = {name: record[name] for name in ("contract", "regime", "data_seed", "schedule", "launcher")}
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"case of given operands: {error}: it was cut or edited; take it from its run again") from error
        return Case(problem=made, **rest)

    def operands(self, case: Case) -> list[Operand]:
        arrays = _arrays(case.problem)
        return [
            Operand(
                name=each.name, format=each.format, codes=arrays[f"operand {each.name}"], strides=each.strides, offset=each.offset
            )
            for each in case.problem.operands
            if each.format
        ]

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, Any]:
        assert launcher is not None
        made = launcher(*(tensors[each.name] if each.format else each.value for each in case.problem.operands))
        self._returned = ReturnedOutputs.from_result(made, tensors)
        return self._returned.outputs

    def to_launch(self, case: Case) -> Case:
        told = dataclasses.replace(case.problem, outputs=(), returns=(), data="", file="")
        return dataclasses.replace(case, problem=told)

    def declared(self, case: Case) -> frozenset[str] | None:
        return frozenset(case.problem.declared)

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        problem: GivenLaunch = case.problem
        returned_outputs = [(str(name), str(kind)) for name, kind in recorded["outputs"]]
        if len(returned_outputs) != len(problem.outputs):
            raise BodyError(
                f"the function returns {len(returned_outputs)} outputs and the reference "
                f"{len(problem.outputs)}: they must be the same, in the "
                "same order"
            )
        arrays, exact = _arrays(problem), problem.exact
        expected = []
        for place, ((name, came_as), kind) in enumerate(zip(returned_outputs, problem.outputs, strict=True)):
            output: Any = GivenOutput(kind, arrays, place, problem.declared)
            due = problem.returns[place] if problem.returns else came_as
            expected.append(expected_output(name, due, output, before=operands.get(name), run_record=recorded, exact=exact))
        return expected


def _tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _arrays(problem: GivenLaunch) -> Mapping[str, np.ndarray]:
    return _read(problem.data, problem.file)


@lru_cache(maxsize=2)
def _read(data: str, file: str) -> Mapping[str, np.ndarray]:
    try:
        held = base64.b64decode(data, validate=True) if data else Path(file).read_bytes()
        with np.load(io.BytesIO(held), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, binascii.Error) as error:
        place = f"file {file}" if file else "data"
        raise UsageError(
            f"case of given operands: its {place} cannot be read ({error}); assert it again where it came from"
        ) from None


CONTRACT = GivenContract()
