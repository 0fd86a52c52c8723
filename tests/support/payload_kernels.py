"""Gluon kernels on the payloads of the floating-point sanitizer: floats embedded in a ring of integers, and back."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def round_trip(x, payloads, words, N: gl.constexpr, LANES: gl.constexpr):
    """What each x is embedded as, and what each x, taken for a payload, stands for."""
    at = gl.program_id(0) * N + gl.arange(0, N, layout=gl.BlockedLayout([4], [LANES], [4], [0]))
    a = gl.load(x + at)
    gl.store(payloads + at, gl.fpsan.embed(a))
    gl.store(words + at, gl.fpsan.unembed(a.to(payloads.dtype.element_ty, bitcast=True), a.dtype))


@gluon.jit
def ring_sums(x, y, out, n, N: gl.constexpr):
    """Sums in the ring, plain and of thirds, and one whose lanes from n on nobody loads."""
    at = gl.arange(0, N, layout=gl.BlockedLayout([1], [32], [4], [0]))
    a, b = gl.load(x + at), gl.load(y + at)
    gl.store(out + at, gl.fpsan.unembed(gl.fpsan.embed(a) + gl.fpsan.embed(b), gl.float32))
    gl.store(out + N + at, gl.fpsan.unembed(gl.fpsan.embed(a / 3) + gl.fpsan.embed(b), gl.float32))
    gl.store(out + 2 * N + at, gl.fpsan.unembed(gl.fpsan.embed(gl.load(x + at, mask=at < n)) + gl.fpsan.embed(b), gl.float32))


@gluon.jit
def cubed(a):
    found = gl.fpsan.embed(a)
    return gl.fpsan.unembed(found * found * found, gl.float32)


@gluon.jit
def payload_by_element(x, out, N: gl.constexpr):
    """The cube of each x in the ring, by a function of one element."""
    at = gl.arange(0, N, layout=gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(out + at, gl.map_elementwise(cubed, gl.load(x + at)))


@gluon.jit
def single_payload(x, payload, word):
    """Of one number alone, and its cube in the ring: what is embedded and straight taken back the compiler leaves out."""
    found = gl.fpsan.embed(gl.load(x))
    gl.store(payload, found)
    gl.store(word, gl.fpsan.unembed(found * found * found, gl.float32))
