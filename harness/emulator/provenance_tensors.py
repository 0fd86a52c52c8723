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
from bitverdict.harness.emulator.memory.provenance import FILLED, OPERAND, UNWRITTEN, Kind, Provenance

MOVES = {
    "clone", "_to_copy", "contiguous", "cat", "stack", "repeat", "flip", "roll", "constant_pad_nd", "lift_fresh_copy",
    "slice_copy", "select_copy", "expand_copy", "permute_copy", "transpose_copy", "view_copy", "_reshape_copy", "diagonal_copy",
    "unfold_copy", "alias_copy", "detach_copy", "squeeze_copy", "unsqueeze_copy", "as_strided_copy", "rot90", "_unsafe_view",
}  # fmt: skip
"""Operators that read elements of their first argument, or of the list that it is, at places that sizes and numbers say."""
PICKS = {"index", "index_select", "gather", "take", "repeat_interleave", "masked_select", "embedding"}
"""Operators that read elements of their first argument at places that other tensors say."""
SAME = {"clone", "_to_copy", "contiguous", "lift_fresh_copy", "alias_copy", "detach_copy"}
"""The moves that leave each element at its place."""
UNFILLED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
ZEROED = {"zeros", "zeros_like", "new_zeros"}
FULL = {"full": 1, "full_like": 1, "new_full": 2}
"""Functions that allocate and fill: the place of the value among their arguments."""
ONES = {"ones", "ones_like", "new_ones"}
FROM_HOST = {"tensor", "as_tensor", "asarray", "scalar_tensor", "new_tensor", "from_file"}
"""Functions that make a tensor of words that the host has; whatever else allocates has computed them."""
_ELSEWHERE = ("dtype", "device", "layout", "pin_memory")


