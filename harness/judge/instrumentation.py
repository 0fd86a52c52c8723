"""Triton's instrumentation mode as the file of a judged kernel sets it, kept from every other kernel of the process.

A file may set ``triton.knobs.compilation.instrumentation_mode`` when it is imported, as Triton's tutorial on gather and scatter
does, or in a call. Both hold for this file alone: a worker judges other kernels after it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bitverdict.harness.model.addresses import place_of

VARIABLE = "TRITON_INSTRUMENTATION_MODE"  # Triton reads it once, when it is imported
_set_by: dict[str, str] = {}  # place of an address -> the mode that its file set last
_inside: list[str] = []  # places whose mode holds now, the innermost last


def mode() -> str:
    """The mode of launches now, "" for none; without Triton imported the one that it will begin with."""
    knobs = sys.modules.get("triton.knobs")
    return os.environ.get(VARIABLE, "") if knobs is None else knobs.compilation.instrumentation_mode


def read_again() -> None:
    """Have Triton read its variables again, where it is imported already: some it reads only then."""
    if (knobs := sys.modules.get("triton.knobs")) is not None:
        knobs.refresh_knobs()


@contextmanager
def own_instrumentation(address: str) -> Iterator[None]:
    """Inside, the mode is the one that the file at `address` set last; where it set none, the mode of the process.

    Afterwards it is as before, and what the file set meanwhile is remembered. A file that is imported by its first launch sets the
    mode of that launch.
    """
    place, process_mode = place_of(address), mode()
    initial_mode = _set_by.get(place, process_mode)
    _become(initial_mode)
    _inside.append(place)
    try:
        yield
    finally:
        _inside.pop()
        if mode() != initial_mode:
            _set_by[place] = mode()
        if place not in _inside:
            _become(process_mode)


def _become(wanted: str) -> None:
    if mode() != wanted:  # so Triton is imported, or nothing is to be done
        sys.modules["triton.knobs"].compilation.instrumentation_mode = wanted
