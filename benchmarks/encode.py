"""Encoding fp32 to E2M1 and E4M3: rate and peak memory, beside `triton.tools.mxfp` and ml_dtypes, on one core.

Run: `python benchmarks/encode.py [elements]`. Each row is a process of its own; the rate is that of the fastest of several runs,
the memory the highest resident size during one run less that before it (Linux). Exit status 1 when a goal is missed: ten times
Triton's rate, at most three times ml_dtypes' time, at most a hundredth of Triton's memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ELEMENTS = 1 << 22
ROWS = ("triton.tools.mxfp e2m1", "ml_dtypes e2m1", "ml_dtypes e4m3", "reference e2m1", "reference e4m3")
CHECKOUT = Path(__file__).resolve().parent.parent


def encoder(row: str) -> Callable[[np.ndarray], object]:
    """The call that a row measures, imports done."""
    package, name = row.rsplit(" ", 1)
    if package == "ml_dtypes":
        import ml_dtypes

        dtype = {"e2m1": ml_dtypes.float4_e2m1fn, "e4m3": ml_dtypes.float8_e4m3fn}[name]
        return lambda values: values.astype(dtype)
    if package == "reference":
        sys.path.insert(0, str(CHECKOUT))
        from bitverdict.reference.formats import FORMATS, encode

        return lambda values: encode(FORMATS[name], values)
    import torch
    from triton.tools.mxfp import MXFP4Tensor

    torch.set_num_threads(1)
    return lambda values: MXFP4Tensor(torch.from_numpy(values))


def resident(field: str) -> int:
    """VmRSS or VmHWM of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}: memory is measured on Linux")


def measure(row: str, elements: int) -> dict[str, float]:
    """Nanoseconds an element and bytes of peak memory an element."""
    encode_values = encoder(row)
    values = np.random.default_rng(0).standard_normal(elements, dtype=np.float32)  # (elements,)
    values *= 4
    encode_values(values[:64])
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew from here
    before = resident("VmRSS")
    kept = encode_values(values)
    peak = max(resident("VmHWM") - before, 0)
    del kept
    seconds = []
    for _ in range(2 if row.startswith("triton") else 7):
        start = time.perf_counter()
        encode_values(values)
        seconds.append(time.perf_counter() - start)
    return {"nanoseconds": min(seconds) / elements * 1e9, "bytes": peak / elements}


def one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main(elements: int) -> int:
    """Print the table; 0 when every goal is met."""
    got = {}
    print(f"fp32 -> codes, {elements:,} elements, one core")
    print(f"{'':26}{'ns/element':>12}{'M/s':>9}{'peak bytes/element':>20}{'rate / triton':>15}{'time / ml_dtypes':>18}")
    for row in ROWS:
        done = subprocess.run([sys.executable, __file__, "--row", row, str(elements)], capture_output=True, text=True, check=True)
        got[row] = json.loads(done.stdout)
        triton, peer = got[ROWS[0]], got.get("ml_dtypes " + row.split()[-1])
        cells = f"{got[row]['nanoseconds']:12.2f}{1e3 / got[row]['nanoseconds']:9.1f}{got[row]['bytes']:20.2f}"
        cells += f"{triton['nanoseconds'] / got[row]['nanoseconds']:15.1f}"
        print(f"{row:26}{cells}" + (f"{got[row]['nanoseconds'] / peer['nanoseconds']:18.2f}" if peer else ""))
    met = True
    for name in ("e2m1", "e4m3"):
        ours, peer, triton = got[f"reference {name}"], got[f"ml_dtypes {name}"], got[ROWS[0]]
        goals = {
            "10 x Triton's rate": triton["nanoseconds"] >= 10 * ours["nanoseconds"],
            "3 x ml_dtypes' time": ours["nanoseconds"] <= 3 * peer["nanoseconds"],
            "1/100 of Triton's memory": 100 * ours["bytes"] <= triton["bytes"],
        }
        print(f"{name}: " + ", ".join(f"{goal} {'met' if held else 'MISSED'}" for goal, held in goals.items()))
        met &= all(goals.values())
    return 0 if met else 1


if __name__ == "__main__":
    one_core()
    if sys.argv[1:2] == ["--row"]:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
    else:
        sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else ELEMENTS))
