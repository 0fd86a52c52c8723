"""Kernels under test: device code and its launchers. They judge nothing."""

from bitverdict._rooms import room

__path__ = room(__name__, __path__)
