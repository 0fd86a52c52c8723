"""A record of JSON and named arrays as one frame, and back. Nothing in a frame is a program: no pickle, no object arrays.

The record says of each array its name, type and shape, and is checked against the bytes that came.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np

from bitverdict.harness.sealed.remote.channel import Channel, Limits
from bitverdict.harness.sealed.remote.errors import WireError

LIMITS = Limits(bytes=1 << 36)  # of what the judge and its executor, both ours, send each other
PREPARE = "prepare"  # what the judge asks for, of its executor, that has no answer
MOST_AXES = 64
TYPES = frozenset("uint8 uint16 uint32 uint64 int8 int16 int32 int64 bool float16 float32 float64".split())


def channel_of(connected: socket.socket) -> Channel:
    """The judge's end, or the executor's."""
    return Channel(connected, LIMITS)


def send(channel: Channel, record: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
    """Send `record` (values of JSON) and `arrays`, which are contiguous on the other side. ChannelClosed where nobody is left."""
    listed = [[name, str(array.dtype), list(array.shape)] for name, array in arrays.items()]
    held: list[Any] = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values()]
    channel.send({"record": record, "arrays": listed}, held)


def receive(channel: Channel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The record and the arrays of the next frame. ChannelClosed at the end, WireError for anything that is no such frame."""
    header, buffers = channel.receive()
    record, listed = header.get("record"), header.get("arrays")
    if type(record) is not dict or type(listed) is not list or len(listed) != len(buffers):
        raise WireError("a frame without a record, or with other arrays than it tells")
    arrays = dict(_read(each, held) for each, held in zip(listed, buffers, strict=True))
    if len(arrays) != len(listed):
        raise WireError("two arrays of one name")
    return record, arrays


def _read(told: object, payload: bytearray) -> tuple[str, np.ndarray]:
    """The name of an array, as a frame tells it, and the array."""
    name, kind, shape = told if type(told) is list and len(told) == 3 else (None, None, None)
    if type(name) is not str or kind not in TYPES or type(shape) is not list or len(shape) > MOST_AXES:
        raise WireError(f"no array: {told!r:.100}")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise WireError(f"an array of shape {shape!r:.100}")
    dtype = np.dtype(kind)
    if dtype.itemsize * math.prod(shape) != len(payload):
        raise WireError(f"{len(payload)} bytes are no array of {kind} and shape {shape!r:.100}")
    return name, np.frombuffer(payload, dtype).reshape(shape)
