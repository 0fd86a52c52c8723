"""The operators of source mutants. Each file of this folder is about one part of a kernel; `OPERATORS` holds them all by name.

Of two operators that make one text of one place the first in `OPERATORS` counts: what is special stands before what is general.
"""

# ruff: noqa: I001  (in this order)
from bitverdict.harness.mutants.source.operators import masks, synchronisation, indices, loops, accumulators, movement  # noqa: F401
from bitverdict.harness.mutants.source.operators import layouts, launchers, types, choices, arithmetic  # noqa: F401
from bitverdict.harness.mutants.source.operators.record import OPERATORS, Change, Operator

__all__ = ["OPERATORS", "Change", "Operator"]
