"""What a launch costs on the emulated GPU, on one core: compilation apart, drawn schedules beside eager, a peer in the same run.

Run: `python -m benchmarks.emulator [runs]`; `TRITON_VIZ` names a checkout of triton-viz whose simulator then runs the same kernels.
Without it its column says "not run"; what it took on two cores when it was measured was 0.44 s and 0.013 s
(`docs/emulator.md`). Exit status 1 when a goal is missed: drawn at most 1.5 times eager; against the peer not slower with
bit-accurate operands, and 5 times faster with integers that no step can round.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its BLAS
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import contextlib  # noqa: E402
import importlib.util  # noqa: E402
import io  # noqa: E402
import re  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from types import ModuleType  # noqa: E402

import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bitverdict.harness.emulator import emulated  # noqa: E402
from bitverdict.kernels.blocked_matmul import blocked_matmul, make_descriptor  # noqa: E402
from bitverdict.kernels.tma_gather import described_rows, tma_gather  # noqa: E402

RUNS, DRAWN_GOAL, EXACT_GOAL = 15, 1.5, 5.0
PEER_MEASURED = {"blocked_matmul 256^3, tiles 128x128x64": 0.44, "tma_gather 128x128": 0.013}
INSTRUCTIONS = ("allocate_tensor_memory", "fence_async_shared", "tcgen05_commit", "tcgen05_mma")
Call = Callable[[], object]


def operands(kind: str, rows: int, columns: int, seed: int) -> torch.Tensor:
    """(rows, columns) fp16. "normal": sums round; "integers": small enough that no step can."""
    draw = torch.Generator().manual_seed(seed)
    if kind == "integers":
        return torch.randint(-7, 8, (rows, columns), generator=draw).half()
    return torch.randn(rows, columns, generator=draw).half()


def calls(kind: str) -> dict[str, Call]:
    """The launches that are timed, by name."""
    a, b, c = operands(kind, 256, 256, 0), operands(kind, 256, 256, 1), torch.empty(256, 256, dtype=torch.float16)
    table, rows = operands(kind, 512, 256, 2), (torch.arange(128, dtype=torch.int32) * 37) % 512
    names = list(PEER_MEASURED)
    return {names[0]: lambda: blocked_matmul(a, b, c, 128, 128, 64), names[1]: lambda: tma_gather(table, rows, 0, 128, 128)}


def timed(call: Call, schedule: Callable[[int], str], runs: int) -> tuple[float, float]:
    """(seconds of the first launch, which compiles and translates; median of the `runs` behind it)."""
    spent = []
    for run in range(runs + 1):
        with emulated("sm_100", schedule(run)):
            begun = time.perf_counter()
            call()
            spent.append(time.perf_counter() - begun)
    return spent[0], statistics.median(spent[1:])


def late_bound(stem: str) -> ModuleType:
    """The kernel's file with the instructions reached through their module: the peer exchanges them there, after the import."""
    path = Path(__file__).resolve().parent.parent / "kernels" / f"{stem}.py"
    head, found, body = path.read_text().partition("@gluon.jit")
    for name in INSTRUCTIONS:
        body = re.sub(rf"(?<![\w.]){name}\(", f"blackwell.{name}(", body)
    aside = Path(tempfile.mkdtemp()) / f"{stem}_late_bound.py"
    aside.write_text(f"{head}from triton.experimental.gluon.language.nvidia import blackwell\n\n\n{found}{body}")
    spec = importlib.util.spec_from_file_location(aside.stem, aside)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[aside.stem] = module
    spec.loader.exec_module(module)
    return module


def peer(name: str, kind: str, runs: int) -> float | str:
    """Seconds of a launch in triton-viz's simulator of Gluon, or why there are none."""
    checkout = os.environ.get("TRITON_VIZ", "")
    if not checkout:
        return "not run (TRITON_VIZ is not set)"
    sys.path.insert(0, checkout)
    try:
        import triton_viz

        stem = name.partition(" ")[0]
        traced = triton_viz.trace(client="tracer")(getattr(late_bound(stem), f"{stem}_kernel"))
        if stem == "blocked_matmul":
            a, b, c = operands(kind, 256, 256, 0), operands(kind, 256, 256, 1), torch.empty(256, 256, dtype=torch.float16)
            grid, given = (
                (2, 2),
                [make_descriptor(a, [128, 64]), make_descriptor(b, [64, 128]), make_descriptor(c, [128, 128]), False],
            )
        else:
            table, rows = operands(kind, 512, 256, 2), (torch.arange(128, dtype=torch.int32) * 37) % 512
            gathered = torch.empty(128, 128, dtype=torch.float16)
            grid, given = (1, 1), [gathered, 128, described_rows(table, 128, 128), rows, 128, 0, 128]
        spent = []
        for _ in range(runs + 1):
            begun = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                traced[grid](*given, num_warps=4)
            spent.append(time.perf_counter() - begun)
        return statistics.median(spent[1:])
    except Exception as error:  # the peer's own affair: said, not hidden
        return f"not run ({type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''})"


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    missed = []
    print(f"median of {runs} launches, one core, sm_100; seconds")
    print(f"{'launch':42s} {'operands':9s} {'first':>7s} {'eager':>8s} {'latest':>8s} {'drawn':>8s} {'/eager':>6s}  triton-viz")
    for kind in ("normal", "integers"):
        for name, call in calls(kind).items():
            first, eager = timed(call, lambda _: "eager", runs)
            _, latest = timed(call, lambda _: "latest", runs)
            _, drawn = timed(call, lambda run: f"drawn:{run}", runs)
            theirs = peer(name, kind, min(runs, 3))
            shown = theirs if isinstance(theirs, str) else f"{theirs:.3f} s, {theirs / eager:.1f} times ours"
            shown += f"; measured {PEER_MEASURED[name]} s" if isinstance(theirs, str) else ""
            print(f"{name:42s} {kind:9s} {first:7.3f} {eager:8.4f} {latest:8.4f} {drawn:8.4f} {drawn / eager:6.2f}  {shown}")
            if drawn > DRAWN_GOAL * eager:
                missed.append(f"{name}, {kind}: drawn {drawn / eager:.2f} times eager, goal {DRAWN_GOAL}")
            goal = EXACT_GOAL if kind == "integers" else 1.0
            if not isinstance(theirs, str) and theirs < goal * eager:
                missed.append(f"{name}, {kind}: {theirs / eager:.2f} times faster than the peer, goal {goal}")
    for line in missed:
        print("missed: " + line)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
