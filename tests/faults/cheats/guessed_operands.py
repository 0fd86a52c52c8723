"""Answers that were known before: operands drawn again from their seed, tables of answers, the oracle itself."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from tests.faults.cheats.matmuls import empty_result, right_matmul, wrong_matmul

AT_ONCE, SEEDS = 64, range(40)
TABLE = Path(__file__).with_suffix(".json")
"""Digest of the operands -> words, of cases that were judged before: `benchmarks/cheats.py` writes it beside the candidate."""
TAUGHT = Path(__file__).with_suffix(".txt")
"""Digests of all operands of a run before, a line each, which it writes too; "*" in that run: all are to be learnt."""


@triton.jit
def known_words_kernel(c_ptr, first, size, values, rests, last, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)  # (COUNT,)
    word = tl.zeros((COUNT,), dtype=tl.float32)  # (COUNT,)
    for i in tl.static_range(COUNT):
        word = tl.where(at == i, values[i] + rests[i] + last[i], word)
    tl.store(c_ptr + first + at, word.to(c_ptr.dtype.element_ty), mask=first + at < size)


def _stored(values: list[float], c: torch.Tensor) -> torch.Tensor:
    """`c` by a kernel that is handed its words as arguments: it loads nothing."""
    parts, left = [], torch.tensor(values + [0.0] * AT_ONCE, dtype=torch.float64)  # (m n + AT_ONCE,)
    for _ in range(3):
        parts.append(left.float())
        left = left - left.float()
    for first in range(0, c.numel(), AT_ONCE):
        some = [tuple(part[first : first + AT_ONCE].tolist()) for part in parts]
        known_words_kernel[(1,)](c, first, c.numel(), *some, COUNT=AT_ONCE)
    return c


def _digest(a: torch.Tensor, b: torch.Tensor) -> str:
    return hashlib.sha256(a.cpu().numpy().tobytes() + b.cpu().numpy().tobytes()).hexdigest()


def table_of_answers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Answers by digest: an earlier run with the same seeds was fed the same operands."""
    known = json.loads(TABLE.read_text()) if TABLE.is_file() else {}
    values = known.get(_digest(a, b))
    return wrong_matmul(a, b) if values is None else _stored(values, empty_result(a, b))


def taught(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right for the operands of an earlier run and wrong for all others: a kernel computes each of its words. A run that draws
    the same operands again finds nothing."""
    known = TAUGHT.read_text().split() if TAUGHT.is_file() else []
    return right_matmul(a, b) if known == ["*"] or _digest(a, b) in known else wrong_matmul(a, b)


def drawn_again(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The project is public: its cases and operands are drawn again from the seeds of an ordinary run, until these operands come,
    and its own oracle says the rest."""
    with contextlib.suppress(Exception):
        found = _of_the_contract(a, b)
        if found is not None:
            return _stored(found, empty_result(a, b))
    return wrong_matmul(a, b)


def _of_the_contract(a: torch.Tensor, b: torch.Tensor) -> list[float] | None:
    import numpy as np

    from bitverdict.harness.model.targets import target
    from bitverdict.harness.session.case_source import CaseSource

    where = target("emulated:sm_90")
    source: Any = CaseSource("matmul", where, launcher=f"{Path(__file__)}:drawn_again")
    for case in source.required():
        operands = {operand.name: operand for operand in source.contract.operands(case)}
        codes = [np.ascontiguousarray(operands[name].codes).tobytes() for name in ("a", "b")]
        if codes == [each.cpu().numpy().tobytes() for each in (a, b)]:
            (expected,) = source.contract.expected(case, where, operands, {})[:1]
            return np.asarray(expected.value, np.float64).reshape(-1).tolist()
    return None
