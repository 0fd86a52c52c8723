"""The op table: one lowering for each operation of the tile program, by what it works on. Importing the package fills the table."""

from bitverdict.harness.emulator.frontend.lowerings import (  # noqa: F401
    assembly,
    atomics,
    barriers,
    block_scaled,
    control,
    copies,
    floats,
    global_memory,
    histograms,
    integers,
    products,
    reductions,
    regions,
    shapes,
    shared_memory,
    sums,
    tensor_maps,
)
