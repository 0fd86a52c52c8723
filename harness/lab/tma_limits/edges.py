"""Which bytes a tiled copy touches at the right and lower edge of a tensor, measured byte by byte.

For every element size (1, 2, 4 bytes), row width, number of rows, box width and first column: the whole buffer is compared with
what it held, so that each byte written is seen, padding included. A store is told by the bytes it wrote past the end of a row; a
load by what came for the columns outside, where the tensor's padding holds other words.

    python -m bitverdict.harness.lab.tma_limits.edges [--emulated sm_90] --json FILE
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

DTYPES = {1: "int8", 2: "int16", 4: "fp32"}
BOX_ROWS = 8
STRIDE_BYTES = 256  # from row to row: more than any row and box here
ROWS = 12  # of the buffer; the tensor has fewer
FILL_BYTE, SOURCE = 0x5A, 0x80  # what the buffer holds; every byte of the source has the high bit


@dataclass(frozen=True)
class Edge:
    """One launch and what it touched. Widths in bytes, rows in elements; `past` are offsets from the row's end."""

    kind: str  # "tiled store" | "tiled load"
    itemsize: int
    columns: int  # of the tensor, in elements
    rows: int
    box_bytes: int
    swizzle: int | None
    column: int  # where the box starts, in elements
    past: tuple[int, ...]  # store: bytes written past the row's end, the same in every row; load: bytes not zero there
    differs_by_row: bool  # whether rows disagree about `past`
    below: int  # bytes written in rows below the tensor (load: not zero)
    before: int  # bytes written left of the box
    values_right: bool  # every byte written, past the end too, is the tile's own (load: the tensor's own inside)

    @property
    def residue(self) -> int:
        return self.columns * self.itemsize % 16


