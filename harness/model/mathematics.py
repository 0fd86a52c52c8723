"""The mathematics of one case as a function of its operands' values: what an explanation of a failure changes and evaluates again.

A contract offers it (`Contract.mathematics`) besides what it expects. It decides nothing: verdicts rest on `Contract.expected`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Mathematics:
    """`function(xp, *operands)` gives the outputs named `outputs`, in this order; one array, or a tuple of them.

    `operands`: float64 values (integers as they are) by name, in the order of the function's parameters. `axes`: names of the axes
    of operands and outputs, where they have some; operands that share a name run along it together. `sum_axes`: those axes over
    which the outputs are sums of products of the operands that have them. `linear`: the outputs are such sums and nothing else.
    `blocks`: along how many elements of an axis one element of an operand (a scale) counts, by operand and axis. `keyword_values`
    are handed to the function by their names. `formats`: of operands whose words the function may ask for. `strides`: of operands
    that do not lie contiguous, in elements.
    """

    function: Callable[..., Any]
    operands: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sum_axes: tuple[str, ...] = ()
    linear: bool = False
    blocks: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    keyword_values: Mapping[str, Any] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
