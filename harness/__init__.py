"""How a kernel is fed, run, watched and judged, in rooms: see docs/architecture.md."""

from bitverdict._rooms import room

__path__ = room(__name__, __path__)
