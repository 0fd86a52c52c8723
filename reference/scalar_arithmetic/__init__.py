"""Addition, product, fused multiply-add, quotient and square root as a GPU's ordinary fp32 and fp64 instructions round them."""
