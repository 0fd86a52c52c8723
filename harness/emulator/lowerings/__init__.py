"""The op table: one lowering for each operation of the tile program, by what it works on. Importing the package fills the table."""

from harness.emulator.lowerings import barriers, control, copies, floats, global_memory, integers, products, shapes, shared_memory  # noqa: F401
