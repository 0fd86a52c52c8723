"""The tile program the real compiler makes of a `tl` kernel for a GPU that is not here: TTGIR text, nothing executed."""

from __future__ import annotations

import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, make_backend

from bitverdict.kernels.matmul import Config, matmul_kernel

POINTERS = {"fp16": "fp16", "bf16": "bf16", "e4m3": "fp8e4nv", "int8": "i8", "fp32": "fp32", "int32": "i32"}
DIVISIBLE = [["tt.divisibility", 16]]


def matmul_source(
    config: Config,
    dtype: str,
    attrs: dict | None = None,
    *,
    precision: str = "tf32",
    out: str = "",
    kernel=None,
    even_k: bool = False,
) -> ASTSource:
    """matmul's kernel, or a twin of it, with the constants of `config`, before it is compiled."""
    function = (kernel or matmul_kernel).fn
    constants = {
        "stride_ak": 1,
        "stride_bn": 1,
        "stride_cn": 1,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "GROUP_M": config.group_m,
        "EVEN_K": even_k,
        "ACTIVATION": "",
        "PRECISION": precision,
        "ACCUMULATOR": tl.int32 if dtype == "int8" else tl.float32,
        "WIDE_OFFSETS": False,
        "USE_DESCRIPTORS": False,
        "B_TURNED": False,
        "a_tiles": None,
        "b_tiles": None,
        "LAYOUT": "row row",
    }
    signature = {name: "constexpr" if name in constants else "i32" for name in function.arg_names}
    signature |= {"a_ptr": f"*{POINTERS[dtype]}", "b_ptr": f"*{POINTERS[dtype]}", "c_ptr": f"*{POINTERS[out or dtype]}"}
    return ASTSource(function, signature, constexprs=constants, attrs=attrs)


def matmul_ttgir(arch: int, dtype: str, config: Config, **choices) -> str:
    """TTGIR of `matmul_source` with 16-byte aligned pointers and strides of A, B and C divisible by 16, sizes of any residue."""
    names = (choices.get("kernel") or matmul_kernel).fn.arg_names
    aligned = [i for i, name in enumerate(names) if name.endswith("_ptr") or name in ("stride_am", "stride_bk", "stride_cm")]
    source = matmul_source(config, dtype, {(i,): DIVISIBLE for i in aligned}, **choices)
    target = GPUTarget("cuda", arch, 32)
    backend = make_backend(target)
    options = backend.parse_options({"num_warps": config.num_warps, "num_stages": config.num_stages})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
    metadata: dict = {}
    module = backend.make_ttir(module, metadata, options, arch)
    return backend.make_ttgir(module, metadata, options, arch).str()