class ProvenanceTensors(Watches):
    """What happens to tensors of one device between launches."""

    def __init__(self, provenance: Provenance) -> None:
        self.provenance = provenance

    def placed(self, tensor: torch.Tensor) -> None:
        if tensor.numel():
            self.provenance.known(tensor)  # one that nobody told of is from before the call

    def made(self, tensor: torch.Tensor, function: str, args: tuple, kwargs: dict) -> None:
        known, value = self.provenance, 1
        if function in FULL:
            value = kwargs.get("fill_value", args[FULL[function]] if len(args) > FULL[function] else 1)
        if kwargs.get("out") is not None:
            known.put(tensor, known.now(Kind.TORCH, function, None))
        elif function in UNFILLED:
            known.allocated(tensor, UNWRITTEN)
        elif function in ZEROED or function in ONES or function in FULL:
            known.allocated(tensor, self._constant(0 if function in ZEROED else value, function, whole=True))
        else:
            kind = Kind.HOST if function in FROM_HOST else Kind.TORCH
            known.allocated(tensor, known.now(kind, function, [*tensors_in((args, kwargs))]))

    def arrived(self, tensor: torch.Tensor, by: str) -> None:
        self.provenance.allocated(tensor, self.provenance.now(Kind.HOST, by))

    def left(self, tensor: torch.Tensor, what: str) -> None:
        self.provenance.left(tensor, what)

    def run(self, function: Any, args: tuple, kwargs: dict, written: list[torch.Tensor], call: Callable[[], Any]) -> Any:
        name = function._schema.name.split("::")[-1]
        plain, given = name.rstrip("_"), [*tensors_in((args, kwargs))]
        if torch.Tag.inplace_view in function.tags:
            return call()
        into = [*tensors_in(written)]
        before = [_bytes(each) for each in into] if into and plain not in ("copy", "zero", "fill") else []
        sources = [each for each in given if self.provenance.knows(each)]
        held = self._held(plain, sources, into)
        made = call()
        self._undeclared(name, held, given)
        if into:
            for place, each in enumerate(into):
                if before and before[place].shape[0] != each.numel():  # it was resized, as empty results are: all of it is new
                    self.provenance.allocated(each, self.provenance.now(Kind.TORCH, plain, given))
                elif self.provenance.knows(each):
                    self._changed(plain, each, args, before[place] if before else None, given)
                elif sources:
                    self.provenance.left(sources[0], name)
            return made
        bases = {each.untyped_storage().data_ptr() for each in given}
        results = [*tensors_in(made)]
        if sources and (not results or torch.Tag.dynamic_output_shape in function.tags):  # a number, a truth, or a size
            self.provenance.left(sources[0], {"_local_scalar_dense": "item"}.get(name, name))
        for result in results:
            if result.numel() and result.untyped_storage().data_ptr() not in bases:
                self._new(plain, function, result, args, kwargs)
        return made

    def _held(self, name: str, sources: list[torch.Tensor], into: list[torch.Tensor]) -> dict[int, tuple[torch.Tensor, np.ndarray]]:
        """By where they begin, the storages of `sources` that the operator `name` does not say it writes, with their bytes."""
        written = {each.untyped_storage().data_ptr() for each in into}
        if name in MOVES or name in PICKS or name in UNFILLED:
            return {}
        return {
            base: (each, _storage(each).copy())
            for each in sources
            if (base := each.untyped_storage().data_ptr()) not in written and each.untyped_storage().nbytes()
        }

    def _undeclared(self, name: str, held: dict[int, tuple[torch.Tensor, np.ndarray]], given: list[torch.Tensor]) -> None:
        """What an operator wrote and its schema does not declare is torch's: `native_batch_norm` writes its running mean."""
        for each, before in held.values():
            now = _storage(each)
            if now.size == before.size and not np.array_equal(now, before):
                self.provenance.known(each).numbers[now != before] = self.provenance.now(Kind.TORCH, name, given)

    # -- what an operation gives --------------------------------------------------------------------------------------------
    def _new(self, name: str, function: Any, result: torch.Tensor, args: tuple, kwargs: dict) -> None:
        """The origins of `result`, which `function` made in memory of its own."""
        known = self.provenance
        if name in UNFILLED or name in ZEROED or name in ONES or name in FULL or name in FROM_HOST:
            self.made(result, name, args, kwargs)
            return
        numbers: int | np.ndarray | None = None
        if name in MOVES or name in PICKS:
            numbers = self._moved(name, function, args, kwargs)
        if numbers is None:
            known.allocated(result, known.now(Kind.TORCH, name, [*tensors_in((args, kwargs))]))
            return
        known.allocated(result, UNWRITTEN)
        if not (name in SAME and known.copied(args[0], result)):
            numbers = self._copied(name, numbers)
        known.put(result, numbers)

    def _moved(self, name: str, function: Any, args: tuple, kwargs: dict) -> int | np.ndarray | None:
        """The origins of what `function` moves, by itself on the origins of its first argument; None where that cannot be."""
        several = isinstance(args[0], list | tuple)
        first = list(args[0]) if several else [args[0]]
        if name == "embedding" or not all(isinstance(each, torch.Tensor) for each in first):
            return None
        held = [self._of(each, name) for each in first]
        found: int | np.ndarray
        lowest, highest = min(int(each.min(initial=255)) for each in held), max(int(each.max(initial=0)) for each in held)
        if lowest == highest and name != "constant_pad_nd":
            found = lowest
        else:
            rest, numbers = list(args[1:]), [torch.from_numpy(np.ascontiguousarray(each)) for each in held]
            if name == "constant_pad_nd":
                value = rest[1] if len(rest) > 1 else kwargs.get("value", 0)
                rest[1:] = [self._constant(value, name, whole=True)]
            moved_by = {key: value for key, value in kwargs.items() if key not in (*_ELSEWHERE, "value")}
            found = function(numbers if several else numbers[0], *rest, **moved_by).numpy()
        if name in PICKS or (several and len(first) > 1 and self._chosen(first)):
            return self._picked(name, found)
        return found

    def _chosen(self, pieces: list[torch.Tensor]) -> bool:
        """Whether some of `pieces` are parts of tensors, which the host may have chosen by what it has read."""
        known = self.provenance
        return known.steers and any(each.numel() and not (known.knows(each) and known.is_whole(each)) for each in pieces)

    def _constant(self, value: Any, by: str, *, whole: bool) -> int:
        """The number of the origin of elements that all get one `value` of the host's, in a `whole` tensor or a part of it. Before
        the host has read anything it knows of no result: it fills. Afterwards zeros in a whole tensor are as innocent."""
        if isinstance(value, int | float | complex) and (not self.provenance.reads or (whole and _is_zero(value))):
            return FILLED
        return self.provenance.now(Kind.HOST, by)

    def _of(self, tensor: torch.Tensor, by: str) -> np.ndarray:
        """(...) the origins of a source's elements; one that is not the device's is the host's."""
        if self.provenance.knows(tensor):
            return self.provenance.of(tensor)
        number = self._constant(tensor.item(), by, whole=False) if tensor.numel() == 1 else self.provenance.now(Kind.HOST, by)
        return np.full(tuple(tensor.shape), number, np.uint8)

    def _picked(self, name: str, numbers: int | np.ndarray) -> np.ndarray:
        """Of `numbers` those that a kernel wrote, or nobody, are computed by the operator `name` that picked them by data."""
        found = np.asarray(numbers, np.uint8)
        return np.where(found <= FILLED, np.uint8(self.provenance.now(Kind.TORCH, name, None)), found)

    def _copied(self, name: str, numbers: int | np.ndarray) -> np.ndarray:
        """`numbers`, of which words of operands lie elsewhere now."""
        found = np.asarray(numbers, np.uint8)
        if not (found == OPERAND).any():
            return found
        return np.where(found == OPERAND, np.uint8(self.provenance.now(Kind.COPIED, name)), found)

    def _changed(self, name: str, target: torch.Tensor, args: tuple, before: np.ndarray | None, given: list[torch.Tensor]) -> None:
        """The origins of `target`, into which the operator `name` wrote, `given` some tensors. Words that it left as they were keep
        theirs."""
        known = self.provenance
        if before is None:
            source: Any = args[1] if len(args) > 1 else 0
            if isinstance(source, torch.Tensor):
                numbers: int | np.ndarray = self._of(source, name)
                if not known.copied(source, target):
                    numbers = self._copied(name, numbers)
                if not known.is_whole(target) and self._chosen([source]):
                    numbers = self._picked(name, numbers)
            else:
                numbers = self._constant(source, name, whole=known.is_whole(target))
            known.put(target, numbers)
            return
        found = known.of(target)
        changed = (_bytes(target) != before).reshape(*target.shape, -1).any(-1) | (found == UNWRITTEN)
        if changed.any():
            known.put(target, np.where(changed, np.uint8(known.now(Kind.TORCH, name, given)), found))


def _is_zero(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) and value == 0 and str(value) not in ("-0.0", "-0j")


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """(elements, bytes of one) of `tensor` (CPU), copied: torch resizes no storage that NumPy has seen."""
    copied = tensor.detach().contiguous().view(-1).view(torch.uint8).clone()
    return copied.numpy().reshape(tensor.numel(), tensor.element_size())


def _storage(tensor: torch.Tensor) -> np.ndarray:
    """(bytes,) the storage of `tensor` (CPU)."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()


__all__ = ["MOVES", "PICKS", "ProvenanceTensors"]
