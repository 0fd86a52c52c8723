"""What `bitverdict lab compile` compiles: kernel, case and architecture, and what must and must not be in the machine code.

Patterns are searched in the PTX (or the amdgcn assembly). A row whose refusal is expected names the layer that expects it and what
it says: an architecture without the instruction must not compile to something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bitverdict.harness.model.usage import UsageError
from bitverdict.kernels.features import Feature, features_of

NVIDIA = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
BLACKWELL = ("sm_100", "sm_103")
NO_TENSOR_MEMORY = ("sm_90", "sm_120")

TMA_LOAD = r"cp\.async\.bulk\.tensor\.2d\.shared::\w+\.global"
TMA_STORE = r"cp\.async\.bulk\.tensor\.2d\.global\.shared::cta"
GATHER = r"cp\.async\.bulk\.tensor\.2d.*tile::gather4"
SCATTER = r"cp\.async\.bulk\.tensor\.2d.*tile::scatter4"
TCGEN05 = {
    "fp16": r"tcgen05\.mma\.cta_group::1\.kind::f16",
    "bf16": r"tcgen05\.mma\.cta_group::1\.kind::f16",
    "e4m3": r"tcgen05\.mma\.cta_group::1\.kind::f8f6f4",
    "e5m2": r"tcgen05\.mma\.cta_group::1\.kind::f8f6f4",
    "fp32": r"tcgen05\.mma\.cta_group::1\.kind::tf32",
    "int8": r"tcgen05\.mma\.cta_group::1\.kind::i8",
}
MMA_SYNC = {
    "fp16": r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32",
    "bf16": r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16",
    "e4m3": r"mma\.sync\.aligned\.m16n8k32\.row\.col\.(kind::f8f6f4\.)?f32\.e4m3\.e4m3",
    "int8": r"mma\.sync\.aligned\.m16n8k32.*s8\.s8",
    "fp32": r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.tf32",
}
WGMMA = {
    "fp16": r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16\.f32\.f16",
    "bf16": r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16\.f32\.bf16",
    "e4m3": r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.f32\.e4m3",
    "e5m2": r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.f32\.e5m2",
    "fp32": r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k8\.f32\.tf32",
    "int8": r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.s32\.s8",
}
MFMA = {
    "gfx90a": {
        "fp16": r"v_mfma_f32_32x32x8f16\b",
        "bf16": r"v_mfma_f32_32x32x8bf16_1k\b",
        "int8": r"v_mfma_i32_32x32x8i8\b",
        "e4m3": r"v_mfma_f32_32x32x8f16\b",  # widened: the chip has no fp8
    },
    "gfx942": {
        "fp16": r"v_mfma_f32_32x32x8_f16\b",
        "bf16": r"v_mfma_f32_32x32x8_bf16\b",
        "int8": r"v_mfma_i32_32x32x16_i8\b",
        "e4m3": r"v_mfma_f32_32x32x8_f16\b",  # widened: its fp8 is the variant without negative zero
        "fp32": r"v_mfma_f32_32x32x4_xf32\b",
    },
    "gfx950": {
        "fp16": r"v_mfma_f32_32x32x16_f16\b",
        "bf16": r"v_mfma_f32_32x32x16_bf16\b",
        "int8": r"v_mfma_i32_32x32x(16|32)_i8\b",  # 16 where a block has 16 of K
        "e4m3": r"v_mfma_f32_32x32x16_fp8_fp8\b",
    },
}
"""What `tl.dot` becomes on AMD chips, by type of operands, as Triton 3.9 compiles it. No fp32: tf32 is refused there."""
AMD_STACK = {
    ("gfx942", "e4m3", "128x256x16 g1 w4 s0"): 8,
    ("gfx942", "e4m3", "256x256x16 g4 w8 s0"): 8,
    ("gfx942", "fp32", "64x64x32 g1 w4 s0"): 28,
}
"""Bytes of stack: widening e4m3 takes all 256 registers; 8 waves leave 64 of them, too few for tiles of fp32."""
CP_ASYNC = r"cp\.async\.c[ag]\.shared"
TENSOR_MEMORY_TRAFFIC = (r"tcgen05\.alloc", r"tcgen05\.ld", r"tcgen05\.dealloc")
ANY_MMA_SYNC, ANY_WGMMA, ANY_TCGEN05 = r"mma\.sync\.", r"wgmma\.", r"tcgen05\.mma"
LOCAL = (r"\bst\.local", r"\bld\.local")  # a spill, or an array that did not stay in registers


@dataclass(frozen=True, kw_only=True)
class Row:
    """One compilation. `must` are in the code, as often as `counts` says where it says; `must_not` are not; `expected_outcome` is
    (layer, words) where the refusal is what must come."""

    stem: str
    arch: str
    problem: dict[str, Any]
    config: dict[str, Any] | None = None
    must: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    must_not: tuple[str, ...] = LOCAL
    expected_outcome: tuple[str, str] | None = None
    most_stack: int = 0  # bytes: a row that may spill a little says so
    kernel: str = ""  # which one, of a case that launches several
    waves_per_eu: int = 0  # what the compiler must record of an AMD kernel; 0: nothing is asked

    @property
    def label(self) -> str:
        said = [self.kernel] if self.kernel else []
        said += [str(value) for value in self.problem.values() if isinstance(value, str)]
        said += [f"{name}={value}" for name, value in (self.config or {}).items()]
        return " ".join(said) or "default"


def rows(stem: str | None = None) -> list[Row]:
    """All rows, or those of one kernel. ValueError for a kernel without rows."""
    made = [row for table in TABLES if stem in (None, table.__name__.lstrip("_")) for row in table()]
    made += [row for row in SINGLE if stem in (None, row.stem)]
    if not made:
        known = [*(table.__name__.lstrip("_") for table in TABLES), *dict.fromkeys(row.stem for row in SINGLE)]
        raise UsageError(f"kernel {stem!r}: nothing to compile; use one of {', '.join(known)}")
    return made


def _matmul() -> Iterator[Row]:
    """Each element type, a large tile and a small one; what the instruction is follows from the plan."""
    from bitverdict.harness.contracts.oracle.dot_lowering import dot_plan

    large = {"block_m": 128, "block_n": 128, "block_k": 64, "num_warps": 8, "num_stages": 3}
    small = {"block_m": 64, "block_n": 32, "block_k": 32, "num_warps": 2, "num_stages": 5}
    sizes = {"m": 208, "n": 416, "k": 304}
    for arch in NVIDIA:
        for dtype in ("fp16", "bf16", "e4m3", "int8", "fp32"):
            for config in (large, small) if dtype in ("fp16", "e4m3") else (large,):
                problem = sizes | {"dtype": dtype, "out": "int32" if dtype == "int8" else dtype}
                if dtype == "e4m3" and arch in ("sm_80", "sm_86"):
                    yield Row(
                        stem="matmul",
                        arch=arch,
                        problem=problem,
                        config=config,
                        expected_outcome=("front end", "fp8e4nv not supported"),
                    )
                    continue
                if dtype == "fp32" and arch in ("sm_86", "sm_89", "sm_120"):
                    yield Row(
                        stem="matmul", arch=arch, problem=problem, config=config, expected_outcome=("capacity", "shared memory")
                    )
                    continue
                plan = dot_plan(
                    arch,
                    dtype,
                    block_m=config["block_m"],
                    block_n=config["block_n"],
                    block_k=config["block_k"],
                    num_warps=config["num_warps"],
                )
                yield Row(stem="matmul", arch=arch, problem=problem, config=config, **_by_family(plan.family, dtype, plan.operand))
    for tile in ((128, 256, 64, 8), (64, 128, 128, 4)):  # of kernels.matmul.HOPPER_CONFIGS
        config = dict(zip(("block_m", "block_n", "block_k", "num_warps"), tile, strict=True))
        yield Row(
            stem="matmul",
            arch="sm_90",
            problem=sizes | {"dtype": "fp16", "out": "fp16"},
            config=config | {"num_stages": 4, "loads": "descriptors"},
            must=(TMA_LOAD, WGMMA["fp16"], r"mbarrier\.try_wait"),
            must_not=(*LOCAL, ANY_MMA_SYNC),
        )
    yield from _matmul_on_amd(sizes)


def _matmul_on_amd(sizes: dict[str, Any]) -> Iterator[Row]:
    """The tutorial's five configurations with each type: MFMA of the chip, and waves_per_eu as asked. tf32 is gfx942's alone."""
    from bitverdict.kernels.matmul import CONFIGS

    for arch, instructions in MFMA.items():
        for dtype in ("fp16", "bf16", "int8", "e4m3", "fp32"):
            problem = sizes | {"dtype": dtype, "out": "int32" if dtype == "int8" else dtype}
            for config in CONFIGS["hip"]:
                row = Row(stem="matmul", arch=arch, problem=problem, config=asdict(config))
                if dtype not in instructions:
                    yield replace(row, expected_outcome=("front end", "input_precision must be one of"))
                    continue
                right = instructions[dtype]
                yield replace(
                    row,
                    must=(right,),
                    must_not=(rf"v_mfma_(?!{right.removeprefix('v_mfma_')})",),  # another one
                    waves_per_eu=config.waves_per_eu,
                    most_stack=AMD_STACK.get((arch, dtype, config.name), 0),
                )


def _by_family(family: str, dtype: str, operand: str) -> dict[str, Any]:
    if family == "tcgen05":
        return {"must": (TCGEN05[dtype], r"tcgen05\.ld", r"tcgen05\.commit"), "must_not": (*LOCAL, ANY_MMA_SYNC)}
    if family == "wgmma":
        return {"must": (WGMMA[dtype], r"wgmma\.wait_group"), "must_not": (*LOCAL, ANY_MMA_SYNC)}
    return {"must": (MMA_SYNC["fp16" if operand == "fp16" else dtype],), "must_not": (*LOCAL, ANY_WGMMA, ANY_TCGEN05)}


def _ampere_gemm() -> Iterator[Row]:
    tiles: list[dict[str, Any]] = [
        {},
        {"block_m": 128, "block_n": 64, "block_k": 32, "stages": 3, "num_warps": 8},
        {"block_k": 64, "stages": 4},
    ]
    for arch in NVIDIA:
        for place, config in enumerate(tiles):
            dtype = ("bf16", "fp16")[place % 2]
            warps = config.get("num_warps", 4)
            down = min(warps, config.get("block_m", 64) // 16)
            fragment = (config.get("block_m", 64) // down + config.get("block_n", 64) // (warps // down)) * config.get(
                "block_k", 16
            )
            k_steps = config.get("block_k", 16) // 16
            per_product = config.get("block_m", 64) * config.get("block_n", 64) // (16 * 8) // config.get("num_warps", 4) * k_steps
            stages = config.get("stages", 2)
            yield Row(
                stem="ampere_gemm",
                arch=arch,
                problem={"m": 200, "n": 136, "k": 304, "dtype": dtype},
                config=config,
                must=(r"cp\.async\.cg\.shared\.global", r"cp\.async\.commit_group", r"ldmatrix\.sync\.aligned", MMA_SYNC[dtype]),
                counts={MMA_SYNC[dtype]: per_product * (stages + 2), r"cp\.async\.wait_group": stages + 1},
                must_not=(*LOCAL, r"cp\.async\.ca", ANY_WGMMA, ANY_TCGEN05),
            )
            yield Row(
                stem="ampere_gemm",
                arch=arch,
                problem={"m": 200, "n": 136, "k": 304, "dtype": dtype},
                config=config | {"fragments": "ld.shared"},
                must=(r"ld\.shared\.b32", r"cp\.async\.ca\.shared\.global", r"cp\.async\.commit_group", MMA_SYNC[dtype]),
                counts={
                    r"ld\.shared\.b32": fragment // 64 * (stages + 2),  # 32 threads, two elements each
                    MMA_SYNC[dtype]: per_product * (stages + 2),
                    r"cp\.async\.wait_group": stages + 1,
                },
                must_not=(*LOCAL, r"ldmatrix", ANY_WGMMA, ANY_TCGEN05),
                most_stack=16 if warps == 8 and arch == "sm_90" else 0,
            )


def _hopper_matmul() -> Iterator[Row]:
    kinds = [
        ("fp16", "fp16", False, {}),
        ("bf16", "fp32", True, {"stages": 1}),
        ("e4m3", "e4m3", True, {"stages": 4}),
        ("e5m2", "fp32", True, {"block_n": 64}),
        ("fp16", "fp16", False, {"block_n": 256, "num_warps": 8}),
    ]
    for dtype, out, transposed, config in kinds:
        sizes = {"m": 208, "n": 416, "k": 304, "dtype": dtype, "out": out, "transpose_b": transposed}
        yield Row(
            stem="hopper_matmul",
            arch="sm_90",
            problem=sizes,
            config=config,
            must=(TMA_LOAD, TMA_STORE, WGMMA[dtype], r"wgmma\.wait_group", r"mbarrier\.try_wait", r"fence\.proxy\.async"),
            counts={TMA_STORE: 1},
            must_not=(*LOCAL, ANY_MMA_SYNC, ANY_TCGEN05),
        )
    for arch in ("sm_80", "sm_100"):  # the launcher's, because the compiler would not refuse: it ends the process
        yield Row(stem="hopper_matmul", arch=arch, problem={"m": 64, "n": 64, "k": 64}, expected_outcome=("launcher", "wgmma"))


def _tmem_copy() -> Iterator[Row]:
    for arch in BLACKWELL:
        for problem, config in (
            ({}, {"num_warps": 8}),
            ({"dtype": "fp16"}, {"packed": True}),
            ({"dtype": "int32", "m": 128}, {"block_m": 128}),
        ):
            yield Row(
                stem="tmem_copy",
                arch=arch,
                problem={"m": 256, "n": 64} | problem,
                config=config,
                must=(*TENSOR_MEMORY_TRAFFIC, r"tcgen05\.st", r"tcgen05\.wait::st"),
                must_not=(*LOCAL, ANY_TCGEN05),
            )
        for atom in ("16x64b", "16x128b", "16x256b"):
            yield Row(
                stem="tmem_copy",
                arch=arch,
                problem={"m": 128, "n": 64},
                config={"block_n": 32, "atom": atom, "parts": 2},
                must=(*TENSOR_MEMORY_TRAFFIC, r"tcgen05\.wait::st"),
                counts={rf"tcgen05\.{moved}\.sync\.aligned\.{atom}": 4 for moved in ("ld", "st")},  # two a slice: 16 lanes each
                must_not=(*LOCAL, ANY_TCGEN05),
            )
        yield Row(
            stem="tmem_copy",
            arch=arch,
            problem={"m": 128, "n": 32},
            config={"block_m": 128, "block_n": 32, "filled_by": "tcgen05.cp"},
            must=(*TENSOR_MEMORY_TRAFFIC, r"tcgen05\.cp\.cta_group::1\.128x256b", r"tcgen05\.commit", r"fence\.proxy\.async"),
            must_not=(*LOCAL, ANY_TCGEN05, r"tcgen05\.st"),
        )
    for arch in NO_TENSOR_MEMORY:
        yield Row(stem="tmem_copy", arch=arch, problem={"m": 64, "n": 64}, expected_outcome=("compiler", ""))


def _small_mma() -> Iterator[Row]:
    forms: list[tuple[str, dict[str, Any]]] = [
        ("fp16", {}),
        ("bf16", {"left": "tensor memory", "num_warps": 8}),
        ("e4m3", {"completion": "conditional"}),
        ("e5m2", {"left": "tensor memory", "completion": "barrier"}),
    ]
    for arch in BLACKWELL:
        for dtype, config in forms:
            k = 128 if dtype in ("fp16", "bf16") else 256
            arrivals = 2 if config.get("completion") == "conditional" else 1
            left_patterns = (r"tcgen05\.mma.*kind::\w+ \[[^]]*\], \[",) if config.get("left") else ()
            yield Row(
                stem="small_mma",
                arch=arch,
                problem={"m": 128, "n": 64, "k": k, "dtype": dtype},
                config=config,
                must=(TMA_LOAD, TMA_STORE, *TENSOR_MEMORY_TRAFFIC, r"tcgen05\.commit", r"fence\.proxy\.async", *left_patterns),
                counts={TCGEN05[dtype]: 8, r"tcgen05\.commit": arrivals, TMA_STORE: 1, r"fence\.proxy\.async": 1},
                must_not=(*LOCAL, ANY_MMA_SYNC),
                most_stack=32 if left_patterns else 0,
            )
    yield Row(stem="small_mma", arch="sm_120", problem={"m": 128, "n": 64, "k": 64}, expected_outcome=("compiler", ""))


def _blocked_matmul_rows(stem: str) -> Iterator[Row]:
    forms = [
        ("fp16", False, {}),
        ("bf16", True, {"block_m": 64, "block_n": 64}),
        ("e4m3", False, {"num_warps": 8}),
        ("e5m2", True, {}),
    ]
    is_pipelined = stem.endswith("pipelined")
    for arch in BLACKWELL:
        for dtype, transposed, config in forms:
            problem = {"m": 208, "n": 416, "k": 304, "dtype": dtype} | ({} if is_pipelined else {"transpose_b": transposed})
            steps = 64 // (16 if dtype in ("fp16", "bf16") else 32)
            yield Row(
                stem=stem,
                arch=arch,
                problem=problem,
                config=config,
                must=(TMA_LOAD, TMA_STORE, *TENSOR_MEMORY_TRAFFIC, r"tcgen05\.commit", r"mbarrier\.try_wait"),
                counts={TMA_STORE: 2 if is_pipelined else 1, r"fence\.proxy\.async": 2 if is_pipelined else 1}
                | ({} if is_pipelined else {TCGEN05[dtype]: steps * 2}),
                must_not=(*LOCAL, ANY_MMA_SYNC),
            )
    yield Row(stem=stem, arch="sm_120", problem={"m": 128, "n": 64, "k": 64}, expected_outcome=("compiler", ""))


def _blocked_matmul() -> Iterator[Row]:
    return _blocked_matmul_rows("blocked_matmul")


def _blocked_matmul_pipelined() -> Iterator[Row]:
    return _blocked_matmul_rows("blocked_matmul_pipelined")


def _warp_specialized_matmul() -> Iterator[Row]:
    """Three partitions, and one program for the orders of tiles, which are the launcher's."""
    forms: list[tuple[str, bool, dict[str, Any]]] = [
        ("fp16", False, {}),
        ("bf16", True, {"block_m": 64, "stages": 2, "accumulators": 1}),
        ("e4m3", False, {"num_warps": 8, "schedule": "row-major"}),
    ]
    for arch in BLACKWELL:
        for dtype, transposed, config in forms:
            steps = 64 // (16 if dtype in ("fp16", "bf16") else 32)
            yield Row(
                stem="warp_specialized_matmul",
                arch=arch,
                problem={"m": 208, "n": 416, "k": 304, "dtype": dtype, "transpose_b": transposed},
                config=config,
                must=(TMA_LOAD, TMA_STORE, *TENSOR_MEMORY_TRAFFIC, r"tcgen05\.commit", r"mbarrier\.arrive", r"setmaxnreg"),
                counts={TMA_STORE: 1, r"fence\.proxy\.async": 1, TCGEN05[dtype]: steps},
                must_not=(*LOCAL, ANY_MMA_SYNC),
            )
    yield Row(
        stem="warp_specialized_matmul", arch="sm_120", problem={"m": 128, "n": 64, "k": 64}, expected_outcome=("compiler", "")
    )


