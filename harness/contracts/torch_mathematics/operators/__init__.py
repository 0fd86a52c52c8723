"""ATen operators by their mathematics, in functions of the array API standard: name without overload -> rule `(xp, *arguments)`.

A rule takes what the operator takes, tensors as arrays of `xp`, and gives what it gives. Its formula is torch's documented one.
Dtypes, memory formats and devices are no mathematics. They are not looked at, but where a float becomes an integer.
"""

from bitverdict.harness.contracts.torch_mathematics.operators import (
    arithmetic,
    creation,
    normalisation,
    products,
    reductions,
    shapes,
)
from bitverdict.harness.contracts.torch_mathematics.operators.rules import RULES

__all__ = ["RULES", "arithmetic", "creation", "normalisation", "products", "reductions", "shapes"]
