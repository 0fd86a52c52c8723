"""Throughput of the matrix products next to cuBLAS, on one GPU, in one run; then each timed launch judged at its own size.

    python benchmarks/throughput.py --out DIR               the rows of docs/benchmarks.md: about three minutes on an H200
    python benchmarks/throughput.py --out DIR --sizes 1024  a few seconds
    python benchmarks/throughput.py --dry                   the list of rows, on any machine

Times are Triton's `do_bench` (the L2 cache cleared before each call) at the quantiles 0.5, 0.2 and 0.8, as the tutorials have them;
kernel and cuBLAS take turns, `--rounds` times, so that a clock that drifts drifts under both. `matmul` is the autotuned launcher;
its winner is shown. `hopper_matmul` and `block_scaled_matmul` are timed in a few configurations and the fastest stands. The peer of
block_scaled_matmul is bf16 cuBLAS on dequantised operands. What is timed is then launched once more on drawn operands and held bit
for bit to the plan at chosen elements (`harness.large_cases`). Kernels whose features the GPU lacks are rows that say "not run".

Written to DIR: throughput.json, throughput.svg, and throughput.txt with the table. Exit status 1 when a word differs or matmul
stays below 0.95 of cuBLAS at 8192^3 in fp16; 2 without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

QUANTILES = (0.5, 0.2, 0.8)
SIZES = ("1024", "2048", "4096", "8192", "9728x8192x65536")  # the tutorial's
GOAL, GOAL_SIZE = 0.95, (8192, 8192, 8192)


@dataclass
class Timed:
    """One row: a kernel at a size, its peer, both in milliseconds (median, 0.2, 0.8), TFLOP/s of the medians, their ratio, and how
    many words of the same launch were compared."""

    kernel: str
    dtype: str
    m: int
    n: int
    k: int
    config: str = ""
    ms: tuple[float, ...] = ()
    peer: str = ""
    peer_ms: tuple[float, ...] = ()
    tried: dict[str, Any] = field(default_factory=dict)  # configuration -> TFLOP/s, or what refused it
    words: int = 0
    differ: int = 0
    not_run: str = ""

    @property
    def size(self) -> str:
        return f"{self.m}" if self.m == self.n == self.k else f"{self.m}x{self.n}x{self.k}"

    def tflops(self, ms: float) -> float:
        return 2.0 * self.m * self.n * self.k / ms / 1e9

    @property
    def ratio(self) -> float:
        return self.peer_ms[0] / self.ms[0] if self.ms and self.peer_ms else 0.0

    def to_json(self) -> dict:
        told: dict[str, Any] = {"size": self.size, "ratio": round(self.ratio, 4)}
        for name, times in (("tflops", self.ms), ("peer_tflops", self.peer_ms)):
            told[name] = [round(self.tflops(t), 1) for t in times]
        return asdict(self) | told


@dataclass
class Ask:
    """What to time: the case (its configuration the first of `configs`), and how to make operands and peer."""

    row: Timed
    case: Any
    configs: tuple[Any, ...]
    needs: frozenset = frozenset()  # features beyond those of the kernel


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    sizes = [size_of(text) for text in given.sizes]
    if given.dry:
        for ask in [*asked(sizes), *blackwell()]:
            print(ask.row.kernel, ask.row.dtype, ask.row.size, *(named(c) for c in ask.configs), sep="  ")
        return 0
    from harness.judge import _own_cache  # the court's place for compiled kernels: what is judged finds what was timed
    from harness.targets import target

    try:
        hardware = target(given.target)
    except ValueError as error:
        print(f"{error}; this benchmark times launches and needs a CUDA GPU; --dry lists its rows")
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    asks = [*asked(sizes, probe=given.probe), *(blackwell() if given.blackwell else ())]
    begun, rows = time.monotonic(), []
    if not hardware.emulated:
        warm(asks, given.sizes, given.probe)
        print(f"compiled in {time.monotonic() - begun:.0f} s", flush=True)
    for ask in asks:
        try:
            with _own_cache(ask.case):
                measure(ask, hardware, given.rounds, given.seconds)
        except Exception as error:  # a row that fails must not lose the others
            ask.row.not_run = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        rows.append(ask.row)
        print(line(ask.row), f"[{time.monotonic() - begun:.0f} s]", flush=True)
        save(given.out, rows, hardware, begun)
    if given.judge:
        judge([ask for ask in asks if ask.row.ms], hardware)
    save(given.out, rows, hardware, begun)
    print((given.out / "throughput.txt").read_text())
    return status(rows)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".harness/benchmarks"), metavar="DIR")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="S", help="of matmul: N for a cube, or MxNxK")
    parser.add_argument("--target", default="cuda:0", help="an emulated one tries the script; its times are the emulator's")
    parser.add_argument("--rounds", type=int, default=3, help="turns that kernel and peer take")
    parser.add_argument("--seconds", type=float, default=0.15, help="of one turn")
    parser.add_argument("--judge", action=argparse.BooleanOptionalAction, default=True, help="judge what was timed")
    parser.add_argument("--probe", action=argparse.BooleanOptionalAction, default=True, help="configurations matmul might try")
    parser.add_argument("--blackwell", action=argparse.BooleanOptionalAction, default=True, help="the tutorials' Blackwell tables")
    parser.add_argument("--dry", action="store_true")
    return parser.parse_args(arguments)


def size_of(text: str) -> tuple[int, int, int]:
    parts = [int(part) for part in text.split("x")]
    m, n, k = parts * 3 if len(parts) == 1 else parts
    return m, n, k


def asked(sizes: list[tuple[int, int, int]], *, probe: bool = True) -> Iterator[Ask]:
    """The rows, in the order of what matters most."""
    from harness.contract import Case
    from kernels import ampere_gemm, block_scaled_matmul, hopper_matmul, matmul

    def ask(contract: str, problem: Any, dtype: str, configs: tuple[Any, ...]) -> Ask:
        row = Timed(kernel=contract, dtype=dtype, m=problem.m, n=problem.n, k=problem.k)
        return Ask(row, Case(contract=contract, problem=problem, config=configs[0], data_seed=8192), configs)

    largest = max((s for s in sizes if s[0] * s[2] <= 1 << 26), key=lambda s: s[0] * s[1] * s[2], default=sizes[0])
    side = dict(zip("mnk", largest, strict=True))
    for size in sorted(sizes, key=lambda s: s != largest):
        yield ask("matmul", matmul.Problem(**dict(zip("mnk", size, strict=True))), "fp16", (None,))
    wide = hopper_matmul.Config(block_m=128, block_n=256, block_k=64, stages=4, num_warps=8)
    if probe:
        yield from probed(sizes)
    tiles = hopper_matmul.Config(stages=4), wide, replace(wide, stages=3)
    yield ask("hopper_matmul", hopper_matmul.Problem(**side), "fp16", tiles)
    yield ask("hopper_matmul", hopper_matmul.Problem(**side, dtype="bf16", out="bf16"), "bf16", (wide,))
    deep = ampere_gemm.Config(block_m=128, block_n=128, block_k=32, stages=4, num_warps=8)
    yield ask("ampere_gemm", ampere_gemm.Problem(**side), "bf16", (ampere_gemm.Config(),))
    yield ask("ampere_gemm", ampere_gemm.Problem(**side), "bf16", (deep, replace(deep, num_warps=4)))
    for name in ("mxfp8", "mxfp4", "nvfp4", "mixed"):
        configs = block_scaled_matmul.configurations(name, block_scaled_mma=False)
        yield ask("block_scaled_matmul", block_scaled_matmul.Problem(**side, format=name), name, configs)


def probed(sizes: list[tuple[int, int, int]]) -> Iterator[Ask]:
    """Configurations that `matmul` might come to try, each timed once at the goal's size (`--probe`)."""
    from harness.contract import Case
    from kernels import matmul

    tiles = (
        (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (256, 128, 64, 8, 4), (128, 128, 64, 8, 5),
        (128, 128, 64, 4, 4), (128, 128, 64, 4, 3), (64, 256, 64, 4, 3), (128, 256, 128, 8, 2), (128, 128, 128, 8, 3),
    )  # fmt: skip
    configs = [
        matmul.Config(block_m=m, block_n=n, block_k=k, group_m=group, num_warps=warps, num_stages=stages, loads="descriptors")
        for m, n, k, warps, stages in tiles
        for group in ((4, 6, 8, 12, 16) if (m, n, stages) == (128, 256, 4) else (8,))
    ]
    m, n, k = max((size for size in sizes if size[2] <= 8192), key=lambda size: size[0], default=sizes[0])
    row = Timed(kernel="matmul", dtype="fp16, configurations given", m=m, n=n, k=k)
    case = Case(contract="matmul", problem=matmul.Problem(m=m, n=n, k=k), config=configs[0], data_seed=8192)
    yield Ask(row, case, tuple(configs))


def blackwell() -> Iterator[Ask]:
    """The tutorials' tables for Blackwell, row by row: they run where there is tcgen05."""
    from harness.contract import Case
    from kernels import block_scaled_matmul, blocked_matmul, blocked_matmul_pipelined
    from kernels.features import Feature

    def ask(contract: str, problem: Any, dtype: str, config: Any) -> Ask:
        row = Timed(kernel=contract, dtype=dtype, m=problem.m, n=problem.n, k=problem.k, config=named(config))
        case = Case(contract=contract, problem=problem, config=config, data_seed=8192)
        return Ask(row, case, (config,), frozenset({Feature.BLOCK_SCALED_MMA} if "scaled" in contract else {Feature.TCGEN05}))

    size = {"m": 8192, "n": 8192, "k": 16384}
    for side in (64, 128):
        for depth in (64, 128, 256):
            tile = blocked_matmul.Config(block_m=side, block_n=side, block_k=depth, num_warps=4)
            yield ask("blocked_matmul", blocked_matmul.Problem(**size), "fp16", tile)
    for depth in (64, 128):
        for warps in (4, 8):
            half = blocked_matmul_pipelined.Config(block_m=128, block_n=128, block_k=depth, num_warps=warps)
            yield ask("blocked_matmul_pipelined", blocked_matmul_pipelined.Problem(**size), "fp16", half)
    ranges = (("nvfp4", range(512, 513, 512)), ("mxfp4", range(512, 8193, 512)), ("mxfp8", range(8192, 16385, 2048)))
    for name, depths in ranges:
        best = block_scaled_matmul.configurations(name, block_scaled_mma=True)[0]
        for k in depths:
            yield ask("block_scaled_matmul", block_scaled_matmul.Problem(m=8192, n=8192, k=k, format=name), name, best)


def named(config: Any) -> str:
    from harness.large_cases import _named

    return _named(config)


def warm(asks: list[Ask], sizes: list[str], probe: bool) -> None:
    """Compile every configuration into Triton's cache, many at a time, in processes of their own."""
    import subprocess

    script = "import sys; sys.path.insert(0, '.'); from benchmarks import throughput; throughput.compile_one({}, {}, {}, {})"

    def one(job: tuple[int, int]) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # then it is compiled where it is timed
            subprocess.run([sys.executable, "-c", script.format(sizes, probe, *job)], capture_output=True, timeout=90,
                           cwd=Path(__file__).resolve().parent.parent, check=False)  # fmt: skip

    with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)) - 2)) as pool:
        list(pool.map(one, variants(asks)))