def _tma_gather() -> Iterator[Row]:
    for arch in (*BLACKWELL, "sm_120"):
        for dtype, config, count in (
            ("bf16", {"block_x": 8, "block_y": 16}, 1),
            ("fp32", {}, 32),
            ("bf16", {"block_x": 256, "block_y": 32}, 16),
        ):
            yield Row(
                stem="tma_gather",
                arch=arch,
                problem={"table_rows": 1024, "table_columns": 1024, "offsets": 256, "dtype": dtype},
                config=config,
                must=(GATHER, r"mbarrier\.try_wait"),
                counts={GATHER: count},
            )
    yield Row(
        stem="tma_gather",
        arch="sm_90",
        problem={"table_rows": 64, "table_columns": 128, "offsets": 128},
        expected_outcome=("ptxas", "tile::gather4"),
    )


def _tma_scatter() -> Iterator[Row]:
    for arch in BLACKWELL:
        for dtype, config, count in (
            ("bf16", {"block_x": 8, "block_y": 16}, 1),
            ("bf16", {"block_x": 32, "block_y": 128}, 4),
            ("fp32", {}, 32),
        ):
            yield Row(
                stem="tma_scatter",
                arch=arch,
                problem={"table_rows": 1024, "table_columns": 1024, "offsets": 256, "dtype": dtype},
                config=config,
                must=(SCATTER, r"fence\.proxy\.async", r"cp\.async\.bulk\.wait_group"),
                counts={SCATTER: count},
            )
    for arch in ("sm_90", "sm_120"):
        yield Row(
            stem="tma_scatter",
            arch=arch,
            problem={"table_rows": 64, "table_columns": 128, "offsets": 128},
            expected_outcome=("ptxas", "tile::scatter4"),
        )


