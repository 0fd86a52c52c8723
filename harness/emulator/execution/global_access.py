"""Ordinary loads and stores of global memory by the threads of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.execution.cta_state import CtaState

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation


class GlobalAccess:
    """The unit of a CTA by which its threads reach global memory."""

    def __init__(self, cta: CtaState) -> None:
        self.cta, self.memory = cta, cta.launch.memory

    def load(self, op: Operation, pointer: Any, mask: Any, fill_value: Any, dtype: np.dtype, single: bool) -> Any:
        """tt.load; a `single` element as a Python int or a 0-d array."""
        held = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        if single:
            pointer = np.array([pointer], np.int64)
            mask = None if mask is None else np.array([bool(mask)])
            fill_value = None if fill_value is None else np.asarray(fill_value, dtype).reshape(1)
        found = self.memory.load(op, pointer, mask, fill_value, held, self.cta.agent)
        if dtype == np.bool_:
            found = found != 0
        if not single:
            return found
        return found[0] if dtype.kind in "fu" else int(found[0])

    def store(self, op: Operation, pointer: Any, value: Any, mask: Any, dtype: np.dtype) -> None:
        """tt.store, of a tensor or of one element."""
        pointer = np.atleast_1d(np.asarray(pointer, np.int64))
        mask = None if mask is None else np.atleast_1d(mask)
        value = np.atleast_1d(np.asarray(value, dtype))
        if dtype == np.bool_:
            value = value.astype(np.uint8)
        self.cta.acts += 1
        self.memory.store(op, pointer, value, mask, self.cta.agent, self.cta.launch.take_reals(op, pointer.shape))