def variants(asks: list[Ask]) -> list[tuple[int, int]]:
    """(row, configuration) of everything that is compiled once: of matmul the configurations of one size."""
    from kernels import matmul

    jobs = []
    for place, ask in enumerate(asks):
        if ask.needs:
            continue  # compiled where it is timed
        if ask.configs != (None,):
            jobs += [(place, number) for number in range(len(ask.configs))]
        elif place == 0:
            jobs += [(0, number) for number in range(len(matmul.CONFIGS["cuda"] + matmul.HOPPER_CONFIGS))]
    return jobs


def compile_one(sizes: list[str], probe: bool, place: int, number: int, device: str = "cuda:0") -> None:
    """Launch one configuration of one row, on a small problem of the same divisibility. An autotuner's configurations are compiled
    as it compiles them: as the only one that it has."""
    from harness.judge import _own_cache
    from kernels import matmul

    ask = list(asked([size_of(text) for text in sizes], probe=probe))[place]
    problem = replace(ask.case.problem, m=512, n=512, k=1024)
    if ask.configs == (None,):
        only = (matmul.CONFIGS["cuda"] + matmul.HOPPER_CONFIGS)[number]
        matmul.CONFIGS["cuda"], matmul.HOPPER_CONFIGS = (only,), ()
        config = None
    else:
        config = ask.configs[number]
    with _own_cache(ask.case):
        launcher(replace(ask.case, config=config, problem=problem), device)()


