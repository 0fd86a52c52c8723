"""FlagGems: operations of torch, each by its function in the package against torch's own on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from benchmarks.corpus_entry import Compared, Entry, Given, Package, compared, on_cpu

RELATIVE = {torch.float16: 1e-3, torch.float32: 1.3e-6, torch.bfloat16: 0.016, torch.float64: 1e-7, torch.complex64: 1.3e-6}


def _for_triton_3_9() -> None:
    """Block pointers left Triton with 3.9: the package's own setting generates kernels without them. It launches a compiled kernel
    as Triton 3.3 to 3.6 wanted it, which 3.9 still does; a later release it takes for one before 3.3."""
    from flag_gems.runtime.common import vendors
    from flag_gems.utils.codegen_config_utils import CODEGEN_COFIGS

    CODEGEN_COFIGS[vendors.NVIDIA].prefer_block_pointer = False
    importlib.import_module("flag_gems.utils.libentry").minor_version = 6  # type: ignore[attr-defined]


FLAG_GEMS = Package(
    "flag_gems",
    "5.0.2",
    needs=("PyYAML==6.0.3", "sqlalchemy==2.0.48", "packaging==26.0"),
    environment={"GEMS_VENDOR": "nvidia", "FLAGGEMS_CACHE_DIR": "{folder}/written_by_flag_gems"},
    tolerance="its own (flag_gems.testing): 1e-4 for each term of a sum, and by type",
    prepare=_for_triton_3_9,
)
ENTRIES: list[Entry] = []


def add(
    name: str, operands: Callable[[Given], tuple], reference: Callable[..., Any], terms: int = 1, entry: str = "", **options: Any
) -> None:
    """An entry for the function `name` of the package; its sums have `terms` terms."""

    def run(given: Given) -> Iterator[Compared]:
        import flag_gems

        drawn = operands(given)
        expected = reference(*on_cpu(drawn), **options)
        got = getattr(flag_gems, name)(*drawn, **options)
        yield from compared(got, expected, lambda result: (RELATIVE.get(result.dtype, 0.0), 1e-4 * terms))

    ENTRIES.append(Entry(FLAG_GEMS, entry or name, run))


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[Given], tuple]:
    return lambda given: (given.normal(*shape, dtype=dtype),)


def pair(dtype: torch.dtype = torch.float32) -> Callable[[Given], tuple]:
    return lambda given: (given.normal(29, 65, dtype=dtype), given.normal(29, 65, dtype=dtype))


def positive(given: Given) -> tuple:
    return (given.uniform(0.05, 9.0, 29, 65),)


def between(low: float, high: float) -> Callable[[Given], tuple]:
    return lambda given: (given.uniform(low, high, 29, 65),)


def words(given: Given) -> tuple:
    return (given.integers(-(2**31), 2**31, 29, 65, dtype=torch.int32), given.integers(-(2**31), 2**31, 29, 65, dtype=torch.int32))


def flags(given: Given) -> tuple:
    return given.flags(29, 65), given.flags(29, 65)


def with_flat_figures(x: torch.Tensor, shape: list[int], weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """torch's layer norm with mean and rstd of the rows as the package shapes them: (rows,)."""
    y, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, 1e-5)
    return y, mean.flatten(), rstd.flatten()


MATRIX = normal(29, 65)
for _name in (
    "abs",
    "neg",
    "cos",
    "sin",
    "tan",
    "exp",
    "exp2",
    "expm1",
    "erf",
    "sigmoid",
    "tanh",
    "relu",
    "square",
    "ceil",
    "round",
):
    add(_name, MATRIX, getattr(torch, _name))
for _name in ("atan", "arcsinh", "cosh", "isfinite", "isinf", "isnan", "signbit", "i0", "selu", "celu", "angle"):
    add(_name, MATRIX, getattr(torch, _name))
for _name in ("log", "log10", "sqrt", "rsqrt", "reciprocal"):
    add(_name, positive, getattr(torch, _name))
for _name in ("silu", "elu", "softplus", "hardsigmoid", "relu6", "softshrink"):
    add(_name, MATRIX, getattr(functional, _name))