def _fused_gather_scatter_matmul() -> Iterator[Row]:
    sizes = {"table_rows": 300, "rows": 500, "out_rows": 400, "n": 208, "k": 304}
    for arch in BLACKWELL:
        for dtype, config in (
            ("bf16", {}),
            ("bf16", {"block_n": 64, "block_k": 128, "num_buffers": 2}),
            ("e4m3", {"num_warps": 8}),
        ):
            yield Row(
                stem="fused_gather_scatter_matmul",
                arch=arch,
                problem=sizes | {"dtype": dtype},
                config=config,
                must=(
                    GATHER,
                    SCATTER,
                    TMA_LOAD,
                    TCGEN05[dtype],
                    *TENSOR_MEMORY_TRAFFIC,
                    r"fence\.proxy\.async",
                    r"cp\.async\.bulk\.wait_group",
                ),
                must_not=(*LOCAL, ANY_MMA_SYNC),
            )
    yield Row(stem="fused_gather_scatter_matmul", arch="sm_120", problem=sizes, expected_outcome=("compiler", ""))


def _fp8_blockwise_matmul() -> Iterator[Row]:
    sizes = {"m": 300, "n": 208, "k": 400}
    for arch in NVIDIA:
        if Feature.FP8_E4M3 not in features_of(arch):
            yield Row(stem="fp8_blockwise_matmul", arch=arch, problem=sizes, expected_outcome=("front end", "fp8e4nv"))
            continue
        yield Row(
            stem="fp8_blockwise_matmul",
            arch=arch,
            problem=sizes,
            must=(WGMMA["e4m3"] if arch == "sm_90" else TCGEN05["e4m3"] if arch in BLACKWELL else MMA_SYNC["e4m3"],),
            counts={r"fma\.rn\.f32x2\b": 16} if int(arch[3:]) >= 100 else {r"fma\.rn\.f32\b": 32},  # what a thread promotes
            must_not=LOCAL,
        )


