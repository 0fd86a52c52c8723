"""Which tensor-core model a matrix product of the tile program follows, and its application.

The family is the operation's and its layout's; block, fraction bits and rounding are `bitverdict.reference.tensor_core`'s. What the
lowering adds is here: the order in which mma.sync with wide operand registers takes k, the partial accumulators of fp8 wgmma,
truncation to tf32."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache

import numpy as np

from bitverdict.harness.emulator.numerics.scalar_ops import canonical, fma
from bitverdict.reference import tensor_core
from bitverdict.reference.k_order import instruction_order
from bitverdict.reference.scalar_arithmetic import fp64


def k_order(k: int, width: int, bits: int) -> np.ndarray | None:
    """The k that mma.sync takes at each place of its chain for a layout's kWidth; None when that is ascending."""
    return None if width * bits <= 32 else instruction_order(k, bits, width)


@cache
def instruction(arch: str, family: str, a: str, b: str, d: str) -> tensor_core.Instruction:
    return tensor_core.instruction(arch, family, a, b, d)


def codes(values: np.ndarray, fmt: str) -> np.ndarray:
    """Codes of `fmt` for values as the emulator holds them; fp32 operands of a tf32 product lose their low 13 bits."""
    values = np.asarray(values)
    if fmt == "tf32":
        return values.view(np.uint32) & np.uint32(0xFFFFE000)
    if fmt == "fp32":
        return values.view(np.uint32)
    return values


class ProductCache:
    """Products of a launch by their operands, for a launch that is run again from the same bytes: most of its time are these."""

    MOST_BYTES = 1 << 28  # of all products; later ones are not kept

    def __init__(self) -> None:
        self._products: dict[bytes, np.ndarray] | None = None
        self._bytes = 0

    def begin(self) -> None:
        """Keep the products from here on."""
        self._products, self._bytes = {}, 0

    def end(self) -> None:
        """Keep none, and forget those that are kept."""
        self._products = None

    def result(self, name: tuple[str, ...], operands: tuple[np.ndarray, ...], run: Callable[[], np.ndarray]) -> np.ndarray:
        """What `run` gives of `operands` (codes) by the instruction `name`."""
        if self._products is None:
            return run()
        key = hashlib.blake2b(repr((name, [each.shape for each in operands])).encode(), digest_size=16)
        for operand in operands:
            key.update(np.ascontiguousarray(operand).view(np.uint8).data)
        if (product := self._products.get(key.digest())) is None:
            product = run()
            if self._bytes < self.MOST_BYTES:
                self._bytes += product.nbytes
                self._products[key.digest()] = product.copy()
            return product
        return product.copy()


product_cache = ProductCache()


def product(arch: str, family: str, formats: tuple[str, str, str], a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a (M, K) times b (K, N) on accumulator c (M, N), all as the emulator holds them: one ascending chain."""
    if formats[2] == "int32":
        return integer_product(a, b, c, saturates=family == "mma.sync")
    model, operands = instruction(arch, family, *formats), tuple(map(codes, (a, b, c), formats))
    found = product_cache.result((arch, family, *formats), operands, lambda: tensor_core.product(model, *operands))
    return found.view(np.float32) if formats[2] == "fp32" else found


def integer_product(a: np.ndarray, b: np.ndarray, c: np.ndarray, *, saturates: bool = False) -> np.ndarray:
    """int8 product on int32 words: exact, modulo 2^32. float32 sums are exact up to 2^24, float64 ones far beyond any tile.

    `saturates`: Triton writes mma.sync m16n8k32 with ``.satfinite``: each instruction of 32 products clamps what it hands on.
    """
    k, ends = a.shape[-1], np.iinfo(np.int32)
    if saturates and int(np.abs(c.astype(np.int64)).max(initial=0)) + (k << 14) > ends.max:
        total = c.astype(np.int64)
        for start in range(0, k, 32):
            part = a[:, start : start + 32].astype(np.float64) @ b[start : start + 32].astype(np.float64)
            total = np.clip(total + part.astype(np.int64), ends.min, ends.max)
        return total.astype(np.int32)
    wide = np.float32 if k << 14 <= 1 << 24 else np.float64
    return (np.matmul(a.astype(wide), b.astype(wide)).astype(np.int64) + c).astype(np.int32)


def partial_product(
    arch: str, formats: tuple[str, str, str], a: np.ndarray, b: np.ndarray, c: np.ndarray, most_products: int
) -> np.ndarray:
    """fp8 wgmma that may accumulate only `most_products` products at low precision: chains of that length from zero, each then
    added to the accumulator by an fp32 add (nearest even), as `WGMMA.cpp` does. One chain on `c` when `most_products` exceeds K."""
    k = a.shape[-1]
    if most_products > k:
        return product(arch, "wgmma", formats, a, b, c)
    step = max(32, -(-most_products // 32) * 32)
    zero = np.zeros_like(c)
    for at in range(0, k, step):
        c = canonical(c + product(arch, "wgmma", formats, a[:, at : at + step], b[at : at + step], zero))
    return c


def fma_product(a: np.ndarray, b: np.ndarray, c: np.ndarray, *, fuses_sums: bool) -> np.ndarray:
    """fp32 product without tensor cores: a chain of multiply-adds in ascending order per element, rounded once if `fuses_sums`."""
    for k in range(a.shape[1]):
        left, right = a[:, k : k + 1], b[k : k + 1]
        c = fma(left, right, c) if fuses_sums else canonical(c + canonical(left * right))
    return c


def double_product(a: np.ndarray, b: np.ndarray, c: np.ndarray, *, fuses_sums: bool = True) -> np.ndarray:
    """fp64 product by mma.m8n8k4: one ascending chain of fused multiply-adds per element. Words of an H100 hold it; sm_80 and
    sm_100 are taken to be alike. Which NaN comes out is open. Without tensor cores the chain is fused if `fuses_sums`."""
    for k in range(a.shape[1]):
        left, right = a[:, k : k + 1], b[k : k + 1]
        c = fp64.fma(left, right, c) if fuses_sums else fp64.add(fp64.multiply(left, right), c)
    return c


def layout_number(layout: str, name: str) -> int | None:
    """Integer parameter `name` of a layout's text (aliases expanded)."""
    found = re.search(rf"\b{name} = (\d+)", layout)
    return int(found[1]) if found else None


OPERAND_FORMATS: dict[str, str] = {"f16": "fp16", "bf16": "bf16", "f32": "tf32", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "i8": "int8"}
RESULT_FORMATS: dict[str, str] = {"f16": "fp16", "f32": "fp32", "i32": "int32"}
Dot = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
