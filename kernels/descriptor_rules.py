"""What the tensor memory accelerator (TMA) asks of a matrix and of a box: the clauses shared by every kernel that uses it.

Sources: PTX ISA, "cp.async.bulk.tensor" and "Tensor-map"; CUDA driver API, cuTensorMapEncodeTiled. A matrix is described to the
hardware by base, sizes and strides in bytes; a box is the tile one instruction moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from bitverdict.kernels.clauses import Clause
from bitverdict.kernels.element_types import bits_of, element_type

ALIGNMENT_BYTES = 16  # of the base and of every stride but the innermost
LARGEST_BOX = 256  # elements along one dimension of one instruction's box; the compiler splits at the swizzle width first


class Matrix(NamedTuple):
    """A row-major matrix as a descriptor sees it; strides and offset in elements."""

    name: str
    dtype: str
    rows: int
    columns: int
    row_stride: int
    offset: int  # elements past a 16-byte boundary


def row_padding(tensor: torch.Tensor) -> int:
    """Elements between the end of one row and the start of the next. ValueError where the tensor is not a row-major matrix."""
    if (
        tensor.dim() != 2
        or (tensor.stride(1) != 1 and tensor.shape[1] != 1)
        or (tensor.stride(0) < tensor.shape[1] and tensor.shape[0] > 1)
    ):
        raise ValueError(
            f"matrix of shape {tuple(tensor.shape)} and strides {tensor.stride()}: must be two-dimensional with "
            "contiguous rows that do not overlap; call .contiguous()"
        )
    return max(tensor.stride(0) - tensor.shape[1], 0)


def row_strides(tensor: torch.Tensor) -> list[int]:
    """The strides of a row-major matrix as a descriptor takes them, in elements. One row may have any stride in PyTorch, and no
    program reads it: one below its columns is that of contiguous rows here."""
    return [tensor.shape[1] + row_padding(tensor), 1]


def whole_units(columns: int, dtype: str) -> int:
    """`columns` rounded up to whole units of 16 bytes: as far as a TMA store into a row that ends inside a unit may write."""
    unit = 8 * ALIGNMENT_BYTES // bits_of(dtype)
    return -(-columns // unit) * unit


def store_target(result: torch.Tensor, *, keep: bool = False) -> torch.Tensor:
    """Where TMA may store (m, n) `result`: itself, or a matrix of whole 16-byte units where its rows end inside one.

    A TMA store writes the whole unit that a row ends in (measured on an H200), and what follows the row is not ours. `keep` carries
    over what `result` holds, for a kernel that writes some rows only. The caller copies the first n columns back.
    """
    columns = whole_units(result.shape[1], element_type(result.dtype).name)
    if columns == result.shape[1]:
        return result
    target = torch.empty((result.shape[0], columns), dtype=result.dtype, device=result.device)
    if keep:
        target[:, : result.shape[1]].copy_(result)
    return target


def misalignment(tensor: torch.Tensor) -> int:
    """Elements past the last 16-byte boundary at which the tensor's first element lies."""
    return tensor.data_ptr() % ALIGNMENT_BYTES // tensor.element_size()


def require_bases(kernel: str, **operands: torch.Tensor) -> None:
    """ValueError for the first operand that starts off a 16-byte boundary, by its name: of those whose offset `Problem` lacks."""
    for name, tensor in operands.items():
        if past := tensor.data_ptr() % ALIGNMENT_BYTES:
            raise ValueError(
                f"{kernel}: {name} starts {past} bytes past a 16-byte boundary: the first element must lie on one; "
                "copy the view with .clone()"
            )


def stride_clause(matrices: Callable[[Any, Any], list[Matrix]]) -> Clause:
    """Row strides in whole 16-byte units."""
    return _on_units(
        matrices,
        lambda m: m.row_stride,
        lambda m: f"row stride of {m.name} = {m.row_stride} x {m.dtype}",
        name="row strides of 16 bytes",
        rule="row strides are multiples of 16 bytes",
        remedy="allocate the matrix with padded rows and pass the view",
        cost="the tensor map cannot be encoded: the hardware keeps strides in units of 16 bytes",
    )


