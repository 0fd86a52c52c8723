"""What `benchmarks/throughput.py` times: rows, and the cases and configurations behind each, in the order of what matters most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

SIZES = ("1024", "2048", "4096", "8192", "9728x8192x65536")  # the tutorial's


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


def size_of(text: str) -> tuple[int, int, int]:
    parts = [int(part) for part in text.split("x")]
    m, n, k = parts * 3 if len(parts) == 1 else parts
    return m, n, k


def asked(sizes: list[tuple[int, int, int]], *, probe: bool = True) -> Iterator[Ask]:
    """The rows, in the order of what matters most."""
    from bitverdict.harness.model.case import Case
    from bitverdict.kernels import ampere_gemm, block_scaled_matmul, hopper_matmul, matmul

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
    yield ask("ampere_gemm", ampere_gemm.Problem(**side), "bf16, ld.shared", (ampere_gemm.Config(fragments="ld.shared"),))
    for name in ("mxfp8", "mxfp4", "nvfp4", "mixed"):
        configs = block_scaled_matmul.configurations(name, block_scaled_mma=False)
        yield ask("block_scaled_matmul", block_scaled_matmul.Problem(**side, format=name), name, configs)


def probed(sizes: list[tuple[int, int, int]]) -> Iterator[Ask]:
    """Configurations that `matmul` might come to try, each timed once at the goal's size (`--probe`)."""
    from bitverdict.harness.model.case import Case
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
    row = Timed(kernel="matmul", dtype="fp16, configurations given", m=m, n=n, k=k)
    case = Case(contract="matmul", problem=matmul.Problem(m=m, n=n, k=k), config=configs[0], data_seed=8192)
    yield Ask(row, case, tuple(configs))


def blackwell() -> Iterator[Ask]:
    """The tutorials' tables for Blackwell, row by row: they run where there is tcgen05."""
    from bitverdict.harness.model.case import Case
    from bitverdict.kernels import block_scaled_matmul, blocked_matmul, blocked_matmul_pipelined
    from bitverdict.kernels.features import Feature

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
    from bitverdict.harness.studies.large_gemm.cases import _named

    return _named(config)
