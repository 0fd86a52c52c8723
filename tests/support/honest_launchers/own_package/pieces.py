"""Device functions of its kernels."""

import triton


@triton.jit
def twice(y):
    return 2 * y
