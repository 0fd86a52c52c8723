"""Frames over a connected socket: a header in JSON and raw buffers, each length said first and held to a limit.

    4 bytes "BVF1" | length of the header, number of buffers (2 x u32) | length of each buffer (u64) | header | buffers

Nothing is unpickled. What is no such frame raises `WireError`, and the channel is not used again.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitverdict.harness.sealed.remote.errors import ChannelClosed, WireError

MAGIC = b"BVF1"
_START = struct.Struct("<4sII")
Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Limits:
    """The most that one frame may hold."""

    header: int = 64 << 20  # bytes; a tile program travels as a buffer, lists of numbers here
    buffers: int = 4096
    bytes: int = 4 << 30  # of all buffers


class Channel:
    """One end of a connected socket. Frames are sent whole, by one thread at a time."""

    def __init__(self, connected: socket.socket, limits: Limits = Limits()) -> None:
        self.socket, self.limits = connected, limits
        self.broken = ""
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def send(self, header: Mapping[str, object], buffers: Sequence[Buffer] = ()) -> None:
        """ChannelClosed where nobody is there; WireError where the frame is over a limit: nothing is sent."""
        text = json.dumps(header, separators=(",", ":")).encode()
        sizes = [memoryview(buffer).nbytes for buffer in buffers]
        self._check(len(text), len(buffers), sum(sizes))
        start = _START.pack(MAGIC, len(text), len(buffers)) + struct.pack(f"<{len(sizes)}Q", *sizes) + text
        with self._sending:
            try:
                if sum(sizes) < 1 << 16:
                    self.socket.sendall(b"".join((start, *buffers)))
                    return
                self.socket.sendall(start)
                for buffer in buffers:
                    self.socket.sendall(memoryview(buffer).cast("B"))
            except OSError as error:
                self.broken = f"cannot send: {error}"
                raise ChannelClosed(self.broken) from error

    def receive(self) -> tuple[dict[str, Any], list[bytearray]]:
        """(header, buffers) of the next frame. WireError for anything but one."""
        if self.broken:
            raise ChannelClosed(self.broken)
        try:
            return self._receive_frame()
        except WireError as error:
            self.broken = str(error)
            raise

    def _receive_frame(self) -> tuple[dict[str, Any], list[bytearray]]:
        magic, header, count = _START.unpack(self._bytes(_START.size))
        if magic != MAGIC:
            raise WireError(f"a frame begins with {magic!r}, must begin with {MAGIC!r}")
        self._check(header, count, 0)
        sizes = struct.unpack(f"<{count}Q", self._bytes(8 * count)) if count else ()
        self._check(header, count, sum(sizes))
        try:
            found = json.loads(self._bytes(header))
        except (ValueError, RecursionError) as error:
            raise WireError(f"a header is no JSON: {type(error).__name__}") from error
        if type(found) is not dict:
            raise WireError(f"a header is a {type(found).__name__}, must be an object")
        return found, [self._bytes(size) for size in sizes]

    def _check(self, header: int, count: int, size: int) -> None:
        for quantity, amount, limit in (
            ("bytes in its header", header, self.limits.header),
            ("buffers", count, self.limits.buffers),
            ("bytes in its buffers", size, self.limits.bytes),
        ):
            if amount > limit:
                raise WireError(f"a frame has {amount} {quantity}, may have {limit}")

    def _bytes(self, size: int) -> bytearray:
        """The next `size` bytes. Room is made as they come: a length that is said and not sent takes none."""
        buffer = bytearray(min(size, 1 << 24))
        received_bytes = 0
        while received_bytes < size:
            if received_bytes == len(buffer):
                buffer.extend(bytes(min(size - received_bytes, len(buffer))))
            try:
                came = self.socket.recv_into(memoryview(buffer)[received_bytes:])
            except OSError as error:
                raise ChannelClosed(f"cannot receive: {error}") from error
            if not came:
                raise ChannelClosed("the other process closed the channel" + (" within a frame" if received_bytes else ""))
            received_bytes += came
        return buffer


__all__ = ["Channel", "Limits"]
