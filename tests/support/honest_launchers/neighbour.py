"""What a launcher beside it imports by its bare name."""

import triton


def grid_of(n: int, block: int) -> tuple[int]:
    return (triton.cdiv(n, block),)
