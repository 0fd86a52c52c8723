"""Throughput of the matrix products next to cuBLAS, on one GPU, in one run; then each timed launch judged at its own size.

    python -m benchmarks.throughput --out DIR               the rows of docs/benchmarks.md: about three minutes on an H200
    python -m benchmarks.throughput --out DIR --sizes 1024  a few seconds
    python -m benchmarks.throughput --out DIR --parts small grouping      these parts of the list alone
    python -m benchmarks.throughput --dry                   the list of rows, on any machine

Times are Triton's `do_bench` (the L2 cache cleared before each call) at the quantiles 0.5, 0.2 and 0.8, as the tutorials have them;
kernel and cuBLAS take turns, `--rounds` times, so that a clock that drifts drifts under both. Up to 2048^3 a launch takes the host
longer than the GPU: those sizes are timed a second time through one CUDA graph of many launches, kernel and cuBLAS alike, whose
operands stay in the L2 cache (Triton's `do_bench_cudagraph`). `matmul` is the autotuned launcher;
its winner is shown. `hopper_matmul` and `block_scaled_matmul` are timed in a few configurations and the fastest stands. The peer of
block_scaled_matmul is bf16 cuBLAS on dequantised operands. What is timed is then launched once more on drawn operands and held bit
for bit to the plan at chosen elements (`bitverdict.harness.lab.large_gemm.cases`). Kernels whose features the GPU lacks are
rows that say "not run".

Written to DIR: throughput.json, throughput.svg, and throughput.txt with the table. Exit status 1 when a word differs or matmul
misses one of `benchmarks.pages.GOALS`; 2 without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.campaign import Option, parse, run_script, write
from bitverdict.harness.judge.devices import device_of, target_device

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

from benchmarks.pages import reached
from benchmarks.throughput_operands import call_of, launcher, peer, placed
from benchmarks.throughput_rows import GRAPH, PARTS, SIZES, Ask, Timed, asked, named, size_of

QUANTILES = (0.5, 0.2, 0.8)


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    sizes = [size_of(text) for text in given.sizes]
    if given.dry:
        for ask in asked(sizes, given.parts):
            print(
                ask.row.part, ask.row.kernel, ask.row.dtype, ask.row.size, ask.row.timed, *(named(c) for c in ask.configs), sep="  "
            )
        return 0
    from bitverdict.harness.judge.launch import own_cache  # the place of compiled kernels: what is judged finds what was timed
    from bitverdict.harness.model.targets import target

    try:
        hardware = target(given.target)
    except ValueError as error:
        print(f"{error}; this benchmark times launches and needs a CUDA GPU; --dry lists its rows")
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    asks = list(asked(sizes, given.parts))
    begun, rows = time.monotonic(), []
    if not hardware.emulated:
        warm(asks, given.sizes, given.parts)
        print(f"compiled in {time.monotonic() - begun:.0f} s", flush=True)
    for ask in asks:
        try:
            with own_cache(ask.case):
                measure(ask, hardware, given.rounds, given.seconds)
        except Exception as error:  # a row that fails must not lose the others
            ask.row.not_run = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        rows.append(ask.row)
        print(line(ask.row), f"[{time.monotonic() - begun:.0f} s]", flush=True)
        save(given.out, rows, hardware, begun)
    if given.judge:
        judge([ask for ask in asks if ask.row.ms and not ask.row.moved], hardware)
    save(given.out, rows, hardware, begun)
    print((given.out / "throughput.txt").read_text())
    return status(rows)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    return parse(
        __doc__, argv=arguments, out=Path(".bitverdict/benchmarks"), sizes=Option(SIZES, "of matmul: N for a cube, or MxNxK"),
        target="cuda:0", rounds=3, seconds=Option(0.15, "of one turn"), judge=Option(True, "judge what was timed"),
        parts=Option((*PARTS,), f"of {', '.join(PARTS)}", choices=PARTS), dry=False,
    )  # fmt: skip


def warm(asks: list[Ask], sizes: list[str], parts: list[str]) -> None:
    """Compile every configuration into Triton's cache, many at a time, in processes of their own."""
    import subprocess

    script = "import sys; sys.path.insert(0, '.'); from benchmarks import throughput; throughput.compile_one({}, {}, {}, {})"

    def one(job: tuple[int, int]) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # then it is compiled where it is timed
            subprocess.run([sys.executable, "-c", script.format(sizes, parts, *job)], capture_output=True, timeout=90,
                           cwd=Path(__file__).resolve().parent.parent, check=False)  # fmt: skip

    with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)) - 2)) as pool:
        list(pool.map(one, variants(asks)))


