"""What a schedule of tiles promises of a launch, where no word tells: programs, the order of tiles, and work that is done once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bitverdict.harness.model.contract import PromisedInstruction


def cdiv(size: int, block: int) -> int:
    """Blocks that `size` elements lie in."""
    return -(-size // block)


def promise_count(operation: str, count: int) -> PromisedInstruction:
    """All programs together come to `operation` so often: no tile is computed twice, and no block that adds nothing."""
    return PromisedInstruction(f"executed {operation}", count, "each tile once")


def of_schedule(config: Any, tiles: int, schedule: str) -> Iterator[PromisedInstruction]:
    """`schedule` of "grouped", "row-major" and "one tile". Without `programs` the GPU's multiprocessors decide the grid."""
    if schedule == "one tile" or config.programs:
        count = tiles if schedule == "one tile" else min(config.programs, tiles)
        yield PromisedInstruction("programs", count, f"schedule={schedule}, programs={config.programs}")
    rows = config.group_size_m if schedule == "grouped" else 1
    yield PromisedInstruction("constant GROUP_M", rows, f"schedule={schedule}, group_size_m={config.group_size_m}")


def of_options(config: object, *names: str) -> Iterator[PromisedInstruction]:
    """Each option of `names` is compiled in as it was given."""
    for name in names:
        yield PromisedInstruction(f"constant {name.upper()}", getattr(config, name), f"{name}={getattr(config, name)}")
