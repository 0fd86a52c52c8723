"""What a launcher returned, by name, and which of it is an operand that it wrote in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitverdict.harness.contracts.described.dtypes import format_of_result
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ReturnedOutputs:
    """`outputs` by name: an operand that is returned has its own, one output is "out", several "out 0", "out 1", ..."""

    outputs: dict[str, Any]
    written_operands: frozenset[str]

    @classmethod
    def from_result(cls, made: object, tensors: Mapping[str, torch.Tensor]) -> ReturnedOutputs:
        """Of `made`, a tensor, a tuple, a list or a mapping of them."""
        if isinstance(made, Mapping):
            made = tuple(made.values())
        listed = tuple(made) if isinstance(made, tuple | list) else (made,)
        found: dict[str, Any] = {}
        for place, each in enumerate(listed):
            own = next((name for name, tensor in tensors.items() if _is_operand(each, tensor)), None)
            found[own or ("out" if len(listed) == 1 else f"out {place}")] = each
        return cls(found, frozenset(name for name in found if name in tensors))

    def to_names(self) -> dict[str, Any]:
        """What another process is told of a launch: names alone (`Contract.left`)."""
        return {"outputs": list(self.outputs), "written": sorted(self.written_operands)}

    @classmethod
    def from_names(cls, left: Mapping[str, Any]) -> ReturnedOutputs:
        """What `left` told, without the outputs themselves."""
        return cls({str(name): None for name in left["outputs"]}, frozenset(str(name) for name in left["written"]))

    @property
    def formats_record(self) -> dict[str, Any]:
        """Names and formats, for `Contract.recorded`."""
        formats = {name: format_of_result(each.dtype) if hasattr(each, "dtype") else "" for name, each in self.outputs.items()}
        return {"outputs": [[name, kind] for name, kind in formats.items()]}


class ReturningContract(Contract):
    """A contract of a function that returns its outputs: what the last launch returned, held for the judge's questions."""

    def __init__(self) -> None:
        self._returned = ReturnedOutputs({}, frozenset())

    def written(self, case: Case) -> frozenset[str]:
        return self._returned.written_operands

    def recorded(self, case: Case) -> dict:
        return self._returned.formats_record

    def left(self) -> dict:
        return self._returned.to_names()

    def take(self, left: Mapping) -> None:
        self._returned = ReturnedOutputs.from_names(left)


def _is_operand(returned: Any, tensor: torch.Tensor) -> bool:
    """Whether what was returned is an operand, or a view of all of it."""
    if returned is tensor:
        return True
    try:
        return returned.data_ptr() == tensor.data_ptr() and returned.numel() == tensor.numel() > 0
    except (AttributeError, RuntimeError):
        return False
