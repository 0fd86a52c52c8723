"""Contract under test: where precision is lost, the first line that the failure names is the one that loses it."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bitverdict.harness.emulator.frontend.local_errors import real_of_words, with_local_error
from bitverdict.harness.emulator.numerics.real_values import Real
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome, Verdict
from bitverdict.harness.session.failure_report import place_of

ROWS = """
import bitverdict as bv
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, w, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n + at
    a = tl.load(x + row, mask=at < n, other=0.0).to(tl.float32)
    b = tl.load(w + row, mask=at < n, other=1.0).to(tl.float32)
    BODY
    tl.store(y + row, out, mask=at < n)

@bv.judged(reference=lambda xp, x, w: EXPECTED, strides="contiguous")
def test_rows(draw):
    x, w = (draw.tensor("fp32", (4, 96), values=VALUES) for _ in range(2))
    y = torch.empty_like(x)
    kernel[(4,)](x, w, y, 96, BLOCK=128)
    return y
"""
PRODUCT = """
import bitverdict as bv
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, w, y):
    at, to = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    a, b = tl.load(x + at * 64 + to), tl.load(w + at * 64 + to)
    BODY
    tl.store(y + at * 64 + to, out)

@bv.judged(reference=lambda xp, x, w: EXPECTED, strides="contiguous")
def test_rows(draw):
    x, w = (draw.tensor("KIND", (64, 64), values=VALUES) for _ in range(2))
    y = torch.empty((64, 64), dtype=torch.float32, device=x.device)
    kernel[(1,)](x, w, y)
    return y
"""
VALUES = {"near": (0.5, 2.0), "far": (100.0, 101.0), "small": (1e-5, 1e-4), "large": (1000.0, 2000.0)}
LOSSES_TEXT = """
fp16 sum | near | x / xp.sqrt(xp.sum(x * x, axis=1, keepdims=True))
    total = tl.sum((a * a).to(tl.float16).to(tl.float32).to(tl.float16), 0).to(tl.float32)  # PLANTED
    out = a / tl.sqrt(total)
overflowing fp16 sum | large | x / xp.sqrt(xp.sum(x * x, axis=1, keepdims=True))
    total = tl.sum((a * a).to(tl.float16), 0).to(tl.float32)  # PLANTED
    out = a / tl.sqrt(total)
early rounding | near | x * w + x
    c = (a * b).to(tl.float16).to(tl.float32)  # PLANTED
    out = c + a
bf16 exponential | near | 1 / (1 + xp.exp(-x))
    e = tl.exp(-a).to(tl.bfloat16).to(tl.float32)  # PLANTED
    out = 1.0 / (1.0 + e)
cancelled variance | far | x / xp.sqrt(xp.var(x, axis=1, keepdims=True) + 1e-3)
    mean = tl.sum(a, 0) / n
    var = tl.sum(a * a, 0) / n - mean * mean  # PLANTED
    out = a * tl.rsqrt(var + 1e-3)
fp16 accumulator | near | 36 * x * w
    acc = tl.zeros((BLOCK,), tl.float32)
    for step in range(0, 8):
        acc = (acc + a * (step + 1)).to(tl.float16).to(tl.float32)  # PLANTED
    out = acc * b
reciprocal | near | x / w
    r = (1.0 / b).to(tl.float16).to(tl.float32)  # PLANTED
    out = a * r
argument of exp2 | near | xp.exp(x)
    t = (a * 1.4426950408889634).to(tl.float16).to(tl.float32)  # PLANTED
    out = tl.exp2(t)
log of one and little | small | xp.log1p(x)
    c = 1.0 + a  # PLANTED
    out = tl.log(c)
exp minus one | small | xp.expm1(x)
    out = tl.exp(a) - 1.0  # PLANTED
difference of squares | far | (x - w) * (x + w)
    d = a * a - b * b  # PLANTED
    out = d
difference of roots | large | 1 / (xp.sqrt(x + 1) + xp.sqrt(x))
    d = tl.sqrt(a + 1.0) - tl.sqrt(a)  # PLANTED
    out = d
bf16 operand | near | x * w
    c = a.to(tl.bfloat16).to(tl.float32)  # PLANTED
    out = c * b
fp16 difference | near | xp.exp(x - xp.max(x, axis=1, keepdims=True))
    s = (a - tl.max(a, 0)).to(tl.float16).to(tl.float32)  # PLANTED
    out = tl.exp(s)
