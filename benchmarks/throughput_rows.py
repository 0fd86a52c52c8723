"""What `benchmarks/throughput.py` times: rows, and the cases and configurations behind each, in the order of what matters most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

SIZES = ("1024", "2048", "4096", "8192", "9728x8192x65536")  # the tutorial's
LAUNCHES, GRAPH = "launches", "graph"
GROUPS = (8, 1, 4, 16)  # tile rows of a group: the tutorial's, none, and others

Size = tuple[int, int, int]


@dataclass
class Timed:
    """One row: a kernel at a size, its peer, both in milliseconds (median, 0.2, 0.8), TFLOP/s of the medians, their ratio, and how
    many words of the same launch were compared. `timed`: each launch by itself with the L2 cache cleared before it ("launches"), or
    many in one CUDA graph, whose operands stay in the cache ("graph"). `part`: the part of the list it belongs to. `moved`: bytes
    that a copy reads and writes; its speed is in GB/s."""

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
    timed: str = LAUNCHES
    part: str = ""
    moved: int = 0

    @property
    def size(self) -> str:
        if self.moved:
            return f"{self.m}x{self.n}"
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
        if self.moved:
            told |= {
                name: [round(self.moved / t / 1e6, 2) for t in times]
                for name, times in (("gb_s", self.ms), ("peer_gb_s", self.peer_ms))
            }
        return asdict(self) | told


@dataclass
class Ask:
    """What to time: the case (its configuration the first of `configs`), and how to make operands and peer."""

    row: Timed
    case: Any
    configs: tuple[Any, ...]
    needs: frozenset = frozenset()  # features beyond those of the kernel


def size_of(text: str) -> tuple[int, int, int]:
    parts = [int(part) for part in text.split("x")]
    m, n, k = parts * 3 if len(parts) == 1 else parts
    return m, n, k


def asked(sizes: list[Size], parts: Iterable[str] = ()) -> Iterator[Ask]:
    """The rows of `parts` (all of `PARTS` when empty), in the order of what matters most."""
    chosen = tuple(parts) or tuple(PARTS)
    for name, rows in PARTS.items():
        for ask in rows(sizes) if name in chosen else ():
            ask.row.part = name
            yield ask


def size_asked(problem: Any) -> Size:
    """(m, n, k) of the product that `problem` asks for."""
    from bitverdict.harness.lab.large_gemm.operands import size_of as of_problem

    return of_problem(problem)


def asked_of(contract: str, problem: Any, dtype: str, configs: tuple[Any, ...], *, timed: str = LAUNCHES) -> Ask:
    from bitverdict.harness.model.case import Case

    m, n, k = size_asked(problem)
    row = Timed(kernel=contract, dtype=dtype, m=m, n=n, k=k, timed=timed)
    return Ask(row, Case(contract=contract, problem=problem, config=configs[0], data_seed=8192), configs)


def largest_of(sizes: list[Size]) -> Size:
    """The largest of `sizes` that every kernel is timed at."""
    return max((s for s in sizes if s[0] * s[2] <= 1 << 26), key=math.prod, default=sizes[0])


def autotuned(sizes: list[Size]) -> Iterator[Ask]:
    """`matmul` as it is launched without a configuration, at every size, the goal's first."""
    from bitverdict.kernels import matmul

    for m, n, k in sorted(sizes, key=lambda size: size != largest_of(sizes)):
        yield asked_of("matmul", matmul.Problem(m=m, n=n, k=k), "fp16", (None,))


def small(sizes: list[Size]) -> Iterator[Ask]:
    """Sizes whose launch takes longer than their product, through one graph: `matmul` as it is tuned, and `hopper_matmul`."""
    from bitverdict.kernels import hopper_matmul, matmul

    tiles = [
        hopper_matmul.Config(block_m=m, block_n=n, block_k=k, stages=stages, num_warps=warps)
        for m, n, k, warps, stages in (
            (64, 128, 64, 4, 6), (128, 64, 64, 4, 6), (64, 128, 128, 4, 4), (128, 64, 128, 4, 4), (128, 128, 64, 4, 4),
            (128, 128, 64, 8, 4), (128, 256, 64, 8, 4),
        )
    ]  # fmt: skip
    for m, n, k in sizes:
        if m * n * k <= matmul.SMALL_PRODUCT:
            yield asked_of("matmul", matmul.Problem(m=m, n=n, k=k), "fp16", (None,), timed=GRAPH)
            yield asked_of("hopper_matmul", hopper_matmul.Problem(m=m, n=n, k=k), "fp16", tuple(tiles), timed=GRAPH)


