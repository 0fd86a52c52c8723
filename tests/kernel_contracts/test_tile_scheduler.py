"""Contract under test: the persistent scheduler deals out every tile once, in the model's grouped order, and stays inside past the
last.

`kernels/tile_scheduler.py` runs on the emulated GPU and is held to `tests.support.tile_order`; texts changed in its source
must show."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import emulated
from tests.faults.kernels.tile_scheduler import MUTANTS
from tests.faults.mutants import Mutant, mutant_source
from tests.support.tile_order import grouped_tiles

SOURCE = Path(__file__).parents[2] / "kernels" / "tile_scheduler.py"
DEALING = """

@gluon.jit(do_not_specialize=["m", "n"])
def deal(out, counts, m, n, TURNS: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    tiles = GroupedTiles.of_program(m, n, BLOCK_M, BLOCK_N, GROUP_M)
    gl.store(counts + gl.program_id(0), tiles.count())
    for turn in range(TURNS):
        row, column = tiles.tile(turn)
        place = (gl.program_id(0) * TURNS + turn) * 2
        gl.store(out + place, row)
        gl.store(out + place + 1, column)
"""
BLOCK = 16


def scheduler(directory: Path, mutant: Mutant | None = None) -> ModuleType:
    """The module, or its mutant, with a kernel that writes its tiles down."""
    source = mutant_source(mutant) if mutant else SOURCE.read_text()
    path = directory / "scheduler_under_test.py"
    path.write_text(source + DEALING)
    name = f"scheduler_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def dealt(module: ModuleType, m: int, n: int, group: int, programs: int, turns: int) -> tuple[np.ndarray, np.ndarray]:
    """Tiles (programs, turns, 2) as (row, column), and how many each program takes (programs,)."""
    out = torch.full((programs, turns, 2), -1, dtype=torch.int32)
    counts = torch.zeros(programs, dtype=torch.int32)
    with emulated("sm_80"):
        module.deal[(programs,)](out, counts, m, n, turns, BLOCK, BLOCK, group, num_warps=4)
    return out.numpy(), counts.numpy()


SIZES = [(1, 1, 8, 1), (160, 48, 4, 3), (170, 49, 3, 4), (33, 200, 8, 5), (97, 97, 2, 7), (16, 160, 1, 4)]


def wrong(module: ModuleType, m: int, n: int, group: int, programs: int) -> bool:
    """Whether any tile differs from the model's, or one past the last lies outside."""
    rows, columns = -(-m // BLOCK), -(-n // BLOCK)
    total = rows * columns
    turns = -(-total // programs) + 1
    tiles, counts = dealt(module, m, n, group, programs, turns)
    for program in range(programs):
        numbers = np.arange(program, total, programs)
        if counts[program] != len(numbers):
            return True
        expected = np.stack(grouped_tiles(numbers, rows, columns, group), axis=1)
        if not np.array_equal(tiles[program, : len(numbers)], expected):
            return True
        beyond = tiles[program, len(numbers) :]
        if not ((beyond >= 0).all() and (beyond[:, 0] < rows).all() and (beyond[:, 1] < columns).all()):
            return True
    return False


@pytest.mark.parametrize(("m", "n", "group", "programs"), SIZES)
def test_tiles_are_dealt_out_in_the_models_order(m: int, n: int, group: int, programs: int, tmp_path: Path) -> None:
    assert not wrong(scheduler(tmp_path), m, n, group, programs)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_of_the_scheduler_shows(mutant: Mutant, tmp_path: Path) -> None:
    faulty = scheduler(tmp_path, mutant)

    def shows(size: tuple[int, int, int, int]) -> bool:
        try:
            return wrong(faulty, *size)
        except Exception:  # a division by zero, found by the emulated GPU
            return True

    assert any(shows(size) for size in SIZES)