fp16 mean | near | x / xp.mean(x, axis=1, keepdims=True)
    mean = (tl.sum(a, 0) / n).to(tl.float16).to(tl.float32)  # PLANTED
    out = a / mean
bf16 square | near | xp.sqrt(x * x + w)
    square = (a * a).to(tl.bfloat16).to(tl.float32)  # PLANTED
    out = tl.sqrt(square + b)
fp8 factor | near | x * w
    c = b.to(tl.float8e4nv).to(tl.float32)  # PLANTED
    out = a * c
cubic term | near | x + 0.044715 * x * x * x
    t = (a * a * a * 0.044715).to(tl.float16).to(tl.float32)  # PLANTED
    out = a + t
fp16 scan | near | xp.cumulative_sum(x, axis=1) * w
    c = tl.cumsum(a.to(tl.float16), 0).to(tl.float32)  # PLANTED
    out = c * b
tf32 product | near | xp.matmul(x, w, precision="ieee")
    out = tl.dot(a, b)  # PLANTED
fp16 product | near | x @ w
    c = tl.dot(a, b, out_dtype=tl.float16)  # PLANTED
    out = c.to(tl.float32)
"""
"""A loss: its name, the values of its operands, the reference; then lines of the kernel, of which one is PLANTED."""

_LOSS = re.compile(r"^(\S[^|]*) \| (\w+) \| (.*)\n((?:    .*\n)+)", re.MULTILINE)
LOSSES = {name: (textwrap.dedent(body), expected, VALUES[values]) for name, values, expected, body in _LOSS.findall(LOSSES_TEXT)}
NOT_FIRST = {"cancelled variance"}  # the mean, rounded in the line before, is squared and cancels as well: it is first, this second


def judged(body: str, expected: str, between: tuple[float, float], folder: Path, *, arch: str = "sm_90") -> tuple[Verdict, str]:
    """The verdict on the kernel of `body`, and its file."""
    text = (PRODUCT if "tl.dot" in body else ROWS).replace("KIND", "fp32" if "precision" in expected else "fp16")
    text = text.replace("EXPECTED", expected).replace("VALUES", str(between)).replace("BODY", "\n    ".join(body.splitlines()))
    path = folder / "lossy.py"
    path.write_text(text)
    on = target(f"emulated:{arch}")
    contract = resolve(f"{path}:test_rows")
    return judge(replace(contract.required(on)[0], certificate=True), on, contract), text


@pytest.mark.compiles
@pytest.mark.share(5)
@pytest.mark.parametrize("name", LOSSES)
def test_the_first_line_of_the_budget_is_the_one_that_loses(name: str, tmp_path: Path) -> None:
    verdict, text = judged(*LOSSES[name], tmp_path)
    assert verdict.outcome is Outcome.LOST_PRECISION, verdict
    size, place, source = verdict.details["error by line"][0].split("  ", 2)
    assert verdict.details["summary"].endswith(source) and place_of(verdict) == place
    (allowed,) = verdict.details["allowed"]
    assert "off what is allowed: " in allowed and allowed.startswith("out[") and float(size) > 0
    planted = [number for number, line in enumerate(text.splitlines(), 1) if "PLANTED" in line]
    assert len(NOT_FIRST) <= 2 and len(planted) == 1
    assert planted == [int(place.rpartition(":")[2])] or name in NOT_FIRST, verdict.details["error by line"]
    assert source in text


@pytest.mark.compiles
def test_a_right_kernel_has_no_budget(tmp_path: Path) -> None:
    verdict, _ = judged("total = tl.sum(a * a, 0)\nout = a / tl.sqrt(total)", *LOSSES["fp16 sum"][1:], tmp_path)
    assert verdict.outcome is Outcome.PASS and "error by line" not in verdict.details


def test_codes_are_read_by_the_one_format_of_their_width() -> None:
    words = np.array([0x3C00, 0x4000], np.uint16)
    assert real_of_words(words, "tensor<2xf16> f32").value.tolist() == [1.0, 2.0]
    assert real_of_words(words, "tensor<2xbf16>").value.tolist() == [2.0**-7, 2.0]
    assert real_of_words(np.float32([1.5]), "f32").value.tolist() == [1.5]


def test_a_local_error_is_that_of_the_words_on_the_words_given() -> None:
    found = with_local_error(Real(np.float64(10.0), 1e-12), Real(np.float64(3.0)), Real(np.float64(2.5)))
    assert found == (10.5, 1e-12), "what came before is not counted again"
    assert with_local_error(Real(np.float64(1.0)), Real(np.float64(np.inf)), Real(np.float64(2.0))).value == np.inf
