"""Origins of bytes through operations of torch on tensors of the emulated GPU (`memory.provenance`).

Views change nothing: origins lie beside storages. `MOVES` are the operators that put elements where sizes and numbers in the call
say, and round them at most: an element keeps its origin. `PICKS` put them where data say. That is work: what a kernel had written
is torch's then. An operand's words stay copies of an operand's, since no kernel had made them. What any other operator makes is
computed by it, and so is what it writes without saying so. Once the host has read what may tell of a result, parts of tensors that
are joined are work too: the host has chosen them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bitverdict.harness.emulator.cuda_tensors import Watches, tensors_in
from bitverdict.harness.emulator.memory.provenance import CONSTANT_FILL, OPERAND, UNWRITTEN, Kind, Provenance
from bitverdict.harness.model.torch_internals import OpOverload, name_of

MOVES = {
    "clone", "_to_copy", "contiguous", "cat", "stack", "repeat", "flip", "roll", "constant_pad_nd", "lift_fresh_copy",
    "slice_copy", "select_copy", "expand_copy", "permute_copy", "transpose_copy", "view_copy", "_reshape_copy", "diagonal_copy",
    "unfold_copy", "alias_copy", "detach_copy", "squeeze_copy", "unsqueeze_copy", "as_strided_copy", "rot90", "_unsafe_view",
}  # fmt: skip
"""Operators that read elements of their first argument, or of the list that it is, at places that sizes and numbers say."""
PICKS = {"index", "index_select", "gather", "take", "repeat_interleave", "masked_select", "embedding"}
"""Operators that read elements of their first argument at places that other tensors say."""
IDENTITY_MOVES = {"clone", "_to_copy", "contiguous", "lift_fresh_copy", "alias_copy", "detach_copy"}
"""The moves that leave each element at its place."""
UNFILLED_FUNCTIONS = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
ZERO_FUNCTIONS = {"zeros", "zeros_like", "new_zeros"}
FULL = {"full": 1, "full_like": 1, "new_full": 2}
"""Functions that allocate and fill: the place of the value among their arguments."""
ONES_FUNCTIONS = {"ones", "ones_like", "new_ones"}
FROM_HOST = {"tensor", "as_tensor", "asarray", "scalar_tensor", "new_tensor", "from_file"}
"""Functions that make a tensor of words that the host has; whatever else allocates has computed them."""
_PLACEMENT_KEYWORDS = ("dtype", "device", "layout", "pin_memory")


class ProvenanceTensors(Watches):
    """What happens to tensors of one device between launches."""

    def __init__(self, provenance: Provenance) -> None:
        self.provenance = provenance

    def on_placement(self, tensor: torch.Tensor) -> None:
        if tensor.numel():
            self.provenance.memory_of(tensor)  # one that nobody told of is from before the call

    def on_allocation(self, tensor: torch.Tensor, function: str, args: tuple, kwargs: dict) -> None:
        provenance, value = self.provenance, 1
        if function in FULL:
            value = kwargs.get("fill_value", args[FULL[function]] if len(args) > FULL[function] else 1)
        if kwargs.get("out") is not None:
            provenance.put(tensor, provenance.current_number(Kind.TORCH, function, None))
        elif function in UNFILLED_FUNCTIONS:
            provenance.note_allocation(tensor, UNWRITTEN)
        elif function in ZERO_FUNCTIONS or function in ONES_FUNCTIONS or function in FULL:
            provenance.note_allocation(tensor, self._constant(0 if function in ZERO_FUNCTIONS else value, function, whole=True))
        else:
            kind = Kind.HOST if function in FROM_HOST else Kind.TORCH
            provenance.note_allocation(tensor, provenance.current_number(kind, function, [*tensors_in((args, kwargs))]))

    def on_upload(self, tensor: torch.Tensor, by: str) -> None:
        self.provenance.note_allocation(tensor, self.provenance.current_number(Kind.HOST, by))

    def on_host_read(self, tensor: torch.Tensor, what: str) -> None:
        self.provenance.note_host_read(tensor, what)

    def run(self, function: OpOverload, args: tuple, kwargs: dict, outputs: list[torch.Tensor], call: Callable[[], object]) -> Any:
        name = name_of(function)
        operator_name, input_tensors = name.rstrip("_"), [*tensors_in((args, kwargs))]
        if torch.Tag.inplace_view in function.tags:
            return call()
        into = [*tensors_in(outputs)]
        before = [_bytes(tensor) for tensor in into] if into and operator_name not in ("copy", "zero", "fill") else []
        sources = [tensor for tensor in input_tensors if self.provenance.knows(tensor)]
        held = self._snapshot_storages(operator_name, sources, into)
        output = call()
        self._note_undeclared(name, held, input_tensors)
        if into:
            for place, tensor in enumerate(into):
                if before and before[place].shape[0] != tensor.numel():  # it was resized, as empty results are: all of it is new
                    self.provenance.note_allocation(
                        tensor, self.provenance.current_number(Kind.TORCH, operator_name, input_tensors)
                    )
                elif self.provenance.knows(tensor):
                    self._note_change(operator_name, tensor, args, before[place] if before else None, input_tensors)
                elif sources:
                    self.provenance.note_host_read(sources[0], name)
            return output
        bases = {tensor.untyped_storage().data_ptr() for tensor in input_tensors}
        results = [*tensors_in(output)]
        if sources and (not results or torch.Tag.dynamic_output_shape in function.tags):  # a number, a truth, or a size
            self.provenance.note_host_read(sources[0], {"_local_scalar_dense": "item"}.get(name, name))
        for result in results:
            if result.numel() and result.untyped_storage().data_ptr() not in bases:
                self._note_new_tensor(operator_name, function, result, args, kwargs)
        return output

    def _snapshot_storages(
        self, name: str, sources: list[torch.Tensor], into: list[torch.Tensor]
    ) -> dict[int, tuple[torch.Tensor, np.ndarray]]:
        """By where they begin, the storages of `sources` that the operator `name` does not say it writes, with their bytes."""
        written_bases = {tensor.untyped_storage().data_ptr() for tensor in into}
        if name in MOVES or name in PICKS or name in UNFILLED_FUNCTIONS:
            return {}
        return {
            base: (tensor, _storage(tensor).copy())
            for tensor in sources
            if (base := tensor.untyped_storage().data_ptr()) not in written_bases and tensor.untyped_storage().nbytes()
        }

    def _note_undeclared(self, name: str, held: dict[int, tuple[torch.Tensor, np.ndarray]], given: list[torch.Tensor]) -> None:
        """What an operator wrote and its schema does not declare is torch's: `native_batch_norm` writes its running mean."""
        for each, before in held.values():
            now = _storage(each)
            if now.size == before.size and not np.array_equal(now, before):
                self.provenance.memory_of(each).numbers[now != before] = self.provenance.current_number(Kind.TORCH, name, given)

    # -- what an operation gives --------------------------------------------------------------------------------------------
    def _note_new_tensor(self, name: str, function: OpOverload, result: torch.Tensor, args: tuple, kwargs: dict) -> None:
        """The origins of `result`, which `function` made in memory of its own."""
        provenance = self.provenance
        if name in UNFILLED_FUNCTIONS or name in ZERO_FUNCTIONS or name in ONES_FUNCTIONS or name in FULL or name in FROM_HOST:
            self.on_allocation(result, name, args, kwargs)
            return
        numbers: int | np.ndarray | None = None
        if name in MOVES or name in PICKS:
            numbers = self._move_origins(name, function, args, kwargs)
        if numbers is None:
            provenance.note_allocation(result, provenance.current_number(Kind.TORCH, name, [*tensors_in((args, kwargs))]))
            return
        provenance.note_allocation(result, UNWRITTEN)
        if not (name in IDENTITY_MOVES and provenance.note_copy(args[0], result)):
            numbers = self._copy_origins(name, numbers)
        provenance.put(result, numbers)

    def _move_origins(self, name: str, function: OpOverload, args: tuple, kwargs: dict) -> int | np.ndarray | None:
        """The origins of what `function` moves, by itself on the origins of its first argument; None where that cannot be."""
        several = isinstance(args[0], list | tuple)
        first_tensors = list(args[0]) if several else [args[0]]
        if name == "embedding" or not all(isinstance(item, torch.Tensor) for item in first_tensors):
            return None
        origin_arrays = [self._origins_of_source(item, name) for item in first_tensors]
        moved_origins: int | np.ndarray
        lowest, highest = (
            min(int(item.min(initial=255)) for item in origin_arrays),
            max(int(item.max(initial=0)) for item in origin_arrays),
        )
        if lowest == highest and name != "constant_pad_nd":
            moved_origins = lowest
        else:
            rest, numbers = list(args[1:]), [torch.from_numpy(np.ascontiguousarray(item)) for item in origin_arrays]
            if name == "constant_pad_nd":
                value = rest[1] if len(rest) > 1 else kwargs.get("value", 0)
                rest[1:] = [self._constant(value, name, whole=True)]
            moved_by = {key: value for key, value in kwargs.items() if key not in (*_PLACEMENT_KEYWORDS, "value")}
            moved_origins = function(numbers if several else numbers[0], *rest, **moved_by).numpy()
        if name in PICKS or (several and len(first_tensors) > 1 and self._is_chosen_by_host(first_tensors)):
            return self._pick_origins(name, moved_origins)
        return moved_origins

    def _is_chosen_by_host(self, pieces: list[torch.Tensor]) -> bool:
        """Whether some of `pieces` are parts of tensors, which the host may have chosen by what it has read."""
        known = self.provenance
        return known.steers and any(each.numel() and not (known.knows(each) and known.is_whole(each)) for each in pieces)

    def _constant(self, value: object, by: str, *, whole: bool) -> int:
        """The number of the origin of elements that all get one `value` of the host's, in a `whole` tensor or a part of it. Before
        the host has read anything it knows of no result: it fills. Afterwards zeros in a whole tensor are as innocent."""
        if isinstance(value, int | float | complex) and (not self.provenance.reads or (whole and _is_zero(value))):
            return CONSTANT_FILL
        return self.provenance.current_number(Kind.HOST, by)

    def _origins_of_source(self, tensor: torch.Tensor, by: str) -> np.ndarray:
        """(...) the origins of a source's elements; one that is not the device's is the host's."""
        if self.provenance.knows(tensor):
            return self.provenance.element_origins(tensor)
        number = (
            self._constant(tensor.item(), by, whole=False) if tensor.numel() == 1 else self.provenance.current_number(Kind.HOST, by)
        )
        return np.full(tuple(tensor.shape), number, np.uint8)

    def _pick_origins(self, name: str, numbers: int | np.ndarray) -> np.ndarray:
        """Of `numbers` those that a kernel wrote, or nobody, are computed by the operator `name` that picked them by data."""
        found = np.asarray(numbers, np.uint8)
        return np.where(found <= CONSTANT_FILL, np.uint8(self.provenance.current_number(Kind.TORCH, name, None)), found)

    def _copy_origins(self, name: str, numbers: int | np.ndarray) -> np.ndarray:
        """`numbers`, of which words of operands lie elsewhere now."""
        found = np.asarray(numbers, np.uint8)
        if not (found == OPERAND).any():
            return found
        return np.where(found == OPERAND, np.uint8(self.provenance.current_number(Kind.COPY, name)), found)

    def _note_change(
        self, name: str, target: torch.Tensor, args: tuple, before: np.ndarray | None, input_tensors: list[torch.Tensor]
    ) -> None:
        """The origins of `target`, into which the operator `name` wrote, from `input_tensors`. Words that it left as they were keep
        theirs."""
        provenance = self.provenance
        if before is None:
            source: Any = args[1] if len(args) > 1 else 0
            if isinstance(source, torch.Tensor):
                numbers: int | np.ndarray = self._origins_of_source(source, name)
                if not provenance.note_copy(source, target):
                    numbers = self._copy_origins(name, numbers)
                if not provenance.is_whole(target) and self._is_chosen_by_host([source]):
                    numbers = self._pick_origins(name, numbers)
            else:
                numbers = self._constant(source, name, whole=provenance.is_whole(target))
            provenance.put(target, numbers)
            return
        found = provenance.element_origins(target)
        changed = (_bytes(target) != before).reshape(*target.shape, -1).any(-1) | (found == UNWRITTEN)
        if changed.any():
            provenance.put(target, np.where(changed, np.uint8(provenance.current_number(Kind.TORCH, name, input_tensors)), found))


def _is_zero(value: object) -> bool:
    return not isinstance(value, torch.Tensor) and value == 0 and str(value) not in ("-0.0", "-0j")


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """(elements, bytes of one) of `tensor` (CPU), copied: torch resizes no storage that NumPy has seen."""
    copied = tensor.detach().contiguous().view(-1).view(torch.uint8).clone()
    return copied.numpy().reshape(tensor.numel(), tensor.element_size())


def _storage(tensor: torch.Tensor) -> np.ndarray:
    """(bytes,) the storage of `tensor` (CPU)."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()


__all__ = ["MOVES", "PICKS", "ProvenanceTensors"]
