"""Contract under test: what threads of a warp, a CTA and a cluster find where they meet are the words that a GPU gave; an
instruction in another's place gives other words."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import emulated
from bitverdict.harness.lab.hardware_words.thread_probes import BLOCK, CTAS, PROBES, STEM, THREADS, inputs
from bitverdict.harness.ptx_machine.launch import ptx_kernel

FILES = sorted((Path(__file__).parents[1] / "hardware_words").glob(f"*_{STEM}.npz"))


@cache
def archive(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as opened:
        return dict(opened)


def words_of(arch: str, text: str, rows: int, x: np.ndarray) -> np.ndarray:
    out = torch.zeros(rows, THREADS, dtype=torch.int32)
    with emulated(arch):
        ptx_kernel(text, "kernel")[CTAS, BLOCK](torch.from_numpy(x.view(np.int32)), out)
    return out.numpy().view(np.uint32)


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_threads_find_the_words_of_a_gpu(path: Path, name: str) -> None:
    kept, kernel = archive(path), PROBES[name]
    assert json.loads(str(kept["meta"]))["words"][name] == list(kernel.words)
    got = words_of(kernel.arch, kernel.text, len(kernel.words), kept["x"])
    assert [
        said for said, ours, theirs in zip(kernel.words, got, kept[f"output_{name}"], strict=True) if (ours != theirs).any()
    ] == []


def test_there_are_words_of_a_gpu() -> None:
    assert FILES


@pytest.mark.parametrize(
    ("name", "word", "before", "after"),
    [
        ("warp", "vote.sync.uni.pred", "vote.sync.uni.pred", "vote.sync.all.pred"),
        ("warp", "vote.sync.any.pred, of a group", "vote.sync.any.pred", "vote.sync.all.pred"),
        ("warp", "match.any.sync.b64", "mov.b64 %rd4, {%r21, %r22}", "mov.b64 %rd4, {%r22, %r22}"),
        ("warp", "match.all.sync.b32", "and.b32 %r21, %r6, %r5", "and.b32 %r21, %r6, %r6"),
        ("warp", "redux.sync.min.s32", "redux.sync.min.s32", "redux.sync.min.u32"),
        ("warp", "redux.sync.xor.b32", "redux.sync.xor.b32", "redux.sync.or.b32"),
        ("warp", "shfl.sync.up.b32", "shfl.sync.up.b32 %r20", "shfl.sync.down.b32 %r20"),
        ("warp", "activemask.b32, of a group", "activemask.b32 %r20;", "mov.b32 %r20, %lanemask_eq;"),
        ("cta", "bar.red.or.pred", "bar.red.or.pred", "bar.red.and.pred"),
        ("cta", "bar.sync of two warps", "xor.b32 %r24, %r24, 128", "xor.b32 %r24, %r24, 124"),
        ("cta", "atom.shared.dec.u32", "atom.shared.dec.u32", "atom.shared.inc.u32"),
        ("cluster", "getctarank", "getctarank.shared::cluster.u32 %r20, %r26", "getctarank.shared::cluster.u32 %r20, %r25"),
        ("cluster", "st.shared::cluster", "add.u32 %r21, %r10, 3;", "add.u32 %r21, %r10, 2;"),
    ],
)  # fmt: skip
def test_another_instruction_finds_other_words(name: str, word: str, before: str, after: str) -> None:
    kernel, x = PROBES[name], inputs(1)
    right = words_of(kernel.arch, kernel.text, len(kernel.words), x)
    wrong = words_of(kernel.arch, kernel.text.replace(before, after), len(kernel.words), x)
    assert before in kernel.text and (right != wrong).any(axis=1)[kernel.words.index(word)]
