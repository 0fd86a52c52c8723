"""GemLite: products with packed weights, each of its kernels by the layer's own call."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.corpus_entry import Compared, Entry, Given, Package, compared

MEAN = 1e-3
GEMLITE = Package(
    "gemlite",
    "0.6.0.post2",
    needs=("tqdm==4.67.1",),
    tolerance=f"its own tests' measure: the mean of the absolute error below {MEAN}",
)
ENTRIES: list[Entry] = []
OUT, IN, GROUP = 64, 256, 64


def add(kernel: str, bits: int, rows: int) -> None:
    """An entry for one kernel of the layer, with weights of `bits` bits in groups, and `rows` rows of fp16."""

    def run(given: Given) -> Iterator[Compared]:
        from gemlite.core import DType, GemLiteLinearTriton

        weights = given.integers(0, 2**bits, OUT, IN, dtype=torch.uint8)
        scales = 2.0 ** -given.integers(bits, bits + 3, OUT * IN // GROUP, 1).to(torch.float16)  # so weights are exact in fp16
        zeros = given.integers(0, 2**bits, OUT * IN // GROUP, 1).to(torch.float16)
        x = given.normal(rows, IN, dtype=torch.float16, scale=0.1)
        exact = ((weights.cpu().double().reshape(-1, GROUP) - zeros.cpu().double()) * scales.cpu().double()).reshape(OUT, IN)
        layer = GemLiteLinearTriton(
            bits, group_size=GROUP, in_features=IN, out_features=OUT, input_dtype=DType.FP16, output_dtype=DType.FP16
        )
        layer.pack(weights, scales, zeros, None)
        got = layer.forward_manual(x, matmul_type=kernel)
        yield from compared(got, x.cpu().double() @ exact.T, lambda _: (0.0, 0.0, None, MEAN))

    ENTRIES.append(Entry(GEMLITE, f"{kernel}, {bits} bits", run))


for _kernel, _rows in (("GEMM", 32), ("GEMM_SPLITK", 8), ("GEMV", 1), ("GEMV_SPLITK", 1), ("GEMV_REVSPLITK", 1)):
    for _bits in (8, 4, 2, 1):
        add(_kernel, _bits, _rows)
