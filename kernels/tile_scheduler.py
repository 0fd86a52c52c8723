"""Which tiles a persistent program takes, and in which order.

A grid of P programs shares T tiles: program p takes tiles p, p + P, p + 2P, ... Tiles are numbered in groups of GROUP_M rows of
tiles, column by column inside a group, so that tiles computed at the same time share rows of A and columns of B in the cache. The
last group may have fewer rows.

A number past the last tile is answered with the last tile: a program asks one ahead, to start its loads early, and only its
predicate knows that there is no such tile. Unclamped, the group number would run past the last group, whose height is then zero or
negative, and divide by it.

The launcher's choice (`SCHEDULES`) is one of groups and programs alone. Groups of one row are row-major order. With a program for
each tile nothing is persistent: each takes one tile.

No annotation is postponed here: before Triton 3.8 an aggregate takes none that is a text.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language import core

from bitverdict.kernels.clauses import Clause

SCHEDULES = ("grouped", "row-major", "one tile")
GROUP_CLAUSE = Clause(
    name="group",
    holds=lambda p, c: c.group_size_m >= 1,
    value=lambda p, c: f"group_size_m = {c.group_size_m}",
    rule="at least one row of tiles",
    remedy="take group_size_m=8",
    cost="a division by zero in the tile order",
)


def schedule_clauses() -> tuple[Clause, ...]:
    """The rules of `schedule` and `group_size_m` of a configuration."""
    return (
        Clause(
            name="schedule",
            holds=lambda p, c: c.schedule in SCHEDULES,
            value=lambda p, c: f"schedule = {c.schedule}",
            rule=f"tiles are taken in one of the orders {', '.join(SCHEDULES)}",
            remedy=f"take {SCHEDULES[0]}",
            cost="the order of tiles would be a guess",
        ),
        GROUP_CLAUSE,
    )


def multiprocessors() -> int:
    """Multiprocessors of the current GPU, which a launch goes to, as the active driver reports them: of a real GPU, or of the model
    of one."""
    driver = triton.runtime.driver.active
    return driver.utils.get_device_properties(driver.get_current_device())["multiprocessor_count"]


def grid_of(schedule: str, tiles: int, programs: int) -> tuple[int]:
    """The grid for `tiles`: a program each in "one tile", else `programs` (0: one a multiprocessor), never more than tiles."""
    return (tiles if schedule == "one tile" else min(programs or multiprocessors(), tiles),)


def group_of(schedule: str, group_size_m: int) -> int:
    """Rows of tiles in a group: one where the order is row-major."""
    return group_size_m if schedule == "grouped" else 1


@(gluon.aggregate if hasattr(gluon, "aggregate") else core._aggregate)  # older releases of Gluon have no name of their own for it
class GroupedTiles:
    """The tiles of one persistent program."""

    GROUP_M: gl.constexpr
    tiles_m: gl.tensor
    tiles_n: gl.tensor
    first_tile: gl.tensor
    step: gl.tensor

    @gluon.constexpr_function
    def __init__(self, GROUP_M, tiles_m, tiles_n, first, step):
        self.GROUP_M = gl.constexpr(GROUP_M)
        self.tiles_m = tiles_m
        self.tiles_n = tiles_n
        self.first_tile = first
        self.step = step

    @gluon.jit
    def of_program(m, n, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
        return GroupedTiles(GROUP_M, gl.cdiv(m, BLOCK_M), gl.cdiv(n, BLOCK_N), gl.program_id(0), gl.num_programs(0))

    @gluon.jit
    def count(self):
        """How many tiles this program takes."""
        return gl.cdiv(self.tiles_m * self.tiles_n - self.first_tile, self.step)

    @gluon.jit
    def tile(self, turn):
        """(row, column) of the tile of turn `turn`, in tiles."""
        number = gl.minimum(self.first_tile + turn * self.step, self.tiles_m * self.tiles_n - 1)
        in_group = self.GROUP_M * self.tiles_n
        first_row = number // in_group * self.GROUP_M
        height = gl.minimum(self.tiles_m - first_row, self.GROUP_M)
        place = number % in_group
        return first_row + place % height, place // height
