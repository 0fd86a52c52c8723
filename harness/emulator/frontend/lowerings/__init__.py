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
    indexed_memory,
    integers,
    packed_arithmetic,
    products,
    reductions,
    regions,
    reinterpreted_memory,
    shapes,
    shared_memory,
    sums,
    tensor_maps,
)
