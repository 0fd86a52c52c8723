"""Fifteen everyday kernels, in plain Triton: their words on the emulated GPU beside a real one's.

    python -m benchmarks.everyday_words --device cuda:0 [--words 1048576] [--jobs 16] ["layer norm" ...]
    python -m benchmarks.everyday_words [--words 16384]

With a device each kernel is launched there and on the emulated GPU of its architecture, over at least `--words` result words, in
parts with operands of their own. Every word is compared, NaN too. Without one it runs on all three emulated targets. What has one
right word is held to it there (vector add, dropout, int8 quantisation, argmax, sort, histogram). Of the others the largest
difference from float64 is told, and nothing is judged by it. Exit status 1 where a word differs, or a kernel fails.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import torch
import triton
import triton.language as tl

from benchmarks import everyday_kernels as kernels
from benchmarks.campaign import Option, parse, refuse, run_script
from bitverdict.harness.emulator import emulated
from bitverdict.reference.philox import uniform

TARGETS = ("sm_80", "sm_90", "sm_100")
PART = 1 << 16  # most words of one launch
WIDTH, BINS, HEAD, SEQUENCE = 500, 64, 64, 128  # of a row; of a histogram; of attention
Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Everyday:
    """A kernel: `operands(words, draw)` for at least so many result words, `launch` (operands in, results out, on their device),
    and what is `expected`; `exact` where that is the only right word."""

    operands: Callable[[int, torch.Generator], Tensors]
    launch: Callable[..., Tensors]
    expected: Callable[..., Tensors]
    exact: bool = False


@dataclass(frozen=True)
class Part:
    """What came of one launch: `words` compared, how many differ, the first of them, the largest difference from float64, seconds
    of the emulated launch; or how it failed."""

    words: int = 0
    differ: int = 0
    first: str = ""
    distance: float = 0.0
    seconds: float = 0.0
    error: str = ""


# -- operands -----------------------------------------------------------------------------------------------------------
def numbers(words: int, draw: torch.Generator) -> torch.Tensor:
    """Normal values of many sizes [words]; each sixteenth has any bits, infinities and NaN among them."""
    found = torch.randn(words, generator=draw) * 2.0 ** torch.randint(-12, 7, (words,), generator=draw)
    any_bits = torch.randint(-(2**31), 2**31, (words,), generator=draw).int().view(torch.float32)
    return torch.where(torch.rand(words, generator=draw) < 1 / 16, any_bits, found)


def two_vectors(words: int, draw: torch.Generator) -> Tensors:
    return [numbers(words, draw), numbers(words, draw)]


def rows(words: int, draw: torch.Generator, width: int = WIDTH) -> Tensors:
    """Rows of normal values, each row of its own size [rows, width]: finite, for one infinity would fill a row."""
    count = -(-words // width)
    return [torch.randn(count, width, generator=draw) * 2.0 ** torch.randint(-10, 6, (count, 1), generator=draw)]


def one_word_rows(words: int, draw: torch.Generator) -> Tensors:
    """A row for each word [words, 128]."""
    return rows(words * 128, draw, 128)


def rotary(words: int, draw: torch.Generator) -> Tensors:
    (x,), angles = rows(words, draw, 128), torch.rand(-(-words // 128), 64, generator=draw) * 100  # (rows, 128), (rows, 64)
    return [x, angles.cos(), angles.sin()]


def counted(words: int, draw: torch.Generator) -> Tensors:
    """Rows of integers [words / BINS, WIDTH], a third of them beyond the bins."""
    return [torch.randint(-16, BINS + 16, (-(-words // BINS), WIDTH), generator=draw).int()]


def heads(words: int, draw: torch.Generator) -> Tensors:
    shape = -(-words // (SEQUENCE * HEAD)), SEQUENCE, HEAD
    return [torch.randn(shape, generator=draw).half() for _ in range(3)]  # (heads, SEQUENCE, HEAD) each


# -- launches -----------------------------------------------------------------------------------------------------------
def pointwise(kind: str) -> Callable[..., Tensors]:
    def launch(x: torch.Tensor, y: torch.Tensor) -> Tensors:
        out, n = torch.empty_like(x), x.numel()
        kernels.pointwise_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, KIND=kind, BLOCK=1024)
        return [out]

    return launch


def vector_add(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    out, n = torch.empty_like(x), x.numel()
    kernels.vector_add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return [out]


def dropout(x: torch.Tensor, _: torch.Tensor) -> Tensors:
    out, n = torch.empty_like(x), x.numel()
    kernels.dropout_kernel[(triton.cdiv(n, 1024),)](x, out, n, 0.3, 17, BLOCK=1024)
    return [out]


def row_to_row(kind: str) -> Callable[..., Tensors]:
    def launch(x: torch.Tensor) -> Tensors:
        out, (count, n) = torch.empty_like(x), x.shape
        kernels.whole_row_kernel[(count,)](x, out, n, 1e-5, KIND=kind, BLOCK=triton.next_power_of_2(n))
        return [out]

    return launch


def row_to_word(kind: str, dtype: torch.dtype) -> Callable[..., Tensors]:
    def launch(x: torch.Tensor) -> Tensors:
        (count, n), out = x.shape, torch.empty(len(x), dtype=dtype, device=x.device)
        kernels.row_kernel[(count,)](x, out, n, KIND=kind, BLOCK=triton.next_power_of_2(n))
        return [out]

    return launch


def rope(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> Tensors:
    out = torch.empty_like(x)
    kernels.rope_kernel[(len(x),)](x, cosines, sines, out, 64, BLOCK=64)
    return [out]


def quantize(x: torch.Tensor) -> Tensors:
    (count, n), out, scales = x.shape, torch.empty_like(x, dtype=torch.int8), torch.empty(len(x), device=x.device)
    kernels.quantize_kernel[(count,)](x, out, scales, n, BLOCK=triton.next_power_of_2(n))
    return [out, scales]


@triton.jit
def row_histogram_kernel(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)  # (BLOCK,)
    values = tl.load(x + row * n + at, mask=at < n, other=-1)
    tl.store(out + row * BINS + tl.arange(0, BINS), tl.histogram(values, BINS))


def histogram(x: torch.Tensor) -> Tensors:
    (count, n), out = x.shape, torch.empty(len(x), BINS, dtype=torch.int32, device=x.device)
    row_histogram_kernel[(count,)](x, out, n, BINS=BINS, BLOCK=triton.next_power_of_2(n))
    return [out]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    out = torch.empty_like(q)
    for of_head in zip(q, k, v, out, strict=True):
        kernels.attention_kernel[(SEQUENCE // 64,)](*of_head, SEQUENCE, 0.18, D=HEAD, BLOCK=64)
    return [out]


# -- what is expected ---------------------------------------------------------------------------------------------------
def added(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    return [canonical(x + y)]


def dropped(x: torch.Tensor, _: torch.Tensor) -> Tensors:
    """What is kept is doubled, whatever the share."""
    drawn = torch.from_numpy(uniform(17, np.arange(x.numel(), dtype=np.uint64)))  # (words,)
    return [torch.where(drawn > 0.3, canonical(x * 2), 0.0)]


def canonical(x: torch.Tensor) -> torch.Tensor:
    """`x` with the NaN of the hardware for every NaN."""
    return torch.where(x.isnan(), torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32), x)


def layer_norm(x: torch.Tensor) -> Tensors:
    return [torch.nn.functional.layer_norm(x.double(), x.shape[1:], eps=1e-5)]


def rms_norm(x: torch.Tensor) -> Tensors:
    return [torch.nn.functional.rms_norm(x.double(), x.shape[1:], eps=1e-5)]


def rotated(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> Tensors:
    (first, second), c, s = x.double().chunk(2, 1), cosines.double(), sines.double()  # (rows, 64) each
    return [torch.cat([first * c - second * s, second * c + first * s], 1)]


def quantized(x: torch.Tensor) -> Tensors:
    scales = x.abs().amax(1) / 127.0  # (rows,)
    scaled = x / scales[:, None]
    return [torch.where(scaled >= 0, scaled + 0.5, scaled - 0.5).to(torch.int8), scales]


def counts(x: torch.Tensor) -> Tensors:
    return [torch.stack([torch.bincount(row[(row >= 0) & (row < BINS)], minlength=BINS) for row in x]).int()]


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    weights = torch.softmax(q.double() @ k.double().transpose(1, 2) * 0.18 * torch.log(torch.tensor(2.0).double()), 2)
    return [weights @ v.double()]


EVERYDAY = {
    "attention": Everyday(heads, attention, attended),
    "argmax": Everyday(one_word_rows, row_to_word("argmax", torch.int32), lambda x: [x.argmax(1).int()], exact=True),
    "row sum": Everyday(one_word_rows, row_to_word("sum", torch.float32), lambda x: [x.double().sum(1)]),
    "sort": Everyday(lambda *n: rows(*n, 256), row_to_row("sort"), lambda x: [x.sort(1)[0]], exact=True),
    "histogram": Everyday(counted, histogram, counts, exact=True),
    "softmax": Everyday(rows, row_to_row("softmax"), lambda x: [x.double().softmax(1)]),
    "layer norm": Everyday(rows, row_to_row("layer norm"), layer_norm),
    "rms norm": Everyday(rows, row_to_row("rms norm"), rms_norm),
    "cumsum": Everyday(rows, row_to_row("cumsum"), lambda x: [x.double().cumsum(1)]),
    "int8 quantisation": Everyday(rows, quantize, quantized, exact=True),
    "rope": Everyday(rotary, rope, rotated),
    "gelu": Everyday(two_vectors, pointwise("gelu"), lambda x, _: [torch.nn.functional.gelu(x.double())]),
    "sigmoid": Everyday(two_vectors, pointwise("sigmoid"), lambda x, _: [x.double().sigmoid()]),
    "dropout": Everyday(two_vectors, dropout, dropped, exact=True),
    "vector add": Everyday(two_vectors, vector_add, added, exact=True),
}


# -- the run ------------------------------------------------------------------------------------------------------------
def launched(name: str, operands: Tensors, target: str, device: str = "") -> Tensors:
    """The results, on the CPU: of the emulated `target`, or of `device` ("cuda:0", or "emulated:sm_90")."""
    emulates = not device or device.startswith("emulated:")
    with emulated(device.removeprefix("emulated:") or target) if emulates else nullcontext():
        return [each.cpu() for each in EVERYDAY[name].launch(*(each if emulates else each.to(device) for each in operands))]


def differing(got: Tensors, expected: Tensors) -> tuple[int, str]:
    """(words that differ, the first of them: where, and both words)."""
    count, first = 0, ""
    for number, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        codes = {1: torch.int8, 2: torch.int16, 4: torch.int32}[mine.element_size()]
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape, f"result {number} is {mine.dtype} {[*mine.shape]}"
        ours, others = mine.reshape(-1).view(codes), theirs.contiguous().reshape(-1).view(codes)
        wrong = (ours != others).nonzero().reshape(-1)
        count += len(wrong)
        if len(wrong) and not first:
            at, width = int(wrong[0]), 8 * mine.element_size()
            first = f"result {number}[{at}]: {int(ours[at]) % (1 << width):#x}, expected {int(others[at]) % (1 << width):#x}"
    return count, first


def distance(got: Tensors, expected: Tensors) -> float:
    """The largest difference where both are finite, as a share of what is expected, or of 1 where that is less."""
    found = 0.0
    for mine, theirs in zip(got, expected, strict=True):
        away = (mine.double() - theirs.double()).abs() / theirs.double().abs().clamp(min=1)
        found = max([found, *away[away.isfinite()].max(0, keepdim=True)[0].tolist()])
    return found


def measured(name: str, words: int, seed: int, target: str, device: str) -> Part:
    """One launch of at least `words` result words on the emulated `target`, held to `device` or to what is expected."""
    torch.set_num_threads(1)
    everyday = EVERYDAY[name]
    try:
        operands = everyday.operands(words, torch.Generator().manual_seed(seed))
        start = time.process_time()
        got = launched(name, operands, target)
        seconds = time.process_time() - start
        expected = launched(name, operands, target, device) if device else everyday.expected(*operands)
        far = 0.0 if device or everyday.exact else distance(got, expected)
        count, first = differing(got, expected) if device or everyday.exact else (0, "")
        return Part(sum(each.numel() for each in got), count, first, far, seconds)
    except Exception as error:  # a kernel that fails is a row of the table
        return Part(error=f"{type(error).__name__}: {error}"[:300])


def architecture(device: str) -> str:
    if device.startswith("emulated:"):
        return device.removeprefix("emulated:")
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def row(name: str, target: str, parts: list[Part], device: str) -> str:
    words, differ = sum(part.words for part in parts), sum(part.differ for part in parts)
    error = next((part.error for part in parts if part.error), "")
    first = next((part.first for part in parts if part.first), "")
    if error:
        told = error
    elif device or EVERYDAY[name].exact:
        told = f"{differ:,} words differ {first}".strip()
    else:
        told = f"ran; largest difference from float64 {max(part.distance for part in parts):.1e}"
    return f"{name:18} {target:7} {words:>11,} {sum(part.seconds for part in parts):8.1f}  {told}"


def main(arguments: list[str] | None = None) -> int:
    given = parse(
        __doc__, "kernels*", argv=arguments, device="",
        words=Option(0, "least result words a kernel (1,048,576; without a device 16,384)"), jobs=os.cpu_count() or 1,
    )  # fmt: skip
    if unknown := set(given.kernels) - set(EVERYDAY):
        refuse(f"{', '.join(sorted(unknown))}: no kernel of this benchmark; there are {', '.join(EVERYDAY)}")
    pool = ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) if given.jobs else None
    if given.device:
        targets: tuple[str, ...] = (pool.submit(architecture, given.device).result() if pool else architecture(given.device),)
        if targets[0] not in TARGETS:
            refuse(f"--device {given.device} is {targets[0]}: must be one of {', '.join(TARGETS)}, which are emulated")
    else:
        targets = TARGETS
    wanted = given.words or (1 << 20 if given.device else 1 << 14)
    sizes = [min(PART, wanted - at) for at in range(0, wanted, PART)]
    asked = [
        (name, words, seed, target, given.device)
        for name in given.kernels or EVERYDAY
        for target in targets
        for seed, words in enumerate(sizes)
    ]
    found: dict[tuple[str, str], list[Part]] = defaultdict(list)
    if pool:
        with pool:
            for ask, part in zip(asked, pool.map(measured, *zip(*asked, strict=True)), strict=True):
                found[ask[0], ask[3]].append(part)
    else:
        for ask in asked:
            found[ask[0], ask[3]].append(measured(*ask))
    print(f"{'kernel':18} {'target':7} {'words':>11} {'seconds':>8}  {given.device or 'expected'}")
    for (name, target), parts in found.items():
        print(row(name, target, parts, given.device))
    return int(any(part.differ or part.error for parts in found.values() for part in parts))


if __name__ == "__main__":
    run_script(main)
