"""What decides the bits of an operation."""
