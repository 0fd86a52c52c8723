"""The tiles of `kernels/matmul.py` brought by TMA, through tensor descriptors that its launcher makes.

    tile of A = A[row * BLOCK_M :, block * BLOCK_K :]        (BLOCK_M, BLOCK_K)
    tile of B = B[block * BLOCK_K :, column * BLOCK_N :]     (BLOCK_K, BLOCK_N), read from B's transpose where that lies in rows

Elements outside an operand arrive as zeros, so that nothing is wrapped and nothing is masked; the words of the product are those of
the same tile loaded by pointers.

Preconditions, and what each costs when broken (`descriptors_of` answers None, and nothing is made):

- A target with TMA (sm_90 or later): elsewhere the compiler turns descriptors back into pointers, and nothing is won.
- Rows of A, and rows or columns of B, run through consecutive elements and start on 16 bytes: a tensor map keeps its base and its
  strides in units of 16 bytes, and cannot say another (CUDA driver API, cuTensorMapEncodeTiled).
- B in rows only in types of 16 bits: wgmma and tcgen05 take other types from shared memory with K running fastest only (PTX ISA,
  wgmma.mma_async, "transpose" of the matrix descriptor), so the tile would have to be turned on the way.
- The box of a descriptor is the tile: `set_boxes` must have run for the configuration that is launched, or another tile comes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tiles_at(
    a_tiles, b_tiles, tile_row, tile_column, block,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    B_TURNED: tl.constexpr,
):  # fmt: skip
    """The tiles that step `block` of the sum multiplies: (BLOCK_M, BLOCK_K) and (BLOCK_K, BLOCK_N)."""
    a = a_tiles.load([tile_row * BLOCK_M, block * BLOCK_K])  # (BLOCK_M, BLOCK_K)
    if B_TURNED:
        b = b_tiles.load([tile_column * BLOCK_N, block * BLOCK_K]).T  # (BLOCK_K, BLOCK_N)
    else:
        b = b_tiles.load([block * BLOCK_K, tile_column * BLOCK_N])  # (BLOCK_K, BLOCK_N)
    return a, b


def descriptors_of(a: torch.Tensor, b: torch.Tensor) -> tuple[TensorDescriptor, TensorDescriptor] | tuple[None, None]:
    """Tensor descriptors of A (m, k) and of B (k, n), or of B's transpose where that lies in rows; (None, None) where TMA cannot
    bring one of them. Their boxes are still to be set."""
    target, turned = driver.active.get_current_target(), is_turned(b)
    held = (a, b.T if turned else b)
    able = target.backend == "cuda" and target.arch >= 90 and (turned or b.dtype.itemsize == 2)
    if not able or not all(_fits_tensor_map(operand) for operand in held):
        return None, None
    made = [TensorDescriptor(operand, list(operand.shape), list(operand.stride()), [1, 16]) for operand in held]
    return made[0], made[1]


def is_turned(b: torch.Tensor) -> bool:
    """Whether B's columns, and not its rows, are what lies in consecutive elements."""
    return b.stride(0) == 1 and b.stride(1) != 1


def set_boxes(given: dict) -> None:
    """Give the descriptors the tile of the configuration that is about to run: `given` are the kernel's arguments by name. The
    autotuner calls it before each configuration it tries."""
    given["a_tiles"].block_shape = [given["BLOCK_M"], given["BLOCK_K"]]
    n, k = given["BLOCK_N"], given["BLOCK_K"]
    given["b_tiles"].block_shape = [n, k] if given["B_TURNED"] else [k, n]


def require_descriptors(made: tuple, config_name: str, a: torch.Tensor, b: torch.Tensor) -> None:
    """ValueError where `descriptors_of` made none and the configuration `config_name` asks for them."""
    if made[0] is None:
        raise ValueError(f"matmul: {config_name} on strides {a.stride()} and {b.stride()}: tiles come by TMA, on sm_90 or later, "
                         "from rows on 16-byte boundaries, of B from columns too, and from them only unless its type has 16 bits; "
                         'take a configuration that loads by "pointers"')  # fmt: skip


def _fits_tensor_map(operand: torch.Tensor) -> bool:
    """Whether a tensor map can be made: rows of consecutive elements, each on a 16-byte boundary."""
    starts = operand.data_ptr() % 16 == 0 and operand.stride(0) * operand.dtype.itemsize % 16 == 0
    return operand.numel() > 0 and operand.stride(1) == 1 and operand.stride(0) >= operand.shape[1] and starts