def _split_k_matmul() -> Iterator[Row]:
    sizes = {"m": 300, "n": 208, "k": 400, "out": "fp32"}
    for arch in NVIDIA:
        product = WGMMA["fp16"] if arch == "sm_90" else TCGEN05["fp16"] if arch in BLACKWELL else MMA_SYNC["fp16"]
        loads = (TMA_LOAD,) if int(arch[3:]) >= 90 else ()  # before sm_90 a descriptor is rewritten to pointers
        counted = (r"atom\.global\.gpu\.acq_rel\.add\.u32", r"ld\.global\.cg")
        added = r"(atom|red)\.global\.gpu\.relaxed\.add(\.v[24])?\.f32"
        for reduction, must in (("last program", counted), ("atomics", (added,))):
            config = {"reduction": reduction}
            yield Row(stem="split_k_matmul", arch=arch, problem=sizes, config=config, must=(product, *loads, *must))


def _attention() -> Iterator[Row]:
    sizes = {"batch": 2, "heads": 8, "kv_heads": 2, "m": 300, "n": 500, "d": 64}
    for arch in NVIDIA:
        dtype, causal = ("bf16", True) if arch in ("sm_90", "sm_100") else ("fp16", False)
        family = {"sm_90": WGMMA, "sm_100": TCGEN05}.get(arch, TCGEN05 if arch in BLACKWELL else MMA_SYNC)
        yield Row(
            stem="attention",
            arch=arch,
            problem=sizes | {"dtype": dtype, "causal": causal},
            must=(family[dtype], r"ex2\.approx\.ftz\.f32", r"lg2\.approx\.ftz\.f32", r"div\.full\.f32", CP_ASYNC),
            must_not=LOCAL,
        )