def launcher(case: Any, device: str) -> Callable[[], Any]:
    """A call of the kernel's own launcher, through its contract, on random operands that lie on `device`."""
    from harness.contract import resolve

    contract, tensors = resolve(case.contract), placed(case, device)
    return lambda: contract.launch(case, tensors, None)


def placed(case: Any, device: str) -> dict[str, Any]:
    """Operands of `case`, made on the device: normal deviates, or random codes with scales near one."""
    import torch

    from kernels.element_types import ELEMENT_TYPES

    p = case.problem
    if hasattr(p, "format"):
        return scaled(p, device)[0]
    dtype = ELEMENT_TYPES[p.dtype].torch
    turned = case.contract == "ampere_gemm" or getattr(p, "transpose_b", False)
    shapes = {"a": (p.m, p.k), "b": (p.n, p.k) if turned else (p.k, p.n)}
    return {name: torch.randn(shape, device=device, dtype=torch.float16).to(dtype) for name, shape in shapes.items()}


def scaled(p: Any, device: str) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """Operands of a block-scaled problem, and both sides dequantised to bf16, (m, k) and (n, k)."""
    import torch

    from harness.scaled_operands import NEAR
    from kernels.scaled_operands import FORMATS, scale_shape

    f, made, wide = FORMATS[p.format], {}, []
    for name, element, rows in (("a", f.a, p.m), ("b", f.b, p.n)):
        if element == "e2m1":
            made[name] = torch.randint(0, 256, (rows, p.k // 2), dtype=torch.uint8, device=device)
            table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], device=device)  # (16,)
            values = torch.stack((table[(made[name] & 15).int()], table[(made[name] >> 4).int()]), -1).reshape(rows, p.k)
        else:
            made[name] = torch.randn((rows, p.k), device=device).to(torch.float8_e4m3fn)
            values = made[name].float()  # (rows, k)
        codes = f.one + torch.randint(-NEAR[f.scale], NEAR[f.scale] + 1, scale_shape(rows, p.k, f.block_size), device=device)
        codes = codes.to(torch.uint8)  # (row tiles, column tiles, 32, 4, 4)
        made[f"{name}_scale"] = codes.view(torch.float8_e4m3fn) if f.scale == "ue4m3" else codes
        flat = codes.permute(0, 3, 2, 1, 4).reshape(codes.shape[0] * 128, -1)[:rows, : p.k // f.block_size]  # (rows, blocks)
        scales = flat.view(torch.float8_e4m3fn).float() if f.scale == "ue4m3" else torch.exp2(flat.float() - 127)
        wide.append((values * scales.repeat_interleave(f.block_size, 1)).to(torch.bfloat16))
    return made, (wide[0], wide[1])


def peer(ask: Ask, device: str) -> tuple[str, Callable[[], Any]]:
    """cuBLAS through torch.matmul, on operands laid out as the kernel has them."""
    import torch

    p = ask.case.problem
    if hasattr(p, "format"):
        a, b = scaled(p, device)[1]
        return "cuBLAS bf16, dequantised", lambda: torch.matmul(a, b.T)
    tensors = placed(ask.case, device)
    a, b = tensors["a"], tensors["b"]
    turned = ask.case.contract == "ampere_gemm" or getattr(p, "transpose_b", False)
    return f"cuBLAS {p.dtype}", lambda: torch.matmul(a, b.T if turned else b)


def measure(ask: Ask, hardware: Any, rounds: int, seconds: float) -> None:
    """Fill in the row: the fastest configuration, then kernel and peer in turns."""
    from harness.contract import resolve
    from kernels import matmul

    row, contract, device = ask.row, resolve(ask.case.contract), str(hardware.device)
    if lacking := (contract.requires | ask.needs) - hardware.features:
        row.not_run = f"{hardware.name} lacks {', '.join(sorted(map(str, lacking)))}"
        return
    tensors = placed(ask.case, device)
    best = 0.0
    for config in ask.configs if len(ask.configs) > 1 else ():
        case = replace(ask.case, config=config)
        try:
            times = times_of(lambda case=case: contract.launch(case, tensors, None), hardware, 0.06)
            reached = row.tflops(statistics.median(times))
        except Exception as error:  # out of resources, for one: told, and the others are tried
            row.tried[named(config)] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            continue
        row.tried[named(config)] = round(reached, 1)
        if reached > best:
            best, ask.case = reached, case
    ours, (row.peer, theirs) = (lambda: contract.launch(ask.case, tensors, None)), peer(ask, device)
    with hardware.enter():
        ours()
    if ask.case.config is None:
        row.config = matmul.winner().name  # type: ignore[union-attr]
        row.tried = tuning()
    else:
        row.config = named(ask.case.config)
    taken: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for is_peer, call in ((True, theirs), (False, ours)):
            taken[is_peer] += times_of(call, hardware, seconds)
    row.ms, row.peer_ms = quantiles(taken[False]), quantiles(taken[True])


def times_of(call: Callable[[], Any], hardware: Any, seconds: float) -> list[float]:
    """Milliseconds of the calls that fit `seconds`, after some to warm up."""
    with hardware.enter():
        if hardware.emulated:
            begun = time.perf_counter()
            call()
            return [1e3 * (time.perf_counter() - begun)] * 10
        from triton.testing import do_bench

        times = do_bench(call, warmup=25, rep=int(1000 * seconds), return_mode="all")
        return times if isinstance(times, list) else [times]


def tuning() -> dict[str, Any]:
    """What the autotuner measured for each configuration the last time, milliseconds."""
    from kernels import matmul

    for described in (True, False):
        tuner = matmul._tuner("cuda", described)
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
    from harness.large_cases import judge_large

    cases = [ask.case for ask in asks]
    products = 1 << 29
    for ask, found in zip(asks, judge_large(cases, hardware, products=products, jobs=len(os.sched_getaffinity(0))), strict=True):
        ask.row.words, ask.row.differ = found.words, found.differ
        print(f"judged {found.contract} {found.kind} {found.size} {found.config}: {found.ruling}, {found.words:,} words, "
              f"{found.differ} differ {found.message}", flush=True)  # fmt: skip


def line(row: Timed) -> str:
    if row.not_run:
        return f"{row.kernel} {row.dtype} {row.size} {row.config}: not run: {row.not_run}"
    return (
        f"{row.kernel} {row.dtype} {row.size} ({row.config}): {row.tflops(row.ms[0]):.0f} TFLOP/s, {row.peer} "
        f"{row.tflops(row.peer_ms[0]):.0f}, ratio {row.ratio:.3f}"
    )


def save(out: Path, rows: list[Timed], hardware: Any, begun: float) -> None:
    """throughput.json, .txt and .svg of what there is so far."""
    from rich.console import Console

    from benchmarks.pages import svg, throughput_table
    from harness.seed_files import versions

    told = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "command": "python benchmarks/throughput.py " + " ".join(sys.argv[1:]),
        "model": hardware.model,
        "versions": versions() | driver_versions(),
        "seconds": round(time.monotonic() - begun, 1),
        "rows": [row.to_json() for row in rows],
    }
    (out / "throughput.json").write_text(json.dumps(told, indent=1) + "\n")
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
    """1 when a word differs, or matmul is below its goal at the goal's size."""
    wrong = any(row.differ for row in rows)
    at_goal = [row.ratio for row in rows if (row.kernel, row.dtype, (row.m, row.n, row.k)) == ("matmul", "fp16", GOAL_SIZE)]
    missed = any(ratio < GOAL for ratio in at_goal)
    for ratio in at_goal:
        print(f"matmul at 8192^3 in fp16: {ratio:.3f} of cuBLAS, goal {GOAL}: {'met' if ratio >= GOAL else 'MISSED'}")
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
