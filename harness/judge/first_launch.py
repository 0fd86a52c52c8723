"""What a first launch shows of a user's launcher: the tile it works in, the rows of a group, the configurations of its autotuners.

The emulated GPU sees the program that was launched, and a verdict keeps it. From it follow the cases at the edges of the launcher's
own tile, and how many configurations there are to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from bitverdict.harness.model.contract import Tile

MOST_GROUPED = 16  # rows of tiles in a group; a larger constant of such a name groups something else


@dataclass(frozen=True)
class LauncherTraits:
    """`tile` is None where nothing was launched that multiplies. `configurations`: the most that an autotuner has."""

    tile: Tile | None = None
    configurations: int = 0


def launcher_traits(recorded: Mapping[str, Any]) -> LauncherTraits:
    """What a verdict's `recorded` says of the launcher that was judged."""
    launches = [launch for launch in recorded.get("launches", ()) if len(launch.get("tile", ())) == 3]
    configurations = max((told["of"] for told in recorded.get("tuned", ())), default=0)
    if not launches:
        return LauncherTraits(None, configurations)
    largest = max(launches, key=lambda launch: prod(launch["tile"]))
    constants = largest.get("constants", {}).items()
    groups = [value for name, value in constants if "group" in name.lower() and 1 < value <= MOST_GROUPED]
    m, n, k = largest["tile"]
    return LauncherTraits(Tile(m, n, k, min(groups, default=Tile.group)), configurations)