def launches(quick: bool) -> Iterator[tuple[int, int, int, int | None, int, int]]:
    """(itemsize, columns, rows, swizzle, box bytes, first column in units of 16 bytes)."""
    for itemsize in DTYPES:
        for box_bytes, swizzle in ((16, 0), (32, None), (64, None), (128, None), (128, 0)):
            widths = range(itemsize, 65, itemsize) if not quick else (itemsize, 12, 16, 20, 28, 48)
            for width in widths:
                for rows in (1, 3, 8, 9) if width < 24 else (3,):
                    for unit in {0, width // 16, 1}:
                        if not quick or unit == 0:
                            yield itemsize, width // itemsize, rows, swizzle, box_bytes, unit


def measure(device: object, *, quick: bool = False) -> list[Edge]:
    """Every launch on `device`, a torch device; under `emulated(...)` a CPU's."""
    found = []
    for itemsize, columns, rows, swizzle, box_bytes, unit in launches(quick):
        for kind in ("tiled store", "tiled load"):
            found.append(_edge(kind, device, itemsize, columns, rows, box_bytes, swizzle, unit * 16 // itemsize))
    return found


def _edge(
    kind: str, device: object, itemsize: int, columns: int, rows: int, box_bytes: int, swizzle: int | None, column: int
) -> Edge:
    import torch

    from bitverdict.harness.judge.guarded_buffers import torch_dtype
    from bitverdict.harness.lab.tma_limits.tma_kernels import launch_tiled

    dtype = torch_dtype(DTYPES[itemsize])
    buffer = torch.full((ROWS * STRIDE_BYTES,), FILL_BYTE, dtype=torch.uint8, device=device)  # (bytes,)
    table = buffer.view(dtype).as_strided((rows, columns), (STRIDE_BYTES // itemsize, 1))  # (rows, columns)
    source = SOURCE + np.arange(BOX_ROWS * box_bytes) % 127  # (bytes,), none of them UNTOUCHED or 0
    if kind == "tiled load":
        buffer.copy_(torch.from_numpy((1 + np.arange(ROWS * STRIDE_BYTES) % 126).astype(np.uint8)))
        tile = torch.zeros(BOX_ROWS * box_bytes, dtype=torch.uint8, device=device)  # (bytes,)
    else:
        tile = torch.from_numpy(source.astype(np.uint8)).to(device)
    before = buffer.cpu().numpy().reshape(ROWS, STRIDE_BYTES).copy()
    launch_tiled(
        kind, table, tile.view(dtype).view(BOX_ROWS, box_bytes // itemsize), 0, column, swizzle=swizzle, owner=buffer.view(dtype)
    )
    after = (tile if kind == "tiled load" else buffer).cpu().numpy()
    measure_edge = _of_load if kind == "tiled load" else _of_store
    return Edge(
        kind,
        itemsize,
        columns,
        rows,
        box_bytes,
        swizzle,
        column,
        *measure_edge(after, before, source.reshape(BOX_ROWS, box_bytes), rows, columns * itemsize, column * itemsize),
    )


def _of_store(after: np.ndarray, held: np.ndarray, source: np.ndarray, rows: int, width: int, first_byte: int) -> tuple:
    after = after.reshape(ROWS, STRIDE_BYTES)
    changed_bytes = after != held  # (ROWS, STRIDE_BYTES)
    row_count = min(rows, BOX_ROWS)
    past = [tuple((np.flatnonzero(changed_bytes[r, width:])).tolist()) for r in range(row_count)]
    box = changed_bytes[:row_count, first_byte : first_byte + source.shape[1]]
    own = after[:row_count, first_byte : first_byte + source.shape[1]] == source[:row_count]
    inside = max(0, min(width - first_byte, source.shape[1]))
    is_right = bool(own[box].all() and box[:, :inside].all())
    return (
        past[0],
        any(p != past[0] for p in past),
        int(changed_bytes[row_count:].sum()),
        int(changed_bytes[:, :first_byte].sum()),
        is_right,
    )


def _of_load(now: np.ndarray, before: np.ndarray, source: np.ndarray, rows: int, width: int, first_byte: int) -> tuple:
    tile = now.reshape(source.shape)  # (BOX_ROWS, box bytes)
    reached = min(rows, BOX_ROWS)
    inside = max(0, min(width - first_byte, source.shape[1]))
    beyond = max(0, first_byte - width)
    past = [tuple((beyond + np.flatnonzero(tile[r, inside:])).tolist()) for r in range(reached)]
    right = bool((tile[:reached, :inside] == before[:reached, first_byte : first_byte + inside]).all())
    return past[0], any(p != past[0] for p in past), int((tile[reached:] != 0).sum()), 0, right


def model(edge: Edge) -> tuple[int, ...]:
    """What `bitverdict.reference.tiled_copy` says is touched past a row's end: a store ends with the unit of 16 bytes that the row
    ends in."""
    if edge.kind == "tiled load":
        return ()
    from bitverdict.reference.tiled_copy import written_columns

    width, first = edge.columns * edge.itemsize, edge.column * edge.itemsize
    reach = written_columns(edge.columns, edge.itemsize) * edge.itemsize
    return tuple(range(max(0, first - width), max(0, min(reach, first + edge.box_bytes) - width)))


def illegal(edges: list[Edge]) -> list[Edge]:
    """Those that touched other bytes than the model says, or wrote other words."""
    return [e for e in edges if e.past != model(e) or e.differs_by_row or e.below or e.before or not e.values_right]


def summary(edges: list[Edge]) -> list[dict]:
    """A row for each kind, element size and residue of the row's width: launches, and the sets of bytes touched past its end by
    boxes that reach over it."""
    rows: dict[tuple, dict] = {}
    for edge in edges:
        width, first = edge.columns * edge.itemsize, edge.column * edge.itemsize
        if first >= width or first + edge.box_bytes < -(-width // 16) * 16:
            continue
        row = rows.setdefault((edge.kind, edge.itemsize, edge.residue), {"launches": 0, "past": []})
        row["launches"] += 1
        if list(edge.past) not in row["past"]:
            row["past"].append(list(edge.past))
    return [{"kind": k, "itemsize": i, "residue": r} | row for (k, i, r), row in sorted(rows.items())]


def main(words: list[str] | None = None) -> int:
    """Measure, say what the model does not explain, write all of it. Status 0 where the model explains every launch, 1
    otherwise."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m bitverdict.harness.lab.tma_limits.edges")
    parser.add_argument("--emulated", default="", metavar="ARCH", help="on the emulated GPU instead of cuda:0")
    parser.add_argument("--quick", action="store_true", help="a few widths only")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args(words)
    machine: Any = nullcontext()
    if arguments.emulated:
        from bitverdict.harness.emulator import emulated

        machine = emulated(arguments.emulated)
    with machine:
        edges = measure(torch.device("cpu" if arguments.emulated else "cuda"), quick=arguments.quick)
    illegal_edges = illegal(edges)
    name = f"emulated:{arguments.emulated}" if arguments.emulated else torch.cuda.get_device_name(0)
    arguments.json.write_text(
        json.dumps(
            {
                "machine": name,
                "launches": len(edges),
                "unlawful": len(illegal_edges),
                "summary": summary(edges),
                "first illegal": [asdict(e) for e in illegal_edges[:40]],
            },
            indent=1,
        )
    )
    print(f"{name}: {len(edges)} launches, {len(illegal_edges)} not as the model says")
    for edge in illegal_edges[:8]:
        print(f"  {edge}")
    return 1 if illegal_edges else 0


if __name__ == "__main__":
    sys.exit(main())
