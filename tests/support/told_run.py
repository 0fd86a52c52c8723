"""What a page tells of a run, made by hand: two failures, one of wrong words and one of a race in a ring of two stages."""

from __future__ import annotations

from typing import Any

import torch

from bitverdict.harness.report.maps import error_map, histogram, tile_map
from bitverdict.harness.report.timeline import timeline
from tests.support.vector_add import add


def adds_a_twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A launcher with a bug, whose words a kernel stores."""
    return add(a, a)


HEADER = {
    "command": "bitverdict run matmul --launcher mine.py:matmul --html report.html",
    "date": "2026-11-23 01:00:00 UTC",
    "commit": "bfc832959017",
    "versions": {"python": "3.11.7", "torch": "2.13.0+cpu", "triton": "3.9.0"},
    "machine": "Linux x86_64, here",
}
OUTPUT: dict[str, Any] = {
    "name": "c",
    "wrong": 40,
    "of": 256,
    "map": {
        "cell": [8, 8],
        "shape": [16, 16],
        "cells": [[[64, 0, 1, 0.0], [64, 32, 2, 8.0]], [[64, 8, 3, 256.0], [64, 0, 0, -1.0]]],
    },
    "errors": {"unit": "bound", "first": -8, "counts": [[9, 0]] * 9 + [[0, 5]] * 8, "zero": [135, 0], "unplaced": [0, 0]},
}
WRITERS = [[0, [0, 0, 0]], [0, [1, 0, 0]], [0, [0, 1, 0]]]


def piece(low: int, high: int, space: str = "shared memory") -> dict[str, Any]:
    return {"space": space, "low": low, "high": high}


def event(step: int, kind: str, flight: int = 0, barrier: int = -1, phase: int = 0, **more: Any) -> dict[str, Any]:
    plain = {"agent": "partition 0", "operation": "TMA load", "line": "mine.py:7", "note": "", "reads": [], "writes": []}
    return plain | {"step": step, "kind": kind, "flight": flight, "barrier": barrier, "phase": phase} | more


RING = [
    event(1, "barrier", barrier=512, operation="init"),
    event(2, "issued", 1, writes=[piece(0, 256)]),
    event(3, "issued", 2, writes=[piece(256, 512)]),
    event(4, "landed", 1, writes=[piece(0, 256)]),
    event(5, "phase", barrier=512, phase=1),
    event(6, "waits", barrier=512, phase=0),
    event(7, "passes", barrier=512, phase=1),
    event(7, "known", 1, writes=[piece(0, 256)]),
    event(8, "read", reads=[piece(0, 256)], operation="local_load"),
    event(9, "issued", 3, writes=[piece(0, 256)]),
    event(10, "fault", reads=[piece(256, 512)], operation="local_load"),
]
TOLD = {"kernel": "ring_kernel", "program": [0, 1, 0], "events": RING}


def failure(name: str, outcome: str, pictures: list[dict]) -> dict[str, Any]:
    return {
        "contract": name,
        "target": "emulated:sm_90",
        "outcome": outcome,
        "error": False,
        "message": "c: 40 of 256 words differ\nfirst at [0, 8]: got 0x3c00 (1), expected 0x4000 (2), <script>alert(1)</script>",
        "location": "mine.py:7",
        "headline": "programs (1, 0) and (0, 1) read the stage of another",
        "clusters": ["rows 0..15 of 16, columns 0..15 of 16"],
        "first": [{"at": [0, 8], "got": "0x3c00 (1)", "expected": "0x4000 (2)", "ulp": 1024}],
        "heat": None,
        "details": [["rule", ["TMA load writes shared memory until a wait on the mbarrier that counts its bytes"]]],
        "help": ["wait on the mbarrier before the load"],
        "notes": ["12 cases show it"],
        "drawn": "m=512 n=512 k=64 dtype=fp16",
        "case": "m=16 n=16 k=64 dtype=fp16 regime=normal data_seed=0 schedule=eager",
        "replay": f"bitverdict replay .bitverdict/failures/{name}-emulated_sm_90-0123456789ab.json",
        "source": [
            {
                "file": "mine.py",
                "lines": [
                    {
                        "number": 6,
                        "parts": [("", "    "), ("keyword", "for"), ("", " block in range(blocks):")],
                        "said": "",
                        "gap": False,
                    },
                    {
                        "number": 7,
                        "parts": [("", "  tma.async_load(a, ["), ("number", "0"), ("string", ", 'k'], "), ("comment", "# ring")],
                        "said": "race: here",
                        "gap": False,
                    },
                ],
            }
        ],
        "pictures": pictures,
        "examined": "launched again on emulated:sm_90 for the pictures",
        "not_examined": "",
        "program": "ring_kernel, program (0, 1, 0)",
    }


def row(contract: str, target: str, **counts: int) -> dict[str, Any]:
    decisions = dict.fromkeys(("pass", "fail", "inconclusive", "not run", "cancelled", "error"), 0) | counts
    plain = {"dtype": "fp16", "basis": "words 8", "bound_used": 0.5, "cover": [8, 8], "cases": 8, "words": 2048}
    return {"contract": contract, "target": target} | plain | decisions


def told() -> dict[str, Any]:
    """The whole of it."""
    pictures = [
        {"kind": "tiles", "name": "c", "svg": tile_map(OUTPUT, WRITERS)},
        {"kind": "sizes", "name": "c", "svg": error_map(OUTPUT)},
        {"kind": "errors", "name": "c", "svg": histogram(OUTPUT)},
    ]
    ring = [{"kind": "timeline", "name": "", "svg": timeline(TOLD, "race", "mine.py:7")}]
    return {
        "rows": [
            row("mine.py:matmul", "emulated:sm_90", **{"pass": 6, "fail": 2}),
            row("mine.py:matmul", "emulated:sm_100", **{"pass": 8}),
            row("softmax", "emulated:sm_90", **{"pass": 7, "inconclusive": 1}),
        ],
        "failures": [failure("mine.py:matmul", "wrong words", pictures), failure("ring", "race", ring)],
        "cases": [
            ["mine.py:matmul", "emulated:sm_90", "m=16 n=16 k=64", "fail", "wrong words", 0.25],
            ["mine.py:matmul", "emulated:sm_90", "m=1 n=1 k=1", "pass", "pass", 1.5],
            ["softmax", "emulated:sm_90", "m=1 n=1", "inconclusive", "undecided", 0.125],
        ],
        "left_out": ["mine.py:matmul: k is always a multiple of 16"],
        "sizes": [{"contract": "mine.py:matmul", "sizes": "m = 512, n = 512"}],
        "configurations": [],
        "remarks": ["inconclusive (1 case): no word of this case can be decided"],
        "sentences": ["24 cases judged, 6,144 output words compared: 21 pass, 2 fail, 1 inconclusive"],
        "status": 1,
    }