def variants(asks: list[Ask]) -> list[tuple[int, int]]:
    """(row, configuration) of everything that is compiled once: of matmul the configurations of one size."""
    from bitverdict.kernels import matmul

    jobs, seen = [], set()
    for place, ask in enumerate(asks):
        if ask.needs:
            continue  # compiled where it is timed
        p, tuned = ask.case.problem, ask.configs == (None,)
        for number, config in enumerate(matmul.CONFIGS["cuda"] + matmul.HOPPER_CONFIGS if tuned else ask.configs):
            what = (ask.row.kernel, p.dtype if hasattr(p, "dtype") else p.format, tuned, config)
            if what not in seen:  # another size is the same code
                jobs.append((place, number))
            seen.add(what)
    return jobs


def compile_one(sizes: list[str], parts: list[str], place: int, number: int, device: str = "cuda:0") -> None:
    """Launch one configuration of one row, on a small problem of the same divisibility. An autotuner's configurations are compiled
    as it compiles them: as the only one that it has."""
    from bitverdict.harness.judge.launch import own_cache
    from bitverdict.kernels import matmul

    ask = list(asked([size_of(text) for text in sizes], parts))[place]
    p = ask.case.problem
    rows = ("table_rows", "rows", "out_rows") if hasattr(p, "table_rows") else ("m",)
    problem = replace(p, **dict.fromkeys(rows, 512), n=512, k=1024)
    if ask.configs == (None,):
        only = (matmul.CONFIGS["cuda"] + matmul.HOPPER_CONFIGS)[number]
        matmul.CONFIGS["cuda"], matmul.HOPPER_CONFIGS = (only,), ()
        config = None
    else:
        config = ask.configs[number]
    with own_cache(ask.case):
        launcher(replace(ask.case, config=config, problem=problem), device)()


def measure(ask: Ask, hardware: Any, rounds: int, seconds: float) -> None:
    """Fill in the row: the fastest configuration, then kernel and peer in turns."""
    import torch

    from bitverdict.harness.model.addresses import resolve
    from bitverdict.kernels import matmul

    row, contract, device = ask.row, resolve(ask.case.contract), str(device_of(hardware))
    if lacking := (contract.requires | ask.needs) - hardware.features:
        row.not_run = f"{hardware.name} lacks {', '.join(sorted(map(str, lacking)))}"
        return
    tensors = placed(ask.case, device)
    best = 0.0
    for config in ask.configs if len(ask.configs) > 1 else ():
        case = replace(ask.case, config=config)
        try:
            times = times_of(call_of(case, contract, tensors), hardware, 0.06, row.timed)
            reached = row.tflops(statistics.median(times))
        except Exception as error:  # out of resources, for one: told, and the others are tried
            row.tried[named(config)] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            continue
        row.tried[named(config)] = round(reached, 1)
        if reached > best:
            best, ask.case = reached, case
    ours, (row.peer, theirs) = call_of(ask.case, contract, tensors), peer(ask, device)
    with target_device(hardware):
        copied = ours()
    if row.moved:
        source = tensors["source"]
        row.words, row.differ = source.numel(), int((copied.view(torch.int32) != source.view(torch.int32)).sum())
    if ask.case.config is None:
        row.config = matmul.winner().name  # type: ignore[union-attr]
        row.tried = tuning(row.m * row.n * row.k <= matmul.SMALL_PRODUCT)
    elif not row.moved:  # which of several was the fastest; of a copy the row has named it
        row.config = named(ask.case.config)
    taken: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for is_peer, call in ((True, theirs), (False, ours)):
            taken[is_peer] += times_of(call, hardware, seconds, row.timed)
    row.ms, row.peer_ms = quantiles(taken[False]), quantiles(taken[True])