def _grouped_matmul() -> Iterator[Row]:
    for arch in NVIDIA:
        product = WGMMA["fp16"] if arch == "sm_90" else TCGEN05["fp16"] if arch in BLACKWELL else MMA_SYNC["fp16"]
        sizes = {"sizes": ((128, 64, 96), (80, 208, 64))}
        yield Row(stem="grouped_matmul", arch=arch, problem=sizes, must=(product, CP_ASYNC))
        ragged = {"sizes": ((65, 33, 31), (1, 65, 97))}  # loaded element by element, and 2 bytes are too few for a copy
        small = {"block_n": 32, "block_k": 32}
        yield Row(stem="grouped_matmul", arch=arch, problem=ragged, config=small, must=(product,), must_not=(*LOCAL, CP_ASYNC))


def _pointer_gather_scatter_matmul() -> Iterator[Row]:
    sizes = {"table_rows": 300, "rows": 500, "out_rows": 400, "k": 304}
    for arch in NVIDIA:
        for dtype, n, config in (
            ("bf16", 208, {}),
            ("fp16", 208, {"block_m": 64, "block_n": 64, "num_warps": 4, "stages": 4}),
            ("bf16", 205, {}),  # all of W through registers
            ("bf16", 208, {"loads": "gl.load"}),
        ):
            copy_pattern, load_pattern = r"cp\.async\.cg\.shared\.global", r"ld\.global\S*\.v4"
            by_copies = config.get("loads") != "gl.load"
            yield Row(
                stem="pointer_gather_scatter_matmul",
                arch=arch,
                problem=sizes | {"n": n, "w_pad": -n % 8, "dtype": dtype},
                config=config,
                must=(r"ldmatrix\.sync\.aligned\S*\.trans", MMA_SYNC[dtype], copy_pattern if by_copies else load_pattern),
                must_not=(*LOCAL, r"cp\.async\.ca", ANY_WGMMA, ANY_TCGEN05, *(() if by_copies else (copy_pattern,))),
            )


