"""A point of the grid as text."""

from __future__ import annotations

import json
from dataclasses import asdict

from bitverdict.harness.lab.tma_limits.points import Point


def key(point: Point) -> str:
    return json.dumps(asdict(point), sort_keys=True, separators=(",", ":"))