add("acos", between(-1.0, 1.0), torch.acos)
add("logit", between(0.05, 0.95), torch.logit)
add("log_sigmoid", MATRIX, functional.logsigmoid)
add("special_i1", MATRIX, torch.special.i1)
add("special_i0e", MATRIX, torch.special.i0e)
add("gelu", MATRIX, functional.gelu)
add("gelu", MATRIX, functional.gelu, entry="gelu, tanh", approximate="tanh")
add("nan_to_num", MATRIX, torch.nan_to_num)
add("add", pair(), torch.add)
add("add", pair(torch.bfloat16), torch.add, entry="add, bf16")
add("sub", pair(), torch.sub)
add("mul", pair(torch.float16), torch.mul, entry="mul, fp16")
add("true_divide", pair(), torch.true_divide)
add("atan2", pair(), torch.atan2)
add("copysign", pair(), torch.copysign)
add("hypot", pair(), torch.hypot)
add("logaddexp", pair(), torch.logaddexp)
add("maximum", pair(), torch.maximum)
add("minimum", pair(), torch.minimum)
add("fmin", pair(), torch.fmin)
add("isclose", pair(), torch.isclose)
add("mse_loss", pair(), lambda a, b: functional.mse_loss(a, b))
add("pow_tensor_tensor", lambda g: (g.uniform(0.1, 3.0, 29, 65), g.normal(29, 65)), torch.pow)
add("pow_tensor_scalar", lambda g: (g.uniform(0.1, 3.0, 29, 65), 2.5), torch.pow)
add("floor_divide", lambda g: (words(g)[0], g.integers(1, 99, 29, 65, dtype=torch.int32)), torch.floor_divide)
add("remainder", lambda g: (words(g)[0], g.integers(1, 99, 29, 65, dtype=torch.int32)), torch.remainder)
for _name in ("eq", "ne", "ge", "gt", "le", "lt"):
    add(_name, lambda g: (g.integers(0, 5, 29, 65), g.integers(0, 5, 29, 65)), getattr(torch, _name))
for _name in ("and", "or"):
    add(f"bitwise_{_name}_tensor", words, getattr(torch, f"bitwise_{_name}"))
add("bitwise_not", lambda g: words(g)[:1], torch.bitwise_not)
add("bitwise_left_shift", lambda g: (words(g)[0], g.integers(0, 31, 29, 65, dtype=torch.int32)), torch.bitwise_left_shift)
add("bitwise_right_shift", lambda g: (words(g)[0], g.integers(0, 31, 29, 65, dtype=torch.int32)), torch.bitwise_right_shift)
for _name in ("logical_and", "logical_or", "logical_xor"):
    add(_name, flags, getattr(torch, _name))
add("logical_not", lambda g: flags(g)[:1], torch.logical_not)
add("clamp", lambda g: (g.normal(29, 65), -0.5, 0.7), torch.clamp)
add("lerp_tensor", lambda g: (*pair()(g), g.uniform(0.0, 1.0, 29, 65)), torch.lerp)
add("addcmul", lambda g: (*pair()(g), g.normal(29, 65)), torch.addcmul)
add("addcdiv", lambda g: (*pair()(g), g.uniform(0.5, 2.0, 29, 65)), torch.addcdiv)
add("where_self", lambda g: (g.flags(29, 65), *pair()(g)), torch.where)
add("masked_fill", lambda g: (g.normal(29, 65), g.flags(29, 65), 2.5), torch.masked_fill)
add("masked_select", lambda g: (g.normal(29, 65), g.flags(29, 65)), torch.masked_select)
add("threshold", lambda g: (g.normal(29, 65), 0.1, 20.0), functional.threshold)
add("prelu", lambda g: (g.normal(29, 65), g.normal(65)), functional.prelu)
add("polar", lambda g: (g.uniform(0.1, 2.0, 29, 65), g.normal(29, 65)), lambda a, b: torch.polar(a, b))

