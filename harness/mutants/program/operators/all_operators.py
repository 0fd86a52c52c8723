"""All operators: importing this fills their table."""

from bitverdict.harness.mutants.program.operators import (  # noqa: F401
    accesses,
    asynchronous,
    barriers,
    floats,
    integers,
    loops,
    shapes,
)  # fmt: skip
