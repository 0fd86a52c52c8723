"""C = activation(A @ B), autotuned, with tiles taken in groups of rows.

    C[i, j] = convert(activation(sum over k of A[i, k] * B[k, j]))        A: (M, K), B: (K, N), C: (M, N)

The sum is one ascending chain of matrix instructions in fp32 (int32 for int8 operands) that starts at zero; activation and
conversion happen once, after it. `leaky_relu(x)` is ``y if y >= 0 else 0.01 * y`` with ``y = x + 1``: the added one is the rule of
the tutorial this kernel descends from and is kept; K = 0 gives activation(0), which is 1 and not 0 for leaky_relu.

Preconditions, and what each costs when broken:

- A and B agree on K, element type and device: otherwise other memory is read. Refused by the launcher.
- Row and column offsets of a ragged tile are wrapped (``% m``, ``% n``), so every load of a whole K block lies inside its
  operand: without it the last tile reads past the end. The values read twice are thrown away by the store's mask. AMD targets
  take the same path.
- The tail of K is masked with zeros unless ``EVEN_K``: without it the next row's elements are added.
- Offsets are 32-bit unless ``WIDE_OFFSETS``: past 2^31 elements they would wrap to addresses before the operand.
- With ``USE_DESCRIPTORS`` the tiles come by TMA, which supplies zeros outside the operand: `kernels/matmul_descriptors.py` is
that form, with its own preconditions. The tuner tries such configurations only where they can be had; asked for by name
elsewhere, the launcher refuses. The words are those of the same tile loaded by pointers.

Choices that decide bits:

- ``tl.dot(a, b, acc)`` and not ``acc += tl.dot(a, b)``: one chain over all of K. The second form restarts the chain at zero in
  every K block for e4m3 on sm_90 and adds in fp32, which makes the result a function of BLOCK_K. The price is stated: on sm_90
  the wgmma accumulator of e4m3 keeps 13 fraction bits over all of K (Triton's default there never promotes it).
- The instruction follows from the configuration: two warps, or 32 rows, get mma.sync where others get wgmma (sm_90) or tcgen05
  (sm_100), and e4m3 is then widened to fp16. So the bits of the autotuned launcher are those of the winner, which it records.
- int8 results of int8 operands are the int32 sum modulo 2^8: nothing saturates. Results in e4m3 saturate at 448.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from triton import testing
from triton.runtime import driver

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.element_types import ELEMENT_TYPES
from bitverdict.kernels.matmul_descriptors import descriptors_of, is_turned, require_descriptors, set_boxes, tiles_at

_NAMES = {entry.torch: entry.name for entry in ELEMENT_TYPES.values()}
_FLOATS = ("fp16", "bf16", "fp32", "e4m3")
OUTPUTS = {"fp16": _FLOATS, "bf16": _FLOATS, "fp32": _FLOATS, "e4m3": _FLOATS, "int8": ("int8", "int32")}
ACTIVATIONS = ("", "leaky_relu")
PRECISIONS = ("tf32", "ieee")
GRAPH_MS = 10  # of launches in the graph that tunes a small product; it is replayed ten times
LARGEST_SIZE = 2**31 - 1 - 256  # a size plus one tile still fits the 32-bit arithmetic of the tile numbers


@dataclass(frozen=True, kw_only=True)
class View:
    """How an operand lies in memory: which dimension runs fastest, in steps of `step` elements, lines `pad` elements
    further apart than they need, the first element `offset` elements into its allocation. `broadcast`: "rows" or "columns" that
    are all one, with a stride of 0 between them."""

    order: str = "row"  # or "column": a transposed view
    pad: int = 0
    step: int = 1
    offset: int = 0
    broadcast: str = ""

    def strides(self, rows: int, columns: int) -> tuple[int, int]:
        if self.order == "row":
            between = columns * self.step + self.pad, self.step
        else:
            between = self.step, rows * self.step + self.pad
        return (0 if self.broadcast == "rows" else between[0]), (0 if self.broadcast == "columns" else between[1])


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a user asks: sizes, element types by name, activation, and how the operands lie. `k_of_b` and `dtype_of_b` differ
    from A's only in illegal problems."""

    m: int
    n: int
    k: int
    dtype: str = "fp16"
    out: str = "fp16"
    precision: str = "tf32"  # what fp32 operands are multiplied in; other types ignore it
    activation: str = ""
    a: View = field(default_factory=View)
    b: View = field(default_factory=View)
    k_of_b: int | None = None
    dtype_of_b: str = ""


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the kernel is launched. `waves_per_eu` is for AMD targets; 0 leaves it to the compiler. `loads`: "pointers", or
    "descriptors" for tiles brought by TMA."""

    block_m: int
    block_n: int
    block_k: int
    group_m: int = 8
    num_warps: int = 4
    num_stages: int = 3
    waves_per_eu: int = 0
    loads: str = "pointers"

    @property
    def name(self) -> str:
        tiles = " tma" if self.loads == "descriptors" else ""
        return f"{self.block_m}x{self.block_n}x{self.block_k} g{self.group_m} w{self.num_warps} s{self.num_stages}{tiles}"


def _config(*numbers: int) -> Config:
    """The configuration with these numbers for its fields, in their order."""
    names = ("block_m", "block_n", "block_k", "group_m", "num_warps", "num_stages", "waves_per_eu")
    return Config(**dict(zip(names, numbers)))  # type: ignore[arg-type]


# fmt: off
CONFIGS: dict[str, tuple[Config, ...]] = {
    "cuda": (
        _config(128, 256, 64, 8, 8, 3), _config(64, 256, 32, 8, 4, 4), _config(128, 128, 32, 8, 4, 4),
        _config(128, 64, 32, 8, 4, 4), _config(64, 128, 32, 8, 4, 4), _config(128, 32, 32, 8, 4, 4),
        _config(64, 32, 32, 8, 2, 5), _config(32, 64, 32, 8, 2, 5),
    ),
    "hip": (
        _config(128, 256, 16, 1, 4, 0, 2), _config(256, 256, 16, 4, 8, 0, 2), _config(128, 128, 32, 1, 8, 0, 2),
        _config(64, 128, 32, 8, 4, 0, 3), _config(64, 64, 32, 1, 4, 0, 8),
    ),
}
# fmt: on


HOPPER_CONFIGS: tuple[Config, ...] = tuple(
    Config(block_m=block_m, block_n=block_n, block_k=block_k, group_m=group_m, num_warps=num_warps, num_stages=4, loads=loads)
    for block_m, block_n, block_k, group_m, num_warps, loads in (
        (128, 256, 64, 8, 8, "descriptors"), (128, 256, 64, 16, 8, "descriptors"), (128, 256, 64, 8, 8, "pointers"),
        (64, 128, 128, 8, 4, "descriptors"),
    )
)  # fmt: skip
"""Tried beside those of "cuda" where TMA can bring both operands: what Hopper is fastest with. The last is for 1024 cubed, where
its 128 programs fill 132 multiprocessors once: 1.05 of cuBLAS on an H100 (ffc1e1a5, 2026-11-28), where split-K came to 0.57."""

SMALL_PRODUCT = 2048**3
"""m * n * k up to which a launch takes the host longer than the GPU: such a product is tuned through a CUDA graph. Events around a
lone launch would time the host, alike for every tile (docs/benchmarks.md)."""


def configurations(backend: str) -> tuple[Config, ...]:
    """The configurations to tune over on `backend` ("cuda" or "hip"): chosen by the target of the compilation, which need not
    be this machine's. ValueError for another backend."""
    if backend not in CONFIGS:
        raise ValueError(f"backend {backend!r}: has no list of configurations; it must be one of {', '.join(CONFIGS)}")
    return CONFIGS[backend]