def grouping(sizes: list[Size]) -> Iterator[Ask]:
    """What taking tiles in groups of rows is worth: the tutorial's first tile by pointers, and the same by TMA, in each group size,
    at the largest size and at one of a larger K."""
    from bitverdict.kernels import matmul

    by_pointers = matmul.CONFIGS["cuda"][0]
    by_tma = replace(by_pointers, num_stages=4, loads="descriptors")
    deepest = max(sizes, key=math.prod)
    for m, n, k in dict.fromkeys((largest_of(sizes), deepest)):
        for config in (by_pointers, by_tma):
            for group in GROUPS:
                yield asked_of("matmul", matmul.Problem(m=m, n=n, k=k), "fp16", (replace(config, group_m=group),))


def others(sizes: list[Size]) -> Iterator[Ask]:
    """The other kernels that run on this GPU, at the largest size."""
    from bitverdict.kernels import ampere_gemm, block_scaled_matmul, hopper_matmul

    side = dict(zip("mnk", largest_of(sizes), strict=True))
    wide = hopper_matmul.Config(block_m=128, block_n=256, block_k=64, stages=4, num_warps=8)
    tiles = hopper_matmul.Config(stages=4), wide, replace(wide, stages=3)
    yield asked_of("hopper_matmul", hopper_matmul.Problem(**side), "fp16", tiles)
    yield asked_of("hopper_matmul", hopper_matmul.Problem(**side, dtype="bf16", out="bf16"), "bf16", (wide,))
    deep = ampere_gemm.Config(block_m=128, block_n=128, block_k=32, stages=4, num_warps=8)
    yield asked_of("ampere_gemm", ampere_gemm.Problem(**side), "bf16", (ampere_gemm.Config(),))
    yield asked_of("ampere_gemm", ampere_gemm.Problem(**side), "bf16", (deep, replace(deep, num_warps=4)))
    yield asked_of("ampere_gemm", ampere_gemm.Problem(**side), "bf16, ld.shared", (ampere_gemm.Config(fragments="ld.shared"),))
    for name in ("mxfp8", "mxfp4", "nvfp4", "mixed"):
        configs = block_scaled_matmul.configurations(name, block_scaled_mma=False)
        yield asked_of("block_scaled_matmul", block_scaled_matmul.Problem(**side, format=name), name, configs)


def probed(sizes: list[Size]) -> Iterator[Ask]:
    """Configurations that `matmul` might come to try, each timed once at the goal's size."""
    from bitverdict.kernels import matmul

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
    yield asked_of("matmul", matmul.Problem(m=m, n=n, k=k), "fp16, configurations given", tuple(configs))


def gathers(sizes: list[Size]) -> Iterator[Ask]:
    """A matmul between a gather and a scatter at the tutorial's sizes, whatever `sizes` are: by pointers, and by TMA
    (one partition, and several) where there is gather4."""
    from bitverdict.kernels import fused_gather_scatter_matmul as fused
    from bitverdict.kernels import pointer_gather_scatter_matmul as pointers
    from bitverdict.kernels import warp_specialized_gather_scatter_matmul as specialised
    from bitverdict.kernels.features import Feature

    def ask(kernel: Any, size: Size, *configs: Any) -> Ask:
        m, n, k = size
        contract = kernel.__name__.rpartition(".")[2]
        made = asked_of(contract, kernel.Problem(table_rows=m, rows=m, out_rows=m, n=n, k=k), "bf16", configs)
        made.row.config = named(configs[0])
        made.needs = kernel.REQUIRES & {Feature.TMA_GATHER}
        return made

    for size in ((4096, 4096, 4096), (1024, 1024, 2048)):
        tiles = [{"block_n": n, "block_k": k, "num_buffers": buffers} for n in (128, 64) for k, buffers in ((128, 2), (64, 3))]
        yield ask(fused, size, *(fused.Config(**tile) for tile in tiles))
        yield ask(specialised, size, specialised.Config(), specialised.Config(block_n=256))
        for loads in pointers.LOADS:
            yield ask(
                pointers,
                size,
                pointers.Config(loads=loads),
                pointers.Config(loads=loads, block_k=64),
                pointers.Config(loads=loads, stages=4),
                pointers.Config(loads=loads, block_n=64, num_warps=4),
                pointers.Config(loads=loads, block_m=64, block_n=64, block_k=64, num_warps=4),
            )


