"""bitverdict: whether a Triton or Gluon kernel is right, bit for bit where the bits are known."""

from __future__ import annotations

__version__ = "0.1.0"