CLAUSES: tuple[Clause, ...] = (
    Clause(name="element type", holds=lambda p, c: p.dtype in OUTPUTS, value=lambda p, c: f"a has element type {p.dtype}",
           rule=f"it must be one of {', '.join(OUTPUTS)}", remedy="convert the operands first",
           cost="there is no matrix instruction for it", layer="front end"),
    Clause(name="same element type", holds=lambda p, c: p.dtype_of_b in ("", p.dtype),
           value=lambda p, c: f"a is {p.dtype} and b is {p.dtype_of_b}", rule="both operands must have the same element type",
           remedy="convert one of them", cost="the product has no instruction", layer="front end"),
    Clause(name="same K", holds=lambda p, c: p.k_of_b in (None, p.k),
           value=lambda p, c: f"a has {p.k} columns and b has {p.k_of_b} rows", rule="the columns of a must be the rows of b",
           remedy="transpose or slice one of them", cost="memory outside b is read"),
    Clause(name="sizes", holds=lambda p, c: max(p.m, p.n, p.k) <= LARGEST_SIZE,
           value=lambda p, c: f"sizes m={p.m}, n={p.n}, k={p.k}", rule=f"no size may be above {LARGEST_SIZE}",
           remedy="multiply in parts", cost="tile numbers overflow"),
    Clause(name="output type", holds=lambda p, c: p.out in OUTPUTS[p.dtype],
           value=lambda p, c: f"out_dtype {p.out} for operands in {p.dtype}",
           rule=f"float operands give {', '.join(_FLOATS)}; int8 operands give int8 (the sum modulo 2^8) or int32",
           remedy="choose one of these and convert afterwards", cost="the conversion would be a guess"),
    Clause(name="activation", holds=lambda p, c: p.activation in ACTIVATIONS, value=lambda p, c: f"activation {p.activation!r}",
           rule="it must be one of " + ", ".join(map(repr, ACTIVATIONS)), remedy="apply another function to the result",
           cost="an unknown name would mean no activation"),
    Clause(name="activation of floats", holds=lambda p, c: not (p.activation and p.dtype == "int8"),
           value=lambda p, c: f"activation {p.activation!r} with int8 operands",
           rule="the slope of leaky_relu is a fraction and the sum an integer",
           remedy="ask for out_dtype=torch.int32 and apply it afterwards", cost="the slope would be rounded to 0"),
    Clause(name="precision", holds=lambda p, c: p.precision in PRECISIONS, value=lambda p, c: f"precision {p.precision!r}",
           rule="it must be one of " + ", ".join(map(repr, PRECISIONS)), remedy="leave it out for tf32",
           cost="the compiler may choose other forms, whose bits no model predicts", layer="front end"),
)  # fmt: skip


