"""`gl.fpsan.embed` and `unembed`: a float's word as a number of the ring in which the floating-point sanitizer computes, and back.

A word of `bits` bits is a sign over a number of `bits - 1` bits. Embedding multiplies that number by an odd factor, mixes its upper
bits into its lower ones, and multiplies so that 1.0 becomes 1 and -1.0 becomes -1. All of it wraps: each word has one payload and
each payload one word, and nothing is rounded. The PTX of the compiler says so; no document does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.harness.emulator.frontend.translator import Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type

_FRACTION_BITS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7, "f8E5M2": 2, "f8E4M3FN": 3}
_UNSIGNED_DTYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True)
class PayloadRing:
    """The payloads of floats of `bits` bits, `fraction_bits` of them behind the point. `factor` is the compiler's."""

    bits: int
    fraction_bits: int
    factor: int = 0xE3F789

    @property
    def number_mask(self) -> int:
        return (1 << (self.bits - 1)) - 1

    @property
    def unit(self) -> int:
        """What 1.0, whose fraction is zero, is mixed to: an odd number."""
        one = (1 << (self.bits - 2)) - (1 << self.fraction_bits)
        product = one * self.factor & self.number_mask
        return product ^ product >> self.fraction_bits

    def payloads_of(self, words: np.ndarray) -> np.ndarray:
        """The payloads of `words`, both unsigned."""
        number = self._product(words, self.factor)
        number ^= number >> number.dtype.type(self.fraction_bits)
        return self._under_sign(words, self._product(self._apply_sign(words, number), self._inverse(self.unit)))

    def words_of(self, payloads: np.ndarray) -> np.ndarray:
        """The words of `payloads`, both unsigned."""
        number = self._product(self._apply_sign(payloads, payloads), self.unit)
        shift = self.fraction_bits
        while shift < self.bits:  # undoes x ^ x >> n: n, 2 n, 4 n, ...
            number ^= number >> number.dtype.type(shift)
            shift *= 2
        return self._under_sign(payloads, self._product(number, self._inverse(self.factor)))

    def _product(self, numbers: np.ndarray, by: int) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.asarray(numbers * numbers.dtype.type(by & self.number_mask)) & numbers.dtype.type(self.number_mask)

    def _inverse(self, number: int) -> int:
        """Of an odd number."""
        return pow(number, -1, 1 << (self.bits - 1))

    def _apply_sign(self, words: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """`numbers`, negative where the sign of `words` is set."""
        return np.where(words >> words.dtype.type(self.bits - 1), ~numbers + numbers.dtype.type(1), numbers)

    def _under_sign(self, words: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return numbers | (words & words.dtype.type(1 << (self.bits - 1)))


def payload_ring(kind: Type) -> PayloadRing:
    """Of floats of the type `kind`."""
    return PayloadRing(kind.bits, _FRACTION_BITS[kind.element])


@lowers("tti.experimental_fpsan_embed")
def embed_floats(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    ring, unsigned, is_scalar = payload_ring(source), _UNSIGNED_DTYPES[source.bits], target.kind == "scalar"

    def run(a: np.ndarray) -> np.ndarray | int:
        found = ring.payloads_of(np.asarray(a, source.dtype).view(unsigned)).view(target.dtype)
        return int(found) if is_scalar else found

    t.call(op, run)


@lowers("tti.experimental_fpsan_unembed")
def unembed_payloads(t: Translator, op: Operation) -> None:
    source, target = t.operand(op, 0), t.result(op)
    ring, unsigned = payload_ring(target), _UNSIGNED_DTYPES[target.bits]
    t.call(op, lambda a: ring.words_of(np.asarray(a, source.dtype).view(unsigned)).view(target.dtype))