add("sum", MATRIX, torch.sum, terms=29 * 65)
add("sum_dim", lambda g: (g.normal(29, 65), [1]), torch.sum, terms=65)
add("mean", MATRIX, torch.mean)
add("mean_dim", lambda g: (g.normal(29, 65), [1]), torch.mean)
add("prod", lambda g: (g.uniform(0.9, 1.1, 29, 65),), torch.prod, terms=29 * 65)
add("var_mean", lambda g: (g.normal(29, 65), [1]), lambda a, d: torch.var_mean(a, d))
add("std", lambda g: (g.normal(29, 65), 1), lambda a, d: torch.std(a, d))
add("vector_norm", MATRIX, torch.linalg.vector_norm)
add("amax", lambda g: (g.normal(29, 65), [1]), torch.amax)
add("max", MATRIX, torch.max)
add("max_dim", lambda g: (g.normal(29, 65), 1), torch.max)
add("min_dim", lambda g: (g.normal(29, 65), 1), torch.min)
add("aminmax", MATRIX, lambda a: torch.aminmax(a))
add("argmax", lambda g: (g.normal(29, 65), 1), torch.argmax)
add("argmin", lambda g: (g.normal(29, 65), 1), torch.argmin)
add("all", lambda g: (g.flags(29, 65),), torch.all)
add("any_dim", lambda g: (g.flags(29, 65), 1), torch.any)
add("count_nonzero", lambda g: (g.integers(0, 3, 29, 65),), torch.count_nonzero)
add("cumsum", lambda g: (g.normal(29, 65), 1), torch.cumsum, terms=65)
add("cumsum", lambda g: (g.integers(-9, 9, 29, 65), 1), torch.cumsum, entry="cumsum, int64")
add("cummax", lambda g: (g.normal(29, 65), 1), torch.cummax)
add("softmax", lambda g: (g.normal(29, 65), 1), torch.softmax)
add("log_softmax", lambda g: (g.normal(29, 65), 1), torch.log_softmax)
add("trace", normal(65, 65), torch.trace, terms=65)
add("dot", lambda g: (g.normal(1000), g.normal(1000)), torch.dot, terms=1000)
add("nonzero", lambda g: (g.integers(0, 3, 29, 65),), torch.nonzero)
add("sort", lambda g: (g.normal(29, 65),), torch.sort)
add("topk", lambda g: (g.normal(29, 65), 5), torch.topk)
add("unique_consecutive", lambda g: (g.integers(0, 3, 300),), torch.unique_consecutive)
add("isin", lambda g: (g.integers(0, 50, 29, 65), g.integers(0, 50, 17)), torch.isin)

add("mm", lambda g: (g.normal(37, 50), g.normal(50, 41)), torch.mm, terms=50)
add("mm", lambda g: (g.normal(37, 64, dtype=torch.float16), g.normal(64, 48, dtype=torch.float16)), torch.mm, 64, "mm, fp16")
add("addmm", lambda g: (g.normal(41), g.normal(37, 50), g.normal(50, 41)), torch.addmm, terms=50)
add("bmm", lambda g: (g.normal(3, 37, 50), g.normal(3, 50, 41)), torch.bmm, terms=50)
add("baddbmm", lambda g: (g.normal(3, 37, 41), g.normal(3, 37, 50), g.normal(3, 50, 41)), torch.baddbmm, terms=50)
add("mv", lambda g: (g.normal(37, 50), g.normal(50)), torch.mv, terms=50)
add("addmv", lambda g: (g.normal(37), g.normal(37, 50), g.normal(50)), torch.addmv, terms=50)
add("addr", lambda g: (g.normal(37, 50), g.normal(37), g.normal(50)), torch.addr)
add("kron", lambda g: (g.normal(5, 7), g.normal(3, 4)), torch.kron)
add("conv1d", lambda g: (g.normal(2, 4, 33), g.normal(6, 4, 3)), functional.conv1d, terms=12)
add("conv2d", lambda g: (g.normal(2, 4, 13, 17), g.normal(6, 4, 3, 3)), functional.conv2d, terms=36)
add("avg_pool2d", lambda g: (g.normal(2, 4, 12, 16), [2, 2]), functional.avg_pool2d)