def copies(sizes: list[Size]) -> Iterator[Ask]:
    """A tile through tensor memory and back, whatever `sizes` are: by each atom, in slices, filled by tcgen05.cp. One program."""
    from bitverdict.harness.model.case import Case
    from bitverdict.kernels import tmem_copy

    whole, problem = tmem_copy.Config(block_m=128, block_n=128), tmem_copy.Problem(m=128, n=256)
    for config in (
        *(replace(whole, atom=atom) for atom in tmem_copy.ATOMS),
        replace(whole, parts=2),
        *(replace(whole, filled_by=how) for how in tmem_copy.FILLS[1:]),
    ):
        row = Timed(kernel="tmem_copy", dtype=problem.dtype, m=problem.m, n=problem.n, k=0, moved=8 * problem.m * problem.n)
        row.config = f"{named(config)} {config.atom} {config.filled_by}" + (f" {config.parts} parts" if config.parts > 1 else "")
        yield Ask(row, Case(contract="tmem_copy", problem=problem, config=config, data_seed=8192), (config,))


def blackwell(sizes: list[Size]) -> Iterator[Ask]:
    """The tutorials' tables for Blackwell, row by row, whatever `sizes` are: they run where there is tcgen05."""
    from bitverdict.kernels import block_scaled_matmul, blocked_matmul, blocked_matmul_pipelined, warp_specialized_matmul
    from bitverdict.kernels.features import Feature

    def ask(contract: str, problem: Any, dtype: str, config: Any) -> Ask:
        made = asked_of(contract, problem, dtype, (config,))
        made.row.config = named(config)
        made.needs = frozenset({Feature.BLOCK_SCALED_MMA} if "scaled" in contract else {Feature.TCGEN05})
        return made

    size = {"m": 8192, "n": 8192, "k": 16384}
    for side in (64, 128):
        for depth in (64, 128, 256):
            tile = blocked_matmul.Config(block_m=side, block_n=side, block_k=depth, num_warps=4)
            yield ask("blocked_matmul", blocked_matmul.Problem(**size), "fp16", tile)
    for depth in (64, 128):
        for warps in (4, 8):
            half = blocked_matmul_pipelined.Config(block_m=128, block_n=128, block_k=depth, num_warps=warps)
            yield ask("blocked_matmul_pipelined", blocked_matmul_pipelined.Problem(**size), "fp16", half)
    specialised = warp_specialized_matmul.Config()
    for schedule in warp_specialized_matmul.SCHEDULES:
        by_order = replace(specialised, schedule=schedule)
        yield ask("warp_specialized_matmul", warp_specialized_matmul.Problem(**size), "fp16", by_order)
    wide = replace(specialised, block_n=256, stages=3)
    yield ask("warp_specialized_matmul", warp_specialized_matmul.Problem(**size), "fp16", wide)
    ranges = (("nvfp4", range(512, 513, 512)), ("mxfp4", range(512, 8193, 512)), ("mxfp8", range(8192, 16385, 2048)),
              ("mixed", range(512, 513, 512)))  # fmt: skip  # of nvfp4 and mixed the tutorial's default K
    for name, depths in ranges:
        best = block_scaled_matmul.configurations(name, block_scaled_mma=True)[0]
        for k in depths:
            yield ask("block_scaled_matmul", block_scaled_matmul.Problem(m=8192, n=8192, k=k, format=name), name, best)


def named(config: Any) -> str:
    from bitverdict.harness.lab.large_gemm.cases import _config_name

    return _config_name(config)


PARTS: dict[str, Callable[[list[Size]], Iterator[Ask]]] = {
    "autotuned": autotuned,
    "small": small,
    "grouping": grouping,
    "probed": probed,
    "others": others,
    "gathers": gathers,
    "copies": copies,
    "blackwell": blackwell,
}
"""The parts of the list, by name."""
