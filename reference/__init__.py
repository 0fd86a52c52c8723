"""The mathematics of the oracle: standard library and NumPy only."""

from bitverdict._rooms import room

__path__ = room(__name__, __path__)
