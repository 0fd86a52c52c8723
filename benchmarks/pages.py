"""What the GPU's runs came to, as tables, a drawing and a page.

    python -m benchmarks.pages DIR > docs/benchmarks.md      from throughput.json, two_gpus.json, large.jsonl, ... in DIR

A file that is missing is a section that says that it was not run.
"""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

SHOWN = ("kernel", "type", "M x N x K", "configuration", "TFLOP/s", "0.2 to 0.8", "peer", "its TFLOP/s", "ratio", "words", "differ")
COLOURS = {"matmul": "#1f5fbf", "hopper_matmul": "#b8860b", "ampere_gemm": "#777777", "block_scaled_matmul": "#7a3fa0"}
WIDTH, HEIGHT, LEFT, TOP, BAR = 900, 0, 330, 46, 22


def cells(row: dict) -> list[str]:
    """One row of the throughput table. The quantiles of time are turned round in speed: 0.8 of the time is the slow end."""
    if row["not_run"]:
        return [row["kernel"], row["dtype"], row["config"] if not row["m"] else row["size"], "", "not run", "", "", "", "", "", ""]
    speed, peer = row["tflops"], row["peer_tflops"]
    return [row["kernel"], row["dtype"], row["size"], row["config"], f"{speed[0]:.0f}", f"{speed[2]:.0f} to {speed[1]:.0f}",
            row["peer"], f"{peer[0]:.0f}", f"{row['ratio']:.3f}", f"{row['words']:,}", f"{row['differ']:,}"]  # fmt: skip


def throughput_table(told: dict) -> Any:
    from rich.table import Table

    table = Table(title=f"Throughput on {told['model']}, {told['date']}", title_justify="left", pad_edge=False)
    for name in SHOWN:
        table.add_column(name, justify="right" if name[0] in "TMwdr0" else "left")
    for row in told["rows"]:
        table.add_row(*cells(row))
    return table


def svg(told: dict) -> str:
    """Bars of TFLOP/s, kernel over peer, with the span from quantile 0.2 to 0.8."""
    rows = [row for row in told["rows"] if not row["not_run"]]
    height = TOP + len(rows) * (2 * BAR + 14) + 30
    most = max([row["peer_tflops"][0] for row in rows] + [row["tflops"][0] for row in rows] + [1.0]) * 1.08
    scale = (WIDTH - LEFT - 60) / most
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="12" y="22" font-size="15">TFLOP/s on {escape(told["model"])}, {escape(told["date"])}; grey: cuBLAS</text>']
    for step in range(0, int(most), 100):
        x = LEFT + step * scale
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 26}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">{step}</text>')
    for place, row in enumerate(rows):
        y = TOP + place * (2 * BAR + 14)
        label = f"{row['kernel']} {row['dtype']} {row['size']}"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>')
        small = 'text-anchor="end" fill="#777777" font-size="10"'
        parts.append(f'<text x="{LEFT - 8}" y="{y + 32}" {small}>{escape(row["config"])}</text>')
        for lower, speed, colour in ((0, row["tflops"], COLOURS.get(row["kernel"], "#1f5fbf")), (1, row["peer_tflops"], "#bbbbbb")):
            top, length = y + lower * BAR, speed[0] * scale
            parts.append(f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            low, high = (LEFT + speed[end] * scale for end in (2, 1))
            parts.append(f'<line x1="{low:.1f}" y1="{top + 10}" x2="{high:.1f}" y2="{top + 10}" stroke="black"/>')
            said = f"{speed[0]:.0f}" + (f" ({row['ratio']:.2f})" if not lower else "")
            parts.append(f'<text x="{LEFT + length + 6:.1f}" y="{top + 15}">{said}</text>')
    return "\n".join([*parts, "</svg>", ""])
