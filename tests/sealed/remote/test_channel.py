"""Contract under test: frames come whole or not at all, and what is no frame costs no memory and is called so."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from bitverdict.harness.sealed.remote.channel import Channel, Limits
from bitverdict.harness.sealed.remote.errors import ChannelClosed, WireError

Ends = tuple[Channel, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    with ours, theirs:
        yield Channel(ours, Limits(header=1000, buffers=3, bytes=1 << 20)), theirs


def test_a_frame_comes_as_it_was_sent(ends: Ends) -> None:
    channel, theirs = ends
    for header, buffers in (({"a": [1, 2.5, "x"]}, []), ({}, [b"", b"abc", bytes(1 << 16)])):
        Channel(theirs).send(header, buffers)
        assert channel.receive() == (header, [bytearray(each) for each in buffers])


def frame(header: bytes, *buffers: bytes, magic: bytes = b"BVF1", count: int | None = None, size: int | None = None) -> bytes:
    lengths = struct.pack(f"<{len(buffers)}Q", *(len(each) if size is None else size for each in buffers))
    count = len(buffers) if count is None else count
    return magic + struct.pack("<II", len(header), count) + lengths + header + b"".join(buffers)


MALFORMED = {
    "another magic": (frame(b"{}", magic=b"BVF2"), "begins with"),
    "a header too long": (frame(b" " * 1001), "1001 bytes in its header"),
    "too many buffers": (frame(b"{}", count=4), "4 buffers"),
    "buffers too long": (frame(b"{}", b"x", size=1 << 40), "bytes in its buffers"),
    "no JSON": (frame(b"{"), "no JSON"),
    "no text": (frame(b"\xff\xfe"), "no JSON"),
    "too deep": (frame(b"[" * 999), "no JSON"),
    "no object": (frame(b"[]"), "must be an object"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_no_frame_is_called_so_and_ends_the_channel(ends: Ends, what: str) -> None:
    channel, theirs = ends
    sent, said = MALFORMED[what]
    theirs.sendall(sent)
    with pytest.raises(WireError, match=said):
        channel.receive()
    theirs.sendall(frame(b"{}"))
    with pytest.raises(ChannelClosed, match=said):
        channel.receive()


def test_an_end_within_a_frame_is_no_frame(ends: Ends) -> None:
    channel, theirs = ends
    theirs.sendall(frame(b"{}", b"abc")[:-1])
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ChannelClosed, match="within a frame"):
        channel.receive()


def test_a_frame_over_a_limit_is_not_sent(ends: Ends) -> None:
    channel, theirs = ends
    with pytest.raises(WireError, match="4 buffers"):
        channel.send({}, [b""] * 4)
    channel.send({"next": True})
    assert Channel(theirs).receive()[0] == {"next": True}
