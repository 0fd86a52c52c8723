"""Real values through operations of torch between launches, on tensors of the emulated GPU.

A launcher that scales, adds or converts with torch computes as its kernels do. What only moves elements moves their real values;
sums, products and extremes have a rule. Of any other operation the floats are unknown by its name, and so are integers that it
makes of computed floats. What a launcher copies to the host it may choose by: nothing is known of what later launches write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bitverdict.harness.emulator.cuda_tensors import Watches, tensors_in
from bitverdict.harness.emulator.memory.real_memory import RealMemory, storage_of, words_of
from bitverdict.harness.emulator.memory.real_shadows import EXACT, Shadow, ShadowWords, make_shadow_words, read_as, value_of
from bitverdict.harness.emulator.numerics.real_values import (
    EXTREMES,
    Real,
    absolute,
    add,
    divide,
    multiply,
    negative,
    square_root,
    subtract,
    sum_along,
)
from bitverdict.harness.model.torch_internals import OpOverload, name_of, schema_of

_MOVES = {  # what reads elements of its first argument, or of the list that it is, by places that the other arguments say
    "clone", "_to_copy", "cat", "stack", "index_select", "index", "gather", "take", "repeat", "flip", "roll", "contiguous",
    "slice_copy", "select_copy", "expand_copy", "permute_copy", "transpose_copy", "view_copy", "_reshape_copy", "lift_fresh_copy",
}  # fmt: skip
_ONE_REAL = Real(np.float64(1))
_EXACT = {  # gives exact floats where it is given such
    "max", "min", "sort", "topk", "median", "kthvalue", "where", "masked_select", "masked_fill", "relu", "clamp", "clamp_min",
    "clamp_max", "round", "floor", "ceil", "trunc", "sign", "sgn", "fmod", "index_put", "scatter", "constant_pad_nd", "unique",
    "index_fill", "index_copy", "tril", "triu", "slice_scatter", "select_scatter", "diag", "diagonal_copy", "cummax", "cummin",
    "nan_to_num", "unfold_copy", "repeat_interleave",
}  # fmt: skip
_FOLDS = ("sum", "mean", "amax", "amin", "max", "min")
_ARITHMETIC: dict[str, Callable[..., Real]] = {
    "add": add, "sub": subtract, "mul": multiply, "div": divide, "neg": negative, "abs": absolute, "sqrt": square_root,
    "maximum": EXTREMES["arith.maximumf"], "minimum": EXTREMES["arith.minimumf"], "rsub": lambda a, b: subtract(b, a),
    "reciprocal": lambda a: divide(_ONE_REAL, a), "rsqrt": lambda a: divide(_ONE_REAL, square_root(a)),
    "square": lambda a: multiply(a, a),
}  # fmt: skip
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "resize", "zeros_like", "ones_like", "full_like", "new_zeros",
          "new_ones", "new_full", "rand_like", "randn_like", "randint_like"}  # fmt: skip
_SETS = {"zero", "fill", "normal", "uniform", "random", "bernoulli", "exponential"}


class RealTensors(Watches):
    """What happens to tensors of one device between launches. `hang` is told why something is unknown."""

    def __init__(self, memory: RealMemory, hang: Callable[[str], None]) -> None:
        self.memory, self.hang = memory, hang

    def on_placement(self, tensor: torch.Tensor) -> None:
        """`tensor` (CPU) is one of the device now: what lay at its place before it is gone."""
        kept = self.memory.storages.get(tensor.untyped_storage().data_ptr())
        if kept is not None and kept.storage.expired():
            del self.memory.storages[tensor.untyped_storage().data_ptr()]

    def on_host_read(self, tensor: torch.Tensor, what: str) -> None:
        """The host has seen the words of `tensor`."""
        if not self.memory.is_lost and self._hangs(self._shadow_words(tensor), tensor):
            self.memory.is_lost = True
            self.hang(what)

    def run(
        self, function: OpOverload, args: tuple, kwargs: dict, written_tensors: list[torch.Tensor], call: Callable[[], object]
    ) -> Any:
        """`call()`, which is `function` on `args` and `kwargs` (CPU), of which it writes to `written_tensors`."""
        name = name_of(function)
        operator_name, input_tensors = name.rstrip("_"), [*tensors_in((args, kwargs))]
        inexact, rule = False, None
        try:
            inexact = any(self._shadow_words(tensor) is not None for tensor in input_tensors)
            rule = (
                None
                if operator_name in _EMPTY
                else self._rule(operator_name, function, args, kwargs, inexact, bool(written_tensors))
            )
        except Exception:  # of operands that torch refuses too, in its own words, or that nothing here foresees

            def rule(result: torch.Tensor) -> ShadowWords | None:
                return self._lose_result(result, operator_name, True)

        output = call()
        bases = {tensor.untyped_storage().data_ptr() for tensor in input_tensors}
        results = written_tensors or [tensor for tensor in tensors_in(output) if tensor.untyped_storage().data_ptr() not in bases]
        if operator_name == "_local_scalar_dense":
            self.on_host_read(input_tensors[0], "item")
        for result in results:
            try:
                self._put(result, None if rule is None else rule(result))
            except Exception:  # the launcher must not fail for what nobody asked it
                self.memory.is_lost = True
                self.hang(f"torch {operator_name}")
        return output

    # -- what an operation gives --------------------------------------------------------------------------------------------
    def _rule(
        self, name: str, function: OpOverload, args: tuple, kwargs: dict, inexact: bool, in_place: bool
    ) -> Callable[[torch.Tensor], ShadowWords | None] | None:
        """What gives the real values of a result of the operation `name`; None where it is exact."""
        sources = [*tensors_in((args, kwargs))]
        if not sources or (in_place and name in _SETS and len(sources) == 1):
            return None
        if not inexact and _keeps_words(name, sources, args, kwargs, in_place):
            return None
        if name in ("copy", "fill") and in_place:
            held = self._real(args[1]), tuple(args[0].shape)
            return lambda result: _round_result(result, *(np.broadcast_to(each, held[1]) for each in held[0]))
        if not inexact and name != "_to_copy" and not any(each.is_floating_point() for each in sources):
            return lambda result: self._lose_result(result, name, inexact)  # floats that it makes of exact integers
        if name in _MOVES and not in_place:
            return self._moves(function, args, kwargs, inexact)
        if name in _EXACT and not inexact:
            return None
        found = self._compute_real(name, args, kwargs)
        if found is not None:
            return lambda result: _round_result(result, *found)
        return lambda result: self._lose_result(result, name, inexact)

    def _moves(
        self, function: OpOverload, args: tuple, kwargs: dict, inexact: bool
    ) -> Callable[[torch.Tensor], ShadowWords | None]:
        first = args[0] if isinstance(args[0], list | tuple) else [args[0]]
        if not all(isinstance(item, torch.Tensor) for item in first):
            return lambda result: self._lose_result(result, schema_of(function).name, inexact)
        real_parts, at, count = [self._real(item) for item in first], [], 0
        for item in first:
            at.append(torch.arange(count, count + item.numel()).view(item.shape))
            count += item.numel()
        moved_by = {name: value for name, value in kwargs.items() if name not in ("dtype", "device", "layout", "pin_memory")}
        places = function(at if isinstance(args[0], list | tuple) else at[0], *args[1:], **moved_by).numpy()
        value, error = (np.concatenate([np.ravel(item[part]) for item in real_parts])[places] for part in (0, 1))
        return lambda result: _round_result(result, value, error)

    def _compute_real(self, name: str, args: tuple, kwargs: dict) -> tuple[np.ndarray, np.ndarray] | None:
        """The real values of a result, where the operation has a rule."""
        with np.errstate(all="ignore"):
            if name in _ARITHMETIC and not set(kwargs) - {"alpha"} and len(args) <= 2:
                reals = [Real(*self._real(each)) if isinstance(each, torch.Tensor) else Real(np.float64(each)) for each in args]
                if "alpha" in kwargs:
                    reals[1] = multiply(reals[1], Real(np.float64(kwargs["alpha"])))
                return _parts(_ARITHMETIC[name](*reals))
            most = 1 if name in ("max", "min") else 3
            if name in _FOLDS and len(args) <= most and not set(kwargs) - {"dtype"}:
                return self._fold_real(name, *args)
        return None

    def _fold_real(self, name: str, tensor: torch.Tensor, dims: Any = None, keep: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """A reduction over the axes `dims`, or over all."""
        value, error = self._real(tensor)
        axes = [dims] if isinstance(dims, int) else list(dims or range(tensor.dim()))
        axes = [axis % max(tensor.dim(), 1) for axis in axes]
        others = [axis for axis in range(tensor.dim()) if axis not in axes]
        rows = tuple(tensor.shape[axis] for axis in others)
        value, error = (each.transpose(*others, *axes).reshape(*rows, -1) for each in (value, error))
        count = value.shape[-1]
        if name in ("amax", "amin", "max", "min"):
            extreme = np.maximum if name.endswith("max") else np.minimum
            found = Real(extreme.reduce(value, -1), error.max(-1))
        else:
            found = sum_along(Real(value, error), -1)
            found = divide(found, Real(np.float64(count))) if name == "mean" else found
        shape = tuple(1 if axis in axes else n for axis, n in enumerate(tensor.shape)) if keep else rows
        made = _parts(found)
        return made[0].reshape(shape), made[1].reshape(shape)

    def _lose_result(self, result: torch.Tensor, name: str, inexact: bool) -> ShadowWords | None:
        """Nothing is known of the floats that an operation without a rule makes, nor of what it makes of computed ones."""
        words, element = words_of(result)
        if not inexact and not result.is_floating_point():
            return None
        self.hang(f"torch {name}")
        return make_shadow_words(element, np.zeros(()), np.full((), np.inf), words.shape)

    # -- memory -------------------------------------------------------------------------------------------------------------
    def _shadow_words(self, tensor: torch.Tensor) -> ShadowWords | None:
        """What the elements of `tensor` carry; None where all are exact."""
        if not tensor.numel() or tensor.untyped_storage().data_ptr() not in self.memory.storages:
            return None
        shadow = self.memory.shadow_at(*storage_of(tensor))
        return shadow.strided_view(*_extent_of(tensor)).take() if shadow else None

    def _real(self, tensor: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """(value, error) of the elements of `tensor`."""
        words, element = words_of(tensor)
        carried = self._shadow_words(tensor)
        if carried is None:
            return value_of(words, element), np.zeros(words.shape)
        return read_as(carried, words, element)[:2]

    def _hangs(self, shadow_words: ShadowWords | None, tensor: torch.Tensor) -> bool:
        """Whether a word of `tensor` is not the real value that it stands for."""
        if shadow_words is None:
            return False
        words, element = words_of(tensor)
        value, error, _ = read_as(shadow_words, words, element)
        return bool(((shadow_words.kind != EXACT) & ((error > 0) | (value != value_of(words, element)))).any())

    def _put(self, tensor: torch.Tensor, shadow_words: ShadowWords | None) -> None:
        """The elements of `tensor` carry `carried` now; None: they are exact."""
        if not tensor.numel():
            return
        base, raw = storage_of(tensor)
        shadow = self.memory.shadow_at(base, raw)
        if shadow is None:
            if shadow_words is None:
                return
            shadow = Shadow(raw.size)
        lying = shadow.strided_view(*_extent_of(tensor))
        if shadow_words is None:
            lying.marks[...] = 0
        else:
            lying.put(shadow_words)
        self.memory.keep(base, raw, tensor, shadow)


def _keeps_words(name: str, sources: list[torch.Tensor], args: tuple, kwargs: dict, in_place: bool) -> bool:
    """Whether an operation gives words of its `sources` as they are, and none that it makes."""
    named = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.dtype)]
    return (name == "copy" if in_place else name in _MOVES) and len({each.dtype for each in sources} | {*named}) == 1


def _extent_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], int, int, tuple[int, ...]]:
    """(shape, bytes of an element, first byte, bytes apart) of `tensor` in its storage."""
    size = tensor.element_size()
    return tuple(tensor.shape), size, size * tensor.storage_offset(), tuple(size * stride for stride in tensor.stride())


def _round_result(result: torch.Tensor, value: np.ndarray, error: np.ndarray) -> ShadowWords | None:
    """What the words of `result` carry, which are `value` rounded; None where they are just that."""
    words, element = words_of(result)
    value, error = np.broadcast_to(value, words.shape), np.broadcast_to(error, words.shape)
    held = value_of(words, element)
    exact = (error == 0) & ((held == value) | ((held != held) & (value != value)))
    if not result.is_floating_point():  # its word, or one that hangs on a rounding
        exact = error == 0
        error = np.where(exact, 0.0, np.inf)
    return None if exact.all() else make_shadow_words(element, value, error, words.shape).where(~exact)


def _parts(real: Real) -> tuple[np.ndarray, np.ndarray]:
    value = np.asarray(real.value)
    return value, np.zeros(value.shape) if real.error is None else np.broadcast_to(real.error, value.shape)


__all__ = ["RealTensors"]