def base_clause(matrices: Callable[[Any, Any], list[Matrix]]) -> Clause:
    """Bases on 16-byte boundaries."""
    return _on_units(
        matrices,
        lambda m: m.offset,
        lambda m: f"{m.name} starts {m.offset} elements past a 16-byte boundary",
        name="bases on 16 bytes",
        rule="the first element must lie on a 16-byte boundary",
        remedy="copy the view with .clone()",
        cost="the tensor map cannot be encoded: the hardware keeps the base in units of 16 bytes",
    )


def _on_units(
    matrices: Callable[[object, object], list[Matrix]],
    elements: Callable[[Matrix], int],
    describe_matrix: Callable[[Matrix], str],
    **words: str,
) -> Clause:
    """So many `elements` of each matrix are a multiple of 16 bytes; `describe_matrix` says one that is not."""

    def misaligned_matrices(problem, config):
        return [m for m in matrices(problem, config) if elements(m) * bits_of(m.dtype) // 8 % ALIGNMENT_BYTES]

    return Clause(
        holds=lambda p, c: not misaligned_matrices(p, c),
        value=lambda p, c: ", ".join(map(describe_matrix, misaligned_matrices(p, c))),
        layer="driver",
        **words,
    )


def dtype_clause(allowed_types: tuple[str, ...], cost: str) -> Clause:
    """`Problem.dtype` is one that the kernel's instruction takes."""
    return Clause(
        name="element type",
        holds=lambda p, c: p.dtype in allowed_types,
        value=lambda p, c: f"dtype = {p.dtype}",
        rule=f"the element type is one of {', '.join(allowed_types)}",
        remedy="convert the operands first",
        cost=cost,
        layer="verifier",
    )


def positive_clause(*names: str) -> Clause:
    """The named sizes of `Problem` are at least 1."""
    return Clause(
        name="sizes",
        holds=lambda p, c: all(getattr(p, n) >= 1 for n in names),
        value=lambda p, c: ", ".join(f"{n} = {getattr(p, n)}" for n in names if getattr(p, n) < 1),
        rule="every size must be at least 1",
        remedy="answer an empty matrix without a launch",
        cost="a tensor map of size 0 cannot be encoded and a grid of size 0 cannot be launched",
        layer="driver",
    )


def output_clause(allowed_types: tuple[str, ...]) -> Clause:
    """`Problem.out` is a type that the kernel's sum is converted to."""
    return Clause(
        name="output type",
        holds=lambda p, c: p.out in allowed_types,
        value=lambda p, c: f"out_dtype {p.out}",
        rule=f"it must be one of {', '.join(allowed_types)}",
        remedy="ask for fp32 and convert afterwards",
        cost="the conversion would be a guess",
    )


def powers_of_two_clause(matrix: str) -> Clause:
    """Tile and warps of `Config` are powers of two; `matrix` names what need not be."""
    return Clause(
        name="powers of two",
        holds=lambda p, c: all(is_power_of_two(s) for s in (c.block_m, c.block_n, c.block_k, c.num_warps)),
        value=lambda p, c: f"tile {c.block_m}x{c.block_n}x{c.block_k}, {c.num_warps} warps",
        rule="tile and warps are powers of two",
        remedy=f"take the next power of two: {matrix} may stay ragged",
        cost="a tile program has no such tensor",
        layer="front end",
    )


def capacity_clause(shared_bytes: Callable[..., int], limit: int, contents: str, remedy: str) -> Clause:
    """The launch's `contents` fit (a verb of theirs) `limit` bytes of shared memory."""
    return Clause(
        name="shared memory",
        holds=lambda p, c: shared_bytes(p, c) <= limit,
        value=lambda p, c: f"{shared_bytes(p, c)} bytes",
        rule=f"{contents} {limit} bytes of shared memory",
        remedy=remedy,
        cost="the launch is out of resources",
        layer="capacity",
    )


def same_place(*tensors: torch.Tensor) -> None:
    """ValueError where the operands are not on one device."""
    devices = {t.device for t in tensors}
    if len(devices) > 1:
        raise ValueError(f"operands on {', '.join(sorted(map(str, devices)))}: must share one device; move them with .to(...)")


def same_type(*tensors: torch.Tensor) -> str:
    """The one element-type name of the operands; ValueError where they differ."""
    dtypes = {t.dtype for t in tensors}
    if len(dtypes) > 1:
        raise ValueError(f"operands of {', '.join(sorted(map(str, dtypes)))}: must share one element type; convert one")
    return element_type(tensors[0].dtype).name


def is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