add("cat", lambda g: ([g.normal(29, 65), g.normal(3, 65)],), torch.cat)
add("stack", lambda g: ([g.normal(29, 65), g.normal(29, 65)],), torch.stack)
add("hstack", lambda g: ([g.normal(29, 65), g.normal(29, 6)],), torch.hstack)
add("vstack", lambda g: ([g.normal(29, 65), g.normal(3, 65)],), torch.vstack)
add("flip", lambda g: (g.normal(29, 65), [0, 1]), torch.flip)
add("roll", lambda g: (g.normal(29, 65), [3, 5], [0, 1]), torch.roll)
add("tril", lambda g: (g.normal(29, 65),), torch.tril)
add("triu", lambda g: (g.normal(29, 65),), torch.triu)
add("diag", normal(65), torch.diag)
add("diag_embed", MATRIX, torch.diag_embed)
add("repeat", lambda g: (g.normal(7, 9), [2, 3]), lambda a, n: a.repeat(n))
add("repeat_interleave_self_int", lambda g: (g.normal(7, 9), 3), torch.repeat_interleave)
add("tile", lambda g: (g.normal(7, 9), [2, 3]), torch.tile)
add("pad", lambda g: (g.normal(7, 9), [1, 2, 3, 4]), functional.pad)
add("reflection_pad1d", lambda g: (g.normal(3, 4, 33), [3, 5]), lambda a, n: functional.pad(a, n, "reflect"))
add("pixel_unshuffle", lambda g: (g.normal(2, 3, 8, 12), 2), functional.pixel_unshuffle)
add("one_hot", lambda g: (g.integers(0, 11, 29), 11), functional.one_hot)
add("gather", lambda g: (g.normal(29, 65), 1, g.integers(0, 65, 29, 7)), torch.gather)
add("scatter", lambda g: (g.normal(29, 65), 0, g.integers(0, 1, 1, 65), g.normal(1, 65)), torch.scatter)
add("index_select", lambda g: (g.normal(29, 65), 0, g.integers(0, 29, 11)), torch.index_select)
add("index_add", lambda g: (g.normal(29, 65), 0, g.integers(0, 29, 11), g.normal(11, 65)), torch.index_add, terms=11)
add("select_scatter", lambda g: (g.normal(29, 65), g.normal(65), 0, 3), torch.select_scatter)
add("slice_scatter", lambda g: (g.normal(29, 65), g.normal(5, 65), 0, 3, 8), torch.slice_scatter)
add("embedding", lambda g: (g.normal(53, 32), g.integers(0, 53, 19)), lambda w, i: functional.embedding(i, w))
add("upsample_nearest2d", lambda g: (g.normal(2, 3, 8, 12), [16, 24]), lambda a, n: functional.interpolate(a, n))
add("upsample_linear1d", lambda g: (g.normal(2, 3, 9), [20], False), lambda a, n, c: functional.interpolate(a, n, mode="linear"))
add("quantile", lambda g: (g.normal(29, 65), 0.3), lambda a, q: torch.quantile(a, q))

add("layer_norm", lambda g: (g.normal(29, 65), [65], g.normal(65), g.normal(65)), lambda *a: with_flat_figures(*a))
add("rms_norm", lambda g: (g.normal(29, 65), [65], g.normal(65), 1e-5), functional.rms_norm)
add(
    "group_norm",
    lambda g: (g.normal(2, 12, 35), g.normal(12), g.normal(12), 2, 12, 35, 3),
    lambda *a: torch.native_group_norm(*a, 1e-5),
)
add(
    "embedding_dense_backward",
    lambda g: (g.normal(19, 32), g.integers(0, 53, 19), 53, -1, False),
    torch.ops.aten.embedding_dense_backward,
    19,
)
add("sigmoid_backward", pair(), torch.ops.aten.sigmoid_backward)
add("tanh_backward", pair(), torch.ops.aten.tanh_backward)
add("silu_backward", pair(), torch.ops.aten.silu_backward)
add("gelu_backward", pair(), torch.ops.aten.gelu_backward)
add(
    "softmax_backward",
    lambda g: (*pair()(g), 1, torch.float32),
    lambda a, b, d, t: torch.ops.aten._softmax_backward_data(a, b, d, a.dtype),
    65,
)
add(
    "log_softmax_backward",
    lambda g: (*pair()(g), 1, torch.float32),
    lambda a, b, d, t: torch.ops.aten._log_softmax_backward_data(a, b, d, a.dtype),
    65,
)
add("nll_loss_forward", lambda g: (g.normal(29, 65), g.integers(0, 65, 29), None, 1, -100), torch.ops.aten.nll_loss_forward)
add("silu_and_mul", pair(), lambda a, b: functional.silu(a) * b)
add("gelu_and_mul", pair(), lambda a, b: functional.gelu(a) * b)
