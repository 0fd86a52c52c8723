"""Faults in kernels of other people's packages, under those packages' own tests: `python -m benchmarks.suites plant`.

Each is what a hand forgets or writes twice: a mask, a barrier, an atomic, zeros that were memory of nobody's. The texts are the few
words that change, in one function of one file; what changes must be there.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class SuiteFault(NamedTuple):
    """`old` becomes `new` where it comes first in `function` of `file`; `tests`: a file of the suite's tests, and for `-k`."""

    suite: str
    file: str
    function: str
    old: str
    new: str
    tests: tuple[str, str]

    @property
    def name(self) -> str:
        return (
            f"{Path(self.file).stem}, {self.function}: {' '.join(self.old.split())} -> {' '.join(self.new.split()) or '(nothing)'}"
        )

    def plant(self, folder: Path) -> None:
        """Write the fault into the copy of the suite at `folder`. ValueError where the text is not there."""
        path = folder / self.file
        before, define, body = path.read_text().partition(f"def {self.function}(")
        if self.old not in body:
            raise ValueError(f"{self.file}: {self.function} has no {self.old!r}: the suite is of another version")
        path.write_text(before + define + body.replace(self.old, self.new, 1))


_OPS, _TESTS = "src/liger_kernel/ops/", "test/transformers/test_"
MASK, MASKED, ROW = ", mask=mask", ", mask=mask, other=0.0", ", mask=mask, other=0"


def _liger(stem: str, function: str, old: str, new: str, keyword: str) -> SuiteFault:
    return SuiteFault("liger", f"{_OPS}{stem}.py", function, old, new, (f"{_TESTS}{stem}.py", keyword))


def _attorch(stem: str, function: str, old: str, new: str, tests: str, keyword: str) -> SuiteFault:
    return SuiteFault("attorch", f"attorch/{stem}_kernels.py", function, old, new, (f"tests/test_{tests}.py", keyword))


