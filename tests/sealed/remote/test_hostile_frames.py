"""Contract under test: whatever bytes and values a candidate's process sends, its executor has values of the kinds that it knows,
or a `WireError`."""

from __future__ import annotations

import json
import random
import socket
import struct
from typing import Any

import pytest
import torch

from bitverdict.harness.sealed.remote.channel import MAGIC, Channel, Limits
from bitverdict.harness.sealed.remote.errors import ChannelClosed, WireError
from bitverdict.harness.sealed.remote.wire import _DECODINGS, DEEPEST, Decoder, Encoder

TRIES = 3000
WORDS = ["float32", "int8", "cuda", "cpu", "strided", "preserve_format", "__class__", "os", "object", "complex64", "quint8", ""]
LEAVES: list[Any] = [None, True, 0, 1, 3, -1, 1 << 62, 1 << 400, 0.5, float("nan"), float("inf"), *WORDS]
TAGS = [*_DECODINGS, "tensor", "host", "size", "stride", "as", "dtype", "grad", "object", "base", "shape", "strides", "block_shape"]
KNOWN = (type(None), bool, int, float, str, list, tuple, dict, slice, complex, torch.dtype, torch.device, torch.layout,
         torch.memory_format, torch.Tensor)  # fmt: skip


def drawn(draw: random.Random, depth: int = 0) -> Any:
    """JSON that may look like a value."""
    kind = draw.random()
    if depth > 4 or kind < 0.35:
        return draw.choice(LEAVES)
    if kind < 0.55:
        return [drawn(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(TAGS): drawn(draw, depth + 1) for _ in range(draw.choice((1, 1, 2, 3)))}


def no_tensor(said: dict[str, Any]) -> Any:
    raise WireError("no tensor")


def test_a_decoder_gives_what_it_knows_or_refuses() -> None:
    draw, made, refused = random.Random(17), 0, 0
    for _ in range(TRIES):
        decode = Decoder([bytearray(4), bytearray(), bytearray(48)], no_tensor)
        try:
            found = decode(json.loads(json.dumps(drawn(draw))))
        except WireError:
            refused += 1
        else:
            assert isinstance(found, KNOWN) or type(found).__name__ in ("SimpleNamespace", "TensorWrapper")
            made += 1
    assert made > TRIES / 10 and refused > TRIES / 10


def test_a_tensor_of_a_frame_lies_inside_its_buffer() -> None:
    """Of all sizes and strides that are tried: each element of what is made is one of the buffer's."""
    draw, made = random.Random(5), 0
    for _ in range(2000):
        size = [draw.choice((0, 1, 2, 3, 4, 1 << 61, -1)) for _ in range(draw.randrange(4))]
        said = {"host": 0, "dtype": draw.choice(("float32", "int8", "complex64", "bool")), "size": size}
        if draw.random() < 0.6:
            said["stride"] = [draw.choice((0, 1, 2, 3, 4, 12, 1 << 40, -1)) for _ in size]
        held = bytearray(draw.choice((0, 1, 4, 8, 12, 16, 24, 48, 96)))
        try:
            found = Decoder([held], no_tensor)(said)
        except WireError:
            continue
        made += 1
        last = sum((n - 1) * s for n, s in zip(found.shape, found.stride(), strict=True)) + 1
        assert found.numel() == 0 or (found.storage_offset() == 0 and last * found.element_size() == len(held))
    assert made > 50


@pytest.mark.parametrize(
    "said",
    [
        {"host": 0, "dtype": "float32", "size": [1 << 62, 4]},
        {"host": 7, "dtype": "float32", "size": [1]},
        {"descriptor": {"base": 1, "shape": [1], "strides": [1], "block_shape": [1]}},
        {"descriptor": {"base": {"host": 0, "dtype": "int8", "size": [4]}, "shape": [1], "strides": [-1], "block_shape": [1]}},
        {"reinterpret": 5, "as": "fp8"},
        {"dict": [[[], 1]]},
        {"dict": [1]},
        {"device": "cuda:7"},
        {"dtype": "__class__"},
        {"complex": ["1", "2"]},
        {"slice": [1]},
        {"__reduce__": ["os.system", "x"]},
        {"object": 1},
        1 << 128,
        "x" * ((1 << 20) + 1),
    ],
    ids=range(15),
)
def test_a_value_that_no_encoder_makes_is_refused(said: Any) -> None:
    with pytest.raises(WireError):
        Decoder([bytearray(4)], no_tensor)(said)


def test_lists_without_end_are_refused() -> None:
    deep: Any = 1
    for _ in range(DEEPEST + 1):
        deep = [deep]
    with pytest.raises(WireError, match="deep"):
        Decoder([], no_tensor)(deep)


def hostile_bytes(draw: random.Random) -> bytes:
    """A frame, with lengths, text or bytes that lie."""
    encoder = Encoder(lambda tensor: {"tensor": 1})
    text = json.dumps({"ask": "operate", "args": encoder((1, 2.5, "x", torch.float32))}).encode()
    count, length = draw.choice((0, 1, 3, 4096, 1 << 31)), draw.choice((len(text), 0, 3, len(text) + 9, (1 << 32) - 1))
    sizes = [draw.choice((0, 4, 1 << 20, 1 << 62, (1 << 64) - 1)) for _ in range(min(count, 3))]
    whole = struct.pack("<4sII", draw.choice((MAGIC, MAGIC, MAGIC, b"BVF2")), length, count)
    whole += struct.pack(f"<{len(sizes)}Q", *sizes) + draw.choice(
        (text, b"[" * 5000, b"\xff\xfe", b'{"a":' * 3000, b"nan", text[:-3])
    )
    spoilt = bytearray(whole + bytes(draw.randrange(64)))
    for _ in range(draw.choice((0, 0, 1, 5))):
        spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
    return bytes(spoilt)


def test_bytes_that_are_no_frame_end_a_channel_and_nothing_else() -> None:
    draw, ended = random.Random(3), 0
    for _ in range(400):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(5)
            theirs.sendall(hostile_bytes(draw))
            theirs.shutdown(socket.SHUT_WR)
            channel = Channel(ours, Limits(header=1 << 16, buffers=8, bytes=1 << 22))
            try:
                header, held = channel.receive()
                assert type(header) is dict and all(type(each) is bytearray for each in held)
            except (WireError, ChannelClosed):
                ended += 1
    assert ended > 300