def _warp_specialized_gather_scatter_matmul() -> Iterator[Row]:
    sizes = {"table_rows": 300, "rows": 500, "out_rows": 400, "n": 208, "k": 304}
    for arch in BLACKWELL:
        for dtype, config in (("bf16", {}), ("bf16", {"block_n": 64, "load_warps": 1}), ("e4m3", {"num_warps": 8})):
            yield Row(
                stem="warp_specialized_gather_scatter_matmul",
                arch=arch,
                problem=sizes | {"dtype": dtype},
                config=config,
                must=(
                    GATHER,
                    SCATTER,
                    TMA_LOAD,
                    TCGEN05[dtype],
                    *TENSOR_MEMORY_TRAFFIC,
                    r"fence\.proxy\.async",
                    r"cp\.async\.bulk\.wait_group",
                    r"setmaxnreg",
                ),
                counts={GATHER: 32 // config.get("load_warps", 4)},  # of four rows each, by every warp of the load partition
                must_not=(*LOCAL, ANY_MMA_SYNC),
            )
    yield Row(stem="warp_specialized_gather_scatter_matmul", arch="sm_120", problem=sizes, expected_outcome=("compiler", ""))


SCALED_KINDS = {
    "mxfp4": r"kind::mxf4\.block_scale\.block32",
    "nvfp4": r"kind::mxf4nvf4\.block_scale\.block16",
    "mxfp8": r"kind::mxf8f6f4\.block_scale\.block32",
    "mixed": r"kind::mxf8f6f4\.block_scale\.block32",
}


def _quantize_mxfp() -> Iterator[Row]:
    """Conversions to fp8 are one instruction where the chip has it; elements of e2m1 are made of comparisons everywhere."""
    forms = {
        "mxfp4": (r"setp\.(gt|leu)\.f32", r"st\.global"),
        "mxfp8_e4m3": (r"cvt\.rn\.satfinite\.e4m3x2\.f32",),
        "mxfp8_e5m2": (r"cvt\.rn\.satfinite\.e5m2x2\.f32",),
        "nvfp4": (r"cvt\.rn\.satfinite\.e4m3x2\.f32", r"div\.rn\.f32"),
    }
    for arch in NVIDIA:
        has_fp8 = Feature.FP8_E4M3 in features_of(arch)
        for name, must in forms.items():
            row = Row(stem="quantize_mxfp", arch=arch, problem={"rows": 3, "columns": 1000, "format": name})
            if name in ("mxfp8_e4m3", "nvfp4") and not has_fp8:
                yield replace(row, expected_outcome=("front end", "fp8e4nv"))
            else:
                found = must if has_fp8 or name == "mxfp4" else (r"cvt\.rz\.f16x2\.f32",)
                yield replace(row, must=found, must_not=(*LOCAL, r"fma\.rn\.f32"))


def _block_scaled_matmul() -> Iterator[Row]:
    """Whole tiles of scales go from shared to tensor memory by tcgen05.cp; a ragged K takes them through registers."""
    wide_config = {"block_n": 256, "num_stages": 4}
    for name, kind in SCALED_KINDS.items():
        whole_problem = {"m": 512, "n": 512, "k": 1024, "format": name}
        ragged_problem = whole_problem | {"m": 200, "n": 72, "k": 384, "out": "e4m3"}
        for arch in BLACKWELL:
            yield Row(
                stem="block_scaled_matmul",
                arch=arch,
                problem=whole_problem,
                config=wide_config | {"block_k": 256 if "fp4" in name else 128},
                must=(rf"tcgen05\.mma\.cta_group::1\.{kind}", r"tcgen05\.cp\.cta_group::1\.warpx4", TMA_LOAD, TMA_STORE),
                must_not=(*LOCAL, ANY_MMA_SYNC),
            )
        yield Row(
            stem="block_scaled_matmul",
            arch="sm_100",
            problem=ragged_problem,
            config={"block_k": 256, "num_stages": 2, "scale_load": "5D", "descriptors": "device"},
            must=(rf"tcgen05\.mma\.cta_group::1\.{kind}", r"tcgen05\.st", r"tensormap\.replace"),
            must_not=(*LOCAL, r"tcgen05\.cp", ANY_MMA_SYNC),
        )
        yield Row(
            stem="block_scaled_matmul",
            arch="sm_90",
            problem=whole_problem,
            config={"num_warps": 8},
            must=(WGMMA["bf16"], r"mul\.bf16x2", TMA_LOAD),
            must_not=(*LOCAL, ANY_MMA_SYNC, ANY_TCGEN05),
        )
    yield Row(
        stem="block_scaled_matmul",
        arch="sm_80",
        problem={"m": 512, "n": 512, "k": 1024, "format": "mxfp4"},
        config={"num_warps": 8},
        must=(MMA_SYNC["bf16"],),
        must_not=(ANY_WGMMA, ANY_TCGEN05),
        most_stack=512,
    )
    yield Row(
        stem="block_scaled_matmul",
        arch="sm_80",
        problem={"m": 512, "n": 512, "k": 1024, "format": "nvfp4"},
        config={},
        expected_outcome=("front end", "fp8e4nv not supported"),
    )


SINGLE: tuple[Row, ...] = (
    # of kernels whose machine code one row an architecture says enough about
    *(
        Row(stem=stem, arch=arch, problem=problem, config=config, must=must, must_not=(*LOCAL, r"fma\.rn\.f32"))
        for arch in NVIDIA
        for stem, problem, config, must in (
            ("softmax", {"rows": 3, "columns": 1000}, {}, (r"ex2\.approx\.f32", r"div\.full\.f32", r"shfl\.sync\.bfly")),
            (
                "rms_norm",
                {"rows": 3, "columns": 1000, "dtype": "bf16", "backward": False},
                {},
                (r"rsqrt\.approx\.ftz", r"shfl\.sync\.bfly"),
            ),
            ("swiglu", {"rows": 3, "columns": 1000, "dtype": "fp16"}, {}, (r"ex2\.approx\.f32", r"div\.full\.f32")),
            ("rope", {"positions": 3, "heads": 2, "columns": 128, "dtype": "bf16"}, {}, (r"mul\.rn\.f32", r"sub\.rn\.f32")),
            ("dropout", {"rows": 3, "columns": 1000, "dtype": "fp16", "key": 1 << 40}, {}, (r"mul\.hi\.u32", r"cvt\.rn\.f32\.s32")),
        )
    ),
    *(
        Row(
            stem=stem,
            arch=arch,
            problem={"rows": 30, "columns": 1000, "dtype": "bf16"} | more,
            kernel=kernel,
            must=must,
            must_not=(*LOCAL, r"fma\.rn\.f32"),
        )
        for arch in NVIDIA
        for stem, kernel, more, must in (
            ("rms_norm", "rms_norm_backward_kernel", {}, (r"shfl\.sync\.bfly", r"mul\.rn\.f32")),
            ("rms_norm", "added_rows_kernel", {}, (r"ld\.global", r"add\.rn\.f32")),
            (
                "cross_entropy",
                "cross_entropy_kernel",
                {"smoothing": 0.1},
                (r"ex2\.approx\.f32", r"fma\.rn\.ftz\.f32", r"shfl\.sync\.bfly"),
            ),
            ("cross_entropy", "cross_entropy_backward_kernel", {"smoothing": 0.1}, (r"ex2\.approx\.f32", r"sub\.rn\.f32")),
        )
    ),
)

TABLES = (
    _matmul,
    _ampere_gemm,
    _hopper_matmul,
    _tmem_copy,
    _small_mma,
    _blocked_matmul,
    _blocked_matmul_pipelined,
    _warp_specialized_matmul,
    _tma_gather,
    _tma_scatter,
    _fused_gather_scatter_matmul,
    _warp_specialized_gather_scatter_matmul,
    _pointer_gather_scatter_matmul,
    _fp8_blockwise_matmul,
    _split_k_matmul,
    _attention,
    _quantize_mxfp,
    _grouped_matmul,
    _block_scaled_matmul,
)
# One file because it is one table of rows, a function a kernel.
