"""Mutants of `docs/examples/your_kernels/histogram.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "histogram",
    (
        ("values below the first bin counted", "integers", ("(x >= first)", "(x > first - width)")),
        ("the upper edge of the last bin left out", "integers", ("x < first + bins * width", "x < first + bins * width - 1")),
        ("the lower edge of the first bin left out", "integers", ("(x >= first)", "(x > first)")),
        ("edges between bins moved by one", "integers", ("(x - first) // width", "(x - first + 1) // width")),
        ("elements behind the last counted as zeros", "integers", ("(offsets < n) & (x >= first)", "(x >= first)")),
        ("what falls into no bin counted in the first", "integers", ("BINS, mask=inside)", "BINS, mask=offsets < n)")),
        ("the last bin not stored", "integers", ("mask=bin < bins", "mask=bin < bins - 1")),
        ("elements behind the last whole block left out", "integers", ("triton.cdiv(x.numel(), 256)", "max(1, x.numel() // 256)")),
        ("bins begin at multiples of their width", "integers", ("(x - first) // width", "x // width - first // width")),
        ("stored and not added", "fault", ("tl.atomic_add(", "tl.store(")),
    ),
)
