"""What the launchers of this folder compute: a test for each, by the address of its launcher, which is never imported here."""

from __future__ import annotations

import bitverdict as bv

FLOATS = ("fp32", "fp16", "bf16")
AXPY = {
    "elementwise.py": (
        "plain", "with_tuple_grid", "with_out_argument", "with_zeros", "on_named_device", "on_current_device", "flattened",
        "of_rows", "into_a_wider_buffer", "turned", "padded", "or_nothing", "by_partial", "by_lambda", "decorated",
        "in_a_context", "instance", "bound_method", "static_method", "module", "by_capability", "persistent",
        "persistent_by_the_driver", "on_a_stream", "between_events", "warmed_up", "by_run", "reading_the_compiled_kernel",
        "with_a_type_parameter", "unspecialized", "with_helpers", "with_device_assert", "two_kernels", "in_place_of_a_clone",
        "in_single_precision",
    ),
    "tuned.py": (
        "tuned", "pruned", "hooked", "reset", "restored", "heuristic", "tuned_and_heuristic", "by_autograd", "apply_itself",
        "by_custom_op", "by_triton_op",
    ),
    "importing.py": ("from_a_package", "imported_late"),
}  # fmt: skip


def axpy(xp, x, y):
    return x + 2 * y


def two_matrices(draw):
    rows, columns, dtype = draw.size(1, 5), draw.size(1, 150, around=64), draw.choice(FLOATS)
    return draw.tensor(dtype, (rows, columns), strides="contiguous"), draw.tensor(dtype, (rows, columns), strides="contiguous")


def _tests_of_axpy():
    for file, names in AXPY.items():
        for name in names:

            def body(draw):
                return two_matrices(draw)

            body.__name__ = body.__qualname__ = f"test_{name}"
            yield body.__name__, bv.judged(reference=axpy, launcher=f"{file}:{name}")(body)


globals().update(_tests_of_axpy())


@bv.judged(reference=axpy, launcher="elementwise.py:in_place")
def test_in_place(draw):
    return two_matrices(draw)


@bv.judged(reference=axpy, launcher="elementwise.py:given_its_output")
def test_given_its_output(draw):
    n, dtype = draw.size(1, 300, around=64), draw.choice(FLOATS)
    return draw.tensor(dtype, n), draw.tensor(dtype, n), draw.output(dtype, n)


@bv.judged(reference=axpy, launcher="elementwise.py:strided")
def test_strided(draw):
    shape, dtype = (draw.size(1, 5), draw.size(1, 150, around=64)), draw.choice(FLOATS)
    return draw.tensor(dtype, shape, strides="any"), draw.tensor(dtype, shape, strides="any")


@bv.judged(reference=axpy, launcher="elementwise.py:or_nothing")
def test_empty(draw):
    n = draw.size(0, 70)
    return draw.tensor("fp32", n), draw.tensor("fp32", n)


def row_sums(xp, x):
    return xp.sum(x, axis=1, dtype=xp.float32)


def matrix(draw, *, multiple_of=1):
    columns = {"around": 64, "multiple_of": multiple_of}
    shape = draw.size(1, 5), draw.size(multiple_of, 192, **columns)
    return draw.tensor(draw.choice(FLOATS), shape, strides="contiguous")


@bv.judged(reference=row_sums, launcher="rows.py:row_sums", returns="fp32")
def test_row_sums(draw):
    return (matrix(draw),)


@bv.judged(reference=lambda xp, x: row_sums(xp, x)[:, None], launcher="rows.py:row_sums_with_an_axis", returns="fp32")
def test_row_sums_with_an_axis(draw):
    return (matrix(draw),)


@bv.judged(reference=row_sums, launcher="rows.py:row_sums_by_atomics", returns="fp32")
def test_row_sums_by_atomics(draw):
    return (matrix(draw),)


@bv.judged(reference=row_sums, launcher="rows.py:row_sums_in_two_kernels", returns="fp32")
def test_row_sums_in_two_kernels(draw):
    return (matrix(draw),)


def sum_and_maximum(xp, x):
    return row_sums(xp, x), xp.max(x, axis=1)


@bv.judged(reference=sum_and_maximum, launcher="rows.py:sum_and_maximum", returns=("fp32", "fp32"))
def test_sum_and_maximum(draw):
    return (matrix(draw),)


@bv.judged(reference=sum_and_maximum, launcher="rows.py:sum_and_maximum_in_one_buffer", returns=("fp32", "fp32"))
def test_sum_and_maximum_in_one_buffer(draw):
    return (matrix(draw),)


def softmax(xp, x):
    p = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return p / xp.sum(p, axis=1, keepdims=True)


@bv.judged(reference=softmax, launcher="rows.py:softmax")
def test_softmax(draw):
    return (matrix(draw),)


@bv.judged(reference=softmax, launcher="rows.py:softmax_module")
def test_softmax_module(draw):
    return (matrix(draw),)


def rms_norm(xp, x, w):
    return x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-6) * w


def rows_and_weight(draw):
    m, n, dtype = draw.size(1, 5), draw.size(1, 150, around=64), draw.choice(FLOATS)
    return draw.tensor(dtype, (m, n), strides="contiguous"), draw.tensor(dtype, n)


@bv.judged(reference=rms_norm, launcher="rows.py:rms_norm_by_a_module")
def test_rms_norm_by_a_module(draw):
    return rows_and_weight(draw)


@bv.judged(reference=rms_norm, launcher="rows.py:rms_norm_by_a_state_dict")
def test_rms_norm_by_a_state_dict(draw):
    return rows_and_weight(draw)


@bv.judged(reference=lambda xp, x: x, launcher="rows.py:copied_by_host_descriptors", exact=True)
def test_copied_by_host_descriptors(draw):
    return (matrix(draw, multiple_of=8),)


@bv.judged(reference=lambda xp, x: x, launcher="rows.py:copied_by_device_descriptors", exact=True)
def test_copied_by_device_descriptors(draw):
    return (matrix(draw, multiple_of=8),)


def gathered(xp, x, index):
    return xp.take(x, index, axis=0)


def rows_and_indices(draw):
    rows = draw.size(1, 9)
    shape = rows, draw.size(1, 150, around=64)
    return draw.tensor(draw.choice(FLOATS), shape, strides="contiguous"), draw.indices(draw.size(1, 9), rows)


@bv.judged(reference=gathered, launcher="rows.py:gathered", exact=True)
def test_gathered(draw):
    return rows_and_indices(draw)


@bv.judged(reference=gathered, launcher="rows.py:gathered_by_short_indices", exact=True)
def test_gathered_by_short_indices(draw):
    return rows_and_indices(draw)


test_matmul = bv.test("rows.py:matmul", like="matmul")
test_matmul_of_a_transpose = bv.test("rows.py:matmul_of_a_transpose", like="matmul", claims=("strides", "bf16"))


@bv.judged(
    reference=lambda xp, a, b, bias: xp.round_to(a @ b, "fp32") + bias, launcher="rows.py:matmul_with_bias", strides="contiguous"
)
def test_matmul_with_bias(draw):
    m, n, k = draw.size(1, 40, around=32), draw.size(1, 40, around=32), draw.size(1, 70, around=32)
    return draw.tensor("fp32", (m, k), values="integers"), draw.tensor("fp32", (k, n), values="integers"), draw.tensor("fp32", n)
