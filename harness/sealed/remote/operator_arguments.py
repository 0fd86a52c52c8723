"""Arguments of torch's operators that torch itself does not hold to each other: sizes that must fit, indices that must lie inside.

An operator for a CPU takes its own functions' word for what they saved, and for what autograd hands back. A candidate's process may
say anything: `max_pool2d_with_indices_backward` writes wherever its indices lead. What is asked here is asked before the operator
runs. `benchmarks/untrusted_operators.py` looks for more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bitverdict.harness.emulator.cuda_tensors import inside
from bitverdict.harness.model.torch_internals import name_of, schema_of
from bitverdict.harness.sealed.remote.errors import WireError

NamedArguments = Mapping[str, Any]
_TABLE_TYPES = {"ScalarType": torch.dtype, "Layout": torch.layout, "MemoryFormat": torch.memory_format}
ELEMENTWISE = frozenset(
    f"{name}_backward"
    for name in (
        "threshold", "sigmoid", "tanh", "gelu", "silu", "mish", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "elu",
        "softplus", "softshrink", "hardshrink", "log_sigmoid", "logit", "mse_loss", "smooth_l1_loss", "huber_loss",
        "soft_margin_loss",
        "binary_cross_entropy", "native_dropout", "infinitely_differentiable_gelu",
    )
)  # fmt: skip
"""Backward operators whose operands broadcast, or are refused by torch where they do not."""
CHECKED_BY_TORCH = frozenset(
    {
        "convolution_backward", "native_group_norm_backward", "avg_pool2d_backward", "avg_pool3d_backward", "select_backward",
        "slice_backward", "diagonal_backward", "index_select_backward", "value_selecting_reduction_backward", "cummaxmin_backward",
        "upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward", "upsample_linear1d_backward",
        "upsample_bilinear2d_backward", "upsample_trilinear3d_backward", "upsample_bicubic2d_backward", "trace_backward",
        "reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward", "replication_pad1d_backward",
        "replication_pad2d_backward", "replication_pad3d_backward", "linear_backward", "matmul_backward",
    }
)  # fmt: skip
"""Backward operators that hold the sizes of their operands to each other themselves."""


def _of_channels(given: NamedArguments) -> bool:
    whole = given.get("input")
    if whole is None:
        return False
    own = [each for name, each in given.items() if name != "input" and isinstance(each, torch.Tensor) and name in _STATISTICS]
    known = given.get("training", False) or (given.get("running_mean") is not None and given.get("running_var") is not None)
    return known and whole.dim() >= 2 and all(each.dim() == 1 and each.numel() == whole.shape[1] for each in own)


_STATISTICS = ("weight", "bias", "running_mean", "running_var")


def _weight_norm(given: NamedArguments) -> bool:
    whole, dim = given["v"], given["dim"]
    return whole.numel() > 0 and -whole.dim() <= dim < whole.dim() and given["g"].numel() == whole.shape[dim]


def _transform(given: NamedArguments) -> bool:
    whole, dims = given["self"], given["dim"]
    inside = whole.numel() > 0 and len({*dims}) == len(dims) > 0 and all(0 <= dim < whole.dim() for dim in dims)
    return inside and ("last_dim_size" not in given or given["last_dim_size"] // 2 + 1 == whole.shape[dims[-1]])


def _repeats(given: NamedArguments) -> bool:
    repeats = given.get("repeats")
    return not isinstance(repeats, torch.Tensor) or not repeats.numel() or bool((inside(repeats) >= 0).all())


def _equal_sizes(given: NamedArguments) -> bool:
    return given["grad_output"].shape == given["output"].shape


def _layer_norm(arguments: NamedArguments) -> bool:
    whole, normal = arguments["input"], tuple(arguments["normalized_shape"])
    outer = whole.shape[: whole.dim() - len(normal)]
    fits = tuple(whole.shape[whole.dim() - len(normal) :]) == normal and arguments["grad_out"].shape == whole.shape
    own = [each for name in ("weight", "bias") if (each := arguments.get(name)) is not None]
    return (
        0 < len(normal) <= whole.dim()
        and fits
        and all(arguments[name].numel() == outer.numel() for name in ("mean", "rstd"))
        and all(tuple(each.shape) == normal for each in own)
    )


def _pool(axes: int) -> Callable[[NamedArguments], bool]:
    """Of a pool over the last `axes` axes: each gradient goes to a place of its own plane."""

    def fits(given: NamedArguments) -> bool:
        whole, gradient, indices = given["self"], given["grad_output"], given["indices"]
        planes = whole.shape[:-axes] == gradient.shape[:-axes] and gradient.shape == indices.shape and whole.dim() == gradient.dim()
        return planes and whole.dim() > axes and _within(indices, whole.shape[-axes:].numel())

    return fits


def _within(indices: torch.Tensor, below: int, besides: int = -1) -> bool:
    """Whether all of `indices` lie in 0 .. `below`, or are `besides`, where that is not negative."""
    held = inside(indices)
    known = (held >= 0) & (held < below)
    return indices.dtype in (torch.int64, torch.int32) and bool((known | (held == besides) if besides >= 0 else known).all())


def _likelihood(arguments: NamedArguments) -> bool:
    whole, target, ignored = arguments["self"], arguments["target"], arguments["ignore_index"]
    sizes = whole.shape[:1] + whole.shape[2:] if whole.dim() > 1 else torch.Size([])
    held, classes = inside(target), whole.shape[1 if whole.dim() > 1 else 0] if whole.dim() else 0
    known = bool((((held >= 0) & (held < classes)) | (held == ignored)).all())
    fits = target.shape == sizes and (
        arguments["grad_output"].shape == sizes if arguments["reduction"] == 0 else arguments["grad_output"].numel() == 1
    )
    weight = arguments.get("weight")
    return known and fits and target.dtype is torch.int64 and (weight is None or weight.numel() == classes)


def _embedding(given: NamedArguments) -> bool:
    indices, count, padding = given["indices"], given["num_weights"], given["padding_idx"]
    return given["grad_output"].shape[:-1] == indices.shape and _within(indices, count, padding)


def _average(given: NamedArguments) -> bool:
    return given["grad_output"].shape[:-2] == given["self"].shape[:-2] and given["self"].dim() in (3, 4)


def _gated_linear_unit(given: NamedArguments) -> bool:
    whole, dim = list(given["self"].shape), given["dim"]
    if not -len(whole) <= dim < len(whole) or whole[dim] % 2:
        return False
    whole[dim] //= 2
    return list(given["grad_output"].shape) == whole


def _attention(given: NamedArguments) -> bool:
    query, key, value, mask = given["query"], given["key"], given["value"], given.get("attn_mask")
    fits = query.dim() == key.dim() == value.dim() == 4 and key.shape == value.shape and query.shape[:2] == key.shape[:2]
    within = mask is None or all(
        size in (1, whole)
        for size, whole in zip(reversed(mask.shape), (key.shape[2], query.shape[2], query.shape[1], query.shape[0]))
    )
    return fits and query.shape[3] == key.shape[3] and within


CHECKS: dict[str, Callable[[NamedArguments], bool]] = {
    "native_batch_norm": _of_channels,
    "_native_batch_norm_legit": _of_channels,
    "_native_batch_norm_legit_no_training": _of_channels,
    "_weight_norm_interface": _weight_norm,
    "_fft_r2c": _transform,
    "_fft_c2r": _transform,
    "_fft_c2c": _transform,
    "repeat_interleave": _repeats,
    "_softmax_backward_data": _equal_sizes,
    "_log_softmax_backward_data": _equal_sizes,
    "native_layer_norm_backward": _layer_norm,
    "max_pool2d_with_indices_backward": _pool(2),
    "max_pool3d_with_indices_backward": _pool(3),
    "adaptive_max_pool2d_backward": _pool(2),
    "adaptive_max_pool3d_backward": _pool(3),
    "nll_loss_backward": _likelihood,
    "nll_loss2d_backward": _likelihood,
    "embedding_dense_backward": _embedding,
    "_adaptive_avg_pool2d_backward": _average,
    "glu_backward": _gated_linear_unit,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
}
"""Operators, by name without overload, and whether what they are given fits."""


def known_backward(base: str) -> bool:
    """Whether the backward operator `base` can do no harm by what it is given, or is held to it here."""
    return base in ELEMENTWISE or base in CHECKED_BY_TORCH or base in CHECKS


def check_given(function: Any, args: tuple, kwargs: Mapping[str, object]) -> None:
    """WireError where `function` is given a number for a dtype, a layout or a memory format, which torch looks up in tables
    unchecked, or what does not fit (`CHECKS`)."""
    arguments = dict(kwargs)
    for place, parameter in enumerate(schema_of(function).arguments):
        if place < len(args):
            arguments[parameter.name] = args[place]
        elif parameter.name not in arguments and parameter.has_default_value():
            arguments[parameter.name] = parameter.default_value
        kind = next(
            (kind for name, kind in _TABLE_TYPES.items() if name in str(getattr(parameter, "real_type", parameter.type))), None
        )
        found = arguments.get(parameter.name)
        if kind is not None and parameter.name in arguments and found is not None and not isinstance(found, kind):
            if place < len(args) or parameter.name in kwargs:
                raise WireError(f"operator {function}: {parameter.name} must be of {kind}, and is {found!r:.40}")
    check = CHECKS.get(name_of(function))
    if check is None:
        return
    try:
        fits = check(arguments)
    except (KeyError, AttributeError, IndexError, TypeError, RuntimeError) as error:
        raise WireError(f"operator {function}: what it is given does not fit ({type(error).__name__})") from error
    if not fits:
        raise WireError(f"operator {function}: sizes that do not fit, or indices outside")


__all__ = ["check_given", "known_backward"]
