"""What each operation of the tile program does to real values. Importing the package fills the table of `carried_reals`."""

from bitverdict.harness.emulator.frontend.real_operations import arithmetic, decisions, folds, functions, memory, products, shapes  # noqa: F401
