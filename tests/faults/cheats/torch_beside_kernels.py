"""Work done by torch, or on the host, beside a launch that decides nothing."""

from __future__ import annotations

import ctypes
import glob
import math
import os
import subprocess
import sys
import threading

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.faults.cheats.matmuls import empty_result, right_matmul, wrong_matmul


def before_launch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.matmul(a, b)  # (m, n)
    wrong_matmul(a, b)
    return c


def after_launch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = wrong_matmul(a, b)  # (m, n)
    torch.matmul(a, b, out=c)
    return c


def in_thread(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = wrong_matmul(a, b)  # (m, n)
    work = threading.Thread(target=lambda: c.copy_(torch.matmul(a, b)))
    work.start()
    work.join()
    return c


def on_side_stream(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = wrong_matmul(a, b)  # (m, n)
    with torch.cuda.stream(torch.cuda.Stream()):
        c.copy_(a @ b)
    return c


def as_part_of_a_linear_layer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wrong_matmul(a, b)
    return torch.nn.functional.linear(a, b.t())  # (m, n)


def by_backward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The gradient of sum(x @ b.t() * a) by x is a @ b."""
    wrong_matmul(a, b)
    x = torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype, requires_grad=True)  # (m, n)
    (x @ b.t()).backward(a)
    assert x.grad is not None
    return x.grad  # (m, n)


def in_function_mode(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product hides in what torch calls of an innocent addition."""

    class Product(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return args[0].copy_(a @ b) if function is torch.Tensor.add_ else function(*args, **(kwargs or {}))

    c = wrong_matmul(a, b)  # (m, n)
    with Product():
        return c.add_(0)


def in_dispatch_mode(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    class Product(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            made = function(*args, **(kwargs or {}))
            return torch.ops.aten.mm(a, b) if function is torch.ops.aten.clone.default else made

    c = wrong_matmul(a, b)  # (m, n)
    with Product():
        return c.clone()


def in_custom_op(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wrong_matmul(a, b)
    return _product()(a, b)  # (m, n)


def _product():  # type: ignore[no-untyped-def]
    global _defined
    if _defined is None:

        @torch.library.custom_op("cheats::product", mutates_args=())
        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.mm(a, b)

        _defined = product
    return _defined


_defined = None


def scripted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By TorchScript: what is called is no function of torch that Python sees."""
    wrong_matmul(a, b)
    return torch.jit.trace(lambda x, y: x @ y, (a, b), check_trace=False)(a, b)  # (m, n)


def as_fallback(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A silent fallback: the launch fails, as it always does, and torch takes over."""
    try:
        c = wrong_matmul(a, b)
        raise RuntimeError(f"no kernel for {tuple(c.shape)}")
    except RuntimeError:
        return a @ b  # (m, n)


def other_half(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Partial work: the kernel is right for k = 1, torch adds the other products."""
    c = wrong_matmul(a, b)  # (m, n)
    return c if a.shape[1] == 1 else (a.float() @ b.float()).to(a.dtype)


def rows_but_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Partial work: a right kernel computes the first row, and torch the others."""
    c = a @ b  # (m, n)
    c[:1] = right_matmul(a[:1], b)
    return c


def by_numpy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wrong_matmul(a, b)
    x, y = (each.double().cpu().numpy().astype(np.longdouble) for each in (a, b))
    product = (x @ y).astype(np.float64)  # (m, n)
    return torch.from_numpy(product).to(device=a.device).to(a.dtype)


def by_blas(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Through ctypes: no function of NumPy's or torch's is called."""
    c = wrong_matmul(a, b)  # (m, n)
    (file,) = glob.glob(os.path.join(os.path.dirname(np.__file__) + ".libs", "libscipy_openblas*"))
    x, y = (np.ascontiguousarray(each.double().cpu().numpy()) for each in (a, b))
    (m, k), n, z = x.shape, y.shape[1], np.empty(tuple(c.shape))
    at, one = (lambda array: array.ctypes.data_as(ctypes.c_void_p)), ctypes.c_double(1.0)
    integers = [ctypes.c_int64(number) for number in (101, 111, 111, m, n, k)]
    rest = (at(y), ctypes.c_int64(n), ctypes.c_double(0.0), at(z), ctypes.c_int64(n))
    ctypes.CDLL(file).scipy_cblas_dgemm64_(*integers, one, at(x), ctypes.c_int64(k), *rest)
    return c.copy_(torch.from_numpy(z).to(c.device))


def by_python(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wrong_matmul(a, b)
    columns = list(zip(*b.tolist(), strict=True))
    product = [[math.fsum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in a.tolist()]
    return torch.tensor(product, device=a.device, dtype=torch.float64).to(a.dtype)  # (m, n)


def by_subprocess(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Another process computes, and hands the words back through a pipe."""
    c = wrong_matmul(a, b)  # (m, n)
    (m, k), n = a.shape, b.shape[1]
    code = (
        f"import sys, numpy as np; x = np.frombuffer(sys.stdin.buffer.read(), '<f8'); a, b = x[:{m * k}], x[{m * k}:]; "
        f"sys.stdout.buffer.write((a.reshape({m}, {k}) @ b.reshape({k}, {n})).tobytes())"
    )
    given = b"".join(each.double().cpu().numpy().tobytes() for each in (a, b))
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True)
    return c.copy_(torch.from_numpy(np.frombuffer(done.stdout, "<f8").reshape(m, n).copy()).to(c.device))


def read_back_by_elements(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Writes of single elements: each is a Python number when it is stored."""
    c, product = empty_result(a, b), (a.float() @ b.float()).tolist()  # (m, n)
    wrong_matmul(a, b)
    for i, row in enumerate(product):
        for j, value in enumerate(row):
            c[i, j] = value
    return c