@triton.jit
def leaky_relu(x):
    y = x + 1  # the rule kept from the tutorial: see the module's docstring
    return tl.where(y >= 0, y, 0.01 * y)


# fmt: off
@triton.heuristics({"EVEN_K": lambda args: args["k"] % args["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr,
    a_tiles, b_tiles,  # tensor descriptors of A and B where they can be had, else None
    m, n, k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, EVEN_K: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, ACCUMULATOR: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
    USE_DESCRIPTORS: tl.constexpr, B_TURNED: tl.constexpr,  # B's descriptor is that of its transpose
    LAYOUT: tl.constexpr,  # read by nobody here: part of the autotuner's key
):
    # fmt: on
    # Tiles are numbered down the rows of a group of GROUP_M tile rows before the next column, so that programs that run
    # together share columns of B. The last group may have fewer rows.
    program = tl.program_id(axis=0)
    tile_rows = tl.cdiv(m, BLOCK_M)
    tile_columns = tl.cdiv(n, BLOCK_N)
    if GROUP_M == 1:  # row by row: the same tiles as below, without the divisions of a group
        tile_row = program // tile_columns
        tile_column = program % tile_columns
    else:
        group_tiles = GROUP_M * tile_columns
        first_row = (program // group_tiles) * GROUP_M
        group_rows = min(tile_rows - first_row, GROUP_M)
        in_group = program % group_tiles
        tile_row = first_row + in_group % group_rows
        tile_column = in_group // group_rows

    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    columns = tile_column * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    steps = tl.arange(0, BLOCK_K)  # (BLOCK_K,)
    a_rows = rows % m
    b_columns = columns % n
    a_steps = steps
    b_steps = steps
    a_advance = BLOCK_K
    b_advance = BLOCK_K
    if WIDE_OFFSETS:
        rows = rows.to(tl.int64)
        columns = columns.to(tl.int64)
        a_rows = a_rows.to(tl.int64)
        b_columns = b_columns.to(tl.int64)
        a_steps = a_steps.to(tl.int64)
        b_steps = b_steps.to(tl.int64)
        a_advance = tl.full((), BLOCK_K, tl.int64)
        b_advance = tl.full((), BLOCK_K, tl.int64)
    a_ptrs = a_ptr + a_rows[:, None] * stride_am + a_steps[None, :] * stride_ak  # (BLOCK_M, BLOCK_K)
    b_ptrs = b_ptr + b_steps[:, None] * stride_bk + b_columns[None, :] * stride_bn  # (BLOCK_K, BLOCK_N)

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACCUMULATOR)
    for block in range(tl.cdiv(k, BLOCK_K)):
        if USE_DESCRIPTORS:
            a, b = tiles_at(a_tiles, b_tiles, tile_row, tile_column, block, BLOCK_M, BLOCK_N, BLOCK_K, B_TURNED)
        elif EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            left = k - block * BLOCK_K
            a = tl.load(a_ptrs, mask=steps[None, :] < left, other=0.0)
            b = tl.load(b_ptrs, mask=steps[:, None] < left, other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision=PRECISION, out_dtype=ACCUMULATOR)
        if not USE_DESCRIPTORS:
            a_ptrs += a_advance * stride_ak
            b_ptrs += b_advance * stride_bk

    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    c = accumulator.to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn  # (BLOCK_M, BLOCK_N)
    tl.store(c_ptrs, c, mask=(rows[:, None] < m) & (columns[None, :] < n))


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str = "", *, out_dtype: torch.dtype | None = None,
           precision: str = "tf32") -> torch.Tensor:
    """activation(a @ b) with the configuration that the autotuner finds fastest for these sizes, types and layouts.

    a: (m, k) and b: (k, n), any strides, in one of `OUTPUTS`' element types; out_dtype: a's by default, else as `OUTPUTS` allows.
    Returns (m, n), contiguous, on a's device. ValueError with value, rule and remedy for anything else, before any launch.
    `winner()` tells afterwards which configuration ran.
    """
    problem = _check_operands(a, b, activation, out_dtype, precision)
    return _launch(a, b, problem, None)


def matmul_configured(a: torch.Tensor, b: torch.Tensor, activation: str, out_dtype: torch.dtype | None, config: Config,
                      precision: str = "tf32") -> torch.Tensor:
    """As `matmul`, with this configuration and no tuning: the same jitted function."""
    problem = _check_operands(a, b, activation, out_dtype, precision)
    return _launch(a, b, problem, config)


def winner() -> Config | None:
    """The configuration that the last autotuned launch of this process ran with; None before the first."""
    return _winner[-1] if _winner else None


_winner: list[Config] = []


@functools.cache
def _tuner(backend: str, described: bool = False, small_problem: bool = False):
    """The autotuner over `configurations(backend)`, and `HOPPER_CONFIGS` where TMA can bring the operands; `small`: timed by
    `_through_a_graph`. Element types of all operands are part of Triton's own key; the layout is ours: a tile that is best for a
    row-major operand need not be best for its transpose, and the winner decides the bits."""
    chosen = configurations(backend) + (HOPPER_CONFIGS if described else ())
    hook = set_boxes if described else None
    timed = _through_a_graph if small_problem and backend == "cuda" else None  # None: Triton's own
    configs = [triton.Config(_meta(c), num_warps=c.num_warps, num_stages=c.num_stages, pre_hook=hook) for c in chosen]
    return triton.autotune(configs=configs, key=["m", "n", "k", "LAYOUT", "ACTIVATION", "PRECISION", "WIDE_OFFSETS"],
                           do_bench=timed)(matmul_kernel)


def _through_a_graph(call: Callable[[], object], quantiles: tuple[float, ...]) -> list[float]:
    """Milliseconds of one call at `quantiles`, of many in one CUDA graph whose operands stay in the L2 cache. A driver that has a
    benchmarker of its own, as a model of a GPU has, keeps it."""
    own = driver.active.get_benchmarker()
    if own is not testing.do_bench:
        return own(call, quantiles=quantiles)
    return testing.do_bench_cudagraph(call, rep=GRAPH_MS, quantiles=quantiles)


def _meta(config: Config) -> dict[str, int]:
    meta = {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k, "GROUP_M": config.group_m,
            "USE_DESCRIPTORS": config.loads == "descriptors"}
    return meta | ({"waves_per_eu": config.waves_per_eu} if config.waves_per_eu else {})


def _launch(a: torch.Tensor, b: torch.Tensor, problem: Problem, config: Config | None) -> torch.Tensor:
    c = torch.empty((problem.m, problem.n), device=a.device, dtype=ELEMENT_TYPES[problem.out].torch)
    if c.numel() == 0:
        return c
    tiles = descriptors_of(a, b) if config is None or config.loads == "descriptors" else (None, None)
    if config and config.loads == "descriptors":
        require_descriptors(tiles, config.name, a, b)
        set_boxes({"a_tiles": tiles[0], "b_tiles": tiles[1], "B_TURNED": is_turned(b), **_meta(config)})
    small = problem.m * problem.n * problem.k <= SMALL_PRODUCT
    kernel = matmul_kernel if config else _tuner(_backend(), tiles[0] is not None, small)
    launch = {**_meta(config), "num_warps": config.num_warps, "num_stages": config.num_stages} if config else {}

    def grid(meta):
        return (triton.cdiv(problem.m, meta["BLOCK_M"]) * triton.cdiv(problem.n, meta["BLOCK_N"]),)

    kernel[grid](a, b, c, *tiles, problem.m, problem.n, problem.k, *a.stride(), *b.stride(), *c.stride(),
                 ACTIVATION=problem.activation, PRECISION=_precision(problem),
                 ACCUMULATOR=tl.int32 if problem.dtype == "int8" else tl.float32,
                 WIDE_OFFSETS=_reach(a, b, c) >= 2**31, LAYOUT=f"{_order(a)} {_order(b)}", B_TURNED=is_turned(b),
                 **launch)
    if config is None:
        best = kernel.best_config
        _winner[:] = [Config(block_m=best.kwargs["BLOCK_M"], block_n=best.kwargs["BLOCK_N"], block_k=best.kwargs["BLOCK_K"],
                             group_m=best.kwargs["GROUP_M"], num_warps=best.num_warps, num_stages=best.num_stages,
                             waves_per_eu=best.kwargs.get("waves_per_eu", 0),
                             loads="descriptors" if best.kwargs["USE_DESCRIPTORS"] else "pointers")]
    return c


def _reach(*tensors: torch.Tensor) -> int:
    """A bound on every element offset the kernel forms: masked elements of a last tile included, which are formed and not used."""
    tile = 256
    return max(sum((size + tile) * stride for size, stride in zip(t.shape, t.stride(), strict=True)) for t in tensors)


def _order(tensor: torch.Tensor) -> str:
    return "row" if tensor.stride(1) == 1 else "column" if tensor.stride(0) == 1 else "strided"


def _backend() -> str:
    return driver.active.get_current_target().backend


def _precision(problem: Problem) -> str | None:
    """What `tl.dot` is told. None leaves it to the target, which knows: some of AMD refuse "tf32" for operands of any type."""
    return problem.precision if problem.dtype == "fp32" else None


def _check_operands(a: torch.Tensor, b: torch.Tensor, activation: str, out_dtype: torch.dtype | None, precision: str) -> Problem:
    for name, operand in (("a", a), ("b", b)):
        if not isinstance(operand, torch.Tensor):
            raise ValueError(f"matmul: {name} is a {type(operand).__name__}: it must be a torch.Tensor; "
                             "make one with torch.as_tensor")
        if operand.layout is not torch.strided:
            raise ValueError(f"matmul: {name} has layout {operand.layout}: it must be strided; call .to_dense()")
        if operand.dim() != 2:
            raise ValueError(f"matmul: {name} has shape {tuple(operand.shape)}: it must have 2 dimensions; "
                             "reshape it, or launch once a batch")
    if a.device != b.device:
        raise ValueError(f"matmul: a is on {a.device} and b on {b.device}: both must be on one device; move one with .to(...)")
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        raise ValueError(f"matmul: out_dtype {out_dtype!r}: it must be a torch.dtype; give torch.float32, for one")
    problem = Problem(m=a.shape[0], n=b.shape[1], k=a.shape[1], dtype=_name(a.dtype), out=_name(out_dtype or a.dtype),
                      precision=precision, activation=activation, k_of_b=b.shape[0], dtype_of_b=_name(b.dtype))
    require("matmul", CLAUSES, problem, None)
    _check_device(a)
    return problem


def _name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


def _check_device(a: torch.Tensor) -> None:
    try:
        active_device = driver.active.get_active_torch_device()
    except RuntimeError as error:  # Triton found no driver at all
        raise ValueError(f"matmul: a is on {a.device} and Triton finds no GPU here ({error}): a kernel runs where its operands "
                         'lie; move them to a GPU, or run under bitverdict.harness.emulator.emulated("sm_90")') from error
    # a model of a GPU may
    taken = {active_device.type, "cpu"} if getattr(driver.active, "takes_cpu_tensors", False) else {active_device.type}
    if a.device.type not in taken:
        raise ValueError(
            f"matmul: a is on {a.device}: the active target takes operands on "
            f"{active_device.type}; move a and b there"
        )
# One file because a kernel, its configurations and its launcher are read together.
