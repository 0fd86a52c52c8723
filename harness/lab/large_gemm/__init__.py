"""Large products on a GPU, bit for bit at chosen elements."""
