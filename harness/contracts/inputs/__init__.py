"""Which cases are drawn, and which operands they are fed."""