def times_of(call: Callable[[], Any], hardware: Any, seconds: float, timed: str) -> list[float]:
    """Milliseconds of the calls that fit `seconds`, after some to warm up; `timed` "graph": of a call in each of ten replays of one
    graph of that many calls."""
    with target_device(hardware):
        if hardware.emulated:
            begun = time.perf_counter()
            call()
            return [1e3 * (time.perf_counter() - begun)] * 10
        from triton.testing import do_bench, do_bench_cudagraph

        if timed == GRAPH:
            times = do_bench_cudagraph(call, rep=int(1000 * seconds), return_mode="all")
        else:
            times = do_bench(call, warmup=25, rep=int(1000 * seconds), return_mode="all")
        return times if isinstance(times, list) else [times]


def tuning(small: bool) -> dict[str, Any]:
    """What the autotuner of small or of other products measured for each configuration the last time, milliseconds."""
    from bitverdict.kernels import matmul

    for described in (True, False):
        tuner = matmul._tuner("cuda", described, small)
        chosen = matmul.configurations("cuda") + (matmul.HOPPER_CONFIGS if described else ())
        if told := getattr(tuner, "configs_timings", None):
            names = {str(config): c.name for config, c in zip(tuner.configs, chosen, strict=True)}
            times = {names[str(config)]: round(ms[0] if isinstance(ms, list) else ms, 4) for config, ms in told.items()}
            return dict(sorted(times.items(), key=lambda item: item[1]))
    return {}


def quantiles(times: list[float]) -> tuple[float, ...]:
    cuts = statistics.quantiles(times, n=10, method="inclusive")
    return tuple(round(cuts[round(10 * q) - 1], 6) for q in QUANTILES)


def judge(asks: list[Ask], hardware: Any) -> None:
    """Hold what was timed to the plan: the same launchers, configurations and sizes, on drawn operands."""
    from bitverdict.harness.lab.large_gemm.cases import judge_large

    cases = [ask.case for ask in asks]
    products = 1 << 29
    for ask, found in zip(asks, judge_large(cases, hardware, products=products, jobs=len(os.sched_getaffinity(0))), strict=True):
        ask.row.words, ask.row.differ = found.words, found.differ
        print(f"judged {found.contract} {found.kind} {found.size} {found.config}: {found.decision}, {found.words:,} words, "
              f"{found.differ} differ {found.message}", flush=True)  # fmt: skip


def line(row: Timed) -> str:
    if row.not_run:
        return f"{row.kernel} {row.dtype} {row.size} {row.config}: not run: {row.not_run}"
    if row.moved:
        speed, other = (row.moved / each[0] / 1e6 for each in (row.ms, row.peer_ms))
        beside = f"{row.peer} {other:.2f}, {row.differ} words differ"
        return f"{row.kernel} {row.dtype} {row.size} ({row.config}): {speed:.2f} GB/s, {beside}"
    return (
        f"{row.kernel} {row.dtype} {row.size} ({row.config}, {row.timed}): {row.tflops(row.ms[0]):.0f} TFLOP/s, {row.peer} "
        f"{row.tflops(row.peer_ms[0]):.0f}, ratio {row.ratio:.3f}"
    )


def save(out: Path, rows: list[Timed], hardware: Any, begun: float) -> None:
    """throughput.json, .txt and .svg of what there is so far."""
    from rich.console import Console

    from benchmarks.pages import svg, throughput_table
    from bitverdict.harness.session.reproducers import versions

    told = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "command": "python -m benchmarks.throughput " + " ".join("$OUT" if Path(word) == out else word for word in sys.argv[1:]),
        "model": hardware.model,
        "versions": versions() | driver_versions(),
        "seconds": round(time.monotonic() - begun, 1),
        "rows": [row.to_json() for row in rows],
    }
    write(out / "throughput.json", told)
    page = Console(width=200, file=io.StringIO(), record=True)
    page.print(throughput_table(told))
    (out / "throughput.txt").write_text(page.export_text())
    (out / "throughput.svg").write_text(svg(told))


def driver_versions() -> dict[str, str]:
    import subprocess

    import torch

    if not torch.cuda.is_available():
        return {}
    asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    return {"cuda": str(torch.version.cuda), "driver": asked.stdout.strip().splitlines()[0] if asked.stdout.strip() else "unknown"}


def status(rows: list[Timed]) -> int:
    """1 when a word differs, or matmul misses a goal."""
    goals = reached([row.to_json() for row in rows])
    for said, _ in goals:
        print(said)
    return 1 if any(row.differ for row in rows) or not all(met for _, met in goals) else 0


if __name__ == "__main__":
    run_script(main)