_RELU = "correctness and dtype0 and shape2"
_SOFTMAX = "functional and dtype0 and shape2"
_SPARSEMAX = "correctness and 123 and -1-5"
_NORM = "test_liger_layer_norm and dtype0 and (1023 or 3-7-256)"
_GROUP = "2-63-21 or 1-32-32"
_RMS = "test_correctness and 9-7-41 and dtype0"
_POLY = "9-7-41 and dtype0"
_PLAIN = "False-input_dtype0"  # no autocast, fp32
FAULTS = (
    _liger("relu_squared", "_relu_squared_forward_kernel", f"X_ptr + col_offsets{ROW}", "X_ptr + col_offsets", _RELU),
    _liger("relu_squared", "_relu_squared_backward_kernel", f"dx_row{MASK}", "dx_row", _RELU),
    _liger("relu_squared", "_relu_squared_backward_kernel", "dy_row * 2 *", "dy_row *", _RELU),
    _liger("softmax", "_softmax_single_block_forward_kernel", 'other=-float("inf")', "other=0.0", _SOFTMAX),
    _liger("softmax", "_softmax_single_block_backward_kernel", f"dy_stride + offs{MASKED}", "dy_stride + offs", _SOFTMAX),
    _liger("softmax", "_softmax_single_block_backward_kernel", f"dx{MASK}", "dx", _SOFTMAX),
    _liger("softmax", "_softmax_single_block_backward_kernel", "y * (dy - dot)", "y * dy - dot", _SOFTMAX),
    _liger("sparsemax", "_sparsemax_forward_kernel", "mask=mask,\n        other=0.0,\n        ", "", _SPARSEMAX),
    _liger("sparsemax", "_sparsemax_backward_kernel", "offs_iter, mask=mask_iter, other=0.0).to", "offs_iter).to", _SPARSEMAX),
    _liger("sparsemax", "_sparsemax_forward_kernel", "(s - 1.0) / k", "s / k", _SPARSEMAX),
    _liger("layer_norm", "_layer_norm_forward_kernel", f"W_ptr + col_offsets{MASKED}", "W_ptr + col_offsets", _NORM),
    _liger("layer_norm", "_layer_norm_forward_kernel", f"X_row.dtype){MASK}", "X_row.dtype)", _NORM),
    _liger("layer_norm", "_layer_norm_forward_kernel", "rstd.to(X_row.dtype))",
           "rstd.to(X_row.dtype))\n    rstd = tl.load(row_RSTD_ptr + col_offsets * 0)", _NORM),
    _liger("layer_norm", "_layer_norm_backward_kernel", f"row_X_ptr + cols{MASKED}", "row_X_ptr + cols", _NORM),
    _liger("layer_norm", "_layer_norm_backward_kernel", "mask = cols < n_cols",
           "mask = cols < n_cols\n    if row_start >= n_rows:\n        return", _NORM),
    _liger("layer_norm", "_layer_norm_backward_kernel", "min((row_block_id + 1) * rows_per_program, n_rows)",
           "(row_block_id + 1) * rows_per_program", _NORM),
    _liger("layer_norm", "_layer_norm_forward_kernel", "tl.where(mask, X_centered, 0.0)", "X_centered", _NORM),
    _liger("group_norm", "_group_norm_forward_kernel", "mask=mask, other=m", "", _GROUP),
    _liger("group_norm", "_group_norm_backward_kernel", "tl.atomic_add(DW_ptr + channel_idx, dW.to(dtype))",
           "tl.store(DW_ptr + channel_idx, tl.load(DW_ptr + channel_idx) + dW.to(dtype))", _GROUP),
    _liger("group_norm", "group_norm_backward", "DW = torch.zeros(", "DW = torch.empty(", _GROUP),
    _liger("group_norm", "_group_norm_forward_kernel", "global_channel, mask=mask)", "global_channel)", _GROUP),
    _liger("rms_norm", "_rms_norm_backward_kernel", f"dy_base + col_offsets{MASKED}", "dy_base + col_offsets", _RMS),
    _liger("rms_norm", "_rms_norm_forward_kernel", f"x_base + col_offsets{ROW}", "x_base + col_offsets", _RMS),
    _liger("rms_norm", "_rms_norm_forward_kernel", f"W_ptr + col_offsets{ROW}", "W_ptr + col_offsets", _RMS),
    _liger("poly_norm", "_poly_norm_backward_kernel", f"dX_row{MASK}", "dX_row", _POLY),
    _liger("poly_norm", "_poly_norm_backward_kernel", f"x_base + col_offsets{MASKED}", "x_base + col_offsets", _POLY),
    _attorch("softmax", "softmax_forward_kernel", "float('inf') if neg else -float('inf')", "-float('inf')", "softmax_layers",
             f"{_PLAIN}-Softmin-shape0"),
    _attorch("softmax", "softmax_backward_kernel",
             "tl.load(output_pointer,\n                     mask=batch_mask[:, None] & feat_mask[None, :])",
             "tl.load(output_pointer)", "softmax_layers", f"{_PLAIN} and Softmax and shape11"),
    _attorch("layer_norm", "layer_norm_forward_kernel", "weight_pointer + feat_offset, mask=feat_mask",
             "weight_pointer + feat_offset", "layer_norm_layer", f"{_PLAIN}-True-True-1e-05-shape11"),
    _attorch("layer_norm", "layer_norm_backward_kernel", "output_grad * pre_lin, axis=0),\n                 mask=feat_mask",
             "output_grad * pre_lin, axis=0)", "layer_norm_layer", f"{_PLAIN}-True-True-1e-05-shape11"),
    _attorch("dropout", "dropout_forward_kernel", f"input_pointer + offset{MASK}", "input_pointer + offset", "dropout_layer",
             "0.5-shape0"),
    _attorch("dropout", "dropout_backward_kernel", f"input_grad{MASK}", "input_grad", "dropout_layer", "0.5-shape0"),
    _attorch("dropout", "apply_dropout_grad", "/ (1 - drop_p)", "", "dropout_layer", "0.5-shape0"),
    _attorch("p_loss", "p_loss_backward_kernel", f"target_pointer + offset{MASK}", "target_pointer + offset", "p_loss_layers",
             f"{_PLAIN}-mean-MSELoss-shape0"),
    _attorch("p_loss", "p_loss_forward_kernel", "pid, tl.sum(error) / size", "0, tl.sum(error) / size", "p_loss_layers",
             f"{_PLAIN}-mean-MSELoss-shape0"),
    _attorch("glu", "glu_forward_kernel", f"input1_pointer + offset{MASK}", "input1_pointer + offset", "glu_layer",
             f"{_PLAIN}-sigmoid-shape0"),
    _attorch("glu", "glu_backward_kernel", f"input2_grad{MASK}", "input2_grad", "glu_layer", f"{_PLAIN}-sigmoid-shape0"),
    _attorch("act", "act_func_forward_kernel", f"input_pointer + offset{MASK}", "input_pointer + offset", "act_layers",
             f"{_PLAIN}-0.0-ReLU-shape0"),
    _attorch("rms_norm", "rms_norm_forward_kernel", "weight_pointer + feat_offset, mask=feat_mask", "weight_pointer + feat_offset",
             "rms_norm_layer", f"{_PLAIN} and True and shape11"),
    _attorch("nll_loss", "nll_loss_backward_kernel", "input_grad /= tl.load(sum_weights_pointer)", "pass", "nll_loss_layer",
             f"{_PLAIN}-True-mean-shape0"),
)  # fmt: skip

__all__ = ["FAULTS", "SuiteFault"]
