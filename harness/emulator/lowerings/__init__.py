"""The op table: one lowering for each operation of the tile program, by what it works on. Importing the package fills the table."""

from harness.emulator.lowerings import (  # noqa: F401
    barriers,
    block_scaled,
    control,
    copies,
    floats,
    global_memory,
    integers,
    products,
    shapes,
    shared_memory,
    tensor_maps,
)
